"""Which pods of a PodGroup the next attempt places, and which it loses step by step.

`tasks_to_allocate` takes all that the PodGroup needs, then one more pod at a time.
`tasks_to_evict` is the reverse: pods above a minimum go one by one, and then whole SubGroups that
are not needed. Of the children only the one that lost a pod changes its place, and one that has no
pod to spare never has again: so nothing is sorted anew, and a step costs what it evicts. Evicting a
child includes the pods that it lost before: otherwise these are left, and too few to be of any use.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.podgroup import (
    PodSet,
    ReservedPlace,
    SubGroupSet,
    SubGroupTree,
    podsets_of,
)


class PodSetTasks(NamedTuple):
    """Of one PodSet: pending pods, and a number of expected pods that do not exist yet."""

    podset: PodSet
    pods: tuple[int, ...]
    expected: int


Tasks: TypeAlias = tuple[PodSetTasks, ...]
# A signature and how many pods of it in a row; neighbours differ.
SignatureRuns: TypeAlias = tuple[tuple[int, int], ...]
_Rank: TypeAlias = tuple[bool, bool, float, str]
Pods: TypeAlias = tuple[int, ...]


@dataclass(slots=True)
class AssignedTasks:
    """What a plan has placed so far of one PodGroup, by PodSet."""

    pods: dict[str, int] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)

    def add(self, taken: Tasks) -> None:
        for podset, pods, later in taken:
            self.pods[podset.name] = self.pods.get(podset.name, 0) + len(pods)
            self.expected[podset.name] = self.expected.get(podset.name, 0) + later

    def unused_places(self, podset: PodSet) -> tuple[ReservedPlace, ...]:
        """Return the reserved places that no pod has taken."""
        return podset.reserved_places[self.pods.get(podset.name, 0) :]


NONE_ASSIGNED: Final = AssignedTasks()


class ElasticTasks:
    """What a PodGroup takes after its first tasks, as `tasks_to_allocate` but without sorting.

    Of a SubGroupSet's children only the child with newly placed pods changes its rank, and one that
    had no tasks never will: pending pods become fewer, and what is satisfied stays so.
    """

    def __init__(self, tree: SubGroupTree) -> None:
        self._tree = tree
        # By SubGroupSet, a heap of its children.
        self._places: dict[str, list[tuple[_Rank, int]]] = {}

    def next(self, assigned: AssignedTasks) -> Tasks:
        return self._next(self._tree, assigned)

    def _next(self, tree: SubGroupTree, assigned: AssignedTasks) -> Tasks:
        if isinstance(tree, PodSet):
            return tasks_to_allocate(tree, assigned)
        heap = self._places.get(tree.name)
        if heap is None:
            if not is_satisfied(tree, assigned):
                return tasks_to_allocate(tree, assigned)
            heap = [(_rank(child, assigned), i) for i, child in enumerate(tree.children)]
            heapq.heapify(heap)
            self._places[tree.name] = heap
        while heap:
            rank, i = heap[0]
            now = _rank(tree.children[i], assigned)
            if now != rank:
                heapq.heapreplace(heap, (now, i))
                continue
            tasks = self._next(tree.children[i], assigned)
            if tasks:
                return tasks
            heapq.heappop(heap)
        return ()


def tasks_to_allocate(tree: SubGroupTree, assigned: AssignedTasks = NONE_ASSIGNED) -> Tasks:
    """Return what to place next; empty if nothing can be or need be placed."""
    if isinstance(tree, PodSet):
        podset_tasks = _from_podset(tree, assigned)
        return (podset_tasks,) if podset_tasks else ()
    return tuple(_from_subgroup_set(tree, assigned))


def pending_after(tree: SubGroupTree, tasks: Tasks, assigned: AssignedTasks) -> Iterator[int]:
    """Yield the pending pods that come after some tasks, without those with reserved places."""
    taken = {pod for podset_tasks in tasks for pod in podset_tasks.pods}
    for podset in podsets_of(tree):
        if not podset.reserved_places:
            first = assigned.pods.get(podset.name, 0)
            yield from (pod for pod in podset.pending[first:] if pod not in taken)


def has_pending(tree: SubGroupTree) -> bool:
    """Asked of every PodGroup, most of which have none."""
    if isinstance(tree, PodSet):
        return bool(tree.pending)
    return any(map(has_pending, tree.children))


def has_expected(tree: SubGroupTree) -> bool:
    if isinstance(tree, PodSet):
        return tree.expected > 0
    return any(map(has_expected, tree.children))


def is_satisfied(tree: SubGroupTree, assigned: AssignedTasks = NONE_ASSIGNED) -> bool:
    if isinstance(tree, PodSet):
        return member_count(tree, assigned) >= tree.minimum
    return sum(is_satisfied(child, assigned) for child in tree.children) >= tree.minimum


def is_elastic(tree: SubGroupTree, tasks: Tasks, assigned: AssignedTasks = NONE_ASSIGNED) -> bool:
    """Say whether tasks are beyond the minimum, and beyond its own reserved places."""
    return is_satisfied(tree, assigned) and any(
        len(podset_tasks.pods) > len(assigned.unused_places(podset_tasks.podset))
        for podset_tasks in tasks
    )


def can_be_satisfied(tree: SubGroupTree, assigned: AssignedTasks = NONE_ASSIGNED) -> bool:
    if isinstance(tree, PodSet):
        members, waiting, later = _counts(tree, assigned)
        return members + waiting + later >= tree.minimum
    return sum(can_be_satisfied(child, assigned) for child in tree.children) >= tree.minimum


def member_count(podset: PodSet, assigned: AssignedTasks = NONE_ASSIGNED) -> int:
    placed = assigned.pods.get(podset.name, 0) + assigned.expected.get(podset.name, 0)
    return podset.running + podset.succeeded + _unused_place_count(podset) + placed


def min_available_state(tree: SubGroupTree, assigned: AssignedTasks = NONE_ASSIGNED) -> int:
    """Return -1 if a PodGroup lacks members, 0 if it can spare none, 1 if it can."""
    if isinstance(tree, PodSet):
        members = member_count(tree, assigned)
        return (members > tree.minimum) - (members < tree.minimum)
    if not is_satisfied(tree, assigned):
        return -1
    return 1 if _has_elastic(tree, assigned) else 0


def _has_elastic(tree: SubGroupTree, assigned: AssignedTasks) -> bool:
    if isinstance(tree, PodSet):
        return member_count(tree, assigned) > tree.minimum
    satisfied = [is_satisfied(child, assigned) for child in tree.children]
    is_enough = sum(satisfied) == tree.minimum
    return any(
        _has_elastic(child, assigned) if is_enough and needed else _has_members(child, assigned)
        for child, needed in zip(tree.children, satisfied, strict=True)
    )


def _has_members(tree: SubGroupTree, assigned: AssignedTasks) -> bool:
    if isinstance(tree, PodSet):
        return member_count(tree, assigned) > 0
    return any(_has_members(child, assigned) for child in tree.children)


def _counts(podset: PodSet, assigned: AssignedTasks) -> tuple[int, int, int]:
    """Return members, pending pods, and expected pods without a reserved place."""
    placed = assigned.pods.get(podset.name, 0)
    foreseen = assigned.expected.get(podset.name, 0)
    later = max(0, podset.expected - _unused_place_count(podset) - foreseen)
    return member_count(podset, assigned), len(podset.pending) - placed, later


def _unused_place_count(podset: PodSet) -> int:
    """Return how many reserved places no pending pod has come for."""
    return (
        max(0, len(podset.reserved_places) - len(podset.pending)) if podset.reserved_places else 0
    )


def _from_podset(podset: PodSet, assigned: AssignedTasks) -> PodSetTasks | None:
    members, waiting, later = _counts(podset, assigned)
    first = len(podset.pending) - waiting
    missing = podset.minimum - members
    if missing <= 0:
        return PodSetTasks(podset, podset.pending[first : first + 1], 0) if waiting else None
    if missing > waiting + later:
        return None
    pods = podset.pending[first : first + missing]
    return PodSetTasks(podset, pods, missing - len(pods))


def _from_subgroup_set(subgroup_set: SubGroupSet, assigned: AssignedTasks) -> Iterator[PodSetTasks]:
    missing = subgroup_set.minimum - sum(
        is_satisfied(child, assigned) for child in subgroup_set.children
    )
    if missing > 0 and not can_be_satisfied(subgroup_set, assigned):
        return
    ordered = sorted(subgroup_set.children, key=lambda child: _rank(child, assigned))
    for child in ordered:
        tasks = tasks_to_allocate(child, assigned)
        if tasks:
            yield from tasks
            missing -= 1
            if missing <= 0:
                return


def _rank(tree: SubGroupTree, assigned: AssignedTasks) -> _Rank:
    """Return the rank among siblings: unsatisfied first, then the fewest beyond the minimum."""
    if not is_satisfied(tree, assigned):
        return False, False, 0.0, tree.name
    if isinstance(tree, PodSet):
        members = member_count(tree, assigned)
    else:
        members = sum(is_satisfied(child, assigned) for child in tree.children)
    if tree.minimum > 0:
        return True, False, members / tree.minimum, tree.name
    return True, True, float(members), tree.name


def tasks_to_evict(tree: SubGroupTree) -> Iterator[Pods]:
    """Yield what a PodGroup loses step by step while it can spare pods; of a child all it had."""
    left = _remaining(tree)
    while pods := left.step():
        yield pods


class _RemainingPodSet:
    def __init__(self, podset: PodSet) -> None:
        self.minimum: Final = podset.minimum
        self.name: Final = podset.name
        self.members = member_count(podset)
        self.pods: Final = podset.running_pods
        self._pods: Final = [*podset.running_pods]

    def step(self) -> Pods:
        """Evict the last pod, if it can be spared."""
        if not self._pods or self.members <= self.minimum:
            return ()
        self.members -= 1
        return (self._pods.pop(),)

    def evict_all(self) -> Pods:
        pods = (*self._pods,)
        self._pods.clear()
        self.members -= len(pods)
        return pods


class _RemainingSubGroupSet:
    """What is left of a SubGroupSet; its members are the children that are satisfied."""

    def __init__(self, subgroup_set: SubGroupSet) -> None:
        self.minimum: Final = subgroup_set.minimum
        self.name: Final = subgroup_set.name
        self.pods: Final[Pods] = tuple(
            pod for podset in podsets_of(subgroup_set) for pod in podset.running_pods
        )
        self._children: Final = [_remaining(child) for child in subgroup_set.children]
        self.members = sum(map(_is_satisfied, self._children))
        self._by_name: Final = sorted(self._children, key=lambda it: it.name, reverse=True)
        satisfied = [i for i, child in enumerate(self._by_name) if _is_satisfied(child)]
        self._shrinkable: Final = [(self._eviction_rank(i), i) for i in satisfied]
        heapq.heapify(self._shrinkable)
        self._evictable_children: Iterator[_Remaining] | None = None

    def step(self) -> Pods:
        """Evict what the first child can spare, or else a whole child."""
        while self._shrinkable:
            i = self._shrinkable[0][1]
            pods = self._by_name[i].step()
            if pods:
                heapq.heapreplace(self._shrinkable, (self._eviction_rank(i), i))
                return pods
            heapq.heappop(self._shrinkable)
        return self._evict_child()

    def evict_all(self) -> Pods:
        pods = tuple(pod for child in self._children for pod in child.evict_all())
        self.members = sum(map(_is_satisfied, self._children))
        return pods

    def _evict_child(self) -> Pods:
        """Evict the last child that has pods, if more are satisfied than are needed."""
        if self._evictable_children is None:  # from now on the order is fixed
            order = sorted(range(len(self._by_name)), key=self._eviction_rank)
            self._evictable_children = iter([self._by_name[i] for i in order])
        while self.members > self.minimum and (child := next(self._evictable_children, None)):
            was = _is_satisfied(child)
            is_any = bool(child.evict_all())
            self.members -= was - _is_satisfied(child)
            if is_any:
                return child.pods
        return ()

    def _eviction_rank(self, i: int) -> tuple[bool, bool, float, int]:
        """Return the rank of a child, first evicted first: the order of allocation, backwards."""
        child = self._by_name[i]
        if not _is_satisfied(child):
            return True, False, 0.0, i
        if child.minimum > 0:
            return False, True, -child.members / child.minimum, i
        return False, False, -float(child.members), i


_Remaining: TypeAlias = _RemainingPodSet | _RemainingSubGroupSet


def _remaining(tree: SubGroupTree) -> _Remaining:
    return _RemainingPodSet(tree) if isinstance(tree, PodSet) else _RemainingSubGroupSet(tree)


def _is_satisfied(left: _Remaining) -> bool:
    return left.members >= left.minimum
