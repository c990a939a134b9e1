"""The tree of a group: which leaves it has, and how many of what it needs."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from scheduler.core.model import (
    PodSet,
    PreFilterFailure,
    SubGroupSet,
    SubGroupTree,
    UnschedulableReason,
)
from trainer_kai.api.names import TOPOLOGY_REQUIRED
from trainer_kai.api.podgroup import PodGroup, SubGroup
from trainer_kai.api.validate import podgroup_faults

__all__ = [
    "DEFAULT_PODSET",
    "MakePodSet",
    "min_members",
    "podgroup_tree",
    "spec_failure",
    "topology_failure",
]

MakePodSet: TypeAlias = Callable[[str, int], PodSet]  # makes a leaf of its name and its minimum

DEFAULT_PODSET: Final = "default"  # the leaf of a group without sub-groups

_MAX_DEPTH: Final = 16  # levels; more would be a mistake, or meant to break something
_MAX_INT32: Final = 2**31 - 1  # of what Kubernetes counts


def spec_failure(group: PodGroup) -> PreFilterFailure | None:
    """Return what is wrong with a group by its own rules."""
    faults = [str(fault) for fault in podgroup_faults(group)]
    if not faults:
        faults = [*_unsatisfiable(group)]
    if not faults:
        return None
    return PreFilterFailure(
        UnschedulableReason.MISCONFIGURED, "; ".join(faults), frozenset({"groups"})
    )


def topology_failure(group: PodGroup) -> PreFilterFailure | None:
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
    advice = f"remove requiredTopologyLevel (annotation {TOPOLOGY_REQUIRED}) or use"
    message = (
        f"{of}required topology {asked_for} is not supported yet{more}; "
        f"{advice} preferredTopologyLevel"
    )
    return PreFilterFailure(UnschedulableReason.TOPOLOGY_UNFIT, message, frozenset({"groups"}))


def min_members(group: PodGroup) -> dict[str, int]:
    """Return the leaves of a group that is as it should be, and how many pods each needs."""
    spec = group.spec
    if not spec.sub_groups:
        return {DEFAULT_PODSET: _capped(1 if spec.min_member is None else spec.min_member)}
    inner = {sub.parent for sub in spec.sub_groups}
    return {
        sub.name: _capped(sub.min_member or 0) for sub in spec.sub_groups if sub.name not in inner
    }


def podgroup_tree(group: PodGroup, make_podset: MakePodSet) -> SubGroupTree:
    """Return the tree of a group that is as it should be."""
    spec = group.spec
    minimums = min_members(group)
    if not spec.sub_groups:
        return make_podset(DEFAULT_PODSET, minimums[DEFAULT_PODSET])
    below: dict[str, list[SubGroup]] = {}
    for sub in spec.sub_groups:
        below.setdefault(sub.parent, []).append(sub)
    return _subgroup_set(
        ("", spec.min_sub_group), below, lambda name: make_podset(name, minimums[name])
    )


def _subgroup_set(
    top: tuple[str, int | None],
    below: dict[str, list[SubGroup]],
    make_podset: Callable[[str], PodSet],
) -> SubGroupSet:
    name, minimum = top
    children = tuple(
        _subgroup_set((sub.name, sub.min_sub_group), below, make_podset)
        if sub.name in below
        else make_podset(sub.name)
        for sub in below[name]
    )
    return SubGroupSet(name, len(children) if minimum is None else _capped(minimum), children)


def _unsatisfiable(group: PodGroup) -> Iterator[str]:
    """Yield what no pods could satisfy."""
    if _depth(group) > _MAX_DEPTH:
        yield f"spec.subGroups: there are more than {_MAX_DEPTH} levels"
    below = Counter(sub.parent for sub in group.spec.sub_groups)
    asked = [("spec", "", group.spec.min_sub_group)] if below else []
    for i, sub in enumerate(group.spec.sub_groups):
        asked.append((f"spec.subGroups[{i}]", sub.name, sub.min_sub_group))
    for path, name, number in asked:
        if number is not None and number > below[name]:
            yield f"{path}.minSubGroup: {number} is more than the {below[name]} that there are"


def _capped(number: int) -> int:
    return min(number, _MAX_INT32)


def _depth(group: PodGroup) -> int:
    """Return how many levels there are; no sub-group is above itself."""
    parents = {sub.name: sub.parent for sub in group.spec.sub_groups}
    depths = {"": 0}
    for name in parents:
        path = [name]
        while path[-1] not in depths:
            path.append(parents[path[-1]])
        known_depth = depths[path[-1]]
        for step, passed in enumerate(reversed(path[:-1]), start=1):
            depths[passed] = known_depth + step
    return max(depths.values())
