"""Within a queue, who lacks what it needs goes before who wants to grow."""

from scheduler.core.model import Unit

__all__ = ["elastic"]


def elastic(_unit: Unit, standing: int) -> int:
    """Return below the minimum first, then at it, then above."""
    return standing
