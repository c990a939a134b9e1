"""What a real API server makes of pods with shares of GPUs, of each kind of owner."""

import re
from contextlib import suppress
from typing import Final

import pytest

from e2e.admission_grouping.second_webhook import SIDECAR, second_webhook
from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import apply
from e2e.fixtures.installation import WebhookInstallation
from e2e.fixtures.queues import deployment

_SHARE: Final = {"gpu-fraction": "0.5"}
_PREFIX: Final = "runai/shared-gpu-configmap"
_CONTAINER: Final = "gpu-fraction-container-name"
_VARIABLES: Final = ("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
_KAI: Final = "kai-scheduler"


async def test_pods_with_shares_are_prepared(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """Alone, of a Deployment and of a Job; also if another webhook changes them after us."""
    cluster = webhook_installation.cluster
    await _make_runtime_class(cluster)
    alone = _pod("alone", own_namespace, {**_SHARE, _PREFIX: "of-another-x1y2z3a-shared-gpu"})
    job = _job(own_namespace)
    server = deployment("server", own_namespace, gpus=0, annotations={"gpu-memory": "100"})
    server["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
    other = _pod("other", own_namespace, {})

    shown = await cluster.api.create(alone, dryRun="All")
    async with (
        second_webhook(cluster, own_namespace, "team-a"),
        cluster.timeline(PODS, JOBS, namespace=own_namespace) as seen,
    ):
        await apply(cluster, server)
        for obj in (alone, job, other):
            await cluster.api.create(obj)
        await seen.until(lambda _: len(seen.objects(PODS)) == 4, "all pods exist")
    pods = {it["metadata"]["name"].partition("-")[0]: it for it in seen.objects(PODS)}
    owners = pods["server"]["metadata"]["ownerReferences"]

    _check(pods["alone"], "alone", "0", pods["alone"]["spec"]["containers"][0])
    _check(shown, "alone", "0", shown["spec"]["containers"][0])
    _check(pods["server"], owners[0]["name"], "0", pods["server"]["spec"]["containers"][0])
    _check(pods["job"], "job", "i1", pods["job"]["spec"]["initContainers"][1])
    assert pods["server"]["spec"]["containers"][0]["env"][0] == {"name": "A", "value": "b"}
    assert _prefix(shown) != _prefix(pods["alone"])
    [job] = seen.objects(JOBS)
    template = job["spec"]["template"]
    assert _PREFIX not in template["metadata"]["annotations"]
    for untouched in (pods["other"], template):
        assert "runtimeClassName" not in untouched["spec"]
        assert not any("env" in it for it in untouched["spec"]["containers"])
    for pod in pods.values():
        assert [it["name"] for it in pod["spec"]["containers"]][1:] == [SIDECAR]
        assert "env" not in pod["spec"]["containers"][1]


async def test_a_container_that_does_not_exist_is_refused(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """At once, and not when the pod is to be bound."""
    pod = _pod("wrong", own_namespace, {**_SHARE, _CONTAINER: "x"})

    with pytest.raises(ApiError, match=r"the pod has no container 'x'. Name one of its .*: 'c'"):
        await webhook_installation.cluster.api.create(pod)


async def test_a_trainjob_requests_a_share(
    webhook_installation: WebhookInstallation, own_namespace: str
) -> None:
    """By its annotations, which its pods have; they survive a suspension."""
    cluster = webhook_installation.cluster
    await _make_runtime_class(cluster)
    job = Submission("half", "torch-distributed", own_namespace, 2).trainjob()
    job["metadata"]["annotations"] = {**_SHARE, "gpu-fraction-num-devices": "2", "team": "a"}
    async with cluster.timeline(JOBSETS, PODS, namespace=own_namespace) as seen:
        await cluster.api.create(job)
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "its pods exist")
        before = seen.objects(PODS)
        await cluster.api.merge(TRAINJOBS, own_namespace, "half", {"spec": {"suspend": True}})
        await seen.until(lambda _: not seen.objects(PODS), "its pods are gone")
        await cluster.api.merge(TRAINJOBS, own_namespace, "half", {"spec": {"suspend": False}})
        await seen.until(lambda _: len(seen.objects(PODS)) == 2, "it has pods again")
        [jobset] = seen.objects(JOBSETS)

    template = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    wanted = {**_SHARE, "gpu-fraction-num-devices": "2"}
    assert template["metadata"]["annotations"] == wanted
    for pod in (*before, *seen.objects(PODS)):
        assert pod["metadata"]["annotations"].items() >= wanted.items()
        _check(pod, "half-node-0", "0", pod["spec"]["containers"][0])


def _check(pod: Obj, base: str, suffix: str, container: Obj) -> None:
    """See what KAI's contract says of a pod with a share."""
    prefix = _prefix(pod)
    config_map = f"{prefix}-{suffix}"
    own = [it for it in container["env"] if it["name"] in _VARIABLES]
    volumes = [it for it in pod["spec"]["volumes"] if prefix in it["name"]]

    assert re.fullmatch(f"{base}-[a-z0-9]{{7}}-shared-gpu", prefix)
    assert own == container["env"][-3:]
    assert [(it["name"], it["valueFrom"]["configMapKeyRef"]) for it in own] == [
        (name, {"name": config_map, "key": name}) for name in _VARIABLES
    ]
    reference = {"name": f"{config_map}-evar", "optional": False}
    assert container["envFrom"] == [{"configMapRef": reference}]
    assert [(it["name"], it["configMap"]["name"]) for it in volumes] == [
        (f"{config_map}-vol", config_map)
    ]
    assert pod["spec"]["runtimeClassName"] == "nvidia"


def _prefix(pod: Obj) -> str:
    prefix: str = pod["metadata"]["annotations"][_PREFIX]
    return prefix


async def _make_runtime_class(cluster: Cluster) -> None:
    """Make the class that pods with shares get: without it the API server refuses them."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    with suppress(ApiError):  # it is there already
        await cluster.api.request("POST", path, {**made, "handler": "nvidia"})


def _pod(name: str, namespace: str, annotations: Obj) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"schedulerName": _KAI, "containers": [{"name": "c", "image": "none"}]},
    }


def _job(namespace: str) -> Obj:
    """Return a Job of which the second init container gets the share."""
    container = {"name": "c", "image": "none"}
    pods: Obj = {"schedulerName": _KAI, "restartPolicy": "Never", "containers": [container]}
    pods["initContainers"] = [{**container, "name": "first"}, {**container, "name": "warm-up"}]
    annotations = {**_SHARE, _CONTAINER: "warm-up"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": pods}},
    }
