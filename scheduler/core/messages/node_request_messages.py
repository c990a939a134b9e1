"""Messages: what is asked of an autoscaler, or why no nodes are asked for."""

from collections.abc import Iterable
from typing import Final

from scheduler.core.messages.amounts import amount_of_kind
from scheduler.core.model.node_request import (
    MOST_ASKING,
    LackingPods,
    RefusalCause,
    RequestRefusal,
)
from scheduler.core.model.resources import RESOURCE_KINDS, ResourceKind
from scheduler.core.model.snapshot import Snapshot

_NAMED: Final = 3  # kinds of pods
_TIMES: Final = "\N{MULTIPLICATION SIGN}"


def lacking_pods_text(lacking: Iterable[LackingPods]) -> str:
    """Return equal pods and what each requests, the GPUs only where it has some."""
    counts: dict[str, int] = {}
    for it in lacking:
        text = _pod_text(it)
        counts[text] = counts.get(text, 0) + it.number
    listed = [f"{count} {_TIMES} {text}" for text, count in counts.items()]
    more = [f"{len(listed) - _NAMED} more kinds of pods"] if listed[_NAMED + 1 :] else []
    return " and ".join([*listed[:_NAMED], *more] if more else listed)


def _pod_text(lacking: LackingPods) -> str:
    gpu = lacking.amounts[ResourceKind.GPU]
    if gpu:
        return amount_of_kind(ResourceKind.GPU, gpu)
    amounts = zip(RESOURCE_KINDS, lacking.amounts, strict=True)
    return ", ".join(amount_of_kind(kind, it) for kind, it in amounts if it) or "a pod"


def refusal_text(snapshot: Snapshot, refusal: RequestRefusal) -> str:
    """Return what follows "No nodes are asked for: "."""
    match refusal.cause:
        case RefusalCause.DELAY:
            return "pods of other PodGroups are evicted for it when its preemption delay is over"
        case RefusalCause.DOMAIN:
            return (
                f"its pods have to be in one domain of level {refusal.level}, and an autoscaler "
                "does not know where a new node will be"
            )
        case RefusalCause.MANY:
            return f"{MOST_ASKING} PodGroups that come before it ask already"
        case RefusalCause.AVOIDS:
            return "it tries no other node either, after so many refused its pods"
        case RefusalCause.SHARE:
            return "its pods request shares of GPUs, of which an autoscaler sees nothing"
    name = snapshot.queues.names[refusal.queue]
    if refusal.by_others:
        return (
            f"queue {name} would exceed its {refusal.cause.value} together with what others ask for"
        )
    return f"queue {name} is at its {refusal.cause.value}"
