"""Sums of amounts over pods and nodes that never wrap, whatever is asked for and however often.

One amount fits into 64 bits many times over, but not as often as there may be pods: 300,000 of the
largest are too many. So amounts (below 2**51) are taken apart at bit 25, both parts are added
exactly for up to 2**34 pods, and only the whole is cut, once, at `SUM_MOST`. A sum that is below is
exact, and one that is not is `SUM_MOST`, in whatever order its amounts come.
"""

from typing import Final

import numpy as np

from scheduler.core.model import Ints

__all__ = ["SUM_MOST", "cut", "exact", "sums", "total"]

SUM_MOST: Final = 2**60

_LOW: Final = 25
_MASK: Final = 2**_LOW - 1
_SAFE: Final = 2**62  # what one column cannot pass as it is


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
    """Return what all numbers of an array come to."""
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
