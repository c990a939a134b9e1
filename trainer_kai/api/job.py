"""Job: pods that run to completion, and their template."""

import msgspec

from trainer_kai.api.meta import Condition, Meta, TemplateMeta
from trainer_kai.api.pod import PodTemplate


class JobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many pods run, and how they are retried; the API server defaults to one pod."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class JobStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The progress of the job."""

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
    """The number of jobs of a replicatedJob by state; it counts jobs, not pods."""

    name: str
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    suspended: int = 0


class JobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The template of the jobs of a replicatedJob."""

    metadata: TemplateMeta = TemplateMeta()
    spec: JobSpec = JobSpec()
