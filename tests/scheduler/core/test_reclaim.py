"""Who loses what to whom: reclaim and preempt on small snapshots."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.core import gone
from scheduler.core.decision import Futile, HeldUp, Plan
from scheduler.core.explain import explain
from scheduler.core.model import NONE, Cause, Leaf, Require, Shape, Slot, Snapshot
from scheduler.core.plan import Limits, plan
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

POLICIES = choose(Choice())
ONE, TWO, FOUR, EIGHT = (shape(gpu=n) for n in (1, 2, 4, 8))


def cluster(*queues: Queue, nodes: int = 1, gpu: int = 8) -> Builder:
    """Return nodes and queues."""
    return Builder([Node(gpu=gpu)] * nodes, queues)


A, B = Queue("a"), Queue("b", quota=8)


def borrowed(count: int = 8, *others: Queue, **more: Any) -> Builder:
    """Return a node that A has borrowed from B, job by job."""
    builder = cluster(A, *(others or (B,)))
    for _ in range(count):
        builder.runs([0], ONE, queue="a", **more)
    return builder


def waiting(builder: Builder, *gangs: tuple[int, Any], queue: str = "b", **more: Any) -> Builder:
    """Let gangs wait: how many pods of which shape."""
    for number, one in gangs:
        builder.gang(number, one, queue=queue, **more)
    return builder


def told(answer: Plan) -> str:
    """Return who goes, for whom, and by what."""
    return " ".join(
        f"{','.join(map(str, it.units))}:{len(it.pods)}→{it.claimant}" for it in answer.evictions
    )


def elastic() -> Builder:
    """Return a job of A that has eight pods and needs two."""
    builder = cluster(A, B)
    builder.runs([0] * 8, ONE, queue="a", minimum=2)
    return builder


def departments() -> Builder:
    """Return two departments; what the team A has, its sister wants, and so does the other one."""
    builder = cluster(
        Queue("x", quota=4), Queue("y", quota=4), Queue("a", "x"), Queue("s", "x"), Queue("b", "y")
    )
    for _ in range(8):
        builder.runs([0], ONE, queue="a")
    return builder


def capped() -> Builder:
    """Return a department at its limit, on a cluster with room."""
    builder = cluster(Queue("x", limit=8, quota=8), A, Queue("b", "x", quota=8), nodes=2)
    builder.queues = [Queue("x", limit=8, quota=8), Queue("a", "x"), Queue("b", "x", quota=8)]
    for _ in range(8):
        builder.runs([0], ONE, queue="a")
    return builder


def ranked(*priorities: int, **more: Any) -> Builder:
    """Return a node of one queue, taken by jobs of these priorities, two GPUs each."""
    builder = cluster(Queue("a", quota=8))
    for priority in priorities:
        builder.runs([0], TWO, queue="a", priority=priority, **more)
    return builder


def large_and_small() -> Builder:
    """Return a node that A has borrowed by a large job and, after it, small ones."""
    builder = cluster(A, B)
    builder.runs([0], FOUR, queue="a")
    for _ in range(4):
        builder.runs([0], ONE, queue="a")
    return builder


def apart() -> Builder:
    """Return two nodes: who would lose first is on one, who makes room for four on the other."""
    builder = cluster(A, B, nodes=2, gpu=4)
    builder.runs([0], FOUR, queue="a")
    for _ in range(4):
        builder.runs([1], ONE, queue="a")
    return builder


def mixed() -> Builder:
    """Return a node that A has borrowed, and a gang of two different pods."""
    builder = borrowed()
    pods = builder.pods(1, TWO) + builder.pods(1, ONE)
    builder.unit(Leaf("default", 2, pods), queue="b")
    return builder


def sums() -> Builder:
    """Return a department that would be at its share if a job went that gives nobody room.

    Its sister has one GPU more than its share, and the rest of a node that the job has not.
    """
    queues = [Queue("x"), Queue("y"), Queue("a", "x"), Queue("s", "x"), Queue("b", "y")]
    builder = cluster(*queues, nodes=4)
    builder.runs([1], EIGHT, queue="a")
    builder.runs([0], shape(gpu=7), queue="a")
    builder.runs([3], EIGHT, queue="b")
    builder.runs([2], EIGHT, queue="b")
    builder.runs([0], ONE, queue="b", stays="for a reason")
    return builder


def just_over() -> Builder:
    """Return a node with two large jobs of A, whose quota is a little less."""
    builder = cluster(Queue("a", quota=7), Queue("b", quota=4))
    for _ in range(2):
        builder.runs([0], FOUR, queue="a")
    return builder


PLANS: list[Case[Builder, str]] = [
    Case("the newest goes", waiting(borrowed(), (1, ONE)), "7:1→8"),
    Case("as many as are needed", waiting(borrowed(), (3, ONE)), "7:1→8 6:1→8 5:1→8"),
    Case(
        "claim after claim",
        waiting(borrowed(), (1, ONE), (1, ONE)),
        "7:1→8 6:1→9",
    ),
    Case(
        "a gang that needs all",
        waiting(borrowed(), (1, EIGHT)),
        " ".join(f"{i}:1→8" for i in range(7, -1, -1)),
    ),
    Case("not for what fits nowhere", waiting(borrowed(), (1, shape(gpu=9))), ""),
    Case("not for what all together do not leave", waiting(borrowed(), (2, shape(gpu=5))), ""),
    Case("not from who cannot be preempted", waiting(borrowed(is_preemptible=False), (1, ONE)), ""),
    Case("not from who stays", waiting(borrowed(stays="for a reason"), (1, ONE)), ""),
    Case(
        "not beyond what is due",
        waiting(borrowed(8, Queue("b", quota=2)), (5, ONE), (1, ONE)),
        "7:1→8 6:1→8 5:1→8 4:1→8 3:1→8",
    ),
    Case(
        "who borrows too gets a fair share",
        waiting(borrowed(8, Queue("b")), (1, FOUR)),
        "7:1→8 6:1→8 5:1→8 4:1→8",
    ),
    Case("and no more", waiting(borrowed(8, Queue("b")), (5, ONE)), ""),
    Case(
        "who could not be preempted borrows nothing",
        waiting(borrowed(8, Queue("b", quota=2)), (3, ONE), is_preemptible=False),
        "",
    ),
    Case("what comes on top goes first", waiting(elastic(), (2, ONE)), "0:1→1 0:1→1"),
    Case("then all of it", waiting(elastic(), (7, ONE)), "0:8→1"),
    Case(
        "a department takes back from another",
        waiting(departments(), (1, FOUR)),
        "7:1→8 6:1→8 5:1→8 4:1→8",
    ),
    Case("and not what is beyond its own", waiting(departments(), (1, shape(gpu=5))), ""),
    Case("a team from its sister", waiting(departments(), (1, ONE), queue="s"), "7:1→8"),
    Case("a limit is made room for", waiting(capped(), (1, ONE)), "7:1→8"),
    Case(
        "rather the small ones, if they are enough",
        waiting(large_and_small(), (1, TWO)),
        "4:1→5 3:1→5",
    ),
    Case("nobody only to make it fair", waiting(sums(), (1, EIGHT), queue="s"), "0:1→5"),
    Case("the last may be as large as it is", waiting(just_over(), (1, FOUR)), "1:1→2"),
    Case("for different pods as many as they need", mixed(), "7:1→8 6:1→8 5:1→8"),
    Case("whoever can be spared is", waiting(apart(), (1, FOUR)), "4:1→5 3:1→5 2:1→5 1:1→5"),
    Case(
        "smaller priorities go",
        waiting(ranked(50, 50, 50, 50), (1, TWO), queue="a", priority=60),
        "3:1→4",
    ),
    Case(
        "the smallest first",
        waiting(ranked(20, 50, 50, 50), (1, TWO), queue="a", priority=60),
        "0:1→4",
    ),
    Case(
        "an equal one stays", waiting(ranked(60, 60, 60, 60), (1, TWO), queue="a", priority=60), ""
    ),
    Case(
        "and who cannot be preempted",
        waiting(ranked(20, 20, 20, 20, is_preemptible=False), (1, TWO), queue="a", priority=60),
        "",
    ),
    Case(
        "as many as it takes",
        waiting(ranked(20, 20, 50, 50), (1, shape(gpu=6)), queue="a", priority=60),
        "1:1→4 0:1→4 3:1→4",
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_who_goes(case: Case[Builder, str]) -> None:
    """Nobody without the placement that it makes possible."""
    snapshot = case.given.snapshot()
    answer = plan(snapshot, POLICIES)
    assert told(answer) == case.want
    assert list(violations(snapshot, answer)) == []
    claimants = {it.claimant for it in answer.evictions}
    assert {it.unit for it in answer.decisions if it.nominations} >= claimants


def test_what_one_leaves_another_uses() -> None:
    """Of the eight that go for seven one is left."""
    answer = plan(waiting(elastic(), (7, ONE), (1, ONE), (1, ONE)).snapshot(), POLICIES)
    assert told(answer) == "0:8→1"
    assert {it.unit for it in answer.decisions} == {1, 2}


def test_a_placement_that_could_be_is_made() -> None:
    """A small pod may go anywhere, and a large one only where the small one would like to go."""
    builder = Builder([Node(releasing_gpu=5), Node()], [A, B])
    builder.nodes = [Node(gpu=5, releasing_gpu=5, labels=(0,)), Node(labels=(1,))]
    for _ in range(8):
        builder.runs([1], ONE, queue="a")
    there = shape(gpu=4, any_of=(((Require(0, frozenset({1})),),),))
    pods = builder.pods(1, ONE) + builder.pods(1, there)
    builder.unit(Leaf("default", 2, pods), queue="b")
    snapshot = builder.snapshot()
    answer = plan(snapshot, POLICIES)
    assert told(answer) == "7:1→8 6:1→8 5:1→8 4:1→8 3:1→8"
    assert list(violations(snapshot, answer)) == []


def test_equal_claims_with_other_slots_are_others() -> None:
    """The slot of one is where nobody goes, and that of the other where somebody does."""
    builder = cluster(A, Queue("b", quota=16), nodes=2)
    builder.runs([0], shape(gpu=7), queue="a", is_preemptible=False)
    builder.runs([1], shape(gpu=5), queue="a", is_preemptible=False)
    builder.runs([1], TWO, queue="a")
    kept, three = builder.shape(ONE), shape(gpu=3)
    for node in (0, 1):
        pods = builder.pods(1, three)
        slot = Slot(node, kept, Cause.REPAIR)
        leaf = Leaf("default", 2, pods, there=1, slots=(slot,))
        builder.unit(leaf, queue="b", is_kept=True)
    idle = builder.snapshot().nodes.idle.copy()
    idle[:, 3] -= 1000
    answer = plan(with_idle(builder.snapshot(), idle), POLICIES)
    assert told(answer) == "2:1→4"


def with_idle(snapshot: Snapshot, idle: Any) -> Snapshot:
    """Return a snapshot with something else idle."""
    return replace(snapshot, nodes=replace(snapshot.nodes, idle=idle))


def test_who_has_grown_is_not_before_others_any_more() -> None:
    """It got what it needs; what it wants on top comes after them."""
    builder = cluster(Queue("a", quota=4), Queue("b", quota=4))
    for _ in range(8):
        builder.runs([0], ONE, queue="a")
    pods = builder.pods(1, ONE) + builder.pods(1, EIGHT)
    builder.unit(Leaf("default", 1, pods), queue="b")
    answer = plan(waiting(builder, (1, ONE), (1, ONE)).snapshot(), POLICIES)
    assert told(answer) == "7:1→8 6:1→9 5:1→10"


def beside_two(ahead: Shape = EIGHT, number: int = 1, limit: int = NONE) -> Builder:
    """Return a node of A and B, who are due the same; of B some wait, and one behind them."""
    builder = Builder([Node(labels=(0,))], [Queue("a", quota=4), Queue("b", quota=4, limit=limit)])
    for queue in ("a", "a", "a", "b"):
        builder.runs([0], TWO, queue=queue)
    return waiting(builder, (number, ahead), (1, TWO))


def test_who_stands_before_it_is_told() -> None:
    """What is given back would be for others than B, if not for who asks for more than is due."""
    answer = plan(beside_two().snapshot(), POLICIES)
    assert told(answer) == ""
    held_up = HeldUp(4, (1000, 2**30, 8000), Futile.SHARE)
    assert [it.kept.held_up for it in answer.rejections if it.unit == 5] == [held_up]


ELSEWHERE = (((Require(0, frozenset({1})),),),)


@pytest.mark.parametrize(
    "builder",
    [
        beside_two(shape(gpu=8, any_of=ELSEWHERE)),
        beside_two(shape(gpu=80)),
        beside_two(number=2),
        beside_two(limit=7),
    ],
    ids=["it selects no node", "more than a node", "more than there are", "more than a limit"],
)
def test_who_could_never_have_the_room_is_not_before_others(builder: Builder) -> None:
    """One mistake does not keep a team from what is due to it."""
    assert told(plan(builder.snapshot(), POLICIES)) == "2:1→5"


def test_after_so_many_trials_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody might be spared who was not tried."""
    builder = cluster(A, Queue("b", quota=80), nodes=10)
    for i in range(80):
        builder.runs([i // 8], ONE, queue="a")
    ports = shape(gpu=4, takes=(0,), avoids=(0,))
    snapshot = waiting(builder, (8, ports)).snapshot()
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, ports=np.zeros((10, 1), np.int32)))
    enough = plan(snapshot, POLICIES)
    monkeypatch.setattr(gone, "_TRIALS", enough.stats.trials - 1)
    answer = plan(snapshot, POLICIES)
    assert len(enough.decisions) == 1
    assert (told(answer), answer.stats.cut) == ("", 1)
    assert "that ended at a limit" in explain(snapshot, answer.rejections[-1])


def gpus_taken(snapshot: Snapshot, limit: int) -> int:
    """Return how many GPUs a plan takes that may take so many."""
    answer = plan(snapshot, POLICIES, Limits(evictable_gpus=limit * 1000))
    return sum(len(it.pods) for it in answer.evictions)


@pytest.mark.parametrize(("limit", "want"), [(0, 0), (1, 3), (3, 3), (4, 6), (9, 6)])
def test_a_limit_ends_it(limit: int, want: int) -> None:
    """Who begins below it goes on to the end; nobody begins at it."""
    assert gpus_taken(waiting(borrowed(), (3, ONE), (3, ONE)).snapshot(), limit) == want


def test_actions_can_be_left_out() -> None:
    """Then nobody goes."""
    snapshot = waiting(borrowed(), (1, ONE)).snapshot()
    for action in ("reclaim", "preempt"):
        rest = choose(Choice(actions={action: False}))
        assert told(plan(snapshot, rest)) == ("" if action == "reclaim" else "7:1→8")


def test_equal_claims_are_made_once() -> None:
    """A hundred that fail are one search: half of each node is of somebody who stays."""
    builder = cluster(A, Queue("b", quota=16), nodes=2)
    for node in (0, 1):
        builder.runs([node], FOUR, queue="a", is_preemptible=False)
        for _ in range(4):
            builder.runs([node], ONE, queue="a")
    answer = plan(waiting(builder, *[(1, shape(gpu=6))] * 100).snapshot(), POLICIES)
    assert (told(answer), answer.stats.searches) == ("", 1)


def test_what_cannot_be_is_not_tried() -> None:
    """Sums say that A may lose seven and that eight are asked for."""
    builder = cluster(Queue("a", quota=1), Queue("b", quota=8), nodes=1)
    for _ in range(8):
        builder.runs([0], ONE, queue="a")
    answer = plan(waiting(builder, (1, EIGHT)).snapshot(), POLICIES)
    assert (told(answer), answer.stats.searches) == ("", 0)


@pytest.mark.parametrize(("size", "searches"), [(TWO, 1), (EIGHT, 0)], ids=["enough", "too few"])
def test_what_smaller_priorities_cannot_give_is_not_tried(size: Any, searches: int) -> None:
    """Of a queue's eight GPUs four are of others that matter less."""
    answer = plan(
        waiting(ranked(20, 20, 60, 70), (1, size), queue="a", priority=60).snapshot(), POLICIES
    )
    assert answer.stats.searches == searches
