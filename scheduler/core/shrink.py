"""What a unit loses step by step, before it loses all: the way of `chunk` backwards.

What comes on top of a minimum goes pod by pod, and then whole children that are not needed. Of a
group's children only the one that lost something changes its place, and one that has nothing to
spare never will again: so nothing is sorted anew, and a step costs what it takes. Who takes a child
takes with it what it could spare and lost before: else that is left, and too few to be of any use.
"""

import heapq
from collections.abc import Iterator
from typing import Final, TypeAlias

from scheduler.core.chunks import members_of
from scheduler.core.model import Group, Leaf, Tree, leaves_of

__all__ = ["steps"]

Pods: TypeAlias = tuple[int, ...]


def steps(tree: Tree) -> Iterator[Pods]:
    """Yield what a unit loses one after another while it can spare some; of a child all it had."""
    left = _left_of(tree)
    while pods := left.step():
        yield pods


class _LeafLeft:
    """What is left of a leaf."""

    def __init__(self, leaf: Leaf) -> None:
        self.minimum: Final = leaf.minimum
        self.name: Final = leaf.name
        self.members = members_of(leaf)
        self.pods: Final = leaf.pods
        self._pods: Final = [*leaf.pods]

    def step(self) -> Pods:
        """Give up the last pod, if it can be spared."""
        if not self._pods or self.members <= self.minimum:
            return ()
        self.members -= 1
        return (self._pods.pop(),)

    def rest(self) -> Pods:
        """Give up all."""
        pods = (*self._pods,)
        self._pods.clear()
        self.members -= len(pods)
        return pods


class _GroupLeft:
    """What is left of a group; its members are the children that are satisfied."""

    def __init__(self, group: Group) -> None:
        self.minimum: Final = group.minimum
        self.name: Final = group.name
        self.pods: Final[Pods] = tuple(pod for leaf in leaves_of(group) for pod in leaf.pods)
        self._children: Final = [_left_of(child) for child in group.children]
        self.members = sum(map(_is_satisfied, self._children))
        self._by_name: Final = sorted(self._children, key=lambda it: it.name, reverse=True)
        satisfied = [i for i, child in enumerate(self._by_name) if _is_satisfied(child)]
        self._may_step: Final = [(self._place(i), i) for i in satisfied]
        heapq.heapify(self._may_step)
        self._may_go: Iterator[_Left] | None = None

    def step(self) -> Pods:
        """Give up what the first child that can spares, or else a child."""
        while self._may_step:
            i = self._may_step[0][1]
            pods = self._by_name[i].step()
            if pods:
                heapq.heapreplace(self._may_step, (self._place(i), i))
                return pods
            heapq.heappop(self._may_step)
        return self._child()

    def rest(self) -> Pods:
        """Give up all."""
        pods = tuple(pod for child in self._children for pod in child.rest())
        self.members = sum(map(_is_satisfied, self._children))
        return pods

    def _child(self) -> Pods:
        """Give up the last child that has anything, if more are satisfied than are needed."""
        if self._may_go is None:  # from now on nobody changes his place before his turn
            order = sorted(range(len(self._by_name)), key=self._place)
            self._may_go = iter([self._by_name[i] for i in order])
        while self.members > self.minimum and (child := next(self._may_go, None)):
            was = _is_satisfied(child)
            is_any = bool(child.rest())
            self.members -= was - _is_satisfied(child)
            if is_any:
                return child.pods
        return ()

    def _place(self, i: int) -> tuple[bool, bool, float, int]:
        """Return who loses first: the order in which siblings take, backwards."""
        child = self._by_name[i]
        if not _is_satisfied(child):
            return True, False, 0.0, i
        if child.minimum > 0:
            return False, True, -child.members / child.minimum, i
        return False, False, -float(child.members), i


_Left: TypeAlias = _LeafLeft | _GroupLeft


def _left_of(tree: Tree) -> _Left:
    return _LeafLeft(tree) if isinstance(tree, Leaf) else _GroupLeft(tree)


def _is_satisfied(left: _Left) -> bool:
    return left.members >= left.minimum
