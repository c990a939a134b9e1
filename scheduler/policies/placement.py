"""Binpack and spread: fill nodes up, or keep them equally empty."""

from scheduler.core.model import SchedulingSignature
from scheduler.core.policy import NodeFeatures, ScorePlugin, ScoreValue

__all__ = ["binpack", "by_resource_type", "spread"]


def binpack(_signature: SchedulingSignature, seats: NodeFeatures) -> ScoreValue:
    """Like nodes that have little room left; those with less than none have none."""
    return 1 - seats.free * (seats.free > 0) / max(seats.max_allocatable, 1)


def spread(_signature: SchedulingSignature, seats: NodeFeatures) -> ScoreValue:
    """Like nodes of which a large part is free; those with less than none have none."""
    return seats.free * (seats.free > 0) / (seats.allocatable + (seats.allocatable == 0))


def by_resource_type(gpu: ScorePlugin, cpu: ScorePlugin) -> ScorePlugin:
    """Return a score that treats pods with GPUs in one way, and others in another."""

    def score(signature: SchedulingSignature, seats: NodeFeatures) -> ScoreValue:
        return gpu(signature, seats) if signature.has_gpu else cpu(signature, seats)

    return score
