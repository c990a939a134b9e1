"""The order of a queue: its annotation, else that of the nearest ancestor with one."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.policy.queueing.queueing_order import effective_queueing_order

PARENTS = {"leaf": "team", "team": "top", "circle": "other", "other": "circle"}

# annotations by queue -> what counts for queue leaf, and who says so
ORDERS: list[Case[dict[str, str], tuple[str, str]]] = [
    Case("nothing is said", {}, ("best-effort", "")),
    Case("its own", {"leaf": "strict"}, ("strict", "leaf")),
    Case("of an ancestor", {"top": "strict"}, ("strict", "top")),
    Case("the nearest one", {"leaf": "best-effort", "top": "strict"}, ("best-effort", "leaf")),
    Case(
        "another value is best-effort", {"team": "FIFO", "top": "strict"}, ("best-effort", "team")
    ),
]


@pytest.mark.parametrize("case", ORDERS, ids=ids)
def test_the_nearest_annotation_counts(case: Case[dict[str, str], tuple[str, str]]) -> None:
    """From the queue up."""
    found = effective_queueing_order("leaf", lambda it: PARENTS.get(it, ""), case.given.get)
    assert (found.order, found.decided_by) == case.want


def test_a_circle_of_queues_ends_the_search() -> None:
    """Each is its own ancestor."""
    found = effective_queueing_order("circle", lambda it: PARENTS.get(it, ""), lambda _queue: None)
    assert found.order == "best-effort"
    assert str(found) == "annotation trainer-kai.dev/queue-order: best-effort of queue "
