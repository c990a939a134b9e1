"""Job: pods that run to the end, and their template."""

import msgspec

from trainer_kai.api.meta import Condition, Meta, TemplateMeta
from trainer_kai.api.pod import PodTemplate

__all__ = ["Job", "JobSpec", "JobStatus", "JobTemplate", "ReplicatedJobStatus"]


class JobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many pods, and how they are retried; the API server fills in one pod, a CRD does not."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class JobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How far the job is."""

    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] = ()


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job."""

    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ReplicatedJobStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many jobs of one replicatedJob are in which state; it counts jobs, not pods."""

    name: str
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    suspended: int = 0


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What jobs are made from."""

    metadata: TemplateMeta = TemplateMeta()
    spec: JobSpec = JobSpec()
