"""Nodes that refuse pods that are bound to them: gangs start elsewhere, and no counter moves."""

import json

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import REFUSING_NODES, SILENT_NODES
from e2e.cluster.nodes import NodeShape
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBS, JOBSETS, NODES, PODS, TRAINJOBS, Obj
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import Submission
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE, finishing_pods, pods_in
from e2e.fixtures.trainjobs import (
    complete,
    end_stage_now,
    events_of,
    failures,
    on_nodes,
    suspensions,
)
from e2e.scheduling.test_why import sentences_of

_RUNTIME = "torch-distributed"
_KINDS = (TRAINJOBS, JOBSETS, JOBS, PODGROUPS, PODS)


async def start(cluster: Cluster, pods: int) -> None:
    """Submit a TrainJob of so many nodes, each whole."""
    installed = await cluster.api.get(CLUSTER_RUNTIMES, None, _RUNTIME)
    patches = finishing_pods(installed, "600s")
    labels = {QUEUE: "default-queue"}
    job = Submission("job", _RUNTIME, "room", pods, 8, patches, labels=labels)
    await cluster.api.create(job.trainjob())


async def add_broken(cluster: Cluster, count: int) -> None:
    """Add nodes that come first by name, and refuse all pods."""
    names = await cluster.add_nodes(count, NodeShape(gpus=8), prefix="broken")
    assert {*names} <= {*REFUSING_NODES}


def refused(seen: Timeline) -> list[str]:
    """Return the nodes that refused a pod, in their order."""
    found = {
        it.obj["metadata"]["uid"]: it.obj["spec"]["nodeName"]
        for it in seen.history()
        if it.key.resource == PODS and it.obj["status"].get("reason")
    }
    return [*found.values()]


def failed_jobs(state: State) -> int:
    """Return what the TrainJob itself counts."""
    (job,) = (it for key, it in state.items() if key.resource == TRAINJOBS)
    return sum(it.get("failed") or 0 for it in job.get("status", {}).get("jobsStatus", []))


def avoided(state: State) -> dict[str, Obj]:
    (group,) = (it for key, it in state.items() if key.resource == PODGROUPS)
    notes = group["metadata"].get("annotations", {})
    found: dict[str, Obj] = json.loads(notes.get("trainer-kai.dev/avoided-nodes", "{}"))
    return found


def reasons(seen: Timeline) -> list[str]:
    return [it["reason"] for it in avoided(seen.state).values()]


async def times_told(cluster: Cluster, reason: str) -> int:
    """Return how often Events say it of the TrainJob."""
    answer = await cluster.api.request("GET", "/api/v1/namespaces/room/events")
    told = [it for it in answer["items"] if it["reason"] == reason]
    of_job = [it for it in told if it["involvedObject"]["kind"] == TRAINJOBS.kind]
    return sum(it.get("count") or 1 for it in of_job)


def words(state: State) -> str:
    """Return why the PodGroup waits."""
    groups = [it for key, it in state.items() if key.resource == PODGROUPS]
    conditions = [c for it in groups for c in it.get("status", {}).get("schedulingConditions", [])]
    return " ".join(it.get("message", "") for it in conditions)


async def test_a_gang_starts_on_other_nodes(own_installation: Installation) -> None:
    """The kubelet of one refuses a pod: the gang is suspended once, and runs beside it."""
    cluster = own_installation.cluster
    await add_broken(cluster, 1)
    async with cluster.timeline(*_KINDS, namespace="room") as seen:
        await start(cluster, 2)
        await seen.until(on_nodes("job", 2), "both pods run", 120)
        await seen.settle()
        nodes = {it["spec"]["nodeName"] for it in pods_in(seen.state)}
        assert nodes == {"node-0", "node-1"}
        assert refused(seen) == ["broken-0"]
        assert [*avoided(seen.state)] == ["broken-0"]
        assert (failures(seen.state, "job"), failed_jobs(seen.state)) == ((0, 0), 0)
        assert suspensions(seen.history(), "job") == 1
        await end_stage_now(cluster, pods_in(seen.state))
        await seen.until(complete("job"), "it completes", 120)
        assert (failures(seen.state, "job"), failed_jobs(seen.state)) == ((0, 0), 0)
    events = await events_of(cluster, "room", "job")
    assert events["NodeAvoided"].startswith("Node broken-0 refused pod job-node-0-")
    assert await times_told(cluster, "NodeAvoided") == 1
    doctor = await sentences_of("doctor", kubeconfig=cluster.kubeconfig)
    (line,) = [it for it in doctor.out.splitlines() if "broken-0" in it]
    assert "node broken-0 is avoided by 1 PodGroup of 1 queue" in line


async def test_all_nodes_refuse(own_installation: Installation) -> None:
    """Each is tried once; then the gang waits, says until when, and takes the node that comes.

    The next leader tries none of them either.
    """
    cluster, scheduler = own_installation.cluster, own_installation.scheduler
    for name in ("node-0", "node-1"):
        await cluster.api.merge(NODES, None, name, {"spec": {"unschedulable": True}})
    await add_broken(cluster, len(REFUSING_NODES))
    async with cluster.timeline(*_KINDS, namespace="room") as seen:
        await start(cluster, 1)
        await seen.until(
            lambda state: "3 nodes are avoided because they refused" in words(state),
            "it waits",
            120,
        )
        await seen.settle()
        assert refused(seen) == [*REFUSING_NODES]
        assert (failures(seen.state, "job"), failed_jobs(seen.state)) == ((0, 0), 0)
        assert "broken-0 until " in words(seen.state)
        assert reasons(seen) == [
            *("OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "TopologyAffinityError")
        ]
        await scheduler.kill()
        await scheduler.start()
        await cluster.api.merge(NODES, None, "node-1", {"spec": {"unschedulable": False}})
        await seen.until(on_nodes("job", 1), "it runs", 120)
        assert refused(seen) == [*REFUSING_NODES]
        assert suspensions(seen.history(), "job") == 3
        assert [*avoided(seen.state)] == [*REFUSING_NODES]
        await end_stage_now(cluster, pods_in(seen.state))
        await seen.until(complete("job"), "it completes", 120)


async def test_a_node_cannot_start_a_pod(own_installation: Installation) -> None:
    """Its kubelet reports that three times: the gang is suspended once, and runs elsewhere.

    An image, a configuration or a program that fails says nothing about the node.
    """
    cluster = own_installation.cluster
    (silent,) = await cluster.add_nodes(1, NodeShape(gpus=8), prefix="asleep")
    assert silent in SILENT_NODES
    async with cluster.timeline(*_KINDS, namespace="room") as seen:
        await start(cluster, 2)
        await seen.until(lambda state: bool(bound_to(state, silent)), "a pod is bound there", 120)
        (pod,) = bound_to(seen.state, silent)
        for reason in ("Failed", "BackOff", "FailedMount"):
            await report(cluster, pod, reason, 9)
        await report(cluster, pod, "FailedCreatePodSandBox", 2)
        await seen.settle()
        assert (avoided(seen.state), suspensions(seen.history(), "job")) == ({}, 0)
        await report(cluster, pod, "FailedCreatePodSandBox", 1)
        await seen.until(on_nodes("job", 2), "both pods run", 120)
        await seen.until(lambda state: not bound_to(state, silent), "none waits there", 120)
        assert [*avoided(seen.state)] == [silent]
        assert (failures(seen.state, "job"), failed_jobs(seen.state)) == ((0, 0), 0)
        assert suspensions(seen.history(), "job") == 1


def bound_to(state: State, node: str) -> list[Obj]:
    return [it for it in pods_in(state) if it["spec"].get("nodeName") == node]


async def report(cluster: Cluster, pod: Obj, reason: str, count: int) -> None:
    """Report as a kubelet does, so many times in one Event."""
    meta = pod["metadata"]
    involved = {name: meta[name] for name in ("namespace", "name", "uid")}
    event = {
        "metadata": {"namespace": meta["namespace"], "generateName": f"{meta['name']}."},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **involved},
        "type": "Warning",
        "reason": reason,
        "message": "Failed to create pod sandbox: rpc error: code = Unknown",
        "count": count,
    }
    await cluster.api.request("POST", "/api/v1/namespaces/room/events", event)
