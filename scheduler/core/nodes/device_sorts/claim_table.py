"""Devices of ResourceClaims: which are free on each node, now and once terminating pods are gone.

A claim of several pods has its devices as long as one of them is on a node. What it had before a
pod took it into use is remembered, so that each change can be undone.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.claims import ClaimDevices, PodClaim, slot_and_device, slots_of
from scheduler.core.model.resources import NONE, DeviceSort, devices_of
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.statement import Change, Participant


class Allocation(NamedTuple):
    """Where a claim of several pods has its devices."""

    node: int = NONE
    devices: tuple[int, ...] = ()


class _SharedState:
    __slots__ = ("allocation", "before", "users")

    def __init__(self, allocation: Allocation, users: int) -> None:
        self.allocation = allocation
        self.users = users
        # What was allocated before each time when the first pod took it into use.
        self.before: Final[list[Allocation]] = [Allocation()] if users else []


class View:
    """The devices in use, and the claims of several pods: now, or later."""

    def __init__(self, devices: ClaimDevices, *, is_now: bool) -> None:
        self._counter_use: Final = devices.counter_use
        self.used: Final = [0] * len(devices.names)  # claims that have it
        self.counters: Final = list(devices.counters)  # what is left
        self.shared: Final = [
            _SharedState(
                Allocation(it.node, it.devices)
                if it.is_allocated or it.users or (is_now and it.releasing_users)
                else Allocation(),
                it.users + (it.releasing_users if is_now else 0),
            )
            for it in devices.shared
        ]
        for device in devices.taken:
            if is_now or device not in devices.releasing:
                self.take(device, 1)

    def take(self, device: int, number: int) -> None:
        self.used[device] += number
        if self._counter_use:
            for counter, amount in self._counter_use.get(device, ()):
                self.counters[counter] -= number * amount


class ClaimedDeviceTable(Participant):
    """Counts of free devices by filter and node are kept, and made when they are first needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        devices = snapshot.claim_devices
        self.devices: Final = devices
        self.signatures: Final = snapshot.signatures
        self.size: Final = len(snapshot.nodes.names)
        self.now: Final = View(devices, is_now=True)
        self.later: Final = View(devices, is_now=False)
        # By filter, of each node: usable devices that are free, and those that are idle.
        self._counts: Final[dict[int, tuple[list[int], list[int]]]] = {}
        self._usable: Final[dict[int, list[bool]]] = {}  # by such a filter, [device]
        self._slots: Final[dict[int, tuple[int, ...]]] = {}  # by signature: claim of each slot
        # The request and the alternative for which a claim of several pods gets a device.
        self.part_of: Final[dict[tuple[int, int], tuple[int, int]]] = {}
        self.node_version: Final = [0] * self.size
        self.shared_changes = 0
        self.changed_nodes: list[int] = []  # of the statement
        self._node_of: Final[list[int]] = devices.node.tolist()
        self._is_gpu: Final[list[bool]] = devices.is_gpu.tolist()
        gpus = np.flatnonzero(devices.is_gpu).tolist()
        self.free_gpus = sum([not self.later.used[it] for it in gpus])

    def concerns(self, signature: int, /) -> bool:
        return bool(self.signatures[signature].claims)

    def is_idle(self, device: int) -> bool:
        return not (self.now.used[device] or self.later.used[device])

    def is_free(self, device: int) -> bool:
        return not self.later.used[device]

    def counts(self, filter_: int) -> tuple[list[int], list[int]]:
        """Return how many usable devices are free on each node, and how many are idle, [node]."""
        found = self._counts.get(filter_)
        if found is None:
            is_usable = self.devices.selected[filter_] & self.devices.tolerated[filter_]
            self._usable[filter_] = is_usable.tolist()
            usable = np.flatnonzero(is_usable)
            node = self.devices.node[usable]
            is_free = np.array([self.is_free(it) for it in usable.tolist()], dtype=np.bool_)
            is_idle = np.array([self.is_idle(it) for it in usable.tolist()], dtype=np.bool_)
            free, idle = (
                np.bincount(node[it], minlength=self.size).tolist() for it in (is_free, is_idle)
            )
            found = self._counts[filter_] = free, idle
        return found

    def add(self, change: Change, /) -> None:
        claims = self.signatures[change.signature].claims
        held = devices_of(change.held, DeviceSort.CLAIM)
        if len(claims) == 1 and claims[0].shared == NONE:  # of most pods
            devices = tuple([slot_and_device(it)[1] for it in held])
            self._take(devices, change.pod_count, is_now=change.on_idle)
            self.node_version[change.node] += 1
            return
        by_claim = self.by_claim(change.signature, held)
        for number, claim in enumerate(claims):
            devices = by_claim.get(number, ())
            if claim.shared == NONE:
                self._take(devices, change.pod_count, is_now=change.on_idle)
            else:
                self._note_parts(change.signature, number, held)
                self._use(claim, Allocation(change.node, devices), change)
        self.node_version[change.node] += 1

    def by_claim(self, signature: int, held: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return the devices of each claim of a pod that holds some."""
        claim_of = self._slots.get(signature)
        if claim_of is None:
            slots = slots_of(self.signatures[signature].claims)
            claim_of = self._slots[signature] = tuple([it.claim for it in slots])
        found: dict[int, tuple[int, ...]] = {}
        for it in held:
            slot, device = slot_and_device(it)
            found[claim_of[slot]] = (*found.get(claim_of[slot], ()), device)
        return found

    def _note_parts(self, signature: int, number: int, held: Sequence[int]) -> None:
        """Note for which request, and alternative, a claim gets each device by this plan."""
        claims = self.signatures[signature].claims
        row, slots = claims[number].shared, slots_of(claims)
        is_clear = sum([it.claim == number for it in slots]) == 1
        if is_clear or self.devices.shared[row].node != NONE:
            return
        of = [(slots[slot], device) for slot, device in map(slot_and_device, held)]
        for it, device in of:
            if it.claim == number:
                self.part_of[row, device] = it.request, it.alternative

    def _use(self, claim: PodClaim, allocation: Allocation, change: Change) -> None:
        for is_now in (True, False) if change.on_idle else (False,):
            state = (self.now if is_now else self.later).shared[claim.shared]
            before, was = state.users, state.allocation
            state.users += change.pod_count
            if before <= 0 < state.users:
                state.before.append(was)
                state.allocation = allocation
            elif state.users <= 0 < before and state.before:
                state.allocation = state.before.pop()
            if state.allocation != was:
                self._take(was.devices, -1, is_now=is_now, is_both=False)
                self._take(state.allocation.devices, 1, is_now=is_now, is_both=False)
                self.shared_changes += 1
                self.changed_nodes.extend(range(self.size))  # it decides about every node

    def _take(
        self, devices: Sequence[int], number: int, *, is_now: bool, is_both: bool = True
    ) -> None:
        """Take devices later, and now as well, or, where it is not both, only now."""
        used, used_later = self.now.used, self.later.used
        for device in devices:
            was_free = not used_later[device]
            was_idle = was_free and not used[device]
            if is_now:
                self.now.take(device, number)
            if is_both or not is_now:
                self.later.take(device, number)
            is_free = not used_later[device]
            is_idle = is_free and not used[device]
            if was_free != is_free or was_idle != is_idle:
                self._count(device, is_free - was_free, is_idle - was_idle)

    def _count(self, device: int, free: int, idle: int) -> None:
        node = self._node_of[device]
        self.free_gpus += free * self._is_gpu[device]
        for filter_, (free_on, idle_on) in self._counts.items():
            if self._usable[filter_][device]:
                free_on[node] += free
                idle_on[node] += idle
