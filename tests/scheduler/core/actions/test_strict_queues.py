"""Queues in strict order: what waits for the head of its queue, and what passes it."""

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.podgroup import PodSet, SubGroupSet
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.reasons import UnschedulableReason

POLICIES = build_policies(PolicySelection())
TWO, EIGHT, SIXTEEN = (signature(gpu=n) for n in (2, 8, 16))


def cluster(**more: Any) -> Builder:
    """Return two nodes, of which one is full; the last queue is strict."""
    queues = (
        SnapshotQueue("other", quota=-1),
        SnapshotQueue("team", **{"quota": -1, "is_strict": True, **more}),
    )
    builder = Builder([SnapshotNode(), SnapshotNode()], queues)
    builder.running_podgroup([0], EIGHT, queue="other", is_preemptible=False)
    return builder


def with_head(builder: Builder, number: int = 2, one: Any = EIGHT, **more: Any) -> Builder:
    builder.uniform_podgroup(number, one, **more)
    return builder


def behind(builder: Builder, **more: Any) -> Builder:
    """Add a PodGroup that fits on the second node."""
    builder.uniform_podgroup(1, EIGHT, **more)
    return builder


def grown() -> Builder:
    """Return a cluster with a PodGroup that has what it needs, and one more pod."""
    builder = cluster()
    builder.running_podgroup([1], TWO)  # it is in no one's way
    with_head(builder)
    row = builder.signature_row(TWO)
    builder.pod_on_node(1, row)
    pods = builder.waiting_pods(1, TWO)
    builder.podgroup(PodSet("default", 1, pods, running=1), is_kept=True)
    return builder


def repaired() -> Builder:
    """Return a cluster with a PodGroup that lost one of two pods, and is younger than the head."""
    builder = with_head(cluster(), priority=60)
    builder.pod_on_node(1, builder.signature_row(TWO))
    pods = builder.waiting_pods(1, TWO)
    builder.podgroup(PodSet("default", 2, pods, running=1), is_kept=True)
    return builder


def nominated() -> Builder:
    builder = with_head(cluster(), priority=60)
    builder.uniform_podgroup(1, signature(gpu=8, nominated_node=1))
    return builder


# -> whether the last PodGroup starts
CASES: list[Case[Builder, bool]] = [
    Case("it waits for the head", behind(with_head(cluster())), False),
    Case("not in a best-effort queue", behind(with_head(cluster(is_strict=False))), True),
    Case("nor in another queue", behind(with_head(cluster()), queue="other"), True),
    Case("the head is too large for any node", behind(with_head(cluster(), one=SIXTEEN)), True),
    Case("the head is larger than the cluster", behind(with_head(cluster(), 3)), True),
    Case("the head is over the limit by itself", behind(with_head(cluster(limit=8))), True),
    Case("the head waits below the limit", behind(with_head(cluster(limit=16))), False),
    Case(
        "a non-preemptible head is over the quota by itself",
        behind(with_head(cluster(quota=8), is_preemptible=False)),
        True,
    ),
    Case("a larger priority is the head itself", behind(with_head(cluster()), priority=60), True),
    Case("what grows waits", grown(), False),
    Case("a lost pod comes back", repaired(), True),
    Case("what is nominated starts", nominated(), True),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_no_start_passes_the_head(case: Case[Builder, bool]) -> None:
    """Of a strict queue, while it waits for room."""
    builder = case.given
    answer, last = plan(builder.snapshot(), POLICIES), len(builder.podgroups) - 1
    assert (last in {it.podgroup for it in answer.allocations}) is case.want
    waiting = {it.podgroup: it.reason for it in answer.rejections}
    if not case.want:
        assert waiting[last] == UnschedulableReason.WAITING_FOR_HEAD


def reason_of_last(builder: Builder) -> tuple[Plan, UnschedulableReason]:
    answer = plan(builder.snapshot(), POLICIES)
    (found,) = [it for it in answer.rejections if it.podgroup == len(builder.podgroups) - 1]
    return answer, found.reason


def test_one_that_never_starts_has_its_own_reason() -> None:
    """Though a head waits before it."""
    builder = with_head(with_head(cluster()), 1, SIXTEEN)
    assert reason_of_last(builder)[1] == UnschedulableReason.NO_NODE_MATCHES


def test_what_waits_for_the_head_evicts_no_pods() -> None:
    """Though its priority is larger than that of a pod that runs."""
    builder = with_head(cluster(), priority=70)
    builder.running_podgroup([1], EIGHT, priority=40)
    behind(builder, priority=60)
    answer, reason = reason_of_last(builder)
    assert reason == UnschedulableReason.WAITING_FOR_HEAD
    assert not answer.evictions


def test_the_message_names_the_head() -> None:
    """And why that waits."""
    builder = behind(with_head(cluster()))
    snapshot = builder.snapshot()
    (last,) = [it for it in plan(snapshot, POLICIES).rejections if it.podgroup == 2]
    assert rejection_message(snapshot, last) == (
        "Queue team starts its PodGroups in strict order, and unit-1, which comes before it, waits "
        "(NoCapacity). It cannot start before unit-1 has started"
    )


def of_two_shapes(builder: Builder) -> None:
    """Add a gang of two pods of each of two shapes: each shape fits alone, and not both."""
    first = builder.waiting_pods(2, EIGHT)
    second = builder.waiting_pods(2, signature(gpu=8, cpu=2))
    tree = SubGroupSet("", 2, (PodSet("a", 2, first), PodSet("b", 2, second)))
    builder.podgroup(tree, queue="team")


def of_all_cpus(builder: Builder) -> None:
    """Add a gang of whole nodes, of which other pods than ours have one CPU each."""
    builder.uniform_podgroup(2, signature(gpu=8, cpu=64), queue="team")


@pytest.mark.parametrize("add", [of_two_shapes, of_all_cpus])
def test_what_never_fits_is_no_head(add: Callable[[Builder], None]) -> None:
    """On three nodes."""
    queues = [SnapshotQueue("team", quota=24, is_strict=True)]
    builder = Builder([SnapshotNode(used_cpu=1)] * 3, queues)
    add(builder)
    builder.uniform_podgroup(1, TWO, queue="team")
    assert {it.podgroup for it in plan(builder.snapshot(), POLICIES).allocations} == {1}


LEFT = [SnapshotNode(used_gpu=8), SnapshotNode()]
LEAVING = [SnapshotNode(), SnapshotNode(releasing_gpu=8)]


@pytest.mark.parametrize("nodes", [LEFT, LEAVING])
def test_a_head_keeps_the_others_back_while_pods_leave(nodes: list[SnapshotNode]) -> None:
    """Also pods whose PodGroup has gone before them: they hold their node for a moment only."""
    builder = Builder(nodes, cluster().queues)
    if nodes is LEAVING:
        builder.running_podgroup([0], EIGHT, queue="other", is_preemptible=False)
    behind(with_head(builder))
    assert not plan(builder.snapshot(), POLICIES).allocations


def test_a_later_stage_of_a_running_workload_passes_the_head() -> None:
    """The head needs what the first stage holds, until the second one has run."""
    queues = [SnapshotQueue("team", quota=16, is_strict=True)]
    builder = Builder([SnapshotNode()] * 2, queues)
    stage: dict[str, Any] = {"queue": "team", "is_preemptible": False, "workload": "TrainJob ns/t"}
    builder.running_podgroup([0], TWO, **stage)
    builder.uniform_podgroup(1, TWO, **stage)
    builder.uniform_podgroup(2, EIGHT, queue="team", priority=60)
    assert {it.podgroup for it in plan(builder.snapshot(), POLICIES).allocations} == {1}
