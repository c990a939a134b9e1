"""Queues as one row each, for tests of their order and of their limits."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import NONE, UNBOUND, Amounts
from scheduler.core.model.snapshot import SnapshotQueues

TOTAL: Final = (100, 100, 100)


class QueueCase(NamedTuple):
    """A queue without quota: what it has, may have, and what its best PodGroup asks for."""

    has: Amounts = (1, 1, 1)
    requested: Amounts = (1, 1, 1)
    fair_share: Amounts = (4, 4, 4)
    quota: Amounts = (0, 0, 0)
    limit: Amounts = (UNBOUND,) * 3
    priority: int = 100


def queues_of(rows: list[QueueCase], parent: Iterable[int] = ()) -> SnapshotQueues:
    """Return queues."""
    has = np.array([row.has for row in rows], dtype=np.int64)
    return SnapshotQueues(
        names=tuple(map(str, range(len(rows)))),
        parent=tuple(parent) or (NONE,) * len(rows),
        priority=tuple(row.priority for row in rows),
        quota=np.array([row.quota for row in rows], dtype=np.int64),
        limit=np.array([row.limit for row in rows], dtype=np.int64),
        weight=np.ones((len(rows), 3)),
        allocated=has,
        non_preemptible=has * 0,
        requested=has,
    )
