"""The messages about evictions that are made, and about nominated pods."""

import pytest

from scheduler.core.messages.eviction_messages import eviction_message, nominated_message
from scheduler.core.model.podgroup import Departure
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Eviction
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.scheduler_names import Action

# pods, nodes and victims -> the message
NOMINATED: list[Case[tuple[int, int, list[str]], str]] = [
    Case(
        "one pod is told in the singular",
        (1, 1, ["ns/a (reclaim)"]),
        "1 pod is nominated to 1 node, where evicted pods are terminating: ns/a (reclaim). It "
        "starts when the evicted pods have terminated",
    ),
    Case(
        "many victims, each once",
        (4, 2, [f"ns/{name} (preempt)" for name in "edcbaa"]),
        "4 pods are nominated to 2 nodes, where evicted pods are terminating: ns/a (preempt), "
        "ns/b (preempt), ns/c (preempt) and 2 more. It starts when the evicted pods have "
        "terminated",
    ),
    Case(
        "victims that are not known any more",
        (2, 1, []),
        "2 pods are nominated to 1 node, where evicted pods are terminating. It starts when the "
        "evicted pods have terminated",
    ),
]


@pytest.mark.parametrize("case", NOMINATED, ids=ids)
def test_nominated(case: Case[tuple[int, int, list[str]], str]) -> None:
    """How many pods wait on how many nodes, and for which victims."""
    assert nominated_message(*case.given) == case.want


# the action -> the message
EVICTED: list[Case[Action, str]] = [
    Case(
        "reclaim names both queues",
        Action.RECLAIM,
        "unit-1 gets its resources: queue a was over its fair share, and queue b below its fair "
        "share",
    ),
    Case(
        "preempt names both priorities",
        Action.PREEMPT,
        "unit-1 gets its resources: its priority is 60, that of unit-0 is 40",
    ),
    Case(
        "consolidation names the reserved places",
        Action.CONSOLIDATION,
        "unit-1 gets its resources: unit-0 is relocated, and resources elsewhere are reserved for "
        "it",
    ),
]


@pytest.mark.parametrize("case", EVICTED, ids=ids)
def test_evicted(case: Case[Action, str]) -> None:
    """Which PodGroup gets the resources, and by which rule."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a"), SnapshotQueue("b")])
    builder.running_podgroup([0], signature(gpu=1), queue="a", priority=40)
    builder.uniform_podgroup(1, signature(gpu=1), queue="b", priority=60)
    one = Eviction((0,), (0,), is_whole=True, action=case.given, preemptor=1)
    assert eviction_message(builder.snapshot(), one) == case.want


def test_a_drain_names_the_queue() -> None:
    """An administrator has asked for it."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a")])
    builder.running_podgroup([0], signature(gpu=1), running_since=10)
    one = Eviction((0,), (0,), is_whole=True, action=Action.QUEUE_DRAIN, preemptor=NONE)
    assert eviction_message(builder.snapshot(), one) == (
        "queue a is drained (trainer-kai.dev/stop-policy: HoldAndDrain)"
    )


def test_a_gang_on_a_node_that_leaves() -> None:
    """Of the PodGroups of a workload the first with pods there says why; and what is lost."""
    builder = Builder([SnapshotNode(gpu=8)], [SnapshotQueue("a")])
    builder.running_podgroup([0], signature(gpu=1), workload="j", running_since=10)
    departure = Departure("node gpu-1 leaves: it has the taint x")
    builder.running_podgroup(
        [0], signature(gpu=1), workload="j", departure=departure, running_since=10
    )
    one = Eviction((0, 1), (0, 1), True, Action.NODE_LEAVING, NONE, work_lost=120)
    assert eviction_message(builder.snapshot(), one) == (
        "node gpu-1 leaves: it has the taint x; 2 GPU-minutes since its start are lost"
    )


def test_a_stale_gang_has_no_preemptor() -> None:
    """It is evicted because it lacks pods, and loses its work."""
    builder = Builder([SnapshotNode()], [SnapshotQueue("a")])
    builder.running_podgroup([0], signature(gpu=1), running_since=10)
    one = Eviction((0,), (0,), True, Action.STALE_GANG_EVICTION, NONE, work_lost=7200)
    assert eviction_message(builder.snapshot(), one) == (
        "the PodGroup had fewer pods than its minimum for too long; 2 GPU-hours since its start "
        "are lost"
    )
