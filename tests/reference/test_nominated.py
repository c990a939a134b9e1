"""A nominated pod gets its node, unless a PodGroup before it in its own queue takes it."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from tests.reference import TooManyCandidates, nominated_cluster, run_cycle
from tests.reference.comparison import difference, difference_report
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = ("reclaim", "preempt")
_BOUNDS: Final = ("ExceedsLimit", "NonPreemptibleOverQuota")
_DEFAULT: Final = 50  # the priority of who names no class


def play(objects: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Ask the product."""
    return simulate(objects, SimulationOptions(actions=("allocate", *_THEN), kueue=True))


@pytest.mark.parametrize("block", blocks(100), ids=by_first_seed)
def test_reference_and_product_keep_promises_alike(block: range) -> None:
    """Of clusters in which most of those who wait were promised something."""
    kept = looked_at = 0
    for seed in block:
        objects = nominated_cluster(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN)
        except TooManyCandidates:
            continue
        looked_at += 1
        kept += bool(decided.binds)
        if difference(objects, play, _THEN):
            pytest.fail(difference_report(seed, objects, play, _THEN), pytrace=False)
    assert looked_at >= 0.5 * len(block)
    assert block.start or kept >= 0.3 * len(block)


def test_they_keep_promises_alike_where_they_did_not() -> None:
    """What was not held at first is not held later, though its room be there then."""
    assert difference(nominated_cluster(Random(3322893)), play, _THEN) == ""


@pytest.mark.parametrize("block", blocks(30), ids=by_first_seed)
@pytest.mark.parametrize("victims", ["kai", "least-work-lost", "fewest-units"])
def test_capacity_freed_for_a_claimant_goes_to_no_other_queue(block: range, victims: str) -> None:
    """He is bound or promised something in the next plan, or somebody before him got something."""
    options = SimulationOptions(cycles=6, nominations="keep", victims=victims)
    waited = 0
    for seed in block:
        objects = nominated_cluster(Random(seed), as_before=True)
        cycles = simulate(objects, options)["cycles"]
        waited += any(cycle["nominations"] for cycle in cycles)
        assert list(_lost_nominations(objects, cycles)) == [], f"seed {seed}"
    assert block.start or waited >= 0.1 * len(block)


def _lost_nominations(
    objects: Sequence[Mapping[str, Any]], cycles: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str]]:
    """Yield when and who lost what was promised, though nobody before him in his queue has it.

    That is his room; or, where a bound of the queue is in his way, anything.
    """
    priorities = {it["metadata"]["name"]: it["value"] for it in objects if "value" in it}
    specs = {it["metadata"]["name"]: it["spec"] for it in objects if it["kind"] == "PodGroup"}
    of = {
        name: (spec["queue"], priorities.get(spec.get("priorityClassName", ""), _DEFAULT))
        for name, spec in specs.items()
    }
    promised: dict[str, str] = {}
    for number, cycle in enumerate(cycles, start=1):
        got = {one["pod"]: one["node"] for one in (*cycle["binds"], *cycle["nominations"])}
        refused = {it["podGroup"] for it in cycle["unschedulable"] if it["reason"] in _BOUNDS}
        for pod in promised.keys() - got.keys():
            queue, priority = of[_podgroup_of(pod)]
            nodes = {
                node for one, node in promised.items() if _podgroup_of(one) == _podgroup_of(pod)
            }
            takers = [
                of[_podgroup_of(it)]
                for it in got
                if got[it] in nodes or _podgroup_of(pod) in refused
            ]
            if not any(other == queue and larger > priority for other, larger in takers):
                yield number, pod
        promised = {one["pod"]: one["node"] for one in cycle["nominations"]}


def _podgroup_of(pod: str) -> str:
    return pod.rsplit("-", 1)[0]
