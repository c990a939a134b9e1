"""PodGroups with nominated nodes: what was evicted for them is theirs."""

from dataclasses import replace

import pytest

from scheduler.core.model.podgroup import PodSet, SchedulingSignature
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.scheduler_names import Action

POLICIES = build_policies(PolicySelection())
ONE, EIGHT = signature(gpu=1), signature(gpu=8)
PROMISED = replace(EIGHT, nominated_node=0)
BESIDE = replace(EIGHT, nominated_node=3)


def cluster(has: int, nodes: int = 3) -> Builder:
    """Return a node that is free; A has another one, and B so much of a third.

    As much is due to both: 12 of 24, once they want that much.
    """
    queues = [SnapshotQueue("a", "above"), SnapshotQueue("b", "above"), SnapshotQueue("above")]
    builder = Builder([SnapshotNode()] * nodes, queues)
    builder.running_podgroup([1], EIGHT, queue="a")
    builder.running_podgroup([2], signature(gpu=has), queue="b")
    return builder


def two(
    builder: Builder, queue: str = "b", like: SchedulingSignature = PROMISED, **more: int
) -> Builder:
    """Let PodGroup 2 of a queue wait for a node, and behind it PodGroup 3 of A."""
    builder.uniform_podgroup(1, EIGHT, queue=queue, **more)
    builder.uniform_podgroup(1, like, queue="a")
    return builder


def wide() -> Builder:
    """Return three free nodes; PodGroup 2 of B wants two, more than its fair share."""
    builder = cluster(5, nodes=5)
    builder.uniform_podgroup(2, EIGHT, queue="b")
    return builder


def beside(priority: int) -> Builder:
    """Let PodGroup 3 of A have a nominated node, and PodGroup 4 wait beside it without one."""
    builder = wide()
    builder.uniform_podgroup(1, PROMISED, queue="a")
    builder.uniform_podgroup(1, EIGHT, queue="a", priority=priority)
    return builder


def half() -> Builder:
    """Let only one of two be promised a node that are both needed; there are two nodes."""
    builder = cluster(5, nodes=4)
    builder.uniform_podgroup(2, EIGHT, queue="b")
    builder.podgroup(
        PodSet("default", 2, builder.waiting_pods(1, PROMISED) + builder.waiting_pods(1, EIGHT)),
        queue="a",
    )
    return builder


def both() -> Builder:
    """Let two pods of a PodGroup have nominated nodes, of which it needs one."""
    builder = wide()
    builder.podgroup(
        PodSet("default", 1, builder.waiting_pods(1, PROMISED) + builder.waiting_pods(1, BESIDE)),
        queue="a",
    )
    return builder


def several() -> Builder:
    """Let two be promised nodes, the last one of the largest priority."""
    builder = wide()
    for priority in (50, 60):
        builder.uniform_podgroup(1, PROMISED, queue="a", priority=priority)
    return builder


def gone() -> Builder:
    """Nominate one to a node that another PodGroup has, while a second node is free."""
    builder = cluster(5)
    builder.uniform_podgroup(1, EIGHT, queue="b")
    builder.uniform_podgroup(1, replace(EIGHT, nominated_node=2), queue="a")
    return builder


def uneven(nodes: int) -> Builder:
    """Return nodes, free but for three; B has more than A, and as much is due to both."""
    queues = [SnapshotQueue("a", "above"), SnapshotQueue("b", "above"), SnapshotQueue("above")]
    builder = Builder([SnapshotNode()] * nodes, queues)
    builder.running_podgroup([1], ONE, queue="a")
    builder.running_podgroup([2, 4], EIGHT, queue="b")
    return builder


def coveted() -> Builder:
    """Nominate one of each queue to a node; ahead of that of A one waits that wants both."""
    builder = uneven(5)
    builder.uniform_podgroup(1, BESIDE, queue="b")
    builder.uniform_podgroup(2, EIGHT, queue="a", priority=60)
    builder.uniform_podgroup(1, PROMISED, queue="a")
    return builder


def between() -> Builder:
    """Let two of A be promised nodes, and one between them want two more; one of B is smaller.

    As much is due to both, for B wants more than there is.
    """
    builder = uneven(7)
    builder.uniform_podgroup(1, EIGHT, queue="b")
    builder.uniform_podgroup(1, PROMISED, queue="a", priority=70)
    builder.uniform_podgroup(2, EIGHT, queue="a", priority=60)
    builder.uniform_podgroup(1, BESIDE, queue="a")
    builder.uniform_podgroup(9, EIGHT, queue="b")
    return builder


@pytest.mark.parametrize(
    "case",
    [
        Case(
            "without a nominated node it comes behind the smaller share",
            two(cluster(5), like=EIGHT),
            [2],
        ),
        Case("with a nominated node it comes before", two(cluster(5)), [3]),
        Case("also before one with an equal share", two(cluster(4)), [3]),
        Case("of one queue, too", two(cluster(5), "a"), [3]),
        Case("but not before a larger priority", two(cluster(5), "a", priority=60), [2]),
        Case("one ahead of it in its queue comes first", beside(60), [4, 3]),
        Case("and no other of it", beside(50), [3, 2]),
        Case("but not with a node nominated for another queue", coveted(), [2, 4]),
        Case("a gang with half of its nodes nominated waits its turn", half(), [2]),
        Case("elastic pods have nominated nodes as well", both(), [3, 3]),
        Case("so do several of one queue, in turn", several(), [4, 3]),
        Case("none of it is late while one of them waits", between(), [3, 4, 5]),
        Case("another node will do where that is taken", gone(), [3]),
    ],
    ids=ids,
)
def test_which_podgroup_comes_first(case: Case[Builder, list[int]]) -> None:
    """The PodGroups that get a node, in order."""
    snapshot = case.given.snapshot()

    plan_result = plan(snapshot, replace(POLICIES, actions=(Action.ALLOCATE,)))

    assert [one.podgroup for one in plan_result.allocations] == case.want
    assert list(plan_violations(snapshot, plan_result)) == []
