"""Which PriorityClasses a label may choose."""

from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.api.cluster_kinds import PriorityClass, ResourceQuota
from trainer_kai.policy.queueing.priority_classes import (
    SelectablePriorityClasses,
    priority_class_scopes,
)

_VALUES = {
    "low": 10,
    "train": 500,
    "usual": 60,
    "build": 100,
    "highest": 999_999_999,
    "ours": 10**9,
}
_CLASSES = {
    name: msgspec.convert(
        {"metadata": {"name": name}, "value": value, "globalDefault": name == "usual"},
        PriorityClass,
    )
    for name, value in _VALUES.items()
}


def _quota(*expressions: tuple[str, str, list[str]], scopes: tuple[str, ...] = ()) -> ResourceQuota:
    spec: dict[str, Any] = {"hard": {"pods": "1"}, "scopes": list(scopes)}
    if expressions:
        names = "scopeName", "operator", "values"
        selector = [dict(zip(names, it, strict=True)) for it in expressions]
        spec["scopeSelector"] = {"matchExpressions": selector}
    return msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, ResourceQuota)


def _expression(operator: str, *values: str) -> tuple[str, str, list[str]]:
    return "PriorityClass", operator, list(values)


# a quota → the classes above the default one that a label may choose
QUOTAS = [
    Case("a quota without scope bounds no class", _quota(), ["build", "highest", "train"]),
    Case("In takes the class away", _quota(_expression("In", "build")), ["highest", "train"]),
    Case(
        "NotIn takes the other classes away",
        _quota(_expression("NotIn", "build")),
        ["build", "train"],
    ),
    Case("Exists takes all bound classes away", _quota(_expression("Exists")), ["train"]),
    Case(
        "DoesNotExist takes no class away",
        _quota(_expression("DoesNotExist")),
        ["build", "highest", "train"],
    ),
    Case(
        "the scope PriorityClass takes all bound classes away",
        _quota(scopes=("PriorityClass",)),
        ["train"],
    ),
    Case(
        "another scope takes no class away",
        _quota(scopes=("BestEffort",)),
        ["build", "highest", "train"],
    ),
    Case(
        "an expression of another scope",
        _quota(("Terminating", "Exists", [])),
        ["build", "highest", "train"],
    ),
    Case(
        "two expressions, of which both must hold",
        _quota(_expression("NotIn", "build"), _expression("In", "build", "highest")),
        ["build", "train"],
    ),
    Case(
        "one of which another scope narrows it: it may count",
        _quota(_expression("Exists"), ("Terminating", "Exists", [])),
        ["train"],
    ),
]


@pytest.mark.parametrize("case", QUOTAS, ids=ids)
def test_quotas(case: Case[ResourceQuota, list[str]]) -> None:
    """A class that is not above the default needs no permission, and neither does `train`."""
    choosable = SelectablePriorityClasses(_CLASSES)
    quotas = {"q": priority_class_scopes(case.given)}

    free = [name for name in sorted(_CLASSES) if choosable.refusal(name, quotas) is None]

    assert [name for name in free if name not in {"low", "usual"}] == case.want
    assert {"low", "usual"} <= {*free}
    assert choosable.refusal("unknown", quotas) is None


def test_what_a_site_offers() -> None:
    """Only what it names, and what is no choice."""
    choosable = SelectablePriorityClasses(_CLASSES, ["build", "ours"])

    assert choosable.refusal("build") is choosable.refusal("low") is None
    assert choosable.refusal("highest") == (
        "choose build, low, train or usual, or set spec.priorityClassName of all pods to highest, "
        "which the API server checks. A label or PodGroup may not choose PriorityClass highest: the"
        " setting priority_classes of the scheduler does not list it"
    )
    assert (choosable.refusal("ours") or "").endswith(
        "may not choose PriorityClass ours: its value 1000000000 is not below 1000000000"
    )


@pytest.mark.parametrize(
    ("names", "right"),
    [("a", "choose a, or"), ("ab", "choose a or b, or"), ("", "choose none, or")],
)
def test_what_is_right(names: str, right: str) -> None:
    classes = {
        name: PriorityClass(metadata=_CLASSES["low"].metadata, value=10**9 if name == "x" else 1)
        for name in (*names, "x")
    }

    refusal = SelectablePriorityClasses(classes).refusal("x") or ""
    assert refusal.startswith(f"{right} set spec.priorityClassName of all pods to x, ")


def test_values() -> None:
    """Of several default classes the one with the smallest value counts; without one it is 50."""
    other = msgspec.structs.replace(_CLASSES["usual"], value=70)

    assert SelectablePriorityClasses({**_CLASSES, "other": other}).value("unknown") == 60
    assert SelectablePriorityClasses({}).value("build") == 50
    assert SelectablePriorityClasses(_CLASSES).value("build") == 100
