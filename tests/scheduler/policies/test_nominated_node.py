"""What was promised is the first choice."""

import numpy as np

from scheduler.core.policy import Seats
from scheduler.policies.nominated_node import nominated_node
from tests.support.snapshots import shape


def test_the_promised_node_is_liked() -> None:
    """And no other."""
    promised = np.array([False, True])
    seats = Seats(room=5, whole=8, most=8, fits_now=True, has_gpu=False, is_nominated=promised)
    assert nominated_node(shape(), seats).tolist() == [0, 1]
