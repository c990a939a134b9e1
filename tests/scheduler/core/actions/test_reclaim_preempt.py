"""Which PodGroup loses pods to which: reclaim and preempt on small snapshots."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.core.eviction import eviction_scenario
from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.podgroup import (
    LabelRequirement,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
)
from scheduler.core.model.rejections import EarlierIneligibility, EarlierPodGroup
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import PlanLimits, plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations

POLICIES = build_policies(PolicySelection())
ONE, TWO, FOUR, EIGHT = (signature(gpu=n) for n in (1, 2, 4, 8))


def cluster(*queues: SnapshotQueue, nodes: int = 1, gpu: int = 8) -> Builder:
    return Builder([SnapshotNode(gpu=gpu)] * nodes, queues)


A, B = SnapshotQueue("a"), SnapshotQueue("b", quota=8)


def borrowed(count: int = 8, *others: SnapshotQueue, **more: Any) -> Builder:
    """Return a node that A has borrowed from B, job by job."""
    builder = cluster(A, *(others or (B,)))
    for _ in range(count):
        builder.running_podgroup([0], ONE, queue="a", **more)
    return builder


def waiting(builder: Builder, *gangs: tuple[int, Any], queue: str = "b", **more: Any) -> Builder:
    """Let gangs wait: how many pods of which signature."""
    for number, one in gangs:
        builder.uniform_podgroup(number, one, queue=queue, **more)
    return builder


def described(answer: Plan) -> str:
    """Return what is evicted, for which PodGroup, and by which action."""
    return " ".join(
        f"{','.join(map(str, it.podgroups))}:{len(it.pods)}→{it.preemptor}"
        for it in answer.evictions
    )


def elastic() -> Builder:
    """Return a job of A that has eight pods and needs two."""
    builder = cluster(A, B)
    builder.running_podgroup([0] * 8, ONE, queue="a", minimum=2)
    return builder


def departments() -> Builder:
    """Return two departments; what the team A has, its sister wants, and so does the other one."""
    builder = cluster(
        SnapshotQueue("x", quota=4),
        SnapshotQueue("y", quota=4),
        SnapshotQueue("a", "x"),
        SnapshotQueue("s", "x"),
        SnapshotQueue("b", "y"),
    )
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue="a")
    return builder


def capped() -> Builder:
    """Return a department at its limit, on a cluster with room."""
    builder = cluster(
        SnapshotQueue("x", limit=8, quota=8), A, SnapshotQueue("b", "x", quota=8), nodes=2
    )
    builder.queues = [
        SnapshotQueue("x", limit=8, quota=8),
        SnapshotQueue("a", "x"),
        SnapshotQueue("b", "x", quota=8),
    ]
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue="a")
    return builder


def ranked(*priorities: int, **more: Any) -> Builder:
    """Return a node of one queue, taken by jobs of these priorities, two GPUs each."""
    builder = cluster(SnapshotQueue("a", quota=8))
    for priority in priorities:
        builder.running_podgroup([0], TWO, queue="a", priority=priority, **more)
    return builder


def large_and_small() -> Builder:
    """Return a node that A has borrowed by a large job and, after it, small ones."""
    builder = cluster(A, B)
    builder.running_podgroup([0], FOUR, queue="a")
    for _ in range(4):
        builder.running_podgroup([0], ONE, queue="a")
    return builder


def apart() -> Builder:
    """Return two nodes: the first victim is on one, the one that frees four on the other."""
    builder = cluster(A, B, nodes=2, gpu=4)
    builder.running_podgroup([0], FOUR, queue="a")
    for _ in range(4):
        builder.running_podgroup([1], ONE, queue="a")
    return builder


def mixed() -> Builder:
    """Return a node that A has borrowed, and a gang of two different pods."""
    builder = borrowed()
    pods = builder.waiting_pods(1, TWO) + builder.waiting_pods(1, ONE)
    builder.podgroup(PodSet("default", 2, pods), queue="b")
    return builder


def sums() -> Builder:
    """Return a department at its share only if a job is evicted that frees nothing useful.

    Its sister has one GPU more than its share, and the rest of a node that the job has not.
    """
    queues = [
        SnapshotQueue("x"),
        SnapshotQueue("y"),
        SnapshotQueue("a", "x"),
        SnapshotQueue("s", "x"),
        SnapshotQueue("b", "y"),
    ]
    builder = cluster(*queues, nodes=4)
    builder.running_podgroup([1], EIGHT, queue="a")
    builder.running_podgroup([0], signature(gpu=7), queue="a")
    builder.running_podgroup([3], EIGHT, queue="b")
    builder.running_podgroup([2], EIGHT, queue="b")
    builder.running_podgroup([0], ONE, queue="b", non_evictable_reason="for a reason")
    return builder


def just_over() -> Builder:
    """Return a node with two large jobs of A, with a quota that is a little less."""
    builder = cluster(SnapshotQueue("a", quota=7), SnapshotQueue("b", quota=4))
    for _ in range(2):
        builder.running_podgroup([0], FOUR, queue="a")
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
    Case("not for what fits nowhere", waiting(borrowed(), (1, signature(gpu=9))), ""),
    Case("not for what all together do not leave", waiting(borrowed(), (2, signature(gpu=5))), ""),
    Case("not from a non-preemptible one", waiting(borrowed(is_preemptible=False), (1, ONE)), ""),
    Case(
        "not from one that cannot be evicted",
        waiting(borrowed(non_evictable_reason="for a reason"), (1, ONE)),
        "",
    ),
    Case(
        "not beyond what is due",
        waiting(borrowed(8, SnapshotQueue("b", quota=2)), (5, ONE), (1, ONE)),
        "7:1→8 6:1→8 5:1→8 4:1→8 3:1→8",
    ),
    Case(
        "a queue over quota too gets a fair share",
        waiting(borrowed(8, SnapshotQueue("b")), (1, FOUR)),
        "7:1→8 6:1→8 5:1→8 4:1→8",
    ),
    Case("and no more", waiting(borrowed(8, SnapshotQueue("b")), (5, ONE)), ""),
    Case(
        "a non-preemptible one stays within the quota",
        waiting(borrowed(8, SnapshotQueue("b", quota=2)), (3, ONE), is_preemptible=False),
        "",
    ),
    Case("what comes on top goes first", waiting(elastic(), (2, ONE)), "0:1→1 0:1→1"),
    Case("then all of it", waiting(elastic(), (7, ONE)), "0:8→1"),
    Case(
        "a department takes back from another",
        waiting(departments(), (1, FOUR)),
        "7:1→8 6:1→8 5:1→8 4:1→8",
    ),
    Case("and not what is beyond its own", waiting(departments(), (1, signature(gpu=5))), ""),
    Case("a team from its sister", waiting(departments(), (1, ONE), queue="s"), "7:1→8"),
    Case("a limit is made room for", waiting(capped(), (1, ONE)), "7:1→8"),
    Case(
        "rather the small ones, if they are enough",
        waiting(large_and_small(), (1, TWO)),
        "4:1→5 3:1→5",
    ),
    Case("none only to make it fair", waiting(sums(), (1, EIGHT), queue="s"), "0:1→5"),
    Case("the last may be as large as it is", waiting(just_over(), (1, FOUR)), "1:1→2"),
    Case("for different pods as many as they need", mixed(), "7:1→8 6:1→8 5:1→8"),
    Case("each that can be spared is", waiting(apart(), (1, FOUR)), "4:1→5 3:1→5 2:1→5 1:1→5"),
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
        "and a non-preemptible one",
        waiting(ranked(20, 20, 20, 20, is_preemptible=False), (1, TWO), queue="a", priority=60),
        "",
    ),
    Case(
        "as many as it takes",
        waiting(ranked(20, 20, 50, 50), (1, signature(gpu=6)), queue="a", priority=60),
        "1:1→4 0:1→4 3:1→4",
    ),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_which_pods_are_evicted(case: Case[Builder, str]) -> None:
    snapshot = case.given.snapshot()
    answer = plan(snapshot, POLICIES)
    assert described(answer) == case.want
    assert list(plan_violations(snapshot, answer)) == []
    preemptors = {it.preemptor for it in answer.evictions}
    assert {it.podgroup for it in answer.allocations if it.nominations} >= preemptors


def test_a_preemptor_that_was_placed_is_no_victim_of_a_later_action() -> None:
    """It has reclaimed one GPU; a larger priority of its queue may not preempt its other pods."""
    builder = cluster(SnapshotQueue("a", quota=5), SnapshotQueue("b", quota=3, priority=200))
    for _ in range(6):
        builder.running_podgroup([0], ONE, queue="a")
    row = builder.signature_row(ONE)
    builder.pod_on_node(0, row)
    builder.pod_on_node(0, row)
    running = PodSet("default", 2, builder.waiting_pods(1, ONE), running=2)
    builder.podgroup(running, queue="b", is_kept=True)
    builder.uniform_podgroup(2, ONE, queue="b", priority=60)
    answer = plan(builder.snapshot(), POLICIES)
    assert described(answer) == "5:1→6"


def test_what_one_leaves_another_uses() -> None:
    """Of the eight that go for seven one is left."""
    answer = plan(waiting(elastic(), (7, ONE), (1, ONE), (1, ONE)).snapshot(), POLICIES)
    assert described(answer) == "0:8→1"
    assert {it.podgroup for it in answer.allocations} == {1, 2}


def test_a_placement_that_could_be_is_made() -> None:
    """A small pod may go anywhere, and a large one only where the small one would like to go."""
    builder = Builder([SnapshotNode(releasing_gpu=5), SnapshotNode()], [A, B])
    builder.nodes = [SnapshotNode(gpu=5, releasing_gpu=5, labels=(0,)), SnapshotNode(labels=(1,))]
    for _ in range(8):
        builder.running_podgroup([1], ONE, queue="a")
    there = signature(gpu=4, node_affinity=(((LabelRequirement(0, frozenset({1})),),),))
    pods = builder.waiting_pods(1, ONE) + builder.waiting_pods(1, there)
    builder.podgroup(PodSet("default", 2, pods), queue="b")
    snapshot = builder.snapshot()
    answer = plan(snapshot, POLICIES)
    assert described(answer) == "7:1→8 6:1→8 5:1→8 4:1→8 3:1→8"
    assert list(plan_violations(snapshot, answer)) == []


def test_equal_reclaimers_with_other_reserved_places_are_others() -> None:
    """One reserved place is on a node without evictions, the other on a node with one."""
    builder = cluster(A, SnapshotQueue("b", quota=16), nodes=2)
    builder.running_podgroup([0], signature(gpu=7), queue="a", is_preemptible=False)
    builder.running_podgroup([1], signature(gpu=5), queue="a", is_preemptible=False)
    builder.running_podgroup([1], TWO, queue="a")
    failure, three = builder.signature_row(ONE), signature(gpu=3)
    for node in (0, 1):
        pods = builder.waiting_pods(1, three)
        reserved_place = ReservedPlace(node, failure, ReservationCause.REPAIR)
        podset = PodSet("default", 2, pods, running=1, reserved_places=(reserved_place,))
        builder.podgroup(podset, queue="b", is_kept=True)
    idle = builder.snapshot().nodes.idle.copy()
    idle[:, 3] -= 1000
    answer = plan(with_idle(builder.snapshot(), idle), POLICIES)
    assert described(answer) == "2:1→4"


def with_idle(snapshot: Snapshot, idle: Any) -> Snapshot:
    return replace(snapshot, nodes=replace(snapshot.nodes, idle=idle))


def test_a_podgroup_that_has_grown_is_not_ahead_any_more() -> None:
    """It got what it needs; what it wants on top comes after them."""
    builder = cluster(SnapshotQueue("a", quota=4), SnapshotQueue("b", quota=4))
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue="a")
    pods = builder.waiting_pods(1, ONE) + builder.waiting_pods(1, EIGHT)
    builder.podgroup(PodSet("default", 1, pods), queue="b")
    answer = plan(waiting(builder, (1, ONE), (1, ONE)).snapshot(), POLICIES)
    assert described(answer) == "7:1→8 6:1→9 5:1→10"


def beside_two(ahead: SchedulingSignature = EIGHT, number: int = 1, limit: int = NONE) -> Builder:
    """Return a node of A and B with equal shares; of B some wait, and one behind them."""
    builder = Builder(
        [SnapshotNode(labels=(0,))],
        [SnapshotQueue("a", quota=4), SnapshotQueue("b", quota=4, limit=limit)],
    )
    for queue in ("a", "a", "a", "b"):
        builder.running_podgroup([0], TWO, queue=queue)
    return waiting(builder, (number, ahead), (1, TWO))


def test_the_earlier_podgroup_is_reported() -> None:
    """Other queues than B would get it, but for a PodGroup that requests more than its share."""
    answer = plan(beside_two().snapshot(), POLICIES)
    assert described(answer) == ""
    earlier_podgroup = EarlierPodGroup(4, (1000, 2**30, 8000), EarlierIneligibility.SHARE)
    assert [
        it.eviction_failure.earlier_podgroup for it in answer.rejections if it.podgroup == 5
    ] == [earlier_podgroup]


ELSEWHERE = (((LabelRequirement(0, frozenset({1})),),),)


@pytest.mark.parametrize(
    "builder",
    [
        beside_two(signature(gpu=8, node_affinity=ELSEWHERE)),
        beside_two(signature(gpu=80)),
        beside_two(number=2),
        beside_two(limit=7),
    ],
    ids=["it selects no node", "more than a node", "more than there are", "more than a limit"],
)
def test_a_podgroup_that_could_not_fit_is_not_ahead(builder: Builder) -> None:
    """One mistake does not keep a team from what is due to it."""
    assert described(plan(builder.snapshot(), POLICIES)) == "2:1→5"


def test_after_so_many_trials_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PodGroup that was not tried might be spared."""
    builder = cluster(A, SnapshotQueue("b", quota=80), nodes=10)
    for i in range(80):
        builder.running_podgroup([i // 8], ONE, queue="a")
    ports = signature(gpu=4, host_ports=(0,), conflicting_ports=(0,))
    snapshot = waiting(builder, (8, ports)).snapshot()
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, ports=np.zeros((10, 1), np.int32)))
    enough = plan(snapshot, POLICIES)
    monkeypatch.setattr(eviction_scenario, "_MAX_TRIALS", enough.stats.trials - 1)
    answer = plan(snapshot, POLICIES)
    assert len(enough.allocations) == 1
    assert (described(answer), answer.stats.truncated) == ("", 1)
    assert "The search for victims ended at a limit" in rejection_message(
        snapshot, answer.rejections[-1]
    )


def gpus_taken(snapshot: Snapshot, limit: int) -> int:
    answer = plan(snapshot, POLICIES, PlanLimits(evictable_gpus=limit * 1000))
    return sum(len(it.pods) for it in answer.evictions)


@pytest.mark.parametrize(("limit", "want"), [(0, 0), (1, 3), (3, 3), (4, 6), (9, 6)])
def test_a_limit_ends_it(limit: int, want: int) -> None:
    """A search that begins below it goes on to the end; none begins at it."""
    assert gpus_taken(waiting(borrowed(), (3, ONE), (3, ONE)).snapshot(), limit) == want


def test_actions_can_be_left_out() -> None:
    snapshot = waiting(borrowed(), (1, ONE)).snapshot()
    for action in ("reclaim", "preempt"):
        rest = build_policies(PolicySelection(actions={action: False}))
        assert described(plan(snapshot, rest)) == ("" if action == "reclaim" else "7:1→8")


def test_equal_claims_are_made_once() -> None:
    """A hundred that fail are one search: half of each node cannot be evicted."""
    builder = cluster(A, SnapshotQueue("b", quota=16), nodes=2)
    for node in (0, 1):
        builder.running_podgroup([node], FOUR, queue="a", is_preemptible=False)
        for _ in range(4):
            builder.running_podgroup([node], ONE, queue="a")
    answer = plan(waiting(builder, *[(1, signature(gpu=6))] * 100).snapshot(), POLICIES)
    assert (described(answer), answer.stats.searches) == ("", 1)


def test_what_cannot_be_is_not_tried() -> None:
    """Sums say that A may lose seven and that eight are asked for."""
    builder = cluster(SnapshotQueue("a", quota=1), SnapshotQueue("b", quota=8), nodes=1)
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue="a")
    answer = plan(waiting(builder, (1, EIGHT)).snapshot(), POLICIES)
    assert (described(answer), answer.stats.searches) == ("", 0)


@pytest.mark.parametrize(("size", "searches"), [(TWO, 1), (EIGHT, 0)], ids=["enough", "too few"])
def test_what_smaller_priorities_cannot_give_is_not_tried(size: Any, searches: int) -> None:
    """Of a queue's eight GPUs four are of others that matter less."""
    answer = plan(
        waiting(ranked(20, 20, 60, 70), (1, size), queue="a", priority=60).snapshot(), POLICIES
    )
    assert answer.stats.searches == searches
