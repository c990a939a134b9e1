"""Trees of groups (rule 5), and what of a group cannot be meant."""

from typing import Any

import pytest

from scheduler.core.model import Group, Leaf, Tree
from tests.support.case import Case, ids
from tests.support.clusters import bar_of, encoded, group, leaf_of, pod, unit_of


def _drawn(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return f"{tree.name}:{tree.minimum}"
    assert isinstance(tree, Group)
    return f"{tree.name}:{tree.minimum}({' '.join(map(_drawn, tree.children))})"


def _sub(name: str, parent: str = "", **counts: int) -> dict[str, Any]:
    return {"name": name, "parent": parent, **counts}


_TWO = [_sub("a", minMember=1), _sub("b", minMember=2)]
_DEEP = [_sub("n", minSubGroup=1), _sub("a", "n", minMember=1), _sub("b", "n", minMember=0)]

# the spec of a group, the sub-group of its pod → its tree
TREES = [
    Case("nothing is said", ({}, ""), "default:1"),
    Case("so many pods", ({"minMember": 3}, ""), "default:3"),
    Case("none is needed", ({"minMember": 0}, ""), "default:0"),
    Case("all sub-groups", ({"subGroups": _TWO}, "a"), ":2(a:1 b:2)"),
    Case("one of two", ({"subGroups": _TWO, "minSubGroup": 1}, "a"), ":1(a:1 b:2)"),
    Case("none of two", ({"subGroups": _TWO, "minSubGroup": 0}, "a"), ":0(a:1 b:2)"),
    Case(
        "the pods of the whole are not asked for",
        ({"subGroups": _TWO, "minMember": 9}, "a"),
        ":2(a:1 b:2)",
    ),
    Case("two levels", ({"subGroups": _DEEP}, "a"), ":1(n:1(a:1 b:0))"),
    Case(
        "all of an inner one",
        ({"subGroups": [_sub("n"), _sub("a", "n", minMember=1)]}, "a"),
        ":1(n:1(a:1))",
    ),
    Case("in the order of the spec", ({"subGroups": _TWO[::-1]}, "a"), ":2(b:2 a:1)"),
    Case("more than Kubernetes counts", ({"minMember": 10**15}, ""), "default:2147483647"),
]


@pytest.mark.parametrize("case", TREES, ids=ids)
def test_trees(case: Case[tuple[dict[str, Any], str], str]) -> None:
    """As KAI has it."""
    spec, sub = case.given

    found = encoded(group("g", **spec), pod("p", "g", sub))

    assert (_drawn(unit_of(found, "g").tree), bar_of(found, "g")) == (case.want, None)


def _chain(length: int) -> list[dict[str, Any]]:
    subs = [_sub(f"s{i}", f"s{i - 1}" if i else "") for i in range(length)]
    return [*subs[:-1], {**subs[-1], "minMember": 1}]


# the spec of a group → what is wrong
FAULTS = [
    Case("less than nothing", {"minMember": -1}, "spec.minMember: -1 must be 0 or more"),
    Case("a name twice", {"subGroups": [*_TWO, _sub("a", minMember=1)]}, "'a' is there 2 times"),
    Case(
        "no such parent", {"subGroups": [_sub("a", "x", minMember=1)]}, "there is no sub-group 'x'"
    ),
    Case("a circle", {"subGroups": [_sub("a", "b"), _sub("b", "a")]}, "'a' is above itself"),
    Case(
        "more than there are",
        {"subGroups": _TWO, "minSubGroup": 3},
        "spec.minSubGroup: 3 is more than the 2",
    ),
    Case("too deep", {"subGroups": _chain(17)}, "there are more than 16 levels"),
    Case("far too deep", {"subGroups": _chain(3000)}, "there are more than 16 levels"),
    Case("no minimum of a leaf", {"subGroups": [_sub("a")]}, "how many pods at least"),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_faults(case: Case[dict[str, Any], str]) -> None:
    """The unit is told; its pods are in it, whatever they name."""
    found = encoded(group("g", **case.given), pod("p", "g", "a"), pod("q", "g"))

    verdict, message = bar_of(found, "g") or ("", "")
    assert (verdict, case.want in message) == ("Misconfigured", True), message
    assert leaf_of(found, "g").waiting == (0, 1)


def test_sixteen_levels_are_no_fault() -> None:
    """That is deeper than anybody needs."""
    found = encoded(group("g", subGroups=_chain(16)), pod("p", "g", "s15"))

    assert bar_of(found, "g") is None


_NEAR = {"topology": "dc", "requiredTopologyLevel": "rack"}
_FAR = {"topology": "dc", "preferredTopologyLevel": "rack"}
_TO_COME = (
    'required topology "rack" of topology "dc" is not supported yet; remove requiredTopologyLevel '
    "(annotation kai.scheduler/topology-required-placement) or use preferredTopologyLevel"
)


def _near_subs(*constraints: dict[str, str]) -> dict[str, Any]:
    subs = [
        {"name": name, "minMember": 1, "topologyConstraint": it}
        for name, it in zip("ab", constraints, strict=False)
    ]
    return {"subGroups": subs}


# the spec of a group → why its pods wait
TOPOLOGIES: list[Case[dict[str, Any], str | None]] = [
    Case("required", {"topologyConstraint": _NEAR}, _TO_COME),
    Case("preferred", {"topologyConstraint": _FAR}, None),
    Case("both", {"topologyConstraint": {**_NEAR, **_FAR}}, _TO_COME),
    Case("of no topology", {"topologyConstraint": {"requiredTopologyLevel": "rack"}}, None),
    Case("of a sub-group", _near_subs(_NEAR), f'sub-group "a": {_TO_COME}'),
    Case("not of a sub-group", _near_subs(_FAR), None),
    Case(
        "of two sub-groups",
        _near_subs(_NEAR, _NEAR),
        'sub-group "a": ' + _TO_COME.replace(" yet;", " yet (and for 1 more sub-group);"),
    ),
]


@pytest.mark.parametrize("case", TOPOLOGIES, ids=ids)
def test_a_required_topology_is_not_ignored(case: Case[dict[str, Any], str | None]) -> None:
    """As long as it is not supported its pods wait, and have their places in the tree."""
    sub = "a" if "subGroups" in case.given else ""
    found = encoded(group("g", **case.given), pod("p", "g", sub))

    assert bar_of(found, "g") == (case.want and ("TopologyUnfit", case.want))
    assert leaf_of(found, "g", sub or "default").waiting == (0,)


def test_what_is_misconfigured_is_told_before_a_topology() -> None:
    """And so is a queue that does not exist."""
    broken = group("g", topologyConstraint=_NEAR, minSubGroup=1, minMember=1)
    lost = group("h", topologyConstraint=_NEAR, queue="lost")
    found = encoded(broken, pod("p", "g"), lost, pod("q", "h"))

    bars = [bar_of(found, name) for name in "gh"]
    assert [bar and bar[0] for bar in bars] == ["Misconfigured", "QueueMissing"]
