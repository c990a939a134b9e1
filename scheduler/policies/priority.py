"""Within a queue, who is more important goes first."""

from scheduler.core.model import PodGroupInfo

__all__ = ["priority"]


def priority(podgroup: PodGroupInfo, _min_available_state: int) -> int:
    """Return a smaller number for a larger priority."""
    return -podgroup.priority
