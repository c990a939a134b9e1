"""Rather start now than wait."""

import numpy as np

from scheduler.core.policy import NodeFeatures
from scheduler.policies.availability import availability
from tests.support.snapshots import signature


def test_idle_room_is_liked() -> None:
    """Whether the pod needs GPUs or not."""
    now = np.array([True, False])
    seats = NodeFeatures(
        free=5, allocatable=8, max_allocatable=8, fits_idle=now, has_gpu=False, is_nominated=False
    )
    assert availability(signature(), seats).tolist() == [1, 0]
    assert availability(signature(gpu=1), seats).tolist() == [1, 0]
