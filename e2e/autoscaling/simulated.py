"""An autoscaler that follows the rules of cluster-autoscaler and Karpenter, for pods with GPUs.

1. It acts on pods without a node, and without a nominated one, with the condition PodScheduled of
   the reason Unschedulable. Nothing else of a pod tells it to act; the scheduler does not matter.
2. It leaves out what fits an existing node by filters of kube-scheduler: GPUs, node selector,
   taints. It knows no gangs, queues and topologies. A node that it has added counts as it will be,
   until it is.
3. It adds nodes of one shape for the others, as many as the largest pods first need, up to a limit.
4. It removes a node of its own that has had no pod for a while.

It takes a second for a scan, where cluster-autoscaler has ten and Karpenter waits for a batch.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import GPU, NodeShape, make_nodes
from e2e.cluster.resources import NODES, PODS, Obj
from e2e.cluster.trainjobs import condition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SCAN_S: Final = 1.0
_OURS: Final = "e2e.trainer-kai.dev/autoscaled"


@dataclass
class Autoscaler:
    """What it may do, and what it has done."""

    cluster: Cluster
    limit: int = 100  # nodes that it may have at once
    gpus: int = 8  # of each node
    idle_s: float = 15.0
    startup_taint: str = ""  # which new nodes have until a test takes it away
    labels: Mapping[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    scans: int = 0
    _empty_since: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Scan until it is ended."""
        while True:
            nodes, _ = await self.cluster.api.list(NODES)
            pods, _ = await self.cluster.api.list(PODS)
            mine = [it for it in nodes if _OURS in it["metadata"]["labels"]]
            wanted = missing_nodes(pods, nodes, self.gpus, self.startup_taint)
            for _ in range(min(wanted, self.limit - len(mine))):
                await self._add()
            await self._remove_empty(mine, pods)
            self.scans += 1
            await asyncio.sleep(_SCAN_S)

    async def until_scanned(self, times: int = 3) -> None:
        """Wait until it has looked so many times again."""
        until = self.scans + times + 1
        while self.scans < until:
            await asyncio.sleep(_SCAN_S / 4)

    async def _add(self) -> None:
        name = f"added-{len(self.added)}"
        taints = [{"key": self.startup_taint, "effect": "NoSchedule"}] if self.startup_taint else []
        shape = NodeShape(gpus=self.gpus, labels={_OURS: "true", **self.labels}, taints=taints)
        (body,) = make_nodes(1, shape, prefix="added")
        body["metadata"]["name"] = name
        body["metadata"]["labels"]["kubernetes.io/hostname"] = name
        self.added.append(name)
        await self.cluster.api.create(body)

    async def _remove_empty(self, mine: Iterable[Obj], pods: Iterable[Obj]) -> None:
        used = {it["spec"].get("nodeName") for it in pods if _is_live(it)}
        now = time.monotonic()
        for name in (it["metadata"]["name"] for it in mine):
            if name in used:
                self._empty_since.pop(name, None)
            elif now - self._empty_since.setdefault(name, now) >= self.idle_s:
                self._empty_since.pop(name)
                await self.cluster.api.delete(NODES, None, name)
                self.removed.append(name)


@asynccontextmanager
async def autoscaling(cluster: Cluster, **options: Any) -> "AsyncIterator[Autoscaler]":
    """Run an autoscaler; at the end its nodes are deleted."""
    autoscaler = Autoscaler(cluster, **options)
    running = asyncio.create_task(autoscaler.run())
    try:
        yield autoscaler
        assert not running.done(), "the autoscaler has ended"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        nodes, _ = await cluster.api.list(NODES)
        for name in (it["metadata"]["name"] for it in nodes if _OURS in it["metadata"]["labels"]):
            await cluster.api.delete(NODES, None, name)


def missing_nodes(
    pods: Sequence[Obj], nodes: Sequence[Obj], gpus: int, startup_taint: str = ""
) -> int:
    """Return how many nodes of so many GPUs are to be added."""
    free = {it["metadata"]["name"]: _gpus_of(it, gpus) for it in nodes}
    for pod in filter(_is_live, pods):
        node = pod["spec"].get("nodeName")
        if node in free:
            free[node] -= requested(pod)
    waiting = sorted(filter(is_unschedulable, pods), key=requested, reverse=True)
    new: list[int] = []
    for pod in waiting:
        number, fits = requested(pod), _filter(pod, startup_taint)
        name = next(
            (it["metadata"]["name"] for it in nodes if _has(free, it, number) and fits(it)), ""
        )
        if name:
            free[name] -= number
            continue
        at = next((i for i, left in enumerate(new) if left >= number), len(new))
        if number > gpus:
            continue  # no node of this shape would do
        if at == len(new):
            new.append(gpus)
        new[at] -= number
    return len(new)


def is_unschedulable(pod: Obj) -> bool:
    """Say whether an autoscaler acts on a pod."""
    if pod["spec"].get("nodeName") or pod.get("status", {}).get("nominatedNodeName"):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return not pod["metadata"].get("deletionTimestamp") and any(
        (it["type"], it["status"], it.get("reason")) == ("PodScheduled", "False", "Unschedulable")
        for it in conditions
    )


def requested(pod: Obj) -> int:
    """Return the GPUs that a pod requests."""
    containers = pod["spec"]["containers"]
    return sum(int(it.get("resources", {}).get("requests", {}).get(GPU, 0)) for it in containers)


def _gpus_of(node: Obj, gpus: int) -> int:
    if _OURS in node["metadata"]["labels"]:
        return gpus  # as it will be
    return int(node["status"].get("allocatable", {}).get(GPU, 0))


def _has(free: Mapping[str, int], node: Obj, number: int) -> bool:
    is_ready = bool(condition(node, "Ready")) or _OURS in node["metadata"]["labels"]
    return is_ready and free[node["metadata"]["name"]] >= number


def _filter(pod: Obj, startup_taint: str) -> Callable[[Obj], bool]:
    selector = pod["spec"].get("nodeSelector", {})
    tolerated = {it.get("key") for it in pod["spec"].get("tolerations", [])}

    def fits(node: Obj) -> bool:
        taints = node["spec"].get("taints", [])
        closed = {it["key"] for it in taints if it["effect"] != "PreferNoSchedule"}
        labels = node["metadata"]["labels"]
        is_ours = _OURS in labels
        # What a node has until it is ready is known to an autoscaler, as a startup taint is.
        starting = {startup_taint, "node.kubernetes.io/not-ready"} if is_ours else set()
        has_labels = all(labels.get(name) == value for name, value in selector.items())
        return has_labels and closed - starting <= tolerated

    return fits


def _is_live(pod: Obj) -> bool:
    is_bound = bool(pod["spec"].get("nodeName"))
    return is_bound and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
