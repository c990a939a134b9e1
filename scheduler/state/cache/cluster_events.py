"""Queueing hints: which cluster event a changed object is. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.state.constraints.disruption_budgets import budget_fingerprint
from scheduler.state.nodes.node_table import OWN_CONDITIONS, node_fault
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.device_kinds import ResourceClaim
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Object
from trainer_kai.api.pod import TERMINAL_PHASES, ClaimStatus, Pod
from trainer_kai.api.resized_pod import may_be_resized, requests_hash
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PDBS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    QUEUES,
    QUOTAS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from trainer_kai.policy.workloads.workload import Workload

QueueingHint: TypeAlias = Callable[[Any, Any], ClusterEvent]  # of an object before and now


class PodFingerprint(NamedTuple):
    uid: str
    node: str
    nominated_node: str
    terminal_phase: str
    is_terminating: bool
    parts: tuple[int, ...]  # by identity: unchanged parts are shared
    claims: tuple[ClaimStatus, ...]  # that were created for it
    resized: int  # a hash of the requests of a pod whose spec was changed after its creation


def is_pending(pod: Pod | None) -> bool:
    if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
        return False
    return pod.status.phase not in TERMINAL_PHASES


def pod_fingerprint(pod: Pod | None) -> PodFingerprint | None:
    if pod is None:
        return None
    meta, spec = pod.metadata, pod.spec
    phase = pod.status.phase
    return PodFingerprint(  # by position, which is faster: this is for each event
        meta.uid,
        spec.node_name,
        pod.status.nominated_node_name,
        phase if phase in TERMINAL_PHASES else "",
        bool(meta.deletion_timestamp),
        (id(meta.labels), id(meta.annotations), len(spec.scheduling_gates)),
        pod.status.resource_claim_statuses,
        requests_hash(pod) if may_be_resized(pod) else 0,
    )


def is_ready(pod: Pod | None) -> bool:
    conditions = pod.status.conditions if pod else ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def pod_hint(before: Pod | None, now: Pod | None, scheduler_name: str) -> ClusterEvent:
    if before is not None and before.spec.node_name and not is_pending(now):
        return ClusterEvent.RESOURCES_FREED
    pod = before if now is None else now
    if pod is None or pod.spec.scheduler_name == scheduler_name:
        return ClusterEvent.ANY
    return ClusterEvent.FOREIGN_POD_ASSIGNED if now is not None and now.spec.node_name else NO_EVENT


def podgroup_fingerprint(group: PodGroup | None) -> object:
    if group is None:
        return None
    meta = group.metadata
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, group.spec


def _node_fingerprint(node: Node) -> object:
    """Return what of a node matters to a plan; its conditions have a new time every minute."""
    allocatable = node.status.allocatable
    return _identity(node), node.spec, allocatable, node_fault(node), _other_conditions(node)


def _other_conditions(node: Node) -> frozenset[tuple[str, str]]:
    """Return the conditions that are not Kubernetes' own: settings may list any of them."""
    conditions = node.status.conditions
    return frozenset([(it.type, it.status) for it in conditions if it.type not in OWN_CONDITIONS])


def _spec_fingerprint(it: Any) -> object:
    """Return what of a queue or workload matters; its status is no change of a queue."""
    return _identity(it), it.spec


def _fingerprint(it: Any) -> object:
    versionless = msgspec.structs.replace(it.metadata, resource_version="", generation=0)
    return msgspec.structs.replace(it, metadata=versionless)


def _identity(it: Object) -> object:
    meta = it.metadata
    return meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp


def _hint(fingerprint: Callable[[Any], object], event: ClusterEvent) -> QueueingHint:
    """Return the hint of a kind: its event, if an object has another fingerprint than before."""

    def hint(before: Any, now: Any) -> ClusterEvent:
        was, is_ = (fingerprint(it) if it is not None else None for it in (before, now))
        return NO_EVENT if was == is_ else event

    return hint


def workload_hint(before: Workload | None, now: Workload | None) -> ClusterEvent:
    event = _SPEC_HINT(before, now)
    if event or before is None or now is None:
        return event
    was, is_ = ((it.jobs_status, it.is_finished) for it in (before, now))
    return NO_EVENT if was == is_ else ClusterEvent.STAGE_PROGRESS


def _claim_hint(before: ResourceClaim | None, now: ResourceClaim | None) -> ClusterEvent:
    """Return what a claim means to a plan; our own allocations are no news."""
    was, is_ = (it is not None and it.status.allocation is not None for it in (before, now))
    if was and not is_:
        return ClusterEvent.RESOURCES_FREED
    if before is None or now is None:
        return ClusterEvent.ANY
    is_same = before.metadata.deletion_timestamp == now.metadata.deletion_timestamp
    return NO_EVENT if is_same else ClusterEvent.ANY


_SPEC_HINT: Final = _hint(_spec_fingerprint, ClusterEvent.ANY)
_OBJECT_HINT: Final = _hint(_fingerprint, ClusterEvent.ANY)
# Of the kinds that a plan reads, but for pods, PodGroups, and what adapters read.
QUEUEING_HINTS: Final[Mapping[Resource[Any], QueueingHint]] = {
    NODES: _hint(_node_fingerprint, ClusterEvent.ANY),
    QUEUES: _SPEC_HINT,
    PRIORITY_CLASSES: _OBJECT_HINT,
    QUOTAS: _OBJECT_HINT,
    NAMESPACES: _OBJECT_HINT,
    PVS: _OBJECT_HINT,
    STORAGE_CLASSES: _OBJECT_HINT,
    PVCS: _OBJECT_HINT,
    PDBS: _hint(budget_fingerprint, ClusterEvent.BUDGET_CHANGED),
    DEVICE_CLASSES: _SPEC_HINT,
    RESOURCE_SLICES: _SPEC_HINT,
    DEVICE_TAINT_RULES: _SPEC_HINT,
    CLAIM_TEMPLATES: _SPEC_HINT,
    RESOURCE_CLAIMS: _claim_hint,
    TOPOLOGIES: _SPEC_HINT,
}


def offers_less(before: Node | None, now: Node | None) -> bool:
    if before is None:
        return False
    if now is None or node_fault(now) > node_fault(before):
        return True
    return bool(
        before.status.allocatable != now.status.allocatable
        or before.spec != now.spec
        or before.metadata.labels != now.metadata.labels
        or _other_conditions(before) != _other_conditions(now)
    )
