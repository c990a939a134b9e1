"""One row for each workload, from the objects of all kinds. Pure.

A workload is what its users create, suspend and resume: a TrainJob, or a JobSet or Job without one.
A PodGroup that no such workload owns, of KAI or of a controller of others, is a row of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.gpu_requests import gpu_count, gpus_of_one
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Condition, Key, Meta
from trainer_kai.api.names import (
    EVICTED_BY,
    KUEUE_QUEUE,
    LAST_EVICTION,
    LAST_START,
    POD_GROUP,
    QUEUE,
)
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.cli.commands.list.placed_pods import PlacedPod
from trainer_kai.policy.pods.requests import pod_requests
from trainer_kai.policy.queueing.waiting_order import (
    Place,
    WrittenReason,
    waiting_places,
    written_reason,
)
from trainer_kai.policy.start_order import pods_at_once
from trainer_kai.policy.workloads.kinds import KINDS, OWNERS, kind_of_owner
from trainer_kai.policy.workloads.state import (
    FINISHED,
    WorkloadState,
    finished_state,
    true_condition,
)
from trainer_kai.policy.workloads.workload import ObjectKey, Suspendable, Workload

_Objects: TypeAlias = Mapping[str, Sequence[Any]]  # by kind

_THOUSAND: Final = 1000
_NO_STATUS: Final = WrittenReason(
    UnschedulableReason.NO_STATUS, "the scheduler has written no status yet", ""
)
_NO_PODGROUP: Final = WrittenReason(UnschedulableReason.PODS_MISSING, "it has no PodGroup yet", "")


class ListedObjects(NamedTuple):
    """What was read; a kind that the user may not read is missing in `workloads`, or None."""

    workloads: _Objects  # of the table of kinds, and of their owners
    podgroups: Sequence[PodGroup] = ()
    all_podgroups: Sequence[PodGroup] | None = None  # of all namespaces; None if not readable
    classes: Mapping[str, PriorityClass] | None = None
    pods: Sequence[PlacedPod] = ()


class WorkloadRow(NamedTuple):
    key: ObjectKey
    queue: str
    state: WorkloadState
    reason: WrittenReason | None
    since: str  # when it began to wait, to run, or ended; RFC 3339, "" if not known
    place: Place | None
    gpus: float | None
    nodes: tuple[str, ...]
    podgroups: tuple[str, ...]

    @property
    def title(self) -> str:
        """Return the name that other commands accept."""
        return f"{self.key.kind.lower()}/{self.key.name}"


class _Subject(NamedTuple):
    """The object that users create, and the workload that was made of it."""

    it: Suspendable
    conditions: tuple[Condition, ...]
    workload: Workload | None


def workload_rows(listed: ListedObjects) -> list[WorkloadRow]:
    """Return the rows in the order of namespaces, queues, and names."""
    subjects = dict(_subjects(listed.workloads))
    groups: dict[ObjectKey, list[PodGroup]] = {}
    for group in listed.podgroups:
        groups.setdefault(_owner_of(group, subjects), []).append(group)
    places: dict[Key, Place] = {}
    if listed.all_podgroups is not None and listed.classes is not None:
        places = waiting_places(listed.all_podgroups, listed.classes)
    nodes: dict[tuple[str, str], set[str]] = {}
    for pod in listed.pods:
        if pod.counts:
            meta = pod.metadata
            group_key = meta.namespace, meta.annotations.get(POD_GROUP, "")
            nodes.setdefault(group_key, set()).add(pod.spec.node_name)
    rows = []
    for key in {**subjects, **groups}:
        own = groups.get(key, [])
        if key in subjects or own:
            rows.append(_row(key, subjects.get(key), own, places, nodes))
    return sorted(rows, key=lambda row: (row.key.namespace, row.queue, row.key.kind, row.key.name))


def _subjects(objects: _Objects) -> Iterable[tuple[ObjectKey, _Subject]]:
    """Yield what users create: owners, and workloads of ours that have none."""
    workloads: dict[ObjectKey, Workload] = {}
    for kind in KINDS:
        for obj in objects.get(kind.resource.kind, ()):
            workload = kind.adapt(obj)
            if workload is None:
                continue
            if workload.owner_key is not None:
                workloads[workload.owner_key] = workload
            elif workload.is_admitted_here and not workload.needs_owner:
                yield workload.key, _Subject(workload.as_suspendable(), _conditions(obj), workload)
    for owner in OWNERS:
        for obj in objects.get(owner.resource.kind, ()):
            it = owner.adapt(obj)
            if it.is_managed_here:
                yield it.key, _Subject(it, _conditions(obj), workloads.get(it.key))


def _conditions(obj: Any) -> tuple[Condition, ...]:
    """Return the conditions of an object; not every kind has some."""
    return tuple(getattr(getattr(obj, "status", None), "conditions", ()))


def _owner_of(group: PodGroup, subjects: Mapping[ObjectKey, _Subject]) -> ObjectKey:
    """Return the workload of a PodGroup; the PodGroup itself if it belongs to none of ours."""
    meta = group.metadata
    for owner in meta.owner_references:
        kind = kind_of_owner(owner)
        if kind is not None:
            above = kind.owner.resource.kind if kind.owner else ""
            for name in filter(None, (above, kind.resource.kind)):
                key = ObjectKey(name, meta.namespace, owner.name)
                if key in subjects:
                    return key
    return ObjectKey(PODGROUPS.kind, meta.namespace, meta.name)


def _row(
    key: ObjectKey,
    subject: _Subject | None,
    groups: list[PodGroup],
    places: Mapping[Key, Place],
    nodes: Mapping[tuple[str, str], set[str]],
) -> WorkloadRow:
    state, reason, since = _state(subject, groups)
    own_places = [places[it.metadata.key] for it in groups if it.metadata.key in places]
    found = (nodes.get(it.metadata.key, set()) for it in groups)
    return WorkloadRow(
        key=key,
        queue=_queue(subject, groups),
        state=state,
        reason=reason,
        since=since,
        place=min(own_places, default=None) if state == WorkloadState.WAITS else None,
        gpus=None if state in FINISHED else _gpus(subject, groups),
        nodes=tuple(sorted(set().union(*found))),
        podgroups=tuple(sorted(it.metadata.name for it in groups)),
    )


def _state(
    subject: _Subject | None, groups: list[PodGroup]
) -> tuple[WorkloadState, WrittenReason | None, str]:
    if subject is not None:
        finished = finished_state(subject.conditions)
        if finished is not None:
            return _ended(*finished)
        if subject.it.is_suspended:
            since = true_condition(subject.conditions, "Suspended")
            at = since.last_transition_time or "" if since else ""
            return WorkloadState.SUSPENDED, _suspended(subject.it, groups), at
    reasons = [it for it in map(written_reason, groups) if it is not None]
    started = [*filter(_has_started, groups)]
    waiting = [it for it in reasons if it.title != UnschedulableReason.WAITING_FOR_STAGE]
    if started and not waiting:
        starts = [it.metadata.annotations.get(LAST_START, "") for it in started]
        return WorkloadState.RUNS, None, max(starts)
    reason = next(iter(waiting or reasons), _NO_STATUS if groups else _NO_PODGROUP)
    return WorkloadState.WAITS, reason, _waits_since(subject, groups)


def _has_started(group: PodGroup) -> bool:
    """Say whether it has resources, or has started: its pods may request nothing."""
    notes = group.metadata.annotations
    is_started = notes.get(LAST_START, "") > notes.get(LAST_EVICTION, "")
    return bool(group.status.resources_status.allocated) or is_started


def _ended(
    state: WorkloadState, condition: Condition
) -> tuple[WorkloadState, WrittenReason | None, str]:
    since = condition.last_transition_time or ""
    if state == WorkloadState.COMPLETE:
        return state, None, since
    return state, WrittenReason(condition.reason or "Failed", condition.message, since), since


def _suspended(it: Suspendable, groups: list[PodGroup]) -> WrittenReason:
    title = UnschedulableReason.SUSPENDED
    if any(EVICTED_BY in group.metadata.annotations for group in groups):
        return WrittenReason(title, "evicted; the scheduler resumes it", "")
    if it.metadata.labels.get(KUEUE_QUEUE):
        return WrittenReason(title, "by its user, or not admitted by Kueue", "")
    return WrittenReason(title, "by its user: spec.suspend is true", "")


def _waits_since(subject: _Subject | None, groups: list[PodGroup]) -> str:
    """Return when it was created, resumed or evicted: the last of these."""
    times = [_meta(subject, groups).creation_timestamp]
    times += [it.metadata.annotations.get(LAST_EVICTION, "") for it in groups]
    conditions = subject.conditions if subject is not None else ()
    times += [
        it.last_transition_time or ""
        for it in conditions
        if it.type == "Suspended" and it.status == "False"
    ]
    return max(times)


def _meta(subject: _Subject | None, groups: list[PodGroup]) -> Meta:
    return subject.it.metadata if subject is not None else groups[0].metadata


def _queue(subject: _Subject | None, groups: list[PodGroup]) -> str:
    """Return the queue of the PodGroups; of a workload without them that of its label."""
    if groups and groups[0].spec.queue:
        return groups[0].spec.queue
    if subject is None:
        return ""
    label = subject.it.metadata.labels.get(QUEUE, "")
    return label or (subject.workload.metadata.labels.get(QUEUE, "") if subject.workload else "")


def _gpus(subject: _Subject | None, groups: list[PodGroup]) -> float | None:
    """Return what it has or requests by the scheduler; before, what its pods will request."""
    statuses = [it.status.resources_status for it in groups]
    reported = [
        max(gpu_count(it.allocated), gpu_count(it.requested))
        for it in statuses
        if it.allocated or it.requested
    ]
    if reported:
        return sum(reported) / _THOUSAND
    workload = subject.workload if subject is not None else None
    if workload is None:
        return None
    planned = 0
    for job in workload.spec.replicated_jobs:
        try:
            amounts = pod_requests(job.template.spec.template.spec)
        except QuantityError:
            return None
        of_pod = sum(gpus_of_one(name) * number for name, number in amounts.items())
        planned += job.replicas * pods_at_once(job) * of_pod
    return planned / _THOUSAND
