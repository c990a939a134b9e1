"""Selectors, affinity, anti-affinity, spreads, and how many pods match where (rule 22)."""

from typing import Any

import pytest

from scheduler.core.model.podgroup import AffinityTerm, SpreadConstraint
from tests.support.case import Case, ids
from tests.support.state.objects import encode_objects, node, pod, signature_of


def _term(selector: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": "zone",
        **({"labelSelector": selector} if selector is not None else {}),
        **more,
    }


def _affinity(*terms: Any) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _anti_affinity(*terms: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


_NAMESPACES = [
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

# the affinity term of a pod of the hash 1 → how many pods on the node match it
MATCHES = [
    Case("labels select the pod that has them", _term({"matchLabels": {"app": "a"}}), 1),
    Case("pods of others", _term({"matchLabels": {"app": "f"}}), 1),
    Case("In selects each of the values", _term(_expression("In", "a", "b")), 2),
    Case("NotIn selects pods without the label too", _term(_expression("NotIn", "a")), 3),
    Case("Exists selects pods with the label", _term(_expression("Exists")), 3),
    Case("DoesNotExist selects pods without the label", _term(_expression("DoesNotExist")), 1),
    Case("an unknown operator selects nothing", _term(_expression("Gt", "1")), 0),
    Case("an empty selector selects all pods", _term({}), 4),
    Case("no selector selects no pod", _term(), 0),
    Case("named namespaces are looked at together", _term({}, namespaces=["blue", "red"]), 2),
    Case("namespaces by label", _term({}, namespaceSelector=_COLOR), 1),
    Case("and by name", _term({}, namespaceSelector=_COLOR, namespaces=["red"]), 2),
    Case(
        "an empty namespaceSelector means all namespaces",
        _term({"matchLabels": {"app": "a"}}, namespaceSelector={}),
        3,
    ),
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
    """Pending and finished pods are on no node."""
    asking = pod("p", labels={"hash": "1"}, affinity=_affinity(case.given))

    encoded = encode_objects(*_NAMESPACES, node("n", labels={"zone": "z"}), *_PODS, asking)

    (term,) = signature_of(encoded, "p").affinity
    assert encoded.snapshot.nodes.key_names[term.key] == "zone"
    assert encoded.snapshot.pod_relations.selector_counts[term.selector].tolist() == [case.want]


# two affinity terms of a pod → how many pods match both
TERMS = [
    Case(
        "labels of both", (_expression("Exists", key="hash"), {"matchLabels": {"app": "b"}}, {}), 1
    ),
    Case("of different pods", ({"matchLabels": {"app": "a"}}, _expression("In", "b"), {}), 0),
    Case(
        "one of all namespaces", ({}, {"matchLabels": {"app": "a"}}, {"namespaceSelector": {}}), 1
    ),
    Case("of no common namespace", ({}, {}, {"namespaces": ["blue", "red"]}), 0),
    Case("no pod in one", ({}, None, {}), 0),
]


@pytest.mark.parametrize("case", TERMS, ids=ids)
def test_several_terms(case: Case[tuple[Any, Any, dict[str, Any]], int]) -> None:
    """Only pods that all terms select count, each in its own topology domain."""
    one, other, more = case.given
    near = _affinity(_term(one), _term(other, topologyKey="rack", **more))
    labels = {"zone": "z", "rack": "r"}

    encoded = encode_objects(
        *_NAMESPACES, node("n", labels=labels), *_PODS, pod("p", affinity=near)
    )

    terms = signature_of(encoded, "p").affinity
    assert [encoded.snapshot.nodes.key_names[term.key] for term in terms] == ["zone", "rack"]
    counts = encoded.snapshot.pod_relations.selector_counts
    assert [counts[term.selector].tolist() for term in terms] == [[case.want]] * 2


@pytest.mark.parametrize(("app", "is_own"), [("a", True), ("b", False)])
def test_the_first_of_its_kind(app: str, is_own: bool) -> None:
    """A pod that matches its own affinity may be the first."""
    near = _affinity(_term({"matchLabels": {"app": "a"}}), _term({}))

    encoded = encode_objects(node("n"), pod("p", labels={"app": app}, affinity=near))

    assert signature_of(encoded, "p").matches_own_affinity == is_own


def test_apart() -> None:
    """Which pods have anti-affinity, which pods it matches, and where the pods that have it are."""
    shy = _anti_affinity(_term({"matchLabels": {"app": "a"}}))
    encoded = encode_objects(
        node("m"),
        node("n"),
        pod("holder", node="n", affinity=shy, schedulerName="x"),
        pod("shy", affinity=shy),
        pod("a", labels={"app": "a"}),
        pod("both", labels={"app": "a"}, affinity=shy),
        pod("plain"),
    )

    near = encoded.snapshot.pod_relations
    assert (near.anti_affinity_terms, near.anti_affinity_counts.tolist()) == (
        (AffinityTerm(0, 0),),
        [[0, 1]],
    )
    rows = {name: signature_of(encoded, name) for name in ("shy", "a", "both", "plain")}
    assert {
        name: (signature.anti_affinity, signature.existing_anti_affinity)
        for name, signature in rows.items()
    } == {
        "shy": ((0,), ()),
        "a": ((), (0,)),
        "both": ((0,), (0,)),
        "plain": ((), ()),
    }
    assert rows["a"].matched_selectors == (0,)


def test_many_podgroups_with_a_selector_each() -> None:
    """Each pod matches its own selector."""
    pods = [
        pod(
            f"p{i}",
            labels={"key": str(i)},
            affinity=_anti_affinity(
                _term(_expression("NotIn", str(i), key="key")),
                _term({"matchLabels": {"key": str(i)}}),
            ),
        )
        for i in range(5)
    ]

    encoded = encode_objects(node("n"), *pods)

    assert len(encoded.snapshot.pod_relations.anti_affinity_terms) == 10
    for i in range(5):
        signature = signature_of(encoded, f"p{i}")
        assert (len(signature.anti_affinity), len(signature.existing_anti_affinity)) == (2, 5)
        assert len(set(signature.anti_affinity) & set(signature.existing_anti_affinity)) == 1


def _spread(**spread_fields: Any) -> dict[str, Any]:
    return {
        "maxSkew": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
        **spread_fields,
    }


# a spread constraint of a pod of the app "a" → its row
SPREADS = [
    Case(
        "a plain constraint has the defaults",
        _spread(),
        (SpreadConstraint(0, 0, 2, 1, True, True, False),),
    ),
    Case("a wish is no constraint", _spread(whenUnsatisfiable="ScheduleAnyway"), ()),
    Case(
        "minDomains is read",
        _spread(minDomains=3),
        (SpreadConstraint(0, 0, 2, 3, True, True, False),),
    ),
    Case(
        "the node policies are read",
        _spread(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"),
        (SpreadConstraint(0, 0, 2, 1, True, False, True),),
    ),
    Case(
        "pods of others do not select themselves",
        _spread(labelSelector={"matchLabels": {"app": "b"}}),
        (SpreadConstraint(0, 0, 2, 1, False, True, False),),
    ),
    Case(
        "of no pod",
        _spread(labelSelector=None),
        (SpreadConstraint(0, 0, 2, 1, False, True, False),),
    ),
    Case(
        "of its revision",
        _spread(matchLabelKeys=["hash"]),
        (SpreadConstraint(0, 0, 2, 1, True, True, False),),
    ),
]


@pytest.mark.parametrize("case", SPREADS, ids=ids)
def test_spreads(case: Case[dict[str, Any], tuple[SpreadConstraint, ...]]) -> None:
    """Only constraints with DoNotSchedule count."""
    spread_fields = {name: value for name, value in case.given.items() if value is not None}

    encoded = encode_objects(
        node("n"),
        pod("p", labels={"app": "a", "hash": "1"}, topologySpreadConstraints=[spread_fields]),
    )

    assert signature_of(encoded, "p").spread_constraints == case.want


def test_a_terminating_pod_counts_for_affinity_and_not_for_a_spread() -> None:
    """As in Kubernetes."""
    releasing = {"deletionTimestamp": "2026-01-05T07:59:30Z"}
    asking: dict[str, Any] = {
        "affinity": _affinity(_term({"matchLabels": {"app": "a"}})),
        "topologySpreadConstraints": [_spread()],
    }

    encoded = encode_objects(
        node("n"), pod("g", node="n", labels={"app": "a"}, meta=releasing), pod("p", **asking)
    )

    signature, counts = signature_of(encoded, "p"), encoded.snapshot.pod_relations.selector_counts
    assert counts[signature.affinity[0].selector].tolist() == [1]
    assert counts[signature.spread_constraints[0].selector].tolist() == [0]
