"""Disruption budgets: which pods they cover, and how many may be evicted (rule 36b)."""

from typing import Any

import pytest

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import NO_BUDGETS
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, decode_object, encode_objects, make_object, node, pod

_APP = {"matchLabels": {"app": "a"}}


def budget(
    name: str = "b", selector: Any = _APP, generation: int = 1, **status: int
) -> dict[str, Any]:
    """Return a budget that allows two disruptions, with a status of this generation."""
    status_fields = {
        "observedGeneration": 1,
        "disruptionsAllowed": 2,
        "desiredHealthy": 1,
        **status,
    }
    meta = {"generation": generation}
    return make_object(
        "PodDisruptionBudget", name, meta, spec={"selector": selector}, status=status_fields
    )


def running(count: int = 3, **more: Any) -> list[dict[str, Any]]:
    """Return a node, and pods on it."""
    labels = {"app": "a"}
    return [node("a"), *(pod(f"p{i}", node="a", labels=labels, **more) for i in range(count))]


# a budget, how many pods are running -> how many may be evicted
ALLOWED: list[Case[tuple[dict[str, Any], int], int]] = [
    Case("as it says", (budget(), 3), 2),
    Case("of another time", (budget(generation=2), 3), 0),
    Case("nothing is said", (budget(observedGeneration=0), 3), 0),
    Case("some have been evicted since", (budget(), 2), 1),
    Case("none is left", (budget(), 1), 0),
    Case("less than none", (budget(disruptionsAllowed=-1), 3), 0),
]


@pytest.mark.parametrize("case", ALLOWED, ids=ids)
def test_disruptions_allowed(case: Case[tuple[dict[str, Any], int], int]) -> None:
    """After evictions fewer pods may be running than the status says."""
    one, count = case.given
    budgets = encode_objects(*running(count), one).snapshot.budgets

    assert (budgets.names, budgets.allowed) == (("ns/b",), (case.want,))


def covering_budgets(encoded: EncodedSnapshot) -> dict[str, list[str]]:
    budgets = encoded.snapshot.budgets
    return {
        key.name: [budgets.names[it] for it in budgets.sets[row]] if row != NONE else []
        for key, row in zip(encoded.pod_keys, budgets.set_of_pod, strict=True)
    }


def test_covered_pods() -> None:
    """They cover matching pods on nodes in their namespace; an empty selector matches all."""
    encoded = encode_objects(
        *running(1),
        pod("waits", labels={"app": "a"}),
        pod("other", node="a", labels={"app": "b"}),
        pod("away", node="a", labels={"app": "a"}, meta={"namespace": "far"}),
        budget("b"),
        budget("all", {}),
        budget("none", None),
    )

    assert covering_budgets(encoded) == {
        "p0": ["ns/all", "ns/b"],
        "waits": [],
        "other": ["ns/all"],
        "away": [],
    }


def test_without_budgets_nothing_is_stored() -> None:
    """Many clusters have none."""
    assert encode_objects(*running()).snapshot.budgets is NO_BUDGETS


def test_changes() -> None:
    """Only pods that wait for a budget are retried; the snapshot equals that of a fresh start."""
    cache = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q"))

    def put(fields: dict[str, Any], *, is_deleted: bool = False) -> Any:
        resource, key, one = decode_object(fields)
        return cache.update(resource, key, None if is_deleted else one)

    def allowed() -> tuple[int, ...]:
        budgets = cache.snapshot().snapshot.budgets
        cache.check()
        return budgets.allowed

    for fields in running()[1:]:
        put(fields)
    healthy: dict[str, Any] = {"currentHealthy": 3}
    assert (put(budget(**healthy)), allowed()) == (ClusterEvent.BUDGET_CHANGED, (2,))
    assert (put(budget(**healthy, expectedPods=9)), allowed()) == (NO_EVENT, (2,))
    assert (put(budget(**healthy, disruptionsAllowed=1)), allowed()) == (
        ClusterEvent.BUDGET_CHANGED,
        (1,),
    )
    put(running()[1], is_deleted=True)
    put(running()[2], is_deleted=True)
    assert allowed() == (0,)
    put(pod("late", node="a", labels={"app": "b"}))
    assert (put(budget(selector={}, **healthy)), allowed()) == (ClusterEvent.BUDGET_CHANGED, (1,))
    assert (put(budget(), is_deleted=True), allowed()) == (ClusterEvent.BUDGET_CHANGED, ())
