"""Idle GPUs that no pod that waits can use, by node and by cause."""

from random import Random
from typing import Final

import pytest

from scheduler.core.model.podgroup import PodSet, SchedulingSignature
from scheduler.core.model.snapshot import NodeFault
from scheduler.core.nodes.strategies.idle_gpus import MAX_SHAPES, IdleCause, unusable_gpus
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import (
    Builder,
    SnapshotNode,
    SnapshotQueue,
    mig_signature,
    share_signature,
    signature,
)

_POLICIES: Final = build_policies(PolicySelection())
_GPU: Final = 1000
_TWO: Final = signature(gpu=2, cpu=8, memory=16)
_SHARED: Final = SnapshotNode(gpu=2, shares=((700, 0),))  # one whole GPU, and 0.3
_Found = dict[IdleCause, int]

# a node, the pods that wait → what is unusable of the node
CAUSES: list[Case[tuple[SnapshotNode, list[SchedulingSignature]], _Found]] = [
    Case("nothing waits", (SnapshotNode(gpu=1), []), {}),
    Case("a pod fits", (SnapshotNode(), [_TWO]), {}),
    Case("too few", (SnapshotNode(gpu=1), [_TWO]), {IdleCause.NODE_TOO_SMALL: _GPU}),
    Case(
        "too few are idle",
        (SnapshotNode(gpu=4, used_gpu=3), [_TWO]),
        {IdleCause.NODE_TOO_SMALL: _GPU},
    ),
    Case("no CPU", (SnapshotNode(cpu=7), [_TWO]), {IdleCause.CPU: 8 * _GPU}),
    Case("no memory", (SnapshotNode(memory=15), [_TWO]), {IdleCause.MEMORY: 8 * _GPU}),
    Case("neither", (SnapshotNode(cpu=7, memory=15), [_TWO]), {IdleCause.CPU: 8 * _GPU}),
    Case("no place for a pod", (SnapshotNode(pods=0), [_TWO]), {IdleCause.OTHER: 8 * _GPU}),
    Case("a taint", (SnapshotNode(taints=(True,)), [_TWO]), {IdleCause.OTHER: 8 * _GPU}),
    Case("a cordoned node", (SnapshotNode(prefilter_fault=NodeFault.CORDONED), [_TWO]), {}),
    Case("a smaller pod fits", (SnapshotNode(gpu=1), [_TWO, signature(gpu=1)]), {}),
    Case(
        "the pod that gets furthest counts",
        (SnapshotNode(gpu=1, memory=15), [_TWO, signature(gpu=1, memory=16)]),
        {IdleCause.MEMORY: _GPU},
    ),
    Case("pods without GPUs use none", (SnapshotNode(gpu=1), [signature()]), {}),
    Case("nor do those with MIG profiles", (SnapshotNode(gpu=1), [mig_signature("1g.5gb")]), {}),
    Case(
        "a part, and a pod with a whole GPU fits",
        (_SHARED, [signature(gpu=1)]),
        {IdleCause.PART_OF_GPU: 300},
    ),
    Case("a part that is enough", (_SHARED, [share_signature(0.3)]), {}),
    Case(
        "a part that is too small, and a whole GPU that is not",
        (_SHARED, [share_signature(0.4)]),
        {IdleCause.PART_OF_GPU: 300},
    ),
    Case(
        "a part where GPUs are too few",
        (_SHARED, [_TWO]),
        {IdleCause.NODE_TOO_SMALL: _GPU, IdleCause.PART_OF_GPU: 300},
    ),
    Case(
        "shares of more GPUs than there are",
        (_SHARED, [share_signature(0.2, 3)]),
        {IdleCause.NODE_TOO_SMALL: _GPU, IdleCause.PART_OF_GPU: 300},
    ),
    Case(
        "a part that is enough, without CPU",
        (SnapshotNode(gpu=1, cpu=1, shares=((700, 0),)), [share_signature(0.3, cpu=2)]),
        {IdleCause.CPU: 300},
    ),
    Case(
        "a part that terminates is not idle",
        (SnapshotNode(gpu=1, shares=((0, 700),)), [signature(gpu=1)]),
        {IdleCause.PART_OF_GPU: 300},
    ),
]


@pytest.mark.parametrize("case", CAUSES, ids=ids)
def test_causes(case: Case[tuple[SnapshotNode, list[SchedulingSignature]], _Found]) -> None:
    one, waiting = case.given
    builder = Builder([one])
    for it in waiting:
        builder.uniform_podgroup(1, it)
    found = unusable_gpus(builder.snapshot())
    assert dict(found.by_node.get(0, {})) == case.want
    assert {it: n for it, n in found.by_cause.items() if n} == case.want


def test_by_node_and_in_all() -> None:
    builder = Builder([SnapshotNode(gpu=1), SnapshotNode(cpu=7), SnapshotNode(gpu=3, used_gpu=2)])
    builder.uniform_podgroup(4, _TWO)
    found = unusable_gpus(builder.snapshot())
    assert found.idle == 10 * _GPU
    assert found.by_node == {
        0: {IdleCause.NODE_TOO_SMALL: _GPU},
        1: {IdleCause.CPU: 8 * _GPU},
        2: {IdleCause.NODE_TOO_SMALL: _GPU},
    }
    assert found.by_cause[IdleCause.NODE_TOO_SMALL] == 2 * _GPU


def test_after_a_plan() -> None:
    """What it places is neither idle nor waiting any more."""
    builder = Builder([SnapshotNode(gpu=4, cpu=20), SnapshotNode(gpu=1)])
    for one in (_TWO, share_signature(0.7), signature(gpu=4)):
        builder.uniform_podgroup(1, one)
    snapshot = builder.snapshot()
    assert unusable_gpus(snapshot).by_node == {}  # all of them could use the share's node
    result = plan(snapshot, _POLICIES)
    assert [it.podgroup for it in result.allocations] == [0, 1]
    found = unusable_gpus(snapshot, result.allocations)
    assert found.idle == 2300
    assert found.by_node == {
        0: {IdleCause.NODE_TOO_SMALL: 2 * _GPU},
        1: {IdleCause.PART_OF_GPU: 300},
    }


def test_what_nominated_pods_get_is_not_idle() -> None:
    """They get what terminates first."""
    builder = Builder([SnapshotNode(gpu=4, used_gpu=1, releasing_gpu=1)])
    builder.uniform_podgroup(1, signature(gpu=2, nominated_node=0))
    builder.uniform_podgroup(1, signature(gpu=4))
    snapshot = builder.snapshot()
    idle = int(snapshot.nodes.idle[0, 3])
    assert unusable_gpus(snapshot).by_node == {0: {IdleCause.NODE_TOO_SMALL: idle - _GPU}}


def test_waiting_for_a_queue_counts_as_waiting() -> None:
    builder = Builder([SnapshotNode(gpu=2)], [SnapshotQueue("q", limit=0)])
    builder.uniform_podgroup(1, _TWO)
    snapshot = builder.snapshot()
    assert unusable_gpus(snapshot, plan(snapshot, _POLICIES).allocations).by_node == {}


def test_the_smallest_of_many_shapes_count() -> None:
    """In whatever order they come; the number of shapes does not grow without a bound."""
    sizes = [4 + i for i in range(2 * MAX_SHAPES)]
    for seed in range(3):
        Random(seed).shuffle(sizes)
        builder = Builder([SnapshotNode(gpu=3, cpu=900), SnapshotNode(gpu=10, cpu=900)])
        for gpu in sizes:
            builder.podgroup(PodSet("default", 1, builder.waiting_pods(1, signature(gpu=gpu))))
        found = unusable_gpus(builder.snapshot()).by_node
        assert found == {0: {IdleCause.NODE_TOO_SMALL: 3 * _GPU}}
