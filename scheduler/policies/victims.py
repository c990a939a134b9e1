"""Who would lose something first: what a site may choose instead of KAI's order."""

from collections.abc import Mapping
from typing import Final

from scheduler.core.model import Kind
from scheduler.core.policy import VictimOrder
from scheduler.core.usage import Amounts

__all__ = ["VICTIMS"]


def _work(_amounts: Amounts, work: int, _asked: Amounts) -> int:
    return work


def _given(amounts: Amounts, _work: int, asked: Amounts) -> int:
    """Count what it gives, the most first; more than is asked for is worth no more."""
    kind = Kind.GPU if asked[Kind.GPU] else Kind.CPU
    return -min(amounts[kind], asked[kind])


VICTIMS: Final[Mapping[str, VictimOrder | None]] = {
    "kai": None,
    "least-work-lost": VictimOrder(_work, "who loses the least work goes first"),
    "fewest-units": VictimOrder(_given, "who gives the most goes first"),
}
