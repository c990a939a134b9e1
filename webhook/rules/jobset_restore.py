"""What is restored on an existing JobSet: its queue, our marks, and its volume claim policies.

Trainer may apply a JobSet a second time right after its creation, before its cache has it. That
replaces our labels by its own: the JobSet would have another queue than its pods, and JobSet would
reject the changed template. So the old values are restored. The queue is not resolved again, since
a running JobSet keeps its queue.

JobSet defaults the retention of volume claims at creation, and makes the field immutable. When a
TrainJob is suspended or resumed, Trainer applies the JobSet without the field and would always be
rejected. So the field is restored too.
"""

from collections.abc import Iterator
from typing import Any, Final

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import GANG, QUEUE
from webhook.admission.patch import FieldPath, PatchBuilder
from webhook.admission.review import AdmissionResponse

_LABELS: Final[FieldPath] = ("metadata", "labels")


def pod_template_path(number: int) -> FieldPath:
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
