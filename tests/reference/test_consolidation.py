"""Which PodGroups consolidation relocates, to where, and that it ends."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final

import pytest

from tests.reference.comparison import difference_from, difference_report
from tests.reference.objects import group, node, pod, queue
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import TooManyCandidates
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = ("consolidation",)
_VERSIONS: Final = {
    "Queue": "scheduling.run.ai/v2",
    "PodGroup": "scheduling.run.ai/v2alpha2",
}


def scattered(random: Random) -> list[dict[str, Any]]:
    """Return gangs that lie here and there, and others for which there is no room in one place.

    What pods ask for divides what larger ones do: where they lie, more gone is more room.
    """
    size = random.choice((4, 8))
    idle = {f"n{i}": size for i in range(random.choice((2, 3, 4)))}
    bound = {"quota": random.choice((-1, 0, size)), "limit": random.choice((-1, -1, 2 * size))}
    objects = [queue("q"), queue("r", gpu=bound), *(node(name, 64, size) for name in idle)]
    for i in range(random.choice((2, 3, 4, 5, 6, 7))):
        gpu, count = random.choice((1, 1, 2, size // 2)), random.choice((1, 1, 1, 2))
        at = [name for name in random.sample([*idle], len(idle)) if idle[name] >= gpu][:count]
        for name in at:
            idle[name] -= gpu
        objects += _gang(random, f"g{i}", [(gpu, name) for name in at])
    for i in range(random.choice((1, 1, 2, 3))):
        gpu = random.choice((size // 2, size, size))
        objects += _gang(random, f"w{i}", [(gpu, "")] * random.choice((1, 1, 2)))
    random.shuffle(objects)
    return [{"apiVersion": _VERSIONS.get(it["kind"], "v1"), **it} for it in objects]


def _gang(random: Random, name: str, pods: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Return a PodGroup and its pods; now and then a pod without one, or non-preemptible."""
    if random.random() < 0.1:
        labels = {"kai.scheduler/queue": "q"}
        return [pod(name, gpu=gpu, at=at, labels=labels) for gpu, at in pods[:1]]
    wish = {} if random.random() < 0.85 else {"preemptibility": "non-preemptible"}
    least = random.choice((1, len(pods), len(pods)))
    it = group(name, max(least, 1), **wish)
    it["spec"]["queue"] = random.choice(("q", "r"))
    return [it, *(pod(f"{name}-{i}", name, gpu=gpu, at=at) for i, (gpu, at) in enumerate(pods))]


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product."""
    return simulate(objects, SimulationOptions(actions=("allocate", *_THEN), kueue=True))


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_move_alike(block: range) -> None:
    """Of scattered clusters, in which a PodGroup is relocated now and then."""
    moving = looked_at = 0
    for seed in block:
        objects = scattered(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN)
        except TooManyCandidates:
            continue
        looked_at += 1
        moving += bool(decided.evictions)
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play, _THEN), pytrace=False)
    assert looked_at >= 0.9 * len(block)
    assert block.start or moving >= 0.05 * len(block)


@pytest.mark.parametrize("block", blocks(20), ids=by_first_seed)
@pytest.mark.parametrize("nominations", ["drop", "keep"])
@pytest.mark.parametrize("actions", [("allocate", *_THEN), ()], ids=["alone", "with all others"])
def test_it_ends(block: range, nominations: Any, actions: tuple[str, ...]) -> None:
    """No PodGroup is moved to and fro: a relocated one has its place, and then nothing changes.

    Each of up to three that wait may first take what another got by moves a plan earlier.
    """
    for seed in block:
        options = SimulationOptions(cycles=12, nominations=nominations, actions=actions)
        cycles = simulate(scattered(Random(seed)), options)["cycles"]
        for one, then in pairwise(cycles):
            moved = {it["pod"] for it in one["evictions"] if it["action"] == "consolidation"}
            assert moved <= {it["pod"] for it in then["binds"]}, f"seed {seed}"
        late = [(cycle["evictions"], cycle["binds"]) for cycle in cycles[9:]]
        assert late == [([], [])] * 3, f"seed {seed}"
