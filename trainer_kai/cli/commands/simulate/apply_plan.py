"""What happens between two plans of a simulation: all decisions are applied.

`shared_gpu_ids` names the GPUs that pods share: in a cluster the scheduler chooses the id when it
binds the first pod, and writes it on each pod as a label. `apply_plan` binds, nominates, evicts and
writes annotations. `finish_transitions` lets terminating pods end, and recreates them.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from msgspec.structs import replace

from scheduler.core.model.result import Plan, PodPlacement
from scheduler.state.inputs import Cluster
from scheduler.state.pods.gpu_share_metadata import named_gpus
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.interning import spec_on_node, spec_without_node
from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import SELECTED_NODE
from trainer_kai.api.pod import TERMINAL_PHASES, Pod, PodStatus
from trainer_kai.cli.input.cluster import pod_with_gpu_groups

_SCHEDULED = "PodScheduled"
_IDS: Final = UUID("6d1b3c1e-6a55-4d25-9a53-0b8f2d0c7f11")  # the namespace of ids of shared GPUs
_Device: TypeAlias = tuple[int, str | int]  # the node, and the planner's id; the slot of a new one
SharingPods: TypeAlias = Mapping[Key, tuple[int, tuple[str, ...]]]  # node, and ids of the planner


class Binding(NamedTuple):
    pod: Key
    node: str
    gpu_groups: tuple[str, ...] = ()


def pods_on_shared_gpus(encoded: EncodedSnapshot) -> SharingPods:
    """Return the pods that share GPUs: the row of the node, and the planner's ids of the GPUs."""
    snapshot, ids = encoded.snapshot, _ids_by_node(encoded)
    return {
        encoded.pod_keys[pod]: (node, tuple([ids[node][slot] for slot in slots]))
        for pod, slots in snapshot.devices.slots_of_pod.items()
        for node in (int(snapshot.pods.node[pod]),)
    }


def with_terminating_as_running(cluster: Cluster) -> Cluster | None:
    """Return the cluster with terminating pods as running ones, or None if there are none.

    A snapshot has the GPUs of running pods only. A terminating pod is on the same GPUs as if it
    were running.
    """
    running = {
        key: replace(pod, metadata=replace(pod.metadata, deletion_timestamp=""))
        for key, pod in cluster.pods.items()
        if pod.metadata.deletion_timestamp and pod.spec.node_name
    }
    return dataclasses.replace(cluster, pods={**cluster.pods, **running}) if running else None


def shared_gpu_ids(
    cluster: Cluster, encoded: EncodedSnapshot, core_plan: Plan, sharing: SharingPods
) -> dict[Key, tuple[str, ...]]:
    """Return the ids of the GPUs that pods share: of placed pods, and of those in *sharing*.

    A GPU keeps the id in the labels of its pods. A GPU without one gets an id that depends on its
    first pod, so that the same input gives the same ids.
    """
    ids: dict[_Device, str] = {
        (node, name): name
        for key, (node, names) in sharing.items()
        for name in {*names}.intersection(named_gpus(cluster.pods[key].metadata.labels))
    }
    devices: list[tuple[Key, list[_Device]]] = [
        (key, [(node, name) for name in names]) for key, (node, names) in sorted(sharing.items())
    ]
    known = _ids_by_node(encoded)
    for it in _placements(core_plan):
        names = known.get(it.node, [])
        of_pod: list[_Device] = [
            (it.node, names[slot] if slot < len(names) else slot) for slot in it.slots
        ]
        devices.append((encoded.pod_keys[it.pod], of_pod))
    groups, taken = {}, {*ids.values()}
    for key, of_pod in devices:
        for position, device in enumerate(of_pod):
            if device not in ids:
                node = encoded.snapshot.nodes.names[device[0]]
                ids[device] = _new_id(f"{node}/{key}/{position}", taken)
        groups[key] = tuple([ids[device] for device in of_pod])
    return groups


def _ids_by_node(encoded: EncodedSnapshot) -> dict[int, list[str]]:
    """Return the planner's ids of the shared GPUs of each node, in the order of their slots."""
    devices, found = encoded.snapshot.devices, dict[int, list[str]]()
    for node, name in zip(devices.node.tolist(), devices.ids, strict=True):
        found.setdefault(node, []).append(name)
    return found


def _new_id(name: str, taken: set[str]) -> str:
    """Return the id of a GPU; a pod that is bound once more may have left its id to others."""
    found = str(uuid5(_IDS, name))
    while found in taken:
        found = str(uuid5(_IDS, found))
    taken.add(found)
    return found


def _placements(core_plan: Plan) -> Iterator[PodPlacement]:
    """Yield the placed pods that get shares of GPUs; pods that are bound first."""
    for allocation in core_plan.allocations:
        yield from (it for it in allocation.binds if it.slots)
    for allocation in core_plan.allocations:
        yield from (it for it in allocation.nominations if it.slots)


def label_running_pods(cluster: Cluster, gpu_groups: Mapping[Key, tuple[str, ...]]) -> None:
    """Write the shared GPUs on pods with other labels, so that they stay on these GPUs."""
    for key, named in gpu_groups.items():
        pod = cluster.pods[key]
        if pod.spec.node_name and named_gpus(pod.metadata.labels) != sorted(named):
            cluster.pods[key] = pod_with_gpu_groups(pod, named)


def apply_plan(
    cluster: Cluster,
    binds: Iterable[Binding],
    evicted: Iterable[Key],
    nominated: Mapping[Key, str],
    new_annotations: Mapping[Key, Mapping[str, str]],
    now: str,
) -> None:
    """Bind and nominate pods, mark evicted pods as terminating, and annotate PodGroups.

    A new annotation "" removes the annotation.
    """
    for bind in binds:
        pod = cluster.pods[bind.pod]
        others = [it for it in pod.status.conditions if it.type != _SCHEDULED]
        scheduled = Condition(type=_SCHEDULED, status="True", last_transition_time=now)
        conditions = (*others, scheduled)
        status = replace(pod.status, phase="Running", nominated_node_name="", conditions=conditions)
        placed = replace(pod, spec=spec_on_node(pod.spec, bind.node), status=status)
        cluster.pods[bind.pod] = pod_with_gpu_groups(placed, bind.gpu_groups)
        _select_node_for_claims(cluster, pod, bind.node)
    for key in evicted:
        pod = cluster.pods[key]
        meta = replace(pod.metadata, deletion_timestamp=now)
        cluster.pods[key] = replace(pod, metadata=meta)
    for key, node in nominated.items():
        pod = cluster.pods[key]
        status = replace(pod.status, nominated_node_name=node)
        cluster.pods[key] = replace(pod, status=status)
    for key, changes in new_annotations.items():
        group = cluster.pod_groups.get(key)
        if group is not None:
            annotations = {**group.metadata.annotations, **changes}
            for name in (name for name, text in changes.items() if not text):
                del annotations[name]
            meta = replace(group.metadata, annotations=annotations)
            cluster.pod_groups[key] = replace(group, metadata=meta)


def finish_transitions(
    cluster: Cluster,
    evicted: Collection[Key],
    nominated: Mapping[Key, str],
    *,
    recreates: bool,
    finishes: bool,
) -> None:
    """Remove or recreate evicted pods, and recreate or keep pods that were terminating.

    *nominated* are the nominated nodes from now on; other pods have none.
    """
    for key, pod in [*cluster.pods.items()]:
        if key in evicted and not recreates:
            del cluster.pods[key]
        elif key in evicted or (finishes and _is_terminating(pod)):
            cluster.pods[key] = _recreated(pod)
        elif pod.spec.node_name and pod.status.phase == "Pending":
            status = replace(pod.status, phase="Running")
            cluster.pods[key] = replace(pod, status=status)
        elif pod.status.nominated_node_name != nominated.get(key, ""):
            status = replace(pod.status, nominated_node_name=nominated.get(key, ""))
            cluster.pods[key] = replace(pod, status=status)


def _is_terminating(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp) and pod.status.phase not in TERMINAL_PHASES


def _recreated(pod: Pod) -> Pod:
    """Return the pod that replaces a finished one: with the same name and age."""
    meta, status = replace(pod.metadata, deletion_timestamp=""), PodStatus(phase="Pending")
    recreated = replace(pod, metadata=meta, spec=spec_without_node(pod.spec), status=status)
    return pod_with_gpu_groups(recreated, ())


def _select_node_for_claims(cluster: Cluster, pod: Pod, node: str) -> None:
    """Select the node of a pod for its claims that wait for their first consumer."""
    for volume in pod.spec.volumes:
        source = volume.persistent_volume_claim
        name = source.claim_name if source else f"{pod.metadata.name}-{volume.name}"
        key = Key(pod.metadata.namespace, name)
        claim = cluster.claims.get(key)
        if claim is not None and not claim.spec.volume_name:
            annotations = {**claim.metadata.annotations, SELECTED_NODE: node}
            meta = replace(claim.metadata, annotations=annotations)
            cluster.claims[key] = replace(claim, metadata=meta)
