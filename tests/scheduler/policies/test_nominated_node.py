"""What was promised is the first choice."""

import numpy as np

from scheduler.core.policy import NodeFeatures
from scheduler.policies.nominated_node import nominated_node
from tests.support.snapshots import signature


def test_the_nominated_node_is_preferred() -> None:
    """And no other."""
    nominated = np.array([False, True])
    seats = NodeFeatures(
        free=5,
        allocatable=8,
        max_allocatable=8,
        fits_idle=True,
        has_gpu=False,
        is_nominated=nominated,
    )
    assert nominated_node(signature(), seats).tolist() == [0, 1]
