"""Who is moved for whom, and to where: the action consolidation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.core.decision import Action, Move, Plan, Reservation
from scheduler.core.model import (
    Bar,
    Cause,
    Group,
    Leaf,
    Neighbours,
    Require,
    Shape,
    Slot,
    Snapshot,
    Spread,
    Term,
    Verdict,
)
from scheduler.core.plan import Limits, plan
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import Builder, Node, Queue, shape
from tests.support.violations import violations

POLICIES = choose(Choice())
ONE, TWO, FOUR, EIGHT = (shape(gpu=n) for n in (1, 2, 4, 8))


def cluster(*queues: Queue, nodes: int = 2, gpu: int = 4) -> Builder:
    """Return nodes and queues."""
    return Builder([Node(gpu=gpu)] * nodes, queues or (Queue("a", quota=-1),))


def waiting(builder: Builder, number: int = 1, one: Shape = FOUR, **more: Any) -> Builder:
    """Let a gang wait."""
    builder.gang(number, one, **more)
    return builder


def scattered(*sizes: Shape, **more: Any) -> Builder:
    """Return two nodes with four GPUs; jobs of these sizes lie on one and the other in turn."""
    builder = cluster(nodes=2)
    for i, one in enumerate(sizes or (ONE, ONE)):
        builder.runs([i % 2], one, **more)
    return builder


def told(answer: Plan) -> str:
    """Return who is moved for whom, and to which nodes."""
    slots = {it.unit: [f"{n}x{node}" for _, node, n, _ in it.slots] for it in answer.moves}
    return " ".join(
        f"{unit}→{'+'.join(slots[unit])}:{it.claimant}"
        for it in answer.evictions
        if it.action == Action.CONSOLIDATION
        for unit in it.units
    )


def of_three() -> Builder:
    """Return three nodes: the newest two jobs can be moved, and so could the oldest alone."""
    builder = cluster(nodes=3)
    builder.runs([2], ONE)
    builder.runs([0], shape(gpu=3))
    builder.runs([1], TWO)
    builder.runs([1], ONE)
    return waiting(builder)


def gang() -> Builder:
    """Return a gang on both nodes, of which it needs all."""
    builder = cluster()
    builder.runs([0, 1], ONE)
    return builder


def elastic() -> Builder:
    """Return a gang on two of three nodes that needs one pod; it keeps both."""
    builder = cluster(nodes=3)
    builder.runs([0, 1], TWO, minimum=1)
    builder.runs([2], TWO)
    return waiting(builder)


def jobset(**more: Any) -> Builder:
    """Return a JobSet of two units, each on a node of its own, and who needs a node."""
    builder = cluster()
    builder.runs([0], ONE, bundle="j")
    builder.runs([1], ONE, bundle="j", **more)
    return waiting(builder)


def leaves(*, mixed: bool = False, older: bool = False) -> Builder:
    """Return a unit of two leaves that ask for different things, and who needs its node."""
    builder = cluster()
    small, large = builder.shape(ONE), builder.shape(TWO)
    builder.lying(0, small)
    builder.lying(0, large)
    of = Leaf("b", 1, there=1, pods=(1,))
    if mixed:
        builder.lying(0, small)
        of = Leaf("b", 2, there=2, pods=(1, 2))
    tree = Group("", 2, (Leaf("a", 1, there=1, pods=(0,)), of))
    if older:
        builder.lying(1, small)
    builder.unit(tree, is_kept=True)
    if not older:
        builder.runs([1], ONE, is_preemptible=False)
    return waiting(builder)


def pair(**more: Any) -> Builder:
    """Return one job that could be moved, another that cannot, and who needs a node."""
    builder = cluster()
    builder.runs([0], ONE, **more)
    builder.runs([1], ONE, is_preemptible=False)
    return waiting(builder)


def changed(**more: Any) -> Builder:
    """Return the same, with something about the one unit changed."""
    builder = pair()
    builder.units[0] = replace(builder.units[0], **more)
    return builder


def with_older() -> Builder:
    """Return the same, with a pod of an older attempt beside it."""
    builder = cluster()
    builder.lying(0, builder.shape(ONE))
    builder.runs([0], ONE)
    builder.runs([1], ONE, is_preemptible=False)
    return waiting(builder)


def crowd(count: int) -> Builder:
    """Return a node with so many jobs, each needed for it to be empty, and one with room."""
    builder = cluster(gpu=32)
    for _ in range(count):
        builder.runs([0], ONE)
    builder.runs([1], ONE, is_preemptible=False)
    return waiting(builder, one=shape(gpu=32))


def lacking() -> Builder:
    """Return a unit that grows by another leaf: its own pod that is there is not moved for it."""
    builder = cluster()
    builder.lying(0, builder.shape(ONE))
    there = Leaf("a", 1, there=1, pods=(0,))
    builder.unit(Group("", 1, (there, Leaf("b", 1, builder.pods(1, FOUR)))), is_kept=True)
    builder.runs([1], ONE, is_preemptible=False)
    return builder


def pinned() -> Builder:
    """Return two jobs, the newer of which has no other node, and who needs a node."""
    builder = Builder([Node(gpu=4, labels=(0,)), Node(gpu=4, labels=(1,))])
    builder.runs([0], ONE)
    builder.runs([1], replace(ONE, any_of=(((Require(0, frozenset({1})),),),)))
    return waiting(builder)


def two_queues() -> Builder:
    """Return a queue with all it is due, whose job is moved for another one's."""
    builder = cluster(Queue("a", quota=4), Queue("b", quota=0))
    builder.runs([0], TWO, queue="a")
    builder.runs([1], TWO, queue="a", is_preemptible=False)
    return waiting(builder, queue="b")


BAR = Bar(Verdict.MISCONFIGURED, "no")
SLOT = Leaf("default", 1, there=1, slots=(Slot(0, 0, Cause.REPAIR),))

PLANS: list[Case[Builder, str]] = [
    Case("the newest that does", waiting(scattered()), "1→1x0:2"),
    Case("the first set, though another is smaller", of_three(), "3→1x0:4 2→1x2:4"),
    Case("a gang moves with all its pods", waiting(gang()), "0→2x1:1"),
    Case("a queue that is due it all may be moved", two_queues(), "0→1x1:2"),
    Case("what can be spared moves as well", elastic(), "0→1x2+1x1:2"),
    Case("a JobSet moves whole", jobset(), "0→1x1:2 1→1x1:2"),
    Case("or not at all", jobset(is_preemptible=False), ""),
    Case("leaf by leaf", leaves(), "0→1x1+1x1:2"),
    Case("not with mixed leaves", leaves(mixed=True), ""),
    Case("not leaf by leaf, beside an older attempt", leaves(older=True), ""),
    Case("who has a place elsewhere", pinned(), "0→1x1:2"),
    Case("who may be preempted", pair(), "0→1x1:2"),
    Case("not who may not be", pair(is_preemptible=False), ""),
    Case("not who stays", changed(stays="x"), ""),
    Case("not who is short", changed(tree=Leaf("default", 2, there=1)), ""),
    Case("not who is not to be moved", changed(may_move=False), ""),
    Case("not who can hold nothing", changed(can_hold=False), ""),
    Case("not who holds something", changed(tree=SLOT), ""),
    Case("not who has something in its way", changed(bar=BAR), ""),
    Case("not who will not come back", changed(is_kept=False), ""),
    Case("not beside an older attempt", with_older(), ""),
    Case("there must be room in sum", waiting(scattered(FOUR, ONE)), ""),
    Case("nobody fits where the claimant lies", waiting(scattered(TWO, TWO, TWO)), ""),
    Case("who cannot be preempted moves nobody", waiting(scattered(), is_preemptible=False), ""),
    Case("nobody is moved for himself", lacking(), ""),
    Case("sixteen are looked at", crowd(16), " ".join(f"{i}→1x1:17" for i in range(15, -1, -1))),
    Case("and no more", crowd(17), ""),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_who_is_moved(case: Case[Builder, str]) -> None:
    """Who, for whom, and to where; and nothing about it is wrong."""
    snapshot = case.given.snapshot()

    answer = plan(snapshot, POLICIES)

    assert told(answer) == case.want
    assert list(violations(snapshot, answer)) == []
    for it in answer.evictions:
        assert any(one.unit == it.claimant and one.nominations for one in answer.decisions)


def labelled(snapshot: Snapshot) -> Snapshot:
    """Return the same with one selector, of whose pods one is on the first node."""
    counts = np.zeros((1, len(snapshot.nodes.names)), dtype=np.int32)
    counts[0, 0] = 1
    none = np.zeros((0, len(snapshot.nodes.names)), dtype=np.int32)
    nodes = replace(
        snapshot.nodes, labels=np.zeros((len(counts[0]), 1), dtype=np.int32), key_names=("zone",)
    )
    return replace(snapshot, nodes=nodes, neighbours=Neighbours(counts, (), none, (), ()))


SPREAD = Spread(0, 0, 9, 0, counts_itself=False, honours_affinity=False, honours_taints=False)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(replace(ONE, near=(Term(0, 0),)), id="near others"),
        pytest.param(replace(ONE, spread=(SPREAD,)), id="spread"),
        pytest.param(replace(ONE, devices=1), id="with a part of a device"),
    ],
)
def test_who_minds_his_neighbours_stays(one: Shape) -> None:
    """Others may have gone elsewhere by the time it comes back."""
    builder = cluster()
    builder.runs([0], one)
    builder.runs([1], ONE, is_preemptible=False)

    assert told(plan(labelled(waiting(builder).snapshot()), POLICIES)) == ""


def test_nobody_is_moved_away_from_who_wants_to_be_near() -> None:
    """The one that is chosen by the claimant's affinity stays, and the other is moved."""
    builder = cluster()
    builder.runs([0], replace(ONE, matches=(0,)))
    builder.runs([1], ONE)
    snapshot = labelled(waiting(builder, one=replace(FOUR, near=(Term(0, 0),))).snapshot())

    assert told(plan(snapshot, POLICIES)) == "1→1x0:2"


def test_the_claimant_does_not_grow_into_the_room_of_who_moves() -> None:
    """What it could have beyond what it needs comes after all places that are promised."""
    builder = cluster()
    builder.runs([0], ONE)
    builder.runs([1], shape(gpu=3), is_preemptible=False)
    pods = builder.pods(1, FOUR) + builder.pods(1, ONE)
    builder.unit(Leaf("default", 1, pods))
    snapshot = builder.snapshot()

    answer = plan(snapshot, POLICIES)

    assert told(answer) == "0→1x1:2"
    assert sum(len(it.nominations) for it in answer.decisions) == 1
    assert list(violations(snapshot, answer)) == []


def test_how_many_are_looked_at_is_a_setting() -> None:
    """None, some, or all."""
    snapshot = crowd(17).snapshot()

    def moved(most: int) -> int:
        return len(plan(snapshot, choose(Choice(most_moved=most))).moves)

    assert [moved(0), moved(16), moved(17), moved(-1)] == [0, 0, 17, 17]


def test_who_is_moved_loses_nothing_else() -> None:
    """Nor does it claim anything: it is on its way."""
    queues = Queue("a", quota=0), Queue("b", quota=8)
    builder = cluster(*queues)
    builder.runs([0], ONE, queue="a")
    builder.runs([1], ONE, queue="a")
    waiting(builder, queue="b")
    waiting(builder, queue="b")
    snapshot = builder.snapshot()

    answer = plan(snapshot, POLICIES)

    assert told(answer) == "1→1x0:2"
    assert [(it.units, it.action) for it in answer.evictions] == [((1,), Action.CONSOLIDATION)]
    assert [it.unit for it in answer.rejections] == [3]
    assert list(violations(snapshot, answer)) == []


def test_several_get_room_one_after_the_other() -> None:
    """Each by others who move; nobody moves twice."""
    builder = cluster(nodes=4)
    for node in range(4):
        builder.runs([node], TWO)
    snapshot = waiting(waiting(waiting(builder))).snapshot()

    answer = plan(snapshot, POLICIES)

    assert told(answer) == "3→1x0:4 2→1x1:5"
    assert [it.unit for it in answer.rejections] == [6]
    assert list(violations(snapshot, answer)) == []


def test_a_queue_at_its_limit_gets_nothing_by_moving_others() -> None:
    """Nobody has less by it."""
    builder = cluster(Queue("a", quota=-1), Queue("b", quota=-1, limit=3))
    builder.runs([0], ONE, queue="a")
    builder.runs([1], ONE, queue="a")

    answer = plan(waiting(builder, queue="b").snapshot(), POLICIES)

    assert (told(answer), answer.rejections[0].verdict) == ("", Verdict.EXCEEDS_LIMIT)


def test_equals_are_not_tried_again() -> None:
    """A claim that failed fails for equal units as long as nobody was placed."""
    builder = scattered(TWO, ONE, TWO)
    for _ in range(5):
        waiting(builder)

    assert plan(builder.snapshot(), POLICIES).stats.searches <= 1


def test_no_gpus_may_be_taken() -> None:
    """Who is moved is evicted as well."""
    snapshot = waiting(scattered()).snapshot()

    assert told(plan(snapshot, POLICIES, Limits(evictable_gpus=0))) == ""
    assert told(plan(snapshot, POLICIES, Limits(evictable_gpus=1))) == "1→1x0:2"


BROKEN: list[Case[Any, str]] = [
    Case("without a place", lambda _: (), "unit-1 is moved, and not to a place for each"),
    Case("two places", lambda it: (*it, *it), "unit-1 is moved, and not to a place for each"),
    Case("who stays", lambda it: (*it, Move(0, ())), "unit-0 is moved, and not to a place"),
    Case(
        "to where there is no room",
        lambda _: (Move(1, (Reservation("default", 1, 1, Cause.MOVE),)),),
        "node node-1 has no room",
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_told(case: Case[Any, str]) -> None:
    """Whoever is moved, and nobody else, has a place for each pod, where there is room."""
    snapshot = waiting(scattered()).snapshot()
    answer = plan(snapshot, POLICIES)

    told_ = list(violations(snapshot, replace(answer, moves=case.given(answer.moves))))

    assert any(case.want in it for it in told_), told_
