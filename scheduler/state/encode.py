"""From the objects of a cluster to the rows and codes of a snapshot, and which row is whose.

What is wrong with one object is a verdict on its unit, or a note that it was left aside; it is
never an error, and nobody else's problem.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import Devices, Neighbours, Nodes, Queues, Snapshot
from scheduler.state.after import Afters
from scheduler.state.asks import Asks
from scheduler.state.bars import Bars
from scheduler.state.charges import Lying, QueueCharges, joined, lying, node_charges, total
from scheduler.state.cluster import Cluster
from scheduler.state.devices import DeviceRows
from scheduler.state.gangs import Gangs
from scheduler.state.headcount import Headcount
from scheduler.state.holdings import Holdings
from scheduler.state.nodes import NodeRows
from scheduler.state.queues import QueueRows
from scheduler.state.roll import WAITING, Roll
from scheduler.state.shapes import Shapes
from scheduler.state.standing import Standings
from scheduler.state.terms import Stray, Terms
from scheduler.state.ties import Present, Ties, read_ties
from scheduler.state.units import Units
from trainer_kai.api.meta import Key

__all__ = ["Encoded", "Stray", "Terms", "encode"]


@dataclass(frozen=True)
class Encoded:
    """A snapshot, and what its rows are called."""

    snapshot: Snapshot
    pods: tuple[Key, ...]  # by row
    units: tuple[Key, ...]  # by row: namespace, and the name of the group
    strays: tuple[Stray, ...]  # what was left aside
    reserved: Mapping[int, str] = field(default_factory=dict)  # by unit: the annotation that it has


def encode(cluster: Cluster, terms: Terms) -> Encoded:
    """Return the snapshot of a cluster; the order of its objects does not matter."""
    rows = _read(cluster, terms)
    on = lying(rows.roll, len(rows.nodes))
    wanting = _wanting(rows)
    asks = Asks(rows.roll.kins, wanting, rows.nodes, terms.gpu_resources)
    holdings = Holdings(rows.roll, rows.gangs, rows.heads, rows.nodes)
    holdings.read()
    beside = joined(on, _held(holdings), len(rows.nodes))
    kins = Present(_present(rows, on, wanting), _to_come(rows, holdings))
    ties = read_ties(cluster, rows.roll, rows.nodes, beside, kins)
    shapes = Shapes(rows.roll.kins, asks, rows.nodes, ties)
    bars = Bars(rows.roll, rows.queues, rows.standings)
    after = Afters(rows.roll, rows.gangs, rows.heads)
    bars.read(rows.gangs, asks.sharing, ties.claims.bars, after)
    units, names, pods = Units(
        rows.roll, rows.gangs, rows.heads, rows.standings, bars, rows.queues, shapes, holdings
    ).table()
    neighbours = _neighbours(ties, beside, len(rows.nodes))
    queues = _queues(rows, asks, holdings, bars)
    nodes, devices = _nodes(rows, asks, on, holdings, ties.ports.taken(beside, len(rows.nodes)))
    snapshot = Snapshot(
        axes=asks.columns.axes,
        nodes=nodes,
        devices=devices,
        neighbours=neighbours,
        queues=queues,
        shapes=shapes.table(),
        pods=pods,
        units=units,
        total=total(rows.nodes, nodes.allocatable, asks, on, rows.gangs.is_foreign),
        now=terms.now,
    )
    held = {Key(*gang.key): text for gang, text in holdings.texts()}
    return Encoded(
        snapshot=snapshot,
        pods=tuple(rows.roll.keys[number] for number in rows.heads.rows.tolist()),
        units=names,
        strays=(*rows.nodes.strays, *rows.queues.strays, *rows.gangs.strays, *holdings.strays),
        reserved={row: held[name] for row, name in enumerate(names) if name in held},
    )


class _Rows(NamedTuple):
    """What is read before anybody asks for room."""

    nodes: NodeRows
    queues: QueueRows
    roll: Roll
    gangs: Gangs
    heads: Headcount
    standings: Standings


def _read(cluster: Cluster, terms: Terms) -> _Rows:
    nodes = NodeRows(cluster.nodes)
    roll = Roll(cluster.pods, nodes.row_of, terms)
    gangs = Gangs(cluster, roll, terms)
    return _Rows(
        nodes=nodes,
        queues=QueueRows(cluster.queues),
        roll=roll,
        gangs=gangs,
        heads=Headcount(roll, gangs),
        standings=Standings(cluster.priority_classes, roll.kins, terms.default_queue),
    )


def _wanting(rows: _Rows) -> list[int]:
    """Return the kin whose pods wait or come later: what they ask for has a column."""
    later = {number for gang in rows.gangs.gangs for number, _ in gang.later.values()}
    waiting = np.unique(rows.roll.kin[rows.roll.state == WAITING]).tolist()
    return sorted(later | {number for number in waiting if rows.gangs.is_ours[number]})


def _held(holdings: Holdings) -> Counter[tuple[int, int]]:
    """Return how many slots there are, by kin and node."""
    return Counter((kin, node) for _, _, kin, nodes in holdings.charges() for node in nodes)


def _to_come(rows: _Rows, holdings: Holdings) -> Counter[int]:
    """Return how many pods of each kin may yet be made."""
    found = Counter(kin for _, _, kin, nodes in holdings.charges() for _ in nodes)
    for gang in rows.heads.listed:
        for leaf, (kin, _) in gang.later.items():
            found[kin] += rows.heads.later(gang, leaf)
    return found


def _present(rows: _Rows, on: Lying, wanting: list[int]) -> tuple[int, ...]:
    """Return the kin that lie somewhere, want to, or are of gangs that may keep room for them."""
    of_gangs = (number for gang in rows.heads.listed for number in gang.kins)
    gated = rows.roll.kin[rows.heads.is_row].tolist()
    return tuple(sorted({*on.kin.tolist(), *wanting, *of_gangs, *gated}))


def _nodes(
    rows: _Rows, asks: Asks, on: Lying, holdings: Holdings, ports: NDArray[np.int32]
) -> tuple[Nodes, Devices]:
    """Return nodes less what is on them: pods, shared devices, slots."""
    nodes = rows.nodes
    allocatable = nodes.allocatable(asks.columns)
    used, releasing = node_charges(on, asks.request, allocatable.shape)
    devices = DeviceRows(rows.roll, asks, nodes)
    devices.charge(allocatable, used, releasing)
    for (kin, node), count in _held(holdings).items():
        used[node] += asks.request[kin] * count
    table = Nodes(
        names=nodes.names,
        allocatable=allocatable,
        idle=allocatable - used,
        releasing=releasing,
        fault=nodes.faults,
        labels=nodes.labels.table(),
        taints=nodes.taints.table,
        ports=ports,
        key_names=nodes.labels.key_names,
        taint_names=nodes.taints.names,
    )
    return table, devices.table()


def _neighbours(ties: Ties, on: Lying, nodes: int) -> Neighbours:
    counts, holders = ties.neighbours.counts(on, nodes)
    return Neighbours(
        counts=counts,
        terms=ties.neighbours.terms,
        holders=holders,
        claim_node=ties.claims.node,
        claim_users=ties.claims.users,
    )


def _queues(rows: _Rows, asks: Asks, holdings: Holdings, bars: Bars) -> Queues:
    charges = QueueCharges(rows.queues, len(rows.roll.kins))
    charges.assign(rows.gangs, rows.standings)
    is_wanting = bars.wanting(rows.gangs)
    charges.charge(rows.roll, asks.counted, is_wanting)
    unclaimed: dict[tuple[int, str], int] = {}
    for gang, leaf, kin, slots in holdings.charges():
        charges.hold(gang, asks.counted[kin], len(slots))
        claiming = rows.heads.waiting(gang, leaf)[: len(slots)]
        unclaimed[gang.number, leaf] = len(slots) - len(claiming)
        if bars.is_heard(gang):  # what it waits for is its own slot
            for pod in rows.heads.rows[list(claiming)].tolist():
                charges.expect(gang, asks.counted[rows.roll.kin[pod]], -1)
    for gang in rows.heads.listed:
        if bars.is_heard(gang) and rows.heads.is_wanting(gang):
            for leaf, (kin, _) in gang.later.items():
                later = rows.heads.later(gang, leaf) - unclaimed.get((gang.number, leaf), 0)
                charges.expect(gang, asks.counted[kin], max(later, 0))
    return rows.queues.table(charges.allocated, charges.fixed, charges.requested)
