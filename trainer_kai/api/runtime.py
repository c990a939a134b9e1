"""TrainingRuntime and ClusterTrainingRuntime: how trainings of a kind are run."""

import msgspec

from trainer_kai.api.jobset import JobSetSpec
from trainer_kai.api.meta import Meta, TemplateMeta

__all__ = [
    "JobSetTemplate",
    "KaiPolicy",
    "MLPolicy",
    "MPIPolicy",
    "PodGroupPolicy",
    "PresenceOnly",
    "Runtime",
    "RuntimeSpec",
]


class MPIPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A launcher and its workers."""

    num_proc_per_node: int = 1
    run_launcher_as_node: bool = False


class PresenceOnly(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A field of which we read only that it is there."""


class MLPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many nodes, and how their processes find each other: in one of these ways at most."""

    num_nodes: int | None = None
    torch: PresenceOnly | None = None
    mpi: MPIPolicy | None = None
    jax: PresenceOnly | None = None
    xgboost: PresenceOnly | None = None
    flux: PresenceOnly | None = None


class KaiPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The queue that a runtime asks for, where the CRD carries this field."""

    queue: str = ""


class PodGroupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Which scheduler places the gang; of others it is enough that they are named."""

    coscheduling: PresenceOnly | None = None
    volcano: PresenceOnly | None = None
    kai_scheduler: KaiPolicy | None = None


class JobSetTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What JobSets are made from."""

    metadata: TemplateMeta = TemplateMeta()
    spec: JobSetSpec = JobSetSpec()


class RuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Policies and the template; a runtime without an mlPolicy is not one with an empty one."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplate = JobSetTemplate()


class Runtime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A runtime of one namespace or of the cluster; both are written alike."""

    metadata: Meta
    spec: RuntimeSpec = RuntimeSpec()
