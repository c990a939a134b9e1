"""Record pods as the API server writes them, byte for byte but for what no two runs share.

One pod of a TrainJob that waits for a node, and one that runs on a node. Random names, addresses
and times are replaced by others of the same length, so that a recording can be compared with the
next one.
"""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.cluster import resources
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience
from e2e.cluster.resources import NAMESPACES, PODS, Obj
from e2e.cluster.trainjobs import Submission

_NAMESPACE: Final = "record-pods"
_PATIENCE_S: Final = 60.0
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STABLE_FIELDS: Final = (  # what differs from run to run, and what stands in its place
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "2026-01-05T09:00:00Z"),
    (re.compile(r'(?<="resourceVersion":")\d+'), "1000"),
    (re.compile(r"(?<=kube-api-access-)[a-z0-9]{5}"), "bcdfg"),
    (re.compile(r"(?<=job-node-0-[01]-)[a-z0-9]{5}"), "hjklm"),
    (re.compile(r"(?<![0-9.])10\.0\.\d+\.\d+(?![0-9.])"), "10.0.0.1"),
)


async def record_pods(cluster: Cluster) -> Mapping[Path, str]:
    """Submit one TrainJob of two pods, bind one of them, and return the text of both."""
    await cluster.api.create(resources.namespace(_NAMESPACE))
    (node,) = await cluster.add_nodes(1, prefix="recorded")
    job = Submission("job", "torch-distributed", _NAMESPACE, num_nodes=2, gpus=1)
    await cluster.api.create(job.trainjob())
    async with patience(_PATIENCE_S):
        first, second = sorted(await _pods(cluster), key=lambda pod: pod["metadata"]["name"])
        await cluster.api.bind(_NAMESPACE, first["metadata"]["name"], node)
        while not _is_ready(await _pod(cluster, first)):
            await asyncio.sleep(0.05)
        texts = [await _text(cluster, pod) for pod in (second, first)]
    await cluster.api.delete(NAMESPACES, None, _NAMESPACE)
    files = (Path("pods") / "pending.json", Path("pods") / "running.json")
    return {file: _stable_text(text) for file, text in zip(files, texts, strict=True)}


async def _pods(cluster: Cluster) -> list[Obj]:
    while len(pods := (await cluster.api.list(PODS, _NAMESPACE))[0]) < 2:
        await asyncio.sleep(0.05)
    return pods


async def _pod(cluster: Cluster, pod: Obj) -> Obj:
    return await cluster.api.get(PODS, _NAMESPACE, pod["metadata"]["name"])


def _is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


async def _text(cluster: Cluster, pod: Obj) -> str:
    async with cluster.api.stream(PODS.path(_NAMESPACE, pod["metadata"]["name"]), {}) as lines:
        return "\n".join([line.decode() async for line in lines]) + "\n"


def _stable_text(text: str) -> str:
    for found, instead in _STABLE_FIELDS:
        text = found.sub(instead, text)
    uids = dict.fromkeys(_UID.findall(text))
    for number, uid in enumerate(uids):
        text = text.replace(uid, f"{number:08x}-0000-4000-8000-000000000000")
    return text
