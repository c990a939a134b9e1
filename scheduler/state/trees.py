"""The tree of a group: which leaves it has, and how many of what it needs."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from scheduler.core.model import Bar, Group, Leaf, Tree, Verdict
from trainer_kai.api.names import TOPOLOGY_REQUIRED
from trainer_kai.api.podgroup import PodGroup, SubGroup
from trainer_kai.api.validate import podgroup_faults

__all__ = ["DEFAULT", "Plant", "group_bar", "minima", "topology_bar", "tree"]

Plant: TypeAlias = Callable[[str, int], Leaf]  # makes a leaf of its name and its minimum

DEFAULT: Final = "default"  # the leaf of a group without sub-groups

_DEEPEST: Final = 16  # levels; more would be a mistake, or meant to break something
_MOST: Final = 2**31 - 1  # of what Kubernetes counts


def group_bar(group: PodGroup) -> Bar | None:
    """Return what is wrong with a group by its own rules."""
    faults = [str(fault) for fault in podgroup_faults(group)]
    if not faults:
        faults = [*_impossible(group)]
    if not faults:
        return None
    return Bar(Verdict.MISCONFIGURED, "; ".join(faults), frozenset({"groups"}))


def topology_bar(group: PodGroup) -> Bar | None:
    """Return that a group or a sub-group requires pods to be close together, which is to come."""
    subs = ((f'sub-group "{sub.name}": ', sub.topology_constraint) for sub in group.spec.sub_groups)
    asked = (("", group.spec.topology_constraint), *subs)
    required = [(of, it) for of, it in asked if it and it.topology and it.required_topology_level]
    if not required:
        return None
    of, first = required[0]
    count = len(required) - 1
    more = f" (and for {count} more sub-group{'s' * (count > 1)})" if count else ""
    asked_for = f'"{first.required_topology_level}" of topology "{first.topology}"'
    right = f"remove requiredTopologyLevel (annotation {TOPOLOGY_REQUIRED}) or use"
    message = (
        f"{of}required topology {asked_for} is not supported yet{more}; "
        f"{right} preferredTopologyLevel"
    )
    return Bar(Verdict.TOPOLOGY_UNFIT, message, frozenset({"groups"}))


def minima(group: PodGroup) -> dict[str, int]:
    """Return the leaves of a group that is as it should be, and how many pods each needs."""
    spec = group.spec
    if not spec.sub_groups:
        return {DEFAULT: _at_most(1 if spec.min_member is None else spec.min_member)}
    inner = {sub.parent for sub in spec.sub_groups}
    return {
        sub.name: _at_most(sub.min_member or 0) for sub in spec.sub_groups if sub.name not in inner
    }


def tree(group: PodGroup, plant: Plant) -> Tree:
    """Return the tree of a group that is as it should be."""
    spec = group.spec
    least = minima(group)
    if not spec.sub_groups:
        return plant(DEFAULT, least[DEFAULT])
    below: dict[str, list[SubGroup]] = {}
    for sub in spec.sub_groups:
        below.setdefault(sub.parent, []).append(sub)
    return _inner(("", spec.min_sub_group), below, lambda name: plant(name, least[name]))


def _inner(
    top: tuple[str, int | None], below: dict[str, list[SubGroup]], plant: Callable[[str], Leaf]
) -> Group:
    name, minimum = top
    children = tuple(
        _inner((sub.name, sub.min_sub_group), below, plant)
        if sub.name in below
        else plant(sub.name)
        for sub in below[name]
    )
    return Group(name, len(children) if minimum is None else _at_most(minimum), children)


def _impossible(group: PodGroup) -> Iterator[str]:
    """Yield what no pods could satisfy."""
    if _depth(group) > _DEEPEST:
        yield f"spec.subGroups: there are more than {_DEEPEST} levels"
    below = Counter(sub.parent for sub in group.spec.sub_groups)
    asked = [("spec", "", group.spec.min_sub_group)] if below else []
    for i, sub in enumerate(group.spec.sub_groups):
        asked.append((f"spec.subGroups[{i}]", sub.name, sub.min_sub_group))
    for path, name, number in asked:
        if number is not None and number > below[name]:
            yield f"{path}.minSubGroup: {number} is more than the {below[name]} that there are"


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
