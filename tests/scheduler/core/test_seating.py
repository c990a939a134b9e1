"""Seats, against counting them anew."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.ledger import Ledger
from scheduler.core.place import Placer
from scheduler.core.policy import Policies
from scheduler.core.seating import Seating
from tests.support.size import examples
from tests.support.snapshots import Builder, Node, shape

SHAPES = (shape(gpu=1, cpu=2), shape(gpu=2, cpu=1), shape(gpu=0, cpu=0, memory=0))


def counted(ledger: Ledger, one: int) -> int:
    """Count the seats on all nodes but the one that is cordoned."""
    seats = 0
    for room in ledger.room[:-1].tolist():
        asked = [(r, n) for r, n in enumerate(ledger.snapshot.shapes[one].request) if n]
        seats += max(0, min(room[r] // n for r, n in asked))
    return seats


@given(st.data())
@settings(max_examples=examples(100))
def test_it_is_what_counting_says(data: Any) -> None:
    """Whatever comes and goes; what would be is forgotten."""
    builder = Builder([Node(gpu=4, cpu=8, pods=5)] * 3 + [Node(fault=4)])
    for shaped in SHAPES:
        builder.gang(1, shaped)
    ledger = Ledger(builder.snapshot())
    placer = Placer(ledger, Policies(scores=()))
    seatings = [Seating(ledger, placer.field(row)) for row in range(len(SHAPES))]
    steps = st.tuples(
        st.sampled_from(["take", "evict", "try"]), st.integers(0, 3), st.integers(0, 2)
    )
    for what, node, row in data.draw(st.lists(steps, max_size=12)):
        if what == "take":
            ledger.take(node, row, is_now=True)
        elif what == "evict":
            ledger.evict(node, row)
        elif node < 3:
            seatings[row].have(node, [99_000, 2**40, 7, 99_000])
            continue
        for one, seating in enumerate(seatings):
            seating.settle()
            assert seating.total == counted(ledger, one)


def test_what_would_be_counts_until_it_is_settled() -> None:
    """One node would have room for three more."""
    builder = Builder([Node(used_gpu=8)] * 2)
    builder.gang(1, SHAPES[0])
    ledger = Ledger(builder.snapshot())
    seating = Seating(ledger, Placer(ledger, Policies(scores=())).field(0))
    assert seating.total == 0
    seating.have(1, [99_000, 2**40, 9, 3_000])
    assert seating.total == 3
    seating.have(1, [99_000, 2**40, 9, 2_000])
    assert seating.total == 2
    seating.settle()
    assert seating.total == 0
