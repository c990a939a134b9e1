"""Ablation of rules 10b, 32 and 34: what happens on random clusters without each of them.

The rules are ours, not KAI's, so each has to prevent something. Clusters are drawn at random and
simulated for some cycles, with all rules and without one. A cluster that still evicts or binds in
the last cycles never becomes quiet: PodGroups evict each other in turns, and each turn destroys
work. A nomination that is lost to another queue was made for nothing, and so were its evictions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from scheduler.core.actions.reclaim_preempt import ReclaimCheck
from scheduler.core.eviction.victim_set_solver import _Solver
from scheduler.core.nodes.nominated import NominatedCapacity
from tests.reference.nominations import lost_nominations
from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.random_clusters.nominated import nominated_cluster
from tests.reference.random_clusters.terminating import terminating_cluster
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_CLUSTERS: Final = 2000
_FIRST_SEED: Final = 7_000_000  # seeds that no test uses
_CYCLES: Final = 12
_LAST: Final = 3  # a cluster that changes in one of the last cycles is not quiet

Objects = list[dict[str, Any]]

_KINDS: Final[Sequence[Callable[[Random], Objects]]] = (
    lambda random: random_cluster(random, crowded=True),
    borrowed_cluster,
    nominated_cluster,
    terminating_cluster,
)
_NOMINATED: Final = 2  # the kinds from here on have PodGroups with nominated pods

_VARIANTS: Final[Mapping[str, Callable[[], AbstractContextManager[object]]]] = {
    "all rules": nullcontext,
    "without 10b": lambda: patch.object(NominatedCapacity, "reserve", lambda *_: None),
    "without 32": lambda: patch.object(ReclaimCheck, "_order_conflict", lambda *_: None),
    "without 34": lambda: patch.object(_Solver, "_without_spared", _without_contained),
}


def _without_contained(solver: _Solver, taken: list[int]) -> list[int]:
    """Spare only what other victims contain, as the pods above the minimum of a PodGroup."""
    scenario: Any = solver._scenario  # noqa: SLF001 - the benchmark takes the rule out
    members = {it: {*scenario._pool.victims[scenario.eviction_units[it]]} for it in taken}  # noqa: SLF001
    spared = {it for it in taken if any(members[it] < members[other] for other in taken)}
    for it in spared:
        scenario.restore(it)
    return [it for it in taken if it not in spared]


class _Outcome(NamedTuple):
    """What became of one cluster."""

    evictions: int
    is_quiet: bool  # no evictions and no binds in the last cycles
    repeated: int  # pods that were evicted more than once
    lost: int  # nominations that were lost to another queue


async def main() -> None:
    """Print the table; with all rules every cluster has to become quiet."""
    print(f"{_CLUSTERS} random clusters, {_CYCLES} cycles each\n")
    columns = ("evictions", "never quiet", "pods evicted again", "nominations lost")
    print(" ".join([f"{'':11}", *columns]))
    for name, variant in _VARIANTS.items():
        with variant():
            outcomes = list(_outcomes())
        sums = (
            sum(it.evictions for it in outcomes),
            sum(not it.is_quiet for it in outcomes),
            sum(it.repeated for it in outcomes),
            sum(it.lost for it in outcomes),
        )
        cells = (f"{it:{len(column)}}" for it, column in zip(sums, columns, strict=True))
        print(" ".join([f"{name:11}", *cells]), flush=True)


def _outcomes() -> Iterator[_Outcome]:
    for i in range(_CLUSTERS):
        objects = _KINDS[i % len(_KINDS)](Random(_FIRST_SEED + i))  # noqa: S311 - no secret
        nominations: Any = "keep" if i // len(_KINDS) % 2 else "drop"
        options = SimulationOptions(cycles=_CYCLES, nominations=nominations)
        is_nominated = nominations == "keep" and i % len(_KINDS) >= _NOMINATED
        yield _outcome(objects, simulate(objects, options)["cycles"], is_nominated=is_nominated)


def _outcome(
    objects: Objects, cycles: Sequence[Mapping[str, Any]], *, is_nominated: bool
) -> _Outcome:
    evicted = Counter(it["pod"] for cycle in cycles for it in cycle["evictions"])
    is_quiet = not any(cycle["evictions"] or cycle["binds"] for cycle in cycles[-_LAST:])
    lost = sum(1 for _ in lost_nominations(objects, cycles)) if is_nominated else 0
    repeated = sum(count > 1 for count in evicted.values())
    return _Outcome(evicted.total(), is_quiet, repeated, lost)
