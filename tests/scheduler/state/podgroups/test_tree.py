"""Trees of PodGroups (rule 5), and which specs are invalid."""

from typing import Any

import pytest

from scheduler.core.model.podgroup import PodSet, SubGroupSet, SubGroupTree
from tests.support.case import Case, ids
from tests.support.state.objects import (
    encode_objects,
    group,
    pod,
    podgroup_of,
    podset_of,
    prefilter_failure_of,
)


def _drawn(tree: SubGroupTree) -> str:
    if isinstance(tree, PodSet):
        return f"{tree.name}:{tree.minimum}"
    assert isinstance(tree, SubGroupSet)
    return f"{tree.name}:{tree.minimum}({' '.join(map(_drawn, tree.children))})"


def _subgroup(name: str, parent: str = "", **counts: int) -> dict[str, Any]:
    return {"name": name, "parent": parent, **counts}


_TWO = [_subgroup("a", minMember=1), _subgroup("b", minMember=2)]
_DEEP = [
    _subgroup("n", minSubGroup=1),
    _subgroup("a", "n", minMember=1),
    _subgroup("b", "n", minMember=0),
]

# the spec of a PodGroup, the sub-group of its pod → its tree
TREES = [
    Case("nothing is said", ({}, ""), "default:1"),
    Case("so many pods", ({"minMember": 3}, ""), "default:3"),
    Case("none is needed", ({"minMember": 0}, ""), "default:0"),
    Case("without a minimum all sub-groups are needed", ({"subGroups": _TWO}, "a"), ":2(a:1 b:2)"),
    Case("one of two", ({"subGroups": _TWO, "minSubGroup": 1}, "a"), ":1(a:1 b:2)"),
    Case("none of two", ({"subGroups": _TWO, "minSubGroup": 0}, "a"), ":0(a:1 b:2)"),
    Case(
        "the pods of the whole are not asked for",
        ({"subGroups": _TWO, "minMember": 9}, "a"),
        ":2(a:1 b:2)",
    ),
    Case("a sub-group has sub-groups below it", ({"subGroups": _DEEP}, "a"), ":1(n:1(a:1 b:0))"),
    Case(
        "all of an inner one",
        ({"subGroups": [_subgroup("n"), _subgroup("a", "n", minMember=1)]}, "a"),
        ":1(n:1(a:1))",
    ),
    Case("in the order of the spec", ({"subGroups": _TWO[::-1]}, "a"), ":2(b:2 a:1)"),
    Case("more than Kubernetes counts", ({"minMember": 10**15}, ""), "default:2147483647"),
]


@pytest.mark.parametrize("case", TREES, ids=ids)
def test_trees(case: Case[tuple[dict[str, Any], str], str]) -> None:
    """The same tree as in KAI."""
    spec, sub = case.given

    encoded = encode_objects(group("g", **spec), pod("p", "g", sub))

    assert (_drawn(podgroup_of(encoded, "g").tree), prefilter_failure_of(encoded, "g")) == (
        case.want,
        None,
    )


def _subgroup_chain(length: int) -> list[dict[str, Any]]:
    subs = [_subgroup(f"s{i}", f"s{i - 1}" if i else "") for i in range(length)]
    return [*subs[:-1], {**subs[-1], "minMember": 1}]


# the spec of a PodGroup → the failure
FAULTS = [
    Case("less than nothing", {"minMember": -1}, "spec.minMember: -1 must be 0 or more"),
    Case("a name twice", {"subGroups": [*_TWO, _subgroup("a", minMember=1)]}, "'a' exists 2 times"),
    Case(
        "no such parent",
        {"subGroups": [_subgroup("a", "x", minMember=1)]},
        "sub-group 'x' does not exist",
    ),
    Case(
        "a circle of sub-groups is a failure",
        {"subGroups": [_subgroup("a", "b"), _subgroup("b", "a")]},
        "'a' is its own ancestor",
    ),
    Case(
        "more than there are",
        {"subGroups": _TWO, "minSubGroup": 3},
        "spec.minSubGroup: 3 is more than the 2 sub-groups below",
    ),
    Case(
        "more than 16 levels are a failure",
        {"subGroups": _subgroup_chain(17)},
        "spec.subGroups: more than 16 levels are not supported",
    ),
    Case(
        "far too deep",
        {"subGroups": _subgroup_chain(3000)},
        "spec.subGroups: more than 16 levels are not supported",
    ),
    Case("no minimum of a PodSet", {"subGroups": [_subgroup("a")]}, "the minimum number of pods"),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_faults(case: Case[dict[str, Any], str]) -> None:
    """The PodGroup has the failure; all pods that name it are in it."""
    encoded = encode_objects(group("g", **case.given), pod("p", "g", "a"), pod("q", "g"))

    reason, message = prefilter_failure_of(encoded, "g") or ("", "")
    assert (reason, case.want in message) == ("Misconfigured", True), message
    assert podset_of(encoded, "g").pending == (0, 1)


def test_sixteen_levels_are_no_fault() -> None:
    """That is deeper than any real PodGroup."""
    encoded = encode_objects(group("g", subGroups=_subgroup_chain(16)), pod("p", "g", "s15"))

    assert prefilter_failure_of(encoded, "g") is None


_REQUIRED = {"topology": "dc", "requiredTopologyLevel": "rack"}
_PREFERRED = {"topology": "dc", "preferredTopologyLevel": "rack"}
_MISSING = "names Topology dc, which does not exist. It can start when it is created"
_PODGROUP = f"The topologyConstraint of the PodGroup {_MISSING}"


def _constrained_subgroups(*constraints: dict[str, str]) -> dict[str, Any]:
    subs = [
        {"name": name, "minMember": 1, "topologyConstraint": it}
        for name, it in zip("ab", constraints, strict=False)
    ]
    return {"subGroups": subs}


# the spec of a PodGroup → why its pods wait
TOPOLOGIES: list[Case[dict[str, Any], str | None]] = [
    Case("a required topology makes pods wait", {"topologyConstraint": _REQUIRED}, _PODGROUP),
    Case("a preferred topology does not", {"topologyConstraint": _PREFERRED}, None),
    Case(
        "a required topology outranks a preferred one",
        {"topologyConstraint": {**_REQUIRED, **_PREFERRED}},
        _PODGROUP,
    ),
    Case("of no topology", {"topologyConstraint": {"requiredTopologyLevel": "rack"}}, None),
    Case(
        "of a sub-group",
        _constrained_subgroups(_REQUIRED),
        f"The topologyConstraint of sub-group a {_MISSING}",
    ),
    Case("not of a sub-group", _constrained_subgroups(_PREFERRED), None),
    Case(
        "of two sub-groups",
        _constrained_subgroups(_REQUIRED, _REQUIRED),
        f"The topologyConstraint of sub-group a {_MISSING}",
    ),
]


@pytest.mark.parametrize("case", TOPOLOGIES, ids=ids)
def test_a_required_topology_that_is_missing_is_waited_for(
    case: Case[dict[str, Any], str | None],
) -> None:
    """Its pods are in the tree."""
    sub = "a" if "subGroups" in case.given else ""
    encoded = encode_objects(group("g", **case.given), pod("p", "g", sub))

    assert prefilter_failure_of(encoded, "g") == (case.want and ("TopologyUnfit", case.want))
    assert podset_of(encoded, "g", sub or "default").pending == (0,)


def test_a_misconfiguration_is_reported_before_a_topology() -> None:
    """A queue that does not exist is reported first, too."""
    broken = group("g", topologyConstraint=_REQUIRED, minSubGroup=1, minMember=1)
    lost = group("h", topologyConstraint=_REQUIRED, queue="lost")
    encoded = encode_objects(broken, pod("p", "g"), lost, pod("q", "h"))

    failures = [prefilter_failure_of(encoded, name) for name in "gh"]
    assert [failure and failure[0] for failure in failures] == ["Misconfigured", "QueueMissing"]
