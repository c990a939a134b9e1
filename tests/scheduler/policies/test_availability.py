"""Rather start now than wait."""

import numpy as np

from scheduler.core.policy import Seats
from scheduler.policies.availability import availability
from tests.support.snapshots import shape


def test_idle_room_is_liked() -> None:
    """Whether the pod needs GPUs or not."""
    now = np.array([True, False])
    seats = Seats(room=5, whole=8, most=8, fits_now=now, has_gpu=False, is_nominated=False)
    assert availability(shape(), seats).tolist() == [1, 0]
    assert availability(shape(gpu=1), seats).tolist() == [1, 0]
