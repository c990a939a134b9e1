"""What whoever leaves is told: for whom, why, and how much work is lost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.decision import Action, Eviction
from scheduler.core.model import NONE
from scheduler.state.departures import merge_steps, planned_eviction
from tests.support.case import Case, ids
from tests.support.clusters import encode_objects, group, make_object, node, pod

EVICTED_REASON = "ns/mine gets its room: its priority is 50, and here it is 50"

# GPU-seconds, and the order -> what is said beyond why
LOST: list[Case[tuple[int, str], str]] = [
    Case("nothing", (0, ""), ""),
    Case("one second", (1, ""), "; 1 GPU-second since its start is lost"),
    Case("seconds", (119, ""), "; 119 GPU-seconds since its start are lost"),
    Case("minutes", (120, ""), "; 2 GPU-minutes since its start are lost"),
    Case("minutes, rounded", (7199, ""), "; 120 GPU-minutes since its start are lost"),
    Case("hours", (7200, ""), "; 2 GPU-hours since its start are lost"),
    Case("why these", (0, "the oldest go first"), "; the oldest go first"),
    Case(
        "both",
        (8000, "the oldest go first"),
        "; 2.2 GPU-hours since its start are lost; the oldest go first",
    ),
]


def reason(preemptor: int = 0, others: Sequence[Any] = (), **more: Any) -> str:
    """Return what a group is told that leaves."""
    start = {"annotations": {"kai.scheduler/last-start-timestamp": "2026-01-05T08:00:00Z"}}
    theirs = group("theirs", minMember=1, meta=start)
    found = encode_objects(
        node("a"), group("mine"), pod("m", "mine"), theirs, pod("t", "theirs", node="a"), *others
    )
    rows = [key.name for key in found.podgroup_keys]
    one = Eviction(
        podgroups=(rows.index("theirs"),),
        pods=(),
        is_whole=True,
        action=Action.PREEMPT,
        preemptor=preemptor if preemptor == NONE else rows.index("mine"),
        **more,
    )
    return planned_eviction(found, one).reason


@pytest.mark.parametrize("case", LOST, ids=ids)
def test_how_much_work_is_lost(case: Case[tuple[int, str], str]) -> None:
    """In the largest unit of which there are two."""
    work, order = case.given
    assert reason(work_lost=work, victim_order=order) == EVICTED_REASON + case.want


# how many budgets let none go -> what is said of them
PASSED: list[Case[int, str]] = [
    Case("none", 0, ""),
    Case("one", 1, "; although PodDisruptionBudget ns/b0 allows 0"),
    Case(
        "many",
        5,
        "".join(f"; although PodDisruptionBudget ns/b{it} allows 0" for it in range(3))
        + "; and 2 more PodDisruptionBudgets",
    ),
]


@pytest.mark.parametrize("case", PASSED, ids=ids)
def test_budgets_that_let_fewer_go_are_named(case: Case[int, str]) -> None:
    """With what they allow, three at most."""
    others = [make_object("PodDisruptionBudget", f"b{it}", spec={}) for it in range(case.given)]
    assert reason(others=others, budgets=tuple(range(case.given))) == EVICTED_REASON + case.want


def test_an_eviction_without_a_preemptor_has_a_reason_too() -> None:
    """Stale units lose work as well."""
    words = "it has lacked some of its pods for too long; 5 GPU-seconds since its start are lost"
    assert reason(NONE, work_lost=5) == words


def test_what_a_podgroup_loses_step_by_step_is_one_eviction() -> None:
    """For each claimant: all of it goes together, and so is what is lost counted."""
    first = Eviction((1,), (4,), False, Action.RECLAIM, 0, 1000, 60, budgets=(1,))
    more = replace(first, pods=(5,), work_lost=30, budgets=(2,))
    other, whole = replace(first, preemptor=2, pods=(6,)), replace(first, is_whole=True, pods=(7,))

    found = merge_steps([first, other, more, whole])

    assert found == [
        replace(first, pods=(4, 5), gpus=2000, work_lost=90, budgets=(1, 2)),
        other,
        whole,
    ]
