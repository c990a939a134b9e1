"""Kinds that are suspended by another field, or not at all."""

from typing import Any

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import eviction_record
from tests.support.state.objects import (
    gang_in,
    group,
    make_object,
    node,
    pod,
    queue_with_quota,
)

_POD = {"spec": {"schedulerName": "kai-scheduler"}}


def lend_to(harness: SchedulerHarness, api_version: str, kind: str, spec: Any) -> None:
    """Let a workload run on two GPUs that another queue owns and wants back."""
    itself = {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "x"}
    meta = {"ownerReferences": [{**itself, "controller": True}]}
    harness.api.put(
        queue_with_quota("lender", 2),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        make_object(kind, "x", {"uid": "x"}, spec=spec),
        group(
            "pg-x",
            minMember=2,
            queue="borrower",
            meta={"uid": "pg-x", "ownerReferences": [itself]},
        ),
        *(pod(f"x{i}", "pg-x", node="a", meta=meta) for i in range(2)),
        *gang_in("lender", "l", 2),
    )


async def test_a_job_of_kubeflow_is_suspended_in_its_run_policy(harness: SchedulerHarness) -> None:
    """Its other policies stay, and so does its spec."""
    policy = {"cleanPodPolicy": "Running"}
    specs = {"Worker": {"replicas": 2, "template": _POD}}
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": specs}
    lend_to(harness, "kubeflow.org/v1", "PyTorchJob", spec)
    async with harness.leading():
        await harness.advance(2)
        found = harness.api.get("PyTorchJob", "x")["spec"]
        assert found == {**spec, "runPolicy": {**policy, "suspend": True}}
        assert eviction_record(harness) is not None
        for i in range(2):
            harness.api.delete("Pod", f"x{i}")
        await harness.advance(2)
        assert harness.api.get("PyTorchJob", "x")["spec"] == spec
        assert eviction_record(harness) is None

    assert not [it for it in harness.api.written() if it.startswith("delete")]


async def test_a_user_who_suspends_a_job_of_kubeflow_keeps_it_suspended(
    harness: SchedulerHarness,
) -> None:
    specs = {"Worker": {"replicas": 2, "template": _POD}}
    spec = {"runPolicy": {}, "pytorchReplicaSpecs": specs}
    lend_to(harness, "kubeflow.org/v1", "PyTorchJob", spec)
    async with harness.leading():
        await harness.advance(2)
        found = harness.api.get("PyTorchJob", "x")
        managed = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}}
        found["metadata"].setdefault("managedFields", []).append(managed)
        harness.api.put(found)
        for i in range(2):
            harness.api.delete("Pod", f"x{i}")
        await harness.advance(20)
    assert "Resumed" not in [it["reason"] for it in harness.api.events]


async def test_a_group_of_a_set_loses_all_its_pods(harness: SchedulerHarness) -> None:
    """Nothing suspends a LeaderWorkerSet."""
    spec = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": _POD}}
    lend_to(harness, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec)
    async with harness.leading():
        await harness.advance(3)

    deleted = [it for it in harness.api.written() if it.startswith("delete")]
    assert sorted(deleted) == ["delete pods x0", "delete pods x1"]
    assert eviction_record(harness) is None


async def test_pods_are_evicted_if_another_client_resumes_it(harness: SchedulerHarness) -> None:
    """It is suspended once, and its pods are deleted each time it has to make room."""
    specs = {"Worker": {"replicas": 2, "template": _POD}}
    lend_to(harness, "kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": specs})
    async with harness.leading():
        await harness.advance(2)
        found = harness.api.get("PyTorchJob", "x")
        fields: Any = {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}
        found["metadata"]["managedFields"] = [{"manager": "argocd", "fieldsV1": fields}]
        harness.api.put({**found, "spec": {**found["spec"], "runPolicy": {"suspend": False}}})
        await harness.advance(4)
        assert eviction_record(harness) is None
        assert harness.cache.cluster.suspend_refusals == {}
        assert _deleted(harness) == ["delete pods x0", "delete pods x1"]
        harness.cache.check()

    patched = [it for it in harness.api.written() if it.startswith("patch pytorchjobs")]
    assert len(patched) == 2  # it is suspended, and what is left of that is removed
    told = [it["message"] for it in harness.api.events if it["reason"] == "SuspensionReverted"]
    (message,) = told
    by, _, then = message.partition(". ")
    assert by.startswith("Field manager argocd reverted spec.runPolicy.suspend 2 s after")
    assert then == "It is not suspended again: an eviction deletes its pods instead"
    assert "EvictionUndone" not in [it["reason"] for it in harness.api.events]


async def test_a_late_resumption_is_no_revert(harness: SchedulerHarness) -> None:
    """After a minute its user is left alone as the user of a TrainJob is."""
    specs = {"Worker": {"replicas": 2, "template": _POD}}
    lend_to(harness, "kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": specs})
    async with harness.leading():
        await harness.advance(62)
        found = harness.api.get("PyTorchJob", "x")
        harness.api.put({**found, "spec": {**found["spec"], "runPolicy": {"suspend": False}}})
        await harness.advance(4)

    assert _deleted(harness) == []
    assert "EvictionUndone" in [it["reason"] for it in harness.api.events]


async def test_the_next_leader_tries_the_suspension_once_more(harness: SchedulerHarness) -> None:
    specs = {"Worker": {"replicas": 2, "template": _POD}}
    lend_to(harness, "kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": specs})
    harness.api.refuse_with = lambda what: 500 if what.startswith("delete pods") else None
    async with harness.leading():
        await harness.advance(2)
        found = harness.api.get("PyTorchJob", "x")
        harness.api.put({**found, "spec": {**found["spec"], "runPolicy": {"suspend": False}}})
        await harness.advance(20)
        assert not harness.api.get("PyTorchJob", "x")["spec"]["runPolicy"]["suspend"]
    async with harness.successor().leading():
        await harness.advance(3)
        assert harness.api.get("PyTorchJob", "x")["spec"]["runPolicy"]["suspend"]


def _deleted(harness: SchedulerHarness) -> list[str]:
    return sorted(it for it in harness.api.written() if it.startswith("delete"))


async def test_a_ray_cluster_is_resumed_by_a_field_that_is_false(
    harness: SchedulerHarness,
) -> None:
    """KubeRay leaves a cluster suspended whose field is absent."""
    group = {"groupName": "a", "replicas": 1, "template": _POD}
    spec = {"headGroupSpec": {"template": _POD}, "workerGroupSpecs": [group]}
    lend_to(harness, "ray.io/v1", "RayCluster", spec)
    async with harness.leading():
        await harness.advance(2)
        assert harness.api.get("RayCluster", "x")["spec"]["suspend"] is True
        for i in range(2):
            harness.api.delete("Pod", f"x{i}")
        await harness.advance(2)
    assert harness.api.get("RayCluster", "x")["spec"] == {**spec, "suspend": False}
