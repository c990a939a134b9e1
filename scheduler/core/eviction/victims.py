"""Victims, and the eviction units that they form: pods that are evicted together.

Beside the pool of units: what keeps units from being evicted (disruption budgets, minimum
runtimes, relations to the requested pods), and by queue the totals of what may be evicted, which
are known before any unit is made.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from scheduler.core.gang import min_available_state, tasks_to_allocate, tasks_to_evict
from scheduler.core.model.podgroup import (
    NON_PREEMPTIBLE,
    PodGroupInfo,
    PodSet,
    SchedulingSignature,
    SubGroupSet,
    SubGroupTree,
    is_evictable,
    podsets_of,
)
from scheduler.core.model.resources import NONE, Amounts, HeldDevices, ResourceKind
from scheduler.core.model.result import MinRuntime
from scheduler.core.model.snapshot import DisruptionBudgets, PodState, Snapshot, SnapshotQueues
from scheduler.core.model.usage import (
    AmountList,
    allocated_by_podgroup,
    below_common_ancestor,
    charged,
)
from scheduler.core.queues.order import PodGroupKey
from scheduler.core.queues.reclaimable import Reclaimable
from trainer_kai.api.scheduler_names import Action

Rows: TypeAlias = tuple[int, ...]
# Of a PodGroup and its min_available_state.
KeyFunction: TypeAlias = Callable[[int, int], PodGroupKey]
# Which eviction units are candidates; None is all.
UnitFilter: TypeAlias = Callable[[int], bool] | None
PriorityAndReason: TypeAlias = tuple[int, str]  # and why its PodGroups are non-evictable


class Victim(NamedTuple):
    """A running pod, or a reserved place."""

    pod: int  # below zero: a reserved place
    node: int  # or NONE: on an unknown node
    signature: int
    held: HeldDevices = ()


Members: TypeAlias = tuple[Victim, ...]


class EvictionUnit(NamedTuple):
    """Pods and reserved places that are evicted together."""

    queue: int
    key: PodGroupKey  # of its PodGroup among those of its queue
    amounts: Amounts
    priority: int = 0  # the largest of its PodGroups
    first_requests: tuple[Amounts, ...] = ()  # what its PodGroups would request first after it
    is_workload: bool = False  # it is evicted whole


class DisruptionAllowance:
    """What is left of each budget, jointly for all evictions of a plan."""

    def __init__(self, budgets: DisruptionBudgets) -> None:
        self._allowed: Final = [*budgets.allowed]  # after all evictions so far
        self._sets: Final = budgets.sets
        self._set_of_pod: Final = budgets.set_of_pod
        self.has_budgets: Final = bool(budgets.names)
        self.evicted = 0  # how many pods of budgets were evicted

    def counts(self, pods: Iterable[int]) -> Counter[int]:
        """Return how many of some pods each budget covers; reserved places are no pods."""
        found: Counter[int] = Counter()
        for pod in pods if self._sets else ():
            row = self._set_of_pod[pod] if pod >= 0 else NONE
            if row != NONE:
                found.update(self._sets[row])
        return found

    def violated(self, counts: Counter[int]) -> list[int]:
        return [budget for budget, number in counts.items() if number > self._allowed[budget]]

    def use(self, pods: Iterable[int]) -> tuple[int, ...]:
        """Count pods that are evicted; return the budgets that allow fewer evictions."""
        counts = self.counts(pods)
        passed = tuple(sorted(self.violated(counts)))
        for budget, number in counts.items():
            self._allowed[budget] -= number
            self.evicted += number
        return passed

    def blocked(self, eviction_units: Iterable[Iterable[int]]) -> dict[int, list[int]]:
        """Return the units that cannot be evicted any more, and the budgets that forbid it."""
        counts = map(self.counts, eviction_units if self._sets else ())
        passed = enumerate(map(self.violated, counts))
        return {eviction_unit: budgets for eviction_unit, budgets in passed if budgets}


class VictimPool:
    def __init__(
        self,
        snapshot: Snapshot,
        protected: Collection[int],
        key_of: KeyFunction,
        disruptions: DisruptionAllowance,
        *,
        shrink: bool = True,
    ) -> None:
        """Make units of all but protected PodGroups; unless they *shrink*, one for each."""
        self._shrink: Final = shrink
        self.eviction_units: Final[list[EvictionUnit]] = []
        self.victims: Final[list[Collection[Victim]]] = []
        # That are not evicted, where other units are inside.
        self._members: Final[dict[int, dict[Victim, None]]] = {}
        self._around: Final[dict[int, int]] = {}  # the next larger unit around a unit
        self._inside: Final[dict[int, set[int]]] = {}
        self._totals: Final[list[Amounts]] = []  # of all members
        self.podgroups: Final[list[Rows]] = []
        self.is_whole: Final[list[bool]] = []
        self.partly_succeeded: Final[set[int]] = set()  # eviction units with such a PodGroup
        self._units_of_podgroup: Final[dict[int, list[int]]] = {}  # eviction units by PodGroup
        self.disruptions: Final = disruptions
        self._blocked: tuple[int, dict[int, list[int]]] = NONE, {}
        self._snapshot: Final = snapshot
        self._key_of: Final = key_of
        self._victims_of: Final = victims_of(snapshot)
        for rows in evictable_podgroups(snapshot.podgroups, protected):
            self._add(rows)

    @property
    def blocked(self) -> dict[int, list[int]]:
        if self._blocked[0] != self.disruptions.evicted:
            pods = ((member.pod for member in members) for members in self.victims)
            self._blocked = self.disruptions.evicted, self.disruptions.blocked(pods)
        return self._blocked[1]

    def amounts(self, eviction_unit: int, members: Collection[Victim]) -> Amounts:
        if len(members) == len(self.victims[eviction_unit]):
            return self._totals[eviction_unit]
        return amounts_of(self._snapshot.signatures, members)

    def remove_podgroup(self, podgroup: int) -> list[int]:
        eviction_units = self._units_of_podgroup.get(podgroup, [])
        removed = eviction_units.copy()
        eviction_units.clear()
        return removed

    def remove_unit(self, eviction_unit: int) -> list[int]:
        eviction_units = self._units_of_podgroup[self.podgroups[eviction_unit][0]]
        if self.is_whole[eviction_unit]:
            removed = eviction_units.copy()
            eviction_units.clear()
            return removed
        removed = [*self._all_inside(eviction_unit)]
        around = eviction_unit
        if eviction_unit in self._around:
            self._inside[self._around[eviction_unit]].remove(eviction_unit)
        while (around := self._around.get(around, NONE)) != NONE:
            self._remove(around, eviction_unit)
            if not self._members[around]:
                removed.append(around)
        for one in removed:
            eviction_units.remove(one)
        return removed

    def _all_inside(self, eviction_unit: int) -> Iterator[int]:
        yield eviction_unit
        for one in self._inside.get(eviction_unit, ()):
            yield from self._all_inside(one)

    def _remove(self, around: int, step: int) -> None:
        for member in self.victims[step]:
            del self._members[around][member]
        cpu, memory, gpu = self._totals[around]
        less = self._totals[step]
        self._totals[around] = cpu - less[0], memory - less[1], gpu - less[2]

    def _add(self, rows: Rows) -> None:
        found = tuple([member for row in rows for member in self._victims_of(row)])
        if not found:
            return
        first = rows[0]
        podgroup = self._snapshot.podgroups[first]
        available_state = min_available_state(podgroup.tree)
        may_shrink = (
            self._shrink
            and not podgroup.workload
            and (available_state > 0 or isinstance(podgroup.tree, SubGroupSet))
        )
        steps = list(_eviction_steps(podgroup, found)) if may_shrink else []
        key = min(
            [
                self._key_of(row, min(available_state, 0) if steps else available_state)
                for row in rows
            ]
        )
        whole = len(self.eviction_units)
        eviction_units = [*range(whole, whole + len(steps) + 1)]
        self._units_of_podgroup.update(dict.fromkeys(rows, eviction_units))
        if not steps:
            self._put(rows, key, found, is_whole=True)
            return
        protected = {it for evicted in steps for it in evicted}
        self._put(rows, key, [it for it in found if it not in protected], is_whole=True)
        key = self._key_of(first, 1)
        for evicted in reversed(_newly_evicted(steps)):  # the last one is evicted first
            self._put(rows, key, evicted, is_whole=False)
        self._enclose([*reversed(eviction_units)], [*steps, found])

    def _enclose(self, eviction_units: Sequence[int], victims_of_units: Sequence[Members]) -> None:
        """Give units the members of those inside them, each of which is before it."""
        last: dict[Victim, int] = {}  # the last unit that has it
        for eviction_unit, members in zip(eviction_units, victims_of_units, strict=True):
            inside = {last[it]: None for it in members if it in last}
            last.update(dict.fromkeys(members, eviction_unit))
            if not inside:
                continue
            self._around.update(dict.fromkeys(inside, eviction_unit))
            self._inside[eviction_unit] = {*inside}
            self.victims[eviction_unit] = self._members[eviction_unit] = dict.fromkeys(members)
            self._totals[eviction_unit] = amounts_of(self._snapshot.signatures, members)

    def _put(
        self, rows: Rows, key: PodGroupKey, members: Collection[Victim], *, is_whole: bool
    ) -> None:
        podgroups, amounts = (
            self._snapshot.podgroups,
            amounts_of(self._snapshot.signatures, members),
        )
        most = max([podgroups[row].priority for row in rows])
        is_plain = not is_whole or _is_plain_podset(podgroups[rows[0]])
        requests = (
            (amounts,)
            if is_plain
            else tuple(map(self._first_request, filter(self._victims_of, rows)))
        )
        first = podgroups[rows[0]]
        self.eviction_units.append(
            EvictionUnit(first.queue, key, amounts, most, requests, bool(first.workload))
        )
        self._totals.append(amounts)
        self.victims.append(members)
        self.podgroups.append(rows)
        self.is_whole.append(is_whole)
        if any(podgroups[row].is_partly_succeeded for row in rows):
            self.partly_succeeded.add(len(self.eviction_units) - 1)

    def _first_request(self, row: int) -> Amounts:
        """Return what a PodGroup would request first if evicted; or else what it cannot spare."""
        podgroup, snapshot = self._snapshot.podgroups[row], self._snapshot
        tree, found = podgroup.tree, self._victims_of(row)
        if next(tasks_to_evict(tree), None) is None:
            return amounts_of(snapshot.signatures, found)
        some = tasks_to_allocate(_unplaced(tree))
        if not some:
            protected = {
                member for evicted in _eviction_steps(podgroup, found) for member in evicted
            }
            return amounts_of(snapshot.signatures, [it for it in found if it not in protected])
        signature_of = snapshot.pods.signature
        requested = [
            (int(signature_of[pod]), 1) for podset_tasks in some for pod in podset_tasks.pods
        ]
        requested += [
            (podset_tasks.podset.expected_signature, podset_tasks.expected)
            for podset_tasks in some
            if podset_tasks.expected
        ]
        return charged(snapshot.signatures, requested)


class MinRuntimeGuard:
    """Units within a minimum runtime: only whole ones, for elastic pods are not protected."""

    def __init__(
        self,
        snapshot: Snapshot,
        pool: VictimPool,
        paths: Sequence[Sequence[int]],
        configured: MinRuntime | None,
    ) -> None:
        """Of a workload the PodGroup that began to run last counts."""
        queues = snapshot.queues
        is_needed = has_min_runtime(configured, queues)
        configured = configured or MinRuntime()
        self._configured: Final = {
            Action.PREEMPT: (queues.preempt_min_s, configured.preempt_s),
            Action.RECLAIM: (queues.reclaim_min_s, configured.reclaim_s),
        }
        self._from_victim_queue: Final = configured.from_victim_queue
        self._paths: Final = paths
        self._now: Final = snapshot.now
        self._running_since: Final[dict[int, dict[int, int]]] = {}  # by queue, by eviction unit
        self._known: Final[dict[tuple[int, int], dict[int, int]]] = {}
        for eviction_unit, rows in enumerate(pool.podgroups if is_needed else ()):
            running_since = max(snapshot.podgroups[row].running_since for row in rows)
            if pool.is_whole[eviction_unit] and running_since:
                self._running_since.setdefault(snapshot.podgroups[rows[0]].queue, {})[
                    eviction_unit
                ] = running_since

    def protected(
        self, action: Action, reclaimer_queue: int, queues: Iterable[int]
    ) -> dict[int, int]:
        """Return which units of some queues are protected from a queue, and until when."""
        found: dict[int, int] = {}
        for queue in queues:
            if queue in self._running_since:
                found.update(self._protected(queue, self._seconds(action, reclaimer_queue, queue)))
        return found

    def _protected(self, queue: int, seconds: int) -> dict[int, int]:
        key = queue, seconds
        if key not in self._known:
            ends = (
                (eviction_unit, running_since + seconds)
                for eviction_unit, running_since in self._running_since[queue].items()
            )
            self._known[key] = {
                eviction_unit: end for eviction_unit, end in ends if end > self._now
            }
        return self._known[key]

    def _seconds(self, action: Action, reclaimer_queue: int, queue: int) -> int:
        """Return the minimum runtime of a queue: the nearest one that is set from it up."""
        by_queue, default = self._configured[action]
        if action == Action.RECLAIM and not self._from_victim_queue:
            queue = below_common_ancestor(self._paths, reclaimer_queue, queue)[1]
        found = (
            by_queue[above] for above in self._paths[queue] if by_queue and by_queue[above] != NONE
        )
        return next(found, default)


class ReclaimableTotals:
    """By queue: all that may be evicted, by priority as well, and the largest PodGroup of it.

    And how many PodGroups with victims are non-evictable, by queue, priority and reason.
    """

    def __init__(self, snapshot: Snapshot, protected: Collection[int]) -> None:
        self.all: Final[dict[int, AmountList]] = {}
        self._largest: Final[dict[int, AmountList]] = {}
        self._by_priority: Final[dict[int, dict[int, AmountList]]] = {}
        self.non_evictable: Final = _count_non_evictable(snapshot.podgroups)
        has, counts = allocated_by_podgroup(snapshot)
        for rows in evictable_podgroups(snapshot.podgroups, protected):
            if not any(counts[row] for row in rows):
                continue
            amounts = [*map(sum, zip(*[has[row] for row in rows], strict=True))]
            queue = snapshot.podgroups[rows[0]].queue
            of_all = self.all.setdefault(queue, [0, 0, 0])
            of_one = self._largest.setdefault(queue, [0, 0, 0])
            priority = max([snapshot.podgroups[row].priority for row in rows])
            of_priority = self._by_priority.setdefault(queue, {}).setdefault(priority, [0, 0, 0])
            for kind, amount in enumerate(amounts):
                of_all[kind] += amount
                of_priority[kind] += amount
                of_one[kind] = max(of_one[kind], amount)

    def has_below(self, queue: int, priority: int) -> bool:
        return min(self._by_priority.get(queue, [priority])) < priority

    def below(self, queue: int, priority: int, kind: ResourceKind) -> int:
        ranked = self._by_priority[queue].items()
        return sum([amounts[kind] for one, amounts in ranked if one < priority])

    def reclaimable_bound(
        self, reclaimable: Reclaimable, queues: Collection[int], kind: ResourceKind
    ) -> int:
        """Return a bound of what some queues may lose of a kind for one reclaimer.

        The last unit may be as large as it is; before it, its queue still had a surplus. If that
        is a surplus of this kind alone, no more is lost than the surplus and one unit.
        """
        beside: dict[int, list[int]] = {}
        for queue in queues:
            beside.setdefault(reclaimable.compared_queues(queue)[1], []).append(queue)
        found = 0
        for victim_queue, below in beside.items():
            over = reclaimable.surplus(victim_queue)
            if not any(over):
                continue
            most = sum([self.all[queue][kind] for queue in below])
            if not (any(over[:kind]) or any(over[kind + 1 :])):
                last = max([self._largest[queue][kind] for queue in below])
                most = min(most, math.ceil(over[kind]) - 1 + last)
            found += most
        return found


def has_min_runtime(configured: MinRuntime | None, queues: SnapshotQueues) -> bool:
    seconds = (*queues.preempt_min_s, *queues.reclaim_min_s)
    return configured is not None and any(it > 0 for it in (*seconds, *configured[:2]))


def excluding(may_evict: UnitFilter, excluded: Collection[int]) -> UnitFilter:
    if not excluded:
        return may_evict
    return lambda eviction_unit: (
        eviction_unit not in excluded and (may_evict is None or may_evict(eviction_unit))
    )


def unrelated_units(
    signatures: Sequence[SchedulingSignature], requested: Iterable[int], pool: VictimPool
) -> UnitFilter:
    """Return a filter without pods that requested pods want to be near, or are spread beside."""
    wanted = [signatures[signature] for signature in requested]
    selectors = {term.selector for one in wanted for term in one.affinity}
    selectors |= {spread.selector for one in wanted for spread in one.spread_constraints}
    if not selectors:
        return None
    return lambda eviction_unit: all(
        selectors.isdisjoint(signatures[it.signature].matched_selectors)
        for it in pool.victims[eviction_unit]
    )


def _count_non_evictable(
    podgroups: Iterable[PodGroupInfo],
) -> dict[int, Counter[PriorityAndReason]]:
    counts: dict[int, Counter[PriorityAndReason]] = {}
    for podgroup in podgroups:
        why = podgroup.non_evictable_reason if podgroup.is_preemptible else NON_PREEMPTIBLE
        if why and podgroup.queue != NONE and _has_victims(podgroup):
            counts.setdefault(podgroup.queue, Counter())[podgroup.priority, why] += 1
    return counts


def _has_victims(podgroup: PodGroupInfo) -> bool:
    return any(podset.running or podset.reserved_places for podset in podsets_of(podgroup.tree))


def _is_plain_podset(podgroup: PodGroupInfo) -> bool:
    """Say whether what a PodGroup keeps to the last is what it would request first."""
    return (
        not podgroup.workload
        and isinstance(podgroup.tree, PodSet)
        and not podgroup.tree.reserved_places
    )


def _unplaced(tree: SubGroupTree) -> SubGroupTree:
    """Return a tree in which all running pods are pending, and no others."""
    if isinstance(tree, PodSet):
        return replace(
            tree, pending=tree.running_pods, running=0, reserved_places=(), running_pods=()
        )
    return replace(tree, children=tuple(map(_unplaced, tree.children)))


def evictable_podgroups(
    podgroups: Sequence[PodGroupInfo], protected: Collection[int]
) -> Iterator[Rows]:
    """Yield the PodGroups that may be evicted, those of a workload together."""
    workloads: dict[str, list[int]] = {}
    for row, podgroup in enumerate(podgroups):
        if podgroup.workload:
            workloads.setdefault(podgroup.workload, []).append(row)
        elif row not in protected and is_evictable(podgroup):
            yield (row,)
    for rows in workloads.values():
        queues = {podgroups[row].queue for row in rows}
        if len(queues) == 1 and all(
            row not in protected and is_evictable(podgroups[row]) for row in rows
        ):
            yield tuple(rows)


def amounts_of(signatures: Sequence[SchedulingSignature], members: Iterable[Victim]) -> Amounts:
    cpu = memory = gpu = 0
    for member in members:
        counted = signatures[member.signature].queue_request
        cpu, memory, gpu = cpu + counted[0], memory + counted[1], gpu + counted[2]
    return cpu, memory, gpu


def _eviction_steps(podgroup: PodGroupInfo, members: Iterable[Victim]) -> Iterator[Members]:
    """Yield what a PodGroup loses step by step; it never keeps reserved places alone."""
    by_pod = {member.pod: member for member in members}
    left = {pod for pod in by_pod if pod >= 0}
    has_reserved_places = len(left) < len(by_pod)
    for pods in tasks_to_evict(podgroup.tree):
        left.difference_update(pods)
        if has_reserved_places and not left:
            return
        yield tuple([by_pod[pod] for pod in pods])


def _newly_evicted(steps: Iterable[Members]) -> list[Members]:
    """Return the members of each step that are in no step before it."""
    evicted: set[Victim] = set()
    found = []
    for members in steps:
        found.append(tuple([it for it in members if it not in evicted]))
        evicted.update(members)
    return found


def victims_of(snapshot: Snapshot) -> Callable[[int], Members]:
    """Return a function from a PodGroup to its members; it may be called once for each."""
    pods, podgroups = snapshot.pods, snapshot.podgroups
    is_there = (pods.state == PodState.RUNNING) & (pods.podgroup != NONE)
    rows = np.flatnonzero(is_there)
    rows = rows[np.argsort(pods.podgroup[rows], kind="stable")]
    begins = np.searchsorted(pods.podgroup[rows], np.arange(len(podgroups) + 1)).tolist()
    found = list(
        map(Victim, rows.tolist(), pods.node[rows].tolist(), pods.signature[rows].tolist())
    )
    held_devices = snapshot.held_devices
    if held_devices:
        found = [it._replace(held=held_devices.get(it.pod, ())) for it in found]

    reserved_places = count(1)

    def members(podgroup: int) -> Members:
        there, tree = found[begins[podgroup] : begins[podgroup + 1]], podgroups[podgroup].tree
        for podset in (tree,) if isinstance(tree, PodSet) else podsets_of(tree):
            if podset.reserved_places:
                there += [
                    Victim(-next(reserved_places), it.node, it.signature, it.held)
                    for it in podset.reserved_places
                ]
        return tuple(there)

    return members
