"""Events as the real API server takes them and kubectl shows them."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from structlog.testing import CapturingLogger

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CONFIG_MAPS
from e2e.fixtures.product_client import client_of
from trainer_kai.api.meta import Key
from trainer_kai.kube.events import EventApi, EventObject, EventRecorder, EventSettings
from trainer_kai.service.clock import SystemClock


@asynccontextmanager
async def recording(cluster: Cluster) -> AsyncIterator[tuple[EventRecorder, list[str]]]:
    """Run a recorder, and send all that was posted when it ends."""
    outcomes: list[str] = []
    async with client_of(cluster.kubeconfig) as client:
        recorder = EventRecorder(
            EventApi(client),
            EventSettings("kai-scheduler", "e2e"),
            SystemClock(),
            structlog.wrap_logger(CapturingLogger(), processors=[]),
            count=outcomes.append,
        )
        running = asyncio.create_task(recorder.run())
        yield recorder, outcomes
        await asyncio.sleep(0)  # it has to have begun to be able to end in order
        running.cancel()
        await asyncio.wait([running])


async def the_map(cluster: Cluster, namespace: str) -> EventObject:
    """Return an object of the namespace to say something about."""
    key = Key(namespace, "kube-root-ca.crt")
    await cluster.until_found(CONFIG_MAPS, namespace, key.name)
    found = await cluster.api.get(CONFIG_MAPS, namespace, key.name)
    return EventObject("v1", "ConfigMap", *key, found["metadata"]["uid"])


async def test_the_same_words_are_one_event_with_a_count(cluster: Cluster, namespace: str) -> None:
    """`kubectl describe` shows how often, who said it, and the longest message there may be."""
    regarding = await the_map(cluster, namespace)
    async with recording(cluster) as (recorder, outcomes):
        for _ in range(7):
            recorder.post(regarding, "Waiting", "no node has room", "Warning", {"k": "v"})
        recorder.post(regarding, "Long", "ä" * 2000)
        await asyncio.sleep(0)
        while recorder.waiting:
            await asyncio.sleep(0.01)
        recorder.post(regarding, "Waiting", "no node has room", "Warning")

    shown = await kubectl(cluster, "describe", "configmap", regarding.name, "-n", namespace)
    output = next(line for line in shown.splitlines() if "no node has room" in line)
    assert outcomes == ["posted"] * 3
    assert output.split()[:2] == ["Warning", "Waiting"]
    assert "(x8 over " in output
    assert output.endswith("kai-scheduler  no node has room")
    assert "ä" * 510 + "…" in shown


async def test_what_is_said_about_the_cluster_stands_in_default(cluster: Cluster) -> None:
    """A node has no namespace of its own."""
    node = EventObject("v1", "Node", "", "node-0", "node-0")
    async with recording(cluster) as (recorder, outcomes):
        recorder.post(node, "Reserved", "eight GPUs are kept")

    shown = await kubectl(cluster, "get", "events", "-n", "default")
    assert outcomes == ["posted"]
    assert any(
        "eight GPUs are kept" in line and "node/node-0" in line for line in shown.split("\n")
    )


async def test_a_namespace_that_is_gone_costs_one_try(cluster: Cluster) -> None:
    """Nobody can read it any more."""
    gone = EventObject("v1", "Pod", "never-was", "a", "uid")
    async with recording(cluster) as (recorder, outcomes):
        recorder.post(gone, "Waiting", "x")

    assert outcomes == ["failed"]


async def kubectl(cluster: Cluster, *words: str) -> str:
    """Ask as a user does."""
    command = [str(cluster.layout.programs["kubectl"]), "--kubeconfig", str(cluster.kubeconfig)]
    done = await asyncio.to_thread(
        subprocess.run, [*command, *words], capture_output=True, text=True, check=True
    )
    return done.stdout
