"""What holds of whoever loses something, in clusters drawn by lot."""

from functools import cache
from random import Random
from typing import Any, Final

from scheduler.core.decision import Action, Eviction, Plan
from scheduler.core.model import KINDS, NONE, UNBOUND, PodState, Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from scheduler.state.encode import encode
from scheduler.state.terms import Terms
from tests.support.clusters import cluster
from tests.support.reference import kept_cluster, lent_cluster, random_cluster
from tests.support.size import examples, seeds
from tests.support.violations import violations
from trainer_kai.cli.simulation import Options, simulate

_POLICIES: Final = choose(Choice(actions={"consolidation": False}))


@cache
def plans() -> list[tuple[int, Snapshot, Plan]]:
    """Return the plans by which a unit loses something for another one."""
    found = []
    for seed in seeds(200):
        snapshot = encode(cluster(*drawn(seed)), Terms(now=1_767_600_000)).snapshot
        answer = plan(snapshot, _POLICIES)
        if any(it.claimant != NONE for it in answer.evictions):
            found.append((seed, snapshot, answer))
    return found


def drawn(seed: int) -> list[dict[str, Any]]:
    """Return a cluster in which queues have lent, or a crowded one."""
    if not seed % 3:
        return random_cluster(Random(seed), crowded=True)
    return (lent_cluster if seed % 2 else kept_cluster)(Random(seed))


def test_who_loses_is_whole_and_may_lose() -> None:
    """Whole units and bundles, each once, for somebody who is promised their room."""
    for seed, snapshot, answer in plans():
        assert not [*violations(snapshot, answer)], seed


def test_only_who_matters_less_is_preempted() -> None:
    """In the claimant's own queue, and nobody of its priority or more."""
    seen = 0
    for seed, snapshot, answer in plans():
        for it in answer.evictions:
            losers, mine = [snapshot.units[row] for row in it.units], snapshot.units[it.claimant]
            if it.action == Action.PREEMPT:
                seen += 1
                assert all(one.priority < mine.priority for one in losers), seed
                assert {one.queue for one in losers} == {mine.queue}, seed
            elif it.action == Action.RECLAIM:
                assert mine.queue not in {one.queue for one in losers}, seed
    assert seen


def test_nobody_who_keeps_to_its_quota_loses_anything() -> None:
    """Of queues side by side: with its last victim back each has more than it owns of something."""
    seen = 0
    for seed, snapshot, answer in plans():
        if any(parent != NONE for parent in snapshot.queues.parent):
            continue
        taken = [it for it in answer.evictions if it.action == Action.RECLAIM]
        for queue in {loser(snapshot, it) for it in taken}:
            seen += 1
            lost = [amounts(snapshot, it) for it in taken if loser(snapshot, it) == queue]
            left = [sum(of) for of in zip(*lost[:-1], strict=True)] if lost[1:] else [0, 0, 0]
            before = [one - less for one, less in zip(has(snapshot, queue), left, strict=True)]
            quota = snapshot.queues.quota[queue].tolist()
            above = [k for k in KINDS if quota[k] != UNBOUND and before[k] > quota[k]]
            assert above, (seed, snapshot.queues.names[queue])
    assert seen


def test_the_order_of_objects_means_nothing_to_victims() -> None:
    """Told in another order, the same ones go."""
    for seed, _, _ in plans()[: examples(15)]:
        objects = drawn(seed)
        first = simulate(objects, Options())["cycles"][0]["evictions"]
        Random(seed + 1).shuffle(objects)
        assert simulate(objects, Options())["cycles"][0]["evictions"] == first


def loser(snapshot: Snapshot, one: Eviction) -> int:
    """Return whose units go."""
    return snapshot.units[one.units[0]].queue


def has(snapshot: Snapshot, queue: int) -> list[int]:
    """Return what a queue has."""
    found: list[int] = snapshot.queues.allocated[queue].tolist()
    return found


def amounts(snapshot: Snapshot, one: Eviction) -> list[int]:
    """Return what was counted for pods that go."""
    shapes = [snapshot.shapes[snapshot.pods.shape[pod]] for pod in one.pods]
    assert all(snapshot.pods.state[pod] == PodState.THERE for pod in one.pods)
    return [sum(it.counted[kind] for it in shapes) for kind in KINDS]
