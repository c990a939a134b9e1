"""TrainJob, the training that a user submits, and the runtimes that say how it runs."""

import msgspec

from trainer_kai.api.jobset import JobSetSpec
from trainer_kai.api.meta import Condition, Meta, TemplateMeta
from trainer_kai.api.pod import Resources


class MPIPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    num_proc_per_node: int = 1
    run_launcher_as_node: bool = False


class PresenceOnly(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A field of which only the presence matters."""


class MLPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """At most one of the ways in which processes find each other is set."""

    num_nodes: int | None = None
    torch: PresenceOnly | None = None
    mpi: MPIPolicy | None = None
    jax: PresenceOnly | None = None
    xgboost: PresenceOnly | None = None
    flux: PresenceOnly | None = None


class KaiPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A field that not every version of the CRD has."""

    queue: str = ""


class PodGroupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Of other schedulers only the presence matters."""

    coscheduling: PresenceOnly | None = None
    volcano: PresenceOnly | None = None
    kai_scheduler: KaiPolicy | None = None


class JobSetTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: JobSetSpec = JobSetSpec()


class RuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A missing mlPolicy differs from an empty one."""

    ml_policy: MLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: JobSetTemplate = JobSetTemplate()


class Runtime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: RuntimeSpec = RuntimeSpec()


class RuntimeRef(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The API server fills in its kind."""

    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    num_nodes: int | None = None
    num_proc_per_node: int | None = None
    resources_per_node: Resources | None = None


class TrainingRuntimeSpecPatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of containers only some fields can be patched."""

    template: JobSetTemplate = JobSetTemplate()


class RuntimePatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    manager: str = ""
    training_runtime_spec: TrainingRuntimeSpecPatch = TrainingRuntimeSpecPatch()


class TrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    runtime_ref: RuntimeRef = RuntimeRef()
    trainer: Trainer | None = None
    runtime_patches: tuple[RuntimePatch, ...] = ()
    suspend: bool = False
    managed_by: str = ""
    active_deadline_seconds: int | None = None


class TrainJobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()
