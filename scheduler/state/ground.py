"""What lies on each node, and what that leaves: looked at again where something has changed."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.core.model import Ints, Kind, Neighbours, NodeFault, Nodes
from scheduler.core.sums import SUM_MOST, sums, total
from scheduler.state.charges import Lying, joined, lying
from scheduler.state.codes import Codes
from scheduler.state.devices import DeviceRows
from scheduler.state.nodes import NodeRows
from scheduler.state.roll import Roll

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Ground"]


class Ground:
    """Tables by node, in the rows of the codes for which they were made."""

    def __init__(self, codes: Codes, nodes: NodeRows, roll: Roll) -> None:
        self._codes: Final = codes
        self._nodes: Final = nodes
        self._roll: Final = roll
        size, width = len(nodes), len(codes.asks.columns.names)
        crowd = codes.neighbours
        self._allocatable: Final[Ints] = nodes.allocatable(codes.asks.columns, range(size))
        self._used: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._releasing: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._foreign: Final[Ints] = np.zeros((size, len(Kind)), dtype=np.int64)
        self._ports: Final = np.zeros((size, len(codes.ports.known)), dtype=np.int32)
        self._counts: Final = np.zeros((len(crowd.selectors), size), dtype=np.int32)
        self._holders: Final = np.zeros((len(crowd.terms), size), dtype=np.int32)
        self._labels: NDArray[np.int32] = codes.labels.table()
        self.devices: Final = DeviceRows(roll, codes.asks, nodes)

    def read_capacity(self, rows: Iterable[int]) -> None:
        """Take what some nodes have now."""
        known = list(rows)
        if known:
            self._allocatable[known] = self._nodes.allocatable(self._codes.asks.columns, known)

    def read(self, rows: Iterable[int], held: Mapping[tuple[int, int], int]) -> None:
        """Look again at what lies on some nodes; *held* are slots, by kin and node."""
        chosen = np.array(sorted(rows), dtype=np.int64)
        is_meant = np.zeros(len(self._nodes) + 1, dtype=np.bool_)
        is_meant[chosen] = True
        on = lying(self._roll, is_meant)
        slots = {pair: count for pair, count in held.items() if is_meant[pair[1]]}
        size = len(self._nodes)
        beside = joined(on, slots, size + 1)
        self._charge(chosen, on, beside)
        self.devices.read(chosen.tolist(), is_meant)
        self.devices.charge(chosen.tolist(), self._allocatable, self._used, self._releasing)
        counts, holders = self._codes.neighbours.counts(beside, size)
        self._counts[:, chosen], self._holders[:, chosen] = counts[:, chosen], holders[:, chosen]
        taken = self._codes.ports.taken(beside, self._roll.kins, size)
        self._ports[chosen] = taken[chosen]

    def table(self) -> Nodes:
        """Return the nodes less what is on them: pods, shared devices, slots."""
        codes, nodes = self._codes, self._nodes
        if self._labels.shape[1] != len(codes.labels.key_names):
            self._labels = codes.labels.table()
        return Nodes(
            names=nodes.names,
            allocatable=self._allocatable.copy(),
            idle=self._allocatable - self._used,
            releasing=self._releasing.copy(),
            fault=nodes.faults.copy(),
            labels=self._labels,
            taints=codes.taints.table,
            ports=self._ports.copy(),
            key_names=codes.labels.key_names,
            taint_names=codes.taints.names,
        )

    def neighbours(self, placed: tuple[tuple[int, int], ...]) -> Neighbours:
        """Return who lies where; *placed* are the node and the users of each shared claim."""
        return Neighbours(
            counts=self._counts.copy(),
            terms=self._codes.neighbours.terms,
            holders=self._holders.copy(),
            claim_node=tuple(node for node, _ in placed),
            claim_users=tuple(users for _, users in placed),
        )

    def total(self) -> tuple[int, int, int]:
        """Return what usable nodes have, less what pods of other schedulers have there."""
        usable = self._nodes.faults == NodeFault.NONE
        whole = self._codes.asks.columns.counted_capacity(self._allocatable[usable])
        taken = self._foreign[usable]
        cpu, memory, gpu = (
            min(max(total(whole[:, kind]) - total(taken[:, kind]), 0), SUM_MOST) for kind in Kind
        )
        return cpu, memory, gpu

    def _charge(self, rows: Ints, on: Lying, beside: Lying) -> None:
        """Charge pods and, *beside* them, slots to their nodes; what is released is used as well.

        On a node that is charged with more than can be counted nothing is released.
        """
        asks, is_foreign = self._codes.asks, self._roll.kins.is_foreign

        def charged(amounts: Ints, of: Lying, heads: Ints) -> Ints:
            some = heads > 0
            at = np.searchsorted(rows, of.node[some])
            return sums(at, amounts[of.kin[some]], heads[some], len(rows))

        used = charged(asks.request, beside, beside.heads)
        self._used[rows] = used
        going = charged(asks.request, on, on.going)
        self._releasing[rows] = np.where(used < SUM_MOST, going, 0)
        foreign = np.where(is_foreign[on.kin], on.heads, 0)
        self._foreign[rows] = charged(asks.counted, on, foreign)
