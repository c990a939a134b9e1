"""What is restored on an existing JobSet: its queue, our marks, and its volume claim policies.

Trainer may apply a JobSet a second time right after its creation, before its cache has it. That
replaces our labels by its own: the JobSet would have another queue than its pods, and JobSet would
reject the changed template. So the old values are restored. The queue is not resolved again, since
a running JobSet keeps its queue.

JobSet defaults the retention of volume claims at creation, and makes the field immutable. When a
TrainJob is suspended or resumed, Trainer applies the JobSet without the field and would always be
rejected. So the field is restored too.

The JobSet that Trainer will build of a runtime and its patches, as far as admission reads it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from trainer_kai.api.jobset import JobSet, JobSetSpec, ReplicatedJob
from trainer_kai.api.meta import Meta, TemplateMeta
from trainer_kai.api.names import COSCHEDULING_GROUP, GANG, QUEUE, VOLCANO_GROUP
from trainer_kai.api.pod import PodTemplate
from webhook.admission.patch import FieldPath, PatchBuilder
from webhook.admission.review import AdmissionResponse
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


_LABELS: Final[FieldPath] = ("metadata", "labels")


def pod_template_path(number: int) -> FieldPath:
    """Return the path of a replicatedJob's pod template."""
    return ("spec", "replicatedJobs", number, "template", "spec", "template")


def needs_restore(jobset: JobSet, old: JobSet) -> bool:
    """Say whether an update changed a field that we may have written."""
    is_moved = jobset.metadata.labels.get(QUEUE) != old.metadata.labels.get(QUEUE)
    return (
        is_moved
        or any(_changed_template_labels(jobset, old))
        or any(_lost_claim_policies(jobset, old))
    )


def restored_response(jobset: JobSet, old: JobSet, tree: Any) -> AdmissionResponse:
    """Write the old values of the queue, the marks and the volume claim policies."""
    patch = PatchBuilder(tree)
    queue = old.metadata.labels.get(QUEUE)
    if queue:
        patch.set((*_LABELS, QUEUE), queue)
    for number, name, value in _changed_template_labels(jobset, old):
        field_path = (*pod_template_path(number), *_LABELS, name)
        if value is None:
            patch.remove(field_path)
        else:
            patch.set(field_path, value)
    restore_claim_policies(patch, jobset, old)
    return AdmissionResponse(patch.operations)


def restore_claim_policies(patch: PatchBuilder, jobset: JobSet, old: JobSet) -> None:
    """Write the retention of volume claims as JobSet defaulted it."""
    for number, value in _lost_claim_policies(jobset, old):
        patch.set(("spec", "volumeClaimPolicies", number, "retentionPolicy"), value)


def _lost_claim_policies(jobset: JobSet, old: JobSet) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the index of each policy that lost its retention, and the old value."""
    pairs = zip(jobset.spec.volume_claim_policies, old.spec.volume_claim_policies, strict=False)
    for number, (now, before) in enumerate(pairs):
        if now.retention_policy is None and before.retention_policy is not None:
            yield number, before.retention_policy


def _changed_template_labels(jobset: JobSet, old: JobSet) -> Iterator[tuple[int, str, str | None]]:
    """Yield the labels of pod templates that differ: replicatedJob, name and old value."""
    before = {job.name: job.template.spec.template.metadata for job in old.spec.replicated_jobs}
    for number, job in enumerate(jobset.spec.replicated_jobs):
        if job.name not in before:
            continue
        labels = job.template.spec.template.metadata.labels
        for name in (QUEUE, GANG):
            value = before[job.name].labels.get(name)
            if labels.get(name) != value:
                yield number, name, value
