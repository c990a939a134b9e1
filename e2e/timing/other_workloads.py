"""Pods, Jobs and Deployments of other users, and how long the API server takes to create them."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import JOBS, PODS, Obj
from e2e.cluster.timeline import Timeline
from e2e.conftest import EDGES_MS
from e2e.fixtures.install import DEPLOYMENTS

_PODS: Final = 120
_OWNERS_OF_EACH_KIND: Final = 6  # Jobs, and as many Deployments, each of two pods
_IN_FLIGHT: Final = 4


class Latencies(NamedTuple):
    """How long it took to create each pod, in milliseconds, sorted."""

    ms: Sequence[float]

    def at(self, part: float) -> float:
        """Return what such a part of them did not exceed."""
        return self.ms[min(int(part * len(self.ms)), len(self.ms) - 1)]

    def histogram(self) -> tuple[str, ...]:
        """Return how many took less than each edge, and not less than the one before."""
        below = [sum(it < edge for it in self.ms) for edge in EDGES_MS]
        counts = [b - a for a, b in zip([0, *below], [*below, len(self.ms)], strict=False)]
        return tuple(str(count or "") for count in counts)


async def create_other_workloads(
    cluster: Cluster, seen: Timeline, room: str, mark: str
) -> Latencies:
    """Create them; return how long pods took once those of the others exist, too.

    *seen* follows the pods of the room.
    """
    bodies = [_pod(f"{mark}-{i}") for i in range(_PODS)]
    gate = asyncio.Semaphore(_IN_FLIGHT)
    spent_ms: list[float] = []

    async def make(body: Obj) -> None:
        async with gate:
            began = time.monotonic()
            await cluster.api.request("POST", PODS.path(room), body)
            spent_ms.append((time.monotonic() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for body in bodies:
            group.create_task(make(body))
        for i in range(_OWNERS_OF_EACH_KIND):
            for path, body in _owners(room, f"{mark}-{i}"):
                group.create_task(cluster.api.request("POST", path, body))
    wanted = _PODS + 4 * _OWNERS_OF_EACH_KIND

    await seen.until(
        lambda state: sum(key.name.startswith(f"{mark}-") for key in state) == wanted,
        f"the pods of others exist: {mark}",
        20,
    )
    return Latencies(sorted(spent_ms))


def _spec(restart: str) -> Obj:
    return {"restartPolicy": restart, "containers": [{"name": "c", "image": "none"}]}


def _pod(name: str) -> Obj:
    meta = {"name": name, "labels": {"app": "other"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": _spec("Never")}


def _owners(room: str, name: str) -> list[tuple[str, Obj]]:
    """Return a Job and a Deployment."""
    labels = {"app": name}
    job: Obj = {"parallelism": 2, "completions": 2, "template": {"spec": _spec("Never")}}
    template = {"metadata": {"labels": labels}, "spec": _spec("Always")}
    deployment = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return [
        (
            resource.path(room),
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": f"{name}-{resource.plural}"},
                "spec": spec,
            },
        )
        for resource, spec in ((JOBS, job), (DEPLOYMENTS, deployment))
    ]
