"""Pods: which get a PodGroup, which do not, and why."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import (
    BUNDLED,
    EXTERNAL,
    POD,
    applied,
    pod,
    recorded,
    request,
    reviewed_pod,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED
from webhook.rules.pod_podgroup import mutate_pod

GROUP = "pod-group-name"
LEAF = "kai.scheduler/subgroup-name"
GANG = "trainer-kai.dev/gang"
LABELS: dict[str, str] = pod()["metadata"]["labels"]
OWNER: dict[str, Any] = pod()["metadata"]["ownerReferences"][0]


def add(path: str, value: object) -> dict[str, object]:
    return {"op": "add", "path": path, "value": value}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in LABELS.items() if name not in names}


LEAF_ADDED = add("/metadata/labels/kai.scheduler~1subgroup-name", "node-replica-0")

# metadata -> operations
PATCHED: list[Case[dict[str, Any], list[dict[str, object]]]] = [
    Case(
        "a pod of the only unit",
        {},
        [add("/metadata/annotations", {GROUP: "pg-job-1-2-3"}), LEAF_ADDED],
    ),
    Case(
        "a pod of one of several units",
        {"labels": {**LABELS, GANG: "node"}},
        [add("/metadata/annotations", {GROUP: "pg-job-1-2-3-node"}), LEAF_ADDED],
    ),
    Case(
        "one that has annotations",
        {"annotations": {"x": "y"}},
        [add("/metadata/annotations/pod-group-name", "pg-job-1-2-3"), LEAF_ADDED],
    ),
    Case(
        "one that has its group already",
        {"annotations": {GROUP: "pg-job-1-2-3"}},
        [LEAF_ADDED],
    ),
    Case(
        "one that has its place already",
        {"labels": {**LABELS, LEAF: "mine"}},
        [add("/metadata/annotations", {GROUP: "pg-job-1-2-3"})],
    ),
    Case("one that we did not mark", {"labels": without(GANG)}, []),
    Case("one without labels", {"labels": None}, []),
]


@pytest.mark.parametrize("case", PATCHED, ids=ids)
def test_pods_are_assigned(case: Case[dict[str, Any], list[dict[str, object]]]) -> None:
    """By their own labels; a second review changes nothing."""
    given = pod(**case.given)

    answer = reviewed_pod(given)

    assert list(answer.operations) == case.want
    assert (answer.warnings, answer.denial) == ((), None)
    assert reviewed_pod(applied(given, answer)).operations == ()


def test_a_podgroup_that_a_template_names_is_replaced() -> None:
    """Its gang would wait for it for ever; the PodSet goes with it."""
    given = pod(annotations={GROUP: "mine"}, labels={**LABELS, LEAF: "mine"})

    answer = reviewed_pod(given)

    changed = applied(given, answer)["metadata"]
    assert (changed["annotations"][GROUP], changed["labels"][LEAF]) == (
        "pg-job-1-2-3",
        "node-replica-0",
    )
    assert answer.warnings == (
        f"metadata.annotations[{GROUP}]: replaced by pg-job-1-2-3, the PodGroup of the pod",
    )


JOB_LABELS = {
    "batch.kubernetes.io/job-name": "train",
    "batch.kubernetes.io/controller-uid": "4-5",
    GANG: "Main",
}


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
def test_a_pod_of_a_job_is_in_no_sub_group(rules: GroupingRules) -> None:
    """The PodGroup of a Job is flat, and follows from the labels of the Job controller."""
    given = pod(labels=JOB_LABELS)
    answer = reviewed_pod(given, rules)

    assert answer.operations == (add("/metadata/annotations", {GROUP: "pg-train-4-5"}),)
    assert reviewed_pod(applied(given, answer), rules).operations == ()


def test_a_pod_of_a_jobset_is_not_one_of_its_job() -> None:
    """It has the labels of both, and the PodGroup is that of the JobSet."""
    given = pod(labels={**JOB_LABELS, **LABELS})

    assert applied(given, reviewed_pod(given))["metadata"]["annotations"][GROUP] == "pg-job-1-2-3"


# metadata -> why it joins no group
FORGED: list[Case[dict[str, Any], str]] = [
    Case("a pod without a controller", {"ownerReferences": None}, "its controller is not a Job"),
    Case(
        "a pod of another kind",
        {"ownerReferences": [{**OWNER, "kind": "ReplicaSet", "apiVersion": "apps/v1"}]},
        "its controller is not a Job",
    ),
    Case(
        "a Job of another group",
        {"ownerReferences": [{**OWNER, "apiVersion": "batch.example.com/v1"}]},
        "its controller is not a Job",
    ),
    Case(
        "an owner that is no controller",
        {"ownerReferences": [{**OWNER, "controller": False}]},
        "its controller is not a Job",
    ),
    *(
        Case(f"no {name}", {"labels": without(name)}, f"it lacks the label {name}")
        for name in without(GANG)
    ),
    Case(
        "a Job without a uid",
        {"labels": {**JOB_LABELS, "batch.kubernetes.io/controller-uid": ""}},
        "it lacks the label batch.kubernetes.io/controller-uid",
    ),
    Case(
        "an empty label is none",
        {"labels": {**LABELS, "jobset.sigs.k8s.io/jobset-uid": ""}},
        "it lacks the label jobset.sigs.k8s.io/jobset-uid",
    ),
]


@pytest.mark.parametrize("case", FORGED, ids=ids)
def test_forged_pods_join_no_group(case: Case[dict[str, Any], str]) -> None:
    """They are let through as they are, with a warning."""
    answer = reviewed_pod(pod(**case.given))

    assert answer.operations == ()
    assert answer.denial is None
    assert answer.warnings == (
        f"metadata.labels[trainer-kai.dev/gang]: the pod is added to no PodGroup: {case.want}",
    )


def test_an_external_scheduler_gets_the_group_only() -> None:
    """Its groups are flat; the labels of a PodSet are not needed."""
    labels = {"labels": without("jobset.sigs.k8s.io/job-index")}

    answer = reviewed_pod(pod(**labels), EXTERNAL)

    assert answer.operations == (add("/metadata/annotations", {GROUP: "pg-job-1-2-3"}),)


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE"},
        {"subResource": "binding"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {}},
    ],
)
def test_what_is_no_new_pod_is_left_alone(fields: dict[str, Any]) -> None:
    asked = request(pod(), **({"kind": POD} | fields))

    assert mutate_pod(asked, "bundled") == UNCHANGED


def test_a_pod_that_cannot_be_read_is_refused() -> None:
    """It says where the fault is."""
    answer = reviewed_pod(pod(labels=["x"]))

    assert answer.denial is not None
    assert answer.denial.code == 400
    assert answer.denial.message.startswith("request.object.metadata.labels: must be an object")


def test_a_real_pod_gets_its_group() -> None:
    asked = json.loads(recorded("pod-create"))["request"]
    uid = asked["object"]["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"]

    answer = mutate_pod(request(asked["object"], POD), BUNDLED.mode)
    patched = applied(asked["object"], answer)["metadata"]

    assert patched["annotations"][GROUP] == f"pg-deepspeed-{uid}"
    assert patched["labels"][LEAF] == "node-replica-0"
    assert len(msgspec.json.encode(answer.operations)) < 400
