"""TrainJob: the training that a user submits."""

import msgspec

from trainer_kai.api.container import Resources
from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.runtime import JobSetTemplate


class RuntimeRef(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The runtime; the API server fills in its kind."""

    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The changes of this TrainJob to its runtime's trainer."""

    num_nodes: int | None = None
    num_proc_per_node: int | None = None
    resources_per_node: Resources | None = None


class TrainingRuntimeSpecPatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Patches of the runtime; of containers only some fields can be patched."""

    template: JobSetTemplate = JobSetTemplate()


class RuntimePatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The patches of one manager."""

    manager: str = ""
    training_runtime_spec: TrainingRuntimeSpecPatch = TrainingRuntimeSpecPatch()


class TrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The desired state."""

    runtime_ref: RuntimeRef = RuntimeRef()
    trainer: Trainer | None = None
    runtime_patches: tuple[RuntimePatch, ...] = ()
    suspend: bool = False
    managed_by: str = ""


class TrainJobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The progress of the training."""

    conditions: tuple[Condition, ...] = ()


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A training."""

    metadata: Meta
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()
