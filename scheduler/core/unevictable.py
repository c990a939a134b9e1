"""What units have that may be preempted by their word, and that cannot be evicted all the same."""

from collections.abc import Iterator, Sequence

from scheduler.core.model import NONE, Snapshot, Unit
from scheduler.core.stock import held
from scheduler.core.tenants import could_lose
from scheduler.core.usage import Kept

__all__ = ["unevictable"]


def unevictable(snapshot: Snapshot) -> dict[int, Kept]:
    """Return by queue what counts as if it could not be preempted."""
    rows = [*_rows(snapshot.units)]
    if not rows:
        return {}
    has, counts = held(snapshot)
    found: dict[int, Kept] = {}
    for row in rows:
        queue = snapshot.units[row].queue
        if not counts[row]:
            continue
        units, (cpu, memory, gpu) = found.get(queue, Kept((), (0, 0, 0)))
        amounts = cpu + has[row][0], memory + has[row][1], gpu + has[row][2]
        found[queue] = Kept((*units, row), amounts)
    return found


def _rows(units: Sequence[Unit]) -> Iterator[int]:
    """Yield the units that stay, and not only while they move; of a bundle if any other does."""
    bundles: dict[str, list[int]] = {}
    for row, unit in enumerate(units):
        if unit.bundle:
            bundles.setdefault(unit.bundle, []).append(row)
        elif unit.stays and not unit.is_moving and _would_count(unit):
            yield row
    for rows in bundles.values():
        some = [units[row] for row in rows]
        is_torn = any(unit.queue != some[0].queue for unit in some)
        if any(unit.is_moving for unit in some) or not (is_torn or not all(map(could_lose, some))):
            continue
        yield from (row for row in rows if _would_count(units[row]))


def _would_count(unit: Unit) -> bool:
    """Say whether a unit has a queue, and does not count in any case."""
    return unit.queue != NONE and unit.is_preemptible
