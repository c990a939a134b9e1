"""The JSON document of a simulation: names and numbers as its schema has them, all lists sorted.

CPUs and GPUs are counted whole, memory in bytes; other numbers have at most three decimals.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.core.messages import rejection_message
from scheduler.state.commands import Commands
from scheduler.state.inputs import Cluster
from scheduler.state.podgroups.reserved_annotation import read_reserved
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.message_length import truncated_message
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
from trainer_kai.cli.commands.simulate.end_state import EndState
from trainer_kai.cli.output.queue_tables import THOUSANDTHS, Json, amounts_json, number_json

if TYPE_CHECKING:
    from scheduler.core.model.podgroup import ReservationCause

__all__ = [
    "EvictionRow",
    "cycle_json",
    "eviction_rows",
    "gpu_groups_of",
    "own_podgroup_key",
    "pod_phase",
    "states_json",
]

_SHARING: Final = (GPU_FRACTION, GPU_MEMORY)


class EvictionRow(NamedTuple):
    """A pod that has to go."""

    pod: Key
    reason: str
    action: str
    work_lost: int  # GPU-seconds, by all that goes with it
    podgroups: tuple[str, ...]  # whose pods these are, all of one namespace


def eviction_rows(commands: Commands) -> tuple[EvictionRow, ...]:
    """Return who has to go, and for whom."""
    return tuple(
        EvictionRow(
            pod,
            eviction.reason,
            eviction.action,
            eviction.lost_work,
            tuple(it.name for it in eviction.groups),
        )
        for eviction in commands.evictions
        for pod in eviction.pods
    )


def cycle_json(encoded: EncodedSnapshot, commands: Commands, cluster: Cluster) -> Json:
    """Return what a cycle decided; *cluster* has its reservations written down."""
    return {
        "binds": _sorted(
            {**_pod_name(it.pod), "node": it.node, "gpuGroups": []} for it in commands.binds
        ),
        "evictions": _sorted(
            {
                **_pod_name(it.pod),
                "reason": it.reason,
                "action": it.action,
                "workLost": it.work_lost,
                "podGroups": sorted(it.podgroups),
            }
            for it in eviction_rows(commands)
        ),
        "nominations": _sorted(
            {**_pod_name(it.pod), "node": it.node} for it in commands.nominations
        ),
        "reservations": _reservations_json(encoded, cluster),
        "unschedulable": _sorted(
            {
                "namespace": it.group.namespace,
                "podGroup": it.group.name,
                "reason": it.reason.title,
                "message": truncated_message(rejection_message(encoded.snapshot, it.rejection)),
            }
            for it in commands.unschedulable
        ),
    }


def states_json(
    cluster: Cluster,
    evicted_keys: Iterable[Key],
    final: tuple[EncodedSnapshot, EndState],
    cycle: Json,
    default_queue: str,
) -> Json:
    """Return how everything is after the last cycle.

    *gone* were evicted for good; *default* is the queue of a pod that names none.
    """
    encoded, end_state = final
    pods = [_pod_json(key, pod) for key, pod in cluster.pods.items()]
    pods += (
        {"namespace": key.namespace, "name": key.name, "phase": "Evicted", **_UNPLACED}
        for key in evicted_keys
    )
    return {
        "pods": _sorted(pods),
        "podGroups": _podgroups_json(cluster, encoded, cycle, default_queue),
        "queues": [
            {
                "name": queue.name,
                "fairShare": amounts_json(queue.fair_share),
                "allocated": amounts_json(queue.allocated),
                "requested": amounts_json(queue.requested),
            }
            for queue in end_state.queues
        ],
        "nodes": [
            {
                "name": node.name,
                "idleGpus": number_json(node.idle, THOUSANDTHS),
                "releasingGpus": number_json(node.releasing, THOUSANDTHS),
            }
            for node in end_state.nodes
        ],
    }


_UNPLACED: Final[Json] = {"node": "", "gpuGroups": []}


def pod_phase(pod: Pod) -> str:
    """Return how far a pod is."""
    if pod.status.phase in {"Succeeded", "Failed"}:
        return pod.status.phase
    if pod.metadata.deletion_timestamp:
        return "Releasing"
    return "Running" if pod.spec.node_name else "Pending"


def gpu_groups_of(pod: Pod) -> list[str]:
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
        "phase": pod_phase(pod),
        "node": pod.spec.node_name,
        "gpuGroups": gpu_groups_of(pod),
    }


def _podgroups_json(
    cluster: Cluster, encoded: EncodedSnapshot, cycle: Json, default_queue: str
) -> list[Json]:
    """Return the groups, and the units that are pods on their own."""
    verdicts = {(it["namespace"], it["podGroup"]): it["reason"] for it in cycle["unschedulable"]}
    names = encoded.snapshot.queues.names
    queues = {
        key: names[podgroup.queue]
        for key, podgroup in zip(encoded.podgroup_keys, encoded.snapshot.podgroups, strict=True)
        if podgroup.queue >= 0
    }
    single_pod = {own_podgroup_key(key, pod): pod for key, pod in cluster.pods.items()}
    found = {}
    for key in {*cluster.pod_groups, *encoded.podgroup_keys}:
        group = cluster.pod_groups.get(key)
        found[key] = {
            "namespace": key.namespace,
            "name": key.name,
            "queue": queues.get(key) or _requested_queue(group, single_pod.get(key), default_queue),
            "lastStartTimestamp": group.metadata.annotations.get(LAST_START, "") if group else "",
            "verdict": verdicts.get((key.namespace, key.name), ""),
        }
    return [found[key] for key in sorted(found)]


def own_podgroup_key(key: Key, pod: Pod) -> Key:
    """Return what the unit of a pod without a group is called."""
    return Key(key.namespace, f"pg-{key.name}-{pod.metadata.uid}")


def _requested_queue(group: PodGroup | None, single_pod: Pod | None, default_queue: str) -> str:
    """Return the queue that is asked for, whether there is one or not."""
    if group is not None:
        return group.spec.queue
    return (
        (single_pod.metadata.labels.get(QUEUE) or default_queue) if single_pod is not None else ""
    )


def _reservations_json(encoded: EncodedSnapshot, cluster: Cluster) -> list[Json]:
    """Return the slots that are held, those of earlier cycles included."""
    counts: dict[tuple[Key, str, str, ReservationCause], int] = {}
    for key in encoded.podgroup_keys:
        group = cluster.pod_groups.get(key)
        reserved_places = (
            read_reserved(group.metadata.annotations.get(RESERVED, "")) if group else {}
        )
        for places in reserved_places.values() if isinstance(reserved_places, Mapping) else ():
            for reserved_place in places:
                name = (key, reserved_place.podset, reserved_place.node, reserved_place.cause)
                counts[name] = counts.get(name, 0) + 1
    return [
        {
            "namespace": key.namespace,
            "podGroup": key.name,
            "subGroup": podset,
            "node": node,
            "count": count,
            "cause": cause.name.lower(),
        }
        for (key, podset, node, cause), count in sorted(counts.items())
    ]


def _pod_name(key: Key) -> Json:
    return {"namespace": key.namespace, "pod": key.name}


def _sorted(items: Iterable[Json]) -> list[Json]:
    """Sort by namespace and name, which stand in front."""
    return sorted(items, key=lambda it: tuple(it.values())[:2])
