"""What selectors accept and tolerations tolerate: the operators of Kubernetes."""

from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.api.cluster_kinds import Taint
from trainer_kai.api.matching import (
    accepted_values,
    label_number,
    label_rules,
    node_rules,
    tolerates,
)
from trainer_kai.api.meta import LabelSelector, NodeSelectorTerm
from trainer_kai.api.pod import Toleration

_NODES: dict[str, dict[str, str]] = {
    "a": {"zone": "x", "size": "5"},
    "b": {"zone": "y", "size": "-3"},
    "c": {"size": "large"},
}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def _selected(selector: dict[str, Any] | None) -> str:
    rules = label_rules(msgspec.convert(selector, LabelSelector | None))
    return "".join(
        name
        for name, labels in _NODES.items()
        if all(rule.accepted.accepts(labels.get(rule.key)) for rule in rules)
    )


# a label selector → the objects that it matches
SELECTORS: list[Case[dict[str, Any] | None, str]] = [
    Case("no selector matches nothing", None, ""),
    Case("an empty selector matches everything", {}, "abc"),
    Case("a label must have the value", {"matchLabels": {"zone": "x"}}, "a"),
    Case("all labels must match", {"matchLabels": {"zone": "x", "size": "-3"}}, ""),
    Case("In", {"matchExpressions": [_expression("zone", "In", "x", "y")]}, "ab"),
    Case("In no value", {"matchExpressions": [_expression("zone", "In")]}, ""),
    Case(
        "NotIn passes an absent label",
        {"matchExpressions": [_expression("zone", "NotIn", "x")]},
        "bc",
    ),
    Case("Exists", {"matchExpressions": [_expression("zone", "Exists")]}, "ab"),
    Case("DoesNotExist", {"matchExpressions": [_expression("zone", "DoesNotExist")]}, "c"),
    Case("an unknown operator", {"matchExpressions": [_expression("size", "Near", "5")]}, ""),
    Case("Gt is only for nodes", {"matchExpressions": [_expression("size", "Gt", "1")]}, ""),
    Case(
        "labels and expressions",
        {"matchLabels": {"zone": "x"}, "matchExpressions": [_expression("size", "NotIn", "5")]},
        "",
    ),
]


@pytest.mark.parametrize("case", SELECTORS, ids=ids)
def test_label_selector(case: Case[dict[str, Any] | None, str]) -> None:
    assert _selected(case.given) == case.want


def _matched(term: dict[str, Any]) -> str | None:
    """Return the nodes above that a term matches; None if no node can."""
    rules = node_rules(msgspec.convert(term, NodeSelectorTerm))
    if rules is None:
        return None
    return "".join(
        name
        for name, labels in _NODES.items()
        if all(it.accepted.accepts(name if it.key is None else labels.get(it.key)) for it in rules)
    )


# a term of a node selector → the nodes that it matches
TERMS: list[Case[dict[str, Any], str | None]] = [
    Case("an empty term matches no node", {}, None),
    Case("In", {"matchExpressions": [_expression("zone", "In", "x")]}, "a"),
    Case("Gt", {"matchExpressions": [_expression("size", "Gt", "-4")]}, "ab"),
    Case("Lt", {"matchExpressions": [_expression("size", "Lt", "5")]}, "b"),
    Case(
        "an absent label is not below", {"matchExpressions": [_expression("rack", "Lt", "5")]}, ""
    ),
    Case("Gt a text", {"matchExpressions": [_expression("size", "Gt", "x")]}, None),
    Case("Gt two numbers", {"matchExpressions": [_expression("size", "Gt", "1", "2")]}, None),
    Case("Gt no number", {"matchExpressions": [_expression("size", "Gt")]}, None),
    Case(
        "an unknown operator beside a valid one",
        {"matchExpressions": [_expression("zone", "In", "x"), _expression("zone", "Near", "x")]},
        None,
    ),
    Case("a name", {"matchFields": [_expression("metadata.name", "In", "a", "z")]}, "a"),
    Case("not a name", {"matchFields": [_expression("metadata.name", "NotIn", "a")]}, "bc"),
    Case("another operator", {"matchFields": [_expression("metadata.name", "Exists")]}, None),
    Case("another field", {"matchFields": [_expression("metadata.uid", "In", "a")]}, None),
    Case(
        "labels and a name",
        {
            "matchExpressions": [_expression("zone", "Exists")],
            "matchFields": [_expression("metadata.name", "In", "b", "c")],
        },
        "b",
    ),
]


@pytest.mark.parametrize("case", TERMS, ids=ids)
def test_node_selector_term(case: Case[dict[str, Any], str | None]) -> None:
    assert _matched(case.given) == case.want


# a toleration → the taints k=v and k=w with NoSchedule, k=v with NoExecute, and other=v
TOLERATIONS: list[Case[dict[str, Any], str]] = [
    Case("Equal is the default", {"key": "k", "value": "v"}, "vV"),
    Case("an empty operator is Equal", {"key": "k", "operator": "", "value": "v"}, "vV"),
    Case("an effect", {"key": "k", "value": "v", "effect": "NoExecute"}, "V"),
    Case("Exists ignores the value", {"key": "k", "operator": "Exists", "value": "z"}, "vwV"),
    Case("no key with Exists", {"operator": "Exists"}, "vwVo"),
    Case("no key and an effect", {"operator": "Exists", "effect": "NoSchedule"}, "vwo"),
    Case("no key with Equal", {"value": "v"}, ""),
    Case("an unknown operator", {"key": "k", "operator": "Near", "value": "v"}, ""),
]
_TAINTS = {
    "v": Taint(key="k", value="v", effect="NoSchedule"),
    "w": Taint(key="k", value="w", effect="NoSchedule"),
    "V": Taint(key="k", value="v", effect="NoExecute"),
    "o": Taint(key="other", value="v", effect="NoSchedule"),
}


@pytest.mark.parametrize("case", TOLERATIONS, ids=ids)
def test_toleration(case: Case[dict[str, Any], str]) -> None:
    toleration = msgspec.convert(case.given, Toleration)

    assert "".join(it for it, taint in _TAINTS.items() if tolerates(toleration, taint)) == case.want


def test_unknown_operators_accept_nothing() -> None:
    assert accepted_values("Near", ["x"]) is None
    assert accepted_values("", ()) is None


def test_label_numbers_are_short_and_decimal() -> None:
    """As Go parses an int64."""
    values = ("5", "+5", "-5", "0x5", "5.0", " 5", "5\n", "\u0665", "9" * 19, "9" * 20, "")

    assert [label_number(it) for it in values] == [5, 5, -5, *[None] * 5, int("9" * 19), None, None]
