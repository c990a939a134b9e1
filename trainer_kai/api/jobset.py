"""JobSet, the jobs of one training in the order of their start; Job, its template, and CronJob."""

from typing import Any

import msgspec

from trainer_kai.api.meta import Condition, Meta, TemplateMeta
from trainer_kai.api.pod import PodTemplate


class JobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The API server defaults to one pod."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool = False
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class UncountedPods(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The uids of pods that have ended, and are about to be counted."""

    failed: tuple[str, ...] = ()


class JobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    active: int = 0
    start_time: str = ""  # "" while it has not begun, or is suspended
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    uncounted_terminated_pods: UncountedPods = UncountedPods()
    conditions: tuple[Condition, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ReplicatedJobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """It counts jobs, not pods."""

    name: str
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    suspended: int = 0


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: JobSpec = JobSpec()


class CronJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Only what its Jobs are made from."""

    job_template: JobTemplate = JobTemplate()


class CronJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: CronJobSpec = CronJobSpec()


class DependsOn(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Another replicatedJob that must be Ready or Complete before this one is created."""

    name: str
    status: str


class ReplicatedJob(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    replicas: int = 1
    group_name: str = "default"
    template: JobTemplate = JobTemplate()
    depends_on: tuple[DependsOn, ...] = ()


class StartupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """AnyOrder, or InOrder: each replicatedJob starts when the one before it is Ready."""

    startup_policy_order: str = "AnyOrder"


class FailurePolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Only the fields that we read."""

    restart_strategy: str = ""


class VolumeClaimPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Only whether the claims are kept when the JobSet ends."""

    retention_policy: dict[str, Any] | None = None


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    startup_policy: StartupPolicy = StartupPolicy()
    failure_policy: FailurePolicy | None = None
    suspend: bool = False
    managed_by: str = ""
    volume_claim_policies: tuple[VolumeClaimPolicy, ...] = ()


class JobSetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`restarts` is the number of the current attempt."""

    conditions: tuple[Condition, ...] = ()
    restarts: int = 0
    terminal_state: str = ""
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class JobSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()
