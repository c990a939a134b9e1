"""Pods that reserve GPUs, made by hand: what the simulated kubelets and agents do with them."""

import asyncio
from pathlib import Path

import pytest

from e2e.cluster.api import ApiError
from e2e.cluster.cluster import Cluster
from e2e.cluster.gpu_devices import (
    AGENT,
    GPU_GROUP,
    RESERVATIONS,
    RESERVED_DEVICE,
    SILENT,
    Refusal,
    refusals_in,
)
from e2e.cluster.nodes import GPU, NodeShape
from e2e.cluster.patience import patience, until
from e2e.cluster.resources import NODES, PODS, SERVICE_ACCOUNTS, Obj, namespace
from e2e.cluster.timeline import Key, State, Timeline
from e2e.fixtures.gpu_agents import running_gpu_agents
from e2e.size import size

_NODE = "shares-0"


def _pod(name: str, node: str = _NODE, where: str = RESERVATIONS) -> Obj:
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: "1"}}}
    labels = {"app": RESERVATIONS, GPU_GROUP: name} if where == RESERVATIONS else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": where, "name": name, "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
    }


def _status(state: State, name: str) -> tuple[str, str]:
    """Return the phase of a reservation pod and its device."""
    pod = state.get(Key(PODS, RESERVATIONS, name))
    if pod is None:
        return "", ""
    device = pod["metadata"].get("annotations", {}).get(RESERVED_DEVICE, "")
    return pod["status"].get("phase", ""), device


async def _until(seen: Timeline, **wanted: tuple[str, str]) -> None:
    await seen.until(
        lambda state: all(_status(state, name) == it for name, it in wanted.items()), f"{wanted}"
    )


async def _make_namespace(cluster: Cluster) -> None:
    try:
        await cluster.api.create(namespace(RESERVATIONS))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    await cluster.until_found(SERVICE_ACCOUNTS, RESERVATIONS, "default")


async def test_reservation_pods_get_devices(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """One each, also after a restart; a silent agent says nothing; a pod without a device fails."""
    api = cluster.api
    await _make_namespace(cluster)
    await cluster.add_nodes(1, NodeShape(gpus=2), prefix="shares")
    async with (
        cluster.timeline(PODS, NODES) as seen,
        running_gpu_agents(cluster, tmp_path) as agents,
    ):
        for name in ("a", "b"):
            await api.create(_pod(name))
            await _until(seen, **{name: ("Running", f"GPU-{_NODE}-{'ab'.index(name)}")})
        await api.create(_pod("c"))
        await _until(seen, c=("Failed", ""))
        assert seen.state[Key(PODS, RESERVATIONS, "c")]["status"]["reason"] == (
            "UnexpectedAdmissionError"
        )
        await api.delete(PODS, RESERVATIONS, "a", gracePeriodSeconds=0)
        await _until(seen, a=("", ""))
        await api.merge(NODES, None, _NODE, {"metadata": {"annotations": {AGENT: SILENT}}})
        await api.create(_pod("silent"))  # another name: KWOK deletes by name, at times twice
        await _until(seen, silent=("Running", ""))
        await api.merge(NODES, None, _NODE, {"metadata": {"annotations": {AGENT: None}}})
        await _until(seen, silent=("Running", f"GPU-{_NODE}-0"))

        await agents.process.kill()
        await api.delete(PODS, RESERVATIONS, "silent")
        await _until(seen, silent=("", ""))
        await api.create(_pod("d"))
        agents.process.start()
        await _until(seen, d=("Running", f"GPU-{_NODE}-0"))
        await api.create(_pod("whole", where=namespace))
        await until(lambda: len(agents.refusals()) >= 2, "both refusals are logged")
    refused = [Refusal(f"{it}", _NODE, 1, 0) for it in (f"{RESERVATIONS}/c", f"{namespace}/whole")]
    assert agents.refusals() == refused
    assert refusals_in(seen.moments) == refused
    for name in ("b", "c", "d"):
        await api.delete(PODS, RESERVATIONS, name, gracePeriodSeconds=0)
    await api.delete(NODES, None, _NODE)


@pytest.mark.sized
async def test_many_reservation_pods(cluster: Cluster, tmp_path: Path) -> None:
    """Each has a device of its own, the lowest ones of its node."""
    await _make_namespace(cluster)
    names = await cluster.add_nodes(size(5, 125), prefix="many")
    pods = [_pod(f"{node}-{number}", node) for node in names for number in range(8)]
    async with running_gpu_agents(cluster, tmp_path) as agents, patience(60):
        await cluster.api.create_all(pods)
        while not all(devices := await _devices(cluster)):
            await asyncio.sleep(0.2)  # a record of so many changes at once would have gaps
    assert sorted(devices) == sorted(f"GPU-{node}-{i}" for node in names for i in range(8))
    assert agents.refusals() == []
    await cluster.api.kill_pods(RESERVATIONS)
    for name in names:
        await cluster.api.delete(NODES, None, name)


async def _devices(cluster: Cluster) -> list[str]:
    """Return the devices of all reservation pods; an empty one for a pod that has none."""
    pods, _ = await cluster.api.list(PODS, RESERVATIONS)
    return [it["metadata"].get("annotations", {}).get(RESERVED_DEVICE, "") for it in pods]
