"""In which order a queue starts its PodGroups: the annotation `trainer-kai.dev/queue-order`.

With `best-effort` a PodGroup that does not fit is passed by those behind it. With `reserve` room is
kept for a large one that has waited for long enough. With `strict` none passes the head. The
annotation holds for the queues below, too: the nearest one counts, from a queue up. An unknown
value counts as `best-effort`.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from trainer_kai.api.names import QUEUE_ORDER


class QueueingOrder(StrEnum):
    """The default first."""

    BEST_EFFORT = "best-effort"
    RESERVE = "reserve"
    STRICT = "strict"


class EffectiveQueueingOrder(NamedTuple):
    order: QueueingOrder = QueueingOrder.BEST_EFFORT
    decided_by: str = ""  # the queue with the annotation: itself or an ancestor

    def __str__(self) -> str:
        return f"annotation {QUEUE_ORDER}: {self.order} of queue {self.decided_by}"


def effective_queueing_order(
    queue: str, parent_of: Callable[[str], str], annotation_of: Callable[[str], str | None]
) -> EffectiveQueueingOrder:
    """Return the order of the nearest queue that has one; a circle of queues ends the search."""
    visited: set[str] = set()
    while queue and queue not in visited:
        text = annotation_of(queue)
        if text is not None:
            order = QueueingOrder(text) if text in {*QueueingOrder} else QueueingOrder.BEST_EFFORT
            return EffectiveQueueingOrder(order, queue)
        visited.add(queue)
        queue = parent_of(queue)
    return EffectiveQueueingOrder()
