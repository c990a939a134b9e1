"""The objects that Events of the scheduler are about: pods, PodGroups, and their TrainJobs.

A module of its own, because evictions and reports post Events alike, and neither is above the
other.
"""

from typing import Any

from scheduler.state.cache.cache import ClusterCache
from scheduler.state.commands import OwningTrainJob
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Meta
from trainer_kai.api.resources import PODGROUPS, TRAINJOBS, Resource
from trainer_kai.kube.events import EventObject, EventRecorder


def event_object(resource: Resource[Any], meta: Meta) -> EventObject:
    return EventObject(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid)


def trainjob_object(owner: OwningTrainJob) -> EventObject:
    (namespace, name), uid = owner
    return EventObject(TRAINJOBS.api_version, TRAINJOBS.kind, namespace, name, uid)


def owning_trainjob_object(cache: ClusterCache, group: PodGroup) -> EventObject | None:
    """Return the TrainJob that owns a PodGroup; None also if it is not known for sure."""
    owner = cache.in_flight_evictions.owning_trainjob(group.metadata.key)
    return trainjob_object(owner) if owner is not None and owner.uid else None


def post_event(
    cache: ClusterCache,
    recorder: EventRecorder,
    group: PodGroup,
    reasons: tuple[str, str],
    message: str,
) -> None:
    """Post an Event about a PodGroup, and one about its TrainJob; each has its reason."""
    recorder.post(event_object(PODGROUPS, group.metadata), reasons[0], message)
    trainjob = owning_trainjob_object(cache, group)
    if trainjob is not None:
        recorder.post(trainjob, reasons[1], message)
