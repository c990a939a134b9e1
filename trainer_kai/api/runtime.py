"""TrainingRuntime and ClusterTrainingRuntime: how the trainings of a kind run."""

import msgspec

from trainer_kai.api.jobset import JobSetSpec
from trainer_kai.api.meta import Meta, TemplateMeta


class MPIPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """MPI: a launcher and its workers."""

    num_proc_per_node: int = 1
    run_launcher_as_node: bool = False


class PresenceOnly(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A field of which only the presence matters."""


class MLPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The number of nodes, and how their processes find each other: at most one of these ways."""

    num_nodes: int | None = None
    torch: PresenceOnly | None = None
    mpi: MPIPolicy | None = None
    jax: PresenceOnly | None = None
    xgboost: PresenceOnly | None = None
    flux: PresenceOnly | None = None


class KaiPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The queue of a runtime, if the CRD has this field."""

    queue: str = ""


class PodGroupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The scheduler of the gang; of other schedulers only the presence matters."""

    coscheduling: PresenceOnly | None = None
    volcano: PresenceOnly | None = None
    kai_scheduler: KaiPolicy | None = None


class JobSetTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The template of JobSets."""

    metadata: TemplateMeta = TemplateMeta()
    spec: JobSetSpec = JobSetSpec()


class RuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Policies and the template; a missing mlPolicy differs from an empty one."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplate = JobSetTemplate()


class Runtime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A runtime of a namespace or of the cluster."""

    metadata: Meta
    spec: RuntimeSpec = RuntimeSpec()
