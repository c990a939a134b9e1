"""What holds of every victim in random clusters."""

from functools import cache
from random import Random
from typing import Any, Final

from scheduler.core.model.resources import NONE, RESOURCE_KINDS, UNBOUND
from scheduler.core.model.result import Eviction, Plan
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import encode
from tests.reference.random_clusters.borrowed import borrowed_cluster
from tests.reference.random_clusters.clusters import random_cluster
from tests.reference.random_clusters.non_evictable import non_evictable_cluster
from tests.support.size import examples, seeds
from tests.support.snapshot.plan_violations import plan_violations
from tests.support.state.objects import cluster_cache
from trainer_kai.api.scheduler_names import Action
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

_POLICIES: Final = build_policies(PolicySelection(actions={"consolidation": False}))


@cache
def plans() -> list[tuple[int, Snapshot, Plan]]:
    """Return the plans by which a PodGroup loses something for another one."""
    found = []
    for seed in seeds(200):
        snapshot = encode(cluster_cache(*drawn(seed)), StateOptions(now=1_767_600_000)).snapshot
        answer = plan(snapshot, _POLICIES)
        if any(it.preemptor != NONE for it in answer.evictions):
            found.append((seed, snapshot, answer))
    return found


def drawn(seed: int) -> list[dict[str, Any]]:
    """Return a cluster in which queues have lent, or a crowded one."""
    if not seed % 3:
        return random_cluster(Random(seed), crowded=True)
    return (borrowed_cluster if seed % 2 else non_evictable_cluster)(Random(seed))


def test_victims_are_whole_and_evictable() -> None:
    """Whole PodGroups and JobSets, each once, for a PodGroup that is nominated to their room."""
    for seed, snapshot, answer in plans():
        assert not [*plan_violations(snapshot, answer)], seed


def test_only_lower_priority_is_preempted() -> None:
    """In the preemptor's own queue, and no PodGroup of its priority or a larger one."""
    seen = 0
    for seed, snapshot, answer in plans():
        for it in answer.evictions:
            losers, mine = (
                [snapshot.podgroups[row] for row in it.podgroups],
                snapshot.podgroups[it.preemptor],
            )
            if it.action == Action.PREEMPT:
                seen += 1
                assert all(one.priority < mine.priority for one in losers), seed
                assert {one.queue for one in losers} == {mine.queue}, seed
            elif it.action == Action.RECLAIM:
                assert mine.queue not in {one.queue for one in losers}, seed
    assert seen


def test_no_queue_within_quota_loses_anything() -> None:
    """Of queues side by side: with its last victim back each has more than it owns of something."""
    seen = 0
    for seed, snapshot, answer in plans():
        if any(parent != NONE for parent in snapshot.queues.parent):
            continue
        taken = [it for it in answer.evictions if it.action == Action.RECLAIM]
        for queue in {victim(snapshot, it) for it in taken}:
            seen += 1
            lost = [amounts(snapshot, it) for it in taken if victim(snapshot, it) == queue]
            left = [sum(of) for of in zip(*lost[:-1], strict=True)] if lost[1:] else [0, 0, 0]
            before = [
                one - less for one, less in zip(allocated_to(snapshot, queue), left, strict=True)
            ]
            quota = snapshot.queues.quota[queue].tolist()
            above = [k for k in RESOURCE_KINDS if quota[k] != UNBOUND and before[k] > quota[k]]
            assert above, (seed, snapshot.queues.names[queue])
    assert seen


def test_the_order_of_objects_means_nothing_to_victims() -> None:
    """Told in another order, the same ones go."""
    for seed, _, _ in plans()[: examples(15)]:
        objects = drawn(seed)
        first = simulate(objects, SimulationOptions())["cycles"][0]["evictions"]
        Random(seed + 1).shuffle(objects)
        assert simulate(objects, SimulationOptions())["cycles"][0]["evictions"] == first


def victim(snapshot: Snapshot, one: Eviction) -> int:
    """Return the PodGroups that lose pods."""
    return snapshot.podgroups[one.podgroups[0]].queue


def allocated_to(snapshot: Snapshot, queue: int) -> list[int]:
    """Return what a queue has."""
    found: list[int] = snapshot.queues.allocated[queue].tolist()
    return found


def amounts(snapshot: Snapshot, one: Eviction) -> list[int]:
    """Return what was counted for pods that go."""
    shapes = [snapshot.signatures[snapshot.pods.signature[pod]] for pod in one.pods]
    assert all(snapshot.pods.state[pod] == PodState.RUNNING for pod in one.pods)
    return [sum(it.queue_request[kind] for it in shapes) for kind in RESOURCE_KINDS]
