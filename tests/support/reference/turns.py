"""Who is next, and who may have more: rules 18 to 20."""

from collections.abc import Callable
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias

from tests.support.reference.amounts import axes, fits, subtracted
from tests.support.reference.matching import selects_node, tolerates
from tests.support.reference.shares import allocatable
from tests.support.reference.things import Cluster, Machine, Pod, Queue, Unit
from tests.support.reference.trees import chunk, standing

__all__ = [
    "Early",
    "is_promised",
    "next_unit",
    "over_capacity",
    "queue_rank",
    "turn_rank",
    "unit_rank",
]

Early: TypeAlias = Callable[[Queue, Unit], int]


def next_unit(cluster: Cluster, units: list[Unit], early: Early | None = None) -> Unit:
    """Return whose turn it is; before all else counts how *early* queues are."""
    tops = [queue for queue in cluster.queues.values() if not queue.parent]
    found = _best_of(cluster, tops, units, early)
    assert found is not None
    return found


def over_capacity(cluster: Cluster, unit: Unit, pods: list[Pod]) -> str:
    """Return the verdict if a queue may not take these pods, else nothing."""
    more = _sum(pods)
    way = cluster.way_up(unit.queue)
    for queue in way:
        for i in range(3):
            if more[i] and queue.limit[i] != -1 and queue.allocated[i] + more[i] > queue.limit[i]:
                return "ExceedsLimit"
    for queue in [] if unit.preemptible else way:
        for i in range(3):
            if more[i] and queue.quota[i] != -1 and queue.fixed[i] + more[i] > queue.quota[i]:
                return "NonPreemptibleOverQuota"
    for queue in way[:1]:
        for i in range(3):
            is_over = queue.quota[i] != -1 and queue.fixed[i] > queue.quota[i]
            if more[i] and queue.unevictable[i] and is_over:
                return "NonPreemptibleOverQuota"
    return ""


def _best_of(
    cluster: Cluster, queues: list[Queue], units: list[Unit], early: Early | None
) -> Unit | None:
    """Return the best unit below queues of one level."""
    candidates = []
    for queue in queues:
        unit = _best_below(cluster, queue, units, early)
        if unit is not None:
            rank = queue_rank(cluster, queue, _sum(chunk(unit.root)))
            candidates.append(((early(queue, unit) if early else 0, rank), unit))
    return min(candidates, key=lambda one: one[0])[1] if candidates else None


def _best_below(
    cluster: Cluster, queue: Queue, units: list[Unit], early: Early | None
) -> Unit | None:
    if queue.children:
        return _best_of(cluster, queue.children, units, early)
    own = [unit for unit in units if unit.queue == queue.name]
    return min(own, key=lambda one: turn_rank(cluster, one)) if own else None


def turn_rank(cluster: Cluster, unit: Unit) -> tuple[Any, ...]:
    """Return what orders the units of a queue that wait."""
    priority, *others = unit_rank(unit)
    return not could_have_room(cluster, unit), priority, not is_promised(cluster, unit), *others


def could_have_room(cluster: Cluster, unit: Unit) -> bool:
    """Say whether a unit could take what it takes next if nobody else were there."""
    pods = chunk(unit.root)
    more = _sum(pods)
    for queue in cluster.way_up(unit.queue):
        if any(0 <= limit < asked for asked, limit in zip(more, queue.limit, strict=True)):
            return False
    takers = [_takers(cluster, pod) for pod in pods]
    return all(
        _seats(pod, mine)
        >= sum(
            it.needs == pod.needs and theirs == mine
            for it, theirs in zip(pods, takers, strict=True)
        )
        for pod, mine in zip(pods, takers, strict=True)
    )


def _takers(cluster: Cluster, pod: Pod) -> list[Machine]:
    """Return the nodes that take such pods, were they empty."""
    return [
        machine
        for machine in cluster.machines
        if machine.usable
        and tolerates(pod.spec, machine)
        and selects_node(pod.spec, machine)
        and fits(pod.needs, machine.whole)
    ]


def _seats(pod: Pod, machines: list[Machine]) -> int:
    """Count how many such pods nodes could take, were they empty."""
    count = 0
    for machine in machines:
        left = machine.whole
        while fits(pod.needs, left):
            left = subtracted(left, pod.needs)
            count += 1
    return count


def is_promised(cluster: Cluster, unit: Unit) -> bool:
    """Say whether a unit was promised nodes for all pods that it takes next."""
    names = {machine.name for machine in cluster.machines}
    pods = [pod for pod in chunk(unit.root) if not pod.later]
    return bool(pods) and all(pod.nominated in names for pod in pods)


def unit_rank(unit: Unit, stands: int | None = None) -> tuple[Any, ...]:
    """Return what orders the units of a queue, as it stands or as it would."""
    return (
        -unit.priority,
        standing(unit) if stands is None else stands,
        unit.created,
        unit.uid,
    )


def queue_rank(cluster: Cluster, queue: Queue, more: list[int]) -> tuple[Any, ...]:
    """Return what orders queues of one level, of which this one would have so much more."""
    has = queue.allocated
    would = [has[i] + more[i] for i in range(3)]
    share = [allocatable(queue, i) for i in range(3)]
    bounds = [inf if one == -1 else one for one in share]
    return (
        all(has[i] > queue.fair[i] for i in range(3)),
        not all(queue.quota[i] == -1 or would[i] <= queue.quota[i] for i in range(3)),
        -queue.priority,
        any(share[i] == 0 and would[i] > 0 for i in range(3)),
        _dominant(cluster, share, would),
        _dominant(cluster, share, has),
        (bounds[2], bounds[0], bounds[1]),
        queue.created,
        queue.uid,
    )


def _dominant(cluster: Cluster, share: list[Any], has: list[int]) -> Fraction:
    parts = []
    for i in range(3):
        whole = cluster.total[i] if share[i] == -1 else share[i]
        parts.append(Fraction(has[i]) / whole if whole else Fraction(has[i]) * 1000)
    return max(parts)


def _sum(pods: list[Pod]) -> list[int]:
    return [sum(axes(pod.needs)[i] for pod in pods) for i in range(3)]
