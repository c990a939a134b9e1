"""What the tests of whole clusters share: the product's answer, and its evictions beside others."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from scheduler.core.plan import plan
from tests.reference.comparison import difference_from, difference_report
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import DependsOnOrder, TooManyCandidates
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_THEN: Final = (("reclaim", "preempt"), ("consolidation",))


def play(objects: Sequence[dict[str, Any]], *then: str) -> Mapping[str, Any]:
    """Ask the product; every plan keeps what must hold."""

    def checked(snapshot: Any, policies: Any) -> Any:
        made = plan(snapshot, policies)
        assert [*plan_violations(snapshot, made)] == []
        return made

    return simulate(objects, SimulationOptions(actions=("allocate", *then), kueue=True), checked)


def compare_cycles(
    block: range, cluster: Callable[[Random], Sequence[dict[str, Any]]], reason: str
) -> int:
    """Compare random clusters; return in how many of them something waits with a reason."""
    waiting = 0
    for seed in block:
        objects = cluster(Random(seed))
        decided = run_cycle(objects)
        waiting += reason in decided.unschedulable.values()
        if difference_from(decided, objects, play):
            pytest.fail(difference_report(seed, objects, play), pytrace=False)
    return waiting


def compare_evictions(seed: int, objects: Sequence[dict[str, Any]]) -> int:
    """Compare where more evictions always help; return how many times that was so."""
    compared = 0
    for then in _THEN:
        try:
            decided = run_cycle(objects, then=then, checks_order=True)
        except (TooManyCandidates, DependsOnOrder):
            continue
        compared += 1

        def ask(some: Sequence[dict[str, Any]], then: Sequence[str] = then) -> Mapping[str, Any]:
            return play(some, *then)

        if difference_from(decided, objects, ask):
            pytest.fail(difference_report(seed, objects, ask, then), pytrace=False)
    return compared
