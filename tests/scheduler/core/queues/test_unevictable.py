"""What cannot be evicted counts as what cannot be preempted, and is the last that is borrowed."""

from typing import Any

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.plan import plan
from scheduler.core.queues.reclaimable import unevictable_usage
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

ONE = signature(gpu=1)
_STAYS: dict[str, Any] = {"non_evictable_reason": "x"}


def counted(*runs: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return by queue which of some PodGroups count, with their GPUs."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b")])
    for one in runs:
        builder.running_podgroup([0], ONE, **{"queue": "a", **one})
    found = unevictable_usage(builder.snapshot()).items()
    return {
        "ab"[queue]: (failure.podgroups, failure.amounts[2] // 1000) for queue, failure in found
    }


# PodGroups that run -> what counts
COUNTED: list[Case[list[dict[str, Any]], dict[str, tuple[tuple[int, ...], int]]]] = [
    Case("nothing", [{}, {"workload": "j"}], {}),
    Case("what stays", [_STAYS, {}, _STAYS], {"a": ((0, 2), 2)}),
    Case("not what moves", [{**_STAYS, "is_relocating": True}], {}),
    Case("nor what counts as fixed in any case", [{**_STAYS, "is_preemptible": False}], {}),
    Case("what is partly done can go", [{"is_partly_succeeded": True}], {}),
    Case(
        "a JobSet in two queues",
        [{"workload": "j"}, {"workload": "j", "queue": "b"}],
        {"a": ((0,), 1), "b": ((1,), 1)},
    ),
    Case(
        "a JobSet of which one PodGroup cannot be preempted",
        [{"workload": "j"}, {"workload": "j", "is_preemptible": False}],
        {"a": ((0,), 1)},
    ),
    Case(
        "a JobSet of which one stays",
        [{"workload": "j"}, {**_STAYS, "workload": "j"}],
        {"a": ((0, 1), 2)},
    ),
    Case(
        "a JobSet that moves",
        [{"workload": "j"}, {**_STAYS, "workload": "j", "is_relocating": True}],
        {},
    ),
]


@pytest.mark.parametrize("case", COUNTED, ids=ids)
def test_what_counts(
    case: Case[list[dict[str, Any]], dict[str, tuple[tuple[int, ...], int]]],
) -> None:
    """PodGroups that may be preempted by their word, and cannot be evicted."""
    assert counted(*case.given) == case.want


# quota of the queue, what waits -> reason, or nothing if it starts; one GPU of it cannot go
BORROWED: list[Case[tuple[int, dict[str, Any]], str]] = [
    Case("it is above the quota", (0, {}), "NonPreemptibleOverQuota"),
    Case("it is within the quota", (1, {}), ""),
    Case("the quota has no bound", (-1, {}), ""),
    Case(
        "more that is fixed passes the quota",
        (1, {"is_preemptible": False}),
        "NonPreemptibleOverQuota",
    ),
    Case("there is room for both", (2, {"is_preemptible": False}), ""),
]


@pytest.mark.parametrize("case", BORROWED, ids=ids)
def test_what_is_borrowed(case: Case[tuple[int, dict[str, Any]], str]) -> None:
    """A queue that cannot give back what it has above its quota gets nothing more of it."""
    quota, more = case.given
    builder = Builder([SnapshotNode()], [SnapshotQueue("a", quota=quota)])
    builder.running_podgroup([0], ONE, **_STAYS)
    builder.uniform_podgroup(1, ONE, **more)
    snapshot = builder.snapshot()
    answer = plan(snapshot, build_policies(PolicySelection()))
    assert [*plan_violations(snapshot, answer)] == []
    assert [it.reason for it in answer.rejections] == [case.want] * bool(case.want)


def test_what_it_does_not_ask_for_is_not_looked_at() -> None:
    """Nor is a queue beside it, or above it."""
    queues = [
        SnapshotQueue("top", quota=1),
        SnapshotQueue("a", parent="top"),
        SnapshotQueue("b", parent="top", quota=1),
    ]
    builder = Builder([SnapshotNode()], queues)
    builder.running_podgroup([0] * 2, ONE, queue="a", **_STAYS)
    builder.uniform_podgroup(1, signature(gpu=0), queue="a")
    builder.uniform_podgroup(1, ONE, queue="b", is_preemptible=False)
    assert [
        it.podgroup
        for it in plan(builder.snapshot(), build_policies(PolicySelection())).allocations
    ] == [2, 1]


def test_it_is_reported_with_what_would_help() -> None:
    builder = Builder([SnapshotNode()], [SnapshotQueue("a", quota=1)])
    for _ in range(4):
        builder.running_podgroup([0], ONE, **_STAYS)
    builder.uniform_podgroup(2, ONE)
    snapshot = builder.snapshot()
    (one,) = plan(snapshot, build_policies(PolicySelection())).rejections
    assert rejection_message(snapshot, one) == (
        "Queue a has a quota of 1 GPU and uses 4 GPU that cannot be reclaimed, because 4 PodGroups "
        "cannot be evicted (unit-0, unit-1, unit-2, …); the PodGroup requests 2 GPU more. It can "
        "start when 3 GPU of this can be reclaimed, or its quota is raised to 4 GPU"
    )
