"""Node scores: binpack and spread, idle and nominated nodes, and no GPU nodes for CPU pods."""

from scheduler.core.model.plugins import NodeFeatures, ScorePlugin, ScoreValue
from scheduler.core.model.podgroup import SchedulingSignature


def availability(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer nodes with idle resources for the pod."""
    return 1 * features.fits_idle


def nominated_node(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer the node that was nominated."""
    return 1 * features.is_nominated


def shared_gpu(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer nodes with a GPU that pods share and that has the share idle."""
    return 1 * features.shares_gpu


def binpack(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer nodes with little free; less than nothing free counts as nothing."""
    return 1 - features.free * (features.free > 0) / max(features.max_allocatable, 1)


def spread(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer nodes with a large part free; less than nothing free counts as nothing."""
    return (
        features.free * (features.free > 0) / (features.allocatable + (features.allocatable == 0))
    )


def by_resource_type(gpu: ScorePlugin, cpu: ScorePlugin) -> ScorePlugin:
    """Return a score that uses one score for pods with GPUs, and another for the others."""

    def score(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
        return gpu(signature, features) if signature.has_gpu else cpu(signature, features)

    return score


def resource_type(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer nodes without GPUs for pods without GPUs."""
    return 0 * features.has_gpu if signature.has_gpu else 1 - 1 * features.has_gpu
