"""What a PodGroup may have of its queue, and of all queues above."""

from typing import NamedTuple

import pytest

from scheduler.core.model.podgroup import PodGroupInfo, PodSet
from scheduler.core.model.rejections import QueueBoundExceeded
from scheduler.core.model.resources import NONE, UNBOUND, Amounts, ResourceKind
from scheduler.core.model.result import QuotaRefusal
from scheduler.core.model.usage import Usage
from scheduler.policies.registry import within_limit, within_quota
from tests.support.case import Case, ids
from tests.support.snapshot.queue_cases import QueueCase, queues_of
from trainer_kai.api.reasons import UnschedulableReason

FREE = (UNBOUND, UNBOUND, UNBOUND)


class Given(NamedTuple):
    """Bounds of a team and of its department, what both have, and what is asked for."""

    team: Amounts = FREE
    department: Amounts = FREE
    has: Amounts = (0, 0, 0)
    asked: Amounts = (1, 1, 1)


Bound = tuple[int, ResourceKind, int, int, int]

# what is given -> queue, resource, bound, what it has and what is asked, of the bounds passed
BOUNDS: list[Case[Given, list[Bound]]] = [
    Case("no bounds", Given(), []),
    Case("just up to it", Given(team=(3, 3, 3), has=(2, 2, 2)), []),
    Case("one too many", Given(team=(9, 9, 2), has=(2, 2, 2)), [(1, ResourceKind.GPU, 2, 2, 1)]),
    Case(
        "CPU is looked at before memory, and that before GPUs",
        Given(team=(0, 0, 0)),
        [
            (1, ResourceKind.CPU, 0, 0, 1),
            (1, ResourceKind.MEMORY, 0, 0, 1),
            (1, ResourceKind.GPU, 0, 0, 1),
        ],
    ),
    Case("a bound above", Given(department=(9, 9, 0)), [(0, ResourceKind.GPU, 0, 0, 1)]),
    Case(
        "the team before its department",
        Given(team=(9, 9, 0), department=(0, 9, 9)),
        [(1, ResourceKind.GPU, 0, 0, 1), (0, ResourceKind.CPU, 0, 0, 1)],
    ),
    Case(
        "what is not asked for is not looked at",
        Given(team=(9, 9, 0), has=(1, 1, 5), asked=(1, 1, 0)),
        [],
    ),
    Case(
        "a PodGroup that releases something may",
        Given(team=(0, 0, 0), has=(5, 5, 5), asked=(-1, 0, -1)),
        [],
    ),
]


def usage(given: Given, bound: str) -> Usage:
    rows = [
        QueueCase(given.has, quota=bounds, limit=FREE)
        if bound == "quota"
        else QueueCase(given.has, quota=FREE, limit=bounds)
        for bounds in (given.department, given.team)
    ]
    got = Usage(queues_of(rows, (NONE, 0)))
    for row in got.non_preemptible:
        row[:] = given.has
    return got


def unit(*, is_preemptible: bool) -> PodGroupInfo:
    return PodGroupInfo("it", 1, 50, is_preemptible, PodSet("a", 1))


@pytest.mark.parametrize("case", BOUNDS, ids=ids)
def test_bounds(case: Case[Given, list[Bound]]) -> None:
    """A limit is for all PodGroups, a quota for non-preemptible ones."""
    passed = tuple(QueueBoundExceeded(*bound) for bound in case.want)
    details = passed[0]._replace(others=passed[1:]) if passed else None
    requested = case.given.asked
    for is_preemptible in (True, False):
        got = within_limit(
            usage(case.given, "limit"), unit(is_preemptible=is_preemptible), requested
        )
        assert got == (details and QuotaRefusal(UnschedulableReason.EXCEEDS_LIMIT, details))
    over = within_quota(usage(case.given, "quota"), unit(is_preemptible=False), requested)
    assert over == (
        details and QuotaRefusal(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, details)
    )
    assert within_quota(usage(case.given, "quota"), unit(is_preemptible=True), requested) is None


def test_a_quota_counts_what_is_fixed_and_a_limit_everything() -> None:
    """A preemptible PodGroup is in no other's way."""
    got = usage(Given(team=(1, 1, 1)), "quota")
    got.allocated[1][:] = [9, 9, 9]
    assert within_quota(got, unit(is_preemptible=False), (1, 1, 1)) is None
    bounded = usage(Given(team=(1, 1, 1)), "limit")
    bounded.non_preemptible[1][:] = [9, 9, 9]
    assert within_limit(bounded, unit(is_preemptible=False), (1, 1, 1)) is None
