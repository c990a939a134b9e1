"""The best node for a pod, however much has happened since the last question."""

from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import NodeFeatures, Policies, ScorePlugin
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.node_resources import has_enough
from scheduler.core.nodes.predicates import fits_empty_node
from scheduler.core.nodes.ranking import NodeRanking, ScoredResource
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.policies.registry import (
    PolicySelection,
    availability,
    binpack,
    build_policies,
    by_resource_type,
    fragmentation,
    nominated_node,
    resource_type,
    spread,
)
from tests.support.case import Case, ids
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from tests.support.snapshot.random_snapshots import no_pod_affinity
from tests.support.snapshot.statement_state import working_nodes

PACKED: Final = build_policies(PolicySelection())
SPREAD: Final = build_policies(PolicySelection(gpu_placement="spread", cpu_placement="spread"))
MIXED: Final = [
    SnapshotNode(gpu=8),
    SnapshotNode(gpu=0),
    SnapshotNode(gpu=8, used_gpu=3),
    SnapshotNode(gpu=4, used_gpu=2),
]
HALF: Final = [
    SnapshotNode(gpu=8, used_gpu=4),
    SnapshotNode(gpu=2),
    SnapshotNode(gpu=16, used_gpu=5),
]
TOLERANT: Final = signature(gpu=1, tolerated_taints=frozenset({0}))
SOON: Final = [
    SnapshotNode(gpu=2, releasing_gpu=2),
    SnapshotNode(gpu=8),
    SnapshotNode(gpu=1, releasing_gpu=1),
]

# nodes, the signature, policies -> the best node
BEST: list[Case[tuple[list[SnapshotNode], SchedulingSignature, Policies], int]] = [
    Case("the fullest", (MIXED, signature(gpu=1), PACKED), 3),
    Case("the fullest into which it fits", (MIXED, signature(gpu=4), PACKED), 2),
    Case("none", (MIXED, signature(gpu=9), PACKED), NONE),
    Case("of equals the first by name", ([SnapshotNode(gpu=2)] * 3, signature(gpu=1), PACKED), 0),
    Case("without GPUs where there are none", (MIXED, signature(), PACKED), 1),
    Case(
        "without GPUs, by CPU",
        (
            [SnapshotNode(gpu=0), SnapshotNode(gpu=0, used_cpu=9), SnapshotNode(used_cpu=20)],
            signature(),
            PACKED,
        ),
        1,
    ),
    Case("spread: where the largest part is free", (HALF, signature(gpu=1), SPREAD), 1),
    Case("spread: a part of the node's whole", (HALF, signature(gpu=3), SPREAD), 2),
    Case("now rather than on the fullest", (SOON, signature(gpu=1), PACKED), 1),
    Case("on the fullest, if all have to wait", ([SOON[0], SOON[2]], signature(gpu=1), PACKED), 1),
    Case(
        "what was nominated, even if it has to wait",
        (SOON, signature(gpu=1, nominated_node=0), PACKED),
        0,
    ),
    Case(
        "what was nominated and is too small",
        (MIXED, signature(gpu=2, nominated_node=1), PACKED),
        3,
    ),
    Case("no nodes", ([], signature(), PACKED), NONE),
    Case("without any policy the first", (MIXED, signature(), Policies(())), 0),
]


def field_of(nodes: WorkingNodes, policies: Policies, row: int) -> NodeRanking:
    has_gpu = nodes.snapshot.signatures[row].has_gpu
    return NodeRanking(
        nodes, policies, row, ScoredResource(nodes.snapshot, policies, has_gpu=has_gpu)
    )


@pytest.mark.parametrize("case", BEST, ids=ids)
def test_the_best_node(
    case: Case[tuple[list[SnapshotNode], SchedulingSignature, Policies], int],
) -> None:
    """Rule 24: promised, now, without GPUs, placement, name."""
    nodes, one, policies = case.given
    build = Builder(nodes=nodes)
    field = field_of(working_nodes(build_with(build, one)), policies, 0)
    assert field.best() == case.want
    if case.want != NONE:
        assert field.fits(case.want)


def build_with(build: Builder, *signatures: SchedulingSignature) -> Snapshot:
    for one in signatures:
        build.signature_row(one)
    return build.snapshot(pod_relations=no_pod_affinity(len(build.nodes)))


def test_one_node_that_changes_is_looked_at_again() -> None:
    """It gets better, worse and full, among many that stay as they are."""
    nodes = working_nodes(build_with(Builder(nodes=[SnapshotNode(gpu=2)] * 30), signature(gpu=1)))
    field = field_of(nodes, PACKED, 0)
    got = []
    for _ in range(13):
        got.append(field.best())
        nodes.statement.allocate(field.best(), 0, on_idle=True)
    assert got == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert [field.fits(node) for node in (1, 6, 7)] == [False, True, True]
    nodes.statement.deallocate(1, 0)
    assert field.best() == 1
    nodes.statement.roll_back(0)
    assert field.best() == 0


def test_a_node_that_was_idle_is_so_no_longer() -> None:
    """Though it would be the fullest of those where one could wait."""
    given = [SnapshotNode(gpu=2, releasing_gpu=1)] * 30
    nodes = working_nodes(build_with(Builder(nodes=given), signature(gpu=1)))
    field = field_of(nodes, PACKED, 0)
    nodes.statement.allocate(0, 0, on_idle=True)
    assert (field.best(), field.fits(0)) == (1, True)


def test_a_node_that_is_closed_stays_closed_whatever_changes_there() -> None:
    """Others may go there, and it would be the fullest."""
    given = [SnapshotNode(gpu=2)] * 29 + [SnapshotNode(gpu=2, taints=(True,))]
    nodes = working_nodes(build_with(Builder(nodes=given), signature(gpu=1), TOLERANT))
    field, other = field_of(nodes, PACKED, 0), field_of(nodes, PACKED, 1)
    nodes.statement.allocate(29, 1, on_idle=True)
    assert (field.best(), field.fits(29)) == (0, False)
    assert (other.best(), other.fits(29)) == (29, True)


SIGNATURES: Final = (
    signature(gpu=1),
    signature(gpu=2),
    signature(cpu=2),
    signature(gpu=1, nominated_node=2),
    signature(gpu=1, matched_selectors=(0,), anti_affinity=(0,), existing_anti_affinity=(0,)),
    signature(cpu=1, host_ports=(0,), conflicting_ports=(0,), tolerated_taints=frozenset({0})),
)


def naive(nodes: WorkingNodes, one: int, *, packs: bool) -> int:
    snapshot, form = nodes.snapshot, SIGNATURES[one]
    passes = fits_empty_node(snapshot, form)
    others = nodes.relations.passing(form)
    column = 3 if form.has_gpu else 0
    ranked = []
    for node in np.flatnonzero(passes if others is None else passes & others).tolist():
        if has_enough(nodes.resources.free[node].tolist(), nodes.resources.requests(one)):
            room = int(nodes.resources.free[node, column])
            whole = int(snapshot.nodes.allocatable[node, column])
            placement = room if packs else -room / whole if whole else 0
            has_gpu = snapshot.nodes.allocatable[node, 3] > 0
            next_score = (node != form.nominated_node, not nodes.resources.fits_idle(node, one))
            ranked.append((*next_score, bool(has_gpu and not form.has_gpu), placement, node))
    return int(min(ranked)[-1]) if ranked else NONE


_node = st.builds(
    SnapshotNode,
    gpu=st.sampled_from([4, 4, 8]),
    cpu=st.sampled_from([4, 8]),
    used_gpu=st.integers(0, 2),
    releasing_gpu=st.integers(0, 2),
    prefilter_fault=st.sampled_from([0, 0, 0, 1]),
    labels=st.tuples(st.integers(0, 3)),
    taints=st.tuples(st.booleans()),
) | st.builds(SnapshotNode, gpu=st.just(0), cpu=st.integers(1, 8), labels=st.just((NONE,)))


@settings(max_examples=examples(50))
@given(st.data(), st.lists(_node, min_size=1, max_size=30), st.booleans())
def test_the_best_is_what_looking_at_all_of_them_gives(
    data: st.DataObject, given_nodes: list[SnapshotNode], packs: bool
) -> None:
    """After any takes, gives and roll-backs, for signatures that are asked now and then."""
    nodes = working_nodes(build_with(Builder(nodes=given_nodes), *SIGNATURES))
    fields = [field_of(nodes, PACKED if packs else SPREAD, one) for one in range(len(SIGNATURES))]
    there: list[tuple[int, int]] = []
    points = [(0, 0)]
    for _ in range(data.draw(st.integers(1, 15))):
        one = data.draw(st.integers(0, len(SIGNATURES) - 1))
        node = fields[one].best()
        assert node == naive(nodes, one, packs=packs)
        act = data.draw(st.sampled_from(["take", "take", "take", "give", "back", "mark"]))
        if act == "take" and node != NONE:
            on_idle = nodes.resources.fits_idle(node, one)
            nodes.statement.allocate(node, one, on_idle=on_idle)
            there += [(node, one)] if on_idle else []
        elif act == "give" and there:
            nodes.statement.deallocate(*there.pop())
            points = [(0, 0)]
        elif act == "mark":
            points.append((nodes.statement.checkpoint, len(there)))
        elif act == "back":
            checkpoint, number = points.pop() if len(points) > 1 else points[0]
            nodes.statement.roll_back(checkpoint)
            del there[number:]
    for one, field in enumerate(fields):
        assert field.best() == naive(nodes, one, packs=packs)


SCORES: Final[dict[str, ScorePlugin]] = {
    "availability": availability,
    "nominated node": nominated_node,
    "resource type": resource_type,
    "binpack": binpack,
    "spread": spread,
    "fragmentation": fragmentation,
    "by kind": by_resource_type(spread, binpack),
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
    for one in (signature(gpu=1), signature()):
        room_, whole_, now_, gpu_ = (np.array(column) for column in zip(*table, strict=True))
        nominated = np.arange(len(table)) == 0
        score = SCORES[name](one, NodeFeatures(room_, whole_, most, now_, gpu_, nominated))
        for row, (room, whole, now, gpu) in enumerate(table):
            alone = SCORES[name](one, NodeFeatures(room, whole, most, now, gpu, row == 0))
            assert float(np.asarray(score)[row]) == float(alone)
            assert 0 <= alone <= 1
