"""Ray clusters, jobs and services as workloads: their PodGroups, and what suspends them."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.workloads.objects import (
    findings,
    in_words,
    manifests,
    template,
    workload,
)
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.ray import RayCluster
from trainer_kai.policy.workloads.ray import (
    RAY_CLUSTER_KIND,
    RAY_JOB_KIND,
    RAY_SERVICE_KIND,
    ray_cluster_workload,
    ray_pod_place,
)
from trainer_kai.policy.workloads.workload import PodPlace, Workload


def group(name: str, **fields: Any) -> Any:
    return {"groupName": name, "template": template(), **fields}


def spec(*groups: Any, **fields: Any) -> Any:
    return {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups, **fields}


def cluster(*groups: Any, **fields: Any) -> Workload:
    return workload(RAY_CLUSTER_KIND, spec(*groups, **fields))


AUTOSCALED = {"enableInTreeAutoscaling": True}
PODGROUPS: list[Case[Workload, str]] = [
    Case("the head alone", cluster(), "pg-x-U 1: headgroup 1"),
    Case(
        "vector 19: the smallest number of replicas, of each group",
        cluster(group("a", minReplicas=1, replicas=3, numOfHosts=2), group("b", replicas=2)),
        "pg-x-U 3: headgroup 1, a 2, b 2",
    ),
    Case(
        "a group that is suspended needs no pods",
        cluster(group("a", replicas=3, suspend=True), group("b", replicas=2)),
        "pg-x-U 3: headgroup 1, a 0, b 2",
    ),
    Case(
        "an autoscaler begins with no pods",
        cluster(group("a", minReplicas=0, replicas=0), **AUTOSCALED),
        "pg-x-U 2: headgroup 1, a 0",
    ),
    Case(
        "an autoscaler may go back to no pods",
        cluster(group("a", minReplicas=0, replicas=3), **AUTOSCALED),
        "pg-x-U 2: headgroup 1, a 0",
    ),
    Case(
        "KubeRay raises the replicas to the smallest number",
        cluster(group("a", minReplicas=3, replicas=1)),
        "pg-x-U 2: headgroup 1, a 3",
    ),
    Case("no name", cluster(group("", replicas=1)), "pg-x-U 2: headgroup 1, worker-group-0 1"),
    Case(
        "a group of another scheduler",
        cluster(group("a", replicas=1, template=template("default-scheduler"))),
        "pg-x-U 1: headgroup 1",
    ),
]


@pytest.mark.parametrize("case", PODGROUPS, ids=ids)
def test_the_podgroup_of_a_cluster(case: Case[Workload, str]) -> None:
    assert in_words(case.given) == [case.want]


def test_two_groups_of_one_name_are_reported() -> None:
    it = cluster(group("a", replicas=1), group("a", replicas=2))

    assert in_words(it) == ["pg-x-U 2: headgroup 1, a 1"]
    assert findings(it) == [
        (
            "spec.workerGroupSpecs[1].groupName: 'a' is the name of another group. Its pods "
            "are in no PodGroup"
        )
    ]


def owned(api_version: str, kind: str) -> RayCluster:
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}
    meta = {"name": "x", "namespace": "team", "uid": "U", "ownerReferences": [owner]}
    return decode(RayCluster, encode({"metadata": meta, "spec": spec()}))


def test_the_cluster_of_a_job_or_service_is_a_part_of_it() -> None:
    assert ray_cluster_workload(owned("ray.io/v1", "RayJob")) is None
    assert ray_cluster_workload(owned("ray.io/v1alpha1", "RayService")) is None
    assert ray_cluster_workload(owned("example.com/v1", "Pipeline")) is not None


def test_a_service_has_the_podgroup_of_its_cluster() -> None:
    it = workload(RAY_SERVICE_KIND, {"rayClusterConfig": spec(group("a", replicas=2))})

    assert in_words(it) == ["pg-x-U 2: headgroup 1, a 2"]
    assert not it.as_suspendable().is_managed_here


def ray_job(**fields: Any) -> Workload:
    return workload(RAY_JOB_KIND, {"rayClusterSpec": spec(group("a", replicas=2)), **fields})


def test_the_pod_that_submits_a_job_is_a_podgroup_of_its_own() -> None:
    """It is created when the cluster runs, so the cluster does not wait for it."""
    assert in_words(ray_job()) == ["pg-x-U 2: headgroup 1, a 2"]
    assert in_words(ray_job(submitterPodTemplate=template())) == [
        "pg-x-U 2: headgroup 1, a 2",
        "pg-x-U-submitter 1",
    ]
    assert in_words(ray_job(submitterPodTemplate=template("default-scheduler"))) == [
        "pg-x-U 2: headgroup 1, a 2"
    ]


def test_a_job_on_the_cluster_of_another_object_has_only_its_submitter() -> None:
    it = ray_job(clusterSelector={"ray.io/cluster": "c"}, submitterPodTemplate=template())

    assert in_words(it) == ["pg-x-U-submitter 1"]


SUSPENDABLE: list[Case[Any, bool]] = [
    Case("by default KubeRay refuses it", {}, False),
    Case("it shuts its cluster down", {"shutdownAfterJobFinishes": True}, True),
    Case(
        "the cluster is that of another object",
        {"shutdownAfterJobFinishes": True, "clusterSelector": {"a": "b"}},
        False,
    ),
]


@pytest.mark.parametrize("case", SUSPENDABLE, ids=ids)
def test_which_jobs_are_suspended(case: Case[Any, bool]) -> None:
    """The others are evicted by their pods."""
    found = ray_job(**case.given)

    assert found.as_suspendable().is_managed_here == case.want
    assert found.is_managed_here


def test_the_state_of_a_job() -> None:
    ended = workload(RAY_JOB_KIND, {"rayClusterSpec": spec()}, {"jobDeploymentStatus": "Complete"})

    assert ended.is_over
    assert not ray_job().is_over
    assert ray_job(suspend=True).is_suspended
    assert not ray_job(managedBy="kueue.x-k8s.io/multikueue").is_managed_here


PLACES: list[Case[dict[str, str], str]] = [
    Case("a worker", {"ray.io/group": "a", "ray.io/node-type": "worker"}, "a"),
    Case("the head", {"ray.io/group": "headgroup", "ray.io/node-type": "head"}, "headgroup"),
    Case("a head of an older version", {"ray.io/node-type": "head"}, "headgroup"),
    Case("the submitter", {"job-name": "x"}, "submitter"),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_the_place_of_a_pod(case: Case[dict[str, str], str]) -> None:
    assert ray_pod_place(case.given) == PodPlace(case.want, "0", (0, 0))


def test_rays_own_label_names_the_class() -> None:
    labels = {"ray.io/priority-class-name": "high", "priorityClassName": "low"}
    it = workload(RAY_CLUSTER_KIND, spec(), labels=labels)

    assert manifests(it)[0]["spec"]["priorityClassName"] == "high"


def test_a_group_has_its_own_topology() -> None:
    annotations = {
        "kai.scheduler/topology": "racks",
        "kai.scheduler/topology-required-placement": "rack",
    }
    it = cluster(group("a", replicas=1, template=template(annotations=annotations)))
    head, workers = manifests(it)[0]["spec"]["subGroups"]

    assert "topologyConstraint" not in head
    assert workers["topologyConstraint"] == {"topology": "racks", "requiredTopologyLevel": "rack"}


def count_paths(it: Workload) -> list[str]:
    return [
        it.own_path(f"spec.replicatedJobs[{i}].template.spec.parallelism")
        for i in range(len(it.spec.replicated_jobs))
    ]


def test_fields_have_the_names_of_the_manifest() -> None:
    """Of a group the number that decides how many pods start; a head has none."""
    it = cluster(group("a", minReplicas=1, replicas=3), group("b", replicas=2))
    service = workload(RAY_SERVICE_KIND, {"rayClusterConfig": spec(group("a", replicas=2))})
    submitted = {"rayClusterSpec": spec(), "submitterPodTemplate": template()}
    pod = "spec.replicatedJobs[1].template.spec.template.spec.schedulerName"

    assert count_paths(it) == [
        "spec.headGroupSpec",
        "spec.workerGroupSpecs[0].minReplicas",
        "spec.workerGroupSpecs[1].replicas",
    ]
    assert count_paths(service)[1] == "spec.rayClusterConfig.workerGroupSpecs[0].replicas"
    assert it.own_path(pod) == "spec.workerGroupSpecs[0].template.spec.schedulerName"
    assert workload(RAY_JOB_KIND, submitted).own_path(pod) == (
        "spec.submitterPodTemplate.spec.schedulerName"
    )
