"""The PodGroup of other kinds: its queue, class, minimum and the rest, and whose word counts."""

from typing import Any, NamedTuple

import pytest

from tests.trainer_kai.policy.podgroups.default_groups import (
    CLASS,
    CLASSES,
    MINIMUM,
    POOL,
    PREEMPTIBILITY,
    PROJECT,
    QUEUE,
    group_of,
    owner,
)
from trainer_kai.policy.podgroups.default_group import (
    DefaultGroup,
    default_group_findings,
    default_podgroup,
)
from trainer_kai.policy.queueing.kind_defaults import NO_CHANGES
from trainer_kai.policy.queueing.queue_resolution import queue_of_owner
from trainer_kai.policy.workloads.owner_chain import (
    GroupSubject,
    OwnerChain,
    OwnerRecord,
    group_subject,
)

# labels of the owner and of the pod → the queue
QUEUES: list[tuple[str, dict[str, str], dict[str, str], str]] = [
    ("of the owner", {QUEUE: "a"}, {QUEUE: "b"}, "a"),
    ("of the pod", {QUEUE: ""}, {QUEUE: "b"}, "b"),
    ("before a project", {PROJECT: "p"}, {QUEUE: "b"}, "b"),
    ("of the project", {PROJECT: "p"}, {}, "p"),
    ("of the project and the pool of the pod", {PROJECT: "p"}, {POOL: "x"}, "p-x"),
    ("the pool of the owner does not count", {PROJECT: "p", POOL: "x"}, {}, "p"),
    ("the pool alone names none", {}, {POOL: "x"}, ""),
    ("none", {}, {}, ""),
]


@pytest.mark.parametrize("case", QUEUES, ids=lambda it: it[0])
def test_the_queue(case: tuple[str, dict[str, str], dict[str, str], str]) -> None:
    _, of_owner, of_pod, expected = case
    assert queue_of_owner(of_owner, of_pod) == expected


class Case(NamedTuple):
    words: str
    group: DefaultGroup
    expected: dict[str, Any]


NEAR = owner("example.com/v1/Near", labels={CLASS: "low", PREEMPTIBILITY: "non-preemptible"})
FAR = owner("example.com/v1/Far", labels={CLASS: "high", PREEMPTIBILITY: "preemptible"})
CASES = [
    Case("nothing is said", group_of(owner()), {"priorityClassName": "inference"}),
    Case("the nearest owner counts", group_of(NEAR, FAR),
         {"priorityClassName": "low", "preemptibility": "non-preemptible"}),
    Case("then a farther one", group_of(owner(), FAR, pod={CLASS: "mid"}),
         {"priorityClassName": "high", "preemptibility": "preemptible"}),
    Case("then the label of the pod", group_of(owner(), pod={CLASS: "mid"}, priority_class="low"),
         {"priorityClassName": "mid"}),
    Case("then its class", group_of(owner(), priority_class="low"), {"priorityClassName": "low"}),
    Case("a class that does not exist is passed over",
         group_of(owner(labels={CLASS: "none"}), priority_class="low"),
         {"priorityClassName": "low"}),
    Case("an invalid value is passed over",
         group_of(owner(labels={PREEMPTIBILITY: "no"}), pod={PREEMPTIBILITY: "preemptible"}),
         {"preemptibility": "preemptible"}),
    Case("a minimum", group_of(owner(annotations={MINIMUM: "4"})), {"minMember": 4}),
    Case("of one that makes pods in order",
         group_of(owner(is_ordered=True, annotations={MINIMUM: "4"})), {"minMember": 1}),
    Case("no number", group_of(owner(annotations={MINIMUM: "-1"})), {"minMember": 1}),
    Case("of a nearer owner it does not count",
         group_of(owner(annotations={MINIMUM: "4"}), FAR),
         {"minMember": 1, "priorityClassName": "high"}),
    Case("a topology", group_of(owner(annotations={
        "kai.scheduler/topology": "dc", "kai.scheduler/topology-preferred-placement": "rack"})),
        {"topologyConstraint": {"topology": "dc", "preferredTopologyLevel": "rack"}}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda it: it.words)
def test_the_spec(case: Case) -> None:
    spec = default_podgroup(case.group, "q", CLASSES, NO_CHANGES)["spec"]
    default = NO_CHANGES.of("apps", case.group.owner.kind).priority_class
    wanted = {"queue": "q", "priorityClassName": default, "minMember": 1, **case.expected}
    assert {name: spec.get(name) for name in wanted} == wanted


def test_the_metadata() -> None:
    """A pool of the owner before that of the pod; the owner as KAI writes it."""
    group = group_of(owner(labels={POOL: "x"}), pod={POOL: "y"})
    meta = default_podgroup(group, "q", CLASSES, NO_CHANGES)["metadata"]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert meta["name"] == "pg-deployment-u-deployment"
    assert meta["labels"] == {"trainer-kai.dev/gang": "Main", QUEUE: "q", POOL: "x"}
    assert meta["ownerReferences"] == [{**reference, "name": "deployment", "uid": "u-deployment"}]
    assert meta["annotations"] == {
        "trainer-kai.dev/stage": "1/1",
        "trainer-kai.dev/members": "pods of Deployment deployment",
        "kai.scheduler/top-owner-metadata": (
            "name: deployment\nuid: u-deployment\ngroup: apps\nversion: v1\nkind: Deployment\n"
        ),
    }


# owners, the nearest first → the owner of the PodGroup, and its queue
SUBJECTS: list[tuple[str, tuple[OwnerRecord, ...], str, str]] = [
    ("no owner", (), "", ""),
    ("the last one", (NEAR, owner(labels={QUEUE: "a"})), "deployment", "a"),
    ("a wrapper", (owner(), owner("argoproj.io/v1/Workflow", labels={QUEUE: "w"})),
     "deployment", "w"),
    ("the nearer label counts",
     (owner(labels={QUEUE: "a"}), owner("batch/v1/CronJob", labels={QUEUE: "w"})),
     "deployment", "a"),
    ("two wrappers", (owner(), owner("trainer.kubeflow.org/v1/TrainJob", labels={QUEUE: "t"}),
                      owner("argoproj.io/v1/Workflow", labels={QUEUE: "w"})), "deployment", "t"),
    ("only a wrapper", (owner("run.ai/v1/TrainingWorkload", labels={QUEUE: "r"}),), "", "r"),
    ("a wrapper in the middle is an owner",
     (owner(), owner("argoproj.io/v1/Workflow"), FAR), "far", ""),
    ("its kind in another group", (owner("example.com/v1/Workflow"),), "workflow", ""),
]  # fmt: skip


@pytest.mark.parametrize("case", SUBJECTS, ids=lambda it: it[0])
def test_what_a_podgroup_is_for(case: tuple[str, tuple[OwnerRecord, ...], str, str]) -> None:
    _, owners, name, queue = case
    subject: GroupSubject = group_subject(OwnerChain("ns", owners))
    assert (subject.owner.reference.name if subject.owner else "") == name
    assert subject.labels.get(QUEUE, "") == queue


def test_what_is_said_of_invalid_values() -> None:
    """An invalid queue is kept, so that no pod runs in another."""
    said = {CLASS: "A", PREEMPTIBILITY: "no", QUEUE: "Team"}
    found = group_of(owner(is_ordered=True, labels=said, annotations={MINIMUM: "2"}))
    findings = [*default_group_findings(found.subject)]
    assert [(it.path, it.blocks) for it in findings] == [
        (f"metadata.labels[{QUEUE}]", True),
        (f"metadata.labels[{PREEMPTIBILITY}]", False),
        (f"metadata.labels[{CLASS}]", False),
        (f"metadata.annotations[{MINIMUM}]", False),
    ]
    assert "one after another" in str(findings[-1])


class Row(NamedTuple):
    """What owns a pod, the nearest first, and its PodGroup."""

    words: str
    owners: tuple[OwnerRecord, ...]
    name: str
    min_member: int = 1
    priority_class: str = "train"


SCALE = "autoscaling.knative.dev/min-scale"
KNATIVE_OWNERS = (
    owner("serving.knative.dev/v1/Configuration"),
    owner("serving.knative.dev/v1/Service", labels={QUEUE: "a"}),
)
REPLICAS = (owner("apps/v1/ReplicaSet"), owner())


def revision(**annotations: str) -> OwnerRecord:
    return owner("serving.knative.dev/v1/Revision", annotations=annotations)


# Vectors 23 to 26 of KAI, and the kinds of which nothing but the owners is known.
ROWS = [
    Row("a Deployment (23)", REPLICAS, "pg-deployment-u-deployment", priority_class="inference"),
    Row("a ReplicaSet", (owner("apps/v1/ReplicaSet"),), "pg-replicaset-u-replicaset"),
    Row("a StatefulSet", (owner("apps/v1/StatefulSet"),), "pg-statefulset-u-statefulset"),
    Row(
        "a Notebook",
        (owner("apps/v1/StatefulSet"), owner("kubeflow.org/v1beta1/Notebook")),
        "pg-notebook-u-notebook",
        priority_class="build",
    ),
    Row("a kind that may not be read (25)", (), "pg-p-u"),
    Row("an unknown kind (26)", (owner("example.com/v1/Thing"),), "pg-thing-u-thing"),
    Row(
        "a revision of Knative",
        (*REPLICAS, revision(**{SCALE: "3"}), *KNATIVE_OWNERS),
        "pg-revision-u-revision",
        3,
        "inference",
    ),
    Row(
        "one that may have no pods",
        (*REPLICAS, revision(**{SCALE: "0"}), *KNATIVE_OWNERS),
        "pg-revision-u-revision",
        priority_class="inference",
    ),
    Row(
        "one with a wrong number",
        (*REPLICAS, revision(**{SCALE: "x"}), *KNATIVE_OWNERS),
        "pg-revision-u-revision",
        priority_class="inference",
    ),
    Row(
        "its own minimum counts first",
        (*REPLICAS, revision(**{SCALE: "3", MINIMUM: "2"}), *KNATIVE_OWNERS),
        "pg-revision-u-revision",
        2,
        "inference",
    ),
    Row(
        "an executor of Spark",
        (owner("v1/Pod"), owner("sparkoperator.k8s.io/v1beta2/SparkApplication")),
        "pg-sparkapplication-u-sparkapplication",
    ),
    Row("a step of a Workflow", (owner("argoproj.io/v1alpha1/Workflow"),), "pg-p-u"),
    Row(
        "an object that a Workflow creates",
        (owner("example.com/v1/Thing"), owner("argoproj.io/v1alpha1/Workflow")),
        "pg-thing-u-thing",
    ),
    Row(
        "a graph of Dynamo",
        (
            owner("grove.io/v1alpha1/PodClique"),
            owner("grove.io/v1alpha1/PodCliqueSet"),
            owner("nvidia.com/v1alpha1/DynamoGraphDeployment"),
        ),
        "pg-podcliqueset-u-podcliqueset",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda it: it.words)
def test_the_podgroup_of_a_kind(row: Row) -> None:
    fields = default_podgroup(group_of(*row.owners), "q", CLASSES, NO_CHANGES)

    assert fields["metadata"]["name"] == row.name
    assert fields["spec"]["minMember"] == row.min_member
    assert fields["spec"]["priorityClassName"] == row.priority_class


def test_the_labels_of_a_skipped_owner_count() -> None:
    subject = group_of(*REPLICAS, revision(), *KNATIVE_OWNERS).subject

    assert subject.labels[QUEUE] == "a"
