"""What holds of every plan with GPUs that pods share and with MIG, of small snapshots by chance."""

from collections import Counter
from random import Random
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.size import blocks, by_first_seed, examples
from tests.support.snapshot.builder import (
    Builder,
    SnapshotNode,
    SnapshotQueue,
    share_signature,
    signature,
)
from tests.support.snapshot.plan_violations import plan_violations
from tests.support.snapshot.random_snapshots import DEVICES, PLAIN_DEVICES, after_plan, snapshots
from tests.support.snapshot.statement_state import assert_failures_leave_no_trace
from trainer_kai.api.scheduler_names import Action

PACK: Final = build_policies(PolicySelection())
SPREAD: Final = build_policies(PolicySelection(gpu_placement="spread", cpu_placement="spread"))

_ACTIONS: Final = (Action.RECLAIM, Action.PREEMPT, Action.CONSOLIDATION)

many: Final = settings(max_examples=examples(50))
some: Final = settings(max_examples=examples(20))


@many
@given(snapshots(DEVICES), st.booleans())
def test_a_plan_keeps_what_must_hold(snapshot: Snapshot, packs: bool) -> None:
    """No GPU has more shares than it can, and no pod fewer GPUs than it requests."""
    result = plan(snapshot, PACK if packs else SPREAD)
    assert list(plan_violations(snapshot, result)) == []
    placed = {at.pod for it in result.allocations for at in (*it.binds, *it.nominations)}
    rejected = {it.podgroup for it in result.rejections}
    waiting = {row for pod, row in enumerate(snapshot.pods.podgroup.tolist()) if pod not in placed}
    running = {int(snapshot.pods.podgroup[pod]) for pod in np.flatnonzero(snapshot.pods.node >= 0)}
    assert waiting <= rejected | running


@many
@given(snapshots(PLAIN_DEVICES))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(snapshot: Snapshot) -> None:
    """A second plan decides nothing, but to reclaim what the first one lent."""
    first = plan(snapshot, PACK)
    if first.evictions:
        return
    then = after_plan(snapshot, first)
    second = plan(then, PACK)
    if not second.evictions:
        assert second.allocations == ()
        assert [it.podgroup for it in second.rejections] == [it.podgroup for it in first.rejections]


@some
@given(snapshots(DEVICES), st.booleans())
def test_a_failure_leaves_no_trace(snapshot: Snapshot, packs: bool) -> None:
    assert_failures_leave_no_trace(snapshot, PACK if packs else SPREAD)


def _crowded(seed: int) -> Snapshot:
    """Return nodes that a queue without quota fills with shares, and jobs of one with quota."""
    random = Random(seed)
    nodes = [SnapshotNode(gpu=random.choice((1, 2, 4))) for _ in range(random.choice((1, 2, 3)))]
    build = Builder(nodes, [SnapshotQueue("lent"), SnapshotQueue("owner", quota=8)])
    shapes = [share_signature(share) for share in (0.2, 0.3, 0.5, 0.7)]
    for node, it in enumerate(nodes):
        gpus = [0] * random.randint(0, it.gpu)
        for slot in range(len(gpus)):
            while gpus[slot] == 0 or random.random() < 0.6:
                one = random.choice(shapes)
                if gpus[slot] + one.device_share > 1000:
                    break
                gpus[slot] += one.device_share
                queue = random.choice(("lent", "lent", "lent", "owner"))
                build.running_podgroup([node], one, slots=[(slot,)], queue=queue)
        for _ in range(random.randint(0, it.gpu - len(gpus))):
            build.running_podgroup([node], signature(gpu=1), queue="lent")
    shapes += [share_signature(0.5, 2), signature(gpu=1), signature(gpu=2)]
    for _ in range(random.randint(1, 4)):
        build.uniform_podgroup(
            random.choice((1, 1, 1, 2)),
            random.choice(shapes),
            queue=random.choice(("owner", "owner", "lent")),
            priority=random.choice((50, 60)),
        )
    return build.snapshot()


@pytest.mark.parametrize("block", blocks(150, 150), ids=by_first_seed)
def test_victims_release_what_is_needed(block: range) -> None:
    actions = Counter[Action]()
    for seed in block:
        snapshot, policies = _crowded(seed), PACK if seed % 3 else SPREAD
        result = plan(snapshot, policies)
        assert list(plan_violations(snapshot, result)) == [], seed
        actions.update(
            it.action
            for it in result.evictions
            if any(pod in snapshot.devices.slots_of_pod for pod in it.pods)
        )
    if block.start == 0:
        assert min(actions[it] for it in _ACTIONS) > 5
