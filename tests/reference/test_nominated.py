"""A nominated pod gets its node, unless a PodGroup before it in its own queue takes it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from tests.reference.comparison import difference, difference_from, difference_report
from tests.reference.nominations import lost_nominations
from tests.reference.random_clusters.nominated import nominated_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import TooManyCandidates
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = ("reclaim", "preempt")


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product."""
    return simulate(objects, SimulationOptions(actions=("allocate", *_THEN), kueue=True))


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_keep_promises_alike(block: range) -> None:
    """Of clusters in which most waiting PodGroups are nominated."""
    kept = looked_at = 0
    for seed in block:
        objects = nominated_cluster(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN)
        except TooManyCandidates:
            continue
        looked_at += 1
        kept += bool(decided.binds)
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play, _THEN), pytrace=False)
    assert looked_at >= 0.5 * len(block)
    assert block.start or kept >= 0.3 * len(block)


def test_they_keep_promises_alike_where_they_did_not() -> None:
    """What was not held at first is not held later, though its room be there then."""
    assert difference(nominated_cluster(Random(3322893)), play, _THEN) == ""


@pytest.mark.parametrize("block", blocks(30), ids=by_first_seed)
@pytest.mark.parametrize("victims", ["kai", "least-work-lost", "fewest-podgroups"])
def test_capacity_freed_for_a_claimant_goes_to_no_other_queue(block: range, victims: str) -> None:
    """It is bound or nominated in the next plan, or a PodGroup ahead of it got pods placed."""
    options = SimulationOptions(cycles=6, nominations="keep", victims=victims)
    waited = 0
    for seed in block:
        objects = nominated_cluster(Random(seed), as_before=True)
        cycles = simulate(objects, options)["cycles"]
        waited += any(cycle["nominations"] for cycle in cycles)
        assert list(lost_nominations(objects, cycles)) == [], f"seed {seed}"
    assert block.start or waited >= 0.1 * len(block)
