"""What each kin asks for, in columns, and what queues count of it."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.core.model import Ints, Kind
from scheduler.state.amounts import Columns
from scheduler.state.kin import Kin
from scheduler.state.nodes import NodeRows
from scheduler.state.sharing import Sharing, least_memory_mib, sharing_of

__all__ = ["Asks"]


class Asks:
    """By kin."""

    def __init__(
        self, kins: list[Kin], wanting: Iterable[int], nodes: NodeRows, gpus: tuple[str, ...]
    ) -> None:
        names = nodes.resources()
        for number in wanting:
            names.update(kins[number].demand())
        self.columns: Final = Columns(names, gpus)
        self.sharing: Final[dict[int, Sharing]] = {}
        of_spec: dict[int, list[int]] = {}
        rows = []
        for number, kin in enumerate(kins):
            row = of_spec.get(kin.spec_number)
            if row is None:
                row = of_spec[kin.spec_number] = self.columns.request(kin.demand())
            shares = sharing_of(kin)
            if shares is not None:
                self.sharing[number] = shares
            if shares is not None or kin.is_reservation:
                row = self._without_gpus(row)
            rows.append(row)
        self.request: Final[Ints] = np.array(rows, dtype=np.int64).reshape(
            len(kins), len(self.columns.names)
        )
        self.counted: Final = self.columns.counted(self.request)
        self._count_shares(nodes)

    def has_gpu(self, kin: int) -> bool:
        """Say whether one needs a device, or a part of one."""
        return bool(self.counted[kin, Kind.GPU]) or kin in self.sharing

    def _without_gpus(self, row: list[int]) -> list[int]:
        """Leave devices out: who shares one has a part of it, who keeps it for them none."""
        row = row.copy()
        for column in self.columns.axes.gpus:
            row[column] = 0
        return row

    def _count_shares(self, nodes: NodeRows) -> None:
        memory_mib = least_memory_mib(nodes.nodes)
        for number, shares in self.sharing.items():
            self.counted[number, Kind.GPU] += shares.counted(memory_mib)
