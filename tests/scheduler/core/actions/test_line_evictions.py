"""Kept room and evictions: it makes nobody a victim, and whoever saves an eviction takes it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.model.line import LineRecord, LineSettings
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature

POLICIES = replace(
    build_policies(PolicySelection()),
    line=LineSettings(eligible_after_s=600, max_kept_percent=10, back_off_s=600),
)
ONE, FOUR, EIGHT = (signature(gpu=n) for n in (1, 4, 8))
NOW: Final = 1_000_000


def both(builder: Builder, gang: int, request: str) -> tuple[Plan, Plan]:
    """Return the plans without kept room, and with it."""
    lines = {gang: LineRecord(NOW - 1000, request, tries=5)}
    without, beside = builder.snapshot(now=NOW), builder.snapshot(now=NOW, lines=lines)
    return plan(without, POLICIES), plan(beside, POLICIES)


def kept(answer: Plan) -> dict[int, int]:
    """Return the whole GPUs that are kept, by node."""
    note = answer.line_note
    return {it.node: it.gpus // 1000 for it in note.nodes} if note else {}


def evicted(answer: Plan) -> int:
    return sum([len(it.pods) for it in answer.evictions])


def preempting(pods: int, one: Any) -> tuple[Builder, int]:
    """Return three busy nodes and a free one, a gang for which that is kept, and a preemptor."""
    queues = [SnapshotQueue("low", quota=24), SnapshotQueue("team", quota=16, is_reserving=True)]
    nodes = [*[SnapshotNode()] * 4, *[SnapshotNode(used_gpu=8)] * 2]
    builder = Builder(nodes, queues)
    for node in range(3):
        builder.running_podgroup([node], EIGHT, queue="low", priority=40)
    gang = builder.uniform_podgroup(2, EIGHT, queue="team")
    builder.uniform_podgroup(pods, one, queue="low", priority=60)
    return builder, gang


# a preemptor -> how many are evicted, and what stays kept
PREEMPTORS: list[Case[tuple[int, Any], tuple[int, dict[int, int]]]] = [
    Case("it fits on a part of it", (1, ONE), (0, {3: 7})),
    Case("it fits on all of it", (1, EIGHT), (0, {})),
    Case("it needs one node more", (2, EIGHT), (1, {})),
]


@pytest.mark.parametrize("case", PREEMPTORS, ids=ids)
def test_no_more_is_evicted_than_without_kept_room(
    case: Case[tuple[int, Any], tuple[int, dict[int, int]]],
) -> None:
    """The rest stays kept, and the one that is next has not given up."""
    builder, gang = preempting(*case.given)
    without, beside = both(builder, gang, "team 2 16000")
    assert (evicted(beside), kept(beside)) == case.want
    assert evicted(without) == evicted(beside)
    records = {it.podgroup: it.record for it in beside.line}
    record = records[gang]
    assert record is not None
    assert (record.tries, record.again_at) == (5, 0)


def exposed(nodes: Sequence[SnapshotNode]) -> tuple[Builder, int]:
    """Return a queue with 8 of its 10 GPUs, beside which 4 are kept, and one that could reclaim."""
    queues = [
        SnapshotQueue("team", quota=10, is_reserving=True),
        SnapshotQueue("other", quota=8),
        SnapshotQueue("z"),
    ]
    builder = Builder(nodes, queues)
    builder.running_podgroup([0], EIGHT, queue="team", running_since=NOW - 90_000)
    builder.running_podgroup([1], FOUR, queue="z", running_since=NOW - 10, is_preemptible=False)
    gang = builder.uniform_podgroup(1, EIGHT, queue="team")
    builder.uniform_podgroup(1, EIGHT, queue="other")
    return builder, gang


def test_kept_room_exposes_no_pods_of_its_queue() -> None:
    """The queue is within its quota without what is kept for it."""
    full = SnapshotNode(used_gpu=8)
    builder, gang = exposed([SnapshotNode(), SnapshotNode(), full, full])
    without, beside = both(builder, gang, "team 1 8000")
    assert not without.evictions
    assert not beside.evictions
