"""Selectors, near and apart, spreads, and how many lie where (rule 22)."""

from typing import Any

import pytest

from scheduler.core.model import Spread, Term
from tests.support.case import Case, ids
from tests.support.clusters import encoded, node, pod, shape_of


def _term(selector: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": "zone",
        **({"labelSelector": selector} if selector is not None else {}),
        **more,
    }


def _near(*terms: Any) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _apart(*terms: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _wish(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


_SPACES = [
    {"kind": "Namespace", "metadata": {"name": "blue", "labels": {"color": "blue"}}},
    {"kind": "Namespace", "metadata": {"name": "red", "labels": {"color": "red"}}},
]
_PODS = [
    pod("a", node="n", labels={"app": "a"}),
    pod("b", node="n", labels={"app": "b", "hash": "1"}),
    pod("plain", node="n"),
    pod("blue", node="n", meta={"namespace": "blue"}, labels={"app": "a"}),
    pod("red", node="n", meta={"namespace": "red"}, labels={"app": "a"}),
    pod("foreign", node="n", labels={"app": "f"}, schedulerName="x"),
    pod("over", node="n", labels={"app": "a"}, phase="Succeeded"),
    pod("waits", labels={"app": "a"}),
]
_COLOR = {"matchLabels": {"color": "blue"}}

# whom a pod of the hash 1 wants to be near to → how many such pods lie on the node
MATCHES = [
    Case("labels", _term({"matchLabels": {"app": "a"}}), 1),
    Case("pods of others", _term({"matchLabels": {"app": "f"}}), 1),
    Case("In", _term(_wish("In", "a", "b")), 2),
    Case("NotIn", _term(_wish("NotIn", "a")), 3),
    Case("Exists", _term(_wish("Exists")), 3),
    Case("DoesNotExist", _term(_wish("DoesNotExist")), 1),
    Case("another operator", _term(_wish("Gt", "1")), 0),
    Case("everybody", _term({}), 4),
    Case("nobody", _term(), 0),
    Case("namespaces", _term({}, namespaces=["blue", "red"]), 2),
    Case("namespaces by label", _term({}, namespaceSelector=_COLOR), 1),
    Case("and by name", _term({}, namespaceSelector=_COLOR, namespaces=["red"]), 2),
    Case("all namespaces", _term({"matchLabels": {"app": "a"}}, namespaceSelector={}), 3),
    Case("those with the same label", _term({}, matchLabelKeys=["hash", "none"]), 1),
    Case("those with another", _term({}, mismatchLabelKeys=["hash", "none"]), 3),
    Case(
        "a namespace of which nothing is known but its name",
        _term({}, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "ns"}}),
        4,
    ),
]


@pytest.mark.parametrize("case", MATCHES, ids=ids)
def test_matches(case: Case[dict[str, Any], int]) -> None:
    """Who waits or is over lies nowhere."""
    asking = pod("p", labels={"hash": "1"}, affinity=_near(case.given))

    found = encoded(*_SPACES, node("n", labels={"zone": "z"}), *_PODS, asking)

    (term,) = shape_of(found, "p").near
    assert found.snapshot.nodes.key_names[term.key] == "zone"
    assert found.snapshot.neighbours.counts[term.selector].tolist() == [case.want]


# two terms of a pod → how many pods count as near for both of them
TERMS = [
    Case("labels of both", (_wish("Exists", key="hash"), {"matchLabels": {"app": "b"}}, {}), 1),
    Case("of different pods", ({"matchLabels": {"app": "a"}}, _wish("In", "b"), {}), 0),
    Case(
        "one of all namespaces", ({}, {"matchLabels": {"app": "a"}}, {"namespaceSelector": {}}), 1
    ),
    Case("of no common namespace", ({}, {}, {"namespaces": ["blue", "red"]}), 0),
    Case("nobody in one", ({}, None, {}), 0),
]


@pytest.mark.parametrize("case", TERMS, ids=ids)
def test_several_terms(case: Case[tuple[Any, Any, dict[str, Any]], int]) -> None:
    """Only pods count that all of them mean, each in its own neighbourhood."""
    one, other, more = case.given
    near = _near(_term(one), _term(other, topologyKey="rack", **more))
    labels = {"zone": "z", "rack": "r"}

    found = encoded(*_SPACES, node("n", labels=labels), *_PODS, pod("p", affinity=near))

    terms = shape_of(found, "p").near
    assert [found.snapshot.nodes.key_names[term.key] for term in terms] == ["zone", "rack"]
    counts = found.snapshot.neighbours.counts
    assert [counts[term.selector].tolist() for term in terms] == [[case.want]] * 2


@pytest.mark.parametrize(("app", "is_own"), [("a", True), ("b", False)])
def test_the_first_of_its_kind(app: str, is_own: bool) -> None:
    """A pod that would be its own neighbour may be the first."""
    near = _near(_term({"matchLabels": {"app": "a"}}), _term({}))

    found = encoded(node("n"), pod("p", labels={"app": app}, affinity=near))

    assert shape_of(found, "p").is_own_neighbour == is_own


def test_apart() -> None:
    """Who keeps away, from whom, and where those are that keep away."""
    shy = _apart(_term({"matchLabels": {"app": "a"}}))
    found = encoded(
        node("m"),
        node("n"),
        pod("holder", node="n", affinity=shy, schedulerName="x"),
        pod("shy", affinity=shy),
        pod("a", labels={"app": "a"}),
        pod("both", labels={"app": "a"}, affinity=shy),
        pod("plain"),
    )

    near = found.snapshot.neighbours
    assert (near.terms, near.holders.tolist()) == ((Term(0, 0),), [[0, 1]])
    rows = {name: shape_of(found, name) for name in ("shy", "a", "both", "plain")}
    assert {name: (shape.apart, shape.shunned) for name, shape in rows.items()} == {
        "shy": ((0,), ()),
        "a": ((), (0,)),
        "both": ((0,), (0,)),
        "plain": ((), ()),
    }
    assert rows["a"].matches == (0,)


def test_many_gangs_with_a_selector_each() -> None:
    """Each pod knows its own."""
    pods = [
        pod(
            f"p{i}",
            labels={"key": str(i)},
            affinity=_apart(
                _term(_wish("NotIn", str(i), key="key")), _term({"matchLabels": {"key": str(i)}})
            ),
        )
        for i in range(5)
    ]

    found = encoded(node("n"), *pods)

    assert len(found.snapshot.neighbours.terms) == 10
    for i in range(5):
        shape = shape_of(found, f"p{i}")
        assert (len(shape.apart), len(shape.shunned)) == (2, 5)
        assert len(set(shape.apart) & set(shape.shunned)) == 1


def _spread(**said: Any) -> dict[str, Any]:
    return {
        "maxSkew": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
        **said,
    }


# a constraint of a pod of the app "a" → what is asked
SPREADS = [
    Case("plain", _spread(), (Spread(0, 0, 2, 1, True, True, False),)),
    Case("a wish", _spread(whenUnsatisfiable="ScheduleAnyway"), ()),
    Case("domains", _spread(minDomains=3), (Spread(0, 0, 2, 3, True, True, False),)),
    Case(
        "policies",
        _spread(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
        (Spread(0, 0, 2, 1, True, False, True),),
    ),
    Case(
        "of others",
        _spread(labelSelector={"matchLabels": {"app": "b"}}),
        (Spread(0, 0, 2, 1, False, True, False),),
    ),
    Case("of nobody", _spread(labelSelector=None), (Spread(0, 0, 2, 1, False, True, False),)),
    Case(
        "of its revision",
        _spread(matchLabelKeys=["hash"]),
        (Spread(0, 0, 2, 1, True, True, False),),
    ),
]


@pytest.mark.parametrize("case", SPREADS, ids=ids)
def test_spreads(case: Case[dict[str, Any], tuple[Spread, ...]]) -> None:
    """Only what must hold is asked."""
    said = {name: value for name, value in case.given.items() if value is not None}

    found = encoded(
        node("n"), pod("p", labels={"app": "a", "hash": "1"}, topologySpreadConstraints=[said])
    )

    assert shape_of(found, "p").spread == case.want


def test_who_is_going_counts_as_a_neighbour_and_not_for_a_spread() -> None:
    """As in Kubernetes."""
    going = {"deletionTimestamp": "2026-01-05T07:59:30Z"}
    asking: dict[str, Any] = {
        "affinity": _near(_term({"matchLabels": {"app": "a"}})),
        "topologySpreadConstraints": [_spread()],
    }

    found = encoded(
        node("n"), pod("g", node="n", labels={"app": "a"}, meta=going), pod("p", **asking)
    )

    shape, counts = shape_of(found, "p"), found.snapshot.neighbours.counts
    assert counts[shape.near[0].selector].tolist() == [1]
    assert counts[shape.spread[0].selector].tolist() == [0]
