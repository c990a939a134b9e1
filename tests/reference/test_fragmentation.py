"""The scheduler and the reference place pods alike where fragments of GPUs decide: rule 24a."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from tests.reference.comparison import difference, difference_from, difference_report
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.random_clusters.objects import Obj, make_object
from tests.reference.random_clusters.shared_gpus import shared_gpu_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate


def place(objects: Sequence[Obj]) -> Mapping[str, Any]:
    """Ask the product to evict no pods."""
    return simulate(objects, SimulationOptions(actions=("allocate",), kueue=True))


def by_fragments(objects: Sequence[Obj]) -> list[Obj]:
    """Return the objects, with a shard that places all pods by fragments."""
    shard = make_object("SchedulingShard", "default", "00:00:00")
    shard["spec"] = {"placementStrategy": {"gpu": "fragmentation", "cpu": "fragmentation"}}
    return [*(it for it in objects if it["kind"] != "SchedulingShard"), shard]


def with_ended_pods(objects: Sequence[Obj], random: Random) -> list[Obj]:
    """Return the objects, and pods like some of them that ended up to six hours ago."""
    newest = max(it["metadata"].get("creationTimestamp", "") for it in objects)
    found = [*objects]
    some = random.choices([it for it in objects if it["kind"] == "Pod"], k=3)
    for one in random.choices(some, (8, 4, 1), k=24):
        ended = deepcopy(one)
        name = f"{one['metadata']['name']}-ended-{len(found)}"
        ended["metadata"] |= {"name": name, "uid": name}
        ended["metadata"].pop("deletionTimestamp", None)
        ended["metadata"].setdefault("annotations", {}).pop("pod-group-name", None)
        minutes = random.choice((0, 20, 70, 130, 200, 340))
        at = datetime.fromisoformat(newest) - timedelta(minutes=minutes)
        since = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": since}
        ended["status"] = {"phase": random.choice(("Succeeded", "Failed")), "conditions": [ready]}
        ended["spec"]["nodeName"] = random.choice(("node-0", "gone", ""))
        found.append(ended)
    return found


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_pods_that_ended_lately_are_typical(block: range) -> None:
    """In some clusters they change where pods go; the order of the objects does not matter."""
    moved = 0
    for seed in block:
        random = Random(seed)
        objects = by_fragments(shared_gpu_cluster(random, few_pods=True))
        more = with_ended_pods(objects, random)
        decided = run_cycle(more)
        moved += decided.binds != run_cycle(objects).binds
        if difference_from(decided, random.sample(more, len(more)), place):
            pytest.fail(difference_report(seed, more, place), pytrace=False)
    assert block.start or moved


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_gangs_are_placed_alike(block: range) -> None:
    """Pods with whole GPUs, MIG profiles and none, with affinity, priorities and limits."""
    for seed in block:
        objects = by_fragments(random_cluster(Random(seed)))
        if difference(objects, place):
            pytest.fail(difference_report(seed, objects, place), pytrace=False)


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_shares_are_placed_alike(block: range) -> None:
    """In some clusters another node is chosen than with binpack."""
    moved = 0
    for seed in block:
        packed = shared_gpu_cluster(Random(seed), few_pods=True)
        objects = by_fragments(packed)
        decided = run_cycle(objects)
        moved += decided.binds != run_cycle(packed).binds
        if difference_from(decided, objects, place):
            pytest.fail(difference_report(seed, objects, place), pytrace=False)
    assert block.start or moved
