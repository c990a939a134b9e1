"""Deployments and other objects with one pod template in `trainer-kai simulate`."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.pod_owners import owned_by, pod_owner, template
from tests.support.workloads.simulate_objects import node, pod, queue
from trainer_kai.api.names import POD_GROUP
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, prepare, simulate
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.named_kinds import POD_OWNERS, NamedKind
from trainer_kai.cli.input.pod_owners import TEMPLATE_KINDS
from trainer_kai.errors import ConfigError

MIN_MEMBER: Final = "kai.scheduler/batch-min-member"


def prepared(*objects: dict[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the PodGroup of each pod, and the notes."""
    found = prepare((Document("a.yaml", it) for it in objects), SimulationOptions())
    groups = {
        key.name: it.metadata.annotations.get(POD_GROUP, "")
        for key, it in found.cluster.pods.items()
    }
    return groups, tuple(it for it in found.notes if "PriorityClass" not in it)


STOPPED: Final = {"kubeflow-resource-stopped": "2026-01-05T09:00:00Z"}
CASES: Final[list[Case[dict[str, Any], dict[str, str]]]] = [
    Case(
        "a Deployment",
        pod_owner("Deployment", replicas=2),
        {"web-pod-0": "pg-web-UID", "web-pod-1": "pg-web-UID"},
    ),
    Case("one replica is the default", pod_owner("ReplicaSet"), {"web-pod-0": "pg-web-UID"}),
    Case(
        "a StatefulSet",
        pod_owner("StatefulSet", replicas=2),
        {"web-0": "pg-web-UID", "web-1": "pg-web-UID"},
    ),
    Case("a Notebook", pod_owner("Notebook"), {"web-0": "pg-web-UID"}),
    Case("a Notebook that is stopped", pod_owner("Notebook", annotations=STOPPED), {}),
    Case(
        "no podgrouper for it",
        pod_owner("Notebook", annotations={"kai.scheduler/skip-podgrouper": "true"}),
        {"web-0": ""},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_pods_that_an_object_will_have(case: Case[dict[str, Any], dict[str, str]]) -> None:
    assert prepared(case.given)[0] == case.want


def test_they_are_planned_as_one_podgroup() -> None:
    """With the queue, the class of the kind, and the minimum of the Deployment."""
    web = pod_owner("Deployment", replicas=3, annotations={MIN_MEMBER: "2"})
    document = simulate([web, node("n", 2), queue("team-a")])
    (group,) = document["podGroups"]
    assert (group["name"], group["queue"]) == ("pg-web-UID", "team-a")
    assert len(document["cycles"][0]["binds"]) == 2
    inputs = prepare([Document("a.yaml", web)], SimulationOptions())
    (created,) = inputs.cluster.pod_groups.values()
    assert (created.spec.min_member, created.spec.priority_class_name) == (2, "inference")


def test_pods_that_exist_are_grouped_by_their_owners() -> None:
    """The ReplicaSet between them does not count, and no pods are made beside them."""
    web = pod_owner("Deployment", replicas=3, uid="u1")
    below = pod_owner("ReplicaSet", "web-1", uid="u2", ownerReferences=owned_by(web, "u1"))
    running = pod("p0", on="n", ownerReferences=owned_by(below, "u2"))
    by_hand = pod("p1", "mine", ownerReferences=owned_by(below, "u2"))
    forged = pod("p2", ownerReferences=owned_by(below, "u3"))
    groups, _ = prepared(web, below, running, by_hand, forged)

    assert groups == {"p0": "pg-web-u1", "p1": "mine", "p2": ""}


def test_the_pods_of_a_set_of_another_workload_are_those_of_that() -> None:
    """A LeaderWorkerSet makes StatefulSets: its own pods are made."""
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"leaderWorkerTemplate": {"size": 1, "workerTemplate": template()}},
    }
    below = pod_owner("StatefulSet", "x", ownerReferences=owned_by(lws))

    assert [*prepared(lws, below)[0]] == ["x-group-0-leader-0"]


def test_those_of_another_scheduler_are_told() -> None:
    others = [
        pod_owner("Deployment", name, template=template(scheduler=""), labels={})
        for name in ("a", "b")
    ]
    groups, notes = prepared(*others)

    assert groups == {}
    (note,) = notes
    path = "spec.template.spec.schedulerName"
    assert note.startswith(f"Deployment default/a and 1 more: makes no pods: {path}: the pods are")


@pytest.mark.parametrize(
    "it", [it for it in POD_OWNERS if it.group_kind not in TEMPLATE_KINDS], ids=lambda it: it.kind
)
def test_kinds_whose_pods_are_not_known_are_told(it: NamedKind) -> None:
    """A CronJob is read, and says itself that only its Jobs count."""
    if it.kind == "CronJob":
        return
    api_version = f"{it.group}/{it.version}"
    fields = {"apiVersion": api_version, "kind": it.kind, "metadata": {"name": "x"}}
    why = f"{api_version} {it.kind}, because only its controller knows its pods: add these instead"

    assert prepared(fields, node("n"))[1] == (f"ignored: {why} (1)",)
    with pytest.raises(ConfigError, match="only its controller knows its pods"):
        prepared(fields)
