"""Reclaim and preempt by a search of every set of candidates: rules 28 to 40."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from operator import add
from typing import Any

from tests.reference.scheduler import reclaimable
from tests.reference.scheduler.min_runtime import is_within_min_runtime
from tests.reference.scheduler.model import (
    ClusterInfo,
    PodGroupInfo,
    PodInfo,
    PodSet,
    QueueInfo,
    total_charge,
)
from tests.reference.scheduler.pod_affinity import has_affinity_to
from tests.reference.scheduler.queue_order import (
    next_podgroup,
    podgroup_rank,
    queue_rank,
    waiting_rank,
)
from tests.reference.scheduler.releasing import (
    Checkpoint,
    awaits_own_release,
    charge_eviction,
    try_allocate,
)
from tests.reference.scheduler.resources import added
from tests.reference.scheduler.subgroups import (
    can_be_satisfied,
    is_satisfied,
    tasks_to_allocate,
    tasks_to_evict,
)
from tests.reference.scheduler.victim_order import by_victim_policy

MAX_CANDIDATES = 8  # candidates
_RETRIABLE = ("TopologyUnfit", "Fragmented", "NoCapacity", "ExceedsLimit")


class TooManyCandidates(Exception):
    """So many candidates that their sets are not looked at."""


class DependsOnOrder(Exception):
    """More victims leave less free, for pods are placed elsewhere then.

    Rules 34 and 40d let such sets be missed.
    """


@dataclass(eq=False)
class EvictionUnit:
    """What PodGroups lose at once, and what it frees beyond the eviction units before it."""

    podgroups: list[PodGroupInfo]
    queue: str
    pods: list[PodInfo]
    freed: reclaimable.Requested
    rank: tuple[Any, ...]
    would_request: list[reclaimable.Requested]
    is_whole: bool = False

    @property
    def is_partly_done(self) -> bool:
        """Say whether a PodGroup of it has running pods, and others that succeeded."""
        return any(
            one.owning_jobset and {"there", "succeeded"} <= {pod.state for pod in one.pods}
            for one in self.podgroups
        )


def reclaim_and_preempt(
    cluster: ClusterInfo, reasons: dict[PodGroupInfo, str], actions: Iterable[str]
) -> Iterator[tuple[PodGroupInfo, str, list[PodInfo]]]:
    """Yield each PodGroup that gets room, by which action, and the pods evicted for it."""
    taken: set[PodGroupInfo] = set()
    losers: set[PodGroupInfo] = set()
    # What a PodGroup asks for that has lost something since is what it asked before (rule 32).
    before = [
        (
            waiting_rank(cluster, podgroup),
            podgroup,
            total_charge(tasks_to_allocate(podgroup.root)),
        )
        for podgroup, reason in reasons.items()
        if reason != "PodsMissing"
    ]
    for action in actions:
        left = [
            podgroup
            for podgroup, reason in reasons.items()
            if reason in _RETRIABLE and not podgroup.awaits_own_release
        ]
        while left := [podgroup for podgroup in left if podgroup not in losers]:
            podgroup = next_podgroup(cluster, left)
            left.remove(podgroup)
            if awaits_own_release(cluster, podgroup, tasks_to_allocate(podgroup.root)):
                continue
            mine = waiting_rank(cluster, podgroup)
            ahead = [
                asked
                for rank, one, asked in before
                if one in reasons and one.queue == podgroup.queue and rank < mine
            ]
            asks = [total_charge(tasks_to_allocate(podgroup.root)), *ahead]
            gone = _evict_for(cluster, podgroup, action, asks, is_later=bool(losers), spared=taken)
            if gone is not None:
                taken.add(podgroup)
                before = [one for one in before if one[1] is not podgroup]
                losers.update(_affected(cluster, gone))
                yield podgroup, action, gone


def _affected(cluster: ClusterInfo, pods: list[PodInfo]) -> Iterator[PodGroupInfo]:
    """Yield the PodGroups that lost something, and those that leave with them."""
    for podgroup in cluster.podgroups:
        if any(pod in pods for pod in podgroup.pods):
            yield from _of_owning_jobset(cluster, podgroup)


def _of_owning_jobset(cluster: ClusterInfo, podgroup: PodGroupInfo) -> list[PodGroupInfo]:
    return [
        one
        for one in cluster.podgroups
        if one is podgroup
        or (podgroup.owning_jobset and one.owning_jobset == podgroup.owning_jobset)
    ]


def _evict_for(
    cluster: ClusterInfo,
    podgroup: PodGroupInfo,
    action: str,
    asks: list[reclaimable.Requested],
    *,
    is_later: bool,
    spared: set[PodGroupInfo],
) -> list[PodInfo] | None:
    """Return the pods evicted for a PodGroup, which may be none; None if it gets nothing."""
    asked = total_charge(tasks_to_allocate(podgroup.root))
    known = queue_shares(cluster)
    if action == "reclaim" and not reclaimable.may_reclaim(
        known[podgroup.queue], asked, is_fixed=not podgroup.preemptible
    ):
        return None
    if is_later and not _try_evict(cluster, podgroup, []):
        return []
    found = [
        it
        for it in possible_eviction_units(cluster, spared)
        if _is_candidate(cluster, podgroup, action, it)
    ]
    tries = [*_candidate_pools(cluster, action, found)]
    if podgroup.in_preemption_delay:
        podgroup.is_delayed = podgroup.is_delayed or any(some for some, _ in tries)
        return None
    if len(found) > MAX_CANDIDATES:
        raise TooManyCandidates
    for units, keeps in tries:
        gone = _find_victims(cluster, podgroup, action, asks, (units, keeps))
        if gone is not None:
            return gone
    return None


def _candidate_pools(
    cluster: ClusterInfo, action: str, found: list[EvictionUnit]
) -> Iterator[tuple[list[EvictionUnit], bool]]:
    """Yield the candidates, and whether budgets are kept: the mildest choice first."""
    unbarred = [it for it in found if cluster.may_evict(it.pods)]
    yield [it for it in unbarred if not it.is_partly_done], True
    yield unbarred, True
    if action == "reclaim" and not cluster.respects_budgets:
        yield found, False


def _find_victims(
    cluster: ClusterInfo,
    podgroup: PodGroupInfo,
    action: str,
    asks: list[reclaimable.Requested],
    some: tuple[list[EvictionUnit], bool],
) -> list[PodInfo] | None:
    """Return pods that make a PodGroup fit when they are evicted, by eviction units; or None."""
    found, keeps = some
    known, asked = queue_shares(cluster), asks[0]
    line = by_victim_policy(cluster, in_victim_order(cluster, found), asked)
    line.sort(key=lambda it: (not cluster.may_evict(it.pods), it.is_partly_done))

    def leaves_room(some: tuple[int, ...]) -> bool:
        return not _failure_after(cluster, podgroup, [line[rank] for rank in some])

    def does(some: tuple[int, ...]) -> bool:
        units = [line[rank] for rank in some]
        if keeps and not cluster.may_evict(pod for unit in units for pod in unit.pods):
            return False
        if action == "reclaim":
            lost = [(known[unit.queue], amounts) for unit, amounts in _freed_amounts(units)]
            may, is_fair = reclaimable.check_victims(known[podgroup.queue], asked, lost)
            if (
                not all(may)
                or not is_fair
                or not _is_before_victims(cluster, podgroup, asks, units)
            ):
                return False
        return leaves_room(some)

    if cluster.checks_order:
        check_order(len(line), leaves_room)
    ranks = first_sufficient(len(line), does, leaves_room)
    if ranks is None:
        return None
    gone = [pod for rank in ranks for pod in line[rank].pods]
    assert not _try_evict(cluster, podgroup, [line[rank] for rank in ranks])
    for budget in cluster.budgets:
        budget.allowed -= len(set(gone).intersection(budget.pods))
    return gone


def _is_candidate(
    cluster: ClusterInfo, podgroup: PodGroupInfo, action: str, unit: EvictionUnit
) -> bool:
    """Say whether an eviction unit is a candidate for the next tasks of a PodGroup."""
    pods = tasks_to_allocate(podgroup.root)
    if any(has_affinity_to(pod, other) for pod in pods for other in unit.pods):
        return False
    if unit.is_whole and any(
        is_within_min_runtime(cluster, action, podgroup, one) for one in unit.podgroups
    ):
        return False
    if action == "reclaim":
        return _may_reclaim_from(queue_shares(cluster), podgroup, total_charge(pods), unit)
    return unit.queue == podgroup.queue and all(
        one.priority < podgroup.priority for one in unit.podgroups
    )


def first_sufficient(
    count: int,
    does: Callable[[tuple[int, ...]], bool],
    leaves_room: Callable[[tuple[int, ...]], bool],
) -> tuple[int, ...] | None:
    """Return the first set that does and of which every member is needed for there to be room."""
    for some in sorted(set_ for n in range(1, count + 1) for set_ in combinations(range(count), n)):
        if does(some):
            fewer = [tuple(rank for rank in some if rank != one) for one in some]
            if not any(rest and leaves_room(rest) for rest in fewer):
                return some
    return None


def check_order(count: int, leaves_room: Callable[[tuple[int, ...]], bool]) -> None:
    """Raise `DependsOnOrder` unless all sets leave enough free that contain one that does."""
    sets = [set_ for n in range(1, count + 1) for set_ in combinations(range(count), n)]
    enough = {set_ for set_ in sets if leaves_room(set_)}
    for set_ in enough:
        for one in range(count):
            if tuple(sorted({*set_, one})) not in enough:
                raise DependsOnOrder


def _is_before_victims(
    cluster: ClusterInfo,
    podgroup: PodGroupInfo,
    asks: list[reclaimable.Requested],
    units: list[EvictionUnit],
) -> bool:
    """Say whether the claimant would have its turn before every PodGroup that lost something."""
    kept = {queue: [*queue.allocated] for queue in cluster.queues.values()}
    known = queue_shares(cluster)
    added_to = {name: [*map(add, it.allocated, asks[0])] for name, it in known.items()}
    for unit, amounts in _freed_amounts(units):
        for queue in cluster.queue_with_ancestors(unit.queue):
            queue.allocated = [has - n for has, n in zip(queue.allocated, amounts, strict=True)]
    ways = [
        (cluster.queue_with_ancestors(unit.queue), asked, bool(unit.podgroups[0].owning_jobset))
        for unit in units
        for asked in unit.would_request
    ]
    ways = [it for it in ways if not any(_exceeds_limit(queue, it[1]) for queue in it[0])]
    answer = all(
        queue_rank(cluster, mine, [*asked]) < queue_rank(cluster, theirs, [*amounts])
        for asked in asks
        for way, amounts, is_bundle in ways
        for mine in cluster.queue_with_ancestors(podgroup.queue)
        for theirs in way
        if mine is not theirs and mine.parent == theirs.parent
        if asked != asks[0] or not is_bundle or known[mine.name].is_over_quota(added_to[mine.name])
    )
    for queue, has in kept.items():
        queue.allocated = has
    return answer


def _exceeds_limit(queue: QueueInfo, more: reclaimable.Requested) -> bool:
    return any(
        asked > 0 and limit != -1 and has + asked > limit
        for asked, limit, has in zip(more, queue.limit, queue.allocated, strict=True)
    )


def _may_reclaim_from(
    known: dict[str, reclaimable.QueueShares],
    podgroup: PodGroupInfo,
    asked: reclaimable.Requested,
    unit: EvictionUnit,
) -> bool:
    if unit.queue == podgroup.queue:
        return False
    return reclaimable.may_reclaim_from(known[podgroup.queue], asked, known[unit.queue])


def queue_shares(cluster: ClusterInfo) -> dict[str, reclaimable.QueueShares]:
    """Return the queues as the rules of reclaim see them."""
    known: dict[str, reclaimable.QueueShares] = {}
    for name, queue in cluster.queues.items():
        known[name] = reclaimable.QueueShares(
            None,
            (queue.quota[0], queue.quota[1], queue.quota[2]),
            (queue.limit[0], queue.limit[1], queue.limit[2]),
            (queue.fair_share[0], queue.fair_share[1], queue.fair_share[2]),
            [*queue.allocated],
            [*queue.non_preemptible],
            queue.reclaim_goal,
        )
    for name, queue in cluster.queues.items():
        known[name].parent = known.get(queue.parent)
    return known


def possible_eviction_units(
    cluster: ClusterInfo, spared: set[PodGroupInfo]
) -> Iterator[EvictionUnit]:
    """Yield what PodGroups could lose: what comes on top step by step, then all of it."""
    seen: set[PodGroupInfo] = set()
    for podgroup in cluster.podgroups:
        podgroups = _of_owning_jobset(cluster, podgroup)
        if podgroup in seen or not all(_is_evictable(cluster, one, spared) for one in podgroups):
            continue
        seen |= {*podgroups}
        pods = [pod for one in podgroups for pod in _running_pods(one)]
        if not pods or len({one.queue for one in podgroups}) > 1:
            continue
        lost: list[PodInfo] = []
        for some in [] if podgroup.owning_jobset else tasks_to_evict(podgroup):
            more = total_charge([pod for pod in some if pod not in lost])
            yield EvictionUnit(
                podgroups, podgroup.queue, some, more, podgroup_rank(podgroup, 2), [more]
            )
            lost += some
        at = min(podgroup_rank(one) for one in podgroups)
        if lost or any(pod.state == "evicted" for pod in podgroup.pods):
            at = podgroup_rank(podgroup, 1 if is_satisfied(podgroup.root) else 0)
        more = total_charge([p for p in pods if p not in lost])
        is_plain = not podgroup.owning_jobset and isinstance(podgroup.root, PodSet)
        asks = (
            [more] if is_plain else [_first_request(one) for one in podgroups if _running_pods(one)]
        )
        yield EvictionUnit(podgroups, podgroup.queue, pods, more, at, asks, True)


def _first_request(podgroup: PodGroupInfo) -> reclaimable.Requested:
    """Return what a PodGroup would ask for first of what it had; or else what it cannot spare."""
    kept = [(pod, pod.state) for pod in podgroup.pods]
    for pod, state in kept:
        pod.state = "there" if state == "evicted" else state
    there, spared = (
        _running_pods(podgroup),
        [pod for some in tasks_to_evict(podgroup) for pod in some],
    )
    for pod in podgroup.pods:
        pod.state = {"there": "waiting", "waiting": "other"}.get(pod.state, pod.state)
    some = tasks_to_allocate(podgroup.root) if spared and can_be_satisfied(podgroup.root) else []
    for pod, state in kept:
        pod.state = state
    return total_charge(some or [pod for pod in there if pod not in spared])


def _is_evictable(cluster: ClusterInfo, podgroup: PodGroupInfo, spared: set[PodGroupInfo]) -> bool:
    way = cluster.queue_with_ancestors(podgroup.queue)
    return (
        podgroup.preemptible
        and not podgroup.is_managed_elsewhere
        and podgroup not in spared
        and bool(way)
        and not way[-1].parent
        and not cluster.is_misconfigured(podgroup)
        and not any(pod.state in ("bound", "nominated", "reserved") for pod in podgroup.pods)
    )


def _running_pods(podgroup: PodGroupInfo) -> list[PodInfo]:
    return [pod for pod in podgroup.pods if pod.state in ("there", "old")]


def in_victim_order(cluster: ClusterInfo, units: list[EvictionUnit]) -> list[EvictionUnit]:
    """Return the candidates in the order of eviction, each with all before it gone."""
    left, line = list(units), []
    kept = {queue: [*queue.allocated] for queue in cluster.queues.values()}
    tops = [queue for queue in cluster.queues.values() if not queue.parent]
    while left:
        one = _next_victim(cluster, tops, left)
        assert one is not None
        left.remove(one)
        line.append(one)
        for queue in cluster.queue_with_ancestors(one.queue):
            for i in range(3):
                queue.allocated[i] -= one.freed[i]
    for queue, has in kept.items():
        queue.allocated = has
    return line


def _next_victim(
    cluster: ClusterInfo, queues: list[Any], left: list[EvictionUnit]
) -> EvictionUnit | None:
    best = []
    for queue in queues:
        own = [(unit.rank, -i, unit) for i, unit in enumerate(left) if unit.queue == queue.name]
        one = (
            _next_victim(cluster, queue.children, left)
            if queue.children
            else max(own, key=lambda it: it[:2], default=(0, 0, None))[2]
        )
        if one is not None:
            rank = [*queue_rank(cluster, queue, [0, 0, 0])]
            rank[4] = queue_rank(cluster, queue, [-n for n in one.freed])[4]
            best.append((tuple(rank), one))
    return max(best, key=lambda it: it[0])[1] if best else None


def _freed_amounts(
    units: list[EvictionUnit],
) -> Iterator[tuple[EvictionUnit, reclaimable.Requested]]:
    """Yield eviction units with what each takes that those before it have not."""
    gone: list[PodInfo] = []
    for unit in units:
        yield unit, total_charge([pod for pod in unit.pods if pod not in gone])
        gone += unit.pods


def _failure_after(cluster: ClusterInfo, podgroup: PodGroupInfo, units: list[EvictionUnit]) -> str:
    """Return the reason why a PodGroup would fail with some gone; all stays as it is."""
    return _try_evict(cluster, podgroup, units, keeps=False)


def _try_evict(
    cluster: ClusterInfo, podgroup: PodGroupInfo, units: list[EvictionUnit], *, keeps: bool = True
) -> str:
    pods = tasks_to_allocate(podgroup.root)
    saved = Checkpoint(cluster)
    for unit, amounts in [*_freed_amounts(units)]:
        charge_eviction(cluster, unit.queue, amounts)
    evict(cluster, units)
    reason = try_allocate(cluster, podgroup, pods, waits=bool(units))
    if reason or not keeps:
        saved.restore()
    return reason


def evict(cluster: ClusterInfo, units: list[EvictionUnit]) -> None:
    """Evict pods: their room is there for a PodGroup that can wait."""
    at = {node_info.name: node_info for node_info in cluster.nodes}
    for unit, amounts in [*_freed_amounts(units)]:
        for queue in cluster.queue_with_ancestors(unit.queue):
            for i in range(3):
                queue.allocated[i] -= amounts[i]
        for pod in unit.pods:
            if pod.state in ("there", "old"):
                pod.state = "evicted"
                if pod.node in at:
                    freed = added(at[pod.node].releasing_of_pods, pod.requests)
                    at[pod.node].releasing_of_pods = freed
