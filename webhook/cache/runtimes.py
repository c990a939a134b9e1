"""A runtime as admission reads it: a short summary, and the text of its spec for lint.

The summary has the labels that name a queue or mark a group of another scheduler, the annotations
that place pods, and the scheduler names. It has no containers, so its size does not depend on
theirs. A summary has at most as many replicatedJobs as are planned: a JobSet with more is denied.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.job import JobSpec, JobTemplate
from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.meta import Key, Meta, TemplateMeta
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
    QUEUE,
    TRAINER,
    VOLCANO_GROUP,
)
from trainer_kai.api.pod import PodSpec, PodTemplate
from trainer_kai.api.resource import Resource
from trainer_kai.api.runtime import PodGroupPolicy
from trainer_kai.api.trainjob import RuntimeRef
from trainer_kai.policy.podgroups.planned import MOST_JOBS
from webhook.cache.bounded_store import OBJECT_BYTES, text_bytes

_LABELS: Final = (QUEUE, COSCHEDULING_GROUP)
_ANNOTATIONS: Final = (EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY, VOLCANO_GROUP)


class _SlimPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduler_name: str = ""


class _SlimPodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimPodSpec = _SlimPodSpec()


class _SlimJobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: _SlimPodTemplate = _SlimPodTemplate()


class SlimJobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The Job template of a replicatedJob, or the overlay of a runtime patch."""

    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSpec = _SlimJobSpec()


class _SlimReplicatedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str = ""
    template: SlimJobTemplate = SlimJobTemplate()


class _SlimJobSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicated_jobs: tuple[_SlimReplicatedJob, ...] = ()


class SlimJobSetTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The JobSet template of a runtime, or the overlay of a runtime patch."""

    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSetSpec = _SlimJobSetSpec()


class _SlimMPIPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    run_launcher_as_node: bool = False


class _SlimMLPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    mpi: _SlimMPIPolicy | None = None


class RuntimeSummary(NamedTuple):
    """The fields of a runtime that the rules read."""

    queue: str = ""  # of podGroupPolicy.kaiScheduler
    other_schedulers: tuple[str, ...] = ()  # schedulers that its policies choose
    jobset_metadata: TemplateMeta = TemplateMeta()
    jobs: tuple[ReplicatedJob, ...] = ()
    left_out_jobs: int = 0  # replicatedJobs that are not planned
    launcher_trains: bool = True  # the launcher of MPI is one of the nodes


class SlimRuntimeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The schedulers and the launcher of a runtime, and labels and annotations of its templates."""

    ml_policy: _SlimMLPolicy | None = None
    pod_group_policy: PodGroupPolicy | None = None
    template: SlimJobSetTemplate = SlimJobSetTemplate()


class WatchedRuntime(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A runtime as it is watched: its summary, and its spec as text."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw(b"{}")

    def __post_init__(self) -> None:
        """Raise ValueError for a spec that cannot be read: the watch reports such a runtime."""
        try:
            _ = self.summary
        except DecodeError as error:
            raise ValueError(f"spec: {error}") from error

    @cached_property
    def summary(self) -> RuntimeSummary:
        """Return what the rules read."""
        if bytes(self.spec) == b"null":
            return RuntimeSummary()
        return summarize_runtime(decode(SlimRuntimeSpec, self.spec))


RUNTIMES: Final = Resource(
    TRAINER,
    "v1alpha1",
    "trainingruntimes",
    "TrainingRuntime",
    namespaced=True,
    struct=WatchedRuntime,
)
CLUSTER_RUNTIMES: Final = Resource(
    TRAINER,
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
    struct=WatchedRuntime,
)


def summarize_runtime(spec: SlimRuntimeSpec) -> RuntimeSummary:
    """Return the summary of a runtime with this spec."""
    policy = spec.pod_group_policy or PodGroupPolicy()
    template = spec.template
    mpi = spec.ml_policy.mpi if spec.ml_policy else None
    policies = {"coscheduling": policy.coscheduling, "volcano": policy.volcano}
    jobs = template.spec.replicated_jobs
    return RuntimeSummary(
        queue=policy.kai_scheduler.queue if policy.kai_scheduler else "",
        other_schedulers=tuple(
            name for name, policy_options in policies.items() if policy_options is not None
        ),
        jobset_metadata=_metadata_summary(template.metadata),
        jobs=tuple(map(_job_summary, jobs[:MOST_JOBS])),
        left_out_jobs=max(0, len(jobs) - MOST_JOBS),
        launcher_trains=mpi is None or mpi.run_launcher_as_node,
    )


def runtime_key(ref: RuntimeRef, namespace: str) -> Key:
    """Return the key of the runtime that a TrainJob of a namespace names."""
    return Key(namespace if ref.kind == RUNTIMES.kind else "", ref.name)


def runtime_bytes(runtime: RuntimeSummary) -> int:
    """Return how many bytes a summary takes; names of labels and annotations are shared."""
    metadatas = [runtime.jobset_metadata]
    for job in runtime.jobs:
        metadatas += job.template.metadata, job.template.spec.template.metadata
    texts = [text for it in metadatas for text in (*it.labels.values(), *it.annotations.values())]
    for job in runtime.jobs:
        texts += job.name, job.template.spec.template.spec.scheduler_name
    return OBJECT_BYTES * (1 + len(runtime.jobs)) + text_bytes((runtime.queue, *texts))


def overlaid_metadata(base: TemplateMeta, overlays: Iterable[TemplateMeta]) -> TemplateMeta:
    """Return labels and annotations with overlays; the last overlay has precedence."""
    labels, annotations = dict(base.labels), dict(base.annotations)
    for overlay in overlays:
        labels |= _select(overlay.labels, _LABELS)
        annotations |= _select(overlay.annotations, _ANNOTATIONS)
    return TemplateMeta(labels=labels, annotations=annotations)


def replicated_job(name: str, metadata: TemplateMeta, pods: PodTemplate) -> ReplicatedJob:
    """Return a replicatedJob with this pod template."""
    return ReplicatedJob(
        name=name, template=JobTemplate(metadata=metadata, spec=JobSpec(template=pods))
    )


def _job_summary(job: _SlimReplicatedJob) -> ReplicatedJob:
    pods = job.template.spec.template
    spec = PodSpec(scheduler_name=pods.spec.scheduler_name)
    return replicated_job(
        job.name,
        _metadata_summary(job.template.metadata),
        PodTemplate(metadata=_metadata_summary(pods.metadata), spec=spec),
    )


def _metadata_summary(metadata: TemplateMeta) -> TemplateMeta:
    return overlaid_metadata(TemplateMeta(), [metadata])


def _select(given: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}
