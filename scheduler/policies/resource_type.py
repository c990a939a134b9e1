"""Keep nodes with GPUs free of pods that need none."""

from scheduler.core.model import Shape
from scheduler.core.policy import Scored, Seats

__all__ = ["resource_type"]


def resource_type(shape: Shape, seats: Seats) -> Scored:
    """Like nodes without GPUs, if the pod has no use for them."""
    return 0 * seats.has_gpu if shape.has_gpu else 1 - 1 * seats.has_gpu
