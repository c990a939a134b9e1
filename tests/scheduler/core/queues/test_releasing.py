"""Terminating pods of queues at their limits, and which pods may wait for them (rule 20a)."""

from typing import Any, Final

from scheduler.core.model.podgroup import PodSet, ReservationCause, ReservedPlace, SubGroupSet
from scheduler.core.model.rejections import QueueBoundExceeded
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.result import Plan
from scheduler.core.model.snapshot import ReleasingAmount
from scheduler.core.plan import plan
from scheduler.policies.registry import PluginSelection, PolicySelection, build_policies
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.reasons import UnschedulableReason

POLICIES: Final = build_policies(PolicySelection())
ONE, FOUR = signature(gpu=1), signature(gpu=4)


def builder(*nodes: SnapshotNode, limit: float = 4, **more: Any) -> Builder:
    """Return nodes, and a queue with a limit; pods of it that go have what is being released."""
    build = Builder(nodes, [SnapshotQueue("a", quota=-1, limit=limit, **more)])
    for row, node in enumerate(nodes):
        if node.releasing_gpu:
            build.terminating.append(ReleasingAmount(0, row, (0, 0, node.releasing_gpu * 1000)))
    return build


def full(gpu: int = 4) -> SnapshotNode:
    return SnapshotNode(gpu=gpu, releasing_gpu=gpu)


def answer(build: Builder, policies: Any = POLICIES) -> Plan:
    """Plan; whatever comes of it keeps what must hold."""
    snapshot = build.snapshot()
    found = plan(snapshot, policies)
    assert [*plan_violations(snapshot, found)] == []
    return found


def described(found: Plan) -> dict[int, str]:
    """Return of each PodGroup the nodes of its pods, those that are only nominated in brackets."""
    dump: dict[int, str] = {}
    for it in found.allocations:
        at = [str(node) for _, node, _ in it.binds] + [f"({node})" for _, node, _ in it.nominations]
        dump[it.podgroup] = "".join([dump.get(it.podgroup, ""), *at])
    return dump | {it.podgroup: it.reason for it in found.rejections}


def test_releasing_is_reported_apart_from_allocated() -> None:
    """Nothing may be taken for it: it is over soon."""
    build = builder(full(), SnapshotNode(gpu=8), limit=6, allocated=1)
    build.uniform_podgroup(1, FOUR)
    (rejection,) = answer(build).rejections
    assert rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
    assert rejection.details == QueueBoundExceeded(
        0, ResourceKind.GPU, 6000, 1000, 4000, releasing=4000
    )
    assert not rejection.is_resolvable


def test_room_that_is_waited_for_is_not_waited_for_twice() -> None:
    """The first PodGroup takes the place of what goes; then the second one can be bound."""
    build = builder(full(), limit=8)
    build.uniform_podgroup(1, FOUR)
    build.uniform_podgroup(1, FOUR)
    assert described(answer(build)) == {0: "(0)", 1: "NoCapacity"}
    build = builder(full(), SnapshotNode(gpu=4), limit=8)
    build.uniform_podgroup(1, FOUR)
    build.uniform_podgroup(1, FOUR)
    assert described(answer(build)) == {0: "1", 1: "(0)"}
    build = builder(full(), full(), limit=8)
    for _ in range(3):
        build.uniform_podgroup(1, FOUR)
    assert described(answer(build)) == {0: "(0)", 1: "(1)", 2: "ExceedsLimit"}


def test_a_podgroup_that_may_not_wait_changes_nothing() -> None:
    """What it would have covered is there for the next one, and so is the room."""
    build = builder(full(1), SnapshotNode(gpu=2), limit=2)
    build.uniform_podgroup(2, ONE)
    build.uniform_podgroup(1, ONE)
    assert described(answer(build)) == {0: "ExceedsLimit", 1: "1"}


def test_a_pod_nominated_to_another_node_keeps_it() -> None:
    """It is bound when the pods are gone; without a nominated node it has to start over then."""
    for nominated, want in ((1, "(1)"), (-1, "ExceedsLimit")):
        build = builder(full(), SnapshotNode(gpu=4))
        build.uniform_podgroup(1, signature(gpu=4, nominated_node=nominated))
        assert described(answer(build)) == {0: want}


def test_a_reserved_place_keeps_no_pod_from_waiting_with_it() -> None:
    """Nominated pods cover what they request, whatever their reserved place is charged with."""
    build = builder(SnapshotNode(gpu=4, used_gpu=1, releasing_gpu=4), limit=4, allocated=1)
    nodes = PodSet("nodes", 3, build.waiting_pods(3, signature(gpu=1, nominated_node=0)))
    reserved_place = ReservedPlace(0, build.signature_row(ONE), ReservationCause.ANTICIPATED)
    later = PodSet(
        "later",
        1,
        reserved_places=(reserved_place,),
        expected=1,
        expected_signature=reserved_place.signature,
    )
    build.podgroup(SubGroupSet("all", 2, (later, nodes)), is_kept=True)
    assert described(answer(build)) == {0: "(0)(0)(0)"}


def test_what_is_taken_in_a_plan_is_there_until_it_is_gone() -> None:
    """The next pod waits for it as well, though it would fit elsewhere."""
    build = builder(SnapshotNode(gpu=4), SnapshotNode(gpu=4), limit=4)
    build.running_podgroup([0, 0, 0, 0], ONE, priority=20)
    build.uniform_podgroup(1, signature(gpu=2), priority=70)
    found = answer(build)
    assert [it.podgroups for it in found.evictions] == [(0,)]
    assert described(found) == {1: "(1)"}


def test_without_limits_nothing_is_checked() -> None:
    build = builder(full(), SnapshotNode(gpu=4), limit=-1)
    build.uniform_podgroup(1, FOUR)
    assert described(answer(build)) == {0: "1"}
    build = builder(full(), SnapshotNode(gpu=4), limit=0)
    build.uniform_podgroup(1, FOUR)
    off = build_policies(PolicySelection(plugins={"proportion": PluginSelection(enabled=False)}))
    assert described(plan(build.snapshot(), off)) == {0: "1"}
