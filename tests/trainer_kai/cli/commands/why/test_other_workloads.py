"""The report on workloads that admission does not mark: jobs of Kubeflow, Ray, LeaderWorkerSets."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.why.trainjob_cluster import TrainJobCluster
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.resources import (
    DEPLOYMENTS,
    JOBS,
    PODGROUPS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from trainer_kai.cli.commands.plan.preview import PreviewContext, preview_workload
from trainer_kai.cli.commands.why.command import parse_subject
from trainer_kai.cli.commands.why.output import as_text
from trainer_kai.cli.commands.why.owners_below import OWNER_RESOURCES
from trainer_kai.cli.input.named_kinds import NAMED_KINDS, POD_OWNERS, NamedKind
from trainer_kai.errors import ConfigError
from trainer_kai.policy.queueing.kind_defaults import OF_KAI
from trainer_kai.policy.workloads.kinds import KINDS
from trainer_kai.policy.workloads.kubeflow import MPI_V1_KIND, PYTORCH_KIND
from trainer_kai.policy.workloads.leader_worker_set import LWS_KIND
from trainer_kai.policy.workloads.owner_chain import WRAPPERS
from trainer_kai.policy.workloads.ray import RAY_CLUSTER_KIND, RAY_JOB_KIND
from trainer_kai.policy.workloads.workload import WorkloadKind

SCHEDULER: Final = "kai-scheduler"
TEMPLATE: Final = {"spec": {"schedulerName": SCHEDULER}}
PYTORCH: Final = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}}
CLUSTER: Final = {"headGroupSpec": {"template": TEMPLATE}}


class OtherCluster(TrainJobCluster):
    def submit(self, kind: WorkloadKind, spec: Any, **more: Any) -> list[str]:
        """Have a workload *x* with its PodGroups; return their names."""
        meta = {"name": "x", "namespace": "default", "uid": "uid-x", **more.pop("metadata", {})}
        it = {"metadata": meta, "spec": spec, "status": more.pop("status", {})}
        self.store.put(kind.resource, it)
        workload = kind.adapt(decode(kind.resource.struct, encode(it)))
        if workload is None:
            return []
        context = PreviewContext("bundled", SCHEDULER, "default-queue")
        groups = preview_workload(workload, context).manifests
        for group in groups:
            self.store.put(PODGROUPS, group)
        return [group["metadata"]["name"] for group in groups]

    def pod(self, name: str, group: str, node: str = "") -> None:
        meta = {"namespace": "default", "name": name, "uid": name}
        spec = {"schedulerName": SCHEDULER, "nodeName": node}
        status = {"phase": "Running" if node else "Pending"}
        annotations = {"pod-group-name": group}
        self.store.put(
            PODS, {"metadata": {**meta, "annotations": annotations}, "spec": spec, "status": status}
        )


async def test_the_pods_of_a_job_of_kubeflow() -> None:
    cluster = OtherCluster()
    (group,) = cluster.submit(PYTORCH_KIND, PYTORCH)
    for i in range(2):
        cluster.pod(f"x-worker-{i}", group, "node-1")
    report = await cluster.why_of("PyTorchJob", "x")

    assert report.state == "runs"
    assert [it.podgroup.name for it in report.podgroups] == [group]
    assert report.podgroups[0].counts.running == 2


async def test_each_group_of_a_set_has_its_own_pods() -> None:
    """Their jobs have the same names."""
    cluster = OtherCluster()
    groups = cluster.submit(
        LWS_KIND, {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}
    )
    for i, group in enumerate(groups):
        cluster.pod(f"x-{i}", group, "node-1" if i else "")
        cluster.pod(f"x-{i}-1", group, "node-1" if i else "")
    report = await cluster.why_of("LeaderWorkerSet", "x")

    assert [it.podgroup.name for it in report.podgroups] == groups
    assert [it.counts.running for it in report.podgroups] == [0, 2]
    assert [it.counts.waiting for it in report.podgroups] == [2, 0]
    assert report.waits


async def test_a_job_of_the_other_version() -> None:
    specs = {"Launcher": {"template": TEMPLATE}, "Worker": {"template": TEMPLATE}}
    cluster = OtherCluster()
    cluster.submit(MPI_V1_KIND, {"mpiReplicaSpecs": specs})

    assert (await cluster.why_of("MPIJob", "x")).podgroups[0].podgroup.name == "pg-x-uid-x"


async def test_the_cluster_of_a_job_is_a_part_of_it() -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "x", "controller": True}
    cluster = OtherCluster()
    cluster.submit(RAY_JOB_KIND, {"rayClusterSpec": CLUSTER})
    cluster.submit(RAY_CLUSTER_KIND, CLUSTER, metadata={"ownerReferences": [owner]})
    report = await cluster.why_of("RayCluster", "x")

    assert (report.kind, report.key.name) == ("RayJob", "x")
    assert "RayCluster x belongs to it" in report.notes


def is_now(kind: str) -> Any:
    return {"conditions": [{"type": kind, "status": "True"}]}


ENDED: list[Case[tuple[WorkloadKind, Any], str]] = [
    Case("Kubeflow", (PYTORCH_KIND, is_now("Failed")), "failed"),
    Case("Kubeflow's is complete", (PYTORCH_KIND, is_now("Succeeded")), "complete"),
    Case("Ray", (RAY_JOB_KIND, {"jobDeploymentStatus": "Complete"}), "complete"),
    Case("Ray failed", (RAY_JOB_KIND, {"jobDeploymentStatus": "Failed"}), "failed"),
]


@pytest.mark.parametrize("case", ENDED, ids=ids)
async def test_workloads_that_are_over(case: Case[tuple[WorkloadKind, Any], str]) -> None:
    kind, status = case.given
    cluster = OtherCluster()
    cluster.submit(kind, PYTORCH if kind is PYTORCH_KIND else {}, status=status)

    assert (await cluster.why_of(kind.resource.kind, "x")).state == case.want


async def test_a_job_that_is_suspended() -> None:
    cluster = OtherCluster()
    cluster.submit(PYTORCH_KIND, {**PYTORCH, "runPolicy": {"suspend": True}})
    report = await cluster.why_of("PyTorchJob", "x")

    assert report.state == "suspended"
    assert "spec.runPolicy.suspend is true" in as_text(report, 200)


async def test_a_service_is_not_left_to_others() -> None:
    """Nothing suspends it, but it is ours."""
    cluster = OtherCluster()
    (kind,) = (it for it in KINDS if it.resource.kind == "RayService")
    cluster.submit(kind, {"rayClusterConfig": CLUSTER})

    assert (await cluster.why_of("RayService", "x")).reason is None


def put_deployment(cluster: OtherCluster) -> str:
    """Have a Deployment *web* with its ReplicaSet and its PodGroup; return the group's name."""
    meta: Any = {"namespace": "default", "name": "web", "uid": "uid-web"}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web"}
    below = {**meta, "name": "web-1", "uid": "uid-web-1"}
    below["ownerReferences"] = [{**owner, "controller": True}]
    cluster.store.put(DEPLOYMENTS, {"metadata": meta})
    cluster.store.put(REPLICA_SETS, {"metadata": below})
    group = {"metadata": {**meta, "name": "pg-web-uid-web", "ownerReferences": [owner]}}
    cluster.store.put(PODGROUPS, {**group, "spec": {"queue": "team-a", "minMember": 1}})
    return "pg-web-uid-web"


async def test_the_pods_of_a_deployment() -> None:
    cluster = OtherCluster()
    cluster.pod("web-1-a", put_deployment(cluster), "node-1")
    report = await cluster.why_of("Deployment", "web")

    assert (report.kind, report.queue, report.state) == ("Deployment", "team-a", "runs")
    assert [it.counts.running for it in report.podgroups] == [1]
    of_set = await cluster.why_of("ReplicaSet", "web-1")
    assert of_set.kind == "Deployment"
    assert "ReplicaSet web-1 belongs to it" in of_set.notes


async def test_a_deployment_without_pods() -> None:
    cluster = OtherCluster()
    cluster.store.put(DEPLOYMENTS, {"metadata": {"namespace": "default", "name": "web"}})
    report = await cluster.why_of("Deployment", "web")

    assert report.waits
    assert report.reason is not None
    assert report.reason.message == "The Deployment has no pods and no PodGroups yet"


async def test_a_job_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="raycluster/x: not found in namespace default"):
        await OtherCluster().why_of("RayCluster", "x")


NAMES: list[Case[str, tuple[str, str]]] = [
    Case("a kind", "rayjob/x", ("RayJob", "x")),
    Case("its plural and group", "pytorchjobs.kubeflow.org/x", ("PyTorchJob", "x")),
    Case("with its version", "mpijob.v2beta1.kubeflow.org/x", ("MPIJob", "x")),
    Case("a short name", "lws/x", ("LeaderWorkerSet", "x")),
    Case("one without an adapter", "deployment/x", ("Deployment", "x")),
]


@pytest.mark.parametrize("case", NAMES, ids=ids)
def test_names_of_kinds(case: Case[str, tuple[str, str]]) -> None:
    assert parse_subject(case.given) == case.want


def test_every_kind_has_its_names() -> None:
    """The kinds with an adapter, the wrappers, and those with defaults of their own."""
    known = {it.group_kind for it in NAMED_KINDS}
    adapted = {(it.resource.group, it.resource.kind) for it in KINDS}
    with_defaults = {tuple(name.split(".", 1)[::-1]) for name in OF_KAI}

    assert known >= adapted | WRAPPERS | with_defaults


@pytest.mark.parametrize("it", NAMED_KINDS, ids=lambda it: it.kind)
def test_a_kind_is_found_by_all_its_names(it: NamedKind) -> None:
    for name in (it.kind, *it.names, *(f"{name}.{it.group}" for name in it.names if it.group)):
        assert parse_subject(f"{name}/x") == (it.kind, "x")


def reference(it: NamedKind) -> dict[str, Any]:
    api_version = f"{it.group}/{it.version}"
    owner = {"apiVersion": api_version, "kind": it.kind, "name": "x", "uid": "uid-x"}
    return {**owner, "controller": True}


def put_pod_owner(cluster: OtherCluster, it: NamedKind) -> None:
    """Have an object *x* of a kind that has a pod: in its own PodGroup, or in that of a Job."""
    owner, name = reference(it), "pg-x-uid-x"
    cluster.store.put(
        OWNER_RESOURCES[it.group_kind],
        {"metadata": {"namespace": "default", "name": "x", "uid": "uid-x"}},
    )
    if it.group_kind in WRAPPERS:
        below = {"namespace": "default", "name": "x-1", "uid": "uid-x-1"}
        cluster.store.put(JOBS, {"metadata": {**below, "ownerReferences": [owner]}, "spec": {}})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x-1", "uid": "uid-x-1"}
        name = "pg-x-1-uid-x-1"
    meta: Any = {"namespace": "default", "name": name, "uid": name, "ownerReferences": [owner]}
    cluster.store.put(PODGROUPS, {"metadata": meta, "spec": {"queue": "team-a", "minMember": 1}})
    cluster.pod("x-a", name, "node-1")


@pytest.mark.parametrize("it", POD_OWNERS, ids=lambda it: it.kind)
async def test_the_pods_of_each_kind_without_an_adapter(it: NamedKind) -> None:
    """Those of a wrapper are in the PodGroups of the objects below it."""
    cluster = OtherCluster()
    put_pod_owner(cluster, it)
    other = {**reference(it), "name": "y", "uid": "uid-y"}
    meta = {"namespace": "default", "name": "pg-y", "uid": "pg-y", "ownerReferences": [other]}
    cluster.store.put(PODGROUPS, {"metadata": meta, "spec": {"queue": "team-b"}})
    report = await cluster.why_of(it.kind, "x")

    assert (report.kind, report.queue, report.state) == (it.kind, "team-a", "runs")
    assert [row.counts.running for row in report.podgroups] == [1]


async def test_the_set_of_a_notebook_belongs_to_it() -> None:
    (notebook,) = (it for it in NAMED_KINDS if it.kind == "Notebook")
    cluster = OtherCluster()
    put_pod_owner(cluster, notebook)
    meta = {"namespace": "default", "name": "x", "uid": "uid-set"}
    below = {**meta, "ownerReferences": [reference(notebook)]}
    cluster.store.put(STATEFUL_SETS, {"metadata": below})
    report = await cluster.why_of("StatefulSet", "x")

    assert (report.kind, report.state) == ("Notebook", "runs")
    assert "StatefulSet x belongs to it" in report.notes


async def test_the_pods_of_a_workflow_are_podgroups_each() -> None:
    """Nothing is between them and the workflow."""
    (workflow,) = (it for it in NAMED_KINDS if it.kind == "Workflow")
    cluster = OtherCluster()
    meta: Any = {"namespace": "default", "name": "x", "uid": "uid-x"}
    cluster.store.put(OWNER_RESOURCES[workflow.group_kind], {"metadata": meta})
    for name in ("a", "b"):
        above = {"metadata": {**meta, "name": name, "uid": name}}
        above["metadata"]["ownerReferences"] = [reference(workflow)]
        above["metadata"]["annotations"] = {"pod-group-name": f"pg-{name}"}
        spec = {"schedulerName": SCHEDULER, "nodeName": "node-1"}
        cluster.store.put(PODS, {**above, "spec": spec, "status": {"phase": "Running"}})
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name}
        group = {**meta, "name": f"pg-{name}", "ownerReferences": [owner]}
        cluster.store.put(PODGROUPS, {"metadata": group, "spec": {"queue": "team-a"}})
    report = await cluster.why_of("Workflow", "x")

    assert report.queue == "team-a"
    assert [it.podgroup.name for it in report.podgroups] == ["pg-a", "pg-b"]
    assert [it.counts.running for it in report.podgroups] == [1, 1]
