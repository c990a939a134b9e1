"""Nodes that PodGroups avoid: both schedulers place no pod there, and evict none for it."""

from random import Random

import pytest

from tests.reference.product_plans import compare_cycles, compare_evictions
from tests.reference.random_clusters.avoided import avoiding_cluster
from tests.support.size import blocks, by_first_seed


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_choose_the_same_nodes(block: range) -> None:
    """Binds, nominations, reservations and reasons are the same."""
    without_node = compare_cycles(block, avoiding_cluster, "NoNodeMatches")
    assert block.start or without_node >= 0.3 * len(block)


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_reference_and_product_evict_the_same_pods(block: range) -> None:
    """Where more evictions always help; and consolidation relocates the same PodGroups."""
    looked_at = 0
    for seed in block:
        looked_at += compare_evictions(seed, avoiding_cluster(Random(seed), borrowed=True))
    assert looked_at >= 0.5 * len(block)
