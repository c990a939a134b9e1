"""Terminating pods of queues with limits: both schedulers let the same PodGroups wait for them."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from scheduler.core.plan import plan
from tests.reference.comparison import difference, difference_from, difference_report
from tests.reference.random_clusters.terminating import terminating_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import TooManyCandidates
from tests.support.size import blocks, by_first_seed
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = ("reclaim", "preempt")


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product; every plan keeps what must hold."""

    def checked(snapshot: Any, policies: Any) -> Any:
        made = plan(snapshot, policies)
        assert [*plan_violations(snapshot, made)] == []
        return made

    return simulate(objects, SimulationOptions(actions=("allocate", *_THEN), kueue=True), checked)


def move(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product to move others only."""
    return simulate(objects, SimulationOptions(actions=("allocate", "consolidation"), kueue=True))


@pytest.mark.parametrize("block", blocks(150), ids=by_first_seed)
def test_reference_and_product_let_the_same_podgroups_wait(block: range) -> None:
    """Binds, nominations, evictions and reasons are the same."""
    waiting = looked_at = 0
    for seed in block:
        objects = terminating_cluster(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN)
        except TooManyCandidates:
            continue
        looked_at += 1
        waiting += "ExceedsLimit" in decided.unschedulable.values()
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play, _THEN), pytrace=False)
    assert looked_at >= 0.5 * len(block)
    assert block.start or waiting >= 0.2 * len(block)


def even(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let what pods ask for divide what larger ones do: then more gone is more room."""
    for it in objects:
        for container in it.get("spec", {}).get("containers", ()):
            requests = container["resources"]["requests"]
            requests["nvidia.com/gpu"] = requests["nvidia.com/gpu"].replace("3", "2")
    return [*objects]


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_they_move_alike_beside_what_goes(block: range) -> None:
    """Also where the claimant has to wait for what goes of its own queues."""
    for seed in block:
        objects = even(terminating_cluster(Random(seed)))
        try:
            differs = difference(objects, move, ("consolidation",))
        except TooManyCandidates:
            continue
        if differs:
            pytest.fail(difference_report(seed, objects, move, ("consolidation",)), pytrace=False)
