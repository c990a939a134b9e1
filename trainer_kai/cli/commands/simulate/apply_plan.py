"""What happens between two plans of a simulation: all decisions are applied.

`apply_plan` binds, nominates, evicts and writes annotations. `finish_transitions` lets terminating
pods end, and recreates them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from scheduler.state.inputs import Cluster
from trainer_kai.api.interning import spec_on_node, spec_without_node
from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import SELECTED_NODE
from trainer_kai.api.pod import TERMINAL_PHASES, Pod, PodStatus
from trainer_kai.cli.input.cluster import with_gpu_groups

__all__ = ["Binding", "apply_plan", "finish_transitions", "is_finished"]

_SCHEDULED = "PodScheduled"


class Binding(NamedTuple):
    """A pod, its node, and the GPU groups that it shares there."""

    pod: Key
    node: str
    gpu_groups: tuple[str, ...] = ()


def is_finished(pod: Pod) -> bool:
    """Say whether a pod has succeeded or failed."""
    return pod.status.phase in TERMINAL_PHASES


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
