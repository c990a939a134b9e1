"""PodGroups of which some pods have succeeded: they are the last to lose anything (rule 36c)."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.model.podgroup import PodSet
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import DisruptionBudgets
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

ONE = signature(gpu=1)
_DONE = {"is_partly_succeeded": True}


def built(*runs: dict[str, Any], is_pipelined: int = 1, **more: Any) -> Builder:
    """Return what A has of B, a GPU each, as it is said; a gang of so many pods waits."""
    builder = Builder(
        [SnapshotNode(gpu=len(runs))], [SnapshotQueue("a"), SnapshotQueue("b", quota=len(runs))]
    )
    for one in runs:
        builder.running_podgroup([0], ONE, queue="a", **one)
    builder.uniform_podgroup(is_pipelined, ONE, **{"queue": "b", **more})
    return builder


def described(builder: Builder, **more: Any) -> str:
    """Return which PodGroups lose pods, in order, with the budgets that allow fewer."""
    snapshot = builder.snapshot(**more)
    answer = plan(snapshot, build_policies(PolicySelection()))
    assert [*plan_violations(snapshot, answer)] == []
    return " ".join(
        ",".join(map(str, it.podgroups)) + "!" * bool(it.budgets) for it in answer.evictions
    )


# PodGroups that run, how many pods wait -> what is evicted
LAST: list[Case[tuple[list[dict[str, Any]], int], str]] = [
    Case("another one is enough", ([{}, _DONE], 1), "0"),
    Case("though it would come last", ([{}, {}, _DONE], 1), "1"),
    Case("they go where the others are too few", ([{}, _DONE, {}], 3), "2 0 1"),
    Case("where there are no others", ([_DONE], 1), "0"),
    Case(
        "all that leaves with one of them",
        ([{"workload": "j"}, {**_DONE, "workload": "j"}], 1),
        "0,1",
    ),
    Case(
        "not before a PodGroup alone",
        ([{}, {"workload": "j"}, {**_DONE, "workload": "j"}], 1),
        "0",
    ),
    Case("nor what cannot go at all", ([{**_DONE, "non_evictable_reason": "x"}, {}], 2), ""),
]


@pytest.mark.parametrize("action", ["reclaim", "preempt"])
@pytest.mark.parametrize("case", LAST, ids=ids)
def test_they_go_last(case: Case[tuple[list[dict[str, Any]], int], str], action: str) -> None:
    """In both actions, and only if the others do not make the room."""
    runs, is_pipelined = case.given
    more = {} if action == "reclaim" else {"queue": "a", "priority": 60}
    assert described(built(*runs, is_pipelined=is_pipelined, **more)) == case.want


# which PodGroups run, which pods a budget of 0 covers, how many wait -> what is evicted
ORDER: list[Case[tuple[list[dict[str, Any]], set[int], int], str]] = [
    Case("before what a budget keeps", ([{}, _DONE, {}], {0, 2}, 1), "1"),
    Case("behind it, if a budget keeps them too", ([_DONE, {}], {0, 1}, 1), "1!"),
    Case("all at last", ([_DONE, {}, {}, _DONE], {0, 1}, 4), "2 3 1! 0!"),
]


@pytest.mark.parametrize("case", ORDER, ids=ids)
def test_they_go_before_a_budget_is_passed(
    case: Case[tuple[list[dict[str, Any]], set[int], int], str],
) -> None:
    """First without them, then with them, and then past budgets."""
    runs, covered, is_pipelined = case.given
    of = tuple(0 if pod in covered else NONE for pod in range(len(runs) + is_pipelined))
    assert (
        described(
            built(*runs, is_pipelined=is_pipelined),
            budgets=DisruptionBudgets(("ns/b",), (0,), ((0,),), of),
        )
        == case.want
    )


def test_patience_counts_them() -> None:
    """They could give room, so that a PodGroup that waits is told how long."""
    builder = built(_DONE, preemption_delay_until=10)
    (one,) = plan(builder.snapshot(), build_policies(PolicySelection())).rejections
    assert one.reason == "PreemptionDelay"


def test_they_are_not_moved_nor_stale() -> None:
    """What has succeeded would not run again elsewhere."""
    builder = Builder([SnapshotNode(gpu=2), SnapshotNode(gpu=2)], [SnapshotQueue("a", quota=4)])
    for node in (0, 1):
        builder.running_podgroup([node], ONE, is_partly_succeeded=True)
    builder.uniform_podgroup(1, signature(gpu=2))
    assert described(builder) == ""
    builder.podgroups[:2] = [replace(it, is_partly_succeeded=False) for it in builder.podgroups[:2]]
    assert described(builder) == "1"


def test_a_stale_podgroup_stays_with_a_partly_succeeded_one() -> None:
    """A JobSet is left alone, although one of its PodGroups lacks pods for too long."""
    for is_done in (True, False):
        builder = Builder([SnapshotNode(gpu=2)], [SnapshotQueue("a", quota=2)])
        builder.pod_on_node(0, builder.signature_row(ONE))
        short = PodSet("default", 2, running=1)
        builder.podgroup(short, is_kept=True, workload="j", stale_at=0)
        builder.running_podgroup([0], ONE, workload="j", is_partly_succeeded=is_done)
        assert described(builder) == ("" if is_done else "0,1")
