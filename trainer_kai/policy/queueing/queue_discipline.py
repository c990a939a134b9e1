"""In which order a queue starts its PodGroups: the annotation `trainer-kai.dev/queue-order`.

With `best-effort` a PodGroup that does not fit is passed by those behind it. With `reserve` room is
kept for a large one that has waited for long enough. With `strict` none passes the head. The
annotation holds for the queues below, too: the nearest one counts, from a queue up. An unknown
value counts as `best-effort`.
"""

from collections.abc import Callable
from enum import StrEnum


class QueueDiscipline(StrEnum):
    """The default first."""

    BEST_EFFORT = "best-effort"
    RESERVE = "reserve"
    STRICT = "strict"


def effective_discipline(
    queue: str, parent_of: Callable[[str], str], annotation_of: Callable[[str], str | None]
) -> QueueDiscipline:
    """Return the order of the nearest queue that has one; a circle of queues ends the search."""
    visited: set[str] = set()
    while queue and queue not in visited:
        text = annotation_of(queue)
        if text is not None:
            return (
                QueueDiscipline(text) if text in {*QueueDiscipline} else QueueDiscipline.BEST_EFFORT
            )
        visited.add(queue)
        queue = parent_of(queue)
    return QueueDiscipline.BEST_EFFORT
