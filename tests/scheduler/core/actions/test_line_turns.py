"""Turns in the line: who has one, how long it lasts, what it costs, and what breaks a wait."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.model.line import LineRecord, LineSettings
from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.scheduler_names import Action

POLICIES = replace(
    build_policies(PolicySelection()),
    actions=(Action.ALLOCATE,),
    line=LineSettings(eligible_after_s=600, max_kept_percent=10, back_off_s=600),
)
ONE, FOUR, EIGHT = (signature(gpu=n) for n in (1, 4, 8))
NOW: Final = 1_000_000
DAY_S: Final = 24 * 3600
_Lines = Mapping[int, LineRecord]


def waits(request: str, waited_s: int = 1000, **more: Any) -> LineRecord:
    return LineRecord(NOW - waited_s, request, **more)


def kept(answer: Plan) -> dict[int, int]:
    """Return the whole GPUs that are kept, by node."""
    note = answer.line_note
    return {it.node: it.gpus // 1000 for it in note.nodes} if note else {}


def busy(builder: Builder, nodes: Sequence[int], queue: str, one: Any = EIGHT, **more: Any) -> None:
    for node in nodes:
        builder.running_podgroup([node], one, queue=queue, **more)


def one_queue(nodes: int, **more: Any) -> Builder:
    queue = SnapshotQueue("team", quota=8 * nodes, is_reserving=True, **more)
    return Builder([SnapshotNode()] * nodes, [queue])


def step(builder: Builder, lines: _Lines, now: int = NOW) -> tuple[Plan, dict[int, LineRecord]]:
    """Return a plan, and the records after it."""
    answer = plan(builder.snapshot(now=now, lines=dict(lines)), POLICIES)
    after = {**lines}
    for it in answer.line:
        after.pop(it.podgroup, None)
        if it.record is not None:
            after[it.podgroup] = it.record
    return answer, after


def becomes_next(builder: Builder, lines: _Lines, row: int, hours: int) -> bool:
    """Say whether a PodGroup becomes the next one, if nothing else happens for so long."""
    for hour in range(hours):
        _, lines = step(builder, lines, NOW + 3600 * hour)
        if lines[row].next_since:
            return True
    return False


def test_a_gang_whose_queue_is_at_its_share_gives_way() -> None:
    """Nothing can be kept for it, and it would be next for months."""
    queues = [
        SnapshotQueue(it, quota=gpus, is_reserving=True) for it, gpus in (("a", 16), ("b", 24))
    ]
    builder = Builder([SnapshotNode()] * 5, queues)
    busy(builder, [0, 1], "a")
    busy(builder, [2], "b")
    busy(builder, [3], "b", FOUR)
    a, b = (builder.uniform_podgroup(2, EIGHT, queue=it) for it in "ab")
    lines = {a: waits("a 2 16000", 2000), b: waits("b 2 16000")}
    assert becomes_next(builder, lines, b, 1)


def test_a_gang_that_other_pods_than_ours_are_in_the_way_of_gives_way() -> None:
    """It requests all 64 CPUs of a node, and a DaemonSet has one of them."""
    queues = [
        SnapshotQueue(it, quota=gpus, is_reserving=True) for it, gpus in (("a", 16), ("b", 32))
    ]
    builder = Builder([SnapshotNode(used_cpu=1)] * 6, queues)
    busy(builder, range(5), "b")
    never = builder.uniform_podgroup(1, signature(gpu=8, cpu=64), queue="a")
    gang = builder.uniform_podgroup(2, EIGHT, queue="b")
    lines = {never: waits("a 1 8000", 2000), gang: waits("b 2 16000")}
    assert becomes_next(builder, lines, gang, 1)


def test_a_gang_beyond_the_cap_and_a_node_is_not_next() -> None:
    """It could not be gathered, and another one could."""
    builder = one_queue(10)
    busy(builder, range(9), "team", running_since=NOW - 5000)
    big, small = (builder.uniform_podgroup(pods, EIGHT) for pods in (5, 2))
    lines = {big: waits("team 5 40000", 3 * DAY_S), small: waits("team 2 16000", 2 * DAY_S)}
    assert becomes_next(builder, lines, small, 1)


def test_a_turn_is_at_most_twice_as_long_as_the_wait_before_it() -> None:
    """Also where hardly anything is kept."""
    builder = one_queue(4)
    busy(builder, [0, 1, 2], "team")
    builder.running_podgroup([3], signature(gpu=7))
    gang = builder.uniform_podgroup(2, EIGHT)
    _, lines = step(builder, {gang: waits("team 2 16000", 5000)})
    answer, lines = step(builder, lines, NOW + 9999)
    assert kept(answer) == {3: 1}
    answer, lines = step(builder, lines, NOW + 10_000)
    assert not kept(answer)
    assert lines[gang].again_at == NOW + 10_600


# how long the running pods still run -> the GPUs that are kept; the gang has waited for 1,000 s
PLANNED: list[Case[int, int]] = [
    Case("within a turn", 2000, 24),
    Case("far away: it is beyond the cap and one node", 30 * DAY_S, 0),
]


@pytest.mark.parametrize("case", PLANNED, ids=ids)
def test_a_start_is_planned_within_a_turn(case: Case[int, int]) -> None:
    """Of 64 GPUs 8 are the cap."""
    builder = one_queue(8)
    busy(builder, range(5), "team", ends_at=NOW + case.given, running_since=NOW - 60)
    gang = builder.uniform_podgroup(4, EIGHT)
    answer, lines = step(builder, {gang: waits("team 4 32000")})
    assert sum(kept(answer).values()) == case.want
    assert bool(lines[gang].next_since) is bool(case.want)


def test_of_equal_gangs_one_has_waited_long_enough_for_a_plan() -> None:
    """The start of the first one would be after its turn."""
    builder = one_queue(8)
    busy(builder, range(5), "team", ends_at=NOW + 5000, running_since=NOW - 60)
    first, second = (builder.uniform_podgroup(4, EIGHT, priority=it) for it in (60, 50))
    lines = {first: waits("team 4 32000"), second: waits("team 4 32000", 4000)}
    _, lines = step(builder, lines)
    assert [row for row, it in lines.items() if it.next_since] == [second]


def with_a_limit(*others: int) -> Builder:
    """Return nodes, of which other queues use all but one, and a queue with a limit of 24 GPUs."""
    queues = [
        SnapshotQueue("other", quota=8 * len(others)),
        SnapshotQueue("team", quota=24, limit=24, is_reserving=True),
    ]
    builder = Builder([SnapshotNode()] * (len(others) + 1), queues)
    for node, gpus in enumerate(others):
        builder.running_podgroup([node], signature(gpu=gpus), queue="other")
    return builder


def test_the_limit_of_its_queue_breaks_no_wait() -> None:
    """Pods of its queue start beside the kept node, and it exceeds the limit for that long."""

    def cluster(*, is_full: bool) -> Builder:
        builder = with_a_limit(8, 8, 4, 4)
        busy(builder, [4], "team", EIGHT if is_full else ONE)
        builder.uniform_podgroup(2, EIGHT, queue="team")
        if is_full:
            builder.uniform_podgroup(1, FOUR, queue="team")
        return builder

    held: dict[str, Any] = {"nodes": (4,), "gpus": 7000, "at": NOW - 300}
    before = waits("team 2 16000", 9000, next_since=NOW - 300, **held)
    _, lines = step(cluster(is_full=True), {5: before})
    assert lines[5] == waits("team 2 16000", 9000, used=7000 * 300, paused_at=NOW)
    _, lines = step(cluster(is_full=False), lines, NOW + 100)
    assert lines[5].waited_s(NOW + 100) == 9000
    assert lines[5].next_since == NOW + 100


def test_what_is_kept_breaks_no_wait_of_others() -> None:
    """Beside it a second gang of the queue exceeds the limit."""
    builder = with_a_limit(8, 8, 8)
    gang, second = (builder.uniform_podgroup(pods, EIGHT, queue="team") for pods in (2, 3))
    lines = {gang: waits("team 2 16000", 9000), second: waits("team 3 24000", 8000)}
    answer, after = step(builder, lines)
    assert kept(answer) == {3: 8}
    assert after[second] == lines[second]


def test_a_burst_in_other_queues_breaks_no_wait() -> None:
    """For one plan the share of its queue is smaller than the gang."""

    def cluster(others: str) -> Builder:
        queues = [SnapshotQueue("a", is_reserving=True), *(SnapshotQueue(it) for it in "bcd")]
        builder = Builder([SnapshotNode()] * 4, queues)
        busy(builder, [0, 1, 2], "b")
        builder.uniform_podgroup(2, EIGHT, queue="a")
        for it in others:
            builder.uniform_podgroup(4, EIGHT, queue=it)
        return builder

    lines: _Lines = {3: waits("a 2 16000", 9000, next_since=NOW - 300, at=NOW - 300)}
    answer, lines = step(cluster(""), lines)
    assert kept(answer) == {3: 8}
    answer, lines = step(cluster("bcd"), lines, NOW + 1)
    assert not kept(answer)
    answer, lines = step(cluster(""), lines, NOW + 2)
    assert kept(answer) == {3: 8}
    assert lines[3].waited_s(NOW + 2) == 9001


def resized(builder: Builder) -> None:
    builder.uniform_podgroup(3, EIGHT)


def with_a_pod_missing(builder: Builder) -> None:
    builder.uniform_podgroup(1, EIGHT, minimum=2)


@pytest.mark.parametrize("change", [resized, with_a_pod_missing])
def test_no_change_lifts_the_back_off(change: Callable[[Builder], None]) -> None:
    """Neither another size nor a pod that is deleted and comes again."""

    def cluster(add: Callable[[Builder], None]) -> Builder:
        builder = one_queue(4)
        busy(builder, [0, 1, 2], "team")
        add(builder)
        return builder

    def whole(builder: Builder) -> None:
        builder.uniform_podgroup(2, EIGHT)

    lines: _Lines = {3: waits("team 2 16000", 9000, tries=6, again_at=NOW + 19_200)}
    _, lines = step(cluster(change), lines)
    _, lines = step(cluster(whole), lines, NOW + 1)
    answer, lines = step(cluster(whole), lines, NOW + 700)
    assert not kept(answer)
    assert (lines[3].tries, lines[3].again_at) == (6, NOW + 19_200)


def test_another_size_ends_a_turn() -> None:
    """As if it had given up: otherwise a turn would never be the last one."""
    builder = one_queue(4)
    busy(builder, [0, 1, 2], "team")
    builder.uniform_podgroup(3, EIGHT)
    before = waits("team 2 16000", next_since=NOW - 300, nodes=(3,), gpus=8000, at=NOW - 300)
    _, lines = step(builder, {3: before})
    assert lines[3] == LineRecord(NOW, "team 3 24000", tries=1, again_at=NOW + 600)


def test_what_is_gathered_is_not_given_back_for_a_fresh_pod() -> None:
    """Seven of eight GPUs are there; on another node a pod with eight began just now."""
    builder = one_queue(4)
    builder.running_podgroup([0], EIGHT, running_since=NOW - 90_000)
    builder.running_podgroup([1], ONE, running_since=NOW - 7200)
    builder.running_podgroup([2], EIGHT, running_since=NOW - 10)
    gang = builder.uniform_podgroup(2, EIGHT)
    for _ in range(7):
        builder.uniform_podgroup(1, ONE)
    record = waits(
        "team 2 16000", 9000, next_since=NOW - 3000, nodes=(1, 3), gpus=15_000, at=NOW - 3000
    )
    answer, _ = step(builder, {gang: record})
    assert kept(answer) == {1: 7, 3: 8}


def test_a_small_node_makes_no_small_pod_large() -> None:
    """One node with one GPU, among nodes with eight."""
    nodes = [SnapshotNode(gpu=1)] + [SnapshotNode()] * 4
    builder = Builder(nodes, [SnapshotQueue("team", quota=33, is_reserving=True)])
    busy(builder, [0], "team", ONE)
    busy(builder, [1, 2, 3, 4], "team")
    builder.uniform_podgroup(1, ONE)
    builder.uniform_podgroup(1, EIGHT)
    _, lines = step(builder, {})
    assert [*lines] == [6]


def test_with_another_request_a_wait_that_is_short_begins_anew() -> None:
    """Beside one that stays as it is, and one that has just come with the same request."""
    builder = one_queue(3)
    busy(builder, [0, 1, 2], "team")
    changed, same, new = (builder.uniform_podgroup(2, EIGHT, queue="team") for _ in range(3))
    lines = {changed: waits("team 3 24000", 300), same: waits("team 2 16000", 300)}
    answer, after = step(builder, lines)
    assert after == {
        changed: LineRecord(NOW, "team 2 16000"),
        same: lines[same],
        new: LineRecord(NOW, "team 2 16000"),
    }
    assert [it.podgroup for it in answer.line] == [changed, new]
    assert answer.line_at == NOW + 300


@pytest.mark.parametrize("is_older", [False, True])
def test_reserved_places_of_another_gang_do_not_matter(*, is_older: bool) -> None:
    """Its pods request the same, and their places are charged by now; their node has broken."""
    nodes = [SnapshotNode()] * 2 + [SnapshotNode(prefilter_fault=1)]
    builder = Builder(nodes, [SnapshotQueue("team", quota=24, is_reserving=True)])
    busy(builder, [0], "team")
    if not is_older:
        builder.uniform_podgroup(1, EIGHT)
    row = builder.signature_row(EIGHT)
    builder.pod_on_node(1, row)
    place = ReservedPlace(2, row, ReservationCause.REPAIR)
    waiting = builder.waiting_pods(1, EIGHT)
    podset = PodSet("default", 2, waiting, running=1, reserved_places=(place,))
    builder.podgroup(podset, is_kept=True)
    if is_older:
        builder.uniform_podgroup(1, EIGHT)
    _, lines = step(builder, {})
    assert lines == {2 if is_older else 1: LineRecord(NOW, "team 1 8000")}
