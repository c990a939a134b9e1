"""Topologies: both schedulers choose the same domains, and let the same PodGroups wait."""

from random import Random

import pytest

from tests.reference.comparison import difference_from, difference_report
from tests.reference.product_plans import compare_evictions, play
from tests.reference.random_clusters.topologies import topology_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.support.size import blocks, by_first_seed


@pytest.mark.parametrize("block", blocks(150), ids=by_first_seed)
def test_reference_and_product_choose_the_same_domains(block: range) -> None:
    """Binds, nominations, reservations and reasons are the same."""
    unfit = 0
    for seed in block:
        objects = topology_cluster(Random(seed))
        decided = run_cycle(objects)
        unfit += "TopologyUnfit" in decided.unschedulable.values()
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play), pytrace=False)
    assert block.start or unfit >= 0.05 * len(block)


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_evict_the_same_pods(block: range) -> None:
    """Where more evictions always help; and consolidation relocates the same PodGroups."""
    looked_at = 0
    for seed in block:
        looked_at += compare_evictions(seed, topology_cluster(Random(seed), borrowed=True))
    assert looked_at >= 0.5 * len(block)
