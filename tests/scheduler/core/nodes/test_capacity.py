"""Seats, against counting them anew."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.result import Policies
from scheduler.core.nodes.capacity import PodCapacity
from scheduler.core.nodes.placement import Placer
from scheduler.core.nodes.working_nodes import WorkingNodes
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.statement_state import working_nodes

SHAPES = (signature(gpu=1, cpu=2), signature(gpu=2, cpu=1), signature(gpu=0, cpu=0, memory=0))


def counted(nodes: WorkingNodes, one: int) -> int:
    """Count the seats on all nodes but the one that is cordoned."""
    seats = 0
    for room in nodes.resources.free[:-1].tolist():
        requested = [(r, n) for r, n in enumerate(nodes.snapshot.signatures[one].request) if n]
        seats += max(0, min(room[r] // n for r, n in requested))
    return seats


@given(st.data())
@settings(max_examples=examples(100))
def test_it_is_what_counting_says(data: Any) -> None:
    """Whatever comes and goes; what would be is forgotten."""
    builder = Builder([SnapshotNode(gpu=4, cpu=8, pods=5)] * 3 + [SnapshotNode(prefilter_fault=4)])
    for shaped in SHAPES:
        builder.uniform_podgroup(1, shaped)
    nodes = working_nodes(builder.snapshot())
    placer = Placer(nodes, Policies(scores=()))
    capacities = [PodCapacity(nodes, placer.ranking(row)) for row in range(len(SHAPES))]
    evicted_steps = st.tuples(
        st.sampled_from(["take", "evict", "try"]), st.integers(0, 3), st.integers(0, 2)
    )
    for what, node, row in data.draw(st.lists(evicted_steps, max_size=12)):
        if what == "take":
            nodes.statement.allocate(node, row, on_idle=True)
        elif what == "evict":
            nodes.statement.evict(node, row)
        elif node < 3:
            capacities[row].set_free(node, [99_000, 2**40, 7, 99_000], ())
            continue
        for one, capacity in enumerate(capacities):
            capacity.refresh()
            assert capacity.total == counted(nodes, one)


def test_what_would_be_counts_until_it_is_settled() -> None:
    """One node would have room for three more."""
    builder = Builder([SnapshotNode(used_gpu=8)] * 2)
    builder.uniform_podgroup(1, SHAPES[0])
    nodes = working_nodes(builder.snapshot())
    capacity = PodCapacity(nodes, Placer(nodes, Policies(scores=())).ranking(0))
    assert capacity.total == 0
    capacity.set_free(1, [99_000, 2**40, 9, 3_000], ())
    assert capacity.total == 3
    capacity.set_free(1, [99_000, 2**40, 9, 2_000], ())
    assert capacity.total == 2
    capacity.refresh()
    assert capacity.total == 0
