"""Nodes under running gangs and shared GPUs are deleted, tainted or drained."""

from collections import Counter
from pathlib import Path
from typing import Final

from e2e.cluster.gpu_devices import RESERVATIONS
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import until
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBS, NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission, condition
from e2e.fixtures.gpu_agents import running_gpu_agents
from e2e.fixtures.install import DEPLOYMENTS, PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods, pods_in
from e2e.fixtures.queues import deployment

_WATCHED: Final = (TRAINJOBS, PODGROUPS, JOBS, PODS)
_GANGS: Final = ("deleted", "tainted", "drained")
_OF_JOB: Final = "jobset.sigs.k8s.io/jobset-name"
_JOB: Final = "batch.kubernetes.io/job-name"
_REPAIRED_S: Final = 120.0  # Kubernetes waits 40 s and more before it deletes pods of no node
_OVER: Final = ("Succeeded", "Failed")


async def test_nodes_go_from_under_gangs(own_installation: Installation, tmp_path: Path) -> None:
    """Each gang is whole again on nodes that are left, and no TrainJob is lost by it.

    The drained one has begun anew: what is left of it is of no use without the pod that goes.
    Pods that share a GPU come again elsewhere, and nothing is left where they were.
    """
    api = own_installation.cluster.api
    await own_installation.cluster.add_nodes(9, NodeShape(gpus=8), prefix="more")
    async with (
        own_installation.cluster.timeline(*_WATCHED, namespace="room") as seen,
        running_gpu_agents(own_installation.cluster, tmp_path),
    ):
        await api.request("POST", DEPLOYMENTS.path("room"), _sharing())
        await seen.until(lambda state: len(_sharing_on(state)) == 2, "two pods share a GPU")
        for name in _GANGS:
            await _start(own_installation, name)
        await seen.until(lambda state: all(_whole_on(state, it) for it in _GANGS), "all run")
        taken = {name: min(_whole_on(seen.state, name)) for name in _GANGS}
        taken["shared"] = _sharing_on(seen.state)[0]
        for name in ("deleted", "shared"):
            await api.delete(NODES, None, taken[name])
        taint = {"key": "example.com/broken", "effect": "NoExecute"}
        await api.merge(NODES, None, taken["tainted"], {"spec": {"taints": [taint]}})
        await _drain(own_installation, taken["drained"], seen.state)
        gone = set(taken.values())
        stay = {
            it["metadata"]["uid"]
            for it in pods_in(seen.state)
            if _node(it) not in gone and it["metadata"]["labels"].get(_OF_JOB) != "drained"
        }
        await seen.until(
            lambda state: all(_is_repaired(_whole_on(state, it), gone) for it in _GANGS),
            "each is whole on other nodes",
            _REPAIRED_S,
        )
        await seen.until(
            lambda state: len(_sharing_on(state)) == 2 and not gone & {*_sharing_on(state)},
            "two pods share a GPU of another node",
            _REPAIRED_S,
        )
        await _until_reserved_on(own_installation, {*_sharing_on(seen.state)})
        assert stay <= {it["metadata"]["uid"] for it in pods_in(seen.state)}  # not begun anew
    _survived(seen)


def _sharing() -> Obj:
    labels = {QUEUE: "default-queue", "kai.scheduler/preemptibility": "preemptible"}
    annotations = {"gpu-fraction": "0.5"}
    return deployment("shares", "room", 0, 2, labels=labels, annotations=annotations)


def _sharing_on(state: State) -> list[str]:
    """Return the nodes of the pods that share GPUs and are not deleted."""
    pods = [it for it in pods_in(state) if it["metadata"]["labels"].get("app") == "shares"]
    return [_node(it) for it in pods if _is_alive(it) and _node(it)]


async def _until_reserved_on(installation: Installation, nodes: set[str]) -> None:
    """Wait until only these nodes have reservation pods."""

    async def is_so() -> bool:
        pods, _ = await installation.cluster.api.list(PODS, RESERVATIONS)
        return {_node(it) for it in pods} == nodes

    await until(is_so, f"only {nodes} have reservation pods", _REPAIRED_S)


async def _start(installation: Installation, name: str) -> None:
    runtime = "torch-distributed"
    installed = await installation.cluster.api.get(CLUSTER_RUNTIMES, None, runtime)
    patches, labels = finishing_pods(installed, "600s"), {QUEUE: "default-queue"}
    job = Submission(name, runtime, "room", 2, 8, patches, labels=labels)
    await installation.cluster.api.create(job.trainjob())


async def _drain(installation: Installation, node: str, state: State) -> None:
    """Do what `kubectl drain` does."""
    api = installation.cluster.api
    await api.merge(NODES, None, node, {"spec": {"unschedulable": True}})
    for pod in [it for it in pods_in(state) if _node(it) == node]:
        meta = {"namespace": "room", "name": pod["metadata"]["name"]}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        await api.request("POST", PODS.path("room", meta["name"], "eviction"), eviction)


def _whole_on(state: State, job: str) -> set[str]:
    """Return the nodes of a gang of which both pods have one; none if it is not whole."""
    pods = [it for it in pods_in(state) if it["metadata"]["labels"].get(_OF_JOB) == job]
    alive = [it for it in pods if _is_alive(it)]
    nodes = {_node(it) for it in alive}
    return nodes if len(nodes) == 2 and "" not in nodes else set()


def _is_repaired(nodes: set[str], gone: set[str]) -> bool:
    return bool(nodes) and not nodes & gone


def _node(pod: Obj) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def _is_alive(pod: Obj) -> bool:
    is_going = "deletionTimestamp" in pod["metadata"]
    return not is_going and pod["status"].get("phase") not in _OVER


def _survived(seen: Timeline) -> None:
    """Check that no TrainJob failed, and that none had to for all the pods that it lost."""
    lost: Counter[str] = Counter()
    for moment in seen.history():
        is_lost = moment.key.resource == PODS and moment.type == "DELETED"
        if is_lost and _JOB in moment.obj["metadata"]["labels"]:
            lost[moment.obj["metadata"]["labels"][_JOB]] += 1
    for job in seen.objects(JOBS):
        assert lost[job["metadata"]["name"]] <= job["spec"]["backoffLimit"]
    assert not [it for it in seen.objects(TRAINJOBS) if condition(it, "Failed")]
