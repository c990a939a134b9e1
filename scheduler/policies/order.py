"""Orders: PodGroups of a queue by priority and minimum, victims by what their eviction costs."""

from collections.abc import Mapping
from typing import Final

from scheduler.core.model.plugins import VictimOrderPlugin
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import Amounts, ResourceKind


def priority(podgroup: PodGroupInfo, _min_available_state: int) -> int:
    """Return a smaller number for a larger priority."""
    return -podgroup.priority


def elastic(_podgroup: PodGroupInfo, min_available_state: int) -> int:
    """Return below the minimum first, then at it, then above."""
    return min_available_state


def _least_work(_amounts: Amounts, lost_work: int, _requested: Amounts) -> int:
    return lost_work


def _most_released(amounts: Amounts, _lost_work: int, requested: Amounts) -> int:
    """Return what is released, the most first; more than is requested counts no more."""
    kind = ResourceKind.GPU if requested[ResourceKind.GPU] else ResourceKind.CPU
    return -min(amounts[kind], requested[kind])


VICTIM_ORDERS: Final[Mapping[str, VictimOrderPlugin | None]] = {
    "kai": None,
    "least-work-lost": VictimOrderPlugin(
        _least_work, "victims that lose the least work are evicted first"
    ),
    "fewest-units": VictimOrderPlugin(
        _most_released, "victims that release the most are evicted first"
    ),
}
