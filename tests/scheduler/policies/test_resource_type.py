"""Nodes with GPUs stay free of pods that need none."""

import numpy as np
import pytest

from scheduler.core.policy import NodeFeatures
from scheduler.policies.resource_type import resource_type
from tests.support.snapshots import signature


@pytest.mark.parametrize(("gpu", "want"), [(0, [0, 1]), (0.5, [0, 0]), (8, [0, 0])])
def test_nodes_without_gpus_are_liked_by_who_needs_none(gpu: float, want: list[int]) -> None:
    """Pods with GPUs have no opinion."""
    has = np.array([True, False])
    seats = NodeFeatures(
        free=5, allocatable=8, max_allocatable=8, fits_idle=True, has_gpu=has, is_nominated=False
    )
    assert resource_type(signature(gpu=gpu), seats).tolist() == want
