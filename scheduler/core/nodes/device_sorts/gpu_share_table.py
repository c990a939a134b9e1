"""Shared GPUs: what is used of each of a node, and how much of it a share is.

A shared GPU has two numbers, as resources have idle and free: what is used now, terminating pods
included, and what is used once these have terminated, pods that wait included. Whole GPUs follow
from that: a GPU is shared as long as something of it is used.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE, DeviceSort, Ints, devices_of
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.statement import Change, Participant

WHOLE_GPU: Final = 1000
_CLOSED: Final = 10**12  # is added to what is used of a GPU that takes no further share

Slots: TypeAlias = tuple[int, ...]


class _SharedGpuTable:
    """The shared GPUs of all nodes as arrays, in which they are found at once.

    It is as large as there are such GPUs: a node can have more than it has GPUs, as users can put
    any number of pods onto it.
    """

    def __init__(self) -> None:
        self._row: Final[dict[tuple[int, int], int]] = {}  # by node and slot
        self._table: Ints = np.zeros((3, 64), dtype=np.int64)  # node, later and now of each row

    def write(self, is_now: bool, node: int, slot: int, amount: int) -> None:
        row = self._row.setdefault((node, slot), len(self._row))
        if row == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        self._table[0, row] = node
        self._table[1 + is_now, row] = amount

    def columns(self) -> tuple[Ints, Ints, Ints]:
        node, later, now = self._table[:, : len(self._row)]
        return node, later, now


class GpuShareTable(Participant):
    """The shared GPUs of all nodes; a GPU that begins to be shared is a whole GPU less."""

    def __init__(self, snapshot: Snapshot, resources: NodeResources) -> None:
        devices = snapshot.devices
        self.snapshot: Final = snapshot
        self.resources: Final = resources
        self.now: Final[dict[int, list[int]]] = {}  # by node, by slot: thousandths
        self.later: Final[dict[int, list[int]]] = {}
        self._closed: Final[set[tuple[int, int]]] = set()  # nodes and slots
        columns = devices.node.tolist(), devices.used.tolist(), devices.releasing.tolist()
        for row, (node, used, releasing) in enumerate(zip(*columns, strict=True)):
            now, later = self.now.setdefault(node, []), self.later.setdefault(node, [])
            if row in devices.closed:
                self._closed.add((node, len(now)))
            now.append(self.changed(node, len(now), 0, used))
            later.append(self.changed(node, len(later), 0, used - releasing))
        # Of all shared GPUs; of closed ones what is free as soon as all their shares are evicted.
        self.free_shares = sum([_unused(it) for used in self.later.values() for it in used])
        self.column: Final[list[int]] = gpu_columns(snapshot).tolist()  # [node] of whole GPUs
        self._known: Final = {node: len(slots) for node, slots in self.now.items()}
        self._table: _SharedGpuTable | None = None  # the same, from when it is first needed
        self.pods: Final = snapshot.resources.pods
        # Nodes with equal memory of a GPU are of one kind; nodes have few, signatures may be many.
        memories, kinds = np.unique(snapshot.nodes.gpu_memory, return_inverse=True)
        self.kinds: Final[Ints] = kinds.astype(np.int64)
        self.kind_of: Final[list[int]] = kinds.tolist()
        # By signature: a share, or shares by kind.
        self._shares: Final = [
            tuple(_shares_of_memory(memories, it.device_memory).tolist())
            if it.device_memory and not it.device_share
            else it.device_share
            for it in snapshot.signatures
        ]
        self.device_count: Final = [it.shared_devices for it in snapshot.signatures]

    def concerns(self, signature: int, /) -> bool:
        return self.device_count[signature] > 0

    def share(self, signature: int, node: int) -> int:
        share = self._shares[signature]
        return share if isinstance(share, int) else share[self.kind_of[node]]

    def changed(self, node: int, slot: int, used: int, amount: int) -> int:
        """Return what is used of a GPU after an amount is added, or removed if it is negative.

        As long as a share of a closed GPU is used it counts as far more than a whole one.
        """
        if not self._closed or (node, slot) not in self._closed:
            return used + amount
        shares = used % _CLOSED + amount
        return shares + _CLOSED if shares > 0 else 0

    def used_later(self, node: int) -> Sequence[int]:
        return self.later.get(node, ())

    def rooms(self, node: int) -> int:
        return sum(map(_free_share, self.later.get(node, ())))

    def unused_slots(self, node: int) -> Iterator[int]:
        """Yield the slots of GPUs that no pod shares, first slots that were used before."""
        later, now = self.later.get(node, []), self.now.get(node, [])
        size = max(len(later), len(now))
        for slot in range(size):
            if not (used_of(later, slot) or used_of(now, slot)):
                yield slot
        while True:
            yield size
            size += 1

    def columns(self) -> tuple[Ints, Ints, Ints]:
        if self._table is None:
            self._table = table = _SharedGpuTable()
            for is_now, by_node in ((False, self.later), (True, self.now)):
                for node, used in by_node.items():
                    for slot, amount in enumerate(used):
                        table.write(is_now, node, slot, amount)
        return self._table.columns()

    def add(self, change: Change, /) -> None:
        """Add shares, and count GPUs that begin or cease to be shared as whole GPUs.

        A GPU that begins to be shared also takes a place for its reservation pod.
        """
        node, slots = change.node, devices_of(change.held, DeviceSort.GPU_SHARE)
        column = self.column[node]
        if not slots or column == NONE:  # the node has lost its GPUs
            return
        amount = change.pod_count * self.share(change.signature, node)
        for is_now, gpus, is_new in self._change(node, slots, amount, changes_now=change.on_idle):
            amounts = self.resources.idle if is_now else self.resources.free
            amounts[node, column] -= gpus * WHOLE_GPU
            amounts[node, self.pods] -= gpus * is_new

    def _change(
        self, node: int, slots: Slots, amount: int, *, changes_now: bool
    ) -> Iterator[tuple[bool, int, bool]]:
        """Add an amount to each GPU; a negative one removes it.

        Yield what that does to whole GPUs: of what is idle or of what is free, how many more of
        them are used, and whether the GPU was not shared in the snapshot.
        """
        views = ((True, self.now), (False, self.later)) if changes_now else ((False, self.later),)
        for is_now, used_by_node in views:
            used = used_by_node.setdefault(node, [])
            for slot in slots:
                if slot >= len(used):
                    used.extend([0] * (slot + 1 - len(used)))
                before = used[slot]
                after = used[slot] = self.changed(node, slot, before, amount)
                if not is_now:
                    self.free_shares += _unused(after) - _unused(before)
                if self._table is not None:
                    self._table.write(is_now, node, slot, after)
                if (before > 0) != (after > 0):
                    yield is_now, 1 if after > 0 else -1, slot >= self._known.get(node, 0)


def _unused(used: int) -> int:
    return _free_share(used % _CLOSED) if used > 0 else 0


def _free_share(used: int) -> int:
    """Return what is free of a shared GPU; one of which nothing is used is not shared."""
    return max(WHOLE_GPU - used, 0) if used > 0 else 0


def used_of(used: Sequence[int], slot: int) -> int:
    return used[slot] if slot < len(used) else 0


def gpu_columns(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the resource of the whole GPUs of each node, [node], or NONE."""
    found = np.full(len(snapshot.nodes.names), NONE, dtype=np.int64)
    for column in reversed(snapshot.resources.gpus):
        found[snapshot.nodes.allocatable[:, column] > 0] = column
    return found


def whole_gpus(snapshot: Snapshot) -> Ints:
    """Return how many GPUs each node has that can be shared, [node]."""
    column = gpu_columns(snapshot)
    number: Ints = snapshot.nodes.allocatable[np.arange(len(column)), np.maximum(column, 0)]
    return np.where(column == NONE, 0, number // WHOLE_GPU)


def share_on_nodes(snapshot: Snapshot, signature: SchedulingSignature) -> Ints:
    """Return the thousandths of each GPU that a pod requests, [node]; more than a GPU fits none."""
    memory = snapshot.nodes.gpu_memory
    if signature.device_share or not signature.device_memory:
        return np.full(len(memory), signature.device_share, dtype=np.int64)
    return _shares_of_memory(memory, signature.device_memory)


def _shares_of_memory(memory: Ints, requested: int) -> Ints:
    """Return the thousandths of GPUs with so much memory that a request for memory is."""
    share: Ints = -(-100 * requested // np.maximum(memory, 1)) * 10
    return np.where(memory > 0, np.minimum(share, 2 * WHOLE_GPU), 2 * WHOLE_GPU)


def least_share(snapshot: Snapshot, signature: SchedulingSignature) -> int:
    if signature.device_share or not len(snapshot.nodes.gpu_memory):
        return signature.device_share
    return int(share_on_nodes(snapshot, signature).min())


def fitting_when_empty(snapshot: Snapshot, amounts: Ints, signature: SchedulingSignature) -> Ints:
    """Return how many pods with shares fit on the GPUs of each node, [node].

    Each GPU needs a place for its reservation pod: with more GPUs more shares fit,
    and for fewer pods. The most fit with one of the two numbers where these cross.
    """
    devices, column = signature.shared_devices, gpu_columns(snapshot)
    gpus = amounts[np.arange(len(column)), np.maximum(column, 0)] // WHOLE_GPU
    gpus = np.where(column == NONE, 0, gpus)
    places = amounts[:, snapshot.resources.pods]
    each = WHOLE_GPU // np.clip(share_on_nodes(snapshot, signature), 1, 2 * WHOLE_GPU)
    crossing = -(-(places + 1) * devices // (each + devices)) - 1
    found: Ints = np.zeros(len(column), dtype=np.int64)
    for used in (crossing, crossing + 1):
        shared = np.minimum(np.maximum(used, devices), gpus)
        fitting = np.minimum(shared * each // devices, places - shared)
        found = np.maximum(found, np.where(shared >= devices, fitting, 0))
    return found
