"""The binder of the tests binds PodGroups whole, and waits only for pods that can exist."""

import json
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.podgroup_binder import bindable

Obj = dict[str, Any]
TREE = {
    "minSubGroup": 2,
    "subGroups": [
        {"name": "node", "minSubGroup": 1},
        {"name": "node-replica-0", "parent": "node", "minMember": 2},
        {"name": "launcher", "minSubGroup": 1},
        {"name": "launcher-replica-0", "parent": "launcher", "minMember": 1},
    ],
}
LATER = [{"subGroupPrefix": "launcher-replica-", "replicas": 1, "count": 1}]
AFTER = {
    "replicatedJob": "data",
    "status": "Complete",
    "group": "first",
    "subGroupPrefix": "data-replica-",
    "replicas": 1,
    "count": 1,
    "before": ["node-replica-"],
}
DATA = {"minSubGroup": 1, "subGroups": [{"name": "data-replica-0", "minMember": 1}]}


def group(spec: Obj, name: str = "g", **anticipated: Any) -> Obj:
    annotations = {"trainer-kai.dev/anticipated": json.dumps(anticipated)} if anticipated else {}
    owner = {"kind": "JobSet", "uid": "u"}
    meta = {"name": name, "namespace": "ns", "annotations": annotations, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": spec}


def pod(name: str, podset: str = "", group: str = "g", **fields: Any) -> Obj:
    """Return a pod: *n0* of a Job called like its sub-group; keywords are phase, attempt, retry."""
    labels = {
        "kai.scheduler/subgroup-name": f"{podset}-replica-0",
        "batch.kubernetes.io/job-name": f"job-{podset}-0",
        "jobset.sigs.k8s.io/restart-attempt": str(fields.get("attempt", 0)),
        "jobset.sigs.k8s.io/job-restart-attempt": str(fields.get("retry", 0)),
    }
    meta: Obj = {"name": name, "namespace": fields.get("namespace", "ns"), "labels": labels}
    meta["annotations"] = {"pod-group-name": group}
    phase = fields.get("phase", "Pending")
    if fields.get("going"):
        meta["deletionTimestamp"] = "2026-01-05T09:00:00Z"
    spec: Obj = {"nodeName": "n"} if phase != "Pending" or fields.get("bound") else {}
    if fields.get("gated"):
        spec["schedulingGates"] = [{"name": "x"}]
    ready = {"type": "Ready", "status": str(bool(fields.get("ready")))}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase, "conditions": [ready]}}


N0, N1, L = pod("n0", "node"), pod("n1", "node"), pod("l", "launcher")
RUN0 = pod("n0", "node", phase="Running", ready=True)
DONE = pod("d", "data", "first", phase="Succeeded")
ALL = [group(TREE)]
NOW = [group(TREE, later=LATER)]
# PodGroups and pods -> the pods that may be bound
CASES: list[Case[tuple[list[Obj], list[Obj]], list[str]]] = [
    Case("without pods none is bound", ([], []), []),
    Case("a pod without its PodGroup waits", ([], [N0, N1]), []),
    Case(
        "a group of another namespace is another one", (NOW, [pod("n", "node", namespace="x")]), []
    ),
    Case("not all of a sub-group", (NOW, [N0]), []),
    Case("all but those that come later", (NOW, [N0, N1]), ["n0", "n1"]),
    Case("without anticipated pods it waits for all", (ALL, [N0, N1]), []),
    Case("a gang that is whole is bound", (ALL, [N0, N1, L]), ["l", "n0", "n1"]),
    Case("later ones as they come", (NOW, [RUN0, RUN0, L]), ["l"]),
    Case("one that is made again", (NOW, [RUN0, N1, L]), ["l", "n1"]),
    Case(
        "one beside one that succeeded", (NOW, [pod("n0", "node", phase="Succeeded"), N1]), ["n1"]
    ),
    Case("not beside one that failed", (NOW, [pod("n0", "node", phase="Failed"), N1]), []),
    Case(
        "not beside one that is going", (NOW, [pod("n0", "node", bound=True, going=True), N1]), []
    ),
    Case("not beside one that is gated", (NOW, [pod("n0", "node", gated=True), N1]), []),
    Case("not beside one of an older attempt", (NOW, [RUN0, pod("n1", "node", attempt=1)]), []),
    Case(
        "not beside one of a Job before it was made again",
        (NOW, [RUN0, pod("n", "node", retry=1)]),
        [],
    ),
    Case("a sub-group that is not there", (NOW, [N0, N1, pod("x", "x")]), ["n0", "n1"]),
]


def bound(groups: list[Obj], pods: list[Obj]) -> list[str]:
    assert all(namespace == "ns" for namespace, _ in bindable(groups, pods))
    return [name for _, name in bindable(groups, pods)]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_pods_of_a_tree(case: Case[tuple[list[Obj], list[Obj]], list[str]]) -> None:
    """Whole, or not at all; in whatever order they are listed."""
    groups, pods = case.given

    assert bound(groups, pods) == case.want
    assert bound(groups, pods[::-1]) == case.want


def waits_for(status: str, *pods: Obj, before: tuple[str, ...] = ()) -> bool:
    after = {**AFTER, "status": status, "before": before}
    groups = [group(DATA, "first"), group(TREE, later=LATER, after=[after])]
    return "n0" not in bound(groups, [*pods, N0, N1])


def test_what_must_be_complete_has_succeeded_and_no_pod_is_left() -> None:
    """Of the same attempt."""
    running = pod("d", "data", "first", phase="Running", ready=True)

    assert waits_for("Complete")
    assert waits_for("Complete", running)
    assert waits_for("Complete", DONE, pod("e", "data", "first"))
    assert waits_for("Complete", pod("d", "data", "first", phase="Failed"))
    assert not waits_for("Complete", DONE)


def test_what_must_be_ready_is_so_or_has_succeeded() -> None:
    """Running is not enough."""
    assert waits_for("Ready")
    assert waits_for("Ready", pod("d", "data", "first", phase="Running"))
    assert not waits_for("Ready", pod("d", "data", "first", phase="Running", ready=True))
    assert not waits_for("Ready", DONE)


def test_a_pod_that_is_made_only_afterwards_proves_that_it_is_over() -> None:
    """Also when those before it have been removed."""
    assert not waits_for("Complete", before=("node-replica-",))
    assert waits_for("Complete", before=("launcher-replica-",))
    assert waits_for("Complete", before=("nod",))


def test_another_attempt_begins_anew() -> None:
    """Attempts are those of all groups of one owner."""
    groups = [group(DATA, "first"), group(TREE, later=LATER, after=[{**AFTER, "before": []}])]
    again = [pod(f"n{i}", "node", attempt=1) for i in (0, 1)]

    assert bound(groups, [DONE, *again]) == []
    assert bound(groups, [pod("d", "data", "first", phase="Succeeded", attempt=1), *again]) == [
        "n0",
        "n1",
    ]


def test_another_schedulers_pods_are_not_waited_for() -> None:
    """They name no PodGroup, so they are not seen."""
    after = {**AFTER, "group": "", "before": []}

    assert bound([group(TREE, later=LATER, after=[after])], [N0, N1]) == ["n0", "n1"]


# pods of a flat PodGroup of three -> the pods that may be bound
FLAT = [
    Case("a gang that is not whole waits", ["Pending", "Pending"], []),
    Case("a gang of the minimum is bound", ["Pending", "Pending", "Pending"], ["0", "1", "2"]),
    Case("beside those that run", ["Pending", "Running", "Running"], ["0"]),
    Case("not beside those that succeeded", ["Pending", "Running", "Succeeded"], []),
    Case("not beside those that failed", ["Pending", "Running", "Failed"], []),
]


@pytest.mark.parametrize("case", FLAT, ids=ids)
def test_pods_of_a_flat_group(case: Case[list[str], list[str]]) -> None:
    """As KAI counts: only pods that are alive."""
    pods = [pod(str(i), phase=phase) for i, phase in enumerate(case.given)]

    assert bound([group({"minMember": 3})], pods) == case.want


def test_so_many_members_are_enough_as_are_asked_for() -> None:
    """But none of them in part, and later pods are none of them."""
    one = {**TREE, "minSubGroup": 1}

    assert bound([group(one)], [L]) == ["l"]
    assert bound([group(one)], [N0]) == []
    assert bound([group(one, later=LATER)], [N0]) == []
