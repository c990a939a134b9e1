"""Gangs on nodes that leave the cluster are moved once and whole; nothing counts as a failure."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import NodeShape
from e2e.cluster.patience import until
from e2e.cluster.resources import NODES, PODS, Obj
from e2e.cluster.timeline import State
from e2e.fixtures.install import BUDGETS, PODGROUPS, apply
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import PODGROUP, pods_in
from e2e.fixtures.trainjobs import (
    WATCHED,
    Job,
    bare_pod,
    events_of,
    failures,
    on_nodes,
    pods_created,
    submit,
    suspensions,
)
from e2e.scheduling.test_why import sentences_of

_SIGNS: Final = {"TRAINER_KAI_LEAVING_NODES_CONDITIONS": "GpuUnhealthy"}
_OF_JOB: Final = "jobset.sigs.k8s.io/jobset-name"
_QUEUE: Final = "default-queue"
_MOVED_S: Final = 60.0
_TAINTS: Final = {
    "karpenter": {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    "autoscaler": {
        "key": "ToBeDeletedByClusterAutoscaler",
        "value": "1760000000",
        "effect": "NoSchedule",
    },
}
_GANGS: Final = ("drained", "karpenter", "autoscaler", "condition", "stays")


@pytest.mark.parametrize("own_installation", [_SIGNS], indirect=True)
async def test_gangs_move_whole_off_nodes_that_leave(
    own_installation: Installation,
) -> None:
    """A drain, two notices and a listed condition: each gang is suspended once, and runs again.

    The node of one gang has a condition that is not listed: it is left alone.
    """
    cluster = own_installation.cluster
    await cluster.add_nodes(13, NodeShape(gpus=8), prefix="more")
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace="room") as seen:
        for name in _GANGS:
            await submit(cluster, "room", Job(name, _QUEUE, 2, gpus=8))
        await seen.until(lambda state: all(_nodes(state, it) for it in _GANGS), "all run")
        gone = {name: min(_nodes(seen.state, name)) for name in _GANGS}
        for name, taint in _TAINTS.items():
            await cluster.api.merge(NODES, None, gone[name], {"spec": {"taints": [taint]}})
        await _set_condition(cluster, gone["condition"], "GpuUnhealthy", "True")
        await _set_condition(cluster, gone["stays"], "KernelDeadlock", "True")
        await _drain(cluster, gone["drained"], seen.state)
        moved = [name for name in _GANGS if name != "stays"]
        await seen.until(
            lambda state: all(_is_moved(state, name, gone[name]) for name in moved),
            "all run elsewhere",
            _MOVED_S,
        )
        await seen.settle()
        for name in moved:
            assert suspensions(seen.history(), name) == 1, name
        assert suspensions(seen.history(), "stays") == 0
        assert pods_created(seen.history(), "stays") == 2
        assert {name: failures(seen.state, name) for name in _GANGS} == dict.fromkeys(
            _GANGS, (0, 0)
        )
        told = {name: (await events_of(cluster, "room", name))["Evicted"] for name in moved}
    assert f"node {gone['drained']} is drained" in told["drained"]
    for name, taint in _TAINTS.items():
        assert f"node {gone[name]} leaves: it has the taint {taint['key']}" in told[name]
    assert f"node {gone['condition']} leaves: its condition GpuUnhealthy" in told["condition"]


@pytest.mark.parametrize("own_installation", [_SIGNS], indirect=True)
async def test_a_gang_waits_for_a_node_instead_of_one_that_leaves(
    own_installation: Installation,
) -> None:
    """There is no room elsewhere: `why` names the node, and the gang starts on a new one.

    A condition that comes and goes moves it once, and not again for five minutes.
    """
    cluster = own_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace="room") as seen:
        await submit(cluster, "room", Job("gang", _QUEUE, 2, gpus=8))
        await seen.until(lambda state: bool(_nodes(state, "gang")), "it runs")
        node = min(_nodes(seen.state, "gang"))
        taint = {"spec": {"taints": [_TAINTS["karpenter"]]}}
        await cluster.api.merge(NODES, None, node, taint)
        await seen.until(_waits("gang"), "it waits for a node", _MOVED_S)
        answer = await sentences_of("why", "gang", "-n", "room", kubeconfig=cluster.kubeconfig)
        said = answer.out
        assert node in said, said
        assert "karpenter.sh/disrupted" in said, said
        await cluster.add_nodes(1, NodeShape(gpus=8), prefix="new")
        await seen.until(on_nodes("gang", 2), "it runs on the new node", _MOVED_S)
        assert node not in _nodes(seen.state, "gang")
        await cluster.api.merge(NODES, None, node, {"spec": {"taints": []}})

        flaps = max(_nodes(seen.state, "gang"))
        for status in ("True", "False") * 3:
            await _set_condition(cluster, flaps, "GpuUnhealthy", status)
            await asyncio.sleep(1)
        await seen.settle()
        assert suspensions(seen.history(), "gang") == 1
        assert failures(seen.state, "gang") == (0, 0)


async def test_kubectl_drains_a_node_with_all_of_a_gang(own_installation: Installation) -> None:
    """More pods are on the node than its Job may lose: a budget makes the drain wait for the rest.

    One pod is evicted, the TrainJob is suspended, and the drain ends when the others are gone.
    """
    cluster = own_installation.cluster
    async with cluster.timeline(*WATCHED, PODGROUPS, namespace="room") as seen:
        await submit(cluster, "room", Job("gang", _QUEUE, 8))
        await seen.until(on_nodes("gang", 8), "it runs")
        (node,) = {_node(it) for it in _pods(seen.state, "gang")}
        spec = {"minAvailable": 7, "selector": {"matchLabels": {_OF_JOB: "gang"}}}
        budget = {"metadata": {"name": "gang", "namespace": "room"}, "spec": spec}
        path = BUDGETS.path("room")
        await cluster.api.request("POST", path, budget)
        await until(lambda: _is_counted(cluster, 8), "the budget counts all pods")
        code, said = await _kubectl(cluster, "drain", node, "--ignore-daemonsets", "--timeout=60s")
        assert code == 0, said
        await seen.until(on_nodes("gang", 8), "it runs on the other node", _MOVED_S)
        assert node not in {_node(it) for it in _pods(seen.state, "gang")}
        await seen.settle()
        assert suspensions(seen.history(), "gang") == 1
        assert failures(seen.state, "gang") == (0, 0)


async def test_pods_that_nothing_suspends(own_installation: Installation) -> None:
    """All pods of the gang are deleted; of the other PodGroup one pod is enough, and both stay."""
    cluster = own_installation.cluster
    async with cluster.timeline(PODS, PODGROUPS, namespace="room") as seen:
        for name, minimum, gpus in (("gang", 2, 5), ("elastic", 1, 3)):
            metadata = {"namespace": "room", "name": name}
            spec = {"minMember": minimum, "queue": _QUEUE}
            kind = {"apiVersion": PODGROUPS.api_version, "kind": PODGROUPS.kind}
            await apply(cluster, {**kind, "metadata": metadata, "spec": spec})
            for number in range(2):
                pod = bare_pod("room", f"{name}-{number}", _QUEUE, gpus)
                pod["metadata"]["annotations"] = {PODGROUP: name}
                await cluster.api.create(pod)
        await seen.until(
            lambda state: _placed(state, "gang") == _placed(state, "elastic") == 2, "all run"
        )
        node = min(_node(it) for it in pods_in(seen.state))
        taint = {"spec": {"taints": [_TAINTS["autoscaler"]]}}
        await cluster.api.merge(NODES, None, node, taint)
        await seen.until(lambda state: not _placed(state, "gang"), "the gang has gone", _MOVED_S)
        await seen.settle()
        assert _placed(seen.state, "elastic") == 2
        (group,) = [it for it in seen.objects(PODGROUPS) if it["metadata"]["name"] == "gang"]
    evicted = json.loads(group["metadata"]["annotations"]["trainer-kai.dev/last-eviction"])
    assert (evicted["action"], evicted["rule"]) == ("nodeleaving", "40h")
    assert evicted["moved"]["count"] == 1


def _placed(state: State, group: str) -> int:
    pods = [it for it in pods_in(state) if it["metadata"]["annotations"].get(PODGROUP) == group]
    return sum(bool(_node(it)) and "deletionTimestamp" not in it["metadata"] for it in pods)


async def _is_counted(cluster: Cluster, pods: int) -> bool:
    found = await cluster.api.get(BUDGETS, "room", "gang")
    healthy: int = found.get("status", {}).get("currentHealthy", 0)
    return healthy == pods


async def _kubectl(cluster: Cluster, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        cluster.layout.programs["kubectl"],
        *("--kubeconfig", str(cluster.kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def _drain(cluster: Cluster, node: str, state: State) -> None:
    """Do what `kubectl drain` does."""
    api = cluster.api
    await api.merge(NODES, None, node, {"spec": {"unschedulable": True}})
    for pod in [it for it in pods_in(state) if _node(it) == node]:
        meta = {"namespace": "room", "name": pod["metadata"]["name"]}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        await api.request("POST", PODS.path("room", meta["name"], "eviction"), eviction)


async def _set_condition(cluster: Cluster, node: str, kind: str, status: str) -> None:
    """Write a condition beside the others, as a node problem detector does."""
    found = await cluster.api.get(NODES, None, node)
    others = [it for it in found["status"].get("conditions", []) if it["type"] != kind]
    one = {"type": kind, "status": status, "reason": "Detected", "message": "of the test"}
    await cluster.api.merge(
        NODES, None, node, {"status": {"conditions": [*others, one]}}, subresource="status"
    )


def _waits(name: str) -> Callable[[State], bool]:
    """Return a test whether both pods of a gang are there and have no node."""
    return lambda state: [_node(it) for it in _pods(state, name)] == ["", ""]


def _nodes(state: State, name: str) -> set[str]:
    """Return the nodes of a gang of which both pods have one; none if it is not whole."""
    nodes = {_node(it) for it in _pods(state, name)}
    return nodes if len(nodes) == 2 and "" not in nodes else set()


def _is_moved(state: State, name: str, gone: str) -> bool:
    nodes = _nodes(state, name)
    return bool(nodes) and gone not in nodes and on_nodes(name, 2)(state)


def _pods(state: State, name: str) -> list[Obj]:
    pods = [it for it in pods_in(state) if it["metadata"]["labels"].get(_OF_JOB) == name]
    return [it for it in pods if "deletionTimestamp" not in it["metadata"]]


def _node(pod: Obj) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node
