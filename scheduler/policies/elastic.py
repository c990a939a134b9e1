"""Within a queue, who lacks what it needs goes before who wants to grow."""

from scheduler.core.model import PodGroupInfo

__all__ = ["elastic"]


def elastic(_podgroup: PodGroupInfo, min_available_state: int) -> int:
    """Return below the minimum first, then at it, then above."""
    return min_available_state
