"""The order of a queue: its annotation, else that of the nearest ancestor with one."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.policy.queueing.queue_discipline import effective_discipline

PARENTS = {"leaf": "team", "team": "top", "circle": "other", "other": "circle"}

# annotations by queue -> what counts for queue leaf
ORDERS: list[Case[dict[str, str], str]] = [
    Case("nothing is said", {}, "best-effort"),
    Case("its own", {"leaf": "strict"}, "strict"),
    Case("of an ancestor", {"top": "strict"}, "strict"),
    Case("the nearest one", {"leaf": "best-effort", "top": "strict"}, "best-effort"),
    Case("another value is best-effort", {"team": "FIFO", "top": "strict"}, "best-effort"),
]


@pytest.mark.parametrize("case", ORDERS, ids=ids)
def test_the_nearest_annotation_counts(case: Case[dict[str, str], str]) -> None:
    """From the queue up."""
    found = effective_discipline("leaf", lambda it: PARENTS.get(it, ""), case.given.get)
    assert found == case.want


def test_a_circle_of_queues_ends_the_search() -> None:
    """Each is its own ancestor."""
    found = effective_discipline("circle", lambda it: PARENTS.get(it, ""), lambda _queue: None)
    assert found == "best-effort"
