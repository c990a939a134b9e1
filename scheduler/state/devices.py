"""Devices that pods share: a row for each, and a whole device less for everybody else.

A device is shared where a reservation pod keeps it, which is in a namespace of the scheduler of
such pods. The labels and annotations of other pods can be written by any user, and take nothing.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Devices, Ints
from scheduler.state.asks import Asks
from scheduler.state.nodes import NodeRows
from scheduler.state.roll import RELEASING, Roll
from scheduler.state.sharing import device_memory_mib
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX

__all__ = ["DeviceRows"]

_WHOLE: Final = 1000


class _Device(NamedTuple):
    """How much of a device is used, and how much of that is being released."""

    used: int
    releasing: int


class DeviceRows:
    """Shared devices in the order of their nodes, then of their ids."""

    def __init__(self, roll: Roll, asks: Asks, nodes: NodeRows) -> None:
        self._roll: Final = roll
        self._asks: Final = asks
        self._nodes: Final = nodes
        self._of_node: Final[dict[int, dict[str, _Device]]] = {}
        self._gpus: Final = asks.columns.axes.gpus

    def read(self, rows: Iterable[int], is_meant: Bools) -> None:
        """Look again at who shares what on some nodes; *is_meant* says of which pods, [node]."""
        for row in rows:
            self._of_node.pop(row, None)
        roll, nodes = self._roll, self._nodes
        kept = self._kept(is_meant)
        chosen = is_meant[roll.node] & roll.kins.shares[roll.kin]
        for slot in np.flatnonzero(chosen).tolist():
            row = int(roll.node[slot])
            shares = self._asks.sharing[int(roll.kin[slot])]
            amount = min(shares.of_device(device_memory_mib(nodes.nodes[row])), _WHOLE)
            going = amount if roll.state[slot] == RELEASING else 0
            for group in kept.get(row, frozenset()).intersection(_named(roll.pod(slot).metadata)):
                devices = self._of_node.setdefault(row, {})
                used, before = devices.get(group, _Device(0, 0))
                devices[group] = _Device(used + amount, before + going)

    def _kept(self, is_meant: Bools) -> dict[int, set[str]]:
        """Return the devices of each node that reservation pods keep."""
        roll, found = self._roll, dict[int, set[str]]()
        for slot in np.flatnonzero(is_meant[roll.node] & roll.kins.keeps[roll.kin]).tolist():
            named = _named(roll.pod(slot).metadata)
            found.setdefault(int(roll.node[slot]), set()).update(named)
        return found

    def table(self) -> Devices:
        """Return the rows."""
        rows = [
            (row, group, self._of_node[row][group])
            for row in sorted(self._of_node)
            for group in sorted(self._of_node[row])
        ]
        memory = [device_memory_mib(self._nodes.nodes[row]) for row, _, _ in rows]
        return Devices(
            ids=tuple(group for _, group, _ in rows),
            node=np.array([row for row, _, _ in rows], dtype=np.int32),
            used=np.array([device.used for _, _, device in rows], dtype=np.int64),
            releasing=np.array([device.releasing for _, _, device in rows], dtype=np.int64),
            memory=np.array(memory, dtype=np.int64),
        )

    def charge(self, rows: Iterable[int], allocatable: Ints, used: Ints, releasing: Ints) -> None:
        """Take each shared device from its node; it comes back when all its pods are going."""
        for row in rows:
            for device in self._of_node.get(row, {}).values():
                column = self._column(allocatable[row])
                if column != NONE:
                    used[row, column] += _WHOLE
                    if device.releasing >= device.used > 0:
                        releasing[row, column] += _WHOLE

    def _column(self, allocatable: Ints) -> int:
        """Return which kind of device a node has."""
        return next((column for column in self._gpus if allocatable[column] > 0), NONE)


def _named(meta: Meta) -> set[str]:
    """Return the devices that the labels of a pod name."""
    return {
        value
        for name, value in meta.labels.items()
        if name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX)
    }
