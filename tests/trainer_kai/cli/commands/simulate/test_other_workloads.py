"""Workloads that admission does not mark in `trainer-kai simulate`: their pods and PodGroups."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import group, node, pod, queue
from trainer_kai.api.names import POD_GROUP, SUBGROUP
from trainer_kai.cli.commands.simulate.create_pods import create_missing_objects
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, prepare, run
from trainer_kai.cli.commands.simulate.text_output import as_text
from trainer_kai.cli.input.cluster import InputCluster, read_cluster
from trainer_kai.cli.input.documents import Document
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.kind_defaults import KindDefaults

RULES: Final = GroupingRules("bundled", "kai-scheduler", "default-queue")
_CONTAINER: Final = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
TEMPLATE: Final = {"spec": {"schedulerName": "kai-scheduler", "containers": [_CONTAINER]}}


def workload(api_version: str, kind: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    labels = {"kai.scheduler/queue": "team-a"}
    meta = {"name": "x", "namespace": "default", "labels": labels, **metadata}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def mpi_job(version: str = "v2beta1", **spec: Any) -> dict[str, Any]:
    specs = {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}
    return workload(f"kubeflow.org/{version}", "MPIJob", {"mpiReplicaSpecs": specs, **spec})


def lws(replicas: int) -> dict[str, Any]:
    template = {"size": 5, "workerTemplate": TEMPLATE, "subGroupPolicy": {"subGroupSize": 2}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": template}
    return workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)


def grouped(*objects: dict[str, Any]) -> InputCluster:
    inputs = read_cluster(Document("a.yaml", it) for it in objects)
    create_missing_objects(inputs, RULES)
    return inputs


def places(inputs: InputCluster) -> dict[str, tuple[str, str]]:
    """Return the PodGroup and the sub-group of each pod."""
    metas = [it.metadata for it in inputs.cluster.pods.values()]
    return {
        it.name: (it.annotations.get(POD_GROUP, ""), it.labels.get(SUBGROUP, "")) for it in metas
    }


def test_the_pods_of_each_group_are_in_its_segments() -> None:
    found = places(grouped(lws(2)))

    assert found == {
        f"x-group-{number}-{name}": (f"pg-x-UID-group-{number}", subgroup)
        for number in range(2)
        for name, subgroup in (
            ("leader-0", "leader"),
            ("worker-1", "workers"),
            ("worker-2", "workers"),
            ("worker-3", "segment-1"),
            ("worker-4", "segment-1"),
        )
    }


def test_a_launcher_that_waits_has_no_pod_yet() -> None:
    """A place is reserved for it."""
    job = mpi_job(launcherCreationPolicy="WaitForWorkersReady")
    assert list(places(grouped(job))) == ["x-worker-0", "x-worker-1"]

    options = SimulationOptions()
    documents = [Document("a.yaml", it) for it in (job, node("n"), queue("team-a"))]
    text = as_text(run(prepare(documents, options), options))
    assert "reserved on n: 1 for launcher of default/pg-x-UID" in text


def test_both_versions_of_a_job_are_read() -> None:
    for version in ("v1", "v2beta1"):
        assert len(places(grouped(mpi_job(version)))) == 3


def test_pods_that_exist_are_not_made_again() -> None:
    """A label names the job, and several kinds have that label."""
    labels = {
        "training.kubeflow.org/job-name": "x",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    specs = {"Worker": {"replicas": 2, "template": TEMPLATE}}
    jax = workload("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": specs})
    it = pod("p")
    it["metadata"]["labels"] = labels

    assert places(grouped(jax, it)) == {"p": ("pg-x-UID", "")}


def test_pods_of_a_ray_cluster_belong_to_its_job() -> None:
    cluster = {"headGroupSpec": {"template": TEMPLATE}}
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "x", "controller": True}
    job = workload("ray.io/v1", "RayJob", {"rayClusterSpec": cluster})
    own = workload("ray.io/v1", "RayCluster", cluster, name="x-abc", ownerReferences=[owner])
    it = pod("head")
    it["metadata"]["labels"] = {"ray.io/cluster": "x-abc", "ray.io/group": "headgroup"}

    assert places(grouped(job, own, it)) == {"head": ("pg-x-UID", "headgroup")}


def test_a_workload_of_another_scheduler_makes_no_pods() -> None:
    other = {"spec": {"schedulerName": "volcano", "containers": [_CONTAINER]}}
    specs = {"Worker": {"replicas": 2, "template": other}}
    inputs = grouped(workload("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": specs}))

    assert places(inputs) == {}
    (note,) = inputs.notes
    path = "spec.jaxReplicaSpecs.Worker.template.spec.schedulerName"
    assert note.startswith(f"JAXJob default/x: makes no pods: {path}: the pods are for scheduler")


def test_the_defaults_of_a_kind_and_the_queue_of_the_namespace() -> None:
    labels = {"kai.scheduler/queue": "team-n"}
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": labels},
    }
    job = mpi_job()
    del job["metadata"]["labels"]
    inputs = read_cluster(Document("a.yaml", it) for it in (job, space))
    defaults = KindDefaults({"MPIJob": ("build", "preemptible")})
    create_missing_objects(inputs, RULES._replace(kind_defaults=defaults))

    (group,) = inputs.cluster.pod_groups.values()
    assert group.spec.queue == "team-n"
    assert (group.spec.priority_class_name, group.spec.preemptibility) == ("build", "preemptible")


# What is evicted, the labels of its pod -> the kind that is suspended, and the word of the table.
_RAY_CLUSTER: Final = {"headGroupSpec": {"template": TEMPLATE}}
EVICTED: Final = [
    Case(
        "a PyTorchJob",
        (
            workload(
                "kubeflow.org/v1",
                "PyTorchJob",
                {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}}},
            ),
            {
                "training.kubeflow.org/job-name": "x",
                "training.kubeflow.org/replica-type": "master",
            },
        ),
        ("PyTorchJob", "suspended by reclaim: default/p"),
    ),
    Case(
        "a RayService, which KubeRay does not suspend",
        (
            workload("ray.io/v1", "RayService", {"rayClusterConfig": _RAY_CLUSTER}),
            {"ray.io/originated-from-cr-name": "x", "ray.io/group": "headgroup"},
        ),
        (None, "evicted by reclaim: default/p"),
    ),
]


@pytest.mark.parametrize("case", EVICTED, ids=ids)
def test_what_is_suspended_is_told_from_what_loses_its_pods(
    case: Case[tuple[dict[str, Any], dict[str, str]], tuple[str | None, str]],
) -> None:
    it, labels = case.given
    running = pod("p", on="n", labels=labels)
    claimed = [group("want", 1, "team-b"), pod("want-0", "want", 1)]
    site = [node("n", 1), queue("team-a", 0), queue("team-b", 1)]
    options = SimulationOptions()
    documents = [Document("a.yaml", obj) for obj in (*site, it, running, *claimed)]

    outcome = run(prepare(documents, options), options)

    (evicted,) = outcome.document["cycles"][0]["evictions"]
    assert (evicted.get("suspends"), "p") == (case.want[0], evicted["pod"])
    assert f"  {case.want[1]}\n" in as_text(outcome)
