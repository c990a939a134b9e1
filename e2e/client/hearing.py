"""Our client on the chain, and a watch that is held to its contract."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CONFIG_MAPS as PLAIN_CONFIG_MAPS
from tests.support.heard import WatchRecorder
from trainer_kai.api.meta import Key, Object, PartialObject
from trainer_kai.api.resource import Resource
from trainer_kai.clock import SystemClock
from trainer_kai.kube.client import Client
from trainer_kai.kube.connect import process_client
from trainer_kai.kube.locate import find_rest_config
from trainer_kai.kube.request import ListTarget
from trainer_kai.kube.watch import Watch, WatchTiming

__all__ = [
    "CONFIG_MAPS",
    "QUICK",
    "client_of",
    "config_map",
    "recorded_watch",
    "versions_on_server",
]

T = TypeVar("T", bound=Object)

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, PartialObject)  # noqa: FBT003
QUICK: Final = WatchTiming(first_wait_s=0.05, longest_wait_s=0.5)


@asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[Client]:
    """Return our client, as a process has it."""
    clock = SystemClock()
    access = await find_rest_config({}, clock, kubeconfig=str(kubeconfig))
    async with process_client(access, clock) as client:
        yield client


@asynccontextmanager
async def recorded_watch(
    client: Client, target: ListTarget[T], pace: WatchTiming = QUICK
) -> AsyncIterator[WatchRecorder[T]]:
    """Watch, and be synced to begin with; an error of the watch is one of the test."""
    heard: WatchRecorder[T] = WatchRecorder()
    watch = Watch(client, target, heard, timing=pace)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(watch.run(heard.change, heard.has_synced))
        await heard.until(lambda: heard.synced > 0, "the first list")
        yield heard
        following.cancel()


def config_map(namespace: str, name: str, **data: str) -> dict[str, object]:
    """Return an object that nobody but the test cares about."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def versions_on_server(cluster: Cluster, namespace: str) -> dict[Key, str]:
    """Return key and version of every object there is, as another client sees it."""
    found, _ = await cluster.api.list(PLAIN_CONFIG_MAPS, namespace)
    return {
        Key(namespace, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for item in found
    }
