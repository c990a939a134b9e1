"""Rather start now than wait for what is being released."""

from scheduler.core.model import SchedulingSignature
from scheduler.core.policy import NodeFeatures, ScoreValue

__all__ = ["availability"]


def availability(_signature: SchedulingSignature, seats: NodeFeatures) -> ScoreValue:
    """Like nodes with idle room."""
    return 1 * seats.fits_idle
