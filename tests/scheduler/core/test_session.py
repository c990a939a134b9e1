"""Turns in rounds: what one PodGroup's failure says of others, and what is told at the end."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.model.podgroup import (
    LabelRequirement,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SubGroupSet,
)
from scheduler.core.model.rejections import FitErrors, Rejection
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature
from trainer_kai.api.reasons import UnschedulableReason

POLICIES: Final = build_policies(PolicySelection())
FAST: Final = ((((LabelRequirement(0, frozenset({0})),)),),)


def mixed(build: Builder, first: SchedulingSignature, second: SchedulingSignature) -> int:
    pods = (*build.waiting_pods(1, first), *build.waiting_pods(1, second))
    return build.podgroup(PodSet("a", 2, pods))


def of(plan_result: Plan, podgroup: int) -> Rejection:
    return next(it for it in plan_result.rejections if it.podgroup == podgroup)


def test_what_failed_may_fit_for_others_later() -> None:
    """Others took the room of the one node, so the small pod leaves the other to the large one."""
    build = Builder([SnapshotNode(gpu=4, labels=(0,)), SnapshotNode(gpu=8)])
    small, large = signature(gpu=1), signature(gpu=4, node_affinity=FAST)
    mixed(build, small, large)
    build.uniform_podgroup(1, signature(gpu=5))
    mixed(build, small, large)

    plan_result = plan(build.snapshot(), POLICIES)

    assert [it.podgroup for it in plan_result.allocations] == [1, 2]
    assert of(plan_result, 0).reason == UnschedulableReason.NO_CAPACITY


def test_reasons_are_true_of_the_end() -> None:
    """A PodGroup that failed as Fragmented gets NoCapacity when nothing is left."""
    build = Builder([SnapshotNode(gpu=8, used_gpu=4), SnapshotNode(gpu=8, used_gpu=4)])
    for gpus in (5, 4, 4, 5):
        build.uniform_podgroup(1, signature(gpu=gpus))

    plan_result = plan(build.snapshot(), POLICIES)

    for podgroup in (0, 3):
        details = of(plan_result, podgroup).details
        assert isinstance(details, FitErrors)
        assert (details.reason, details.largest_free[3]) == (UnschedulableReason.NO_CAPACITY, 0)


def test_a_podgroup_that_grows_after_a_failure_has_no_reason() -> None:
    """A reason goes when the PodGroup gets what it lacked."""
    build = Builder([SnapshotNode(gpu=2, used_gpu=2)])
    build.uniform_podgroup(1, signature(gpu=1))
    row = build.signature_row(signature(gpu=2))
    reserved_place = ReservedPlace(0, row, ReservationCause.ANTICIPATED)
    build.podgroup(
        PodSet(
            "a",
            1,
            build.waiting_pods(1, signature(gpu=1)),
            reserved_places=(reserved_place,),
            expected=0,
            expected_signature=row,
        )
    )

    plan_result = plan(build.snapshot(), POLICIES)

    assert [it.podgroup for it in plan_result.allocations] == [1, 0]
    assert plan_result.rejections == ()


def test_no_podgroup_takes_reserved_places_alone() -> None:
    """Nothing would hold them; a PodGroup with a pod there takes them."""
    build = Builder([SnapshotNode()])
    row = build.signature_row(signature(gpu=1))
    later = PodSet("b", 2, expected=2, expected_signature=row)
    build.podgroup(
        SubGroupSet("", 1, (PodSet("a", 2, build.waiting_pods(1, signature(gpu=1))), later))
    )
    build.pod_on_node(0, row)
    there = PodSet("a", 2, running=1, running_pods=(1,))
    build.podgroup(SubGroupSet("", 1, (there, later)), is_kept=True)

    plan_result = plan(build.snapshot(), POLICIES)

    assert [it.podgroup for it in plan_result.allocations] == [1]
    assert of(plan_result, 0).reason == UnschedulableReason.PODS_MISSING


def test_nothing_is_bound_beside_reserved_places_that_wait_for_room() -> None:
    """The reserved places wait for what is being released."""
    build = Builder([SnapshotNode(gpu=3, used_gpu=3), SnapshotNode(gpu=1)])
    row = build.signature_row(signature(gpu=1))
    reserved_places = (ReservedPlace(0, row, ReservationCause.ANTICIPATED),) * 2
    launcher = build.waiting_pods(1, signature(gpu=1))
    workers = PodSet(
        "worker", 2, reserved_places=reserved_places, expected=2, expected_signature=row
    )
    build.podgroup(SubGroupSet("", 2, (PodSet("launcher", 1, launcher), workers)), is_kept=True)
    snapshot = build.snapshot()
    idle, releasing = snapshot.nodes.idle.copy(), snapshot.nodes.releasing.copy()
    # The reserved places are charged, and the evicted pods are not gone yet.
    idle[0, 3], releasing[0, 3] = -2000, 2000
    nominated = build.snapshot(nodes=replace(snapshot.nodes, idle=idle, releasing=releasing))

    (backed,), (pipelined,) = (plan(it, POLICIES).allocations for it in (snapshot, nominated))

    assert (len(backed.binds), len(backed.nominations)) == (1, 0)
    assert (len(pipelined.binds), len(pipelined.nominations)) == (0, 1)


_LIMIT, _QUOTA = "ExceedsLimit", "NonPreemptibleOverQuota"
_NO_NODE = "NoNodeMatches"

# GPUs of each pod, and whether the PodGroup is preemptible -> the reason, beside 8 of 16 GPU used
BOUNDED: list[Case[tuple[list[int], bool], str]] = [
    Case("a pod is larger than each node", ([16], True), _NO_NODE),
    Case("it is larger than the limit as well", ([24], True), _NO_NODE),
    Case("and non-preemptible beyond the quota", ([9], False), _NO_NODE),
    Case("one of several pods is", ([8, 9], True), _NO_NODE),
    Case("the pods fit on empty nodes", ([6, 6], True), _LIMIT),
    Case("they exceed the limit, and each fits", ([8, 8, 8], True), _LIMIT),
    Case("they exceed the quota, and each fits", ([4, 4], False), _QUOTA),
]


def bounded(gpus: list[int], *, is_preemptible: bool, **more: Any) -> Rejection:
    """Return why a PodGroup waits in a queue that has 8 GPU of a limit of 16 and a quota of 8."""
    build = Builder(
        [SnapshotNode(gpu=8, labels=(1,)), SnapshotNode(gpu=8, labels=(1,))],
        [SnapshotQueue("a", quota=8, limit=16)],
    )
    build.running_podgroup([0], signature(gpu=8), priority=100, is_preemptible=False)
    pods = [pod for gpu in gpus for pod in build.waiting_pods(1, signature(gpu=gpu, **more))]
    row = build.podgroup(PodSet("a", len(pods), tuple(pods)), is_preemptible=is_preemptible)
    return of(plan(build.snapshot(), POLICIES), row)


@pytest.mark.parametrize("case", BOUNDED, ids=ids)
def test_a_pod_that_fits_no_empty_node_does_not_wait_for_its_queue(
    case: Case[tuple[list[int], bool], str],
) -> None:
    """Whatever the queue releases, it would not start."""
    gpus, is_preemptible = case.given
    assert bounded(gpus, is_preemptible=is_preemptible).reason == case.want


def test_labels_are_a_reason_as_size_is() -> None:
    """No node has the label, and the numbers are those of an attempt."""
    rejection = bounded([4, 8], is_preemptible=True, node_affinity=FAST)
    details = rejection.details
    assert isinstance(details, FitErrors)
    assert (details.reason, details.needed, details.placed) == (_NO_NODE, 2, 0)
    assert sum(details.counts.values()) == 2
    assert not rejection.is_resolvable
