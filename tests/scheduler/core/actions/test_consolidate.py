"""Which PodGroup is relocated for which, and to where: the action consolidation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scheduler.core.model.podgroup import (
    AffinityTerm,
    LabelRequirement,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SpreadConstraint,
    SubGroupSet,
)
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.result import Plan, Relocation, Reservation
from scheduler.core.model.snapshot import PodRelations, Snapshot
from scheduler.core.plan import PlanLimits, plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action

POLICIES = build_policies(PolicySelection())
ONE, TWO, FOUR, EIGHT = (signature(gpu=n) for n in (1, 2, 4, 8))


def cluster(*queues: SnapshotQueue, nodes: int = 2, gpu: int = 4) -> Builder:
    return Builder([SnapshotNode(gpu=gpu)] * nodes, queues or (SnapshotQueue("a", quota=-1),))


def waiting(
    builder: Builder, number: int = 1, one: SchedulingSignature = FOUR, **more: Any
) -> Builder:
    builder.uniform_podgroup(number, one, **more)
    return builder


def scattered(*sizes: SchedulingSignature, **more: Any) -> Builder:
    """Return two nodes with four GPUs; jobs of these sizes lie on one and the other in turn."""
    builder = cluster(nodes=2)
    for i, one in enumerate(sizes or (ONE, ONE)):
        builder.running_podgroup([i % 2], one, **more)
    return builder


def described(answer: Plan) -> str:
    """Return which PodGroup is relocated for which, and to which nodes."""
    reserved_places = {
        it.podgroup: [f"{n}x{node}" for _, node, n, _ in it.reservations]
        for it in answer.relocations
    }
    return " ".join(
        f"{podgroup}→{'+'.join(reserved_places[podgroup])}:{it.preemptor}"
        for it in answer.evictions
        if it.action == Action.CONSOLIDATION
        for podgroup in it.podgroups
    )


def of_three() -> Builder:
    """Return three nodes: the newest two jobs can be moved, and so could the oldest alone."""
    builder = cluster(nodes=3)
    builder.running_podgroup([2], ONE)
    builder.running_podgroup([0], signature(gpu=3))
    builder.running_podgroup([1], TWO)
    builder.running_podgroup([1], ONE)
    return waiting(builder)


def gang() -> Builder:
    """Return a gang on both nodes, of which it needs all."""
    builder = cluster()
    builder.running_podgroup([0, 1], ONE)
    return builder


def elastic() -> Builder:
    """Return a gang on two of three nodes that needs one pod; it keeps both."""
    builder = cluster(nodes=3)
    builder.running_podgroup([0, 1], TWO, minimum=1)
    builder.running_podgroup([2], TWO)
    return waiting(builder)


def jobset(**more: Any) -> Builder:
    """Return a JobSet of two PodGroups, each on a node of its own, and one that needs a node."""
    builder = cluster()
    builder.running_podgroup([0], ONE, workload="j")
    builder.running_podgroup([1], ONE, workload="j", **more)
    return waiting(builder)


def two_podsets(*, mixed: bool = False, older: bool = False) -> Builder:
    """Return a PodGroup of two PodSets with different requests, and one that needs its node."""
    builder = cluster()
    small, large = builder.signature_row(ONE), builder.signature_row(TWO)
    builder.pod_on_node(0, small)
    builder.pod_on_node(0, large)
    of = PodSet("b", 1, running=1, running_pods=(1,))
    if mixed:
        builder.pod_on_node(0, small)
        of = PodSet("b", 2, running=2, running_pods=(1, 2))
    tree = SubGroupSet("", 2, (PodSet("a", 1, running=1, running_pods=(0,)), of))
    if older:
        builder.pod_on_node(1, small)
    builder.podgroup(tree, is_kept=True)
    if not older:
        builder.running_podgroup([1], ONE, is_preemptible=False)
    return waiting(builder)


def pair(**more: Any) -> Builder:
    """Return one job that could be moved, another that cannot, and a PodGroup that needs a node."""
    builder = cluster()
    builder.running_podgroup([0], ONE, **more)
    builder.running_podgroup([1], ONE, is_preemptible=False)
    return waiting(builder)


def changed(**more: Any) -> Builder:
    builder = pair()
    builder.podgroups[0] = replace(builder.podgroups[0], **more)
    return builder


def with_older() -> Builder:
    """Return the same, with a pod of an older attempt beside it."""
    builder = cluster()
    builder.pod_on_node(0, builder.signature_row(ONE))
    builder.running_podgroup([0], ONE)
    builder.running_podgroup([1], ONE, is_preemptible=False)
    return waiting(builder)


def crowd(count: int) -> Builder:
    """Return a node with so many jobs, each needed for it to be empty, and one with room."""
    builder = cluster(gpu=32)
    for _ in range(count):
        builder.running_podgroup([0], ONE)
    builder.running_podgroup([1], ONE, is_preemptible=False)
    return waiting(builder, one=signature(gpu=32))


def lacking() -> Builder:
    """Return a PodGroup that grows by another PodSet: its own running pod is not relocated."""
    builder = cluster()
    builder.pod_on_node(0, builder.signature_row(ONE))
    there = PodSet("a", 1, running=1, running_pods=(0,))
    builder.podgroup(
        SubGroupSet("", 1, (there, PodSet("b", 1, builder.waiting_pods(1, FOUR)))), is_kept=True
    )
    builder.running_podgroup([1], ONE, is_preemptible=False)
    return builder


def pinned() -> Builder:
    """Return two jobs, the newer without another node, and a PodGroup that needs a node."""
    builder = Builder([SnapshotNode(gpu=4, labels=(0,)), SnapshotNode(gpu=4, labels=(1,))])
    builder.running_podgroup([0], ONE)
    builder.running_podgroup(
        [1], replace(ONE, node_affinity=(((LabelRequirement(0, frozenset({1})),),),))
    )
    return waiting(builder)


def two_queues() -> Builder:
    """Return a queue at its share, and one of its jobs that is moved for another queue's."""
    builder = cluster(SnapshotQueue("a", quota=4), SnapshotQueue("b", quota=0))
    builder.running_podgroup([0], TWO, queue="a")
    builder.running_podgroup([1], TWO, queue="a", is_preemptible=False)
    return waiting(builder, queue="b")


PREFILTER_FAILURE = PreFilterFailure(PreFilterCause.INVALID_PODGROUP, ("no",))
RESERVED_PLACE = PodSet(
    "default", 1, running=1, reserved_places=(ReservedPlace(0, 0, ReservationCause.REPAIR),)
)

PLANS: list[Case[Builder, str]] = [
    Case("the newest that does", waiting(scattered()), "1→1x0:2"),
    Case("the first set, though another is smaller", of_three(), "3→1x0:4 2→1x2:4"),
    Case("a gang moves with all its pods", waiting(gang()), "0→2x1:1"),
    Case("a queue that is due it all may be moved", two_queues(), "0→1x1:2"),
    Case("what can be spared moves as well", elastic(), "0→1x2+1x1:2"),
    Case("a JobSet moves whole", jobset(), "0→1x1:2 1→1x1:2"),
    Case("or not at all", jobset(is_preemptible=False), ""),
    Case("PodSet by PodSet", two_podsets(), "0→1x1+1x1:2"),
    Case("not with mixed leaves", two_podsets(mixed=True), ""),
    Case("not PodSet by PodSet, beside an older attempt", two_podsets(older=True), ""),
    Case("a PodGroup that fits elsewhere", pinned(), "0→1x1:2"),
    Case("a preemptible one", pair(), "0→1x1:2"),
    Case("not a non-preemptible one", pair(is_preemptible=False), ""),
    Case("not one that cannot be evicted", changed(non_evictable_reason="x"), ""),
    Case("not one below its minimum", changed(tree=PodSet("default", 2, running=1)), ""),
    Case("not one that may not be relocated", changed(may_relocate=False), ""),
    Case("not one that cannot reserve", changed(can_reserve=False), ""),
    Case("not one with a reserved place", changed(tree=RESERVED_PLACE), ""),
    Case("not one with a failure of its own", changed(prefilter_failure=PREFILTER_FAILURE), ""),
    Case("not one that will not come back", changed(has_running=False), ""),
    Case("not beside an older attempt", with_older(), ""),
    Case("there must be room in sum", waiting(scattered(FOUR, ONE)), ""),
    Case("no victim fits beside the preemptor", waiting(scattered(TWO, TWO, TWO)), ""),
    Case("a non-preemptible one relocates none", waiting(scattered(), is_preemptible=False), ""),
    Case("none is relocated for itself", lacking(), ""),
    Case("sixteen are looked at", crowd(16), " ".join(f"{i}→1x1:17" for i in range(15, -1, -1))),
    Case("and no more", crowd(17), ""),
]


@pytest.mark.parametrize("case", PLANS, ids=ids)
def test_which_podgroup_is_relocated(case: Case[Builder, str]) -> None:
    snapshot = case.given.snapshot()

    answer = plan(snapshot, POLICIES)

    assert described(answer) == case.want
    assert list(plan_violations(snapshot, answer)) == []
    for it in answer.evictions:
        assert any(one.podgroup == it.preemptor and one.nominations for one in answer.allocations)


def labelled(snapshot: Snapshot) -> Snapshot:
    """Return the same with one selector, with one of its pods on the first node."""
    counts = np.zeros((1, len(snapshot.nodes.names)), dtype=np.int32)
    counts[0, 0] = 1
    none = np.zeros((0, len(snapshot.nodes.names)), dtype=np.int32)
    nodes = replace(
        snapshot.nodes, labels=np.zeros((len(counts[0]), 1), dtype=np.int32), key_names=("zone",)
    )
    return replace(snapshot, nodes=nodes, pod_relations=PodRelations(counts, (), none, (), ()))


SPREAD = SpreadConstraint(
    0, 0, 9, 0, counts_itself=False, honours_affinity=False, honours_taints=False
)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(replace(ONE, affinity=(AffinityTerm(0, 0),)), id="near others"),
        pytest.param(replace(ONE, spread_constraints=(SPREAD,)), id="spread"),
        pytest.param(replace(ONE, device_memory=100), id="with memory of a GPU"),
    ],
)
def test_a_pod_with_terms_about_others_is_not_relocated(one: SchedulingSignature) -> None:
    """Others may have gone elsewhere by the time it comes back."""
    builder = cluster()
    builder.running_podgroup([0], one)
    builder.running_podgroup([1], ONE, is_preemptible=False)

    assert described(plan(labelled(waiting(builder).snapshot()), POLICIES)) == ""


def test_no_podgroup_is_relocated_away_from_a_pod_with_affinity() -> None:
    """The one that is chosen by the preemptor's affinity stays, and the other is moved."""
    builder = cluster()
    builder.running_podgroup([0], replace(ONE, matched_selectors=(0,)))
    builder.running_podgroup([1], ONE)
    snapshot = labelled(
        waiting(builder, one=replace(FOUR, affinity=(AffinityTerm(0, 0),))).snapshot()
    )

    assert described(plan(snapshot, POLICIES)) == "1→1x0:2"


def test_the_preemptor_does_not_grow_into_the_relocated_resources() -> None:
    """What it could have beyond what it needs comes after all places that are promised."""
    builder = cluster()
    builder.running_podgroup([0], ONE)
    builder.running_podgroup([1], signature(gpu=3), is_preemptible=False)
    pods = builder.waiting_pods(1, FOUR) + builder.waiting_pods(1, ONE)
    builder.podgroup(PodSet("default", 1, pods))
    snapshot = builder.snapshot()

    answer = plan(snapshot, POLICIES)

    assert described(answer) == "0→1x1:2"
    assert sum(len(it.nominations) for it in answer.allocations) == 1
    assert list(plan_violations(snapshot, answer)) == []


def test_how_many_are_looked_at_is_a_setting() -> None:
    snapshot = crowd(17).snapshot()

    def relocated(most: int) -> int:
        return len(plan(snapshot, build_policies(PolicySelection(max_relocated=most))).relocations)

    assert [relocated(0), relocated(16), relocated(17), relocated(-1)] == [0, 0, 17, 17]


def test_a_relocated_podgroup_loses_nothing_else() -> None:
    """Nor does it claim anything: it is on its way."""
    queues = SnapshotQueue("a", quota=0), SnapshotQueue("b", quota=8)
    builder = cluster(*queues)
    builder.running_podgroup([0], ONE, queue="a")
    builder.running_podgroup([1], ONE, queue="a")
    waiting(builder, queue="b")
    waiting(builder, queue="b")
    snapshot = builder.snapshot()

    answer = plan(snapshot, POLICIES)

    assert described(answer) == "1→1x0:2"
    assert [(it.podgroups, it.action) for it in answer.evictions] == [((1,), Action.CONSOLIDATION)]
    assert [it.podgroup for it in answer.rejections] == [3]
    assert list(plan_violations(snapshot, answer)) == []


def test_several_get_room_one_after_the_other() -> None:
    builder = cluster(nodes=4)
    for node in range(4):
        builder.running_podgroup([node], TWO)
    snapshot = waiting(waiting(waiting(builder))).snapshot()

    answer = plan(snapshot, POLICIES)

    assert described(answer) == "3→1x0:4 2→1x1:5"
    assert [it.podgroup for it in answer.rejections] == [6]
    assert list(plan_violations(snapshot, answer)) == []


def test_a_queue_at_its_limit_gets_nothing_by_relocating_others() -> None:
    """No queue has less by it."""
    builder = cluster(SnapshotQueue("a", quota=-1), SnapshotQueue("b", quota=-1, limit=3))
    builder.running_podgroup([0], ONE, queue="a")
    builder.running_podgroup([1], ONE, queue="a")

    answer = plan(waiting(builder, queue="b").snapshot(), POLICIES)

    assert (described(answer), answer.rejections[0].reason) == (
        "",
        UnschedulableReason.EXCEEDS_LIMIT,
    )


def test_equals_are_not_tried_again() -> None:
    """A claim that failed fails for equal PodGroups as long as no pod was placed."""
    builder = scattered(TWO, ONE, TWO)
    for _ in range(5):
        waiting(builder)

    assert plan(builder.snapshot(), POLICIES).stats.searches <= 1


def test_no_gpus_may_be_taken() -> None:
    """A relocated PodGroup is evicted as well."""
    snapshot = waiting(scattered()).snapshot()

    assert described(plan(snapshot, POLICIES, PlanLimits(evictable_gpus=0))) == ""
    assert described(plan(snapshot, POLICIES, PlanLimits(evictable_gpus=1))) == "1→1x0:2"


BROKEN: list[Case[Any, str]] = [
    Case("without a place", lambda _: (), "unit-1 is moved, and not to a place for each"),
    Case("two places", lambda it: (*it, *it), "unit-1 is moved, and not to a place for each"),
    Case(
        "a PodGroup without places",
        lambda it: (*it, Relocation(0, ())),
        "unit-0 is moved, and not to a place",
    ),
    Case(
        "to where there is no room",
        lambda _: (Relocation(1, (Reservation("default", 1, 1, ReservationCause.MOVE),)),),
        "node node-1 has no room",
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_broken_is_reported(case: Case[Any, str]) -> None:
    """A relocated PodGroup, and no other, has a place for each pod, where it fits."""
    snapshot = waiting(scattered()).snapshot()
    answer = plan(snapshot, POLICIES)

    violations_found = list(
        plan_violations(snapshot, replace(answer, relocations=case.given(answer.relocations)))
    )

    assert any(case.want in it for it in violations_found), violations_found
