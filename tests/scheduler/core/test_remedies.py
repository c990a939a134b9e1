"""What an attempt with the lifted bound finds: true of the end of a plan, and without a trace."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings

from scheduler.core.actions.allocate import allocate
from scheduler.core.actions.reclaim_preempt import reclaim
from scheduler.core.messages.node_messages import needed_room
from scheduler.core.messages.rejection_messages import what_would_help
from scheduler.core.model.line import LineRecord
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.reserved_places import WantedRoom
from scheduler.core.plan import PlanLimits, plan
from scheduler.core.remedies import checked_remedies
from scheduler.core.session import Session
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.random_snapshots import after_plan, snapshots
from tests.support.snapshot.statement_state import statement_state

POLICIES: Final = build_policies(PolicySelection())
ROOM: Final = "a node that it fits has 8 GPU free"


def at_the_limit(number: int, used: int = 8) -> Snapshot:
    """Return PodGroups of a queue that may have no more; *used* of the 8 GPUs are."""
    build = Builder([SnapshotNode(used_gpu=used)], [SnapshotQueue("a", limit=0)])
    for _ in range(number):
        build.uniform_podgroup(1, signature(gpu=8), queue=0)
    return build.snapshot()


def needs(made: Plan) -> dict[int, str | None]:
    return {it.podgroup: it.also_needed for it in made.rejections}


def test_a_full_node_is_needed_after_the_limit() -> None:
    assert needs(plan(at_the_limit(1), POLICIES)) == {0: ROOM}
    assert needs(plan(at_the_limit(1, used=0), POLICIES)) == {0: ""}


def test_only_so_many_are_checked_the_first_ones_first() -> None:
    made = plan(at_the_limit(3), POLICIES, PlanLimits(remedy_checks=2))
    assert needs(made) == {0: ROOM, 1: ROOM, 2: None}
    assert needs(plan(at_the_limit(1), POLICIES, PlanLimits(remedy_checks=0))) == {0: None}


def test_few_are_checked_again() -> None:
    first = plan(at_the_limit(6), POLICIES)
    second = plan(at_the_limit(6, used=0), POLICIES, PlanLimits(remedies=first.remedies))
    assert needs(second) == {0: "", 1: "", 2: "", 3: "", 4: ROOM, 5: ROOM}
    assert [*second.remedies] == [4, 5, 0, 1, 2, 3]


def test_new_reasons_are_checked_first_then_those_known_for_longest() -> None:
    """What is known counts on, where its bound is the same."""
    snapshot, limits = at_the_limit(4, used=0), PlanLimits(remedy_checks=2)
    first = plan(at_the_limit(4), POLICIES, limits)
    assert [*first.remedies] == [0, 1]

    second = plan(snapshot, POLICIES, replace(limits, remedies=first.remedies))
    assert needs(second) == {0: ROOM, 1: ROOM, 2: "", 3: ""}
    assert [*second.remedies] == [0, 1, 2, 3]

    third = plan(snapshot, POLICIES, replace(limits, remedies=second.remedies))
    assert needs(third) == dict.fromkeys(range(4), "")
    assert [*third.remedies] == [2, 3, 0, 1]


def test_a_changed_bound_is_checked_anew() -> None:
    first = plan(at_the_limit(1), POLICIES)
    known = {0: first.remedies[0]._replace(bound=("another",))}
    limits = PlanLimits(remedy_checks=0, remedies=known)
    assert needs(plan(at_the_limit(1), POLICIES, limits)) == {0: None}


def beside_kept_room(*, is_owner: bool, quota: int) -> Plan:
    """Return a plan in which a node of 8 GPUs is kept, and a PodGroup is at the limit of its queue.

    Either that for which it is kept, or one of another queue.
    """
    queues = [
        SnapshotQueue("kept", quota=-1, limit=24 if is_owner else -1, is_reserving=True),
        SnapshotQueue("other", quota=quota, limit=0),
        SnapshotQueue("full", quota=-1),
    ]
    build = Builder([SnapshotNode()] * 4, queues)
    queue = "kept" if is_owner else "full"
    for node in range(2 if is_owner else 3):
        build.running_podgroup([node], signature(gpu=8), queue=queue, is_preemptible=False)
    build.uniform_podgroup(2, signature(gpu=8), queue="kept")
    if not is_owner:
        build.uniform_podgroup(1, signature(gpu=8), queue="other")
    lines = {2 if is_owner else 3: LineRecord(0, "kept 2 16000")}
    made = plan(build.snapshot(now=100_000, lines=lines), POLICIES)
    assert made.line_note is not None
    return made


def test_kept_room_is_in_the_way_of_those_that_may_not_take_it() -> None:
    assert needs(beside_kept_room(is_owner=False, quota=0))[4] == ROOM
    assert needs(beside_kept_room(is_owner=False, quota=8))[4] == ""


def test_kept_room_counts_for_the_one_for_which_it_is_kept() -> None:
    """With a higher limit it starts there, and on the node beside."""
    assert needs(beside_kept_room(is_owner=True, quota=0))[2] == ""


def test_a_check_keeps_exactly_the_same_room_again() -> None:
    """Though more is free since the room was kept."""
    build = Builder([SnapshotNode()], [SnapshotQueue("a", quota=-1)])
    build.running_podgroup([0], signature(gpu=4), queue="a")
    build.uniform_podgroup(1, signature(gpu=8), queue="a")
    session = Session(build.snapshot(), POLICIES)
    session.kept.keep(1, [WantedRoom(0, np.array(signature(gpu=8).request))])
    session.statement.evict(0, 0)
    before = state_of(session)
    with session.kept.lifted():
        assert not session.kept.is_held
    assert state_of(session) == before
    assert [it.gpus for it in session.kept.nodes] == [4000]


def closed(build: Builder, **more: Any) -> None:
    failure = PreFilterFailure(PreFilterCause.QUEUE_ACCESS_UNKNOWN, ("team-b", "q"))
    build.uniform_podgroup(1, signature(gpu=8), queue="q", prefilter_failure=failure, **more)


def test_the_head_of_a_strict_queue_is_needed_after_access() -> None:
    """Unless the PodGroup would come before the head."""
    for is_strict, priority, needed in (
        (True, 50, "unit-1 has started"),
        (True, 60, ""),
        (False, 50, ""),
    ):
        queues = [SnapshotQueue("q", quota=-1, is_strict=is_strict)]
        build = Builder([SnapshotNode()] * 2, queues)
        build.running_podgroup([0], signature(gpu=8), queue="q", is_preemptible=False)
        build.uniform_podgroup(2, signature(gpu=8), queue="q")
        closed(build, priority=priority)
        assert needs(plan(build.snapshot(), POLICIES))[2] == needed


@settings(max_examples=examples(50))
@given(snapshots())
def test_checks_change_no_decision(snapshot: Snapshot) -> None:
    for _ in range(2):  # the second has nominated pods, and pods that terminate
        with_checks, without = (
            plan(snapshot, POLICIES, PlanLimits(remedy_checks=it)) for it in (32, 0)
        )
        rejections = tuple(replace(it, also_needed=None) for it in with_checks.rejections)
        changed = replace(
            with_checks, rejections=rejections, remedies={}, fair_share=without.fair_share
        )
        assert changed == without
        snapshot = after_plan(snapshot, without)


@settings(max_examples=examples(30))
@given(snapshots())
def test_checks_leave_no_trace(snapshot: Snapshot) -> None:
    """Also after all that a plan does; a second check finds the same."""
    for one in (snapshot, with_line(snapshot)):
        session = Session(one, POLICIES)
        allocate(session)
        reclaim(session)
        before = state_of(session)

        found = checked_remedies(session, {}, 1000)

        assert state_of(session) == before
        assert checked_remedies(session, {}, 1000) == found


def with_line(snapshot: Snapshot) -> Snapshot:
    """Let all queues reserve, and what waits now have waited for long."""
    reserving = frozenset(range(len(snapshot.queues.names)))
    snapshot = replace(snapshot, queues=replace(snapshot.queues, reserving=reserving))
    lines = {it.podgroup: it.record for it in plan(snapshot, POLICIES).line if it.record}
    return replace(snapshot, lines=lines, now=snapshot.now + 10_000)


@settings(max_examples=examples(100))
@given(snapshots())
def test_what_is_counted_is_what_an_attempt_finds(snapshot: Snapshot) -> None:
    session = Session(snapshot, POLICIES)
    allocate(session)
    for row in [*session.attempts]:
        room = session.missing_room(row)
        if room is not None and not session.attempts.has_reserved_places(row):
            failure = session.failed_placement(row)
            tried = "" if failure is None else what_would_help(snapshot, failure.reason, failure)
            assert needed_room(snapshot, room) == tried


COUNTED: list[Case[tuple[int, int], str | None]] = [
    Case("all of them fit", (8, 0), ""),
    Case(
        "none of them fits",
        (8, 2),
        "the nodes that it fits have enough free for 2 of its pods (16 GPU)",
    ),
    Case("only one of them fits", (8, 1), ROOM),
    Case("they fit on no empty node", (9, 2), None),
]


@pytest.mark.parametrize("case", COUNTED, ids=ids)
def test_what_two_pods_lack_on_two_nodes(case: Case[tuple[int, int], str | None]) -> None:
    """None is not known without an attempt."""
    requested, full = case.given
    nodes = [SnapshotNode(used_gpu=8 if n < full else 0) for n in range(2)]
    build = Builder(nodes, [SnapshotQueue("a", limit=0)])
    build.uniform_podgroup(2, signature(gpu=requested), queue=0)
    session = Session(build.snapshot(), POLICIES)
    allocate(session)
    room = session.missing_room(0)
    assert (None if room is None else needed_room(session.snapshot, room)) == case.want


def state_of(session: Session) -> object:
    usage = [repr(getattr(session.usage, it)) for it in ("allocated", "limit", "quota")]
    kept = session.kept.nodes, session.kept.is_held
    return statement_state(session.nodes), usage, dict(session.placer.allocated_now), kept
