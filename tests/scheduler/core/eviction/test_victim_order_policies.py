"""Which of the possible victims come first, as the configuration says (rule 33a)."""

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

ONE, TWO, FOUR, EIGHT = (signature(gpu=n) for n in (1, 2, 4, 8))
CORES = {n: signature(cpu=n) for n in (8, 16, 32)}
NOW = 1000


def lent(*sizes: int, reclaimers: int, nodes: int = 1, **moments: tuple[int, ...]) -> Builder:
    """Return what A has borrowed from B, job by job, and what B claims: GPUs in one pod.

    *moments* say of each job since when it runs, and when it saved its work.
    """
    builder = Builder([SnapshotNode()] * nodes, [SnapshotQueue("a"), SnapshotQueue("b", quota=8)])
    for i, size in enumerate(sizes):
        more: dict[str, Any] = {name: values[i] for name, values in moments.items()}
        builder.running_podgroup([sum(sizes[:i]) // 8], signature(gpu=size), queue="a", **more)
    builder.uniform_podgroup(1, signature(gpu=reclaimers), queue="b")
    return builder


def bundled() -> Builder:
    """Return a job, and a newer one of two PodGroups, of which each alone loses less."""
    builder = Builder([SnapshotNode(gpu=6)], [SnapshotQueue("a"), SnapshotQueue("b", quota=6)])
    builder.running_podgroup([0], TWO, queue="a", running_since=100)
    for _ in range(2):
        builder.running_podgroup([0], TWO, queue="a", running_since=500, workload="x")
    builder.uniform_podgroup(1, TWO, queue="b")
    return builder


def elastic(*, minimum: int = 2, reclaimers: int = 4) -> Builder:
    """Return a job that has eight pods and needs fewer."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b", quota=8)])
    builder.running_podgroup([0] * 8, ONE, queue="a", minimum=minimum, running_since=100)
    builder.uniform_podgroup(1, signature(gpu=reclaimers), queue="b")
    return builder


def ranked() -> Builder:
    """Return a queue with two jobs of a smaller priority than the PodGroup that waits."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a", quota=8)])
    for running_since in (900, 100):
        builder.running_podgroup([0], FOUR, queue="a", running_since=running_since)
    builder.uniform_podgroup(1, FOUR, queue="a", priority=60)
    return builder


def cores() -> Builder:
    """Return a node without GPUs, taken by a large job and newer small ones."""
    builder = Builder([SnapshotNode(gpu=0)], [SnapshotQueue("a", quota=8)])
    for cpu in (32, 8, 8, 8, 8):
        builder.running_podgroup([0], CORES[cpu], queue="a")
    builder.uniform_podgroup(1, CORES[32], queue="a", priority=60)
    return builder


def lost(builder: Builder, victims: str) -> str:
    """Return which PodGroup loses how many pods in a plan that breaks nothing."""
    snapshot = builder.snapshot(now=NOW)
    answer = plan(snapshot, build_policies(PolicySelection(victim_order=victims)))
    assert not list(plan_violations(snapshot, answer))
    report = (f"{','.join(map(str, it.podgroups))}:{len(it.pods)}" for it in answer.evictions)
    return " ".join(sorted(report))


# what there is -> the victims in KAI's order, and with the least work lost
WORK: list[Case[Callable[[], Builder], tuple[str, str]]] = [
    Case(
        "the one that started last",
        lambda: lent(4, 4, reclaimers=4, running_since=(900, 100)),
        ("1:1", "0:1"),
    ),
    Case(
        "the one with the last checkpoint",
        lambda: lent(4, 4, reclaimers=4, running_since=(100, 500), checkpoint_at=(900, 600)),
        ("1:1", "0:1"),
    ),
    Case(
        "what was saved before it began does not count",
        lambda: lent(4, 4, reclaimers=4, running_since=(950, 900), checkpoint_at=(100, 0)),
        ("1:1", "0:1"),
    ),
    Case(
        "what will be saved is saved now",
        lambda: lent(4, 4, reclaimers=4, running_since=(100, 999), checkpoint_at=(5000, 0)),
        ("1:1", "0:1"),
    ),
    Case(
        "the one with fewer GPUs",
        lambda: lent(2, 6, reclaimers=2, running_since=(100, 100)),
        ("1:1", "0:1"),
    ),
    Case(
        "an unknown start counts as no work",
        lambda: lent(4, 4, reclaimers=4, running_since=(0, 999)),
        ("1:1", "0:1"),
    ),
    Case(
        "of equals as KAI has it",
        lambda: lent(4, 4, reclaimers=4, running_since=(9, 9)),
        ("1:1", "1:1"),
    ),
    Case("all PodGroups of a JobSet count", bundled, ("1,2:2", "0:1")),
    Case("in one queue too", ranked, ("1:1", "0:1")),
    Case("steps before all", elastic, ("0:1 0:1 0:1 0:1", "0:1 0:1 0:1 0:1")),
    Case(
        "one that is not needed is spared",
        lambda: lent(2, 2, 4, reclaimers=4, running_since=(990, 980, 700)),
        ("2:1", "0:1 1:1"),
    ),
    Case(
        "the first in order is evicted, though others would lose less together",
        lambda: lent(2, 6, 8, reclaimers=8, nodes=2, running_since=(999, 100, 900)),
        ("2:1", "0:1 1:1"),
    ),
]


@pytest.mark.parametrize("case", WORK, ids=ids)
def test_the_least_work_goes_first(case: Case[Callable[[], Builder], tuple[str, str]]) -> None:
    """GPUs times the time since it began, or saved its work."""
    assert (lost(case.given(), "kai"), lost(case.given(), "least-work-lost")) == case.want


# what there is -> the victims in KAI's order, and with the fewest PodGroups
MOST: list[Case[Callable[[], Builder], tuple[str, str]]] = [
    Case("one large one", lambda: lent(4, 1, 1, 1, 1, reclaimers=4), ("1:1 2:1 3:1 4:1", "0:1")),
    Case("more than is asked for is no more", lambda: lent(6, 2, reclaimers=2), ("1:1", "1:1")),
    Case("steps before all", elastic, ("0:1 0:1 0:1 0:1", "0:1 0:1 0:1 0:1")),
    Case("CPUs where no GPU is asked for", cores, ("1:1 2:1 3:1 4:1", "0:1")),
    Case("of equals as KAI has it", lambda: lent(2, 2, 2, 2, reclaimers=4), ("2:1 3:1", "2:1 3:1")),
]


@pytest.mark.parametrize("case", MOST, ids=ids)
def test_the_largest_victim_comes_first(case: Case[Callable[[], Builder], tuple[str, str]]) -> None:
    """As much as is asked for is enough."""
    assert (lost(case.given(), "kai"), lost(case.given(), "fewest-podgroups")) == case.want


@pytest.mark.parametrize(
    ("victims", "why"),
    [
        ("kai", ""),
        ("least-work-lost", "victims that lose the least work are evicted first"),
        ("fewest-podgroups", "victims that release the most are evicted first"),
    ],
)
def test_the_lost_work_is_reported(victims: str, why: str) -> None:
    """Whatever the order: GPUs times seconds, and why these."""
    builder = lent(4, 4, reclaimers=8, running_since=(900, 400), checkpoint_at=(0, 500))
    answer = plan(builder.snapshot(now=NOW), build_policies(PolicySelection(victim_order=victims)))
    report = {it.podgroups[0]: (it.work_lost, it.victim_order) for it in answer.evictions}
    assert report == {0: (400, why), 1: (2000, why)}
