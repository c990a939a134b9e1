"""Reclaim and preempt choose the victims that a search of every set finds, and they end."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from tests.reference.comparison import difference, difference_from, difference_report
from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.random_clusters.non_evictable import non_evictable_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import TooManyCandidates
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = ("reclaim", "preempt")


def play(objects: Sequence[dict[str, Any]], victims: str = "kai") -> Mapping[str, Any]:
    """Ask the product."""
    return simulate(
        objects, SimulationOptions(actions=("allocate", *_THEN), victims=victims, kueue=True)
    )


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
@pytest.mark.parametrize("timed", [False, True], ids=["any-time", "timed"])
def test_reference_and_product_take_alike(block: range, timed: bool) -> None:
    """Of crowded clusters, in which a PodGroup loses pods now and then."""
    evicting = looked_at = 0
    for seed in block:
        objects = random_cluster(Random(seed), crowded=True, timed=timed)
        try:
            decided = run_cycle(objects, then=_THEN)
        except TooManyCandidates:
            continue
        looked_at += 1
        evicting += bool(decided.evictions)
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play, _THEN), pytrace=False)
    assert looked_at >= 0.9 * len(block)
    assert block.start or timed or evicting >= 0.05 * len(block)  # fewer where many are protected


@pytest.mark.parametrize("seed", [3110000, 3281815, 3400067])
def test_they_take_alike_where_they_did_not(seed: int) -> None:
    """What a PodGroup that lost pods in the same plan requests, or where it is in the order."""
    assert difference(random_cluster(Random(seed), crowded=True), play, _THEN) == ""


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
@pytest.mark.parametrize("victims", ["kai", "least-work-lost", "fewest-podgroups"])
def test_they_take_alike_whatever_is_chosen(block: range, victims: str) -> None:
    """Which PodGroup would lose pods first, and however far queues get."""

    def chosen(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
        return play(objects, victims)

    others = looked_at = 0
    for seed in block:
        objects = borrowed_cluster(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN, victims=victims)
            if victims != "kai":
                others += decided.evictions != run_cycle(objects, then=_THEN).evictions
        except TooManyCandidates:
            continue
        looked_at += 1
        if difference_from(decided, objects, chosen):
            pytest.fail(difference_report(seed, objects, chosen, _THEN, victims), pytrace=False)
    assert looked_at >= 0.9 * len(block)
    assert block.start or victims == "kai" or others


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
@pytest.mark.parametrize("budgets", ["best-effort", "always"])
def test_they_take_alike_whatever_keeps_it(block: range, budgets: str) -> None:
    """Budgets, pods that succeeded, and TrainJobs that cannot be evicted."""
    keeps = budgets == "always"
    chosen = SimulationOptions(("allocate", *_THEN), disruption_budgets=budgets, kueue=True)

    def found(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
        return simulate(objects, chosen)

    evicting = looked_at = 0
    for seed in block:
        objects = non_evictable_cluster(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN, keeps_budgets=keeps)
        except TooManyCandidates:
            continue
        looked_at += 1
        evicting += bool(decided.evictions)
        if difference_from(decided, objects, found):
            message = difference_report(seed, objects, found, _THEN, keeps_budgets=keeps)
            pytest.fail(message, pytrace=False)
    assert looked_at >= 0.9 * len(block)
    assert block.start or evicting >= 0.05 * len(block)


@pytest.mark.parametrize("block", blocks(6), ids=by_first_seed)
@pytest.mark.parametrize("goal", ["fair-share", "quota-only"])
@pytest.mark.parametrize("victims", ["kai", "least-work-lost", "fewest-podgroups"])
def test_it_ends_whatever_is_chosen(block: range, goal: str, victims: str) -> None:
    """Whichever PodGroup loses pods first, and however far queues get."""
    options = SimulationOptions(cycles=10, victims=victims)
    for seed in block:
        objects = borrowed_cluster(Random(seed))
        for one in objects:
            if one["kind"] == "Queue":
                one["metadata"]["annotations"] = {"trainer-kai.dev/reclaim-goal": goal}
        cycles = simulate(objects, options)["cycles"][7:]
        moves = [(cycle["evictions"], cycle["binds"]) for cycle in cycles]
        assert moves == [([], [])] * 3, f"seed {seed}"


@pytest.mark.parametrize("block", blocks(10), ids=by_first_seed)
@pytest.mark.parametrize("budgets", ["best-effort", "always"])
def test_it_ends_whatever_keeps_it(block: range, budgets: str) -> None:
    """What went although a budget or a pod that succeeded kept it does not come back for it."""
    options = SimulationOptions(cycles=10, disruption_budgets=budgets, kueue=True)
    for seed in block:
        cycles = simulate(non_evictable_cluster(Random(seed)), options)["cycles"][7:]
        moves = [(cycle["evictions"], cycle["binds"]) for cycle in cycles]
        assert moves == [([], [])] * 3, f"seed {seed}"


@pytest.mark.parametrize("block", blocks(20), ids=by_first_seed)
@pytest.mark.parametrize("nominations", ["drop", "keep"])
def test_it_ends(block: range, nominations: Any) -> None:
    """No pod is evicted to and fro: after a few cycles nothing changes any more."""
    for seed in block:
        assert late(seed, nominations) == [([], [])] * 3, f"seed {seed}"


@pytest.mark.parametrize("nominations", ["drop", "keep"])
@pytest.mark.parametrize("seed", [134, 739, 1243, 1325, 1352, 1420, 5039, 5202, 1470444, 1705820])
def test_it_ends_where_it_did_not(seed: int, nominations: Any) -> None:
    """By KAI's rules alone these go to and fro for ever."""
    assert late(seed, nominations) == [([], [])] * 3


def late(seed: int, nominations: Any) -> list[tuple[Any, Any]]:
    """Return which pods are evicted and bound in the last of some cycles."""
    options = SimulationOptions(cycles=10, nominations=nominations)
    document = simulate(random_cluster(Random(seed), crowded=True), options)
    return [(cycle["evictions"], cycle["binds"]) for cycle in document["cycles"][7:]]
