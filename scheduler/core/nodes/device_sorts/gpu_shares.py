"""Shares of GPUs: which GPUs a share gets, how many pods fit, and what is missing."""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.podgroup import ReservedPlace, podsets_of
from scheduler.core.model.rejections import DeviceShortage, ReservationPodPlaces, ShareShortage
from scheduler.core.model.resources import NONE, Bools, DeviceSort, Ints, ResourceKind
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.device_sorts.gpu_share_table import (
    WHOLE_GPU,
    GpuShareTable,
    Slots,
    fitting_when_empty,
    least_share,
    share_on_nodes,
    used_of,
)
from scheduler.core.nodes.devices import DeviceChoice, DeviceFit, DeviceFits, DeviceParticipant
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.statement import Change

_MAX_UNCHARGED: Final = 5  # by how much a share may be larger than what its queue is charged


class _Fit(NamedTuple):
    """How many GPUs of a node have so much left for one pod."""

    shared: int
    shared_now: int  # of these, GPUs that pods have shares of now, also beside terminating ones
    nominated: int  # of these, GPUs of which pods have no share now: they take an idle whole GPU
    whole: int
    whole_idle: int


class _FreeGpus(NamedTuple):
    """What a node has free of GPUs for a pod that requests shares, in thousandths."""

    node: int
    share: int  # of each GPU that the pod requests there
    free: int  # of each of so many GPUs as the pod requests: the ones with the most
    total: int
    new_gpus: int  # GPUs of the pod that no pod shares yet: each needs a reservation pod
    places: int  # for these


class GpuShares(GpuShareTable, DeviceParticipant):
    sort = DeviceSort.GPU_SHARE

    def __init__(self, snapshot: Snapshot, resources: NodeResources, policies: Policies) -> None:
        super().__init__(snapshot, resources)
        self._spreads: Final = policies.spreads_shares
        self._share_count: Final = _count_shares(snapshot) if snapshot.devices.ids else 0

    def fits(
        self, signature: int, node: int, free: Sequence[int], idle: Sequence[int], /
    ) -> DeviceFit:
        shared, shared_now, nominated, whole, whole_idle = self._fit(signature, node, free, idle)
        needed = self.device_count[signature]
        return (
            shared + whole >= needed,
            shared_now + min(nominated + whole, whole_idle) >= needed,
            shared_now > 0 or min(nominated, whole_idle) > 0,
        )

    def choose(
        self, signature: int, node: int, free: Sequence[int], idle: Sequence[int], /
    ) -> DeviceChoice | None:
        share = self.share(signature, node)
        later, now = self.later.get(node, []), self.now.get(node, [])
        fit, needed = self._fit(signature, node, free, idle), self.device_count[signature]
        sign, most = 1 if self._spreads else -1, WHOLE_GPU - share
        shared = [(sign * used, slot) for slot, used in enumerate(later) if 0 < used <= most]
        unused = self.unused_slots(node)
        whole = [(0, next(unused)) for _ in range(min(fit.whole, needed))]
        if fit.shared + fit.whole < needed:
            return None
        candidates = []
        left = fit.whole_idle
        for used, slot in sorted([*shared, *whole]):
            needs_idle = not used_of(now, slot)
            waits = left <= 0 if needs_idle else not fit.shared_now or now[slot] > most
            left -= needs_idle
            candidates.append((waits, used, slot))
        chosen = sorted(candidates)[:needed]
        return DeviceChoice(
            tuple([slot for _, _, slot in chosen]), not any(waits for waits, _, _ in chosen)
        )

    def choose_reserved(self, signature: int, node: int, free: Sequence[int], /) -> Slots | None:
        """Return the fullest GPUs with so much free, as the next snapshot will."""
        fit, needed = self._fit(signature, node, free, free), self.device_count[signature]
        most = WHOLE_GPU - self.share(signature, node)
        used_later = enumerate(self.later.get(node, ()))
        fullest = sorted([(-used, slot) for slot, used in used_later if 0 < used <= most])
        slots = [slot for _, slot in fullest[:needed]]
        unused = self.unused_slots(node)
        slots += [next(unused) for _ in range(min(fit.whole, needed - len(slots)))]
        return tuple(slots) if len(slots) == needed else None

    def fits_on_nodes(self, signature: int, free: Ints, idle: Ints, /) -> DeviceFits:
        nodes, needed = np.arange(len(free)), self.device_count[signature]
        column = np.array(self.column, dtype=np.int64)
        has_gpu = column != NONE
        whole, whole_idle = _whole_gpus(free, idle, nodes, np.where(has_gpu, column, 0), self.pods)
        shares = self._shares[signature]
        share = (
            np.full(len(nodes), shares) if isinstance(shares, int) else np.array(shares)[self.kinds]
        )
        node, later, now = self.columns()
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
        return (shared + whole >= needed, fits_now >= needed, has_shared)

    def fitting_on(self, signature: int, node: int, free: Sequence[int], /) -> int:
        """Return an upper bound of how many pods fit."""
        return self.fitting_beside(signature, node, free, self.used_later(node))

    def fitting_beside(
        self, signature: int, node: int, free: Sequence[int], used: Sequence[int]
    ) -> int:
        """Return the same where so much of the shared GPUs of a node is used."""
        share, column = self.share(signature, node), self.column[node]
        if share > WHOLE_GPU or column == NONE or free[column] < 0:
            return 0
        shares = sum([(WHOLE_GPU - it) // share for it in used if 0 < it < WHOLE_GPU])
        shares += max(free[column] // WHOLE_GPU, 0) * (WHOLE_GPU // share)
        return shares // self.device_count[signature]

    def fitting(self, signature: int, amounts: Ints, /) -> Ints:
        return fitting_when_empty(self.snapshot, amounts, self.snapshot.signatures[signature])

    def request_key(self, signature: int, /) -> Hashable:
        it = self.snapshot.signatures[signature]
        return it.shared_devices, it.device_share, it.device_memory

    def trial(self) -> "GpuShareTrial":
        return GpuShareTrial(self)

    def is_waiting(self, place: ReservedPlace, /) -> bool:
        if not place.slots:
            return False
        idle, devices = self.snapshot.nodes.idle[place.node], self.snapshot.devices
        first = int(np.searchsorted(devices.node, place.node))
        return bool(
            idle[self.column[place.node]] < 0
            or any(devices.used[first + slot] > WHOLE_GPU for slot in place.slots)
        )

    def free_amount(self, kind: ResourceKind, /) -> int:
        return self.free_shares if kind == ResourceKind.GPU else 0

    def free_on(self, nodes: Bools, /) -> int:
        """Return what is free of shared GPUs, on nodes with no more in use than they have."""
        free = self.resources.free
        return sum(
            [
                self.rooms(node)
                for node in self.later
                if nodes[node] and free[node, self.column[node]] >= 0
            ]
        )

    def charged_gpus(self, signature: int, node: int, /) -> int:
        return self.device_count[signature] * self.share(signature, node)

    def uncharged_gpus(self, signature: int, /) -> int:
        """Return what is rounded: queues are charged for hundredths of a share."""
        it = self.snapshot.signatures[signature]
        least = least_share(self.snapshot, it)
        return it.shared_devices * least - it.queue_request[ResourceKind.GPU]

    @property
    def max_uncharged_gpus(self) -> int:
        return _MAX_UNCHARGED * self._share_count

    def requested_gpus(self, signature: int, nodes: Bools, /) -> int:
        it = self.snapshot.signatures[signature]
        least = share_on_nodes(self.snapshot, it)[nodes].min(initial=2 * WHOLE_GPU)
        return it.shared_devices * int(least)

    def empty_request(self, signature: int, /) -> tuple[int, int] | None:
        gpus = self.snapshot.resources.gpus
        return (gpus[0], self.device_count[signature] * WHOLE_GPU) if gpus else None

    def shortage(self, signature: int, nodes: Bools, /) -> DeviceShortage | None:
        found = [_free_gpus(self, signature, node) for node in np.flatnonzero(nodes).tolist()]
        nearest = max(found, key=lambda it: (it.free > 0, it.free - it.share), default=None)
        largest = 0 if nearest is None else nearest.free
        return ShareShortage(
            insufficient=sum([it.free < it.share for it in found]),
            requested=min([it.share for it in found], default=2 * WHOLE_GPU),
            largest_free=largest,
            largest_node=nearest.node if nearest is not None and largest else NONE,
            total_free=sum([it.total for it in found]),
            places=_missing_places(found),
        )

    def _fit(self, signature: int, node: int, free: Sequence[int], idle: Sequence[int]) -> _Fit:
        share, column = self.share(signature, node), self.column[node]
        if share > WHOLE_GPU or column == NONE:
            return _Fit(0, 0, 0, 0, 0)
        if free[column] < 0:  # more GPUs are used than the node has
            return _Fit(0, 0, 0, 0, 0)
        shared, shared_now, nominated = self._shared(node, share)
        whole = max(min(free[column] // WHOLE_GPU, free[self.pods] - 1), 0)
        whole_idle = max(min(idle[column] // WHOLE_GPU, idle[self.pods] - 1), 0)
        shared_now = shared_now if idle[column] >= 0 else 0
        return _Fit(shared, shared_now, nominated, whole, whole_idle)

    def _shared(self, node: int, share: int) -> tuple[int, int, int]:
        shared = shared_now = nominated = 0
        most, now = WHOLE_GPU - share, self.now.get(node, [])
        for slot, used in enumerate(self.later.get(node, ())):
            if 0 < used <= most:
                shared += 1
                used_now = used_of(now, slot)
                shared_now += 0 < used_now <= most
                nominated += not used_now
        return shared, shared_now, nominated


class GpuShareTrial:
    """What would be used of shared GPUs, of nodes with pods that are removed on trial."""

    def __init__(self, shares: GpuShares) -> None:
        self._shares: Final = shares
        self._used: Final[dict[int, list[int]]] = {}

    def release(self, change: Change, devices: Slots, free: list[int], /) -> None:
        """Release shares; a GPU of which nothing is used is free as a whole one."""
        shares, node = self._shares, change.node
        used = self._used.get(node)
        if used is None:
            used = self._used[node] = [*shares.used_later(node)]
        amount = change.pod_count * shares.share(change.signature, node)
        column = shares.column[node]
        for slot in devices:
            before = used[slot]
            used[slot] = shares.changed(node, slot, before, amount)
            if column != NONE and (before > 0) != (used[slot] > 0):
                free[column] -= change.pod_count * WHOLE_GPU

    def fitting_on(self, signature: int, node: int, free: Sequence[int], /) -> int:
        used: Sequence[int] | None = self._used.get(node)
        used = self._shares.used_later(node) if used is None else used
        return self._shares.fitting_beside(signature, node, free, used)


def _count_shares(snapshot: Snapshot) -> int:
    places = (
        place
        for podgroup in snapshot.podgroups
        for podset in podsets_of(podgroup.tree)
        for place in podset.reserved_places
    )
    pods = snapshot.devices.slots_of_pod.values()
    return sum(map(len, pods)) + sum([len(place.slots) for place in places])


def _whole_gpus(free: Ints, idle: Ints, nodes: Ints, column: Ints, pods: int) -> tuple[Ints, Ints]:
    """Return how many whole GPUs are free and idle, with a place for their reservation pods."""
    whole = np.minimum(free[nodes, column] // WHOLE_GPU, free[:, pods] - 1).clip(min=0)
    whole_idle = np.minimum(idle[nodes, column] // WHOLE_GPU, idle[:, pods] - 1).clip(min=0)
    return whole, whole_idle


def _free_gpus(devices: GpuShares, signature: int, node: int) -> _FreeGpus:
    needed = devices.device_count[signature]
    share, free = devices.share(signature, node), devices.resources.free[node].tolist()
    gpus = free[devices.column[node]]
    if gpus < 0:  # more GPUs are used than the node has
        return _FreeGpus(node, share, free=0, total=0, new_gpus=0, places=0)
    whole = gpus // WHOLE_GPU
    shared = sum([0 < used <= WHOLE_GPU - share for used in devices.used_later(node)])
    return _FreeGpus(
        node,
        share,
        free=_room_of_each(devices, node, whole, needed),
        total=whole * WHOLE_GPU + devices.rooms(node),
        new_gpus=max(needed - shared, 0),
        places=max(free[devices.pods] - 1, 0),  # one is for the pod itself
    )


def _room_of_each(devices: GpuShares, node: int, whole: int, needed: int) -> int:
    """Return what at least is free of each of so many GPUs of a node, those with the most."""
    if needed <= whole:
        return WHOLE_GPU
    used = sorted([it for it in devices.used_later(node) if it > 0])[: needed - whole]
    return max(WHOLE_GPU - used[-1], 0) if len(used) == needed - whole else 0


def _missing_places(found: list[_FreeGpus]) -> ReservationPodPlaces | None:
    """Return the places that are missing on nodes with GPUs that have enough free."""
    short = [it for it in found if it.free >= it.share and it.places < it.new_gpus]
    if not short:
        return None
    nearest = min(short, key=lambda it: it.new_gpus - it.places)
    return ReservationPodPlaces(len(short), nearest.new_gpus, nearest.places)
