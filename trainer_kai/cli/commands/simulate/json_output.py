"""The JSON document of a simulation, with all lists sorted.

CPUs and GPUs are whole units, memory is in bytes; numbers have at most three decimals.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.state.cache.evictions import suspendable_id
from scheduler.state.commands import Commands, PlannedEviction, SuspendableId
from scheduler.state.inputs import Cluster
from scheduler.state.podgroups.podgroup import read_reserved
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import LAST_START, QUEUE, RESERVED
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.text import truncated_message
from trainer_kai.cli.commands.simulate.device_claims import claims_json
from trainer_kai.cli.commands.simulate.end_state import EndState
from trainer_kai.cli.output.queue_tables import THOUSANDTHS, Json, amounts_json, number_json
from trainer_kai.cli.output.unusable_gpus import unusable_json

if TYPE_CHECKING:
    from scheduler.core.model.podgroup import ReservationCause

GpuGroups: TypeAlias = Mapping[Key, Sequence[str]]  # the shared GPUs of pods on nodes
_UNPLACED: Final[Json] = {"node": "", "gpuGroups": []}


class EvictionRow(NamedTuple):
    pod: Key
    reason: str
    action: str
    work_lost: int  # GPU-seconds, of all pods that are evicted together
    podgroups: tuple[str, ...]  # the names of the PodGroups that are evicted together


def eviction_rows(commands: Commands) -> tuple[EvictionRow, ...]:
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


def suspended_kinds(commands: Commands, cluster: Cluster) -> dict[Key, str]:
    """Return the kind of what the scheduler suspends, by victim; it deletes the other victims.

    *cluster* is the one of the snapshot, which has the workloads.
    """
    kinds: dict[Key, str] = {}
    for eviction in commands.evictions:
        suspended = _suspended(eviction, cluster)
        if suspended is not None:
            kinds |= dict.fromkeys(eviction.pods, suspended.key.kind)
    return kinds


def _suspended(eviction: PlannedEviction, cluster: Cluster) -> SuspendableId | None:
    found = (suspendable_id(cluster, group) for group in eviction.groups)
    return next(filter(None, found), None)


def cycle_json(
    encoded: EncodedSnapshot,
    commands: Commands,
    cluster: Cluster,
    gpu_groups: GpuGroups,
    suspends: Mapping[Key, str],
) -> Json:
    """Return the decisions of a cycle; in *cluster* they are applied."""
    claims = {pod: of_pod for one in commands.podgroups for pod, of_pod in one.claims.items()}
    return {
        "binds": _sorted(
            {
                **_pod_name(it.pod),
                "node": it.node,
                "gpuGroups": sorted(gpu_groups.get(it.pod, ())),
                **claims_json(claims, it.pod),
            }
            for it in commands.binds
        ),
        "evictions": _sorted(
            {
                **_pod_name(it.pod),
                "reason": it.reason,
                "action": it.action,
                "workLost": it.work_lost,
                "podGroups": sorted(it.podgroups),
                **({"suspends": suspends[it.pod]} if it.pod in suspends else {}),
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
                "reason": it.reason.value,
                "message": truncated_message(rejection_message(encoded.snapshot, it.rejection)),
            }
            for it in commands.unschedulable
        ),
    }


def states_json(
    cluster: Cluster,
    gpu_groups: GpuGroups,
    evicted_keys: Iterable[Key],
    final: tuple[EncodedSnapshot, EndState],
    cycle: Json,
    default_queue: str,
) -> Json:
    """Return the state after the last cycle.

    *evicted_keys* are pods that were not recreated; *default_queue* is for pods that name none.
    """
    encoded, end_state = final
    unusable, names = end_state.unusable, encoded.snapshot.nodes.names
    pods = [_pod_json(key, pod, gpu_groups) for key, pod in cluster.pods.items()]
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
                "idleGpus": number_json(node.all_idle, THOUSANDTHS),
                "releasingGpus": number_json(node.all_releasing, THOUSANDTHS),
            }
            for node in end_state.nodes
        ],
        **({"unusableGpus": unusable_json(unusable, names)} if unusable.by_node else {}),
    }


def pod_phase(pod: Pod) -> str:
    if pod.status.phase in TERMINAL_PHASES:
        return pod.status.phase
    if pod.metadata.deletion_timestamp:
        return "Releasing"
    return "Running" if pod.spec.node_name else "Pending"


def _pod_json(key: Key, pod: Pod, gpu_groups: GpuGroups) -> Json:
    return {
        "namespace": key.namespace,
        "name": key.name,
        "phase": pod_phase(pod),
        "node": pod.spec.node_name,
        "gpuGroups": sorted(gpu_groups.get(key, ())) if pod.spec.node_name else [],
    }


def _podgroups_json(
    cluster: Cluster, encoded: EncodedSnapshot, cycle: Json, default_queue: str
) -> list[Json]:
    """Return the PodGroups, and those that the scheduler creates for pods without one."""
    unschedulable = cycle["unschedulable"]
    reasons = {Key(it["namespace"], it["podGroup"]): it["reason"] for it in unschedulable}
    names = encoded.snapshot.queues.names
    queues = {
        key: names[podgroup.queue]
        for key, podgroup in zip(encoded.podgroup_keys, encoded.snapshot.podgroups, strict=True)
        if podgroup.queue >= 0
    }
    single_pods = {own_podgroup_key(key, pod): pod for key, pod in cluster.pods.items()}
    documents = []
    for key in sorted({*cluster.pod_groups, *encoded.podgroup_keys}):
        group, single_pod = cluster.pod_groups.get(key), single_pods.get(key)
        document = {
            "namespace": key.namespace,
            "name": key.name,
            "queue": queues.get(key) or _requested_queue(group, single_pod, default_queue),
            "lastStartTimestamp": group.metadata.annotations.get(LAST_START, "") if group else "",
            "verdict": reasons.get(key, ""),
        }
        documents.append(document)
    return documents


def own_podgroup_key(key: Key, pod: Pod) -> Key:
    """Return the key of the PodGroup that stands for a pod without one."""
    return Key(key.namespace, f"pg-{key.name}-{pod.metadata.uid}")


def _requested_queue(group: PodGroup | None, single_pod: Pod | None, default_queue: str) -> str:
    if group is not None:
        return group.spec.queue
    if single_pod is not None:
        return single_pod.metadata.labels.get(QUEUE) or default_queue
    return ""


def _reservations_json(encoded: EncodedSnapshot, cluster: Cluster) -> list[Json]:
    """Return the reservations, also those of earlier cycles."""
    counts: Counter[tuple[Key, str, str, ReservationCause]] = Counter()
    for key in encoded.podgroup_keys:
        group = cluster.pod_groups.get(key)
        reserved = read_reserved(group.metadata.annotations.get(RESERVED, "")) if group else {}
        for places in reserved.values() if isinstance(reserved, Mapping) else ():
            counts.update((key, it.podset, it.node, it.cause) for it in places)
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
    """Return items sorted by namespace and name, their first two fields."""
    return sorted(items, key=lambda it: tuple(it.values())[:2])
