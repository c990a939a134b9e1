"""Shares of GPUs: what is used of each shared GPU of a node, and which GPUs a share gets.

A shared GPU has two numbers, as resources have idle and free: what is used now, terminating pods
included, and what is used once these have terminated, pods that wait included. Whole GPUs follow
from that: a GPU is shared as long as something of it is used.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.gang import SignatureRuns, Tasks
from scheduler.core.model.podgroup import SchedulingSignature, podsets_of
from scheduler.core.model.resources import NONE, Amounts, Bools, Ints, ResourceKind
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.snapshot import Snapshot

WHOLE_GPU: Final = 1000
_CLOSED: Final = 10**12  # is added to what is used of a GPU that takes no further share
MAX_UNCHARGED: Final = 5  # by how much a share may be larger than what its queue is charged

Slots: TypeAlias = tuple[int, ...]
PlacedPods: TypeAlias = tuple[int, int, int]  # signature, node, and how many


class DeviceChoice(NamedTuple):
    slots: Slots
    on_idle: bool  # all shares fit beside pods that are terminating


class _Fit(NamedTuple):
    """How many GPUs of a node have so much left for one pod."""

    shared: int
    shared_now: int  # of these, GPUs that pods have shares of now, also beside terminating ones
    nominated: int  # of these, GPUs of which pods have no share now: they take an idle whole GPU
    whole: int
    whole_idle: int

    @property
    def now(self) -> int:
        return self.shared_now + min(self.nominated + self.whole, self.whole_idle)


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


class DeviceShares:
    """The shared GPUs of all nodes; `add` and the same with the opposite sign cancel exactly."""

    def __init__(self, snapshot: Snapshot, *, spreads: bool = False) -> None:
        devices = snapshot.devices
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
        self._pods: Final = snapshot.resources.pods
        self._spreads: Final = spreads
        # Nodes with equal memory of a GPU are of one kind; nodes have few, signatures may be many.
        memories, kinds = np.unique(snapshot.nodes.gpu_memory, return_inverse=True)
        self._kinds: Final[Ints] = kinds.astype(np.int64)
        self._kind: Final[list[int]] = kinds.tolist()
        # By signature: a share, or shares by kind.
        self._shares: Final = [
            tuple(_shares_of_memory(memories, it.device_memory).tolist())
            if it.device_memory and not it.device_share
            else it.device_share
            for it in snapshot.signatures
        ]
        self.share_count: Final = _count_shares(snapshot) if devices.ids else 0
        self.devices_of: Final = [it.shared_devices for it in snapshot.signatures]
        self._signatures: Final = snapshot.signatures

    def share(self, signature: int, node: int) -> int:
        share = self._shares[signature]
        return share if isinstance(share, int) else share[self._kind[node]]

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

    def add(
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

    def fits(
        self, signature: int, node: int, free: Sequence[int], idle: Sequence[int]
    ) -> tuple[bool, bool, bool]:
        """Say whether a pod fits on the GPUs of a node, whether now, and whether beside others.

        *free* and *idle* are what the node has of each resource.
        """
        fit = self._fit(signature, node, free, idle)
        needed = self.devices_of[signature]
        return (
            fit.shared + fit.whole >= needed,
            fit.now >= needed,
            fit.shared_now > 0 or min(fit.nominated, fit.whole_idle) > 0,
        )

    def choose(
        self, signature: int, node: int, free: Sequence[int], idle: Sequence[int]
    ) -> DeviceChoice | None:
        share = self.share(signature, node)
        later, now = self.later.get(node, []), self.now.get(node, [])
        fit, needed = self._fit(signature, node, free, idle), self.devices_of[signature]
        sign, most = 1 if self._spreads else -1, WHOLE_GPU - share
        shared = [(sign * used, slot) for slot, used in enumerate(later) if 0 < used <= most]
        unused = self._unused_slots(node)
        whole = [(0, next(unused)) for _ in range(min(fit.whole, needed))]
        if fit.shared + fit.whole < needed:
            return None
        candidates = []
        left = fit.whole_idle
        for used, slot in sorted([*shared, *whole]):
            needs_idle = not _used_of(now, slot)
            waits = left <= 0 if needs_idle else not fit.shared_now or now[slot] > most
            left -= needs_idle
            candidates.append((waits, used, slot))
        chosen = sorted(candidates)[:needed]
        return DeviceChoice(
            tuple([slot for _, _, slot in chosen]), not any(waits for waits, _, _ in chosen)
        )

    def packed(self, signature: int, node: int, free: Sequence[int]) -> Slots | None:
        """Return the GPUs that a reserved place gets, which has none of its own: the fullest."""
        fit, needed = self._fit(signature, node, free, free), self.devices_of[signature]
        most = WHOLE_GPU - self.share(signature, node)
        used_later = enumerate(self.later.get(node, ()))
        fullest = sorted([(-used, slot) for slot, used in used_later if 0 < used <= most])
        slots = [slot for _, slot in fullest[:needed]]
        unused = self._unused_slots(node)
        slots += [next(unused) for _ in range(min(fit.whole, needed - len(slots)))]
        return tuple(slots) if len(slots) == needed else None

    def rooms(self, node: int) -> int:
        return sum(map(_free_share, self.later.get(node, ())))

    def fits_on_nodes(self, signature: int, free: Ints, idle: Ints) -> tuple[Bools, Bools, Bools]:
        """Return the same as `fits` for all nodes, [node]; *free* and *idle* are by resource."""
        nodes, needed = np.arange(len(free)), self.devices_of[signature]
        column = np.array(self.column, dtype=np.int64)
        has_gpu = column != NONE
        whole, whole_idle = _whole_gpus(free, idle, nodes, np.where(has_gpu, column, 0), self._pods)
        shares = self._shares[signature]
        share = (
            np.full(len(nodes), shares)
            if isinstance(shares, int)
            else np.array(shares)[self._kinds]
        )
        node, later, now = self._columns()
        most = WHOLE_GPU - share[node]
        at = np.where(has_gpu, column, 0)
        is_within, is_within_now = (it[nodes, at] >= 0 for it in (free, idle))
        is_room = (has_gpu & is_within)[node] & (later > 0) & (later <= most)
        is_room_now = is_within_now[node] & (now > 0) & (now <= most)
        shared, shared_now, nominated = (
            np.bincount(node[it], minlength=len(nodes))
            for it in (is_room, is_room & is_room_now, is_room & (now == 0))
        )
        has_room = has_gpu & (share <= WHOLE_GPU)
        whole, whole_idle = np.where(has_room, whole, 0), np.where(has_room, whole_idle, 0)
        fits_now = shared_now + np.minimum(nominated + whole, whole_idle)
        has_shared = (shared_now > 0) | (np.minimum(nominated, whole_idle) > 0)
        return shared + whole >= needed, fits_now >= needed, has_shared

    def _columns(self) -> tuple[Ints, Ints, Ints]:
        if self._table is None:
            self._table = table = _SharedGpuTable()
            for is_now, by_node in ((False, self.later), (True, self.now)):
                for node, used in by_node.items():
                    for slot, amount in enumerate(used):
                        table.write(is_now, node, slot, amount)
        return self._table.columns()

    def charge_on(self, signature: int, node: int) -> Amounts:
        it = self._signatures[signature]
        if it.least_queue_request is None:
            return it.queue_request
        cpu, memory, _ = it.queue_request
        return cpu, memory, it.shared_devices * self.share(signature, node)

    def charge_difference(self, pods: Iterable[PlacedPods]) -> int:
        """Return how much more queues are charged for pods on their nodes than on any node."""
        gpu = ResourceKind.GPU
        return sum(
            [
                count * (self.charge_on(row, node)[gpu] - self._signatures[row].queue_request[gpu])
                for row, node, count in pods
            ]
        )

    def _fit(self, signature: int, node: int, free: Sequence[int], idle: Sequence[int]) -> _Fit:
        share, column = self.share(signature, node), self.column[node]
        if share > WHOLE_GPU or column == NONE:
            return _Fit(0, 0, 0, 0, 0)
        if free[column] < 0:  # more GPUs are used than the node has
            return _Fit(0, 0, 0, 0, 0)
        shared, shared_now, nominated = self._shared(node, share)
        whole = max(min(free[column] // WHOLE_GPU, free[self._pods] - 1), 0)
        whole_idle = max(min(idle[column] // WHOLE_GPU, idle[self._pods] - 1), 0)
        shared_now = shared_now if idle[column] >= 0 else 0
        return _Fit(shared, shared_now, nominated, whole, whole_idle)

    def _shared(self, node: int, share: int) -> tuple[int, int, int]:
        shared = shared_now = nominated = 0
        most, now = WHOLE_GPU - share, self.now.get(node, [])
        for slot, used in enumerate(self.later.get(node, ())):
            if 0 < used <= most:
                shared += 1
                used_now = _used_of(now, slot)
                shared_now += 0 < used_now <= most
                nominated += not used_now
        return shared, shared_now, nominated

    def _unused_slots(self, node: int) -> Iterator[int]:
        """Yield the slots of GPUs that no pod shares, first slots that were used before."""
        later, now = self.later.get(node, []), self.now.get(node, [])
        size = max(len(later), len(now))
        for slot in range(size):
            if not (_used_of(later, slot) or _used_of(now, slot)):
                yield slot
        while True:
            yield size
            size += 1


def _unused(used: int) -> int:
    return _free_share(used % _CLOSED) if used > 0 else 0


def _free_share(used: int) -> int:
    """Return what is free of a shared GPU; one of which nothing is used is not shared."""
    return max(WHOLE_GPU - used, 0) if used > 0 else 0


def _used_of(used: Sequence[int], slot: int) -> int:
    return used[slot] if slot < len(used) else 0


def _count_shares(snapshot: Snapshot) -> int:
    places = (
        place
        for podgroup in snapshot.podgroups
        for podset in podsets_of(podgroup.tree)
        for place in podset.reserved_places
    )
    pods = snapshot.devices.slots_of_pod.values()
    return sum(map(len, pods)) + sum([len(place.slots) for place in places])


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


def memory_pods(snapshot: Snapshot, tasks: Tasks, placed: PodGroupAllocation) -> list[PlacedPods]:
    signature_of, signatures = snapshot.pods.signature, snapshot.signatures
    expected = {it.podset.name: it.podset.expected_signature for it in tasks}
    pods = [(int(signature_of[it.pod]), it.node, 1) for it in (*placed.binds, *placed.nominations)]
    pods += [(expected[it.podset], it.node, it.number) for it in placed.reservations]
    return [it for it in pods if signatures[it[0]].least_queue_request is not None]


def most_saved(snapshot: Snapshot, requested: SignatureRuns) -> int:
    """Return how much less pods may be charged on the GPUs with the most memory."""
    found = 0
    for row, count in requested:
        signature = snapshot.signatures[row]
        if signature.least_queue_request is not None:
            gpu, least = signature.queue_request, signature.least_queue_request
            found += count * (gpu[ResourceKind.GPU] - least[ResourceKind.GPU])
    return found


def _whole_gpus(free: Ints, idle: Ints, nodes: Ints, column: Ints, pods: int) -> tuple[Ints, Ints]:
    """Return how many whole GPUs are free and idle, with a place for their reservation pods."""
    whole = np.minimum(free[nodes, column] // WHOLE_GPU, free[:, pods] - 1).clip(min=0)
    whole_idle = np.minimum(idle[nodes, column] // WHOLE_GPU, idle[:, pods] - 1).clip(min=0)
    return whole, whole_idle
