"""TrainJob: what a user asks for."""

import msgspec

from trainer_kai.api.container import Resources
from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.runtime import JobSetTemplate

__all__ = [
    "RuntimePatch",
    "RuntimeRef",
    "TrainJob",
    "TrainJobSpec",
    "TrainJobStatus",
    "Trainer",
    "TrainingRuntimeSpecPatch",
]


class RuntimeRef(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The runtime; the API server fills in the kind."""

    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What this training changes of its runtime's trainer."""

    num_nodes: int | None = None
    num_proc_per_node: int | None = None
    resources_per_node: Resources | None = None


class TrainingRuntimeSpecPatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is merged over the runtime; of containers only parts can be patched."""

    template: JobSetTemplate = JobSetTemplate()


class RuntimePatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One manager's changes."""

    manager: str = ""
    training_runtime_spec: TrainingRuntimeSpecPatch = TrainingRuntimeSpecPatch()


class TrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What is to be trained, and with what."""

    runtime_ref: RuntimeRef = RuntimeRef()
    trainer: Trainer | None = None
    runtime_patches: tuple[RuntimePatch, ...] = ()
    suspend: bool = False
    managed_by: str = ""


class TrainJobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How far the training is."""

    conditions: tuple[Condition, ...] = ()


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A training."""

    metadata: Meta
    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()
