"""What is put back on a JobSet that is there.

Trainer may apply a JobSet once more right after it made it, before it sees that there is one. Its
own labels come back then, where ours outranked them: the JobSet would be of another queue than its
pods, and for a changed template JobSet would refuse the whole. So what was there is put back. The
queue is not chosen again, whoever relabels the JobSet: while it runs it stays where it was asked
for.

JobSet fills in, when one is made, what becomes of the volume claims at its end, and then lets
nobody change that; Trainer applies the JobSet without it when a TrainJob is suspended or resumed,
and is refused for ever. So that is put back too, suspended or not.
"""

from collections.abc import Iterator
from typing import Any, Final

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import GANG, QUEUE
from webhook.patch import Draft, Steps
from webhook.review import Answer

__all__ = ["has_lost", "keep_claims", "pod_template", "put_back"]

_LABELS: Final[Steps] = ("metadata", "labels")


def pod_template(number: int) -> Steps:
    """Return where a replicatedJob has its pod template."""
    return ("spec", "replicatedJobs", number, "template", "spec", "template")


def has_lost(jobset: JobSet, old: JobSet) -> bool:
    """Say whether something that we may have written is another one now."""
    is_moved = jobset.metadata.labels.get(QUEUE) != old.metadata.labels.get(QUEUE)
    return is_moved or any(_changed(jobset, old)) or any(_lost_claims(jobset, old))


def put_back(jobset: JobSet, old: JobSet, tree: Any) -> Answer:
    """Write what was there: the queue and the marks."""
    draft = Draft(tree)
    queue = old.metadata.labels.get(QUEUE)
    if queue:
        draft.set((*_LABELS, QUEUE), queue)
    for number, name, value in _changed(jobset, old):
        steps = (*pod_template(number), *_LABELS, name)
        if value is None:
            draft.remove(steps)
        else:
            draft.set(steps, value)
    keep_claims(draft, jobset, old)
    return Answer(draft.operations)


def keep_claims(draft: Draft, jobset: JobSet, old: JobSet) -> None:
    """Write what becomes of the volume claims, as it was filled in."""
    for number, value in _lost_claims(jobset, old):
        draft.set(("spec", "volumeClaimPolicies", number, "retentionPolicy"), value)


def _lost_claims(jobset: JobSet, old: JobSet) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield which policies say nothing now, and what they said."""
    pairs = zip(jobset.spec.volume_claim_policies, old.spec.volume_claim_policies, strict=False)
    for number, (now, before) in enumerate(pairs):
        if now.retention_policy is None and before.retention_policy is not None:
            yield number, before.retention_policy


def _changed(jobset: JobSet, old: JobSet) -> Iterator[tuple[int, str, str | None]]:
    """Yield the labels of pod templates that differ: where, which one, and what it was."""
    before = {job.name: job.template.spec.template.metadata for job in old.spec.replicated_jobs}
    for number, job in enumerate(jobset.spec.replicated_jobs):
        if job.name not in before:
            continue
        labels = job.template.spec.template.metadata.labels
        for name in (QUEUE, GANG):
            value = before[job.name].labels.get(name)
            if labels.get(name) != value:
                yield number, name, value
