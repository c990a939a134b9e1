"""Devices of nodes: which one a pod gets matters, as with shares of GPUs, and not only how many.

Each sort of devices is a participant of the statement, and says besides which devices a pod would
get on a node, how many pods fit, and what is missing. `NodeDevices` asks all sorts at once. Pods of
most signatures request none: readers ask `of` once for each signature. No two sorts may draw on the
same resource: each is asked as if the others took nothing.
"""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from scheduler.core.gang import SignatureRuns
from scheduler.core.model.podgroup import ReservedPlace
from scheduler.core.model.rejections import DeviceShortage
from scheduler.core.model.resources import (
    NO_DEVICES,
    Bools,
    DeviceSort,
    HeldDevices,
    Ints,
    ResourceKind,
    devices_of,
    with_devices,
)
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.statement import Change, Concerned, Participant


class DeviceChoice(NamedTuple):
    devices: tuple[int, ...]
    on_idle: bool  # they are idle beside pods that are terminating


# Whether a pod fits on a node, whether into what is idle, and whether it gets an idle part of a
# device there that other pods have a part of.
DeviceFit: TypeAlias = tuple[bool, bool, bool]
DeviceFits: TypeAlias = tuple[Bools, Bools, Bools]  # the same for all nodes, [node]


class DeviceView(Protocol):
    """The devices of the nodes, as they are or as they would be."""

    def fitting_on(self, signature: int, node: int, free: Sequence[int], /) -> int:
        """Return how many pods fit on a node that has so much free; it may be an upper bound."""
        ...


class DeviceTrial(DeviceView, Protocol):
    """The devices as they would be without some pods, which costs the statement nothing."""

    def release(self, change: Change, devices: tuple[int, ...], free: list[int], /) -> None:
        """Release what a removed pod holds, or hold it again; *free* of its node changes too."""
        ...


class DeviceParticipant(Participant, DeviceView, Protocol):
    """One sort of devices; *free* and *idle* are what a node has of each resource, or all nodes."""

    sort: DeviceSort

    def choose(
        self, signature: int, node: int, free: Sequence[int], idle: Sequence[int], /
    ) -> DeviceChoice | None:
        """Return the devices for a pod, or None if it does not fit on a node."""
        ...

    def choose_reserved(
        self, signature: int, node: int, free: Sequence[int], /
    ) -> tuple[int, ...] | None:
        """Return the devices of a reserved place, which is on a node and names none."""
        choice = self.choose(signature, node, free, free)
        return None if choice is None else choice.devices

    def fits(
        self, signature: int, node: int, free: Sequence[int], idle: Sequence[int], /
    ) -> DeviceFit: ...

    def fits_on_nodes(self, signature: int, free: Ints, idle: Ints, /) -> DeviceFits: ...

    def fitting(self, _signature: int, _amounts: Ints, /) -> Ints | None:
        """Return how many pods fit on nodes that have *amounts* and no other pods, [node]."""
        return None

    def request_key(self, signature: int, /) -> Hashable:
        """Return what is equal for pods that request the same devices."""
        ...

    def trial(self) -> DeviceTrial: ...

    def watch(self, _changed_nodes: list[int], /) -> None:
        """Take the list to which nodes are added that change with another node."""

    def is_waiting(self, _place: ReservedPlace, /) -> bool:
        """Say whether the devices of a reserved place are in use by others in the snapshot."""
        return False

    # What is charged and free, of a kind of resources that queues share.

    def free_amount(self, _kind: ResourceKind, /) -> int:
        return 0

    def free_on(self, _nodes: Bools, /) -> int:
        """Return the thousandths of GPUs that are free on some nodes, beside whole ones."""
        return 0

    def charged_gpus(self, _signature: int, _node: int, /) -> int:
        """Return what a queue is charged for a pod on a node, if that depends on the node."""
        return 0

    def uncharged_gpus(self, _signature: int, /) -> int:
        """Return how much more a pod takes at least than its queue is charged for it."""
        return 0

    @property
    def max_uncharged_gpus(self) -> int:
        """How much more all pods of the snapshot may have together than queues are charged."""
        return 0

    # Why a pod fits on none of some nodes.

    def requested_gpus(self, _signature: int, _nodes: Bools, /) -> int:
        """Return the thousandths that a pod requests beside whole GPUs, the least of any node."""
        return 0

    def is_enough(self, _requested: SignatureRuns, _nodes: Bools, /) -> bool:
        """Say whether some nodes together have what pods request, if these devices are no GPUs."""
        return True

    def empty_request(self, _signature: int, /) -> tuple[int, int] | None:
        """Return a resource and how much of it a node must have when it is empty."""
        return None

    def shortage(self, signature: int, nodes: Bools, /) -> DeviceShortage | None: ...


DeviceParticipants: TypeAlias = tuple[DeviceParticipant, ...]


class NodeDevices:
    """The devices of all sorts."""

    def __init__(
        self, participants: DeviceParticipants, resources: NodeResources, pods: int
    ) -> None:
        """*pods* is the column of the places for pods."""
        self.participants: Final = participants  # by DeviceSort
        self._resources: Final = resources
        self._pods: Final = pods
        # How much more all pods of the snapshot may have together than queues are charged.
        self.max_uncharged_gpus: Final = sum([it.max_uncharged_gpus for it in participants])
        # By signature, the sorts of which pods request devices; mostly there are none.
        self.of: Final = Concerned(participants)

    def choose(
        self, node: int, signature: int, *, is_counted: bool = False
    ) -> tuple[HeldDevices, bool] | None:
        """Return the devices for a pod, and whether they are idle; None if it does not fit.

        If the pod *is_counted*, all but its devices is subtracted from what is free.
        """
        free = self._resources.free[node].tolist()
        free[self._pods] += is_counted
        idle = self._resources.idle[node].tolist()
        held, on_idle = NO_DEVICES, True
        for it in self.of[signature]:
            choice = it.choose(signature, node, free, idle)
            if choice is None:
                return None
            held = with_devices(held, it.sort, choice.devices)
            on_idle = on_idle and choice.on_idle
        return held, on_idle

    def choose_reserved(self, node: int, signature: int) -> HeldDevices | None:
        """Return the devices of a reserved place, or None if they are not free."""
        held = NO_DEVICES
        for it in self.of[signature]:
            devices = it.choose_reserved(signature, node, self._resources.free[node].tolist())
            if devices is None:
                return None
            held = with_devices(held, it.sort, devices)
        return held

    def reserve(self, node: int, signature: int, held: HeldDevices, sign: int) -> None:
        """Reserve devices, or, with sign -1, no more; this is in no statement."""
        change = Change(node, signature, sign, on_idle=False, held=held)
        for it in self.of[signature]:
            it.add(change)

    def trials(self) -> tuple[DeviceTrial, ...]:
        return tuple([it.trial() for it in self.participants])

    def is_waiting(self, place: ReservedPlace) -> bool:
        return any(it.is_waiting(place) for it in self.participants)

    def fitting(self, signature: int, amounts: Ints) -> list[Ints]:
        """Return how many pods fit on nodes that have *amounts* and no other pods, by sort."""
        found = [it.fitting(signature, amounts) for it in self.of[signature]]
        return [it for it in found if it is not None]

    def free_amount(self, kind: ResourceKind) -> int:
        found = 0
        for it in self.participants:
            found += it.free_amount(kind)
        return found

    def free_on(self, nodes: Bools) -> int:
        return sum([it.free_on(nodes) for it in self.participants])

    def uncharged_gpus(self, signatures: SignatureRuns) -> int:
        """Return how much more pods take at least than their queue is charged for them."""
        found = 0
        for row, count in signatures:
            for it in self.of[row]:
                found += count * it.uncharged_gpus(row)
        return found

    def requested_gpus(self, signature: int, nodes: Bools) -> int:
        return sum([it.requested_gpus(signature, nodes) for it in self.of[signature]])

    def are_enough(self, requested: SignatureRuns, nodes: Bools) -> bool:
        return all(it.is_enough(requested, nodes) for it in self.participants)

    def shortages(self, signature: int, nodes: Bools) -> tuple[DeviceShortage, ...]:
        found = [it.shortage(signature, nodes) for it in self.of[signature]]
        return tuple([it for it in found if it is not None])


def release_on_trial(trials: tuple[DeviceTrial, ...], change: Change, free: list[int]) -> None:
    for sort in DeviceSort:
        devices = devices_of(change.held, sort)
        if devices:
            trials[sort].release(change, devices, free)
