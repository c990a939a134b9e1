"""TrainingRuntime and ClusterTrainingRuntime: how trainings of a kind are run."""

import msgspec

from trainer_kai.api.jobset import JobSetSpec
from trainer_kai.api.meta import Meta, TemplateMeta

__all__ = [
    "JobSetTemplate",
    "KaiPolicy",
    "MLPolicy",
    "MPIPolicy",
    "Named",
    "PodGroupPolicy",
    "Runtime",
    "RuntimeSpec",
]


class MPIPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A launcher and its workers."""

    num_proc_per_node: int = 1
    run_launcher_as_node: bool = False


class MLPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many nodes, and how their processes find each other."""

    num_nodes: int | None = None
    mpi: MPIPolicy | None = None


class KaiPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The queue that a runtime asks for, where the CRD carries this field."""

    queue: str = ""


class Named(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A policy of which we read only that it is there."""


class PodGroupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Who schedules the gang; for another scheduler it is enough that it is named."""

    coscheduling: Named | None = None
    volcano: Named | None = None
    kai_scheduler: KaiPolicy | None = None


class JobSetTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What JobSets are made from."""

    metadata: TemplateMeta = TemplateMeta()
    spec: JobSetSpec = JobSetSpec()


class RuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Policies and the template."""

    ml_policy: MLPolicy = MLPolicy()
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplate = JobSetTemplate()


class Runtime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A runtime of one namespace or of the cluster; both are written alike."""

    metadata: Meta
    spec: RuntimeSpec = RuntimeSpec()
