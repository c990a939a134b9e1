"""Nodes that PodGroups avoid: both schedulers place no pod there, and evict none for it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from scheduler.core.plan import plan
from tests.reference.comparison import difference_from, difference_report
from tests.reference.random_clusters.avoided import avoiding_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import DependsOnOrder, TooManyCandidates
from tests.support.size import blocks, by_first_seed
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = ("reclaim", "preempt")


def play(objects: Sequence[dict[str, Any]], *then: str) -> Mapping[str, Any]:
    """Ask the product; every plan keeps what must hold."""

    def checked(snapshot: Any, policies: Any) -> Any:
        made = plan(snapshot, policies)
        assert [*plan_violations(snapshot, made)] == []
        return made

    return simulate(objects, SimulationOptions(actions=("allocate", *then), kueue=True), checked)


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_choose_the_same_nodes(block: range) -> None:
    """Binds, nominations, reservations and reasons are the same."""
    without_node = 0
    for seed in block:
        objects = avoiding_cluster(Random(seed))
        decided = run_cycle(objects)
        without_node += "NoNodeMatches" in decided.unschedulable.values()
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play), pytrace=False)
    assert block.start or without_node >= 0.3 * len(block)


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_reference_and_product_evict_the_same_pods(block: range) -> None:
    """Where more evictions always help; and consolidation relocates the same PodGroups."""
    looked_at = 0
    for seed in block:
        objects = avoiding_cluster(Random(seed), borrowed=True)
        for then in (_THEN, ("consolidation",)):
            try:
                decided = run_cycle(objects, then=then, checks_order=True)
            except (TooManyCandidates, DependsOnOrder):
                continue
            looked_at += 1

            def ask(
                some: Sequence[dict[str, Any]], then: Sequence[str] = then
            ) -> Mapping[str, Any]:
                return play(some, *then)

            if difference_from(decided, objects, ask):
                pytest.fail(difference_report(seed, objects, ask, then), pytrace=False)
    assert looked_at >= 0.5 * len(block)
