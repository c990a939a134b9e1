"""Cluster events: which waiting PodGroups a change may help (the queueing hints). Pure."""

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from scheduler.state.constraints.disruption_budgets import budget_fingerprint
from scheduler.state.nodes.node_table import node_fault
from trainer_kai.api.disruption import PodDisruptionBudget
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.node import Node
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.queue import Queue

__all__ = [
    "ANY_EVENT",
    "BUDGET_CHANGED",
    "FOREIGN_POD",
    "INCOMPLETE_GROUP",
    "NO_EVENT",
    "RESOURCES_FREED",
    "RESOURCES_TAKEN",
    "STAGE_PROGRESS",
    "TERMINAL_PHASES",
    "ClusterEvent",
    "is_pending",
    "is_ready",
    "offers_less",
    "pod_fingerprint",
    "podgroup_fingerprint",
    "queueing_hint",
]

ClusterEvent: TypeAlias = frozenset[str]

NO_EVENT: Final[ClusterEvent] = frozenset()
ANY_EVENT: Final[ClusterEvent] = frozenset({"*"})  # every PodGroup that waits is tried again
RESOURCES_FREED: Final[ClusterEvent] = frozenset({"room", "pods", "queue"})
RESOURCES_TAKEN: Final[ClusterEvent] = frozenset({"room"})  # a pod may satisfy an affinity
FOREIGN_POD: Final[ClusterEvent] = frozenset({"others"})  # of another scheduler, on no node
STAGE_PROGRESS: Final[ClusterEvent] = frozenset({"jobsets"})  # a stage may have ended
INCOMPLETE_GROUP: Final[ClusterEvent] = frozenset({"more"})  # its PodGroup lacks further pods
BUDGET_CHANGED: Final[ClusterEvent] = frozenset({"budgets"})  # pods may become evictable
TERMINAL_PHASES: Final = ("Succeeded", "Failed")


class _PodFingerprint(NamedTuple):
    """What of a pod matters to a plan."""

    uid: str
    node: str
    nominated_node: str
    terminal_phase: str
    is_terminating: bool
    parts: tuple[int, ...]  # by identity: unchanged parts are shared


def is_pending(pod: Pod | None) -> bool:
    """Say whether a pod exists and can be placed."""
    if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
        return False
    return pod.status.phase not in TERMINAL_PHASES


def pod_fingerprint(pod: Pod | None) -> _PodFingerprint | None:
    """Return what of a pod matters to a plan."""
    if pod is None:
        return None
    meta, spec = pod.metadata, pod.spec
    phase = pod.status.phase
    return _PodFingerprint(
        uid=meta.uid,
        node=spec.node_name,
        nominated_node=pod.status.nominated_node_name,
        terminal_phase=phase if phase in TERMINAL_PHASES else "",
        is_terminating=bool(meta.deletion_timestamp),
        parts=(id(meta.labels), id(meta.annotations), len(spec.scheduling_gates)),
    )


def is_ready(pod: Pod | None) -> bool:
    """Say whether a pod is Ready."""
    conditions = pod.status.conditions if pod else ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def podgroup_fingerprint(group: PodGroup | None) -> object:
    """Return what of a PodGroup matters to a plan."""
    if group is None:
        return None
    meta = group.metadata
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, group.spec


def queueing_hint(before: Any, now: Any) -> ClusterEvent:
    """Return the event of a changed object of a kind other than pod and PodGroup."""
    if isinstance(before or now, PodDisruptionBudget):
        was_value, is_value = (budget_fingerprint(it) if it else None for it in (before, now))
        return NO_EVENT if was_value == is_value else BUDGET_CHANGED
    if before is None or now is None:
        return NO_EVENT if before is now else ANY_EVENT
    if _object_fingerprint(before) != _object_fingerprint(now):
        return ANY_EVENT
    is_further = isinstance(now, JobSet) and before.status != now.status
    return STAGE_PROGRESS if is_further else NO_EVENT


def _object_fingerprint(it: Any) -> object:
    """Return what of an object matters to a plan, without the progress of JobSets."""
    meta = it.metadata
    common = meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp
    if isinstance(it, Node):  # its conditions have a new time every minute
        return *common, it.spec, it.status.allocatable, node_fault(it)
    if isinstance(it, Queue | JobSet):  # the scheduler writes the status of queues
        return *common, it.spec
    versionless = msgspec.structs.replace(meta, resource_version="", generation=0)
    return msgspec.structs.replace(it, metadata=versionless)


def offers_less(before: Any, now: Any) -> bool:
    """Say whether a node has less to offer than before."""
    if before is None or not isinstance(before, Node):
        return False
    if now is None or node_fault(now) > node_fault(before):
        return True
    return bool(
        before.status.allocatable != now.status.allocatable
        or before.spec != now.spec
        or before.metadata.labels != now.metadata.labels
    )
