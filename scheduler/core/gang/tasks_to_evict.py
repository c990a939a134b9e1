"""Which pods of a PodGroup are evicted step by step: the reverse of `tasks_to_allocate`.

Pods above a minimum are evicted one by one, and then whole SubGroups that are not needed. Of the
children only the one that lost a pod changes its place, and one that has no pod to spare never has
again: so nothing is sorted anew, and a step costs what it evicts. Evicting a child includes the
pods that it lost before: otherwise these are left, and too few to be of any use.
"""

import heapq
from collections.abc import Iterator
from typing import Final, TypeAlias

from scheduler.core.gang.tasks_to_allocate import member_count
from scheduler.core.model.podgroup import PodSet, SubGroupSet, SubGroupTree, podsets_of

Pods: TypeAlias = tuple[int, ...]


def tasks_to_evict(tree: SubGroupTree) -> Iterator[Pods]:
    """Yield what a PodGroup loses step by step while it can spare pods; of a child all it had."""
    left = _remaining(tree)
    while pods := left.step():
        yield pods


class _RemainingPodSet:
    """What is left of a PodSet."""

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
        """Evict all pods."""
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
        """Evict all pods."""
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
