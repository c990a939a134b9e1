"""A consumer of a watch that holds the watch to its contract."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Generic, TypeVar

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CONFIG_MAPS as PLAIN_CONFIG_MAPS
from trainer_kai.api.meta import Key, Object, PartialObject
from trainer_kai.api.resource import Resource
from trainer_kai.clock import SystemClock
from trainer_kai.kube.client import Client
from trainer_kai.kube.connect import process_client
from trainer_kai.kube.errors import ApiError
from trainer_kai.kube.known import Change, What
from trainer_kai.kube.locate import find_access
from trainer_kai.kube.reading import Unreadable
from trainer_kai.kube.request import Target
from trainer_kai.kube.watch import Pace, Watch

__all__ = ["CONFIG_MAPS", "QUICK", "Heard", "client_of", "config_map", "hearing", "true_state"]

T = TypeVar("T", bound=Object)

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, PartialObject)  # noqa: FBT003
QUICK: Final = Pace(first_wait_s=0.05, longest_wait_s=0.5)
_PATIENCE_S: Final = 60.0


@asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[Client]:
    """Return our client, as a process has it."""
    clock = SystemClock()
    access = await find_access({}, clock, kubeconfig=str(kubeconfig))
    async with process_client(access, clock) as client:
        yield client


class Heard(Generic[T]):
    """Everything a watch told; it fails the test as soon as a change is told twice or too late."""

    def __init__(self) -> None:
        self.state: dict[Key, T] = {}
        self.changes: list[Change[T]] = []
        self.synced = 0
        self.reads: list[str] = []
        self.troubles: list[str] = []
        self.skipped: list[Unreadable] = []
        self._news = asyncio.Event()

    def change(self, change: Change[T]) -> None:
        """Take a change, if it can follow what came before it."""
        before = self.state.get(change.key)
        if change.what is What.DELETED:
            assert before is not None, f"{change} of an object that was not there"
            assert before.metadata.uid == change.uid
            del self.state[change.key]
        else:
            assert change.object is not None
            if change.what is What.ADDED:
                assert before is None, f"{change} of an object that was there"
            else:
                assert before is not None, f"{change} of an object that was not there"
                assert _version(before) < _version(change.object), f"{change} was told before"
            self.state[change.key] = change.object
        self.changes.append(change)
        self._news.set()

    def has_synced(self) -> None:
        """Take note of a list that was told whole."""
        self.synced += 1
        self._news.set()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something to become true."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            names = sorted(map(str, self.state))
            message = f"not within {_PATIENCE_S:g} s: {what}; troubles {self.troubles}; {names}"
            raise AssertionError(message) from None

    def watch_read(self, _resource: str, event: str) -> None:
        """Take note of an event."""
        self.reads.append(event)
        self._news.set()

    def watch_ended(self, _resource: str, trouble: str, _error: ApiError | None) -> None:
        """Take note of a failure."""
        if trouble:
            self.troubles.append(trouble)
        self._news.set()

    def watch_skipped(self, _resource: str, unreadable: Unreadable) -> None:
        """Take note of an object that cannot be read."""
        self.skipped.append(unreadable)


@asynccontextmanager
async def hearing(client: Client, target: Target[T], pace: Pace = QUICK) -> AsyncIterator[Heard[T]]:
    """Watch, and be synced to begin with; an error of the watch is one of the test."""
    heard: Heard[T] = Heard()
    watch = Watch(client, target, heard, pace=pace)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(watch.run(heard.change, heard.has_synced))
        await heard.until(lambda: heard.synced > 0, "the first list")
        yield heard
        following.cancel()


def _version(found: Object) -> int:
    return int(found.metadata.resource_version)


def config_map(namespace: str, name: str, **data: str) -> dict[str, object]:
    """Return an object that nobody but the test cares about."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def true_state(cluster: Cluster, namespace: str) -> dict[Key, str]:
    """Return key and version of every object there is, as another client sees it."""
    found, _ = await cluster.api.list(PLAIN_CONFIG_MAPS, namespace)
    return {
        Key(namespace, item["metadata"]["name"]): item["metadata"]["resourceVersion"]
        for item in found
    }
