"""The scheduler and the reference decide the same on random clusters."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from tests.reference.comparison import difference, difference_report
from tests.reference.random_clusters.clusters import random_cluster
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product; the time is the newest timestamp of the objects."""
    return simulate(objects, SimulationOptions(actions=("allocate",), kueue=True))


_EXTREMES = ("1", "1Ei", "9999999999999999999", "1e30", "7Pi")


def extreme(random: Random) -> list[dict[str, Any]]:
    """Return a cluster in which some waiting pods request more than can be counted."""
    objects = random_cluster(random)
    waiting = [it for it in objects if it["kind"] == "Pod" and "nodeName" not in it["spec"]]
    for pod in random.sample(waiting, min(len(waiting), 3)):
        resource = random.choice(("cpu", "memory", "nvidia.com/gpu"))
        requests = {"requests": {resource: random.choice(_EXTREMES)}}
        container = {"name": "main", "image": "x", "resources": requests}
        pod["spec"] = {**pod["spec"], "containers": [container]}
    return objects


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_they_agree_on_what_is_more_than_can_be_counted(block: range) -> None:
    """The reference adds up numbers of any size; what the product cuts changes nothing."""
    for seed in block:
        objects = extreme(Random(seed))
        if difference(objects, play):
            pytest.fail(difference_report(seed, objects, play), pytrace=False)


@pytest.mark.parametrize("block", blocks(150), ids=by_first_seed)
def test_reference_and_product_agree(block: range) -> None:
    """Every cluster is decided alike: binds, nominations, reservations, reasons and shares."""
    for seed in block:
        objects = random_cluster(Random(seed))
        if difference(objects, play):
            pytest.fail(difference_report(seed, objects, play), pytrace=False)
