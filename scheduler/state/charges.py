"""What pods have: of their nodes, and of their queues."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Ints, Kind, NodeFault
from scheduler.state.asks import Asks
from scheduler.state.gangs import Gang, Gangs
from scheduler.state.nodes import NodeRows
from scheduler.state.queues import QueueRows
from scheduler.state.roll import RELEASING, STATES, STUCK, THERE, WAITING, Roll
from scheduler.state.standing import Standings

__all__ = ["Lying", "QueueCharges", "joined", "lying", "node_charges", "total"]


class Lying(NamedTuple):
    """How many pods of which kin lie on which node: one row for each pair, sorted."""

    kin: Ints
    node: Ints
    heads: Ints
    going: Ints  # of them those that are being released
    leaving: Ints  # of them those that are going, also those that never come to it


def lying(roll: Roll, node_count: int) -> Lying:
    """Count the pods on each node; who is done has nothing."""
    is_there = roll.node != NONE  # who waits or is done is on none
    pair = roll.kin[is_there] * node_count + roll.node[is_there]
    pairs, at, count = np.unique(pair, return_inverse=True, return_counts=True)
    states = roll.state[is_there]
    going = np.bincount(at[states == RELEASING], minlength=len(pairs)).astype(np.int64)
    stuck = np.bincount(at[states == STUCK], minlength=len(pairs)).astype(np.int64)
    kin, node = pairs // max(node_count, 1), pairs % max(node_count, 1)
    return Lying(kin, node, count, going, going + stuck)


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


def node_charges(on: Lying, request: Ints, shape: tuple[int, int]) -> tuple[Ints, Ints]:
    """Return what is used, and what of it is being released, [node, resource]."""
    used, releasing = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    asked = request[on.kin]
    np.add.at(used, on.node, asked * on.heads[:, None])
    some = on.going > 0
    np.add.at(releasing, on.node[some], asked[some] * on.going[some, None])
    return used, releasing


def total(
    nodes: NodeRows, allocatable: Ints, asks: Asks, on: Lying, is_foreign: Bools
) -> tuple[int, int, int]:
    """Return what usable nodes have, less what pods of other schedulers have there."""
    usable = nodes.faults == NodeFault.NONE
    whole = [int(amount) for amount in (allocatable[usable] @ asks.columns.weighted).sum(axis=0)]
    foreign = usable[on.node] & is_foreign[on.kin]
    taken = asks.counted[on.kin[foreign]] * on.heads[foreign, None]
    cpu, memory, gpu = (
        max(has - int(less), 0) for has, less in zip(whole, taken.sum(axis=0), strict=True)
    )
    return cpu, memory, gpu


class QueueCharges:
    """What queues themselves have, [queue, kind]; what is below them is not in it yet."""

    def __init__(self, queues: QueueRows, kins: int) -> None:
        size = (len(queues.names), len(Kind))
        self.allocated: Final[Ints] = np.zeros(size, dtype=np.int64)
        self.fixed: Final[Ints] = np.zeros(size, dtype=np.int64)
        self.requested: Final[Ints] = np.zeros(size, dtype=np.int64)
        self._queues: Final = queues
        self._queue: Final[Ints] = np.full(kins, NONE, dtype=np.int64)
        self._is_fixed: Final[Bools] = np.zeros(kins, dtype=np.bool_)
        self._of_gang: Final[dict[int, tuple[int, bool]]] = {}

    def assign(self, gangs: Gangs, standings: Standings) -> None:
        """Say whose queues the kin charge."""
        for gang in gangs.gangs:
            standing = standings.of_gang(gang)
            row = self._queues.row_of(standing.queue)
            self._of_gang[gang.number] = row, not standing.is_preemptible
            for kin in gang.kins:
                self._queue[kin], self._is_fixed[kin] = row, not standing.is_preemptible
        for kin in np.flatnonzero(gangs.is_alone).tolist():
            standing = standings.of_alone(kin)
            self._queue[kin] = self._queues.row_of(standing.queue)
            self._is_fixed[kin] = not standing.is_preemptible

    def charge(self, roll: Roll, counted: Ints, is_wanting: Bools) -> None:
        """Charge what is there, and what waits; *is_wanting*, [kin], says whose waiting counts."""
        size = len(is_wanting)  # kin that have pods
        codes = roll.kin * STATES + roll.state
        heads = np.bincount(codes, minlength=size * STATES).reshape(size, STATES)
        there = heads[:, THERE]
        wanted = there + np.where(is_wanting, heads[:, WAITING], 0)
        self._add(self.allocated, counted, there)
        self._add(self.fixed, counted, np.where(self._is_fixed[:size], there, 0))
        self._add(self.requested, counted, wanted)

    def hold(self, gang: Gang, counted: Ints, slots: int) -> None:
        """Charge slots."""
        queue, is_fixed = self._of_gang[gang.number]
        if queue != NONE:
            self.allocated[queue] += counted * slots
            self.requested[queue] += counted * slots
            if is_fixed:
                self.fixed[queue] += counted * slots

    def expect(self, gang: Gang, counted: Ints, later: int) -> None:
        """Ask for pods that come later and have no slots; below zero for what asks twice."""
        queue, _ = self._of_gang[gang.number]
        if queue != NONE:
            self.requested[queue] += counted * later

    def _add(self, table: Ints, counted: Ints, heads: Ints) -> None:
        chosen = np.flatnonzero((self._queue[: len(heads)] != NONE) & (heads > 0))
        np.add.at(table, self._queue[chosen], counted[chosen] * heads[chosen, None])
