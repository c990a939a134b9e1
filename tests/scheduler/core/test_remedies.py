"""What an attempt with the lifted bound finds: true of the end of a plan, and without a trace."""

from dataclasses import replace
from typing import Final

from hypothesis import given, settings

from scheduler.core.actions.allocate import allocate
from scheduler.core.actions.reclaim_preempt import reclaim
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import PlanLimits, plan
from scheduler.core.remedies import checked_remedies
from scheduler.core.session import Session
from scheduler.policies.registry import PolicySelection, build_policies
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
    session = Session(snapshot, POLICIES)
    allocate(session)
    reclaim(session)
    before = state_of(session)

    found = checked_remedies(session, {}, 1000)

    assert state_of(session) == before
    assert checked_remedies(session, {}, 1000) == found


def state_of(session: Session) -> object:
    usage = [repr(getattr(session.usage, it)) for it in ("allocated", "limit", "quota")]
    return statement_state(session.nodes), usage, dict(session.placer.allocated_now)
