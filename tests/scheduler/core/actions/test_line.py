"""The line: who is next, which room is kept for it, who takes it, and when that ends."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.line import LineRecord, LineSettings
from scheduler.core.model.podgroup import PodSet
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.scheduler_names import Action

POLICIES = replace(
    build_policies(PolicySelection()),
    line=LineSettings(eligible_after_s=600, max_kept_percent=50, back_off_s=600),
)
ALLOCATE = replace(POLICIES, actions=(Action.ALLOCATE,))
ONE, FOUR, EIGHT = (signature(gpu=n) for n in (1, 4, 8))
NOW: Final = 100_000
REQUEST: Final = "team 2 16000"


def waits(since: int = NOW - 1000, request: str = REQUEST, **more: Any) -> LineRecord:
    return LineRecord(since, request, **more)


def cluster(nodes: int = 4, **more: Any) -> Builder:
    """Return nodes with 8 GPUs, and the queues other and team, of which team reserves."""
    queues = (
        SnapshotQueue("other"),
        SnapshotQueue("team", **{"quota": 8 * nodes, "is_reserving": True, **more}),
    )
    return Builder([SnapshotNode()] * nodes, queues)


def with_gang(*busy: tuple[int, Any], **more: Any) -> Builder:
    """Return a cluster on which pods run, on these nodes; the next PodGroup waits for 16 GPUs."""
    builder = cluster(**more)
    for node, one in busy:
        builder.running_podgroup([node], one, queue="team")
    builder.uniform_podgroup(2, EIGHT, queue="team")
    return builder


THREE_BUSY: Final = ((0, EIGHT), (1, EIGHT), (2, EIGHT))


def taken(builder: Builder, lines: Mapping[int, LineRecord], policies: Any = ALLOCATE) -> Plan:
    return plan(builder.snapshot(now=NOW, lines=dict(lines)), policies)


def started(answer: Plan) -> set[int]:
    return {it.podgroup for it in answer.allocations}


def kept(answer: Plan) -> dict[int, int]:
    """Return the whole GPUs that are kept, by node."""
    note = answer.line_note
    return {it.node: it.gpus // 1000 for it in note.nodes} if note else {}


# the record of the gang -> whether a newer pod with 8 GPUs of its queue starts on the free node
RECORDS: list[Case[LineRecord | None, bool]] = [
    Case("it has just come", None, True),
    Case("it has not waited for long enough", waits(NOW - 599), True),
    Case("it has waited", waits(NOW - 600), False),
    Case("it requested something else before", waits()._replace(request="team 2 8000"), True),
    Case("it gave up a short time ago", waits(again_at=NOW + 1), True),
    Case("it gave up some time ago", waits(again_at=NOW), False),
    Case("it is next", waits(next_since=NOW - 300, nodes=(3,), gpus=8000, at=NOW - 300), False),
    Case(
        "its budget is used up",
        waits(NOW - 900, next_since=NOW - 300, used=16_000 * 600, at=NOW),
        True,
    ),
]


@pytest.mark.parametrize("case", RECORDS, ids=ids)
def test_room_is_kept_for_the_next_one(case: Case[LineRecord | None, bool]) -> None:
    """Once it has waited for long enough, and while its budget lasts."""
    builder = with_gang(*THREE_BUSY)
    builder.uniform_podgroup(1, EIGHT, queue="team")
    answer = taken(builder, {3: case.given} if case.given else {})
    assert (4 in started(answer)) is case.want
    assert kept(answer) == ({} if case.want else {3: 8})


def test_it_starts_on_what_is_kept() -> None:
    """As soon as the rest is free."""
    builder = with_gang((0, EIGHT), (1, EIGHT))
    builder.uniform_podgroup(1, EIGHT, queue="team")
    record = waits(next_since=NOW - 300, nodes=(3,), gpus=8000, at=NOW - 300)
    answer = taken(builder, {2: record})
    assert started(answer) == {2}
    assert [(it.podgroup, it.record) for it in answer.line if it.podgroup == 2] == [(2, None)]


def test_parts_of_nodes_are_kept_where_the_least_is_missing() -> None:
    """Here 5 and 4 GPUs of two nodes, of which pods use the rest."""
    three, six = signature(gpu=3), signature(gpu=6)
    builder = with_gang((0, FOUR), (1, three), (2, six), (3, EIGHT))
    assert kept(taken(builder, {4: waits()})) == {0: 4, 1: 5}


def test_room_is_kept_beside_pods_that_may_end_soon() -> None:
    """Most that have run for long run on for as long; a change must be worth it."""
    builder = cluster()
    for node, hours in enumerate((5, 4, 1)):
        since = NOW - 3600 * hours
        builder.running_podgroup([node], FOUR, queue="team", running_since=since)
    builder.running_podgroup([3], EIGHT, queue="team", running_since=NOW - 360_000)
    builder.uniform_podgroup(2, EIGHT, queue="team")
    assert kept(taken(builder, {4: waits()})) == {1: 4, 2: 4}
    record = waits(next_since=NOW - 60, nodes=(0, 2), gpus=8000, at=NOW - 60)
    assert kept(taken(builder, {4: record})) == {0: 4, 2: 4}


def test_no_more_is_kept_than_the_cap() -> None:
    """Of 32 GPUs 25 % are one node."""
    policies = replace(ALLOCATE, line=LineSettings(600, 25, 600))
    builder = with_gang((0, FOUR), (1, signature(gpu=3)), (2, EIGHT), (3, EIGHT))
    assert kept(taken(builder, {4: waits()}, policies)) == {1: 5}


def test_a_queue_keeps_nothing_beyond_its_share() -> None:
    """It has 24 of 32 GPUs, and its share is 28: nothing whole fits."""
    builder = with_gang(*THREE_BUSY, quota=28)
    builder.uniform_podgroup(1, EIGHT, queue="other")
    builder.queues = (replace(builder.queues[0], quota=4), builder.queues[1])
    assert kept(taken(builder, {3: waits()})) == {}


def replacement(builder: Builder) -> None:
    builder.running_podgroup([0], signature())
    builder.podgroups.pop()
    pods = builder.waiting_pods(1, FOUR)
    builder.podgroup(PodSet("default", 2, pods, running=1), queue="team", is_kept=True)


def growth(builder: Builder) -> None:
    pods = builder.waiting_pods(1, FOUR)
    builder.podgroup(PodSet("default", 1, pods, running=1), queue="team", is_kept=True)


# -> whether the last PodGroup takes room that is kept
TAKERS: list[Case[Any, bool]] = [
    Case("a newer one of its queue", lambda it: it.uniform_podgroup(1, FOUR, queue="team"), False),
    Case(
        "a larger priority of its queue",
        lambda it: it.uniform_podgroup(1, FOUR, queue="team", priority=60),
        True,
    ),
    Case("a queue over its quota", lambda it: it.uniform_podgroup(1, FOUR, queue="other"), False),
    Case("the pod that a running one lacks", replacement, True),
    Case("what only grows", growth, False),
]


@pytest.mark.parametrize("case", TAKERS, ids=ids)
def test_who_takes_kept_room(case: Case[Any, bool]) -> None:
    """All the same."""
    builder = with_gang(*THREE_BUSY)
    case.given(builder)
    answer = taken(builder, {3: waits()})
    assert (len(builder.podgroups) - 1 in started(answer)) is case.want
    assert kept(answer) == {3: 4 if case.want else 8}


def test_a_queue_within_its_quota_takes_kept_room() -> None:
    """With what it requests."""
    builder = with_gang(*THREE_BUSY, quota=24)
    builder.queues = (replace(builder.queues[0], quota=8), builder.queues[1])
    builder.running_podgroup([0], signature(), queue="team")
    builder.uniform_podgroup(1, FOUR, queue="other")
    assert 5 in started(taken(builder, {3: waits()}))


def test_there_is_one_next_in_the_cluster() -> None:
    """The one that is it stays it, though another has waited for longer."""
    builder = with_gang(*THREE_BUSY)
    builder.uniform_podgroup(2, EIGHT, queue="team")
    next_ = waits(NOW - 700, next_since=NOW - 60, nodes=(3,), gpus=8000, at=NOW - 60)
    answer = taken(builder, {3: waits(NOW - 5000), 4: next_})
    assert answer.line_note is not None
    assert answer.line_note.podgroup == 4


def test_ten_queues_that_wait_keep_no_more_than_one() -> None:
    """And no more than the cap: a queue gains nothing by many PodGroups that wait."""
    names = [f"q{i}" for i in range(10)]
    queues = [SnapshotQueue(it, quota=16, is_reserving=True) for it in names]
    builder = Builder([SnapshotNode()] * 20, queues)
    for node in range(20):
        builder.running_podgroup([node], FOUR, queue=names[node % 10])
    for name in names:
        builder.uniform_podgroup(2, EIGHT, queue=name)
    policies = replace(ALLOCATE, line=LineSettings(600, 10, 600))
    lines = {20 + i: waits(request=f"{name} 2 16000") for i, name in enumerate(names)}
    answer = taken(builder, lines, policies)
    assert len([it for it in answer.line if it.record and it.record.next_since]) == 1
    assert sum(kept(answer).values()) == 8


def planned(ends_at: int = 0) -> Builder:
    """Return nodes on which all pods end by force; the second one is free at NOW + 500.

    The gang, which needs two, ends at *ends_at*.
    """
    builder = cluster()
    for node, ends in enumerate((900, 500, 2000)):
        builder.running_podgroup([node], EIGHT, queue="team", ends_at=NOW + ends)
    builder.uniform_podgroup(2, EIGHT, queue="team", ends_at=ends_at)
    return builder


def test_enforced_ends_plan_the_start() -> None:
    """What ends before it may start on the kept node meanwhile."""
    builder = planned()
    builder.uniform_podgroup(1, EIGHT, queue="team", ends_at=NOW + 501)
    builder.uniform_podgroup(1, EIGHT, queue="team", ends_at=NOW + 500)
    answer = taken(builder, {3: waits()})
    assert started(answer) == {5}
    note = taken(planned(), {3: waits()}).line_note
    assert note is not None
    assert note.planned_at == NOW + 500


def test_the_record_says_what_has_changed() -> None:
    """And when time alone changes the line."""
    builder = with_gang(*THREE_BUSY)
    first = taken(builder, {})
    assert [(it.podgroup, it.record) for it in first.line] == [(3, LineRecord(NOW, REQUEST))]
    assert first.line_at == NOW + 600
    (change,) = taken(builder, {3: waits()}).line
    record = waits(next_since=NOW, nodes=(3,), gpus=8000, at=NOW, nodes_since=(NOW,))
    assert change.record == record
    later = plan(builder.snapshot(now=NOW + 100, lines={3: record}), ALLOCATE)
    assert later.line == ()
    assert later.line_at == NOW + 2000  # twice as long as it had waited


def test_it_gives_up_with_a_back_off_that_doubles() -> None:
    """And the room is free at once."""
    builder = with_gang(*THREE_BUSY)
    builder.uniform_podgroup(1, EIGHT, queue="team")
    record = waits(
        NOW - 900, next_since=NOW - 300, nodes=(3,), gpus=8000, at=NOW, used=16_000 * 600, tries=2
    )
    answer = taken(builder, {3: record})
    changes = {it.podgroup: it.record for it in answer.line}
    assert changes[3] == waits(NOW - 900, used=16_000 * 600, tries=3, again_at=NOW + 2400)


def test_no_pod_is_evicted_because_of_kept_room() -> None:
    """A PodGroup that could preempt takes what is kept, and the keeping ends."""
    builder = cluster()
    for node in range(3):
        builder.running_podgroup([node], EIGHT, queue="team", priority=40)
    builder.uniform_podgroup(2, EIGHT, queue="team", priority=40)
    builder.uniform_podgroup(1, EIGHT, queue="team", priority=45)
    answer = taken(builder, {3: waits()}, POLICIES)
    assert not answer.evictions
    assert started(answer) == {4}


def test_both_sides_are_told() -> None:
    """For whom what is kept since when."""
    builder = with_gang(*THREE_BUSY)
    builder.uniform_podgroup(1, EIGHT, queue="team")
    held: dict[str, Any] = {"nodes": (3,), "gpus": 8000, "at": NOW - 40, "nodes_since": (NOW - 40,)}
    snapshot = builder.snapshot(now=NOW, lines={3: waits(next_since=NOW - 90, **held)})
    own, other = (
        rejection_message(snapshot, it)
        for it in sorted(plan(snapshot, ALLOCATE).rejections, key=lambda it: it.podgroup)
    )
    assert own.endswith(
        "It is next in queue team: node-3 is kept since 1970-01-02T03:46:00Z, 8 of 16 GPU are there"
    )
    assert other.endswith("8 GPU are idle but kept for unit-3 since 1970-01-02T03:46:00Z")


def test_nothing_is_kept_in_other_queues() -> None:
    """Nor is anything written."""
    builder = with_gang(*THREE_BUSY, is_reserving=False)
    builder.uniform_podgroup(1, EIGHT, queue="team")
    answer = taken(builder, {})
    assert (answer.line, answer.line_note, answer.line_at) == ((), None, None)
    assert 4 in started(answer)


def told(builder: Builder, lines: Mapping[int, LineRecord]) -> dict[int, str]:
    """Return the messages of a plan, by PodGroup."""
    snapshot = builder.snapshot(now=NOW, lines=dict(lines))
    found = plan(snapshot, ALLOCATE).rejections
    return {it.podgroup: rejection_message(snapshot, it) for it in found}


def test_who_would_not_fit_without_kept_room_is_not_told_of_it() -> None:
    """It lacks a CPU."""
    builder = with_gang(*THREE_BUSY)
    builder.nodes = [SnapshotNode(used_cpu=1)] * 4
    builder.uniform_podgroup(1, signature(cpu=64), queue="team")
    texts = told(builder, {3: waits()})
    assert "node-3 is kept since" in texts[3]
    assert "kept for" not in texts[4]


def test_ends_of_nodes_on_which_nothing_is_there_yet_are_told() -> None:
    """Also one that is too far away for a time."""
    assert "node-1 is expected free at 1970-01-02T03:55:00Z" in told(planned(), {3: waits()})[3]
    builder = cluster()
    for node in range(3):
        builder.running_podgroup([node], EIGHT, queue="team", ends_at=10**12)
    builder.uniform_podgroup(2, EIGHT, queue="team")
    assert "is expected free at 9999-12-31T23:59:59Z" in told(builder, {3: waits()})[3]


# when the deadline of the gang ends it, after NOW -> whether that is before its planned start
DEADLINES: list[Case[int | None, bool]] = [
    Case("no deadline", None, False),
    Case("at the planned start", 500, True),
    Case("after it", 501, False),
]


@pytest.mark.parametrize("case", DEADLINES, ids=ids)
def test_a_deadline_before_the_planned_start_is_told(case: Case[int | None, bool]) -> None:
    ends_at = 0 if case.given is None else NOW + case.given
    text = told(planned(ends_at), {3: waits()})[3]
    want = "its deadline ends it before it is likely to start at 1970-01-02T03:55:00Z"
    assert text.endswith(f"; {want}") is case.want
    assert ("deadline" in text) is case.want


def test_a_deadline_without_a_planned_start_is_not_told() -> None:
    builder = cluster()
    for node in range(3):
        builder.running_podgroup([node], EIGHT, queue="team")
    builder.uniform_podgroup(2, EIGHT, queue="team", ends_at=NOW + 1)
    text = told(builder, {3: waits()})[3]
    assert "is kept since" in text
    assert "deadline" not in text


def test_since_when_each_node_is_kept() -> None:
    """Not since when the gang is next."""
    held: dict[str, Any] = {"nodes": (0,), "gpus": 4000, "at": NOW - 40, "nodes_since": (NOW - 40,)}
    builder = with_gang((0, FOUR), (1, EIGHT), (2, EIGHT))
    record = waits(next_since=NOW - 90)._replace(**held)
    assert (
        "node-0 is kept since 1970-01-02T03:46:00Z, node-3 is kept since 1970-01-02T03:46:40Z, "
        "12 of 16 GPU are there"
    ) in told(builder, {3: record})[3]


def test_pods_that_exclude_each_other_get_a_node_each() -> None:
    """They have the same port."""
    one = signature(gpu=4, host_ports=(0,), conflicting_ports=(0,))
    builder = cluster(5)
    for node, gpus in enumerate((8, 8, 8, 5)):
        builder.running_podgroup([node], signature(gpu=gpus), queue="team")
    builder.uniform_podgroup(2, one, queue="team")
    assert kept(taken(builder, {4: waits(request="team 2 8000")})) == {3: 3, 4: 4}
