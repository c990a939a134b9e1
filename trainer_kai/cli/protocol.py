"""The document of a simulation: names and numbers as its schema has them, all lists sorted.

CPUs and GPUs are counted whole, memory in bytes; what is not whole has three decimals at most.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from scheduler.core.explain import explain
from scheduler.core.model import Cause, Kind
from scheduler.state.cluster import Cluster
from scheduler.state.encode import Encoded
from scheduler.state.orders import Orders
from scheduler.state.reserved import read_reserved
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    GPU_FRACTION,
    GPU_GROUP,
    GPU_GROUP_PREFIX,
    GPU_MEMORY,
    LAST_START,
    QUEUE,
    RESERVED,
)
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.sentence import shortened
from trainer_kai.cli.ending import Ending

__all__ = [
    "Eviction",
    "amounts_json",
    "cycle_json",
    "devices_of",
    "evictions_of",
    "own_group",
    "phase_of",
    "states_json",
]

_THOUSANDTHS: Final = 1000
_KINDS: Final = (
    ("cpu", Kind.CPU, _THOUSANDTHS),
    ("memory", Kind.MEMORY, 1),
    ("gpu", Kind.GPU, _THOUSANDTHS),
)
_SHARING: Final = (GPU_FRACTION, GPU_MEMORY)
Json = dict[str, Any]


class Eviction(NamedTuple):
    """A pod that has to go."""

    pod: Key
    reason: str
    action: str
    work_lost: int  # GPU-seconds, by all that goes with it
    groups: tuple[str, ...]  # whose pods these are, all of one namespace


def evictions_of(orders: Orders) -> tuple[Eviction, ...]:
    """Return who has to go, and for whom."""
    return tuple(
        Eviction(pod, one.why, one.action, one.work_lost, tuple(it.name for it in one.groups))
        for one in orders.departures
        for pod in one.pods
    )


def cycle_json(encoded: Encoded, orders: Orders, cluster: Cluster) -> Json:
    """Return what a cycle decided; *cluster* has its reservations written down."""
    return {
        "binds": _sorted({**_pod(it.pod), "node": it.node, "gpuGroups": []} for it in orders.binds),
        "evictions": _sorted(
            {
                **_pod(it.pod),
                "reason": it.reason,
                "action": it.action,
                "workLost": it.work_lost,
                "podGroups": sorted(it.groups),
            }
            for it in evictions_of(orders)
        ),
        "nominations": _sorted({**_pod(it.pod), "node": it.node} for it in orders.nominations),
        "reservations": _reservations(encoded, cluster),
        "unschedulable": _sorted(
            {
                "namespace": it.group.namespace,
                "podGroup": it.group.name,
                "reason": it.verdict.title,
                "message": shortened(explain(encoded.snapshot, it.rejection)),
            }
            for it in orders.unschedulable
        ),
    }


def states_json(
    cluster: Cluster, gone: Iterable[Key], ends: tuple[Encoded, Ending], cycle: Json, default: str
) -> Json:
    """Return how everything is after the last cycle.

    *gone* were evicted for good; *default* is the queue of a pod that names none.
    """
    encoded, end = ends
    pods = [_pod_json(key, pod) for key, pod in cluster.pods.items()]
    pods += (
        {"namespace": key.namespace, "name": key.name, "phase": "Evicted", **_NOWHERE}
        for key in gone
    )
    return {
        "pods": _sorted(pods),
        "podGroups": _groups(cluster, encoded, cycle, default),
        "queues": [
            {
                "name": queue.name,
                "fairShare": amounts_json(queue.fair_share),
                "allocated": amounts_json(queue.allocated),
                "requested": amounts_json(queue.requested),
            }
            for queue in end.queues
        ],
        "nodes": [
            {
                "name": node.name,
                "idleGpus": _number(node.idle, _THOUSANDTHS),
                "releasingGpus": _number(node.releasing, _THOUSANDTHS),
            }
            for node in end.nodes
        ],
    }


_NOWHERE: Final[Json] = {"node": "", "gpuGroups": []}


def phase_of(pod: Pod) -> str:
    """Return how far a pod is."""
    if pod.status.phase in {"Succeeded", "Failed"}:
        return pod.status.phase
    if pod.metadata.deletion_timestamp:
        return "Releasing"
    return "Running" if pod.spec.node_name else "Pending"


def devices_of(pod: Pod) -> list[str]:
    """Return the shared devices that a pod has."""
    labels = pod.metadata.labels
    if not pod.spec.node_name or not any(name in pod.metadata.annotations for name in _SHARING):
        return []
    found = {name.removeprefix(GPU_GROUP_PREFIX) for name in labels if GPU_GROUP_PREFIX in name}
    if labels.get(GPU_GROUP):
        found.add(labels[GPU_GROUP])
    return sorted(found)


def _pod_json(key: Key, pod: Pod) -> Json:
    return {
        "namespace": key.namespace,
        "name": key.name,
        "phase": phase_of(pod),
        "node": pod.spec.node_name,
        "gpuGroups": devices_of(pod),
    }


def _groups(cluster: Cluster, encoded: Encoded, cycle: Json, default: str) -> list[Json]:
    """Return the groups, and the units that are pods on their own."""
    verdicts = {(it["namespace"], it["podGroup"]): it["reason"] for it in cycle["unschedulable"]}
    names = encoded.snapshot.queues.names
    queues = {
        key: names[unit.queue]
        for key, unit in zip(encoded.units, encoded.snapshot.units, strict=True)
        if unit.queue >= 0
    }
    alone = {own_group(key, pod): pod for key, pod in cluster.pods.items()}
    found = {}
    for key in {*cluster.pod_groups, *encoded.units}:
        group = cluster.pod_groups.get(key)
        found[key] = {
            "namespace": key.namespace,
            "name": key.name,
            "queue": queues.get(key) or _named(group, alone.get(key), default),
            "lastStartTimestamp": group.metadata.annotations.get(LAST_START, "") if group else "",
            "verdict": verdicts.get((key.namespace, key.name), ""),
        }
    return [found[key] for key in sorted(found)]


def own_group(key: Key, pod: Pod) -> Key:
    """Return what the unit of a pod without a group is called."""
    return Key(key.namespace, f"pg-{key.name}-{pod.metadata.uid}")


def _named(group: PodGroup | None, alone: Pod | None, default: str) -> str:
    """Return the queue that is asked for, whether there is one or not."""
    if group is not None:
        return group.spec.queue
    return (alone.metadata.labels.get(QUEUE) or default) if alone is not None else ""


def _reservations(encoded: Encoded, cluster: Cluster) -> list[Json]:
    """Return the slots that are held, those of earlier cycles included."""
    counts: dict[tuple[Key, str, str, Cause], int] = {}
    for key in encoded.units:
        group = cluster.pod_groups.get(key)
        slots = read_reserved(group.metadata.annotations.get(RESERVED, "")) if group else {}
        for of_leaf in slots.values() if isinstance(slots, Mapping) else ():
            for slot in of_leaf:
                name = (key, slot.leaf, slot.node, slot.cause)
                counts[name] = counts.get(name, 0) + 1
    return [
        {
            "namespace": key.namespace,
            "podGroup": key.name,
            "subGroup": leaf,
            "node": node,
            "count": count,
            "cause": cause.name.lower(),
        }
        for (key, leaf, node, cause), count in sorted(counts.items())
    ]


def _pod(key: Key) -> Json:
    return {"namespace": key.namespace, "pod": key.name}


def _sorted(items: Iterable[Json]) -> list[Json]:
    """Sort by namespace and name, which stand in front."""
    return sorted(items, key=lambda it: tuple(it.values())[:2])


def amounts_json(row: tuple[float, ...]) -> Json:
    """Return amounts by kind."""
    return {name: _number(row[kind], unit) for name, kind, unit in _KINDS}


def _number(amount: float, unit: int) -> float:
    number = round(amount / unit, 3)
    return int(number) if number == int(number) else number
