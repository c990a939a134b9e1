"""Which cluster event each change of an object is."""

from itertools import pairwise
from typing import Any

import pytest

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    decode_object,
    group,
    make_object,
    node,
    pod,
    queue,
)

Fields = dict[str, Any]

_ANY, _FREED = ClusterEvent.ANY, ClusterEvent.RESOURCES_FREED
_PROGRESS, _INCOMPLETE = ClusterEvent.STAGE_PROGRESS, ClusterEvent.PODGROUP_INCOMPLETE
_DELETED: Fields = {}  # the object before
_TERMINATING = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
_FOREIGN = pod("p", schedulerName="other")
_RESIZED = pod("p", node="n", meta={"generation": 2}, asks={"cpu": "2"})
_READY = {"conditions": [{"type": "Ready", "status": "True"}]}
_NODE_TIMES = [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-05T08:00:00Z"}]


def budget(allowed: int) -> Fields:
    spec = {"selector": {"matchLabels": {"app": "a"}}}
    return make_object(
        "PodDisruptionBudget",
        "b",
        spec=spec,
        status={"disruptionsAllowed": allowed, "currentHealthy": 9, "expectedPods": 9},
    )


def jobset(status: Fields | None = None, **spec: Any) -> Fields:
    return make_object("JobSet", "j", {"uid": "u"}, spec=spec, status=status or {})


def _reservation_pod(**more: Any) -> Fields:
    """Return a pod that reserves a GPU; it is created on its node."""
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": "x"}
    meta = {"namespace": "kai-resource-reservation"}
    account = "kai-resource-reservation"
    return pod(
        "r",
        node="n",
        labels=labels,
        meta=meta,
        schedulerName="default-scheduler",
        serviceAccountName=account,
        **more,
    )


def bound(fields: Fields) -> Fields:
    return {**fields, "spec": {**fields["spec"], "nodeName": "n"}}


# The last object is as it is after the change.
CASES: list[Case[list[Fields], ClusterEvent]] = [
    Case("a pending pod comes", [pod("p")], _ANY),
    Case("a pending pod is deleted", [pod("p"), _DELETED], _ANY),
    Case("the labels of a pending pod change", [pod("p"), pod("p", labels={"a": "b"})], _ANY),
    Case("a pod gets a node", [pod("p"), pod("p", node="n")], _ANY),
    Case(
        "a pod on a node terminates",
        [pod("p", node="n"), pod("p", node="n", meta=_TERMINATING)],
        _FREED,
    ),
    Case(
        "a pod on a node succeeds",
        [pod("p", node="n"), pod("p", node="n", phase="Succeeded")],
        _FREED,
    ),
    Case("a pod on a node is deleted", [pod("p", node="n"), _DELETED], _FREED),
    Case("a pod becomes Ready", [pod("p", node="n"), pod("p", node="n", status=_READY)], _PROGRESS),
    Case("a pod is resized", [pod("p", node="n"), _RESIZED], _FREED),
    Case("a resized pod is seen again", [_RESIZED, _RESIZED], NO_EVENT),
    Case("a pod starts", [pod("p", node="n", phase="Pending"), pod("p", node="n")], NO_EVENT),
    Case("a pod of another scheduler comes", [_FOREIGN], NO_EVENT),
    Case(
        "a pod of another scheduler gets a node",
        [_FOREIGN, bound(_FOREIGN)],
        ClusterEvent.FOREIGN_POD_ASSIGNED,
    ),
    Case("a pod of another scheduler on a node is deleted", [bound(_FOREIGN), _DELETED], _FREED),
    Case("a reservation pod comes", [_reservation_pod()], ClusterEvent.FOREIGN_POD_ASSIGNED),
    Case(
        "a reservation pod gets its GPU",
        [_reservation_pod(), _reservation_pod(annotations={"run.ai/reserve_for_gpu_index": "G"})],
        _FREED,
    ),
    Case("a reservation pod fails", [_reservation_pod(), _reservation_pod(phase="Failed")], _FREED),
    Case("a reservation pod is deleted", [_reservation_pod(), _DELETED], _FREED),
    Case("the first of two pods comes", [group("g", minMember=2), pod("p", "g")], _INCOMPLETE),
    Case("a pod comes before its PodGroup", [pod("p", "g")], _INCOMPLETE),
    Case(
        "the last of two pods comes", [group("g", minMember=2), pod("o", "g"), pod("p", "g")], _ANY
    ),
    Case("a PodGroup comes", [group("g")], _ANY),
    Case("a PodGroup changes", [group("g", minMember=1), group("g", minMember=2)], _ANY),
    Case("a PodGroup is deleted", [group("g"), _DELETED], _ANY),
    Case("a PodGroup is seen again", [group("g"), group("g")], NO_EVENT),
    Case("a node comes", [node("n")], _ANY),
    Case("a node gets other capacity", [node("n"), node("n", gpu=1)], _ANY),
    Case("a node is reported again", [node("n"), node("n", conditions=_NODE_TIMES)], NO_EVENT),
    Case("a queue changes", [queue(), queue(priority=1)], _ANY),
    Case(
        "the status of a queue changes",
        [queue(), {**queue(), "status": {"children": ["x"]}}],
        NO_EVENT,
    ),
    Case("a budget allows more", [budget(0), budget(1)], ClusterEvent.BUDGET_CHANGED),
    Case("a budget is seen again", [budget(1), budget(1)], NO_EVENT),
    Case("a JobSet is suspended", [jobset(), jobset(suspend=True)], _ANY),
    Case(
        "a JobSet makes progress",
        [jobset(), jobset({"replicatedJobsStatus": [{"name": "n", "ready": 1}]})],
        _PROGRESS,
    ),
    Case(
        "a PriorityClass changes",
        [make_object("PriorityClass", "c", value=n) for n in (1, 2)],
        _ANY,
    ),
    Case("a claim comes", [make_object("PersistentVolumeClaim", "c", spec={})], _ANY),
    Case("a topology comes", [make_object("Topology", "t", spec={})], _ANY),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_hints(case: Case[list[Fields], ClusterEvent]) -> None:
    """The event of the last change."""
    cache = ClusterCache(lambda: StateOptions(now=NOW, default_queue="q"))
    event = NO_EVENT
    for before, fields in pairwise(({}, *case.given)):
        resource, key, one = decode_object(fields or before)
        event = cache.update(resource, key, one if fields else None)
    assert event is case.want


def test_every_event_that_is_awaited_is_emitted() -> None:
    """Rejections name members of `ClusterEvent`; the cycle itself emits that time has passed."""
    assert {case.want for case in CASES} - {NO_EVENT} == {*ClusterEvent} - {
        ClusterEvent.TIME_PASSED
    }
