"""Fetches a workload or pod and its objects with the rights of the user, as few as are needed.

Requests are sent one after the other over one connection. A kind that the user may not read is
unknown, and no error.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.meta import Key, Object, OwnerReference, PartialObject
from trainer_kai.api.names import JOB_NAME, JOBSET_NAME, KUEUE, KUEUE_QUEUE, POD_GROUP
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.resources import (
    EVENTS,
    JOBS,
    JOBSETS,
    LEASES,
    NODES,
    PODGROUPS,
    PODS,
    QUEUES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.cli.commands.why.holders import (
    FOR_ROOM,
    FOR_ROOM_ON_NODES,
    holder_notes,
    lease_note,
)
from trainer_kai.cli.commands.why.owners_below import OWNER_RESOURCES, podgroups_below
from trainer_kai.cli.commands.why.reasons import WaitingReason
from trainer_kai.cli.commands.why.report import (
    QueueSourceKind,
    TrainJobReport,
    conditions_of,
    finished_report,
    has_podgroup,
    is_finished,
    last_evicted,
    standalone_report,
    trainjob_report,
    with_details,
)
from trainer_kai.cli.commands.why.snapshot import (
    POD_SNAPSHOTS,
    SCHEDULER_LEASE,
    PodSnapshot,
    TrainJobSnapshot,
    WhySubject,
)
from trainer_kai.cli.output.missing_rights import missing_right
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.request import ListTarget, Request, Selection
from trainer_kai.kube.rest.response import Forbidden, NotFound
from trainer_kai.policy.podgroups.grouping import MAIN, podgroup_name
from trainer_kai.policy.pods.creation_failures import FIELD_SELECTOR
from trainer_kai.policy.workloads.job import JOB_KIND
from trainer_kai.policy.workloads.jobset import JOBSET_KIND, jobset_workload
from trainer_kai.policy.workloads.kinds import KINDS, kind_of_owner
from trainer_kai.policy.workloads.owner_chain import WRAPPERS
from trainer_kai.policy.workloads.state import FINISHED, WorkloadState
from trainer_kai.policy.workloads.workload import WorkloadKind

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

T = TypeVar("T", bound=Object)

_MAX_PODGROUPS: Final = 8  # PodGroups that pods name and that do not belong to the JobSet


class _DoesNotExist(ConfigError):
    """The object that the user asks about does not exist, or its kind is not installed."""


class _Reader:
    """Reads with the rights of the user, and records the kinds that they may not read."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.unknown: set[str] = set()

    async def get(self, resource: Resource[T], key: Key) -> T | None:
        """Return an object; None if it does not exist, or the user may not read it."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None
        except Forbidden:
            self.unknown.add(resource.plural)
            return None

    async def serves_kueue(self) -> bool | None:
        """Say whether the cluster serves Kueue's API; None if the user may not ask."""
        try:
            await self._client.send(Request("GET", f"/apis/{KUEUE}", repeatable=True))
        except NotFound:
            return False
        except Forbidden:
            return None
        return True

    async def room_notes(
        self, reason: WaitingReason, snapshot: TrainJobSnapshot
    ) -> tuple[str, ...]:
        """Return who holds the room; what may not be read is said, and concerns nothing else.

        Where no node has room, return also which idle GPUs are of no use, if that may be read.
        """
        try:
            podgroups = await self._client.list(ListTarget(PODGROUPS))
        except Forbidden:
            return (missing_right("holders of the room", PODGROUPS, ""),)
        try:
            queues = await self._client.list(ListTarget(QUEUES))
        except Forbidden:
            return (missing_right("holders of the room", QUEUES, ""),)
        by_name = {it.metadata.name: it for it in queues}
        notes = (*holder_notes(reason.message, podgroups, by_name),)
        if reason.title not in FOR_ROOM_ON_NODES:
            return notes
        return (*notes, *await self._idle_gpu_notes(snapshot, podgroups, queues))

    async def _idle_gpu_notes(
        self, snapshot: TrainJobSnapshot, podgroups: Iterable[PodGroup], queues: Iterable[Queue]
    ) -> tuple[str, ...]:
        from trainer_kai.cli.commands.why.idle_gpus import MAX_NODES, idle_gpu_notes  # noqa: PLC0415 - it imports numpy

        try:
            nodes = await self._client.list(ListTarget(NODES))
            pods = await self._client.list(ListTarget(PODS)) if 0 < len(nodes) <= MAX_NODES else ()
        except Forbidden:
            return ()
        return tuple(idle_gpu_notes(snapshot, nodes, pods, podgroups, queues)) if pods else ()

    async def list(
        self, resource: Resource[T], namespace: str, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        try:
            target = ListTarget(resource, namespace, Selection(labels=labels, fields=fields))
            return tuple(await self._client.list(target))
        except NotFound:
            return ()  # the kind is not installed
        except Forbidden:
            self.unknown.add(resource.plural)
            return ()


async def fetch_report(client: "Client", subject: WhySubject) -> TrainJobReport:
    kind, key, scheduler_name, default_queue = subject
    snapshot = TrainJobSnapshot(kind, key, client.clock.now(), scheduler_name, default_queue)
    if not kind:
        return await _of_any(client, snapshot)
    default = _of_pod_owner if kind in _POD_OWNERS else _of_other
    return await _FETCH.get(kind, default)(client, snapshot)


async def _of_any(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on the first object of a name: a TrainJob, a JobSet, a Job or a pod."""
    for kind, fetch in _FETCH.items():
        try:
            return await fetch(client, snapshot._replace(kind=kind))
        except _DoesNotExist:
            continue
        except Forbidden:
            if kind == TRAINJOBS.kind:
                raise
    namespace, name = snapshot.key
    message = f"namespace {namespace} has no TrainJob, JobSet, Job or pod with this name"
    raise ConfigError([FieldError(name, message)])


async def _of_trainjob(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    reader = _Reader(client)
    try:
        snapshot = snapshot._replace(trainjob=await client.get(TRAINJOBS, snapshot.key))
    except NotFound as error:
        raise _not_found(snapshot, error) from error
    except Forbidden:
        reader.unknown.add(TRAINJOBS.plural)
        report = await _fetch_below(reader, snapshot)
        if not report.podgroups and not report.has_workload:
            raise
        return report
    return await _of_workload(reader, snapshot)


async def _of_jobset(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a JobSet: that of its TrainJob, or its own."""
    try:
        jobset = await client.get(JOBSETS, snapshot.key)
    except NotFound as error:
        raise _not_found(snapshot, error) from error
    reader, name = _Reader(client), snapshot.key.name
    if jobset_workload(jobset).owner is None:
        return await _of_workload(reader, snapshot._replace(jobset=jobset))
    report = await _of_owner(reader, snapshot, name)
    note = f"JobSet {name} belongs to {report.kind} {report.key.name}"
    return report if report.kind == JOBSETS.kind else _with_note(report, note)


async def _of_workload(reader: _Reader, snapshot: TrainJobSnapshot) -> TrainJobReport:
    if not is_finished(snapshot):
        return await _fetch_below(reader, snapshot)
    kind = JOBSET_KIND if snapshot.job is None else JOB_KIND
    selector = f"{kind.name_label}={snapshot.key.name}"
    groups = await reader.list(PODGROUPS, snapshot.key.namespace, selector)
    return finished_report(snapshot, groups)


async def _of_pod(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a pod: that of its TrainJob with only its own PodGroup, or its own."""
    try:
        pod = await client.get(POD_SNAPSHOTS, snapshot.key)
    except NotFound as error:
        raise _not_found(snapshot, error) from error
    reader, jobset = _Reader(client), pod.metadata.labels.get(JOBSET_NAME, "")
    if jobset:
        report = await _of_owner(reader, snapshot, jobset)
        if report.state in FINISHED:  # the pods that are left do not matter
            return report
        name, uid = pod.metadata.name, pod.metadata.uid
        report = _narrowed(report, f"pod {name}", lambda it: it.metadata.uid == uid)
        return report._replace(node=pod.spec.node_name)
    report = await _of_pods(reader, snapshot._replace(pods=(pod,)))
    return report._replace(node=pod.spec.node_name)


async def _of_job(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a Job: that of its TrainJob, or that of its pods."""
    namespace, name = snapshot.key
    try:
        job = await client.get(JOBS, snapshot.key)
    except NotFound as error:
        raise _not_found(snapshot, error) from error
    reader, jobset = _Reader(client), job.metadata.labels.get(JOBSET_NAME, "")
    if jobset:
        report = await _of_owner(reader, snapshot, jobset)
        if report.state in FINISHED:
            return report
        return _narrowed(report, f"Job {name}", lambda it: it.metadata.labels.get(JOB_NAME) == name)
    snapshot = snapshot._replace(job=job)
    workload = snapshot.workload
    if workload is not None and workload.is_admitted_here:
        return await _of_workload(reader, snapshot)
    pods = await reader.list(POD_SNAPSHOTS, namespace, f"{JOB_NAME}={name}")
    return await _of_pods(reader, snapshot._replace(pods=pods))


async def _get_other(client: "Client", snapshot: TrainJobSnapshot) -> tuple[WorkloadKind, Any]:
    """Read an object in the version that the cluster serves."""
    *others, last = (it for it in KINDS if it.resource.kind == snapshot.kind)
    for kind in others:
        with suppress(NotFound):
            return kind, await client.get(kind.resource, snapshot.key)
    try:
        return last, await client.get(last.resource, snapshot.key)
    except NotFound as error:
        raise _not_found(snapshot, error) from error


async def _of_other(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a workload that admission does not mark, or on its owner."""
    kind, obj = await _get_other(client, snapshot)
    reader, workload = _Reader(client), kind.adapt(obj)
    if workload is None:
        owner = obj.metadata.controller
        key = snapshot.key._replace(name=owner.name)
        report = await _of_other(client, snapshot._replace(kind=owner.kind, key=key))
        return _with_note(report, f"{snapshot.kind} {snapshot.key.name} belongs to it")
    conditions = conditions_of(obj, workload)
    snapshot = snapshot._replace(other=workload, other_conditions=conditions)
    if is_finished(snapshot):
        return trainjob_report(snapshot)
    namespace, uid = snapshot.key.namespace, workload.metadata.uid
    selector = f"{kind.name_label}={snapshot.key.name}"
    named = await reader.list(PODGROUPS, namespace, selector)
    groups = tuple(it for it in named if any(o.uid == uid for o in it.metadata.owner_references))
    # The label that all pods of a kind have names its cluster or job, if there is one at all.
    names = {it.metadata.name for it in groups}
    pods = await reader.list(POD_SNAPSHOTS, namespace) if names else ()
    own = tuple(it for it in pods if it.metadata.annotations.get(POD_GROUP) in names)
    return await _with_details(reader, snapshot._replace(podgroups=groups, pods=own))


async def _of_pod_owner(client: "Client", snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on the pods of an object without an adapter, such as a Deployment."""
    resource = _POD_OWNERS[snapshot.kind]
    try:
        obj = await client.get(resource, snapshot.key, only_metadata=True)
    except NotFound as error:
        raise _not_found(snapshot, error) from error
    owner = obj.metadata.controller
    above = kind_of_owner(owner) if owner is not None else None
    if owner is not None and (above is not None or _counts_for_pods(owner)):
        key = snapshot.key._replace(name=owner.name)
        fetch = _of_pod_owner if above is None else _FETCH.get(owner.kind, _of_other)
        report = await fetch(client, snapshot._replace(kind=owner.kind, key=key))
        return _with_note(report, f"{snapshot.kind} {snapshot.key.name} belongs to it")
    reader, namespace, uid = _Reader(client), snapshot.key.namespace, obj.metadata.uid
    name = podgroup_name(obj.metadata.name, uid, MAIN)
    group = await reader.get(PODGROUPS, Key(namespace, name))
    pods = await reader.list(POD_SNAPSHOTS, namespace)
    groups: tuple[PodGroup, ...] = (group,) if group is not None else ()
    if not groups and snapshot.kind not in _HAVE_NONE_BELOW:
        listed = await reader.list(PODGROUPS, namespace)
        groups = await podgroups_below(reader, namespace, uid, listed, pods)
    names = {name, *(it.metadata.name for it in groups)}
    own = tuple(
        it
        for it in pods
        if it.metadata.annotations.get(POD_GROUP) in names
        or any(reference.uid == uid for reference in it.metadata.owner_references)
    )
    return await _with_details(reader, snapshot._replace(podgroups=groups, pods=own))


def _counts_for_pods(owner: OwnerReference) -> bool:
    """Say whether an owner has the PodGroup of the pods below it, and not each object below."""
    kind = owner.api_version.rpartition("/")[0], owner.kind
    return kind in OWNER_RESOURCES and kind not in WRAPPERS


async def _of_owner(reader: _Reader, snapshot: TrainJobSnapshot, jobset: str) -> TrainJobReport:
    """Return the report on the TrainJob, or the JobSet without one, that owns the subject."""
    key = Key(snapshot.key.namespace, jobset)
    trainjob = await reader.get(TRAINJOBS, key)
    kind = TRAINJOBS.kind if trainjob else JOBSETS.kind
    snapshot = snapshot._replace(kind=kind, key=key, trainjob=trainjob)
    return await _of_workload(reader, snapshot)


async def _of_pods(reader: _Reader, snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on pods that belong to no JobSet, by their PodGroups or by themselves."""
    if has_podgroup(snapshot):
        podgroups = await _podgroups_of_pods(reader, snapshot)
        return await _with_details(reader, snapshot._replace(podgroups=podgroups))
    report = standalone_report(snapshot)
    return standalone_report(await _fetch_details(reader, snapshot, report))


def _narrowed(
    report: TrainJobReport, what: str, is_own: Callable[[PodSnapshot], bool]
) -> TrainJobReport:
    own_podgroups = [it for it in report.podgroups if any(map(is_own, it.podgroup.pods))]
    if not own_podgroups:
        note = f"{what} is not part of the current attempt of the JobSet"
        return _with_note(report, note)
    note = f"{what} belongs to {report.kind} {report.key.name}: only its PodGroup is shown"
    state = report.state if report.reason else own_podgroups[0].state
    return report._replace(podgroups=(own_podgroups[0],), state=state, notes=(*report.notes, note))


def _with_note(report: TrainJobReport, note: str) -> TrainJobReport:
    return report._replace(notes=(*report.notes, note))


def _not_found(snapshot: TrainJobSnapshot, error: NotFound) -> ConfigError:
    namespace, name = snapshot.key
    message = f"not found in namespace {namespace}: {error.details.message}"
    return _DoesNotExist([FieldError(f"{snapshot.kind.lower()}/{name}", message)])


async def _fetch_below(reader: _Reader, snapshot: TrainJobSnapshot) -> TrainJobReport:
    namespace, name = snapshot.key
    job, kind = snapshot.trainjob, JOBSET_KIND if snapshot.job is None else JOB_KIND
    if snapshot.workload is None:
        jobset = await reader.get(JOBSETS, snapshot.key)
        if jobset is not None and job and not _is_owned_by(jobset, job.metadata.uid):
            jobset = None  # a JobSet of that name with another owner
        snapshot = snapshot._replace(jobset=jobset)
    selector = f"{kind.name_label}={name}"
    podgroups = await reader.list(PODGROUPS, namespace, selector)
    pods = await reader.list(POD_SNAPSHOTS, namespace, selector)
    snapshot = snapshot._replace(podgroups=podgroups, pods=pods)
    podgroups = (*podgroups, *await _podgroups_of_pods(reader, snapshot))
    return await _with_details(reader, snapshot._replace(podgroups=podgroups))


async def _with_details(reader: _Reader, snapshot: TrainJobSnapshot) -> TrainJobReport:
    snapshot = snapshot._replace(unknown=frozenset(reader.unknown))
    report = trainjob_report(snapshot)
    snapshot = await _fetch_details(reader, snapshot, report)
    report = with_details(report, snapshot)
    notes = [*lease_note(snapshot.leases, snapshot.now)]
    reasons = (it.reason for it in report.podgroups)
    waits_for_room = next((it for it in reasons if it and it.title in FOR_ROOM), None)
    if waits_for_room is not None:
        notes += await reader.room_notes(waits_for_room, snapshot)
    return report._replace(notes=(*report.notes, *notes))


async def _podgroups_of_pods(reader: _Reader, snapshot: TrainJobSnapshot) -> tuple[PodGroup, ...]:
    """Return the PodGroups that pods name, and that were not read yet."""
    known = {group.metadata.name for group in snapshot.podgroups}
    named = {pod.metadata.annotations.get(POD_GROUP, "") for pod in snapshot.pods} - known - {""}
    if PODGROUPS.plural in reader.unknown:
        return ()
    keys = (Key(snapshot.key.namespace, name) for name in sorted(named)[:_MAX_PODGROUPS])
    return tuple([it for key in keys if (it := await reader.get(PODGROUPS, key))])


async def _fetch_details(
    reader: _Reader, snapshot: TrainJobSnapshot, report: TrainJobReport
) -> TrainJobSnapshot:
    reasons = (report.reason, *(it.reason for it in report.podgroups))
    titles = {it.title for it in reasons if it is not None}
    snapshot = await _fetch_events(reader, snapshot, report, titles)
    objects = (snapshot.trainjob, snapshot.jobset, snapshot.job)
    jobs = (it for it in objects if it is not None)
    names_kueue = any(it.metadata.labels.get(KUEUE_QUEUE) for it in jobs)
    if report.state == WorkloadState.SUSPENDED and names_kueue:
        snapshot = snapshot._replace(has_kueue=await reader.serves_kueue())
    if any(podgroup.reason and podgroup.counts.unplaced for podgroup in report.podgroups):
        lease = await reader.get(LEASES, SCHEDULER_LEASE)
        if LEASES.plural not in reader.unknown:
            snapshot = snapshot._replace(leases=(lease,) if lease else ())
    if UnschedulableReason.NO_STATUS in titles:
        queues = {group.spec.queue for group in snapshot.podgroups}
        if report.queue_source == QueueSourceKind.LABEL:
            queues.add(report.queue)
        existing = {it: await reader.get(QUEUES, Key("", it)) is not None for it in sorted(queues)}
        if QUEUES.plural not in reader.unknown:
            snapshot = snapshot._replace(queues=existing)
    elif LEASES.plural in reader.unknown:
        # Another reason is known, which the Lease would not change.
        reader.unknown.remove(LEASES.plural)
    return snapshot._replace(unknown=frozenset(reader.unknown))


async def _fetch_events(
    reader: _Reader, snapshot: TrainJobSnapshot, report: TrainJobReport, titles: Container[str]
) -> TrainJobSnapshot:
    namespace, name = snapshot.key
    if UnschedulableReason.JOBSET_MISSING in titles:
        selector = f"involvedObject.kind=TrainJob,involvedObject.name={name},type=Warning"
        snapshot = snapshot._replace(events=await reader.list(EVENTS, namespace, fields=selector))
    elif UnschedulableReason.PODS_MISSING in titles:
        events = await reader.list(EVENTS, namespace, fields=FIELD_SELECTOR)
        snapshot = snapshot._replace(events=events)
    evicted = last_evicted(report.podgroups)
    if evicted is not None:
        selector = f"involvedObject.kind=PodGroup,involvedObject.name={evicted.metadata.name}"
        evictions = await reader.list(EVENTS, namespace, fields=f"{selector},reason=Evict")
        snapshot = snapshot._replace(evictions=evictions)
    return snapshot


def _is_owned_by(jobset: JobSet, uid: str) -> bool:
    owner = jobset.metadata.controller
    return owner is not None and owner.uid == uid


_FETCH: Final = {  # the order for a name without a kind
    TRAINJOBS.kind: _of_trainjob,
    JOBSETS.kind: _of_jobset,
    JOBS.kind: _of_job,
    PODS.kind: _of_pod,
}
_POD_OWNERS: Final[Mapping[str, Resource[PartialObject]]] = {
    it.kind: it for it in OWNER_RESOURCES.values()
}
# Their PodGroup is their own, or that of an owner above.
_HAVE_NONE_BELOW: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
