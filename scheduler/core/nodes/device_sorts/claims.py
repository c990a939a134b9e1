"""Devices of ResourceClaims: which ones a pod gets, on which nodes it fits, and what is missing."""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.claims import (
    PodClaim,
    Slot,
    held_device,
    slot_and_device,
    slots_of,
)
from scheduler.core.model.rejections import ClaimShortage
from scheduler.core.model.resources import NONE, Bools, DeviceSort, Ints, ResourceKind
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.device_sorts.claim_search import Demand, NodeDevicesView, Search
from scheduler.core.nodes.device_sorts.claim_shortage import (
    NodeCounts,
    allocated_elsewhere,
    lacking_request,
    shortage_of,
)
from scheduler.core.nodes.device_sorts.claim_table import ClaimedDeviceTable
from scheduler.core.nodes.devices import DeviceChoice, DeviceFit, DeviceFits, DeviceParticipant
from scheduler.core.nodes.node_resources import UNLIMITED, NodeResources
from scheduler.core.nodes.statement import Change

_GPU: Final = 1000


class _SimpleDemand(NamedTuple):
    """What fits wherever enough devices of each filter are free."""

    needs: tuple[tuple[list[int], list[int], int], ...]  # free, and idle, by node; how many
    parts: tuple[tuple[int, int, int], ...]  # slot, filter and number


class Claims(ClaimedDeviceTable, DeviceParticipant):
    sort = DeviceSort.CLAIM

    def __init__(self, snapshot: Snapshot, _resources: NodeResources, _policies: Policies) -> None:
        super().__init__(snapshot)
        self._snapshot: Final = snapshot
        self._demands: Final[dict[tuple[int, tuple[int, ...]], Demand]] = {}
        # What a search found: by signature, node and view; with the version of the node.
        self._known: Final[
            dict[tuple[int, int, bool], tuple[tuple[int, int], tuple[int, ...] | None]]
        ] = {}
        self._limited: Final[set[tuple[int, int]]] = set()  # signatures and nodes
        self._of_filter: Final[dict[tuple[int, int, bool], tuple[int, ...]]] = {}
        self._kinds: list[int] | None = None
        self._simple: Final[dict[int, _SimpleDemand | None]] = {}  # by signature

    def watch(self, changed_nodes: list[int], /) -> None:
        self.changed_nodes = changed_nodes

    def fits(
        self, signature: int, node: int, _free: Sequence[int], _idle: Sequence[int], /
    ) -> DeviceFit:
        simple = self._simple_demand(signature)
        if simple is None:
            fits = self._fits(signature, node, is_idle=False)
            return fits, fits and self._fits(signature, node, is_idle=True), False
        fits = is_idle = True
        for free, idle, needed in simple.needs:
            fits, is_idle = fits and free[node] >= needed, is_idle and idle[node] >= needed
        return fits, fits and is_idle, False

    def _simple_demand(self, signature: int) -> _SimpleDemand | None:
        """Return what pods without claims of several pods need, if counts say where they fit."""
        if signature in self._simple:
            return self._simple[signature]
        demand = None if self._shared_rows(signature) else self._demand(signature)
        found = None
        if demand is not None and demand.needs is not None:
            needs = tuple([(*self.counts(it), number) for it, number in demand.needs.items()])
            parts = [(slot, it.filter, it.number) for ((slot, it, _),) in demand.requests]
            found = _SimpleDemand(needs, tuple(parts))
        self._simple[signature] = found
        return found

    def choose(
        self, signature: int, node: int, _free: Sequence[int], _idle: Sequence[int], /
    ) -> DeviceChoice | None:
        simple = self._simple_demand(signature)
        if simple is not None:
            return self._first_devices(simple, node)
        for is_idle in (True, False):
            found = self._search(signature, node, is_idle=is_idle)
            if found is not None:
                return DeviceChoice(found, is_idle)
        return None

    def _first_devices(self, simple: _SimpleDemand, node: int) -> DeviceChoice | None:
        """Return the first devices of a node that a simple demand needs, idle ones if possible."""
        for is_idle in (True, False):
            found: list[int] = []
            for slot, filter_, number in simple.parts:
                own = self._first_of(filter_, node, number, is_idle=is_idle, beside=found)
                found += [held_device(slot, it) for it in own]
                if len(own) < number:
                    break
            else:
                return DeviceChoice(tuple(found), is_idle)
        return None

    def _first_of(
        self, filter_: int, node: int, number: int, *, is_idle: bool, beside: list[int]
    ) -> list[int]:
        """Return the first devices of a node that a filter lets through and nothing holds."""
        used, used_now = self.later.used, self.now.used
        taken = {slot_and_device(it)[1] for it in beside} if beside else ()
        own: list[int] = []
        for it in self._devices_of(filter_, node, is_tolerated=True):
            if used[it] or (is_idle and used_now[it]) or it in taken:
                continue
            own.append(it)
            if len(own) == number:
                break
        return own

    def choose_reserved(
        self, signature: int, node: int, _free: Sequence[int], /
    ) -> tuple[int, ...] | None:
        return self._search(signature, node, is_idle=False)

    def fits_on_nodes(self, signature: int, free: Ints, _idle: Ints, /) -> DeviceFits:
        fits, idle = (self._fitting_nodes(signature, is_idle=it) for it in (False, True))
        return fits, fits & idle, np.zeros(len(free), dtype=np.bool_)

    def _fitting_nodes(self, signature: int, *, is_idle: bool) -> Bools:
        mask = np.ones(self.size, dtype=np.bool_)
        for row in self._shared_rows(signature):
            mask &= self._shared_nodes(row, is_idle=is_idle)
        demand = self._demand(signature)
        for it, needed in self._least_needs(demand).items():
            mask &= np.array(self.counts(it)[is_idle]) >= needed
        if demand.needs is None:
            for node in np.flatnonzero(mask).tolist():
                mask[node] = self._search(signature, node, is_idle=is_idle) is not None
        return mask

    def _least_needs(self, demand: Demand) -> dict[int, int]:
        """Return how many devices of each filter a node must have: more may be needed."""
        if demand.needs is not None:
            return demand.needs
        only = [parts[0].alternative for parts in demand.requests if len(parts) == 1]
        return {it.filter: max(it.number, 1) for it in only}

    def _fits(self, signature: int, node: int, *, is_idle: bool) -> bool:
        for row in self._shared_rows(signature):
            if not self._shared_nodes(row, is_idle=is_idle)[node]:
                return False
        demand = self._demand(signature)
        for it, needed in self._least_needs(demand).items():
            if self.counts(it)[is_idle][node] < needed:
                return False
        return (
            demand.needs is not None or self._search(signature, node, is_idle=is_idle) is not None
        )

    def fitting_on(self, signature: int, node: int, _free: Sequence[int], /) -> int:
        return self.fitting_beside(signature, node, {})

    def fitting_beside(self, signature: int, node: int, more: dict[int, int]) -> int:
        """Return an upper bound of how many pods fit, with *more* devices free, by filter."""
        demand, found = self._demand(signature), UNLIMITED
        for it, needed in self._least_needs(demand).items():
            found = min(found, (self.counts(it)[0][node] + more.get(it, 0)) // needed)
        return found

    def fitting(self, signature: int, _amounts: Ints, /) -> Ints:
        found: Ints = np.full(self.size, UNLIMITED, dtype=np.int64)
        node, usable = self.devices.node, self.devices.usable
        for it, needed in self._least_needs(self._demand(signature)).items():
            has = np.bincount(node[usable[it]], minlength=self.size)
            found = np.minimum(found, has // needed)
        return found

    def request_key(self, signature: int, /) -> Hashable:
        return self.signatures[signature].claims

    def trial(self) -> "ClaimTrial":
        return ClaimTrial(self)

    def free_amount(self, kind: ResourceKind, /) -> int:
        return _GPU * self.free_gpus if kind == ResourceKind.GPU else 0

    def free_on(self, nodes: Bools, /) -> int:
        gpus = np.flatnonzero(self.devices.is_gpu & nodes[self.devices.node]).tolist()
        return _GPU * sum([self.is_free(it) for it in gpus])

    def requested_gpus(self, signature: int, _nodes: Bools, /) -> int:
        filters = self.devices.filters
        return _GPU * sum(
            [
                min([max(it.alternative.number, 1) for it in parts])
                for parts in self._demand(signature).requests
                if filters[parts[0].alternative.filter].counts_gpus
            ]
        )

    def is_enough(self, requested: SignatureRuns, nodes: Bools, /) -> bool:
        needed: dict[int, int] = {}
        for row, count in requested:
            if self.concerns(row):
                for it, number in self._least_needs(self._demand(row)).items():
                    needed[it] = needed.get(it, 0) + count * number
        return all(int(np.array(self.counts(it)[0])[nodes].sum()) >= n for it, n in needed.items())

    def shortage(self, signature: int, nodes: Bools, /) -> ClaimShortage | None:
        """Return what is missing on nodes, of the first request that fits on fewest of them."""
        fitting = np.array(
            [
                not nodes[node] or self._fits(signature, node, is_idle=False)
                for node in range(self.size)
            ],
            dtype=np.bool_,
        )
        lacking = nodes & ~fitting
        if not lacking.any():
            return None
        claims = self.signatures[signature].claims
        for row in self._shared_rows(signature):
            elsewhere = lacking & ~self._shared_nodes(row, is_idle=False)
            if elsewhere.any():
                node = self.later.shared[row].allocation.node
                return allocated_elsewhere(self.devices.shared[row].name, node, elsewhere)
        counts = NodeCounts(self.devices, lacking, self.is_free)
        demand = self._demand(signature)
        found = lacking_request(claims, demand, counts)
        is_limited = any(
            (signature, it) in self._limited for it in np.flatnonzero(lacking).tolist()
        )
        return shortage_of(found, counts)._replace(is_search_limited=is_limited)

    def _shared_rows(self, signature: int) -> list[int]:
        return [it.shared for it in self.signatures[signature].claims if it.shared != NONE]

    def _shared_nodes(self, row: int, *, is_idle: bool) -> Bools:
        """Return the nodes where a claim of several pods can be used."""
        later, now = self.later.shared[row].allocation, self.now.shared[row].allocation
        nodes = np.arange(self.size)
        found: Bools = np.full(self.size, later.node == NONE) | (nodes == later.node)
        if is_idle and now.node != later.node:
            found &= False
        return found

    def _demand(self, signature: int) -> Demand:
        """Return what pods request whose claims of several pods may have their devices already."""
        claims = self.signatures[signature].claims
        is_open = tuple([n for n, it in enumerate(claims) if not self._is_allocated(it)])
        found = self._demands.get((signature, is_open))
        if found is None:
            found = self._demands[signature, is_open] = Demand(self.devices, claims, is_open)
        return found

    def _is_allocated(self, claim: PodClaim) -> bool:
        return claim.shared != NONE and self.later.shared[claim.shared].allocation.node != NONE

    def _search(self, signature: int, node: int, *, is_idle: bool) -> tuple[int, ...] | None:
        for row in self._shared_rows(signature):
            if not self._shared_nodes(row, is_idle=is_idle)[node]:
                return None
        version = self.node_version[node], self.shared_changes
        known = self._known.get((signature, node, is_idle))
        if known is not None and known[0] == version:
            return known[1]
        search = Search(self.devices, self._demand(signature), self._view(node, is_idle=is_idle))
        found = None
        if search.run():
            found = (*self._held_of_shared(signature), *search.found)
        if search.is_limited:
            self._limited.add((signature, node))
        else:
            self._limited.discard((signature, node))
        self._known[signature, node, is_idle] = version, found
        return found

    def _held_of_shared(self, signature: int) -> list[int]:
        """Return what a pod holds of claims that have their devices.

        The first slot has all of them if the claim had them before this plan.
        """
        claims, held = self.signatures[signature].claims, []
        slots = slots_of(claims)
        first = {it.claim: n for n, it in reversed([*enumerate(slots)])}
        numbers = {slot: n for n, slot in enumerate(slots)}
        for number, claim in enumerate(claims):
            if not (self._is_allocated(claim) and number in first):
                continue
            for device in self.later.shared[claim.shared].allocation.devices:
                part = self.part_of.get((claim.shared, device))
                slot = first[number] if part is None else numbers[Slot(number, *part)]
                held.append(held_device(slot, device))
        return held

    def _view(self, node: int, *, is_idle: bool) -> NodeDevicesView:
        if self._kinds is None:
            self._kinds = device_kinds(self._snapshot)
        counters = self.later.counters, self.now.counters
        use = self.devices.counter_use

        def has_counters(device: int, beside: dict[int, int]) -> bool:
            return all(
                amount + beside.get(it, 0) <= left[it]
                for it, amount in use.get(device, ())
                for left in (counters if is_idle else counters[:1])
            )

        return NodeDevicesView(
            lambda it: self._devices_of(it, node, is_tolerated=True),
            lambda it: self._devices_of(it, node, is_tolerated=False),
            self.is_idle if is_idle else self.is_free,
            has_counters,
            self._kinds,
        )

    def _devices_of(self, filter_: int, node: int, *, is_tolerated: bool) -> tuple[int, ...]:
        key = filter_, node, is_tolerated
        found = self._of_filter.get(key)
        if found is None:
            first, end = np.searchsorted(self.devices.node, (node, node + 1)).tolist()
            row = self.devices.selected[filter_, first:end]
            if is_tolerated:
                row = row & self.devices.tolerated[filter_, first:end]
            found = self._of_filter[key] = tuple((np.flatnonzero(row) + first).tolist())
        return found


class ClaimTrial:
    """How many devices more would be free, of nodes with pods that are removed on trial."""

    def __init__(self, claims: Claims) -> None:
        self._claims: Final = claims
        self._more: Final[dict[int, dict[int, int]]] = {}  # by node and filter
        self._users: Final[dict[int, int]] = {}  # by claim of several pods: fewer users

    def release(self, change: Change, devices: tuple[int, ...], _free: list[int], /) -> None:
        """Release devices; those of a claim of several pods with the last of its pods."""
        claims = self._claims.signatures[change.signature].claims
        more = self._more.setdefault(change.node, {})
        for number, of in self._claims.by_claim(change.signature, devices).items():
            row = claims[number].shared
            freed = -change.pod_count
            if row != NONE:
                users = self._claims.later.shared[row].users
                before = users + self._users.get(row, 0)
                self._users[row] = self._users.get(row, 0) + change.pod_count
                freed = (before > 0) - (before + change.pod_count > 0)
            for it in of if freed else ():
                for filter_ in np.flatnonzero(self._claims.devices.usable[:, it]).tolist():
                    more[filter_] = more.get(filter_, 0) + freed

    def fitting_on(self, signature: int, node: int, _free: Sequence[int], /) -> int:
        return self._claims.fitting_beside(signature, node, self._more.get(node, {}))


def device_kinds(snapshot: Snapshot) -> list[int]:
    """Return a number for each device, which equal devices of a node have in common."""
    devices = snapshot.claim_devices
    if not len(devices.node):
        return []
    use = {it: n for n, it in enumerate(dict.fromkeys(devices.counter_use.values()), start=1)}
    counters = [use.get(devices.counter_use.get(it, ()), 0) for it in range(len(devices.node))]
    table = np.concatenate(
        (
            devices.node[None, :],
            np.array(counters, dtype=np.int64)[None, :],
            devices.selected.astype(np.int64),
            devices.tolerated.astype(np.int64),
            devices.attributes.astype(np.int64),
        )
    )
    _, kinds = np.unique(table, axis=1, return_inverse=True)
    found: list[int] = kinds.reshape(-1).tolist()
    return found


def has_devices(snapshot: Snapshot, signature_claims: tuple[PodClaim, ...]) -> Bools:
    """Return the nodes that have the devices of some claims when all are free, [node]."""
    devices, size = snapshot.claim_devices, len(snapshot.nodes.names)
    mask = np.ones(size, dtype=np.bool_)
    of = []
    for number, claim in enumerate(signature_claims):
        known = devices.shared[claim.shared] if claim.shared != NONE else None
        if known is not None and known.is_allocated:  # whatever our pods do
            mask &= np.arange(size) == known.node
        else:
            of.append(number)
    demand = Demand(devices, signature_claims, of)
    usable = devices.usable
    for parts in demand.requests:
        enough = np.zeros(size, dtype=np.bool_)
        for part in parts:
            has = np.bincount(devices.node[usable[part.alternative.filter]], minlength=size)
            enough |= has >= max(part.alternative.number, 1)
        mask &= enough
    for it, needed in (demand.needs or {}).items():
        mask &= np.bincount(devices.node[usable[it]], minlength=size) >= needed
    return mask
