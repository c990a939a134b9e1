"""What each kin asks for, in columns, and what queues count of it."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.core.model import Ints, Kind
from scheduler.state.amounts import Columns
from scheduler.state.kin import Kin, Recipe
from scheduler.state.kins import Kins
from scheduler.state.sharing import Sharing, sharing_of

__all__ = ["Asks"]


class Asks:
    """By number of kin."""

    def __init__(self, columns: Columns, least_memory_mib: int) -> None:
        self.columns: Final = columns
        self.sharing: Final[dict[int, Sharing]] = {}
        self._least_memory_mib: Final = least_memory_mib
        width = len(columns.names)
        self.request: Ints = np.zeros((0, width), dtype=np.int64)
        self.counted: Ints = np.zeros((0, len(Kind)), dtype=np.int64)

    def has_gpu(self, kin: int) -> bool:
        """Say whether one needs a device, or a part of one."""
        return bool(self.counted[kin, Kind.GPU]) or kin in self.sharing

    def read(self, numbers: list[int], kins: Kins) -> None:
        """Read what kin ask for that were not known so far."""
        if len(kins.asks) > len(self.request):
            self.request = _longer(self.request, len(kins.asks))
            self.counted = _longer(self.counted, len(kins.asks))
        of_recipe: dict[Recipe, list[int]] = {}
        rows = [self._row(kins[number], of_recipe) for number in numbers]
        request = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.columns.names))
        self.request[numbers] = request
        self.counted[numbers] = self.columns.counted(request)
        for number in numbers:
            if number in self.sharing:
                shares = self.sharing[number].counted(self._least_memory_mib)
                self.counted[number, Kind.GPU] += shares  # of 64 devices at most: no matter

    def _row(self, kin: Kin, of_recipe: dict[Recipe, list[int]]) -> list[int]:
        row = of_recipe.get(kin.recipe)
        if row is None:
            row = of_recipe[kin.recipe] = self.columns.request(kin.recipe.demand())
        shares = sharing_of(kin)
        if shares is None:
            self.sharing.pop(kin.number, None)
        else:
            self.sharing[kin.number] = shares
        return row if shares is None and not kin.is_reservation else self._without_gpus(row)

    def _without_gpus(self, row: Iterable[int]) -> list[int]:
        """Leave devices out: who shares one has a part of it, who keeps it for them none."""
        row = list(row)
        for column in self.columns.axes.gpus:
            row[column] = 0
        return row


def _longer(table: Ints, size: int) -> Ints:
    longer = np.zeros((size, table.shape[1]), dtype=np.int64)
    longer[: len(table)] = table
    return longer
