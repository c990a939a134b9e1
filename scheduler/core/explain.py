"""Why a unit waits, in one sentence with numbers, and what would change it."""

from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.core.decision import (
    MemberNumbers,
    NodeNumbers,
    Obstacle,
    QuotaNumbers,
    Rejection,
)
from scheduler.core.model import NONE, Axes, Kind, Snapshot, Verdict

__all__ = ["explain", "for_kai"]

_GIB: Final = 2**30
_UNIT_OF: Final = {Kind.CPU: "CPU", Kind.MEMORY: "memory", Kind.GPU: "GPU"}
_OBSTACLES: Final = {
    Obstacle.CORDONED: ("is cordoned", "are cordoned"),
    Obstacle.NOT_READY: ("is not ready", "are not ready"),
    Obstacle.PRESSURE: ("is under pressure", "are under pressure"),
    Obstacle.NO_NETWORK: ("has no network", "have no network"),
    Obstacle.TAINT: ("has a taint that it does not tolerate", "have taints it does not tolerate"),
    Obstacle.SELECTOR: ("does not match what it selects", "do not match what it selects"),
    Obstacle.TOO_SMALL: ("is too small even when empty", "are too small even when empty"),
    Obstacle.CLAIM: (
        "cannot reach a claim in use elsewhere",
        "cannot reach a claim in use elsewhere",
    ),
    Obstacle.PORT: ("has its host port in use", "have its host port in use"),
    Obstacle.AFFINITY: ("is not near the pods it wants", "are not near the pods it wants"),
    Obstacle.ANTI_AFFINITY: ("is near pods it must avoid", "are near pods it must avoid"),
    Obstacle.SPREAD: ("would make its spread uneven", "would make its spread uneven"),
}


def explain(snapshot: Snapshot, rejection: Rejection) -> str:
    """Return the sentence."""
    numbers = rejection.numbers
    if isinstance(numbers, QuotaNumbers):
        return _of_quota(snapshot, rejection.verdict, numbers)
    if isinstance(numbers, NodeNumbers):
        return _of_nodes(snapshot, numbers)
    if isinstance(numbers, MemberNumbers):
        return _of_members(numbers)
    return numbers.message


def for_kai(snapshot: Snapshot, rejection: Rejection) -> tuple[str, str]:
    """Return reason and message as KAI writes them into conditions, for tools that read those."""
    numbers = rejection.numbers
    if isinstance(numbers, QuotaNumbers):
        is_limit = rejection.verdict == Verdict.EXCEEDS_LIMIT
        return ("OverLimit" if is_limit else "NonPreemptibleOverQuota"), explain(
            snapshot, rejection
        )
    if rejection.verdict == Verdict.QUEUE_MISSING:
        return "QueueDoesNotExist", explain(snapshot, rejection)
    if isinstance(numbers, NodeNumbers):
        histogram = ", ".join(sorted(_for_kai(snapshot.axes, numbers)))
        return "PodSchedulingErrors", f"no nodes with enough resources were found: {histogram}."
    return rejection.verdict.title, explain(snapshot, rejection)


def _of_quota(snapshot: Snapshot, verdict: Verdict, numbers: QuotaNumbers) -> str:
    queue = snapshot.queues.names[numbers.queue]
    kind = numbers.kind
    over = numbers.allocated + numbers.asked - numbers.bound
    bound, has, asked = (
        _of_kind(kind, n) for n in (numbers.bound, numbers.allocated, numbers.asked)
    )
    if verdict == Verdict.EXCEEDS_LIMIT:
        return (
            f"queue {queue} may have at most {bound} and has {has}; {asked} more are needed. It "
            f"starts when {_of_kind(kind, over)} of the queue are given back, or its limit rises"
        )
    return (
        f"what cannot be preempted may have the quota of queue {queue}, {bound}, and has {has}; "
        f"{asked} more are needed. It starts when {_of_kind(kind, over)} of that are given back, "
        "the quota is raised, or it may be preempted"
    )


def _of_members(numbers: MemberNumbers) -> str:
    parts = [f"{there} of {needed} exist in {leaf}" for leaf, there, needed in numbers.missing]
    return f"pods are missing: {', '.join(parts) or 'no sub-group that is missing can be whole'}"


def _of_nodes(snapshot: Snapshot, numbers: NodeNumbers) -> str:
    axes = snapshot.axes
    shape = snapshot.shapes[numbers.shape]
    asks = _listed(_amount(axes, r, n) for r, n in enumerate(shape.request) if n and r != axes.pods)
    begin = f"{numbers.placed} of {numbers.needed} pods have room, the next asks for"
    if numbers.needed == 1:
        begin = "it asks for"
    nodes = len(snapshot.nodes.names)
    found = _listed(_obstacles(axes, numbers)) or "there is none"
    return f"{begin} {asks or 'nothing'}. Of {_nodes(nodes)} {found}. {_remedy(snapshot, numbers)}"


def _obstacles(axes: Axes, numbers: NodeNumbers) -> Iterator[str]:
    for obstacle, count in sorted(numbers.counts.items(), reverse=True):
        if obstacle != Obstacle.ROOM:
            yield f"{count} {_OBSTACLES[obstacle][count > 1]}"
            continue
        lacks = _listed(
            f"{_amount(axes, r, numbers.largest[r])} at most on one"
            for r in sorted(numbers.lacking, key=lambda r: (-numbers.lacking[r], r))
        )
        yield f"{count} lack{'s' if count == 1 else ''} room ({lacks})"


def _remedy(snapshot: Snapshot, numbers: NodeNumbers) -> str:
    axes = snapshot.axes
    if numbers.verdict == Verdict.NO_NODE_MATCHES:
        return "It starts when a node appears, or changes, that matches"
    short = [r for r, n in numbers.wanted.items() if numbers.room[r] < n]
    if not short:
        needs = _listed(_amount(axes, r, n) for r, n in _asked_and_lacking(snapshot, numbers))
        return f"There is enough in all, but in pieces: it starts when one node has {needs} free"
    gaps = _listed(
        f"{_amount(axes, r, numbers.wanted[r])} needed, {_amount(axes, r, numbers.room[r])} free"
        for r in short
    )
    return f"In all {gaps}: it starts when the rest is given back"


def _asked_and_lacking(snapshot: Snapshot, numbers: NodeNumbers) -> Iterator[tuple[int, int]]:
    for r in sorted(numbers.lacking):
        yield r, snapshot.shapes[numbers.shape].request[r]


def _for_kai(axes: Axes, numbers: NodeNumbers) -> Iterator[str]:
    for obstacle, count in numbers.counts.items():
        if obstacle != Obstacle.ROOM:
            yield f"{count} node(s) {_OBSTACLES[obstacle][1]}"
    for r, count in numbers.lacking.items():
        yield f"{count} node(s) didn't have enough resources: {axes.names[r]}"


def _amount(axes: Axes, resource: int, number: int) -> str:
    kind = axes.kinds[resource]
    if kind == NONE:
        return f"{number} {axes.names[resource]}"
    if kind == Kind.GPU and resource not in axes.gpus:
        return f"{number} {axes.names[resource]}"
    return _of_kind(Kind(kind), number)


def _of_kind(kind: Kind, number: int) -> str:
    whole = number / _GIB if kind == Kind.MEMORY else number / 1000
    unit = "GiB memory" if kind == Kind.MEMORY else _UNIT_OF[kind]
    return f"{whole:.3f}".rstrip("0").rstrip(".") + f" {unit}"


def _nodes(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
