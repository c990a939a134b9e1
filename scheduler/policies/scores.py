"""Node scores: binpack and spread, idle and nominated nodes, and no GPU nodes for CPU pods."""

from scheduler.core.model.plugins import NodeFeatures, ScorePlugin, ScoreValue
from scheduler.core.model.podgroup import SchedulingSignature

__all__ = [
    "availability",
    "binpack",
    "by_resource_type",
    "nominated_node",
    "resource_type",
    "spread",
]


def availability(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Like nodes with idle room."""
    return 1 * features.fits_idle


def nominated_node(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Like the node that was nominated."""
    return 1 * features.is_nominated


def binpack(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Like nodes that have little room left; those with less than none have none."""
    return 1 - features.free * (features.free > 0) / max(features.max_allocatable, 1)


def spread(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Like nodes of which a large part is free; those with less than none have none."""
    return (
        features.free * (features.free > 0) / (features.allocatable + (features.allocatable == 0))
    )


def by_resource_type(gpu: ScorePlugin, cpu: ScorePlugin) -> ScorePlugin:
    """Return a score that treats pods with GPUs in one way, and others in another."""

    def score(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
        return gpu(signature, features) if signature.has_gpu else cpu(signature, features)

    return score


def resource_type(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Like nodes without GPUs, if the pod has no use for them."""
    return 0 * features.has_gpu if signature.has_gpu else 1 - 1 * features.has_gpu
