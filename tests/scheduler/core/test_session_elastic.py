"""A PodGroup that runs and may have no more than it needs (rule 8a)."""

from typing import Final

import pytest

from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from trainer_kai.api.reasons import UnschedulableReason

POLICIES: Final = build_policies(PolicySelection())
ONE: Final = signature(gpu=1)
PREFILTER_FAILURE: Final = PreFilterFailure(PreFilterCause.QUEUE_ACCESS_UNKNOWN, ("ns", "q"))


def answer(running: int, waiting: int, minimum: int, *, free: int = 8) -> Plan:
    """Plan for a PodGroup of one PodSet that may not grow."""
    builder = Builder([SnapshotNode(gpu=running + free)])
    row = builder.signature_row(ONE)
    for _ in range(running):
        builder.pod_on_node(0, row)
    pods = tuple(range(running))
    podset = PodSet(
        "default", minimum, builder.waiting_pods(waiting, ONE), running=running, running_pods=pods
    )
    builder.podgroup(podset, is_kept=True, elastic_failure=PREFILTER_FAILURE)
    return plan(builder.snapshot(), POLICIES)


# pods that run, that wait, that are needed -> how many are bound, and the reason on the rest
ONES: list[Case[tuple[int, int, int], tuple[int, str]]] = [
    Case("it has what it needs", (2, 2, 2), (0, "ForbiddenQueue")),
    Case("it lacks one", (1, 1, 2), (1, "")),
    Case("it lacks two, and three wait", (1, 3, 3), (2, "ForbiddenQueue")),
    Case("it needs none", (1, 1, 0), (0, "ForbiddenQueue")),
    Case("no pod waits", (2, 0, 2), (0, "")),
]


@pytest.mark.parametrize("case", ONES, ids=ids)
def test_it_is_made_whole_and_no_larger(
    case: Case[tuple[int, int, int], tuple[int, str]],
) -> None:
    """What is in the way is told of what waits on."""
    plan_result = answer(*case.given)

    report = [it.reason for it in plan_result.rejections]
    assert sum(len(it.binds) for it in plan_result.allocations) == case.want[0]
    assert report == ([case.want[1]] if case.want[1] else [])


def test_it_is_reported_what_keeps_it_from_being_whole() -> None:
    """Not what it would be told afterwards."""
    (one,) = answer(1, 2, 2, free=0).rejections
    assert one.reason == UnschedulableReason.NO_CAPACITY


def two_podsets(minimum: int, reserved_places: tuple[ReservedPlace, ...]) -> Plan:
    """Plan for a PodGroup with a first PodSet that runs, and a waiting pod of the second one."""
    builder = Builder([SnapshotNode(gpu=8)])
    row = builder.signature_row(ONE)
    builder.pod_on_node(0, row)
    first = PodSet("first", 1, running=1, running_pods=(0,))
    second = PodSet(
        "second",
        1,
        builder.waiting_pods(1, ONE),
        reserved_places=reserved_places,
        expected_signature=NONE,
    )
    builder.podgroup(
        SubGroupSet("", minimum, (first, second)), is_kept=True, elastic_failure=PREFILTER_FAILURE
    )
    return plan(builder.snapshot(), POLICIES)


def test_a_podset_that_is_needed_comes() -> None:
    assert len(two_podsets(2, ()).allocations) == 1


def test_a_podset_that_is_not_needed_does_not() -> None:
    assert two_podsets(1, ()).allocations == ()


def test_its_own_reserved_places_it_may_have_again() -> None:
    """Though it could do without: they are its own already."""
    (one,) = two_podsets(1, (ReservedPlace(0, 0, ReservationCause.REPAIR),)).allocations
    assert len(one.binds) == 1
