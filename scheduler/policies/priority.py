"""Within a queue, who is more important goes first."""

from scheduler.core.model import Unit

__all__ = ["priority"]


def priority(unit: Unit, _standing: int) -> int:
    """Return a smaller number for a larger priority."""
    return -unit.priority
