"""Who of those that may lose something does, as a site has chosen it (rule 33a)."""

from collections.abc import Callable

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

ONE, TWO, FOUR, EIGHT = (shape(gpu=n) for n in (1, 2, 4, 8))
CORES = {n: shape(cpu=n) for n in (8, 16, 32)}
NOW = 1000


def lent(*sizes: int, claims: int, nodes: int = 1, **moments: tuple[int, ...]) -> Builder:
    """Return what A has borrowed from B, job by job, and what B claims: GPUs in one pod.

    *moments* say of each job since when it runs, and when it saved its work.
    """
    builder = Builder([Node()] * nodes, [Queue("a"), Queue("b", quota=8)])
    for i, size in enumerate(sizes):
        more = {name: values[i] for name, values in moments.items()}
        builder.runs([sum(sizes[:i]) // 8], shape(gpu=size), queue="a", **more)
    builder.gang(1, shape(gpu=claims), queue="b")
    return builder


def bundled() -> Builder:
    """Return a job, and a newer one of two units, of which each alone loses less."""
    builder = Builder([Node(gpu=6)], [Queue("a"), Queue("b", quota=6)])
    builder.runs([0], TWO, queue="a", since=100)
    for _ in range(2):
        builder.runs([0], TWO, queue="a", since=500, bundle="x")
    builder.gang(1, TWO, queue="b")
    return builder


def elastic(*, minimum: int = 2, claims: int = 4) -> Builder:
    """Return a job that has eight pods and needs fewer."""
    builder = Builder([Node()], [Queue("a"), Queue("b", quota=8)])
    builder.runs([0] * 8, ONE, queue="a", minimum=minimum, since=100)
    builder.gang(1, shape(gpu=claims), queue="b")
    return builder


def ranked() -> Builder:
    """Return a queue taken by two jobs that matter less than who waits."""
    builder = Builder([Node()], [Queue("a", quota=8)])
    for since in (900, 100):
        builder.runs([0], FOUR, queue="a", since=since)
    builder.gang(1, FOUR, queue="a", priority=60)
    return builder


def cores() -> Builder:
    """Return a node without GPUs, taken by a large job and newer small ones."""
    builder = Builder([Node(gpu=0)], [Queue("a", quota=8)])
    for cpu in (32, 8, 8, 8, 8):
        builder.runs([0], CORES[cpu], queue="a")
    builder.gang(1, CORES[32], queue="a", priority=60)
    return builder


def lost(builder: Builder, victims: str) -> str:
    """Return who loses how many pods in a plan that breaks nothing."""
    snapshot = builder.snapshot(now=NOW)
    answer = plan(snapshot, choose(Choice(victims=victims)))
    assert not list(violations(snapshot, answer))
    told = (f"{','.join(map(str, it.units))}:{len(it.pods)}" for it in answer.evictions)
    return " ".join(sorted(told))


# what there is -> who goes as KAI has it, and who loses the least work
WORK: list[Case[Callable[[], Builder], tuple[str, str]]] = [
    Case("who began last", lambda: lent(4, 4, claims=4, since=(900, 100)), ("1:1", "0:1")),
    Case(
        "who saved its work last",
        lambda: lent(4, 4, claims=4, since=(100, 500), saved=(900, 600)),
        ("1:1", "0:1"),
    ),
    Case(
        "what was saved before it began does not count",
        lambda: lent(4, 4, claims=4, since=(950, 900), saved=(100, 0)),
        ("1:1", "0:1"),
    ),
    Case(
        "what will be saved is saved now",
        lambda: lent(4, 4, claims=4, since=(100, 999), saved=(5000, 0)),
        ("1:1", "0:1"),
    ),
    Case("who has fewer GPUs", lambda: lent(2, 6, claims=2, since=(100, 100)), ("1:1", "0:1")),
    Case(
        "of those that nobody knows nothing is lost",
        lambda: lent(4, 4, claims=4, since=(0, 999)),
        ("1:1", "0:1"),
    ),
    Case("of equals as KAI has it", lambda: lent(4, 4, claims=4, since=(9, 9)), ("1:1", "1:1")),
    Case("all units of a JobSet count", bundled, ("1,2:2", "0:1")),
    Case("in one queue too", ranked, ("1:1", "0:1")),
    Case("steps before all", elastic, ("0:1 0:1 0:1 0:1", "0:1 0:1 0:1 0:1")),
    Case(
        "who is not needed is spared",
        lambda: lent(2, 2, 4, claims=4, since=(990, 980, 700)),
        ("2:1", "0:1 1:1"),
    ),
    Case(
        "who is first in line goes, though others would lose less together",
        lambda: lent(2, 6, 8, claims=8, nodes=2, since=(999, 100, 900)),
        ("2:1", "0:1 1:1"),
    ),
]


@pytest.mark.parametrize("case", WORK, ids=ids)
def test_the_least_work_goes_first(case: Case[Callable[[], Builder], tuple[str, str]]) -> None:
    """GPUs times the time since it began, or saved its work."""
    assert (lost(case.given(), "kai"), lost(case.given(), "least-work-lost")) == case.want


# what there is -> who goes as KAI has it, and who gives most
MOST: list[Case[Callable[[], Builder], tuple[str, str]]] = [
    Case("one large one", lambda: lent(4, 1, 1, 1, 1, claims=4), ("1:1 2:1 3:1 4:1", "0:1")),
    Case("more than is asked for is no more", lambda: lent(6, 2, claims=2), ("1:1", "1:1")),
    Case("steps before all", elastic, ("0:1 0:1 0:1 0:1", "0:1 0:1 0:1 0:1")),
    Case("CPUs where no GPU is asked for", cores, ("1:1 2:1 3:1 4:1", "0:1")),
    Case("of equals as KAI has it", lambda: lent(2, 2, 2, 2, claims=4), ("2:1 3:1", "2:1 3:1")),
]


@pytest.mark.parametrize("case", MOST, ids=ids)
def test_who_gives_the_most_goes_first(case: Case[Callable[[], Builder], tuple[str, str]]) -> None:
    """As much as is asked for is enough."""
    assert (lost(case.given(), "kai"), lost(case.given(), "fewest-units")) == case.want


@pytest.mark.parametrize(
    ("victims", "why"),
    [
        ("kai", ""),
        ("least-work-lost", "who loses the least work goes first"),
        ("fewest-units", "who gives the most goes first"),
    ],
)
def test_the_work_lost_is_told(victims: str, why: str) -> None:
    """Whatever the order: GPUs times seconds, and why these."""
    builder = lent(4, 4, claims=8, since=(900, 400), saved=(0, 500))
    answer = plan(builder.snapshot(now=NOW), choose(Choice(victims=victims)))
    told = {it.units[0]: (it.work_lost, it.order) for it in answer.evictions}
    assert told == {0: (400, why), 1: (2000, why)}
