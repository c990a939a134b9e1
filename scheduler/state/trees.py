"""The tree of a group: which leaves it has, and how many of what it needs."""

from collections.abc import Callable
from typing import Final, TypeAlias

from scheduler.core.model import Bar, Group, Leaf, Tree, Verdict
from trainer_kai.api.podgroup import PodGroup, SubGroup
from trainer_kai.api.validate import podgroup_faults

__all__ = ["DEFAULT", "Plant", "flat", "group_bar", "leaf_names", "tree"]

Plant: TypeAlias = Callable[[str, int], Leaf]  # makes a leaf of its name and its minimum

DEFAULT: Final = "default"  # the leaf of a group without sub-groups

_DEEPEST: Final = 16  # levels; more would be a mistake, or meant to break something
_MOST: Final = 2**31 - 1  # of what Kubernetes counts


def group_bar(group: PodGroup) -> Bar | None:
    """Return what is wrong with a group by its own rules."""
    faults = [str(fault) for fault in podgroup_faults(group)]
    if not faults and _depth(group) > _DEEPEST:
        faults = [f"spec.subGroups: there are more than {_DEEPEST} levels"]
    if not faults:
        return None
    return Bar(Verdict.MISCONFIGURED, "; ".join(faults), frozenset({"groups"}))


def leaf_names(group: PodGroup) -> tuple[str, ...]:
    """Return the leaves of a group that is as it should be."""
    inner = {sub.parent for sub in group.spec.sub_groups}
    names = tuple(sub.name for sub in group.spec.sub_groups if sub.name not in inner)
    return names or (DEFAULT,)


def tree(group: PodGroup, plant: Plant) -> Tree:
    """Return the tree of a group that is as it should be."""
    spec = group.spec
    if not spec.sub_groups:
        return plant(DEFAULT, _at_most(1 if spec.min_member is None else spec.min_member))
    below: dict[str, list[SubGroup]] = {}
    for sub in spec.sub_groups:
        below.setdefault(sub.parent, []).append(sub)
    return _inner("", spec.min_sub_group, below, plant)


def flat(minimum: int, plant: Plant) -> Leaf:
    """Return the tree of pods without a group, or of a group that cannot be meant."""
    return plant(DEFAULT, minimum)


def _inner(name: str, minimum: int | None, below: dict[str, list[SubGroup]], plant: Plant) -> Group:
    children: list[Tree] = []
    for sub in below[name]:
        if sub.name in below:
            children.append(_inner(sub.name, sub.min_sub_group, below, plant))
        else:
            children.append(plant(sub.name, _at_most(sub.min_member or 0)))
    return Group(name, len(children) if minimum is None else _at_most(minimum), tuple(children))


def _at_most(number: int) -> int:
    return min(number, _MOST)


def _depth(group: PodGroup) -> int:
    """Return how many levels there are; no sub-group is above itself."""
    parents = {sub.name: sub.parent for sub in group.spec.sub_groups}
    depths = {"": 0}
    for name in parents:
        way = [name]
        while way[-1] not in depths:
            way.append(parents[way[-1]])
        known = depths[way[-1]]
        for step, passed in enumerate(reversed(way[:-1]), start=1):
            depths[passed] = known + step
    return max(depths.values())
