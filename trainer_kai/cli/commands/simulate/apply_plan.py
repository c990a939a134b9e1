"""What happens between two plans of a simulation: all decisions are applied.

`apply_plan` binds, nominates, evicts and writes annotations. `finish_transitions` lets terminating
pods end, and recreates them. `shared_gpu_ids` names the GPUs that pods share: in a cluster the
scheduler chooses the id when it binds the first pod, and writes it on each pod as a label.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from msgspec.structs import replace

from scheduler.core.model.result import Plan, PodPlacement
from scheduler.state.inputs import Cluster
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from trainer_kai.api.interning import spec_on_node, spec_without_node
from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX, SELECTED_NODE
from trainer_kai.api.pod import TERMINAL_PHASES, Pod, PodStatus
from trainer_kai.cli.input.cluster import with_gpu_groups

__all__ = [
    "Binding",
    "apply_plan",
    "finish_transitions",
    "is_finished",
    "label_running_pods",
    "shared_gpu_ids",
]

_SCHEDULED = "PodScheduled"
_IDS: Final = UUID("6d1b3c1e-6a55-4d25-9a53-0b8f2d0c7f11")  # the namespace of ids of shared GPUs
_Device: TypeAlias = tuple[int, int]  # node and slot


class Binding(NamedTuple):
    """A pod, its node, and the GPU groups that it shares there."""

    pod: Key
    node: str
    gpu_groups: tuple[str, ...] = ()


def is_finished(pod: Pod) -> bool:
    """Say whether a pod has succeeded or failed."""
    return pod.status.phase in TERMINAL_PHASES


def shared_gpu_ids(
    cluster: Cluster, encoded: EncodedSnapshot, core_plan: Plan
) -> dict[Key, tuple[str, ...]]:
    """Return the ids of the GPUs that pods share: of placed pods, and of running ones.

    A GPU keeps the id in the labels of its pods. A GPU without one gets an id that depends on its
    first pod, so that the same input gives the same ids.
    """
    snapshot = encoded.snapshot
    placements = [*_placements(core_plan)]
    running = sorted(
        (encoded.pod_keys[pod], PodPlacement(pod, int(snapshot.pods.node[pod]), slots))
        for pod, slots in snapshot.devices.slots_of_pod.items()
    )
    ids = _labelled_ids(cluster, encoded) if running or placements else {}
    groups, taken = {}, {*ids.values()}
    for placement in (*(it for _, it in running), *placements):
        key, node = encoded.pod_keys[placement.pod], snapshot.nodes.names[placement.node]
        for position, slot in enumerate(placement.slots):
            if (placement.node, slot) not in ids:
                ids[placement.node, slot] = _new_id(f"{node}/{key}/{position}", taken)
        groups[key] = tuple([ids[placement.node, slot] for slot in placement.slots])
    return groups


def _new_id(name: str, taken: set[str]) -> str:
    """Return the id of a GPU; a pod that is bound once more may have left its id to others."""
    found = str(uuid5(_IDS, name))
    while found in taken:
        found = str(uuid5(_IDS, found))
    taken.add(found)
    return found


def _placements(core_plan: Plan) -> Iterator[PodPlacement]:
    """Yield the placed pods that get shares of GPUs; those that are bound first."""
    for allocation in core_plan.allocations:
        yield from (it for it in allocation.binds if it.slots)
    for allocation in core_plan.allocations:
        yield from (it for it in allocation.nominations if it.slots)


def _labelled_ids(cluster: Cluster, encoded: EncodedSnapshot) -> dict[_Device, str]:
    """Return the ids of the shared GPUs of a snapshot that labels of pods have."""
    devices, names = encoded.snapshot.devices, encoded.snapshot.nodes.names
    labelled = {
        (pod.spec.node_name, name)
        for pod in cluster.pods.values()
        if pod.spec.node_name
        for name in _gpu_groups(pod)
    }
    ids, slots = dict[_Device, str](), dict[int, int]()
    for node, name in zip(devices.node.tolist(), devices.ids, strict=True):
        slot = slots.get(node, 0)
        slots[node] = slot + 1
        if (names[node], name) in labelled:
            ids[node, slot] = name
    return ids


def _gpu_groups(pod: Pod) -> Iterator[str]:
    for name, value in pod.metadata.labels.items():
        if name == GPU_GROUP or name.startswith(GPU_GROUP_PREFIX):
            yield value


def label_running_pods(cluster: Cluster, gpu_groups: Mapping[Key, tuple[str, ...]]) -> None:
    """Write the shared GPUs on running pods that lack the label of one, so that they stay there."""
    for key, named in gpu_groups.items():
        pod = cluster.pods[key]
        if pod.spec.node_name and not {*_gpu_groups(pod)} >= {*named}:
            cluster.pods[key] = with_gpu_groups(pod, named)


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
        cluster.pods[bind.pod] = with_gpu_groups(placed, bind.gpu_groups)
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
            remaining = {
                name: text for name, text in annotations.items() if text or name not in changes
            }
            meta = replace(group.metadata, annotations=remaining)
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
        elif key in evicted or (
            finishes and pod.metadata.deletion_timestamp and not is_finished(pod)
        ):
            cluster.pods[key] = _recreated(pod)
        elif pod.spec.node_name and pod.status.phase == "Pending":
            status = replace(pod.status, phase="Running")
            cluster.pods[key] = replace(pod, status=status)
        elif pod.status.nominated_node_name != nominated.get(key, ""):
            status = replace(pod.status, nominated_node_name=nominated.get(key, ""))
            cluster.pods[key] = replace(pod, status=status)


def _recreated(pod: Pod) -> Pod:
    """Return the pod that replaces a finished one: with the same name and age."""
    meta = replace(pod.metadata, deletion_timestamp="")
    recreated = replace(
        pod, metadata=meta, spec=spec_without_node(pod.spec), status=PodStatus(phase="Pending")
    )
    return with_gpu_groups(recreated, ())


def _select_node_for_claims(cluster: Cluster, pod: Pod, node: str) -> None:
    """Select the node of a pod for its claims that wait for their first consumer."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        else:
            name = f"{pod.metadata.name}-{volume.name}"
        key = Key(pod.metadata.namespace, name)
        claim = cluster.claims.get(key)
        if claim is not None and not claim.spec.volume_name:
            annotations = {**claim.metadata.annotations, SELECTED_NODE: node}
            meta = replace(claim.metadata, annotations=annotations)
            cluster.claims[key] = replace(claim, metadata=meta)
