"""The best node for a pod, however much has happened since the last question."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.feasible import fixed, moving
from scheduler.core.field import Field, Ground
from scheduler.core.ledger import Ledger, holds
from scheduler.core.model import NONE, Shape, Snapshot
from scheduler.core.policy import Policies, Score, Seats
from scheduler.policies.availability import availability
from scheduler.policies.nominated_node import nominated_node
from scheduler.policies.placement import binpack, by_kind, spread
from scheduler.policies.registry import Choice, choose
from scheduler.policies.resource_type import resource_type
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshots import Builder, Node, shape
from tests.support.snapshotted import neighbours

PACKED: Final = choose(Choice())
SPREAD: Final = choose(Choice(gpu_placement="spread", cpu_placement="spread"))
MIXED: Final = [Node(gpu=8), Node(gpu=0), Node(gpu=8, used_gpu=3), Node(gpu=4, used_gpu=2)]
HALF: Final = [Node(gpu=8, used_gpu=4), Node(gpu=2), Node(gpu=16, used_gpu=5)]
TOLERANT: Final = shape(gpu=1, tolerates=frozenset({0}))
SOON: Final = [Node(gpu=2, releasing_gpu=2), Node(gpu=8), Node(gpu=1, releasing_gpu=1)]

# nodes, the shape, policies -> the best node
BEST: list[Case[tuple[list[Node], Shape, Policies], int]] = [
    Case("the fullest", (MIXED, shape(gpu=1), PACKED), 3),
    Case("the fullest into which it fits", (MIXED, shape(gpu=4), PACKED), 2),
    Case("none", (MIXED, shape(gpu=9), PACKED), NONE),
    Case("of equals the first by name", ([Node(gpu=2)] * 3, shape(gpu=1), PACKED), 0),
    Case("without GPUs where there are none", (MIXED, shape(), PACKED), 1),
    Case(
        "without GPUs, by CPU",
        ([Node(gpu=0), Node(gpu=0, used_cpu=9), Node(used_cpu=20)], shape(), PACKED),
        1,
    ),
    Case("spread: where the largest part is free", (HALF, shape(gpu=1), SPREAD), 1),
    Case("spread: a part of the node's whole", (HALF, shape(gpu=3), SPREAD), 2),
    Case("now rather than on the fullest", (SOON, shape(gpu=1), PACKED), 1),
    Case("on the fullest, if all have to wait", ([SOON[0], SOON[2]], shape(gpu=1), PACKED), 1),
    Case("what was promised, even if it has to wait", (SOON, shape(gpu=1, nominated=0), PACKED), 0),
    Case("what was promised and is too small", (MIXED, shape(gpu=2, nominated=1), PACKED), 3),
    Case("no nodes", ([], shape(), PACKED), NONE),
    Case("without any policy the first", (MIXED, shape(), Policies(())), 0),
]


def field_of(ledger: Ledger, policies: Policies, row: int) -> Field:
    """Return the nodes for the pods of a shape."""
    has_gpu = ledger.snapshot.shapes[row].has_gpu
    return Field(ledger, policies, row, Ground(ledger.snapshot, has_gpu=has_gpu))


@pytest.mark.parametrize("case", BEST, ids=ids)
def test_the_best_node(case: Case[tuple[list[Node], Shape, Policies], int]) -> None:
    """Rule 24: promised, now, without GPUs, placement, name."""
    nodes, one, policies = case.given
    build = Builder(nodes=nodes)
    field = field_of(Ledger(build_with(build, one)), policies, 0)
    assert field.best() == case.want
    if case.want != NONE:
        assert field.takes(case.want)


def build_with(build: Builder, *shapes: Shape) -> Snapshot:
    """Return a snapshot that knows shapes."""
    for one in shapes:
        build.shape(one)
    return build.snapshot(neighbours=neighbours(len(build.nodes)))


def test_one_node_that_changes_is_looked_at_again() -> None:
    """It gets better, worse and full, among many that stay as they are."""
    ledger = Ledger(build_with(Builder(nodes=[Node(gpu=2)] * 30), shape(gpu=1)))
    field = field_of(ledger, PACKED, 0)
    got = []
    for _ in range(13):
        got.append(field.best())
        ledger.take(field.best(), 0, is_now=True)
    assert got == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert [field.takes(node) for node in (1, 6, 7)] == [False, True, True]
    ledger.give(1, 0)
    assert field.best() == 1
    ledger.roll_back(0)
    assert field.best() == 0


def test_a_node_that_was_idle_is_so_no_longer() -> None:
    """Though it would be the fullest of those where one could wait."""
    nodes = [Node(gpu=2, releasing_gpu=1)] * 30
    ledger = Ledger(build_with(Builder(nodes=nodes), shape(gpu=1)))
    field = field_of(ledger, PACKED, 0)
    ledger.take(0, 0, is_now=True)
    assert (field.best(), field.takes(0)) == (1, True)


def test_a_node_that_is_closed_stays_closed_whatever_changes_there() -> None:
    """Others may go there, and it would be the fullest."""
    nodes = [Node(gpu=2)] * 29 + [Node(gpu=2, taints=(True,))]
    ledger = Ledger(build_with(Builder(nodes=nodes), shape(gpu=1), TOLERANT))
    field, other = field_of(ledger, PACKED, 0), field_of(ledger, PACKED, 1)
    ledger.take(29, 1, is_now=True)
    assert (field.best(), field.takes(29)) == (0, False)
    assert (other.best(), other.takes(29)) == (29, True)


SHAPES: Final = (
    shape(gpu=1),
    shape(gpu=2),
    shape(cpu=2),
    shape(gpu=1, nominated=2),
    shape(gpu=1, matches=(0,), apart=(0,), shunned=(0,)),
    shape(cpu=1, takes=(0,), avoids=(0,), tolerates=frozenset({0})),
)


def naive(ledger: Ledger, one: int, *, packs: bool) -> int:
    """Return the best node by looking at all of them, or NONE."""
    snapshot, form = ledger.snapshot, SHAPES[one]
    passes = fixed(snapshot, form)
    others = moving(ledger, form)
    column = 3 if form.has_gpu else 0
    ranked = []
    for node in np.flatnonzero(passes if others is None else passes & others).tolist():
        if holds(ledger.room[node].tolist(), ledger.asked(one)):
            room = int(ledger.room[node, column])
            whole = int(snapshot.nodes.allocatable[node, column])
            placement = room if packs else -room / whole if whole else 0
            has_gpu = snapshot.nodes.allocatable[node, 3] > 0
            likes = (node != form.nominated, not ledger.fits_idle(node, one))
            ranked.append((*likes, bool(has_gpu and not form.has_gpu), placement, node))
    return int(min(ranked)[-1]) if ranked else NONE


_node = st.builds(
    Node,
    gpu=st.sampled_from([4, 4, 8]),
    cpu=st.sampled_from([4, 8]),
    used_gpu=st.integers(0, 2),
    releasing_gpu=st.integers(0, 2),
    fault=st.sampled_from([0, 0, 0, 1]),
    labels=st.tuples(st.integers(0, 3)),
    taints=st.tuples(st.booleans()),
) | st.builds(Node, gpu=st.just(0), cpu=st.integers(1, 8), labels=st.just((NONE,)))


@settings(max_examples=examples(50))
@given(st.data(), st.lists(_node, min_size=1, max_size=30), st.booleans())
def test_the_best_is_what_looking_at_all_of_them_gives(
    data: st.DataObject, nodes: list[Node], packs: bool
) -> None:
    """After any takes, gives and roll-backs, for shapes that are asked now and then."""
    ledger = Ledger(build_with(Builder(nodes=nodes), *SHAPES))
    fields = [field_of(ledger, PACKED if packs else SPREAD, one) for one in range(len(SHAPES))]
    there: list[tuple[int, int]] = []
    points = [(0, 0)]
    for _ in range(data.draw(st.integers(1, 15))):
        one = data.draw(st.integers(0, len(SHAPES) - 1))
        node = fields[one].best()
        assert node == naive(ledger, one, packs=packs)
        act = data.draw(st.sampled_from(["take", "take", "take", "give", "back", "mark"]))
        if act == "take" and node != NONE:
            is_now = ledger.fits_idle(node, one)
            ledger.take(node, one, is_now=is_now)
            there += [(node, one)] if is_now else []
        elif act == "give" and there:
            ledger.give(*there.pop())
            points = [(0, 0)]
        elif act == "mark":
            points.append((ledger.checkpoint, len(there)))
        elif act == "back":
            checkpoint, number = points.pop() if len(points) > 1 else points[0]
            ledger.roll_back(checkpoint)
            del there[number:]
    for one, field in enumerate(fields):
        assert field.best() == naive(ledger, one, packs=packs)


SCORES: Final[dict[str, Score]] = {
    "availability": availability,
    "nominated node": nominated_node,
    "resource type": resource_type,
    "binpack": binpack,
    "spread": spread,
    "by kind": by_kind(spread, binpack),
}


@pytest.mark.parametrize("name", SCORES)
@settings(max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_a_score_says_the_same_of_one_node_as_of_all(
    name: str, rows: list[tuple[int, int, bool, bool]]
) -> None:
    """Bit for bit, and from 0 to 1."""
    table = [(min(room, whole), whole, now, gpu) for room, whole, now, gpu in rows]
    most = max(whole for _, whole, _, _ in table)
    for one in (shape(gpu=1), shape()):
        room_, whole_, now_, gpu_ = (np.array(column) for column in zip(*table, strict=True))
        promised = np.arange(len(table)) == 0
        liking = SCORES[name](one, Seats(room_, whole_, most, now_, gpu_, promised))
        for row, (room, whole, now, gpu) in enumerate(table):
            alone = SCORES[name](one, Seats(room, whole, most, now, gpu, row == 0))
            assert float(np.asarray(liking)[row]) == float(alone)
            assert 0 <= alone <= 1
