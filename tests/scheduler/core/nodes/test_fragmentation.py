"""The node on which what typical pods cannot use of the GPUs grows least."""

from dataclasses import replace
from random import Random
from typing import Final

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.core.gang import PodSetTasks
from scheduler.core.model.podgroup import PodSet, SchedulingSignature
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.placement import PlacementFailure, PlacementRequest, Placer
from scheduler.core.nodes.ranking import NodeRanking, ScoredResource
from scheduler.core.nodes.strategies.typical_pods import MAX_SHAPES, typical_pods
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.size import blocks, by_first_seed, examples
from tests.support.snapshot.builder import Builder, SnapshotNode, share_signature, signature
from tests.support.snapshot.plan_violations import plan_violations

POLICIES: Final = build_policies(
    PolicySelection(gpu_placement="fragmentation", cpu_placement="fragmentation")
)
LARGE: Final = signature(gpu=1, cpu=16)
SMALL: Final = signature(gpu=1, cpu=1)
# The fewest GPUs, and much CPU; the most GPUs, and no CPU for a large pod; GPUs for eight of them.
NODES: Final = [
    SnapshotNode(gpu=2, cpu=64),
    SnapshotNode(gpu=8, cpu=15),
    SnapshotNode(gpu=8, cpu=128),
]
HALVES: Final = [SnapshotNode(gpu=1, shares=((500, 0),)), SnapshotNode(gpu=1, shares=((300, 0),))]

# nodes, typical pods, the pod -> its node
BEST: list[Case[tuple[list[SnapshotNode], list[SchedulingSignature], SchedulingSignature], int]] = [
    Case("where large pods find too little CPU", (NODES, [LARGE] * 9, SMALL), 1),
    Case("with equal pods the fewest whole GPUs", (NODES, [], SMALL), 0),
    Case(
        "without GPUs where the GPUs are lost already",
        ([SnapshotNode(gpu=2, cpu=16), NODES[1]], [LARGE] * 9, signature()),
        1,
    ),
    Case(
        "without GPUs where there are none",
        ([*NODES, SnapshotNode(gpu=0)], [LARGE] * 9, signature()),
        3,
    ),
    Case(
        "without GPUs where no typical pod is kept out",
        ([SnapshotNode(gpu=4, cpu=20), SnapshotNode(gpu=4, cpu=24)], [LARGE] * 9, signature(cpu=8)),
        1,
    ),
    Case(
        "a share where it leaves what others can use",
        (HALVES, [share_signature(0.5)] * 9, share_signature(0.2)),
        1,
    ),
    Case(
        "a share on the GPU that it completes",
        (HALVES, [share_signature(0.7)] * 9, share_signature(0.7)),
        1,
    ),
    Case(
        "a share on a whole GPU rather than between two shares",
        ([HALVES[0], SnapshotNode(gpu=1)], [share_signature(0.5)] * 9, share_signature(0.3)),
        1,
    ),
]


@pytest.mark.parametrize("case", BEST, ids=ids)
def test_the_best_node(
    case: Case[tuple[list[SnapshotNode], list[SchedulingSignature], SchedulingSignature], int],
) -> None:
    nodes, typical, one = case.given
    builder = Builder(nodes)
    for it in (*typical, one):
        builder.uniform_podgroup(1, it)
    placer = Placer(WorkingNodes(builder.snapshot(), POLICIES), POLICIES)
    assert placer.ranking(builder.signature_row(one)).best() == case.want


# the pod, how many of them a PodGroup needs -> their nodes
GANGS: list[Case[tuple[SchedulingSignature, int], set[int]]] = [
    Case("a pod alone goes where large pods find too little CPU", (SMALL, 1), {1}),
    Case("a gang to the fewest GPUs, as with binpack", (SMALL, 2), {0}),
    Case("a gang with shares as well", (share_signature(0.5), 2), {1}),
]


@pytest.mark.parametrize("case", GANGS, ids=ids)
def test_gangs_with_whole_gpus_are_placed_as_with_binpack(
    case: Case[tuple[SchedulingSignature, int], set[int]],
) -> None:
    one, pods = case.given
    builder = Builder(NODES)
    builder.running_podgroup((2,) * 2, LARGE)
    builder.running_podgroup((2,) * 2, LARGE)
    gang = builder.uniform_podgroup(pods, one)
    allocation = next(
        it for it in plan(builder.snapshot(), POLICIES).allocations if it.podgroup == gang
    )
    assert {it.node for it in allocation.binds} == case.want


def test_typical_pods_do_not_depend_on_the_order_of_pods() -> None:
    """Pods that wait and pods that run count alike; those that end do not, nor do small numbers."""
    shapes = [LARGE] * 60 + [SMALL] * 36 + [share_signature(0.3)] * 4 + [signature()] * 8
    found = []
    for seed in range(3):
        Random(seed).shuffle(shapes)
        builder = Builder(NODES)
        for i, it in enumerate(shapes):
            if i % 2 or it.shared_devices:
                builder.uniform_podgroup(1, it)
            else:
                builder.running_podgroup((0,), it)
        found.append(typical_pods(builder.snapshot()))
    assert [found[0].weight.tolist(), found[0].request[:, 0].tolist()] == [
        [5555, 3333],
        [16_000, 1_000],
    ]
    for other in found[1:]:
        assert all((a == b).all() for a, b in zip(map(np.array, found[0]), other, strict=True))


def test_pods_that_ended_lately_count_less() -> None:
    """Twice as many as run would weigh as much; shapes of ended pods alone are typical too."""
    builder = Builder(NODES)
    builder.uniform_podgroup(1, LARGE)
    small, share = builder.signature_row(SMALL), builder.signature_row(share_signature(0.3))
    snapshot = replace(builder.snapshot(), ended={small: 16, share: 32})
    assert typical_pods(snapshot).weight.tolist() == [5000, 2500, 2500]
    assert typical_pods(snapshot).devices.tolist() == [1, 0, 0]


def test_typical_pods_are_bounded() -> None:
    builder = Builder(NODES)
    for i in range(3 * MAX_SHAPES):
        builder.uniform_podgroup(1, signature(gpu=1, cpu=1 + i))
    assert len(typical_pods(builder.snapshot()).weight) == MAX_SHAPES


def _cluster(random: Random) -> Snapshot:
    """Return nodes of few kinds, and jobs with shares, GPUs and none."""
    nodes = [
        SnapshotNode(gpu=random.choice((0, 1, 4, 8)), cpu=random.choice((8, 32, 64)))
        for _ in range(random.randint(1, 40))
    ]
    builder = Builder(nodes)
    shapes = [
        *[
            share_signature(random.choice((0.2, 0.3, 0.5, 0.7)), random.choice((1, 1, 2)))
            for _ in range(3)
        ],
        *[signature(gpu=n, cpu=random.choice((1, 4, 9))) for n in (0, 0, 1, 1, 2, 4)],
    ]
    for _ in range(random.randint(1, 60)):
        builder.uniform_podgroup(random.choice((1, 1, 1, 2, 4)), random.choice(shapes))
    return builder.snapshot()


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_nodes_that_change_are_ranked_as_all_of_them(block: range) -> None:
    """Also after a roll back, and a pod with two shares."""
    for seed in block:
        random = Random(seed)
        snapshot = _cluster(random)
        placer = Placer(WorkingNodes(snapshot, POLICIES), POLICIES)
        rows = range(len(snapshot.signatures))
        for _ in range(12):
            checkpoint = placer.nodes.statement.checkpoint
            podgroup = random.randrange(len(snapshot.podgroups))
            podset = snapshot.podgroups[podgroup].tree
            assert isinstance(podset, PodSet)
            tasks = (PodSetTasks(podset, podset.pending, 0),)
            placed = placer.place(PlacementRequest(tasks, podgroup=podgroup))
            if isinstance(placed, PlacementFailure) or random.random() < 0.3:
                placer.nodes.statement.roll_back(checkpoint)
            row = random.choice(rows)
            ranking = placer.ranking(row)
            fresh = NodeRanking(
                placer.nodes,
                POLICIES,
                row,
                ScoredResource(snapshot, POLICIES, has_gpu=snapshot.signatures[row].has_gpu),
            )
            assert ranking.best() == fresh.best()
            assert (ranking.rows == fresh.rows).all(), seed


@pytest.mark.parametrize("block", blocks(30), ids=by_first_seed)
def test_a_plan_keeps_what_must_hold(block: range) -> None:
    for seed in block:
        snapshot = _cluster(Random(seed))
        assert list(plan_violations(snapshot, plan(snapshot, POLICIES))) == [], seed


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(1, 30), st.integers(1, 9))
@example([8, 8], 12, 3)
def test_pods_in_a_row_lie_as_one_by_one(gpus: list[int], count: int, cpu: int) -> None:
    """Where pods that do not exist yet go, beside typical pods with more CPU."""
    builder = Builder([SnapshotNode(gpu=n, cpu=40 + n) for n in gpus])
    one = signature(gpu=1, cpu=cpu)
    podset = PodSet("a", count, expected=count, expected_signature=builder.signature_row(one))
    builder.podgroup(podset)
    builder.uniform_podgroup(3, signature(gpu=1, cpu=6))
    snapshot = builder.snapshot()
    together, apart = (Placer(WorkingNodes(snapshot, POLICIES), POLICIES) for _ in range(2))
    together.place(PlacementRequest((PodSetTasks(podset, (), count),), podgroup=0))
    apart.place(PlacementRequest((PodSetTasks(podset, (), 1),) * count, podgroup=0))
    assert (together.nodes.resources.free == apart.nodes.resources.free).all()
