"""The smallest scheduler: it binds every pod that appears, one node after the other.

It keeps no gang, no queue and no capacity. It is here to show what the chain does by itself once
its pods are bound, and in which order it creates them.
"""

import itertools
from collections.abc import Callable, Sequence

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import SELECTED_NODE
from e2e.cluster.resources import PODS, PVCS, STORAGE_CLASSES, Obj
from e2e.cluster.timeline import State, Timeline


async def bind_pods_until(
    cluster: Cluster,
    timeline: Timeline,
    nodes: Sequence[str],
    done: Callable[[State], bool],
    timeout_s: float = 60.0,
) -> list[str]:
    """Bind every pod of the timeline until it is *done*; return the pods in the order of binding.

    The timeline must record pods, and claims where pods have them.
    """
    classes, _ = await cluster.api.list(STORAGE_CLASSES)
    waiting = {c["metadata"]["name"] for c in classes if _waits_for_consumer(c)}
    chosen: dict[str, str] = {}
    bound: list[str] = []
    next_node = itertools.cycle(nodes)
    async for state in timeline.follow(done, timeout_s):
        for pod in [obj for key, obj in state.items() if key.resource == PODS]:
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            node = chosen[name] if name in chosen else chosen.setdefault(name, next(next_node))
            wanted = _claims(pod)
            claims = [obj for obj in timeline.objects(PVCS) if obj["metadata"]["name"] in wanted]
            for claim in claims:
                await _choose_node(cluster, claim, node, waiting)
            ready = len(claims) == len(wanted) and all(_is_bound(claim) for claim in claims)
            if name not in bound and ready:
                bound.append(name)
                await cluster.api.bind(pod["metadata"]["namespace"], name, node)
    return bound


async def _choose_node(cluster: Cluster, claim: Obj, node: str, waiting: set[str]) -> None:
    """Tell a claim that waits for its first consumer where that will run."""
    metadata = claim["metadata"]
    chosen = metadata.get("annotations", {}).get(SELECTED_NODE)
    if claim["spec"]["storageClassName"] in waiting and not chosen:
        patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
        await cluster.api.merge(PVCS, metadata["namespace"], metadata["name"], patch)


def _claims(pod: Obj) -> list[str]:
    volumes = pod["spec"].get("volumes", [])
    return [
        v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v
    ]


def _is_bound(claim: Obj) -> bool:
    return bool(claim.get("status", {}).get("phase") == "Bound")


def _waits_for_consumer(storage_class: Obj) -> bool:
    return bool(storage_class["volumeBindingMode"] == "WaitForFirstConsumer")
