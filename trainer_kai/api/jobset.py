"""JobSet: the jobs of one training, with the order in which they start."""

from typing import Any

import msgspec

from trainer_kai.api.job import JobTemplate, ReplicatedJobStatus
from trainer_kai.api.meta import Condition, Meta


class DependsOn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another replicatedJob that must be Ready or Complete before this one is created."""

    name: str
    status: str


class ReplicatedJob(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A number of equal jobs."""

    name: str
    replicas: int = 1
    group_name: str = "default"
    template: JobTemplate = JobTemplate()
    depends_on: tuple[DependsOn, ...] = ()


class StartupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """AnyOrder, or InOrder: each replicatedJob starts when the one before it is Ready."""

    startup_policy_order: str = "AnyOrder"


class FailurePolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The reaction to a failed job; only the fields that we read."""

    restart_strategy: str = ""


class VolumeClaimPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The volume claims of a JobSet; only whether they are kept when it ends."""

    retention_policy: dict[str, Any] | None = None


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The desired state."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    startup_policy: StartupPolicy = StartupPolicy()
    failure_policy: FailurePolicy | None = None
    suspend: bool = False
    managed_by: str = ""
    volume_claim_policies: tuple[VolumeClaimPolicy, ...] = ()


class JobSetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The progress of the JobSet; `restarts` is the number of the current attempt."""

    conditions: tuple[Condition, ...] = ()
    restarts: int = 0
    terminal_state: str = ""
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class JobSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A JobSet."""

    metadata: Meta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()
