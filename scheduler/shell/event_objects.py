"""The objects that Events of the scheduler are about: pods, PodGroups, and what suspends these.

A module of its own, because evictions and reports post Events alike, and neither is above the
other.
"""

from typing import Any

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import SuspendableId
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Meta
from trainer_kai.api.resources import PODGROUPS, Resource
from trainer_kai.kube.events import EventObject, EventRecorder, EventType
from trainer_kai.policy.workloads.kinds import SUSPENDABLE


def event_object(resource: Resource[Any], meta: Meta) -> EventObject:
    return EventObject(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)


def suspendable_object(suspended: SuspendableId) -> EventObject:
    (kind, namespace, name), uid = suspended
    return EventObject(SUSPENDABLE[kind].api_version, kind, namespace, name, uid)


def workload_object(cache: ClusterCache, group: PodGroup) -> EventObject | None:
    """Return the object whose users wait for a PodGroup; None also if it is not known for sure."""
    suspended = cache.in_flight_evictions.suspendable_id(group.metadata.key)
    return suspendable_object(suspended) if suspended is not None and suspended.uid else None


def post_event(
    cache: ClusterCache,
    recorder: EventRecorder,
    group: PodGroup,
    reasons: tuple[str, str],
    message: str,
    kind: EventType = "Normal",
) -> None:
    """Post an Event about a PodGroup, and one about its workload; each has its reason."""
    recorder.post(event_object(PODGROUPS, group.metadata), reasons[0], message, kind)
    workload = workload_object(cache, group)
    if workload is not None:
        recorder.post(workload, reasons[1], message, kind)
