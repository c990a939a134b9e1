"""Devices that pods get by ResourceClaim: what claims request, and what nodes have.

A pod holds its devices as numbers: `held_device` has the device and the slot, which is the request
of the pod's claims for which it has it. `SchedulingSignature.slots` lists these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.resources import NONE, Bools, Ints

ALL: Final = 0  # as a count: all devices of a node that match
MOST_CLAIM_DEVICES: Final = 32  # that one claim gets, as in Kubernetes
_DEVICES: Final = 2**32  # more than there are


class Alternative(NamedTuple):
    """So many devices that a filter lets through."""

    filter: int
    number: int  # or ALL
    name: str = ""  # of one of several alternatives


class ClaimRequest(NamedTuple):
    name: str
    alternatives: tuple[Alternative, ...]  # the first one that can be had counts


class MatchConstraint(NamedTuple):
    """All devices of some requests have one value of an attribute."""

    attribute: int
    slots: frozenset[tuple[int, int]]  # positions of requests and of their alternatives


class PodClaim(NamedTuple):
    """A claim of a pod: its own, or, with a row of `ClaimDevices.shared`, one of several pods."""

    name: str  # in the spec of the pod
    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[MatchConstraint, ...] = ()
    shared: int = NONE


class Slot(NamedTuple):
    """A claim of a pod, a request of it, and the alternative of which a device is."""

    claim: int
    request: int
    alternative: int


class SharedClaim(NamedTuple):
    """A claim that several pods may use, or that is allocated before its pod has a node."""

    name: str
    node: int = NONE  # where its devices are, if it is allocated
    devices: tuple[int, ...] = ()
    users: int = 0  # pods on nodes, and others that keep it allocated
    releasing_users: int = 0  # pods that are terminating
    is_allocated: bool = False  # also without users


class DeviceFilter(NamedTuple):
    """Which devices a request may get, in the words of messages."""

    class_name: str
    counts_gpus: bool  # each of them is charged as a GPU
    error: str = ""  # why an expression of it has no answer for some device


class DeviceName(NamedTuple):
    driver: str
    pool: str
    device: str


CounterUse: TypeAlias = tuple[tuple[int, int], ...]  # counters, and how much of each


@dataclass(frozen=True, slots=True)
class ClaimDevices:
    """Devices in the order of their nodes, then of their pools."""

    names: tuple[DeviceName, ...] = ()
    node: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [device]
    is_gpu: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))  # [device]
    filters: tuple[DeviceFilter, ...] = ()
    selected: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    # [filter, device]: the selected devices whose taints the claim tolerates
    tolerated: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    # [attribute, device] the code of its value, or NONE
    attributes: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    counters: tuple[int, ...] = ()  # what there is of each counter
    counter_use: Mapping[int, CounterUse] = field(default_factory=dict)  # by device
    taken: frozenset[int] = frozenset()  # devices of claims that are allocated
    releasing: frozenset[int] = frozenset()  # of these, devices that are being released
    shared: tuple[SharedClaim, ...] = ()
    held: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # by running pod
    # Devices that are not allocated, by why.
    left_out: Mapping[str, int] = field(default_factory=dict)
    # The DeviceClass that stands for a resource, by its name.
    served: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for column in (self.node, self.is_gpu, self.selected, self.tolerated, self.attributes):
            column.flags.writeable = False

    @property
    def usable(self) -> Bools:
        """The devices that each filter lets through, [filter, device]."""
        return self.selected & self.tolerated


NO_CLAIM_DEVICES: Final = ClaimDevices()


def held_device(slot: int, device: int) -> int:
    return slot * _DEVICES + device


def slot_and_device(held: int) -> tuple[int, int]:
    return divmod(held, _DEVICES)


def slots_of(claims: tuple[PodClaim, ...]) -> tuple[Slot, ...]:
    return tuple(
        Slot(c, r, a)
        for c, claim in enumerate(claims)
        for r, request in enumerate(claim.requests)
        for a in range(len(request.alternatives))
    )
