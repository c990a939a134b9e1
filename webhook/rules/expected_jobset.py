"""The JobSet that Trainer will build of a runtime and its patches, as far as admission reads it."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from trainer_kai.api.jobset import JobSet, JobSetSpec, ReplicatedJob
from trainer_kai.api.meta import Meta, TemplateMeta
from trainer_kai.api.names import COSCHEDULING_GROUP, QUEUE, VOLCANO_GROUP
from trainer_kai.api.pod import PodTemplate
from webhook.cache.runtimes import (
    RuntimeSummary,
    SlimJobSetTemplate,
    SlimJobTemplate,
    overlaid_metadata,
    replicated_job,
)

PATCHES: Final = "spec.runtimePatches"
_SPEC: Final = "trainingRuntimeSpec.template"


class _SlimPatchSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    template: SlimJobSetTemplate = SlimJobSetTemplate()


class SlimRuntimePatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One entry of a TrainJob's runtimePatches."""

    training_runtime_spec: _SlimPatchSpec = _SlimPatchSpec()


def expected_jobset(runtime: RuntimeSummary, patches: Sequence[SlimRuntimePatch]) -> JobSet:
    """Return the JobSet that will be built, as far as admission reads it."""
    overlays = [patch.training_runtime_spec.template for patch in patches]
    by_name = [
        {job.name: job.template for job in overlay.spec.replicated_jobs} for overlay in overlays
    ]
    jobset_metadata = overlaid_metadata(
        runtime.jobset_metadata, [overlay.metadata for overlay in overlays]
    )
    jobs = [
        _patched_job(
            job,
            [overlay[job.name] for overlay in by_name if job.name in overlay],
            runtime.other_schedulers,
        )
        for job in runtime.jobs
    ]
    meta = Meta(labels=jobset_metadata.labels, annotations=jobset_metadata.annotations)
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
        for position, job in enumerate(overlay.spec.replicated_jobs):
            if job.name == name and QUEUE in job.template.spec.template.metadata.labels:
                path = f"{PATCHES}[{number}].{_SPEC}.spec.replicatedJobs[{position}]"
                return f"{path}.template.spec.template.metadata.labels[{QUEUE}]"
    return ""


def patched_jobset_queue(patches: Sequence[SlimRuntimePatch]) -> str | None:
    """Return the queue that patches name for the JobSet; the last patch has precedence."""
    labels = (overlay.metadata.labels for _, overlay in _last_first(patches))
    return next((it[QUEUE] for it in labels if QUEUE in it), None)


def patched_pod_queues(patches: Sequence[SlimRuntimePatch]) -> dict[str, str]:
    """Return the queues that patches name for pods, by replicatedJob."""
    queues: dict[str, str] = {}
    for _, overlay in _last_first(patches):
        for job in overlay.spec.replicated_jobs:
            labels = job.template.spec.template.metadata.labels
            if QUEUE in labels:
                queues.setdefault(job.name, labels[QUEUE])
    return queues


def patches_annotation(patches: Sequence[SlimRuntimePatch], name: str) -> bool:
    """Say whether a patch sets an annotation of the JobSet or of a Job."""
    return any(
        name in overlay.metadata.annotations
        or any(name in job.template.metadata.annotations for job in overlay.spec.replicated_jobs)
        for _, overlay in _last_first(patches)
    )


def _last_first(patches: Sequence[SlimRuntimePatch]) -> Iterator[tuple[int, SlimJobSetTemplate]]:
    for number in reversed(range(len(patches))):
        yield number, patches[number].training_runtime_spec.template


def _patched_job(
    job: ReplicatedJob, overlays: Sequence[SlimJobTemplate], other_schedulers: Sequence[str]
) -> ReplicatedJob:
    """Return a replicatedJob with its patches, and with the marks of other schedulers."""
    template = job.template
    pods = template.spec.template
    marks = TemplateMeta(
        labels={COSCHEDULING_GROUP: ""} if "coscheduling" in other_schedulers else {},
        annotations={VOLCANO_GROUP: ""} if "volcano" in other_schedulers else {},
    )
    metadata = overlaid_metadata(
        pods.metadata, [*(it.spec.template.metadata for it in overlays), marks]
    )
    return replicated_job(
        job.name,
        overlaid_metadata(template.metadata, [it.metadata for it in overlays]),
        PodTemplate(metadata=metadata, spec=pods.spec),
    )
