"""What holds of every plan, of small snapshots by chance."""

import gc
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.repository import ROOT
from tests.support.size import examples
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.marks import mark
from tests.support.snapshot.plan_violations import plan_violations
from tests.support.snapshot.random_snapshots import PLAIN, after_plan, snapshots
from tests.support.snapshot.statement_state import assert_failures_leave_no_trace

POLICIES: Final = build_policies(PolicySelection())
SPREAD: Final = build_policies(PolicySelection(gpu_placement="spread", cpu_placement="spread"))

many: Final = settings(max_examples=examples(50))
some: Final = settings(max_examples=examples(20))


@many
@given(snapshots(), st.booleans())
def test_a_plan_keeps_what_must_hold(snapshot: Snapshot, packs: bool) -> None:
    """No node overcommitted, no gang in part, no bound passed."""
    assert list(plan_violations(snapshot, plan(snapshot, POLICIES if packs else SPREAD))) == []


@many
@given(snapshots())
def test_no_pod_is_sent_where_it_cannot_run(snapshot: Snapshot) -> None:
    """Labels, taints, faults and size hold for all, whatever is reserved there."""
    for allocation in plan(snapshot, POLICIES).allocations:
        for pod, node, _ in (*allocation.binds, *allocation.nominations):
            assert _can_take(snapshot, node, snapshot.signatures[snapshot.pods.signature[pod]])


def _can_take(snapshot: Snapshot, node: int, one: SchedulingSignature) -> bool:
    nodes = snapshot.nodes
    taints = np.flatnonzero(nodes.taints[node]).tolist()
    labels = nodes.labels[node].tolist()
    return (
        nodes.fault[node] == 0
        and one.tolerated_taints.issuperset(taints)
        and all(
            any(
                all((labels[it.key] in it.codes) != it.is_negated for it in terms)
                for terms in alternatives
            )
            for alternatives in one.node_affinity
        )
        and all(n <= has for n, has in zip(one.request, nodes.allocatable[node], strict=True))
    )


@many
@given(snapshots())
def test_each_waiting_podgroup_gets_a_reason(snapshot: Snapshot) -> None:
    """Each pod that waits is placed, or its PodGroup is told why not."""
    got = plan(snapshot, POLICIES)
    placed = {at.pod for it in got.allocations for at in (*it.binds, *it.nominations)}
    rejected = [it.podgroup for it in got.rejections]
    assert rejected == sorted(set(rejected))
    for pod, podgroup in enumerate(snapshot.pods.podgroup.tolist()):
        assert pod in placed or podgroup in rejected


@many
@given(snapshots())
def test_a_start_is_the_first_of_a_podgroup(snapshot: Snapshot) -> None:
    seen: set[int] = set()
    for it in plan(snapshot, POLICIES).allocations:
        assert not it.is_start or (it.podgroup not in seen and it.binds)
        seen.add(it.podgroup)


@some
@given(snapshots())
def test_the_same_snapshot_has_the_same_plan(snapshot: Snapshot) -> None:
    before = mark(snapshot)
    first, again = plan(snapshot, POLICIES), plan(snapshot, POLICIES)
    assert mark(first) == mark(again)
    assert mark(snapshot) == before


@some
@given(snapshots())
def test_a_plan_leaves_no_garbage(snapshot: Snapshot) -> None:
    """All of it goes when it is done with; to look through it would hold up all."""
    plan(snapshot, POLICIES)
    gc.disable()
    gc.freeze()  # only what the second plan makes is looked through
    try:
        plan(snapshot, POLICIES)
        assert gc.collect() == 0
    finally:
        gc.unfreeze()
        gc.enable()


@many
@given(snapshots(PLAIN))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(snapshot: Snapshot) -> None:
    """A second plan on what came of the first one decides nothing, but to take back what it lent.

    No queue loses in a plan what it was given there: of what is over quota for want of one node,
    a queue may have a right to some, and fit with it.
    """
    first = plan(snapshot, POLICIES)
    then = after_plan(snapshot, first)
    second = plan(then, POLICIES)
    evicted = {podgroup for it in second.evictions for podgroup in it.podgroups}
    assert evicted <= {it.podgroup for it in first.allocations} - {
        it.preemptor for it in second.evictions
    }
    if not evicted:
        assert second.allocations == ()
        assert [it.podgroup for it in second.rejections] == [it.podgroup for it in first.rejections]


@some
@given(snapshots())
def test_a_failure_leaves_no_trace(snapshot: Snapshot) -> None:
    assert_failures_leave_no_trace(snapshot, POLICIES)


_node = st.builds(
    SnapshotNode,
    gpu=st.integers(0, 3),
    cpu=st.integers(0, 4),
    used_gpu=st.integers(0, 1),
    releasing_gpu=st.integers(0, 1),
    prefilter_fault=st.sampled_from([0, 0, 4]),
)


@some
@given(st.lists(_node, max_size=4), _node, st.integers(0, 12), st.sampled_from([-1, 3]))
def test_one_more_node_never_lets_fewer_start(
    nodes: list[SnapshotNode], more: SnapshotNode, pods: int, limit: int
) -> None:
    """Of equal pods of one queue, wherever the node stands in the order."""

    def started(on: list[SnapshotNode]) -> int:
        build = Builder(nodes=on, queues=[SnapshotQueue("team", quota=-1, limit=limit)])
        for _ in range(pods):
            build.uniform_podgroup(1, signature(gpu=1))
        return len(plan(build.snapshot(), POLICIES).allocations)

    before = started(nodes)
    for place in range(len(nodes) + 1):
        assert started([*nodes[:place], more, *nodes[place:]]) >= before


CHILD: Final = """
import pickle, sys
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.snapshot.marks import mark
policies = build_policies(PolicySelection())
for snapshot in pickle.load(sys.stdin.buffer):
    print(mark(plan(snapshot, policies)))
"""


def test_another_process_makes_the_same_plan() -> None:
    drawn: list[Snapshot] = []

    @settings(max_examples=25, database=None, derandomize=True)
    @given(snapshots())
    def draw(snapshot: Snapshot) -> None:
        drawn.append(snapshot)

    draw()
    want = [mark(plan(snapshot, POLICIES)) for snapshot in drawn]
    for seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            input=pickle.dumps(drawn),
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode().split() == want


def test_a_mark_tells_things_apart() -> None:
    """Otherwise the same mark would say nothing."""
    build = Builder(nodes=[SnapshotNode(), SnapshotNode()])
    build.uniform_podgroup(1, signature(gpu=1))
    snapshot = build.snapshot()
    other = replace(snapshot, now=1)
    assert mark(snapshot) != mark(other)
    assert mark(plan(snapshot, POLICIES)) != mark(
        plan(snapshot, build_policies(PolicySelection(actions={"allocate": False})))
    )
