"""What pods have of their queues, and how many of which kin lie where."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Going, Ints
from scheduler.core.sums import exact, sums
from scheduler.state.roll import RELEASING, STUCK, THERE, WAITING, Roll

__all__ = ["Lying", "QueueCharges", "goings", "joined", "lying"]


class Lying(NamedTuple):
    """How many pods of which kin lie on which node: one row for each pair, sorted."""

    kin: Ints
    node: Ints
    heads: Ints
    going: Ints  # of them those that are being released
    leaving: Ints  # of them those that are going, also those that never come to it


def lying(roll: Roll, is_meant: Bools) -> Lying:
    """Count the pods on the nodes that are meant, [node]; the last, for no node, must not be."""
    count = len(is_meant)
    slots = np.flatnonzero(is_meant[roll.node])  # who waits or is done is on no node
    pair = roll.kin[slots] * count + roll.node[slots]
    pairs, at, heads = np.unique(pair, return_inverse=True, return_counts=True)
    states = roll.state[slots]
    going = np.bincount(at[states == RELEASING], minlength=len(pairs)).astype(np.int64)
    stuck = np.bincount(at[states == STUCK], minlength=len(pairs)).astype(np.int64)
    return Lying(pairs // count, pairs % count, heads, going, going + stuck)


def joined(on: Lying, held: Mapping[tuple[int, int], int], node_count: int) -> Lying:
    """Add slots, by kin and node, as if their pods were there already."""
    if not held:
        return on
    kin = np.concatenate((on.kin, [kin for kin, _ in held]))
    node = np.concatenate((on.node, [node for _, node in held]))
    none = np.zeros(len(held), dtype=np.int64)
    heads = np.concatenate((on.heads, [*held.values()]))
    going, leaving = (np.concatenate((some, none)) for some in (on.going, on.leaving))
    pairs, at = np.unique(kin * node_count + node, return_inverse=True)

    def summed(amounts: Ints) -> Ints:
        found = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(found, at, amounts)
        return found

    return Lying(
        pairs // node_count, pairs % node_count, summed(heads), summed(going), summed(leaving)
    )


class QueueCharges:
    """What queues themselves have, [queue][kind]; what is below them is not in it yet.

    Numbers of any size: they are cut when all is added up, and not before.
    """

    def __init__(self, rows: int, roll: Roll, heads: Ints, counted: Ints) -> None:
        """Charge what is there, pods that are stuck as well, and what waits.

        *heads* are [kin, state]; there are so many *rows* of queues.
        """
        kins, size = roll.kins, len(heads)
        stuck = roll.kin[_lying_in(roll, STUCK)]
        queue, there = kins.queue[:size], heads[:, THERE] + np.bincount(stuck, minlength=size)
        wanted = there + np.where(kins.is_heard[:size], heads[:, WAITING], 0)
        fixed = np.where(kins.is_fixed[:size], there, 0)
        self.allocated: Final = _of_queues(queue, counted, there, rows)
        self.fixed: Final = _of_queues(queue, counted, fixed, rows)
        self.requested: Final = _of_queues(queue, counted, wanted, rows)

    def hold(self, queue: int, amounts: Sequence[int], *, is_fixed: bool) -> None:
        """Charge slots."""
        for table in (self.allocated, self.requested, *[self.fixed] * is_fixed):
            _add(table[queue], amounts)

    def expect(self, queue: int, amounts: Sequence[int]) -> None:
        """Ask for pods that come later and have no slots; below zero for what asks twice."""
        _add(self.requested[queue], amounts)


def goings(roll: Roll, counted: Ints) -> tuple[Going, ...]:
    """Return what pods that are being released have of their queues, by queue and node."""
    slots = _lying_in(roll, RELEASING)
    queue = roll.kins.queue[roll.kin[slots]]
    slots, queue = slots[queue != NONE], queue[queue != NONE]
    places, at = np.unique(np.stack((queue, roll.node[slots])), axis=1, return_inverse=True)
    each = np.ones(len(slots), dtype=np.int64)
    amounts = sums(at.reshape(-1), counted[roll.kin[slots]], each, places.shape[1])
    return tuple(
        Going(of, node, (cpu, memory, gpu))
        for (of, node), (cpu, memory, gpu) in zip(places.T.tolist(), amounts.tolist(), strict=True)
    )


def _lying_in(roll: Roll, state: int) -> Ints:
    """Return the slots of pods in a state, on nodes where they may still run.

    Of a node that is gone or not ready nobody is there to say that they are gone: nothing of it can
    be used, and who lost its pods there gets others elsewhere.
    """
    slots = np.flatnonzero(roll.state == state)
    rows = np.unique(roll.node[slots]).tolist()
    return slots[np.isin(roll.node[slots], [row for row in rows if roll.nodes.is_ready(row)])]


def _of_queues(queue: Ints, counted: Ints, heads: Ints, size: int) -> list[list[int]]:
    chosen = np.flatnonzero((queue != NONE) & (heads > 0))
    return exact(queue[chosen], counted[chosen], heads[chosen], size)


def _add(row: list[int], amounts: Sequence[int]) -> None:
    for kind, amount in enumerate(amounts):
        row[kind] += amount
