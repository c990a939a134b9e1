"""Topologies: both schedulers choose the same domains, and let the same PodGroups wait."""

from random import Random

import pytest

from tests.reference.product_plans import compare_cycles, compare_evictions
from tests.reference.random_clusters.topologies import topology_cluster
from tests.support.size import blocks, by_first_seed


@pytest.mark.parametrize("block", blocks(150), ids=by_first_seed)
def test_reference_and_product_choose_the_same_domains(block: range) -> None:
    """Binds, nominations, reservations and reasons are the same."""
    unfit = compare_cycles(block, topology_cluster, "TopologyUnfit")
    assert block.start or unfit >= 0.05 * len(block)


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_evict_the_same_pods(block: range) -> None:
    """Where more evictions always help; and consolidation relocates the same PodGroups."""
    looked_at = 0
    for seed in block:
        looked_at += compare_evictions(seed, topology_cluster(Random(seed), borrowed=True))
    assert looked_at >= 0.5 * len(block)
