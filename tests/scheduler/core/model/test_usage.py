"""What queues have while a plan is being made."""

import pytest

from scheduler.core.model.resources import NONE
from scheduler.core.model.usage import Usage
from tests.support.case import Case, ids
from tests.support.snapshot.queue_cases import QueueCase, queues_of

# department, two teams, and another queue
PARENT = (NONE, 0, 0, NONE)

# the queue charged -> the queues that have more
CHARGED: list[Case[int, list[int]]] = [
    Case("a team and its department", 1, [0, 1]),
    Case("the other team", 2, [0, 2]),
    Case("a queue at the top", 3, [3]),
]


def usage() -> Usage:
    rows = [QueueCase(has=(q, q + 1, q + 2)) for q in range(4)]
    return Usage(queues_of(rows, PARENT))


@pytest.mark.parametrize("case", CHARGED, ids=ids)
@pytest.mark.parametrize("is_non_preemptible", [False, True])
def test_a_charge_goes_all_the_way_up(case: Case[int, list[int]], is_non_preemptible: bool) -> None:
    """What cannot be preempted is charged twice: to all, and to what is fixed."""
    got, before = usage(), usage()
    got.charge(case.given, (10, 20, 30), is_non_preemptible=is_non_preemptible)
    for q in range(4):
        more = [10, 20, 30] if q in case.want else [0, 0, 0]
        assert got.allocated[q] == [a + b for a, b in zip(before.allocated[q], more, strict=True)]
        assert got.non_preemptible[q] == (more if is_non_preemptible else [0, 0, 0])
    got.refund(case.given, (10, 20, 30), is_non_preemptible=is_non_preemptible)
    assert (got.allocated, got.non_preemptible) == (before.allocated, before.non_preemptible)


def test_the_way_up_begins_with_the_queue() -> None:
    rows = [QueueCase()] * 4
    assert Usage(queues_of(rows, (1, 3, NONE, 2))).paths == ((0, 1, 3, 2), (1, 3, 2), (2,), (3, 2))
