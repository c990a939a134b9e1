"""The commands for a plan, and the reasons of evictions."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from scheduler.core.model.podgroup import ReservationCause
from scheduler.core.model.rejections import ClusterEvent, MissingPods, Rejection
from scheduler.core.model.resources import NONE, held_shares
from scheduler.core.model.result import (
    Eviction,
    Plan,
    PodGroupAllocation,
    PodPlacement,
    Reservation,
)
from scheduler.state.commands import (
    changed_annotations,
    commands_from_plan,
    merge_evictions,
    planned_eviction,
)
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    Fields,
    encode_objects,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action

EVICTED_REASON = "ns/mine gets its resources: its priority is 50, that of ns/theirs is 50"


# GPU-seconds, and the victim order -> the end of the reason
LOST: list[Case[tuple[int, str], str]] = [
    Case("without a loss nothing is said", (0, ""), ""),
    Case("one GPU-second is singular", (1, ""), "; 1 GPU-second since its start is lost"),
    Case(
        "below two minutes it is seconds", (119, ""), "; 119 GPU-seconds since its start are lost"
    ),
    Case(
        "from two minutes on it is minutes", (120, ""), "; 2 GPU-minutes since its start are lost"
    ),
    Case("minutes are rounded", (7199, ""), "; 120 GPU-minutes since its start are lost"),
    Case("from two hours on it is hours", (7200, ""), "; 2 GPU-hours since its start are lost"),
    Case("the victim order is named alone", (0, "the oldest go first"), "; the oldest go first"),
    Case(
        "the loss precedes the victim order",
        (8000, "the oldest go first"),
        "; 2.2 GPU-hours since its start are lost; the oldest go first",
    ),
]


def reason(preemptor: int = 0, others: Sequence[Any] = (), **more: Any) -> str:
    start = {"annotations": {"kai.scheduler/last-start-timestamp": "2026-01-05T08:00:00Z"}}
    theirs = group("theirs", minMember=1, meta=start)
    found = encode_objects(
        node("a"), group("mine"), pod("m", "mine"), theirs, pod("t", "theirs", node="a"), *others
    )
    rows = [key.name for key in found.podgroup_keys]
    one = Eviction(
        podgroups=(rows.index("theirs"),),
        pods=(),
        is_whole=True,
        action=Action.PREEMPT,
        preemptor=preemptor if preemptor == NONE else rows.index("mine"),
        **more,
    )
    return planned_eviction(found, one).reason


@pytest.mark.parametrize("case", LOST, ids=ids)
def test_how_much_work_is_lost(case: Case[tuple[int, str], str]) -> None:
    """In the largest unit of time of which there are two."""
    work, order = case.given
    assert reason(work_lost=work, victim_order=order) == EVICTED_REASON + case.want


# how many budgets allow no eviction -> the end of the reason
PASSED: list[Case[int, str]] = [
    Case("without a budget nothing is said", 0, ""),
    Case("the one budget is named", 1, "; PodDisruptionBudget ns/b0 allows only 0"),
    Case(
        "of many budgets three are named",
        5,
        "".join(f"; PodDisruptionBudget ns/b{it} allows only 0" for it in range(3))
        + "; and 2 more PodDisruptionBudgets",
    ),
]


@pytest.mark.parametrize("case", PASSED, ids=ids)
def test_budgets_that_allow_fewer_evictions_are_named(case: Case[int, str]) -> None:
    """With what they allow, three at most."""
    others = [make_object("PodDisruptionBudget", f"b{it}", spec={}) for it in range(case.given)]
    assert reason(others=others, budgets=tuple(range(case.given))) == EVICTED_REASON + case.want


def test_an_eviction_without_a_preemptor_has_a_reason_too() -> None:
    """Stale PodGroups lose work as well."""
    words = (
        "the PodGroup had fewer pods than its minimum for too long; 5 GPU-seconds since its start "
        "are lost"
    )
    assert reason(NONE, work_lost=5) == words


def test_what_a_podgroup_loses_step_by_step_is_one_eviction() -> None:
    """For each preemptor: the pods go together, and the lost work is added up."""
    first = Eviction((1,), (4,), False, Action.RECLAIM, 0, 1000, 60, budgets=(1,))
    more = replace(first, pods=(5,), work_lost=30, budgets=(2,))
    other, whole = replace(first, preemptor=2, pods=(6,)), replace(first, is_whole=True, pods=(7,))

    found = merge_evictions([first, other, more, whole])

    assert found == [
        replace(first, pods=(4, 5), gpus=2000, work_lost=90, budgets=(1, 2)),
        other,
        whole,
    ]


def _plan(*admissions: PodGroupAllocation, rejections: tuple[Rejection, ...] = ()) -> Plan:
    return Plan(admissions, rejections, np.zeros((1, 3), dtype=np.int64))


def _podgroup(reserved: dict[str, int] | None = None, count: int = 3) -> EncodedSnapshot:
    """Return a PodGroup with a running pod, a pending pod, and pods that are expected."""
    expected = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": count}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [expected]})}
    if reserved:
        text = {"l-replica-0": {"nodes": reserved, "cause": "anticipated"}}
        annotations["trainer-kai.dev/reserved"] = json.dumps(text, separators=(",", ":"))
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 3}]
    fields = group(
        "g", meta={"annotations": annotations, "ownerReferences": [JOBSET]}, subGroups=subs
    )
    pods = jobset_pod("n", "g", node="a"), jobset_pod("l", "g", "l")
    return encode_objects(node("a"), node("b"), fields, *pods)


def _text(**nodes: int) -> str:
    found = {"l-replica-0": {"nodes": nodes, "cause": "anticipated"}}
    return json.dumps(found, separators=(",", ":"))


def test_rows_become_names() -> None:
    """In the order of the plan."""
    found = encode_objects(node("a"), node("b"), pod("p"), pod("q"), pod("r"))
    rejection = Rejection(
        2,
        UnschedulableReason.NO_CAPACITY,
        MissingPods(()),
        is_resolvable=False,
        retry_on=ClusterEvent.ANY,
    )

    made = _plan(
        PodGroupAllocation(1, binds=(PodPlacement(1, 0),)),
        PodGroupAllocation(0, nominations=(PodPlacement(0, 1),)),
        rejections=(rejection,),
    )

    commands = commands_from_plan(found, made)

    assert [*commands.binds] == [(Key("ns", "q"), "a")]
    assert [*commands.nominations] == [(Key("ns", "p"), "b")]
    assert commands.unschedulable == (
        (Key("ns", "pg-r-r"), UnschedulableReason.NO_CAPACITY, rejection),
    )
    assert dict(changed_annotations(found, made)) == {}


def test_new_reservations() -> None:
    """They are written as the annotation of the whole PodGroup."""
    one = Reservation("l-replica-0", 1, 2, ReservationCause.ANTICIPATED)
    found, made = _podgroup({"a": 1}), _plan(PodGroupAllocation(0, reservations=(one,)))

    (commands,) = commands_from_plan(found, made).podgroups

    assert (commands.reserve_annotation, commands.release_annotation) == (_text(a=1, b=2), None)
    assert dict(changed_annotations(found, made)) == {Key("ns", "g"): _text(a=1, b=2)}


def test_a_bound_pod_releases_one_place() -> None:
    """The first one, wherever it was placed; without places there is no annotation."""
    found = _podgroup({"a": 1, "b": 1})
    row = found.pod_keys.index(Key("ns", "l"))
    bound = _plan(PodGroupAllocation(0, binds=(PodPlacement(row, 1),)))
    nominated = _plan(PodGroupAllocation(0, nominations=(PodPlacement(row, 1),)))

    assert dict(changed_annotations(found, bound)) == {Key("ns", "g"): _text(b=1)}
    assert dict(changed_annotations(found, nominated)) == {Key("ns", "g"): _text(b=1)}
    assert dict(changed_annotations(_podgroup({"a": 1}), bound)) == {Key("ns", "g"): ""}


def test_an_unchanged_annotation_is_not_written() -> None:
    """And an outdated one is written, though the plan has nothing for the PodGroup."""
    assert dict(changed_annotations(_podgroup({"a": 1}), _plan())) == {}
    assert dict(changed_annotations(_podgroup({"a": 1, "gone": 1}), _plan())) == {
        Key("ns", "g"): _text(a=1)
    }


@pytest.mark.parametrize(
    "case",
    [
        Case("nothing was decided", None, []),
        Case("it found no room", UnschedulableReason.NO_CAPACITY, ["p"]),
        Case("a bound of its queue is in the way", UnschedulableReason.EXCEEDS_LIMIT, ["p"]),
        Case("one of its pods is created again", UnschedulableReason.PODS_MISSING, []),
    ],
    ids=ids,
)
def test_a_lost_nomination_is_removed(case: Case[UnschedulableReason | None, list[str]]) -> None:
    """If its PodGroup was tried; pods without one, or that are placed, are left alone."""
    nominated = {"nominatedNodeName": "a"}
    pods = (pod("p", "g", status=nominated), pod("q", "g", status=nominated), pod("r", "g"))
    found = encode_objects(node("a"), group("g"), *pods)
    podgroup = found.podgroup_keys.index(Key("ns", "g"))
    bound = PodGroupAllocation(
        podgroup, binds=(PodPlacement(found.pod_keys.index(Key("ns", "q")), 0),)
    )
    reported = [] if case.given is None else [case.given]
    rejections = tuple(
        Rejection(podgroup, it, MissingPods(()), is_resolvable=False, retry_on=ClusterEvent.ANY)
        for it in reported
    )

    (commands,) = commands_from_plan(found, _plan(bound, rejections=rejections)).podgroups

    assert [(it.pod.name, it.node) for it in commands.nominations] == [(it, "") for it in case.want]


def test_a_nomination_is_removed_without_other_commands() -> None:
    """There is nothing else to do for the PodGroup."""
    found = encode_objects(node("a"), group("g"), pod("p", "g", status={"nominatedNodeName": "a"}))
    rejection = Rejection(
        0,
        UnschedulableReason.FRAGMENTED,
        MissingPods(()),
        is_resolvable=False,
        retry_on=ClusterEvent.ANY,
    )

    (commands,) = commands_from_plan(found, _plan(rejections=(rejection,))).podgroups

    assert commands.nominations == ((Key("ns", "p"), ""),)
    assert (commands.binds, commands.reserve_annotation, commands.release_annotation) == (
        (),
        None,
        None,
    )


def _reservation_pod(name: str, group: str, **meta: str) -> Fields:
    return pod(
        name,
        node="a",
        labels={"app": "kai-resource-reservation", "runai-gpu-group": group},
        meta={"namespace": "kai-resource-reservation", **meta},
        schedulerName="x",
        serviceAccountName="kai-resource-reservation",
    )


def _sharing_pod(name: str, group: str = "", node: str = "") -> Fields:
    notes = {"gpu-fraction": "0.1", "runai/shared-gpu-configmap": f"{name}-x1y2z3a-shared-gpu"}
    return pod(name, node=node, asks={}, annotations=notes, labels={"runai-gpu-group": group})


_UNKNOWN, _X, _CLOSED, _NEW = range(4)  # slots


def _planned_shares() -> tuple[EncodedSnapshot, Plan]:
    """Return a node with three shared GPUs, and which slots pods get there and elsewhere."""
    found = encode_objects(
        *(node("a"), node("b"), pod("whole")),
        *(_reservation_pod("rx", "x"), _sharing_pod("px", "x", "a"), _sharing_pod("pu", "u", "a")),
        _reservation_pod("ry", "y", deletionTimestamp="2026-01-05T08:00:00Z"),
        _sharing_pod("py", "y", "a"),
        *(_sharing_pod(it) for it in ("several", "same", "closed", "elsewhere", "nominated")),
        places_gpu_shares=True,
    )
    rows = {key.name: row for row, key in enumerate(found.pod_keys)}
    podgroup = found.snapshot.pods.podgroup.tolist()
    binds = [
        PodPlacement(rows["several"], 0, held_shares((_NEW, _X))),
        PodPlacement(rows["same"], 0, held_shares((_UNKNOWN, _NEW))),
        PodPlacement(rows["closed"], 0, held_shares((_CLOSED,))),
        PodPlacement(rows["whole"], 0),
        PodPlacement(rows["elsewhere"], 1, held_shares((0,))),
    ]
    waits = PodPlacement(rows["nominated"], 1, held_shares((0,)))
    return found, _plan(
        *(PodGroupAllocation(podgroup[it.pod], binds=(it,)) for it in binds),
        PodGroupAllocation(podgroup[waits.pod], nominations=(waits,)),
    )


def test_bound_pods_get_the_ids_of_their_gpus() -> None:
    """New ones where the slot has none, the same for all pods of the plan on it."""
    found, made = _planned_shares()

    commands = commands_from_plan(found, made, map("n{}".format, count()).__next__)

    assert found.snapshot.devices.ids == ("unknown-0", "x", "y")
    assert {
        it.pod.name: one.gpu_groups.get(it.pod)
        for one in commands.podgroups
        for it in (*one.binds, *one.nominations)
    } == {
        "several": ("n0", "x"),
        "same": ("n1", "n0"),
        "closed": ("n2",),
        "whole": None,
        "elsewhere": ("n3",),
        "nominated": None,
    }
    assert not any(one.gpu_groups for one in commands_from_plan(found, made).podgroups)
