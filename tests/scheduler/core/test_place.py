"""Room for a chunk: for all of it, or for nothing."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from scheduler.core.chunks import Part, Progress, chunk
from scheduler.core.decision import Admission, Reservation
from scheduler.core.ledger import Ledger
from scheduler.core.model import (
    Cause,
    Group,
    Leaf,
    Shape,
    Slot,
    Snapshot,
    Spread,
    Term,
    Tree,
)
from scheduler.core.place import Failure, Placer
from scheduler.policies.registry import Choice, choose
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshots import Builder, Node, shape
from tests.support.snapshotted import neighbours

POLICIES: Final = choose(Choice())
GPU, PAIR, CPU = 0, 1, 2
SHAPES: Final = (shape(gpu=1), shape(gpu=2), shape(cpu=4))


class L(NamedTuple):
    """A leaf: the shapes of its pods, and its minimum."""

    pods: tuple[int, ...]
    minimum: int
    later: int = 0
    slots: tuple[int, ...] = ()  # nodes
    there: int = 0


def snapshot_of(nodes: list[Node], leaves: list[L], minimum: int | None = None) -> Snapshot:
    """Return a snapshot of one unit, whose pods are numbered in the order of its leaves."""
    build = Builder(nodes=nodes)
    for one in SHAPES:
        build.shape(one)
    children = [_leaf(build, name, it) for name, it in zip("abc", leaves, strict=False)]
    tree: Tree = children[0]
    if len(children) > 1:
        tree = Group("all", len(children) if minimum is None else minimum, tuple(children))
    build.unit(tree)
    return build.snapshot()


def _leaf(build: Builder, name: str, it: L) -> Leaf:
    pods = [pod for one in it.pods for pod in build.pods(1, SHAPES[one])]
    row = it.pods[0] if it.pods else GPU
    slots = tuple(Slot(node, row, Cause.ANTICIPATED) for node in it.slots)
    later = it.later
    return Leaf(name, it.minimum, tuple(pods), it.there, 0, slots, later, row)


def told(placed: Admission | Failure) -> str:
    """Return nodes by pod; ~ is before one where it waits, + before one that is reserved."""
    if isinstance(placed, Failure):
        return f"no room for {placed.shape} after {placed.placed}"
    bound = {pod: f"{node}" for pod, node in placed.binds}
    waits = {pod: f"~{node}" for pod, node in placed.nominations}
    held = [f"+{it.node}" * it.number for it in placed.reservations]
    return " ".join([*(at for _, at in sorted({**bound, **waits}.items())), *held])


def play(given: Snapshot) -> tuple[list[str], Ledger]:
    """Place chunk after chunk, until nothing is left or one finds no room."""
    ledger = Ledger(given)
    placer = Placer(ledger, POLICIES)
    tree, progress = given.units[0].tree, Progress()
    got: list[str] = []
    while taken := chunk(tree, progress):
        placed = placer.place(0, taken, progress)
        got.append(told(placed))
        if isinstance(placed, Failure):
            ledger.roll_back(placed.checkpoint)
            break
        progress.add(taken)
    return got, ledger


TWO: Final = [Node(gpu=2), Node(gpu=2)]
SOON: Final = [Node(gpu=1), Node(gpu=2, releasing_gpu=1)]  # three: two now, one soon
ONE_SOON: Final = [Node(gpu=2, releasing_gpu=1)]

# nodes, leaves -> where the pods of each chunk go
PLACED: list[Case[tuple[list[Node], list[L]], list[str]]] = [
    Case("a gang, packed", (TWO, [L((GPU,) * 3, 3)]), ["0 0 1"]),
    Case("pods beyond the minimum one by one", (TWO, [L((GPU,) * 3, 1)]), ["0", "0", "1"]),
    Case("all or nothing", (TWO, [L((GPU,) * 5, 5)]), ["no room for 0 after 4"]),
    Case("what had room stays", (TWO, [L((GPU,) * 5, 4)]), ["0 0 1 1", "no room for 0 after 0"]),
    Case("sub-groups by name", (TWO, [L((PAIR,), 1), L((GPU, GPU), 2)]), ["0 1 1"]),
    Case(
        "who finds no room is told",
        (TWO, [L((GPU,), 1), L((PAIR, PAIR), 2)]),
        ["no room for 1 after 2"],
    ),
    Case("if one has to wait, all wait", (SOON, [L((GPU,) * 3, 3)]), ["~0 ~1 ~1"]),
    Case("nobody waits for who is more", (SOON, [L((GPU,) * 3, 2)]), ["0 1", "~1"]),
    Case(
        "what is more waits as well, while what is needed does",
        (ONE_SOON, [L((GPU, GPU, CPU), 2)]),
        ["~0 ~0", "~0"],
    ),
    Case(
        "what the unit does not need may wait alone",
        ([Node(gpu=2, releasing_gpu=1)], [L((), 1, there=1), L((GPU, GPU), 2)]),
        ["0 ~0"],
    ),
    Case("later pods are reserved behind", (TWO, [L((GPU,), 3, later=2)]), ["0 +0 +1"]),
    Case(
        "of each leaf and node one reservation",
        ([Node(gpu=4)], [L((GPU,), 4, later=3)]),
        ["0 +0+0+0"],
    ),
    Case("no room for later ones", (TWO, [L((GPU,), 9, later=8)]), ["no room for 0 after 4"]),
    Case(
        "who comes for a slot takes it",
        ([Node(gpu=4, used_gpu=3), Node(gpu=4, used_gpu=1)], [L((GPU, GPU), 2, slots=(1,))]),
        ["1 0"],
    ),
    Case(
        "slots in their order",
        ([Node(gpu=1, used_gpu=1)] * 3, [L((GPU, GPU), 2, slots=(2, 1))]),
        ["2 1"],
    ),
    Case(
        "the next chunk takes the next slot",
        ([Node(gpu=1, used_gpu=1)] * 3, [L((GPU, GPU), 1, slots=(2, 1))]),
        ["2", "1"],
    ),
    Case(
        "a slot that has become unfit is given up",
        ([Node(gpu=1), Node(gpu=1, used_gpu=1, fault=4)], [L((GPU,), 1, slots=(1,))]),
        ["0"],
    ),
]


@pytest.mark.parametrize("case", PLACED, ids=ids)
def test_places(case: Case[tuple[list[Node], list[L]], list[str]]) -> None:
    """Rules 24 to 27."""
    nodes, leaves = case.given
    minimum = 1 if leaves[0].there else None
    assert play(snapshot_of(nodes, leaves, minimum))[0] == case.want


def test_another_group_that_is_enough_does_not_wait() -> None:
    """One of two has to wait; the other, with its later pod, is all that the unit needs."""
    given = snapshot_of([Node(gpu=2, releasing_gpu=2)], [L((PAIR,), 1), L((CPU,), 2, later=1)], 1)
    assert play(given)[0] == ["~0", "0 +0"]


def test_who_waits_takes_nothing_that_is_idle() -> None:
    """A gang that has to wait leaves what is idle to those who can start at once."""
    _, ledger = play(snapshot_of(SOON, [L((GPU,) * 3, 3)]))
    assert (ledger.idle[:, 3].tolist(), ledger.room[:, 3].tolist()) == ([1000, 1000], [0, 0])


def test_a_slot_is_given_up_for_its_pod() -> None:
    """The room of one pod is taken in all, wherever it went."""
    nodes = [Node(gpu=1), Node(gpu=1, used_gpu=1, fault=4)]
    _, ledger = play(snapshot_of(nodes, [L((GPU,), 1, slots=(1,))]))
    assert ledger.idle[:, 3].tolist() == [0, 1000]


def test_a_failure_can_be_rolled_back() -> None:
    """Its checkpoint is before the chunk, with all slots where they were."""
    nodes = [Node(gpu=2, used_gpu=1), Node(gpu=2)]
    given = snapshot_of(nodes, [L((GPU, PAIR, PAIR), 3, slots=(0,))])
    got, ledger = play(given)
    assert got == ["no room for 1 after 2"]
    assert (ledger.idle == given.nodes.idle).all()


def test_a_pod_knows_its_shape() -> None:
    """The shapes of a chunk: real pods in their order, then later ones."""
    given = snapshot_of(TWO, [L((PAIR, CPU), 4, later=2)])
    placer = Placer(Ledger(given), POLICIES)
    assert placer.shapes(chunk(given.units[0].tree)) == ((PAIR, 1), (CPU, 1), (PAIR, 2))


def test_reservations_name_leaf_node_and_cause() -> None:
    """So that whoever carries them out needs no plan of its own."""
    given = snapshot_of(TWO, [L((GPU,), 2, later=1), L((GPU,), 2, later=1)])
    placed = Placer(Ledger(given), POLICIES).place(0, chunk(given.units[0].tree), Progress())
    assert isinstance(placed, Admission)
    assert placed.reservations == (
        Reservation("a", 0, 1, Cause.ANTICIPATED),
        Reservation("b", 1, 1, Cause.ANTICIPATED),
    )


def test_fields_are_kept() -> None:
    """What was worked out for a shape is worked out once."""
    one: Shape = SHAPES[GPU]
    given = snapshot_of(TWO, [L((GPU,), 1)])
    placer = Placer(Ledger(given), POLICIES)
    assert placer.field(GPU) is placer.field(GPU)
    assert placer.field(GPU).shape == one


_SPREAD: Final = choose(Choice(gpu_placement="spread", cpu_placement="spread"))
_node: Final = st.builds(
    Node,
    gpu=st.integers(0, 8),
    cpu=st.integers(0, 8),
    used_gpu=st.integers(0, 3),
    releasing_gpu=st.integers(0, 2),
    pods=st.integers(1, 9),
    fault=st.sampled_from([0, 0, 0, 4]),
)


@settings(max_examples=examples(100))
@drawn(st.lists(_node, max_size=6), st.sampled_from(SHAPES), st.integers(1, 40), st.booleans())
@example([Node(gpu=4, used_gpu=2), Node(gpu=4, used_gpu=1)], SHAPES[GPU], 2, False)
def test_later_pods_in_a_row_lie_as_one_by_one(
    nodes: list[Node], one: Shape, count: int, packs: bool
) -> None:
    """Where they go, which of them wait, and how many have room if not all do."""
    build = Builder(nodes=nodes)
    leaf = Leaf("a", count, later=count, later_shape=build.shape(one))
    build.unit(leaf)
    given = build.snapshot()
    policies = POLICIES if packs else _SPREAD
    together, apart = (Placer(Ledger(given), policies) for _ in range(2))
    in_a_row = together.place(0, (Part(leaf, (), count),), Progress())
    one_by_one = apart.place(0, (Part(leaf, (), 1),) * count, Progress())
    assert told(in_a_row) == told(one_by_one)
    for name in ("idle", "room"):
        assert (getattr(together.ledger, name) == getattr(apart.ledger, name)).all()


_ZONE: Final = 0  # a column of labels, the other one is of hosts
_FRIENDS, _FOES = 0, 1  # selectors, and the terms that speak of them
_spread: Final = st.builds(
    Spread,
    selector=st.sampled_from([_FRIENDS, _FRIENDS, _FOES]),
    key=st.integers(0, 1),
    max_skew=st.integers(1, 6),
    min_domains=st.integers(1, 3),
    counts_itself=st.just(True),
)
_SAID: Final[dict[str, st.SearchStrategy[Any]]] = {
    "near": st.sampled_from([(Term(_FRIENDS, 0),), (Term(_FRIENDS, 1),)]),
    "apart": st.sampled_from([(_FRIENDS,), (_FOES,), (_FRIENDS, _FOES)]),
    "shunned": st.sampled_from([(_FRIENDS,), (_FOES,)]),
    "claims": st.just((0,)),
    "own_claims": st.just((1,)),
    "avoids": st.just((0,)),
}


@st.composite
def _related(draw: st.DrawFn) -> Shape:
    """Draw a pod to which others matter, and others like it may."""
    said = {
        name: draw(_SAID[name]) for name in draw(st.sets(st.sampled_from([*_SAID]), max_size=2))
    }
    said["spread"] = tuple(draw(st.lists(_spread, min_size=not said, max_size=2)))
    said["matches"] = matches = draw(st.sampled_from([(_FRIENDS,), (_FRIENDS, _FOES), ()]))
    said["takes"] = draw(st.sampled_from([(), (0,)]))
    own = all(term.selector in matches for term in said.get("near", ()))
    return shape(gpu=draw(st.sampled_from([0, 0, 1])), is_own_neighbour=own, **said)


@settings(max_examples=examples(200))
@drawn(
    st.lists(st.tuples(_node, st.integers(-1, 2), st.integers(0, 9)), min_size=1, max_size=6),
    _related(),
    st.integers(1, 40),
    st.booleans(),
)
@example(
    [(Node(gpu=0), 0, 0), (Node(gpu=0), 0, 0)],  # the fourth would be one too many beside none
    shape(matches=(_FRIENDS,), spread=(Spread(_FRIENDS, 1, 3, 1, *[True] * 3),)),
    4,
    True,
)
@example(
    [(Node(gpu=0), 0, 8), (Node(gpu=0), 0, 0)],  # the first opens while the other is filled
    shape(matches=(_FRIENDS,), spread=(Spread(_FRIENDS, 1, 6, 1, *[True] * 3),)),
    8,
    False,
)
def test_related_pods_in_a_row_lie_as_one_by_one(
    nodes: list[tuple[Node, int, int]], one: Shape, count: int, packs: bool
) -> None:
    """Where others are matters to them: those of before, and those of their own."""
    build = Builder(nodes=[replace(it, labels=(zone, n)) for n, (it, zone, _) in enumerate(nodes)])
    leaf = Leaf("a", count, later=count, later_shape=build.shape(one))
    build.unit(leaf)
    none = np.zeros((2, len(nodes)), dtype=np.int32)
    crowd = neighbours(
        len(nodes),
        counts=np.array([[n for *_, n in nodes], none[0]], dtype=np.int32),
        terms=(Term(_FRIENDS, _ZONE), Term(_FOES, 1)),
        holders=none,
    )
    given = build.snapshot(neighbours=crowd)
    policies = POLICIES if packs else _SPREAD
    together, apart = (Placer(Ledger(given), policies) for _ in range(2))
    in_a_row = together.place(0, (Part(leaf, (), count),), Progress())
    one_by_one = apart.place(0, (Part(leaf, (), 1),) * count, Progress())
    assert told(in_a_row) == told(one_by_one)
    assert (together.ledger.room == apart.ledger.room).all()
    assert (together.ledger.counts == apart.ledger.counts).all()


def test_a_hundred_thousand_later_pods_are_a_few_seats() -> None:
    """Of a node that takes many in a row one entry is written, and none is listed."""
    build = Builder(nodes=[Node(gpu=0, cpu=1000, memory=10_000, pods=1000)] * 100)
    one = build.shape(shape(gpu=0, cpu=0.001, memory=0))
    leaf = Leaf("a", 100_000, later=100_000, later_shape=one)
    build.unit(leaf)
    placer = Placer(Ledger(build.snapshot()), POLICIES)
    parts = chunk(leaf)
    placed = placer.place(0, parts, Progress())
    assert isinstance(placed, Admission)
    assert [it.number for it in placed.reservations] == [1000] * 100
    assert placer.shapes(parts) == ((one, 100_000),)
    assert placer.ledger.checkpoint == 100
