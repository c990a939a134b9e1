"""What work is lost with whom: GPUs times the seconds since a unit began, or was last saved."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from scheduler.core.model import Kind, Snapshot
from scheduler.core.policy import VictimOrder
from scheduler.core.tenants import Tenants
from scheduler.core.usage import Amounts

__all__ = ["Work", "in_order", "lost_of"]


class Work:
    """By unit and by pod; of a pod that does not exist nothing is lost."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Look at pods on behalf of many who ask."""
        gpus = [shape.counted[Kind.GPU] for shape in snapshot.shapes]
        self._gpus: Final = gpus
        self._shape: Final[list[int]] = snapshot.pods.shape.tolist()
        self._unit: Final[list[int]] = snapshot.pods.unit.tolist()
        self._seconds: Final = [lost_of(it.since, it.saved, snapshot.now) for it in snapshot.units]

    def lost(self, pods: Iterable[int]) -> int:
        """Return what is lost with some pods, in thousandths of a GPU times seconds."""
        shape, unit = self._shape, self._unit
        return sum([self._gpus[shape[pod]] * self._seconds[unit[pod]] for pod in pods if pod >= 0])


def lost_of(since: int, saved: int, now: int) -> int:
    """Return how many seconds of work would be lost; none where nobody knows since when."""
    last = max(since, saved)
    return max(now - last, 0) if last else 0


def in_order(
    line: Iterable[int],
    order: VictimOrder,
    tenants: Tenants,
    lost: Callable[[Iterable[int]], int],
    asked: Amounts,
) -> Iterator[int]:
    """Yield the blocks of a line by what a site has chosen; a unit's own stay in their order."""
    least: dict[int, int] = {}  # by unit: what its blocks before count
    ranks: dict[int, int] = {}
    for block in line:
        unit, members = tenants.units[block][0], tenants.members[block]
        rank = order.rank(
            tenants.amounts(block, members), lost(member.pod for member in members), asked
        )
        ranks[block] = least[unit] = max(rank, least.get(unit, rank))
    yield from sorted(ranks, key=ranks.__getitem__)
