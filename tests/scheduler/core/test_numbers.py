"""How the nodes looked to a pod for which there was none."""

from typing import Any, Final, NamedTuple

import pytest

from scheduler.core.chunks import Progress, chunk
from scheduler.core.decision import NodeNumbers, Obstacle
from scheduler.core.ledger import Ledger
from scheduler.core.model import (
    Cause,
    Leaf,
    NodeFault,
    Require,
    Shape,
    Slot,
    Snapshot,
    Spread,
    Term,
    Verdict,
)
from scheduler.core.numbers import node_numbers
from scheduler.core.place import Failure, Placer
from scheduler.core.policy import Policies
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.snapshots import GIB, Builder, Node, shape
from tests.support.snapshotted import neighbours

POLICIES: Final = choose(Choice())
CPU, MEMORY, POD, GPU = range(4)  # resources


def numbers_of(
    nodes: list[Node], *pods: Shape, policies: Policies = POLICIES, **crowd: Any
) -> NodeNumbers:
    """Return the numbers of a gang that does not fit; nothing of it stays in the ledger."""
    build = Builder(nodes=nodes)
    waiting = tuple(pod for one in pods for pod in build.pods(1, one))
    build.unit(Leaf("a", len(pods), waiting))
    return failed(build.snapshot(neighbours=neighbours(len(nodes), **crowd)), policies)


def failed(snapshot: Snapshot, policies: Policies = POLICIES) -> NodeNumbers:
    """Return the numbers of the first unit, which does not fit."""
    ledger = Ledger(snapshot)
    placer = Placer(ledger, policies)
    parts = chunk(snapshot.units[0].tree)
    placed = placer.place(0, parts, Progress())
    assert isinstance(placed, Failure)
    shapes = placer.shapes(parts)
    numbers = node_numbers(ledger, placer.field(placed.shape), placed, shapes)
    assert (ledger.idle == snapshot.nodes.idle).all()
    return numbers


class Told(NamedTuple):
    """What a case compares: verdict, how far the chunk got, nodes by obstacle, is it curable."""

    verdict: Verdict
    placed: str
    counts: dict[Obstacle, int]
    is_curable: bool


ONE: Final = shape(gpu=1)
BIG: Final = shape(gpu=8)
HERMIT: Final = shape(gpu=1, matches=(0,), apart=(0,), shunned=(0,))
EVEN: Final = Spread(0, 0, 1, 0, True, True, False)
ZONES: Final = [Node(labels=(0,)), Node(labels=(1,), used_gpu=8)]
FULL: Final = Node(gpu=8, used_gpu=8)
NO_MATCH, SCATTERED, NO_ROOM = Verdict.NO_NODE_MATCHES, Verdict.FRAGMENTED, Verdict.NO_CAPACITY

# nodes, the pods of a gang -> what is told
COUNTED: list[Case[tuple[list[Node], list[Shape]], Told]] = [
    Case("no node at all", ([], [ONE]), Told(NO_MATCH, "0 of 1", {}, False)),
    Case("all are full", ([FULL, FULL], [ONE]), Told(NO_ROOM, "0 of 1", {Obstacle.ROOM: 2}, True)),
    Case(
        "the rest is in pieces",
        ([Node(used_gpu=4), Node(used_gpu=4)], [BIG]),
        Told(SCATTERED, "0 of 1", {Obstacle.ROOM: 2}, True),
    ),
    Case(
        "what is being released counts",
        ([Node(used_gpu=4), Node(used_gpu=4, releasing_gpu=4)], [BIG]),
        Told(SCATTERED, "0 of 1", {Obstacle.ROOM: 2}, True),
    ),
    Case(
        "room on nodes that do not match does not count",
        ([Node(used_gpu=4), Node(gpu=7)], [BIG]),
        Told(NO_ROOM, "0 of 1", {Obstacle.ROOM: 1, Obstacle.TOO_SMALL: 1}, True),
    ),
    Case(
        "room before the chunk was tried counts, for all of it",
        ([Node(gpu=4), Node(gpu=4)], [shape(gpu=3)] * 3),
        Told(NO_ROOM, "2 of 3", {Obstacle.ROOM: 2}, True),
    ),
    Case(
        "a gang in pieces",
        ([Node(gpu=4), Node(gpu=4), Node(gpu=4)], [shape(gpu=3)] * 4),
        Told(SCATTERED, "3 of 4", {Obstacle.ROOM: 3}, True),
    ),
    Case(
        "less than nothing counts as nothing",
        (
            [Node(gpu=4, used_gpu=9), Node(gpu=4, used_gpu=1), Node(gpu=4, used_gpu=3)],
            [shape(gpu=4)],
        ),
        Told(SCATTERED, "0 of 1", {Obstacle.ROOM: 3}, True),
    ),
    Case(
        "every fault by itself",
        ([Node(fault=fault) for fault in (1, 2, 3, 3, 4)], [ONE]),
        Told(
            NO_MATCH,
            "0 of 1",
            {
                Obstacle.CORDONED: 1,
                Obstacle.NOT_READY: 2,
                Obstacle.PRESSURE: 1,
                Obstacle.NO_NETWORK: 1,
            },
            False,
        ),
    ),
    Case(
        "a node counts once, by the first obstacle",
        (
            [Node(gpu=0, fault=NodeFault.CORDONED, taints=(True,)), Node(gpu=0, taints=(True,))],
            [ONE],
        ),
        Told(NO_MATCH, "0 of 1", {Obstacle.CORDONED: 1, Obstacle.TAINT: 1}, False),
    ),
    Case(
        "too small even when empty",
        ([Node(gpu=4), Node(gpu=2)], [BIG]),
        Told(NO_MATCH, "0 of 1", {Obstacle.TOO_SMALL: 2}, False),
    ),
    Case(
        "a label",
        ([Node()], [shape(any_of=((),))]),
        Told(NO_MATCH, "0 of 1", {Obstacle.SELECTOR: 1}, False),
    ),
    Case(
        "a port that the chunk itself has taken",
        ([Node()], [shape(takes=(0,), avoids=(0,))] * 2),
        Told(NO_MATCH, "1 of 2", {Obstacle.PORT: 1}, False),
    ),
    Case(
        "a claim of one pod",
        ([Node()], [shape(own_claims=(0,))] * 2),
        Told(NO_MATCH, "1 of 2", {Obstacle.CLAIM: 1}, False),
    ),
    Case(
        "friends that are nowhere cannot be evicted into being",
        ([Node(labels=(0,))], [shape(near=(Term(0, 0),))]),
        Told(NO_MATCH, "0 of 1", {Obstacle.AFFINITY: 1}, False),
    ),
    Case(
        "foes",
        (ZONES, [HERMIT] * 2),
        Told(NO_ROOM, "1 of 2", {Obstacle.ANTI_AFFINITY: 1, Obstacle.ROOM: 1}, True),
    ),
    Case(
        "spread",
        (ZONES, [shape(gpu=1, matches=(0,), spread=(EVEN,))] * 2),
        Told(NO_ROOM, "1 of 2", {Obstacle.SPREAD: 1, Obstacle.ROOM: 1}, True),
    ),
]


@pytest.mark.parametrize("case", COUNTED, ids=ids)
def test_numbers(case: Case[tuple[list[Node], list[Shape]], Told]) -> None:
    """The verdict, and why each node did not do."""
    nodes, pods = case.given
    got = numbers_of(nodes, *pods)
    told = Told(got.verdict, f"{got.placed} of {got.needed}", dict(got.counts), got.is_curable)
    assert told == case.want
    assert sum(got.counts.values()) == len(nodes)


def test_what_is_lacking_and_how_much_there_is() -> None:
    """Of each resource: nodes that lack it, the most on one, what is free on all of them."""
    nodes = [
        Node(gpu=8, used_gpu=6, cpu=10),
        Node(gpu=8, used_gpu=1, cpu=9, used_cpu=8),
        Node(gpu=1),
    ]
    got = numbers_of(nodes, shape(gpu=4, cpu=4, memory=2), shape(gpu=1, cpu=1, memory=2))
    assert (got.shape, got.placed, got.needed) == (0, 0, 2)
    assert got.lacking == {GPU: 1, CPU: 1}
    assert got.largest == {CPU: 10_000, MEMORY: 512 * GIB, POD: 110, GPU: 7_000}
    assert got.room == {CPU: 11_000, MEMORY: 1024 * GIB, POD: 220, GPU: 9_000}


def test_what_keeps_it_off_is_counted() -> None:
    """By taint, by label and by resource: each only on the nodes that were lost to its kind."""
    nodes = [
        Node(taints=(True, True, False), labels=(7, 7)),
        Node(taints=(True, False, True)),
        Node(taints=(True, False, False), labels=(0, 0)),
        Node(labels=(0, 0)),
        Node(labels=(0, 1)),
        Node(labels=(1, 1), gpu=2, memory=8),
        Node(labels=(1, 1), gpu=4),
        Node(labels=(1, 1), memory=4),
    ]
    one_of = (
        (Require(0, frozenset({1, 2})),),
        (Require(1, frozenset({1})), Require(0, frozenset())),
    )
    pod = shape(
        gpu=8,
        memory=16,
        tolerates=frozenset({0}),
        any_of=(one_of, ((Require(1, frozenset({1, 7})),),)),
    )
    got = numbers_of(nodes, pod)
    assert got.counts == {Obstacle.TAINT: 2, Obstacle.SELECTOR: 3, Obstacle.TOO_SMALL: 3}
    assert got.taints == {1: 1, 2: 1}
    assert got.keys == {"key-0": 3, "key-1": 2}
    assert got.small == {MEMORY: 2, GPU: 2}
    assert got.biggest == {MEMORY: 8 * GIB, GPU: 4000}


FOUR: Final = shape(gpu=4)
FIVE: Final = shape(gpu=5)

# nodes, the pods of a gang -> such pods that are left, seats for them without others
HOPES: list[Case[tuple[list[Node], list[Shape]], tuple[int, int]]] = [
    Case("one pod", ([FULL, FULL], [BIG]), (1, 2)),
    Case("several", ([Node(used_gpu=4), FULL], [FOUR] * 4), (3, 3)),
    Case("more than all nodes have", ([Node(used_gpu=4)], [FOUR] * 3), (2, 1)),
    Case("in pieces even when empty", ([FULL, FULL], [FIVE] * 3), (3, 2)),
    Case("nobody else is there", ([Node()], [FOUR] * 3), (1, 0)),
    Case("others of the gang are in the way", ([Node()], [ONE, BIG]), (1, 0)),
    Case("nodes that do not match are no seats", ([FULL, Node(gpu=1)], [BIG]), (1, 1)),
    Case("what is still to come differs", ([FULL], [ONE, FOUR]), (1, 8)),
    Case("the same but for a promise", ([FULL], [ONE, shape(gpu=1, nominated=0)]), (2, 8)),
    Case("the last one, whom others move", (ZONES, [HERMIT] * 2), (1, 8)),
    Case("not the last one", (ZONES, [HERMIT] * 3), (2, 8)),
    Case("more than a node has in all", ([Node(used_gpu=9)], [BIG]), (1, 1)),
]


@pytest.mark.parametrize("case", HOPES, ids=ids)
def test_what_others_could_give_back(
    case: Case[tuple[list[Node], list[Shape]], tuple[int, int]],
) -> None:
    """On the nodes of which only room is missing, and beside the gang's own pods."""
    nodes, pods = case.given
    got = numbers_of(nodes, *pods)
    assert (got.left, got.seats) == case.want


ONE_PORT: Final = shape(takes=(0,), avoids=(0,))

# nodes, the pods of a gang -> nodes that only its own pods closed
OWN: list[Case[tuple[list[Node], list[Shape]], dict[Obstacle, int]]] = [
    Case("room", ([Node(gpu=1)], [ONE] * 2), {}),
    Case("its port", ([Node(), Node()], [ONE_PORT] * 3), {Obstacle.PORT: 2}),
    Case("its foes", (ZONES, [HERMIT] * 2), {Obstacle.ANTI_AFFINITY: 1}),
    Case("friends that are nowhere", ([Node(labels=(0,))], [shape(near=(Term(0, 0),))]), {}),
    Case("a claim", ([Node()], [shape(own_claims=(0,))] * 2), {Obstacle.CLAIM: 1}),
]


@pytest.mark.parametrize("case", OWN, ids=ids)
def test_nodes_that_only_its_own_pods_closed(
    case: Case[tuple[list[Node], list[Shape]], dict[Obstacle, int]],
) -> None:
    """They are in nobody else's hand."""
    nodes, pods = case.given
    assert dict(numbers_of(nodes, *pods).own) == case.want


def test_its_own_slots_are_given_up_for_it() -> None:
    """They are no room of others: not on one node, not on all, and not for the verdict."""
    build = Builder(nodes=[Node(gpu=2, used_gpu=2), Node(gpu=2, used_gpu=1)])
    slots = (Slot(0, build.shape(ONE), Cause.ANTICIPATED),) * 2
    build.unit(Leaf("a", 2, build.pods(2, shape(gpu=2)), slots=slots))
    numbers = failed(build.snapshot())
    assert (numbers.verdict, numbers.placed, numbers.largest[GPU]) == (NO_ROOM, 0, 1000)
    assert (numbers.room[GPU], numbers.left, numbers.seats) == (2000, 2, 2)


def test_all_slots_of_the_chunk_make_the_verdict() -> None:
    """Also those of pods that were not tried any more."""
    nodes = [Node(gpu=2, used_gpu=used) for used in (2, 2, 1, 1)]
    build = Builder(nodes=nodes)
    slots = tuple(Slot(node, build.shape(ONE), Cause.ANTICIPATED) for node in (0, 1))
    build.unit(Leaf("a", 2, build.pods(2, shape(gpu=2)), slots=slots))
    numbers = failed(build.snapshot())
    assert (numbers.verdict, numbers.placed, numbers.room[GPU]) == (SCATTERED, 0, 3000)


def test_a_claim_in_use_elsewhere() -> None:
    """Where it is in use there is no room; elsewhere it cannot be reached."""
    got = numbers_of([FULL, Node()], shape(gpu=1, claims=(0,)), claim_node=(0,), claim_users=(1,))
    assert got.counts == {Obstacle.CLAIM: 1, Obstacle.ROOM: 1}
    assert got.is_curable
