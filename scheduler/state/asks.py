"""What each kin asks for, in columns, and what queues count of it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model import Ints, Kind
from scheduler.state.amounts import Columns, Lacking
from scheduler.state.kin import Kin, Recipe
from scheduler.state.kins import Kins
from scheduler.state.sharing import Sharing, sharing_of
from trainer_kai.policy.demand import Amounts

__all__ = ["Asks"]


class _Ask(NamedTuple):
    """Of one kin: in columns, as queues count it, and what no node has of it."""

    request: list[int]
    counted: list[int]
    lacking: Lacking


class Asks:
    """By number of kin."""

    def __init__(self, columns: Columns, gpus: Sequence[str], least_memory_mib: int) -> None:
        self.columns: Final = columns
        self._gpus: Final = gpus
        self.lacking: Final[dict[int, Lacking]] = {}
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
        size = len(kins.serial)
        if size > len(self.request):
            self.request = _longer(self.request, size)
            self.counted = _longer(self.counted, size)
        known: dict[tuple[Recipe, bool], _Ask] = {}
        asks = [self._ask(kins[number], known) for number in numbers]
        width = len(self.columns.names)
        self.request[numbers] = np.array([it.request for it in asks]).reshape(len(asks), width)
        self.counted[numbers] = np.array([it.counted for it in asks]).reshape(len(asks), len(Kind))
        for number, ask in zip(numbers, asks, strict=True):
            self.lacking.pop(number, None)
            if ask.lacking:
                self.lacking[number] = ask.lacking
            if number in self.sharing:
                shares = self.sharing[number].counted(self._least_memory_mib)
                self.counted[number, Kind.GPU] += shares  # of 64 devices at most: no matter

    def _ask(self, kin: Kin, known: dict[tuple[Recipe, bool], _Ask]) -> _Ask:
        shares = sharing_of(kin, self._gpus)
        if shares is None:
            self.sharing.pop(kin.number, None)
        else:
            self.sharing[kin.number] = shares
        has_whole = shares is None and not kin.is_reservation
        ask = known.get((kin.recipe, has_whole))
        if ask is None:
            ask = known[kin.recipe, has_whole] = self._read(
                kin.recipe.demand(), has_whole=has_whole
            )
        return ask

    def _read(self, amounts: Amounts, *, has_whole: bool) -> _Ask:
        """Leave devices out: who shares one has a part of it, who keeps it for them none."""
        if not has_whole:
            amounts = {name: it for name, it in amounts.items() if name not in self.columns.gpus}
        columns = self.columns
        return _Ask(columns.request(amounts), columns.counted(amounts), columns.lacking(amounts))


def _longer(table: Ints, size: int) -> Ints:
    longer = np.zeros((size, table.shape[1]), dtype=np.int64)
    longer[: len(table)] = table
    return longer
