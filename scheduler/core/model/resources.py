"""Resources: the columns of amount arrays, and exact sums of amounts over pods and nodes.

One amount fits into 64 bits many times over, but not as often as there may be pods: 300,000 of the
largest are too many. So amounts (below 2**51) are taken apart at bit 25, both parts are added
exactly for up to 2**34 pods, and only the whole is cut, once, at `SUM_MOST`. A sum that is below is
exact, and one that is not is `SUM_MOST`, in whatever order its amounts come.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

UNBOUND: Final = -1  # of quotas and limits
NONE: Final = -1  # no row
MAX_REQUEST: Final = 2**50  # the most that a pod can request; a node always has less
MAX_QUEUE_REQUEST: Final = 2**45  # the most that a queue is charged for one pod
SUM_MOST: Final = 2**60
_LOW: Final = 25
_MASK: Final = 2**_LOW - 1
_SAFE: Final = 2**62  # what one column cannot pass as it is
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Amounts: TypeAlias = tuple[int, int, int]  # by ResourceKind
# The devices that a pod holds on its node, by DeviceSort; empty where it holds none of any sort.
HeldDevices: TypeAlias = tuple[tuple[int, ...], ...]

NO_DEVICES: Final[HeldDevices] = ()


class ResourceKind(IntEnum):
    """What queues share: the columns of their arrays."""

    CPU = 0  # thousandths
    MEMORY = 1  # bytes
    GPU = 2  # thousandths of a device


RESOURCE_KINDS: Final = tuple(ResourceKind)


class DeviceSort(IntEnum):
    """Devices of a node of which it matters which ones a pod gets, and not only how many."""

    GPU_SHARE = 0  # slots of the shared GPUs of the node of which it has a share
    CLAIM = 1  # devices of its ResourceClaims, as `model.claims.held_device` writes them


@dataclass(frozen=True, slots=True)
class ResourceColumns:
    names: tuple[str, ...]
    kinds: tuple[int, ...]  # the ResourceKind that counts it for queues, or NONE
    weights: tuple[int, ...]  # how much of that kind one of it is
    cpu: int
    pods: int
    gpus: tuple[int, ...]  # whole devices, in thousandths


def held_shares(slots: tuple[int, ...]) -> HeldDevices:
    return (slots,) if slots else ()


def with_devices(held: HeldDevices, sort: DeviceSort, devices: tuple[int, ...]) -> HeldDevices:
    """Add the devices of a sort after those of all sorts before it."""
    return (*held, *((),) * (sort - len(held)), devices)


def devices_of(held: HeldDevices, sort: DeviceSort) -> tuple[int, ...]:
    return held[sort] if len(held) > sort else ()


def sums(rows: Ints, amounts: Ints, counts: Ints, size: int) -> Ints:
    """Return what amounts, each so often, come to by row, [row, column]; at most `SUM_MOST`."""
    high, low = _high_and_low(rows, amounts, counts, size)
    found: Ints = np.minimum((np.minimum(high, SUM_MOST >> _LOW) << _LOW) + low, SUM_MOST)
    return found


def exact(rows: Ints, amounts: Ints, counts: Ints, size: int) -> list[list[int]]:
    """Return the same as numbers of any size, to which others can be added before they are cut."""
    high, low = _high_and_low(rows, amounts, counts, size)
    if not high.any():
        whole: list[list[int]] = low.tolist()
        return whole
    both = zip(high.tolist(), low.tolist(), strict=True)
    return [[(h << _LOW) + n for h, n in zip(*row, strict=True)] for row in both]


def cut(table: list[list[int]], width: int) -> Ints:
    """Return numbers of any size as an array; none of them below 0 or above `SUM_MOST`."""
    rows = [[min(max(amount, 0), SUM_MOST) for amount in row] for row in table]
    return np.array(rows, dtype=np.int64).reshape(-1, width)


def total(amounts: Ints) -> int:
    return (int((amounts >> _LOW).sum()) << _LOW) + int((amounts & _MASK).sum())


def _high_and_low(rows: Ints, amounts: Ints, counts: Ints, size: int) -> tuple[Ints, Ints]:
    """Return sums of the upper and the lower bits; all in the lower where that is safe."""
    width = amounts.shape[1]
    high, low = (np.zeros((size, width), dtype=np.int64) for _ in range(2))
    if int(amounts.max(initial=0)) * int(counts.sum()) < _SAFE:
        _add_by_row(low, rows, amounts * counts[:, None])
    else:
        _add_by_row(high, rows, (amounts >> _LOW) * counts[:, None])
        _add_by_row(low, rows, (amounts & _MASK) * counts[:, None])
    return high, low


def _add_by_row(table: Ints, rows: Ints, amounts: Ints) -> None:
    for column in range(table.shape[1]):
        np.add.at(table[:, column], rows, amounts[:, column])
