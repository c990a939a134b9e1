"""What work is lost with whom: GPUs times the seconds since a unit began, or was last saved."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from scheduler.core.model import ResourceKind, Snapshot
from scheduler.core.policy import VictimOrderPlugin
from scheduler.core.tenants import VictimPool
from scheduler.core.usage import Amounts

__all__ = ["LostWork", "by_plugin", "lost_seconds"]


class LostWork:
    """By unit and by pod; of a pod that does not exist nothing is lost."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Look at pods on behalf of many who ask."""
        gpus = [signature.queue_request[ResourceKind.GPU] for signature in snapshot.signatures]
        self._gpus: Final = gpus
        self._signature: Final[list[int]] = snapshot.pods.signature.tolist()
        self._podgroup: Final[list[int]] = snapshot.pods.podgroup.tolist()
        self._seconds: Final = [
            lost_seconds(it.running_since, it.checkpoint_at, snapshot.now)
            for it in snapshot.podgroups
        ]

    def of_pods(self, pods: Iterable[int]) -> int:
        """Return what is lost with some pods, in thousandths of a GPU times seconds."""
        signature, podgroup = self._signature, self._podgroup
        return sum(
            [self._gpus[signature[pod]] * self._seconds[podgroup[pod]] for pod in pods if pod >= 0]
        )


def lost_seconds(running_since: int, checkpoint_at: int, now: int) -> int:
    """Return how many seconds of work would be lost; none where nobody knows since when."""
    last = max(running_since, checkpoint_at)
    return max(now - last, 0) if last else 0


def by_plugin(
    victim_order: Iterable[int],
    order: VictimOrderPlugin,
    victims: VictimPool,
    evicted: Callable[[Iterable[int]], int],
    requested: Amounts,
) -> Iterator[int]:
    """Yield the blocks of a line by what a site has chosen; a unit's own stay in their order."""
    least: dict[int, int] = {}  # by unit: what its blocks before count
    ranks: dict[int, int] = {}
    for eviction_unit in victim_order:
        podgroup, members = victims.podgroups[eviction_unit][0], victims.victims[eviction_unit]
        rank = order.rank(
            victims.amounts(eviction_unit, members),
            evicted(member.pod for member in members),
            requested,
        )
        ranks[eviction_unit] = least[podgroup] = max(rank, least.get(podgroup, rank))
    yield from sorted(ranks, key=ranks.__getitem__)
