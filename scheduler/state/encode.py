"""From the objects of a cluster to the rows and codes of a snapshot, and which row is whose.

What is wrong with one object is a verdict on its unit, or a note that it was left aside; it is
never an error, and nobody else's problem.
"""

from dataclasses import dataclass

import numpy as np

from scheduler.core.model import Devices, Neighbours, Nodes, Snapshot
from scheduler.state.asks import Asks
from scheduler.state.bars import Bars
from scheduler.state.charges import QueueCharges, lying, node_charges, total
from scheduler.state.cluster import Cluster
from scheduler.state.gangs import Gangs
from scheduler.state.headcount import Headcount
from scheduler.state.nodes import NodeRows
from scheduler.state.queues import QueueRows
from scheduler.state.roll import WAITING, Roll
from scheduler.state.shapes import Shapes
from scheduler.state.standing import Standings
from scheduler.state.terms import Stray, Terms
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


def encode(cluster: Cluster, terms: Terms) -> Encoded:
    """Return the snapshot of a cluster; the order of its objects does not matter."""
    nodes = NodeRows(cluster.nodes)
    queues = QueueRows(cluster.queues)
    roll = Roll(cluster.pods, nodes.row_of, terms)
    gangs = Gangs(cluster, roll, terms)
    heads = Headcount(roll, gangs)
    standings = Standings(cluster.priority_classes, roll.kins, terms.default_queue)
    asks = Asks(roll.kins, _wanting(roll, gangs), nodes, terms.gpu_resources)
    bars = Bars(roll, queues, standings)
    bars.read(gangs, asks.sharing, (), lambda _: ())
    shapes = Shapes(roll.kins, asks, nodes)
    units, names, pods = Units(roll, gangs, heads, standings, bars, queues, shapes, {}).table()
    on = lying(roll, len(nodes))
    allocatable = nodes.allocatable(asks.columns)
    used, releasing = node_charges(on, asks.request, allocatable.shape)
    charges = QueueCharges(queues, len(roll.kins))
    charges.assign(gangs, standings)
    charges.charge(roll, asks.counted, bars.wanting(gangs))
    snapshot = Snapshot(
        axes=asks.columns.axes,
        nodes=Nodes(
            names=nodes.names,
            allocatable=allocatable,
            idle=allocatable - used,
            releasing=releasing,
            fault=nodes.faults,
            labels=nodes.labels.table(),
            taints=nodes.taints.table,
            ports=np.zeros((len(nodes), 0), dtype=np.int32),
            key_names=nodes.labels.key_names,
            taint_names=nodes.taints.names,
        ),
        devices=_no_devices(),
        neighbours=_no_neighbours(len(nodes)),
        queues=queues.table(charges.allocated, charges.fixed, charges.requested),
        shapes=shapes.table(),
        pods=pods,
        units=units,
        total=total(nodes, allocatable, asks, on, gangs.is_ours),
        now=terms.now,
    )
    keys = tuple(roll.keys[number] for number in heads.rows.tolist())
    strays = (*nodes.strays, *queues.strays, *gangs.strays)
    return Encoded(snapshot, keys, names, strays)


def _wanting(roll: Roll, gangs: Gangs) -> set[int]:
    """Return the kin whose pods wait or come later: what they ask for has a column."""
    later = {number for gang in gangs.gangs for number, _ in gang.later.values()}
    waiting = np.unique(roll.kin[roll.state == WAITING])
    return later | {number for number in waiting.tolist() if gangs.is_ours[number]}


def _no_devices() -> Devices:
    none = np.zeros(0, dtype=np.int64)
    return Devices((), none.astype(np.int32), none, none.copy(), none.copy())


def _no_neighbours(nodes: int) -> Neighbours:
    none = np.zeros((0, nodes), dtype=np.int32)
    return Neighbours(none, (), none.copy(), (), ())
