"""What pods have of their queues, and how many of which kin lie where."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Ints, ReleasingAmount
from scheduler.core.sums import exact, sums
from scheduler.state.roll import PENDING, RELEASING, RUNNING, STUCK_RELEASING, PodTable

__all__ = ["PodsPerNode", "QueueTotals", "pods_per_node", "releasing_by_queue", "with_reserved"]


class PodsPerNode(NamedTuple):
    """How many pods of which kin lie on which node: one row for each pair, sorted."""

    class_number: Ints
    node: Ints
    pod_counts: Ints
    releasing: Ints  # of them those that are being released
    terminating: Ints  # of them those that are going, also those that never come to it


def pods_per_node(pod_table: PodTable, is_selected: Bools) -> PodsPerNode:
    """Count the pods on the nodes that are meant, [node]; the last, for no node, must not be."""
    count = len(is_selected)
    pod_rows = np.flatnonzero(is_selected[pod_table.node])  # who waits or is done is on no node
    pair = pod_table.class_number[pod_rows] * count + pod_table.node[pod_rows]
    pairs, at, pod_counts = np.unique(pair, return_inverse=True, return_counts=True)
    states = pod_table.state[pod_rows]
    releasing = np.bincount(at[states == RELEASING], minlength=len(pairs)).astype(np.int64)
    stuck = np.bincount(at[states == STUCK_RELEASING], minlength=len(pairs)).astype(np.int64)
    return PodsPerNode(pairs // count, pairs % count, pod_counts, releasing, releasing + stuck)


def with_reserved(
    on: PodsPerNode, reserved: Mapping[tuple[int, int], int], node_count: int
) -> PodsPerNode:
    """Add slots, by kin and node, as if their pods were there already."""
    if not reserved:
        return on
    pod_class = np.concatenate((on.class_number, [pod_class for pod_class, _ in reserved]))
    node = np.concatenate((on.node, [node for _, node in reserved]))
    none = np.zeros(len(reserved), dtype=np.int64)
    pod_counts = np.concatenate((on.pod_counts, [*reserved.values()]))
    releasing, terminating = (
        np.concatenate((some, none)) for some in (on.releasing, on.terminating)
    )
    pairs, at = np.unique(pod_class * node_count + node, return_inverse=True)

    def summed(amounts: Ints) -> Ints:
        found = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(found, at, amounts)
        return found

    return PodsPerNode(
        pairs // node_count,
        pairs % node_count,
        summed(pod_counts),
        summed(releasing),
        summed(terminating),
    )


class QueueTotals:
    """What queues themselves have, [queue][kind]; what is below them is not in it yet.

    Numbers of any size: they are cut when all is added up, and not before.
    """

    def __init__(
        self, rows: int, pod_table: PodTable, pod_counts: Ints, queue_requests: Ints
    ) -> None:
        """Charge what is there, pods that are stuck as well, and what waits.

        *heads* are [kin, state]; there are so many *rows* of queues.
        """
        class_table, size = pod_table.class_table, len(pod_counts)
        stuck = pod_table.class_number[_rows_in_state(pod_table, STUCK_RELEASING)]
        queue, running = (
            class_table.queue_row[:size],
            pod_counts[:, RUNNING] + np.bincount(stuck, minlength=size),
        )
        wanted = running + np.where(class_table.is_requested[:size], pod_counts[:, PENDING], 0)
        non_preemptible = np.where(class_table.is_non_preemptible[:size], running, 0)
        self.allocated: Final = _sum_by_queue(queue, queue_requests, running, rows)
        self.non_preemptible: Final = _sum_by_queue(queue, queue_requests, non_preemptible, rows)
        self.requested: Final = _sum_by_queue(queue, queue_requests, wanted, rows)

    def add_reserved(self, queue: int, amounts: Sequence[int], *, is_non_preemptible: bool) -> None:
        """Charge slots."""
        for table in (self.allocated, self.requested, *[self.non_preemptible] * is_non_preemptible):
            _add(table[queue], amounts)

    def add_requested(self, queue: int, amounts: Sequence[int]) -> None:
        """Ask for pods that come later and have no slots; below zero for what asks twice."""
        _add(self.requested[queue], amounts)


def releasing_by_queue(pod_table: PodTable, queue_requests: Ints) -> tuple[ReleasingAmount, ...]:
    """Return what pods that are being released have of their queues, by queue and node."""
    pod_rows = _rows_in_state(pod_table, RELEASING)
    queue = pod_table.class_table.queue_row[pod_table.class_number[pod_rows]]
    pod_rows, queue = pod_rows[queue != NONE], queue[queue != NONE]
    places, at = np.unique(np.stack((queue, pod_table.node[pod_rows])), axis=1, return_inverse=True)
    each = np.ones(len(pod_rows), dtype=np.int64)
    amounts = sums(
        at.reshape(-1), queue_requests[pod_table.class_number[pod_rows]], each, places.shape[1]
    )
    return tuple(
        ReleasingAmount(queue_row, node, (cpu, memory, gpu))
        for (queue_row, node), (cpu, memory, gpu) in zip(
            places.T.tolist(), amounts.tolist(), strict=True
        )
    )


def _rows_in_state(pod_table: PodTable, state: int) -> Ints:
    """Return the slots of pods in a state, on nodes where they may still run.

    Of a node that is gone or not ready nobody is there to say that they are gone: nothing of it can
    be used, and who lost its pods there gets others elsewhere.
    """
    pod_rows = np.flatnonzero(pod_table.state == state)
    rows = np.unique(pod_table.node[pod_rows]).tolist()
    return pod_rows[
        np.isin(pod_table.node[pod_rows], [row for row in rows if pod_table.nodes.is_ready(row)])
    ]


def _sum_by_queue(
    queue: Ints, queue_requests: Ints, pod_counts: Ints, size: int
) -> list[list[int]]:
    chosen = np.flatnonzero((queue != NONE) & (pod_counts > 0))
    return exact(queue[chosen], queue_requests[chosen], pod_counts[chosen], size)


def _add(row: list[int], amounts: Sequence[int]) -> None:
    for kind, amount in enumerate(amounts):
        row[kind] += amount
