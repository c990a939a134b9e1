"""Devices that pods share: a row for each, and a whole device less for everybody else."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Devices, Ints
from scheduler.state.asks import Asks
from scheduler.state.nodes import NodeRows
from scheduler.state.roll import RELEASING, Roll
from scheduler.state.sharing import device_memory_mib
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX

__all__ = ["DeviceRows"]

_WHOLE: Final = 1000


class DeviceRows:
    """Shared devices in the order of their nodes, then of their ids."""

    def __init__(self, roll: Roll, asks: Asks, nodes: NodeRows) -> None:
        self._nodes: Final = nodes
        self._used: Final[dict[tuple[int, str], int]] = {}
        self._releasing: Final[dict[tuple[int, str], int]] = {}
        self._gpus: Final = asks.columns.axes.gpus
        kins = sorted(asks.sharing)
        for number in np.flatnonzero(np.isin(roll.kin, kins) & (roll.node != NONE)).tolist():
            row = int(roll.node[number])
            shares = asks.sharing[int(roll.kin[number])]
            amount = min(shares.of_device(device_memory_mib(nodes.nodes[row])), _WHOLE)
            is_going = roll.state[number] == RELEASING
            for group in _groups(roll.pods[number].metadata, shares.devices):
                self._add(row, group, amount, amount if is_going else 0)

    def table(self) -> Devices:
        """Return the rows."""
        keys = sorted(self._used)
        memory = [device_memory_mib(self._nodes.nodes[row]) for row, _ in keys]
        return Devices(
            ids=tuple(group for _, group in keys),
            node=np.array([row for row, _ in keys], dtype=np.int32),
            used=np.array([self._used[key] for key in keys], dtype=np.int64),
            releasing=np.array([self._releasing[key] for key in keys], dtype=np.int64),
            memory=np.array(memory, dtype=np.int64),
        )

    def charge(self, allocatable: Ints, used: Ints, releasing: Ints) -> None:
        """Take each shared device from its node; it comes back when all its pods are going."""
        for row, group in sorted(self._used):
            column = self._column(allocatable[row])
            if column != NONE:
                used[row, column] += _WHOLE
                if self._releasing[row, group] >= self._used[row, group] > 0:
                    releasing[row, column] += _WHOLE

    def _add(self, row: int, group: str, amount: int, going: int) -> None:
        key = row, group
        self._used[key] = self._used.get(key, 0) + amount
        self._releasing[key] = self._releasing.get(key, 0) + going

    def _column(self, allocatable: Ints) -> int:
        """Return which kind of device a node has."""
        return next((column for column in self._gpus if allocatable[column] > 0), NONE)


def _groups(meta: Meta, devices: int) -> Iterator[str]:
    """Yield the devices of a pod; of one that names none a device that is like no other."""
    named = sorted(
        value
        for name, value in meta.labels.items()
        if name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX)
    )
    yield from dict.fromkeys(named) or (f"{meta.uid}-{number}" for number in range(devices))
