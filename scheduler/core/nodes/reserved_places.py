"""Places that are reserved on nodes for a cause, by handle: they stay when a statement rolls back.

Such a place is subtracted from what is free. It can be given up at any time, in any order.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.line import KeptNode
from scheduler.core.model.resources import NONE, Amounts, HeldDevices, Ints, ResourceKind
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.devices import NodeDevices
from scheduler.core.nodes.node_resources import NodeResources
from scheduler.core.nodes.statement import Statement


class PlaceWithDevices(NamedTuple):
    node: int
    signature: int
    held: HeldDevices = ()


@dataclass(frozen=True, slots=True)
class Places:
    """Places for some pods, and once they are reserved, the devices of each pod."""

    nodes: Ints  # [pod]
    amounts: Ints  # [pod, resource]
    with_devices: tuple[PlaceWithDevices, ...] = ()


class ReservedPlaces:
    def __init__(
        self, resources: NodeResources, devices: NodeDevices, statement: Statement
    ) -> None:
        self._resources: Final = resources
        self._devices: Final = devices
        self._statement: Final = statement

    @property
    def free(self) -> Ints:
        return self._resources.free

    def add(self, wanted: Sequence[Places]) -> list[Places] | None:
        """Reserve some places, and return them as `undo` takes them; None if not all fit."""
        nodes, amounts = _concatenated(wanted)
        self._reserve(nodes, amounts)
        is_enough = bool(((self._resources.free[nodes] >= 0) | (amounts == 0)).all())
        reserved = self._with_devices(wanted) if is_enough else None
        if reserved is None:
            self._reserve(nodes, -amounts)
        return reserved

    def undo(self, reserved: Sequence[Places]) -> None:
        nodes, amounts = _concatenated(reserved)
        self._reserve(nodes, -amounts)
        self._reserve_devices([one for it in reserved for one in it.with_devices], -1)

    def _with_devices(self, wanted: Sequence[Places]) -> list[Places] | None:
        """Reserve the devices beside other resources; return None if not all fit."""
        found: list[Places] = []
        chosen: list[PlaceWithDevices] = []
        for places in wanted:
            first = len(chosen)
            for node, signature, _ in places.with_devices:
                # One place for the pod itself is reserved already.
                choice = self._devices.choose(node, signature, is_counted=True)
                if choice is None:
                    self._reserve_devices(chosen, -1)
                    return None
                chosen.append(PlaceWithDevices(node, signature, choice[0]))
                self._reserve_devices(chosen[-1:], 1)
            found.append(Places(places.nodes, places.amounts, tuple(chosen[first:])))
        return found

    def _reserve(self, nodes: Ints, amounts: Ints) -> None:
        self._resources.reserve(nodes, amounts)
        self._statement.changed_nodes.extend(nodes.tolist())

    def _reserve_devices(self, places: Sequence[PlaceWithDevices], sign: int) -> None:
        for node, signature, held in places:
            self._devices.reserve(node, signature, held, sign)
            self._statement.changed_nodes.append(node)


class WantedRoom(NamedTuple):
    node: int
    amounts: Ints  # [resource]


class KeptPlan(NamedTuple):
    """When a PodGroup is expected to start on kept room, by ends that are enforced."""

    planned_at: int = 0  # 0 is not known
    awaited: Mapping[int, int] = MappingProxyType({})  # by node, when its part there is free


_NOT_KNOWN: Final = KeptPlan()


class KeptRoom:
    """Room that is kept for the PodGroup that is next in the line, and charged to its queue.

    It is given up for the attempts of that PodGroup, and for the few that may take it all the same;
    afterwards what is left of it is kept again. It holds nothing that is not free.
    """

    def __init__(self, snapshot: Snapshot, reserved: ReservedPlaces, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._reserved: Final = reserved
        self._usage: Final = usage
        self.row = NONE  # of the PodGroup that is next
        self._wanted: list[WantedRoom] = []
        self._held: list[Places] = []
        self._charged: Amounts = (0, 0, 0)
        self._is_charged = True
        self.is_held = False  # an attribute: it is asked for every attempt
        self.plan = _NOT_KNOWN
        self.gave_up: Final[set[int]] = set()  # PodGroups for which nothing is kept any longer

    def keep(
        self,
        row: int,
        wanted: Sequence[WantedRoom],
        when: KeptPlan = _NOT_KNOWN,
    ) -> None:
        self.row, self._wanted, self.plan = row, [*wanted], when
        self.restore()

    def end(self) -> None:
        """Keep nothing any longer in this plan."""
        self.release()
        self.row, self._wanted, self.plan = NONE, [], _NOT_KNOWN

    def release(self) -> bool:
        """Give the room up for an attempt; say whether there was any."""
        if not self._held:
            return False
        self._reserved.undo(self._held)
        self._held, self.is_held = [], False
        self._charge(-1)
        return True

    def restore(self) -> None:
        """Keep what is wanted, as far as it is still free."""
        assert not self._held
        free = self._reserved.free
        held = [(it.node, np.minimum(it.amounts, free[it.node].clip(min=0))) for it in self._wanted]
        held = [it for it in held if it[1].any()]
        if not held:
            return
        self._charged = self.charge_of([amounts for _, amounts in held])
        self._hold([Places(np.array([node]), amounts.reshape(1, -1)) for node, amounts in held])

    def _hold(self, places: Sequence[Places]) -> None:
        reserved = self._reserved.add(places)
        assert reserved is not None  # no more than what is free
        self._held, self.is_held = reserved, True
        self._charge(1)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Give the room up for a trial that leaves no trace, and keep exactly the same again."""
        held = self._held
        is_released = self.release()
        yield
        if is_released:
            self._hold(held)

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """Keep it without a charge."""
        if self.is_held:
            self._charge(-1)
        self._is_charged = False
        yield
        self._is_charged = True
        if self.is_held:
            self._charge(1)

    @property
    def nodes(self) -> tuple[KeptNode, ...]:
        """Return the nodes of which GPUs are kept."""
        found = [
            KeptNode(int(it.nodes[0]), self.charge_of([it.amounts[0]])[ResourceKind.GPU])
            for it in self._held
        ]
        return tuple([it for it in found if it.gpus])

    def charge_of(self, rows: Sequence[Ints]) -> Amounts:
        """Return what a queue is charged for amounts of resources."""
        resources, sums = self._snapshot.resources, [0, 0, 0]
        for row in rows:
            for kind, weight, amount in zip(
                resources.kinds, resources.weights, row.tolist(), strict=True
            ):
                if kind != NONE:
                    sums[kind] += weight * amount
        return sums[0], sums[1], sums[2]

    def _charge(self, sign: int) -> None:
        if not self._is_charged:
            return
        podgroup, (cpu, memory, gpu) = self._snapshot.podgroups[self.row], self._charged
        self._usage.charge(
            podgroup.queue,
            (sign * cpu, sign * memory, sign * gpu),
            is_non_preemptible=not podgroup.is_preemptible,
        )


def _concatenated(places: Sequence[Places]) -> tuple[Ints, Ints]:
    if len(places) == 1:
        return places[0].nodes, places[0].amounts
    nodes = np.concatenate([one.nodes for one in places])
    return nodes, np.concatenate([one.amounts for one in places])
