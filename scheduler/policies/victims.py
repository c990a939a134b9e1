"""Who would lose something first: what a site may choose instead of KAI's order."""

from collections.abc import Mapping
from typing import Final

from scheduler.core.model import ResourceKind
from scheduler.core.policy import VictimOrderPlugin
from scheduler.core.usage import Amounts

__all__ = ["VICTIM_ORDERS"]


def _least_work(_amounts: Amounts, lost_work: int, _requested: Amounts) -> int:
    return lost_work


def _most_released(amounts: Amounts, _lost_work: int, requested: Amounts) -> int:
    """Count what it gives, the most first; more than is asked for is worth no more."""
    kind = ResourceKind.GPU if requested[ResourceKind.GPU] else ResourceKind.CPU
    return -min(amounts[kind], requested[kind])


VICTIM_ORDERS: Final[Mapping[str, VictimOrderPlugin | None]] = {
    "kai": None,
    "least-work-lost": VictimOrderPlugin(_least_work, "who loses the least work goes first"),
    "fewest-units": VictimOrderPlugin(_most_released, "who gives the most goes first"),
}
