"""What a JobSet cannot be made with, said while it is being made.

Pods that ask two schedulers at once, pods of which JobSet lets one alone start, and a queue that
cannot be written as a label: such a gang would wait for ever, or never be made.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import (
    COSCHEDULING_GROUP,
    EXCLUSIVE_TOPOLOGY,
    NODE_SELECTOR_STRATEGY,
    QUEUE,
    VOLCANO_GROUP,
)
from trainer_kai.api.syntax import label_value_fault
from trainer_kai.policy.queues import Asked, Choice
from trainer_kai.policy.units import Outline, size_fault
from webhook.review import Refusal

__all__ = [
    "asks_for_us",
    "other_schedulers",
    "refuse_both",
    "refuse_exclusive",
    "refuse_left_out",
    "refuse_queue",
    "refuse_size",
]

_INVALID: Final = 422


def other_schedulers(jobset: JobSet) -> tuple[str, ...]:
    """Return which policies of its runtime chose another scheduler; Trainer marks all pods then."""
    templates = [job.template.spec.template.metadata for job in jobset.spec.replicated_jobs]
    chosen = {
        "coscheduling": any(COSCHEDULING_GROUP in it.labels for it in templates),
        "volcano": any(VOLCANO_GROUP in it.annotations for it in templates),
    }
    return tuple(name for name, is_chosen in chosen.items() if is_chosen)


def asks_for_us(jobset: JobSet, asked: Asked, scheduler_name: str) -> tuple[str, ...]:
    """Return by what a TrainJob, its runtime or its JobSet asks for our scheduler."""
    ways = {
        f"the label {QUEUE} of the TrainJob": QUEUE in asked.trainjob,
        "podGroupPolicy.kaiScheduler.queue of the runtime": bool(asked.runtime_queue),
        f"the label {QUEUE} of the JobSet": QUEUE in asked.jobset,
        f"the label {QUEUE} of a pod template": any(QUEUE in it for it in asked.templates),
        f"schedulerName: {scheduler_name} in a pod template": any(
            job.template.spec.template.spec.scheduler_name == scheduler_name
            for job in jobset.spec.replicated_jobs
        ),
    }
    return tuple(way for way, is_there in ways.items() if is_there)


def refuse_size(jobset: JobSet) -> Refusal | None:
    """Refuse what takes long to plan; the owner of a JobSet is whoever its author says."""
    fault = size_fault(jobset)
    return Refusal(_INVALID, f"spec.replicatedJobs: {fault}") if fault else None


def refuse_left_out(plan: Outline) -> Refusal | None:
    """Refuse a JobSet of which a part is too large for a group: its pods would be placed singly."""
    if not plan.left_out:
        return None
    return Refusal(_INVALID, "; ".join(str(it) for it in plan.findings if it.blocks))


def refuse_both(others: tuple[str, ...], ours: tuple[str, ...]) -> Refusal:
    """Name both schedulers, and what to remove."""
    theirs = " and ".join(f"podGroupPolicy.{name}" for name in others)
    mine = ", ".join(ours)
    message = (
        f"two schedulers are asked for: one by {theirs} of the runtime, KAI by {mine}. "
        f"Remove {theirs} from the runtime to have KAI schedule, or {mine} to have the other one"
    )
    return Refusal(_INVALID, message)


def refuse_exclusive(jobset: JobSet, ours: Mapping[int, ReplicatedJob]) -> Refusal | None:
    """Refuse exclusive placement by leaders: the other pods are made only once one is bound."""
    path = next(_exclusive(jobset, ours), None)
    if path is None:
        return None
    message = (
        f"{path}.annotations[{EXCLUSIVE_TOPOLOGY}]: JobSet then makes the first pod of each Job "
        "alone, and the others only once it is bound, so a gang never starts. Remove it and ask "
        "for a topology, or set "
        f"{NODE_SELECTOR_STRATEGY} as well"
    )
    return Refusal(_INVALID, message)


def _exclusive(jobset: JobSet, ours: Mapping[int, ReplicatedJob]) -> Iterator[str]:
    """Yield where it is said; the strategy counts only beside it, as it does for JobSet."""
    whole = jobset.metadata.annotations
    if EXCLUSIVE_TOPOLOGY in whole:
        if NODE_SELECTOR_STRATEGY not in whole and ours:
            yield "metadata"
        return
    for number, job in ours.items():
        own = job.template.metadata.annotations
        if EXCLUSIVE_TOPOLOGY in own and NODE_SELECTOR_STRATEGY not in own:
            yield f"spec.replicatedJobs[{number}].template.metadata"


def refuse_queue(choice: Choice) -> Refusal | None:
    """Refuse a queue that no label can name; only a runtime's field is not checked before."""
    fault = label_value_fault(choice.queue)
    if fault is None:
        return None
    return Refusal(_INVALID, f"the queue comes from {choice.source.value}: {fault}")
