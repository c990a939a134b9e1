"""What must not depend on the moment: names used again, many first pods, another scheduler."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.cluster.nodes import GPU
from e2e.cluster.patience import until
from e2e.cluster.resources import PODS, Obj, Resource
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.together import together
from e2e.fixtures.install import DEPLOYMENTS, PODGROUPS
from e2e.fixtures.installation import Installation, namespace_in
from e2e.fixtures.podgroups import PODGROUP, QUEUE
from e2e.fixtures.trainjobs import bare_pod
from e2e.kinds.stand_ins import MODELS, PYTORCH_JOBS, pods_spec
from trainer_kai.api.names import (
    KUBEFLOW_JOB_NAME,
    KUBEFLOW_REPLICA_INDEX,
    KUBEFLOW_REPLICA_TYPE,
)

_GPUS: Final = 8
_MANY: Final = 256  # more than a node has places for: none of them is bound
_ACCOUNT: Final = "trainer-kai-podgrouper"
_FOREVER_S: Final = 3600.0


async def test_an_owner_that_is_made_anew_under_its_name(
    kinds_installation: Installation, kinds_namespace: str
) -> None:
    """Its pods are another PodGroup, and the first one is deleted with the first owner."""
    api = kinds_installation.cluster.api
    cluster = kinds_installation.cluster
    async with cluster.timeline(PODS, PODGROUPS, namespace=kinds_namespace) as seen:
        groups = list[str]()
        for number in range(2):
            model = await create(cluster, kinds_namespace, _object(MODELS, "m"))
            await create(cluster, kinds_namespace, _pod_of(model, f"m-{number}"))
            group = f"pg-m-{model['metadata']['uid']}"
            await seen.until(_has_members(seen, group), "it has its PodGroup")
            groups.append(group)
            assert _members(seen)[group] == {f"m-{number}"}
            await api.delete(MODELS, kinds_namespace, "m", propagationPolicy="Background")
            await seen.until(lambda _: not _members(seen), "all of it is deleted", 60)
        assert groups[0] != groups[1]


async def test_podgroups_of_two_namespaces_with_one_name(
    kinds_installation: Installation, kinds_namespace: str
) -> None:
    """Each needs two pods of its own: the single pod of one is no member of the other."""
    cluster = kinds_installation.cluster
    async with (
        namespace_in(kinds_installation, "owner") as other,
        cluster.timeline(PODS) as seen,
    ):
        for namespace, pods in ((kinds_namespace, 1), (other, 2)):
            await create(cluster, namespace, _podgroup("same", 2))
            for number in range(pods):
                pod = bare_pod(namespace, f"p{number}", "owner", 1)
                pod["metadata"]["annotations"] = {PODGROUP: "same"}
                await create(cluster, namespace, pod)
        await seen.until(lambda state: _placed_in(state, other) == 2, "two pods are enough")
        await seen.settle()
        seen.never(lambda state: _placed_in(state, kinds_namespace) > 0, "one pod was enough")


async def test_many_first_pods_at_once(
    kinds_installation: Installation, kinds_namespace: str
) -> None:
    """They are one PodGroup: it is written once, and each pod at most once."""
    cluster = kinds_installation.cluster
    specs = {"Worker": {"replicas": _MANY, "template": pods_spec(0)}}
    job = {**_object(PYTORCH_JOBS, "many"), "spec": {"pytorchReplicaSpecs": specs}}
    mark = await cluster.audit.mark()
    made = await create(cluster, kinds_namespace, job)
    group = f"pg-many-{made['metadata']['uid']}"

    async def all_are_in_it() -> bool:
        pods, _ = await cluster.api.list(PODS, kinds_namespace)
        found = [it["metadata"].get("annotations", {}).get(PODGROUP) for it in pods]
        return found == [group] * _MANY

    pods = (_pod_of(made, f"many-{number}") for number in range(_MANY))
    await together((create(cluster, kinds_namespace, it) for it in pods), 16)
    await until(all_are_in_it, f"{_MANY} pods are in one PodGroup")
    writes = await cluster.audit.writes(mark)
    await cluster.api.delete(PYTORCH_JOBS, kinds_namespace, "many")

    ours = [it for it in writes if it.user.endswith(_ACCOUNT) and it.resource != "leases"]
    ours = [it for it in ours if it.namespace == kinds_namespace and it.resource != "events"]
    assert {it.status for it in ours} <= {200, 201}
    assert [it.name for it in ours if it.resource == PODGROUPS.plural] == [group]
    assert len(ours) <= _MANY + 1


async def test_kube_scheduler_takes_the_last_gpus(
    kinds_installation: Installation, kinds_namespace: str
) -> None:
    """Both may bind at once, and the kubelet refuses the later pod: ours is planned again."""
    cluster = kinds_installation.cluster
    async with cluster.timeline(PODS, namespace=kinds_namespace) as seen:
        kubelet = asyncio.ensure_future(_refuse_later_pods(cluster, kinds_namespace, seen))
        try:
            for number in range(3):
                theirs = bare_pod(kinds_namespace, f"theirs-{number}", "owner", _GPUS)
                theirs["spec"]["schedulerName"] = "default-scheduler"
                theirs["metadata"]["annotations"] = {RUN_SECONDS: "1s"}
                ours = _deployment(f"ours-{number}")
                await together(create(cluster, kinds_namespace, it) for it in (ours, theirs))
                await seen.until(partial(_runs_alone, ours), "ours runs, and theirs no more", 60)
                await cluster.api.delete(
                    DEPLOYMENTS,
                    kinds_namespace,
                    ours["metadata"]["name"],
                    propagationPolicy="Background",
                )
                await seen.until(lambda state: not _holders(state), "the GPUs are free", 60)
        finally:
            kubelet.cancel()
            await asyncio.wait([kubelet])
        settled = [it.obj for it in seen.history() if it.key.name.startswith("theirs")]
    assert {it["metadata"]["name"] for it in settled} == {f"theirs-{it}" for it in range(3)}


async def _refuse_later_pods(cluster: Cluster, namespace: str, seen: Timeline) -> None:
    """Do what a kubelet does with a pod for which no GPU is left; KWOK lets it run."""
    refused = {"phase": "Failed", "reason": f"OutOf{GPU}"}
    while True:
        await seen.until(lambda state: len(_holders(state)) > 1, "too many pods", _FOREVER_S)
        order = [it.key.name for it in seen.history() if it.obj["spec"].get("nodeName")]
        later = max(_holders(seen.state), key=order.index)
        await cluster.api.merge(PODS, namespace, later, {"status": refused}, "status")
        await seen.until(partial(_is_no_holder, later), f"{later} is refused")


async def create(cluster: Cluster, namespace: str, obj: Obj) -> Obj:
    resource = next(it for it in _CREATED if it.kind == obj["kind"])
    made: Obj = await cluster.api.request("POST", resource.path(namespace), obj)
    return made


def _object(resource: Resource, name: str) -> Obj:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": {QUEUE: "owner"}},
    }


def _podgroup(name: str, least: int) -> Obj:
    return {**_object(PODGROUPS, name), "spec": {"minMember": least, "queue": "owner"}}


def _pod_of(owner: Obj, name: str) -> Obj:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    labels = {
        KUBEFLOW_JOB_NAME: owner["metadata"]["name"],
        KUBEFLOW_REPLICA_TYPE: "worker",
        KUBEFLOW_REPLICA_INDEX: name.rpartition("-")[2],
    }
    meta = {"name": name, "ownerReferences": [reference], "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pods_spec(0)["spec"]}


def _deployment(name: str) -> Obj:
    """Return a Deployment of a pod that needs all GPUs."""
    template, labels = pods_spec(_GPUS, restart="Always"), {"app": name}
    template["metadata"]["labels"] = labels
    return {
        **_object(DEPLOYMENTS, name),
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def _members(seen: Timeline) -> dict[str, set[str]]:
    """Return the pods of each PodGroup that exists."""
    found: dict[str, set[str]] = {it["metadata"]["name"]: set() for it in seen.objects(PODGROUPS)}
    for it in seen.objects(PODS):
        group = it["metadata"].get("annotations", {}).get(PODGROUP, "")
        if group in found:
            found[group].add(it["metadata"]["name"])
    return {name: pods for name, pods in found.items() if pods}


def _has_members(seen: Timeline, group: str) -> Callable[[State], bool]:
    return lambda _: group in _members(seen)


def _pods(state: State) -> list[Obj]:
    return [it for key, it in state.items() if key.resource == PODS]


def _placed_in(state: State, namespace: str) -> int:
    pods = (it for it in _pods(state) if it["metadata"]["namespace"] == namespace)
    return sum(bool(it["spec"].get("nodeName")) for it in pods)


def _holders(state: State) -> list[str]:
    """Return the pods that use the GPUs of the node."""
    over = ("Succeeded", "Failed")
    pods = (it for it in _pods(state) if it["status"].get("phase") not in over)
    return [it["metadata"]["name"] for it in pods if it["spec"].get("nodeName")]


def _is_no_holder(name: str, state: State) -> bool:
    return name not in _holders(state)


def _runs_alone(deployment: Obj, state: State) -> bool:
    name = deployment["metadata"]["name"]
    number = name.rpartition("-")[2]
    theirs = [it for it in _pods(state) if it["metadata"]["name"] == f"theirs-{number}"]
    are_over = all(it["status"].get("phase") in ("Succeeded", "Failed") for it in theirs)
    return bool(theirs) and are_over and [it.startswith(name) for it in _holders(state)] == [True]


_CREATED: Final = (MODELS, PYTORCH_JOBS, DEPLOYMENTS, PODS, PODGROUPS)
