"""Places that are reserved on nodes for a cause, by handle: they stay when a statement rolls back.

Such a place is subtracted from what is free. It can be given up at any time, in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import HeldDevices, Ints
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


def _concatenated(places: Sequence[Places]) -> tuple[Ints, Ints]:
    if len(places) == 1:
        return places[0].nodes, places[0].amounts
    nodes = np.concatenate([one.nodes for one in places])
    return nodes, np.concatenate([one.amounts for one in places])
