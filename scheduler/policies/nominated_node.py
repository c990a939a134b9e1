"""A node that was promised to a pod is its first choice."""

from scheduler.core.model import SchedulingSignature
from scheduler.core.policy import NodeFeatures, ScoreValue

__all__ = ["nominated_node"]


def nominated_node(_signature: SchedulingSignature, seats: NodeFeatures) -> ScoreValue:
    """Like the node that was nominated."""
    return 1 * seats.is_nominated
