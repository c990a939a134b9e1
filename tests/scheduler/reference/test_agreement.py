"""The product decides what the reference decides, on thousands of clusters drawn by lot.

TRAINER_KAI_SOAK_SEEDS says how many clusters, TRAINER_KAI_SOAK_BASE from which seed on.
"""

import os
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from tests.scheduler.reference.agreement import difference, told
from tests.support.reference import random_cluster
from trainer_kai.cli.simulation import Options, simulate

_SEEDS: Final = int(os.environ.get("TRAINER_KAI_SOAK_SEEDS", "1200"))
_BASE: Final = int(os.environ.get("TRAINER_KAI_SOAK_BASE", "0"))
_STEP: Final = max(60, _SEEDS // 50)


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product; the time is the newest timestamp of the objects."""
    return simulate(objects, Options(actions=("allocate",)))


@pytest.mark.parametrize("first", range(_BASE, _BASE + _SEEDS, _STEP))
def test_reference_and_product_agree(first: int) -> None:
    """Every cluster is decided alike: binds, nominations, reservations, verdicts and shares."""
    for seed in range(first, min(first + _STEP, _BASE + _SEEDS)):
        objects = random_cluster(Random(seed))
        if difference(objects, play):
            pytest.fail(told(seed, objects, play), pytrace=False)
