"""The product decides what the reference decides, of clusters drawn by lot."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tests.scheduler.reference.agreement import difference, told
from tests.support.reference import random_cluster
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.simulation import Options, simulate


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product; the time is the newest timestamp of the objects."""
    return simulate(objects, Options(actions=("allocate",)))


@pytest.mark.parametrize("block", blocks(150), ids=by_first_seed)
def test_reference_and_product_agree(block: range) -> None:
    """Every cluster is decided alike: binds, nominations, reservations, verdicts and shares."""
    for seed in block:
        objects = random_cluster(Random(seed))
        if difference(objects, play):
            pytest.fail(told(seed, objects, play), pytrace=False)
