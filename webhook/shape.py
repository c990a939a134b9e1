"""What admission looks at in a runtime, and in the JobSet that will be made of it.

That is little: labels that name a queue or mark a group, annotations that place pods, scheduler
names. Containers are not even read, so a runtime may be as large as it likes. Of one with more
replicatedJobs than are planned only the first are kept: its JobSet is refused anyway.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.job import JobSpec, JobTemplate
from trainer_kai.api.jobset import JobSet, JobSetSpec, ReplicatedJob
from trainer_kai.api.meta import Meta, TemplateMeta
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
    QUEUE,
    VOLCANO_GROUP,
)
from trainer_kai.api.pod import PodSpec, PodTemplate
from trainer_kai.api.runtime import PodGroupPolicy
from trainer_kai.policy.units import MOST_JOBS

__all__ = [
    "PATCHES",
    "RuntimeSummary",
    "SlimRuntimePatch",
    "SlimTemplate",
    "expected_jobset",
    "jobset_queue_path",
    "patched_jobset_queue",
    "patched_pod_queues",
    "patches_annotation",
    "pod_queue_path",
    "runtime_summary",
]

PATCHES: Final = "spec.runtimePatches"
_LABELS: Final = (QUEUE, COSCHEDULING_GROUP)
_ANNOTATIONS: Final = (EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY, VOLCANO_GROUP)
_SPEC: Final = "trainingRuntimeSpec.template"


class _SlimPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduler_name: str = ""


class _SlimPodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimPodSpec = _SlimPodSpec()


class _SlimJobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: _SlimPodTemplate = _SlimPodTemplate()


class SlimJobTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSpec = _SlimJobSpec()


class _SlimReplicatedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str = ""
    template: SlimJobTemplate = SlimJobTemplate()


class _SlimJobSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicated_jobs: tuple[_SlimReplicatedJob, ...] = ()


class SlimTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The template of a runtime, or what is laid over one."""

    metadata: TemplateMeta = TemplateMeta()
    spec: _SlimJobSetSpec = _SlimJobSetSpec()


class _SlimPatchSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: SlimTemplate = SlimTemplate()


class SlimRuntimePatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One entry of a TrainJob's runtimePatches."""

    training_runtime_spec: _SlimPatchSpec = _SlimPatchSpec()


class RuntimeSummary(NamedTuple):
    """What is kept of a runtime."""

    queue: str = ""  # by its own field
    other_schedulers: tuple[str, ...] = ()  # schedulers that its policies choose
    jobset: TemplateMeta = TemplateMeta()
    jobs: tuple[ReplicatedJob, ...] = ()
    left_out: int = 0  # so many more replicatedJobs than are planned


def runtime_summary(policy: PodGroupPolicy | None, template: SlimTemplate) -> RuntimeSummary:
    """Return what is kept of a runtime."""
    policy = policy or PodGroupPolicy()
    chosen = {"coscheduling": policy.coscheduling, "volcano": policy.volcano}
    jobs = template.spec.replicated_jobs
    return RuntimeSummary(
        queue=policy.kai_scheduler.queue if policy.kai_scheduler else "",
        other_schedulers=tuple(
            name for name, policy_options in chosen.items() if policy_options is not None
        ),
        jobset=_metadata_summary(template.metadata),
        jobs=tuple(map(_job_summary, jobs[:MOST_JOBS])),
        left_out=max(0, len(jobs) - MOST_JOBS),
    )


def expected_jobset(runtime: RuntimeSummary, patches: Sequence[SlimRuntimePatch]) -> JobSet:
    """Return the JobSet that will be built, as far as admission looks at it."""
    overlays = [patch.training_runtime_spec.template for patch in patches]
    by_name = [
        {job.name: job.template for job in overlay.spec.replicated_jobs} for overlay in overlays
    ]
    whole = overlaid_metadata(runtime.jobset, [overlay.metadata for overlay in overlays])
    jobs = [
        _patched_job(
            job,
            [overlay[job.name] for overlay in by_name if job.name in overlay],
            runtime.other_schedulers,
        )
        for job in runtime.jobs
    ]
    meta = Meta(labels=whole.labels, annotations=whole.annotations)
    return JobSet(metadata=meta, spec=JobSetSpec(replicated_jobs=tuple(jobs)))


def jobset_queue_path(patches: Sequence[SlimRuntimePatch]) -> str:
    """Return the path of the patch that names the queue of the JobSet; "" for none."""
    for number, overlay in _last_first(patches):
        if QUEUE in overlay.metadata.labels:
            return f"{PATCHES}[{number}].{_SPEC}.metadata.labels[{QUEUE}]"
    return ""


def pod_queue_path(patches: Sequence[SlimRuntimePatch], name: str) -> str:
    """Return the path of the patch that names the queue of a replicatedJob's pods; "" for none."""
    for number, overlay in _last_first(patches):
        for at, job in enumerate(overlay.spec.replicated_jobs):
            if job.name == name and QUEUE in job.template.spec.template.metadata.labels:
                path = f"{PATCHES}[{number}].{_SPEC}.spec.replicatedJobs[{at}]"
                return f"{path}.template.spec.template.metadata.labels[{QUEUE}]"
    return ""


def patched_jobset_queue(patches: Sequence[SlimRuntimePatch]) -> str | None:
    """Return which queue patches name for the JobSet; what is said last holds."""
    labels = (overlay.metadata.labels for _, overlay in _last_first(patches))
    return next((it[QUEUE] for it in labels if QUEUE in it), None)


def patched_pod_queues(patches: Sequence[SlimRuntimePatch]) -> dict[str, str]:
    """Return which queues patches name for pods, by replicatedJob."""
    found: dict[str, str] = {}
    for _, overlay in _last_first(patches):
        for job in overlay.spec.replicated_jobs:
            labels = job.template.spec.template.metadata.labels
            if QUEUE in labels:
                found.setdefault(job.name, labels[QUEUE])
    return found


def patches_annotation(patches: Sequence[SlimRuntimePatch], name: str) -> bool:
    """Say whether some patch carries an annotation, of the JobSet or of a Job."""
    return any(
        name in overlay.metadata.annotations
        or any(name in job.template.metadata.annotations for job in overlay.spec.replicated_jobs)
        for _, overlay in _last_first(patches)
    )


def _last_first(patches: Sequence[SlimRuntimePatch]) -> Iterator[tuple[int, SlimTemplate]]:
    for number in reversed(range(len(patches))):
        yield number, patches[number].training_runtime_spec.template


def overlaid_metadata(base: TemplateMeta, overlays: Iterable[TemplateMeta]) -> TemplateMeta:
    """Lay labels and annotations over each other; what is said last holds."""
    labels, annotations = dict(base.labels), dict(base.annotations)
    for overlay in overlays:
        labels |= _select(overlay.labels, _LABELS)
        annotations |= _select(overlay.annotations, _ANNOTATIONS)
    return TemplateMeta(labels=labels, annotations=annotations)


def _patched_job(
    job: ReplicatedJob, overlays: Sequence[SlimJobTemplate], others: Sequence[str]
) -> ReplicatedJob:
    """Return a replicatedJob with what patches say, and the mark of another scheduler's group."""
    template = job.template
    pods = template.spec.template
    marks = TemplateMeta(
        labels={COSCHEDULING_GROUP: ""} if "coscheduling" in others else {},
        annotations={VOLCANO_GROUP: ""} if "volcano" in others else {},
    )
    metadata = overlaid_metadata(
        pods.metadata, [*(it.spec.template.metadata for it in overlays), marks]
    )
    return replicated_job(
        job.name,
        overlaid_metadata(template.metadata, [it.metadata for it in overlays]),
        PodTemplate(metadata=metadata, spec=pods.spec),
    )


def _job_summary(job: _SlimReplicatedJob) -> ReplicatedJob:
    pods = job.template.spec.template
    spec = PodSpec(scheduler_name=pods.spec.scheduler_name)
    return replicated_job(
        job.name,
        _metadata_summary(job.template.metadata),
        PodTemplate(metadata=_metadata_summary(pods.metadata), spec=spec),
    )


def replicated_job(name: str, metadata: TemplateMeta, pods: PodTemplate) -> ReplicatedJob:
    return ReplicatedJob(
        name=name, template=JobTemplate(metadata=metadata, spec=JobSpec(template=pods))
    )


def _metadata_summary(metadata: TemplateMeta) -> TemplateMeta:
    return overlaid_metadata(TemplateMeta(), [metadata])


def _select(given: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}
