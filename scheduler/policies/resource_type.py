"""Keep nodes with GPUs free of pods that need none."""

from scheduler.core.model import SchedulingSignature
from scheduler.core.policy import NodeFeatures, ScoreValue

__all__ = ["resource_type"]


def resource_type(signature: SchedulingSignature, seats: NodeFeatures) -> ScoreValue:
    """Like nodes without GPUs, if the pod has no use for them."""
    return 0 * seats.has_gpu if signature.has_gpu else 1 - 1 * seats.has_gpu
