"""Fetch a TrainJob and its objects with the rights of the user, as few as the report needs.

Requests go one after the other over one connection. A kind that may not be read is unknown, and no
error.
"""

from typing import TYPE_CHECKING, Final, TypeVar

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import JOBSET_NAME, POD_GROUP
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import EVENTS, JOBSETS, LEASES, PODGROUPS, QUEUES, TRAINJOBS
from trainer_kai.cli.commands.why.reason_names import ReasonName
from trainer_kai.cli.commands.why.report import (
    TrainJobReport,
    WorkloadState,
    evicted_podgroups,
    trainjob_report,
)
from trainer_kai.cli.commands.why.snapshot import (
    POD_SNAPSHOTS,
    SCHEDULER_LEASE,
    PodSnapshot,
    TrainJobSnapshot,
)
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.rest.errors import Forbidden, NotFound
from trainer_kai.kube.rest.request import ListTarget, Selection
from trainer_kai.policy.pods.creation_failures import FIELD_SELECTOR

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

__all__ = ["fetch_pod_report", "fetch_trainjob_report"]

T = TypeVar("T", bound=Object)

_MAX_PODGROUPS: Final = 8  # PodGroups that pods name and that do not belong to the JobSet
_FINISHED: Final = frozenset({WorkloadState.COMPLETE, WorkloadState.FAILED})


class _Reader:
    """Reads with the rights of the user, and records the kinds that they may not read."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.unknown: set[str] = set()

    async def get(self, resource: Resource[T], key: Key) -> T | None:
        """Return an object; None where there is none, or it may not be read."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None
        except Forbidden:
            self.unknown.add(resource.plural)
            return None

    async def list(
        self, resource: Resource[T], namespace: str, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """Return the objects that are selected."""
        try:
            target = ListTarget(resource, namespace, Selection(labels=labels, fields=fields))
            return tuple(await self._client.list(target))
        except NotFound:
            return ()  # the kind is not installed
        except Forbidden:
            self.unknown.add(resource.plural)
            return ()


async def fetch_trainjob_report(client: "Client", key: Key, scheduler_name: str) -> TrainJobReport:
    """Return the report on a TrainJob."""
    snapshot = TrainJobSnapshot(TRAINJOBS.kind, key, client.clock.now(), scheduler_name)
    reader = _Reader(client)
    try:
        snapshot = snapshot._replace(trainjob=await client.get(TRAINJOBS, key))
    except NotFound as error:
        raise _not_found("trainjob", key, error) from error
    except Forbidden:
        reader.unknown.add(TRAINJOBS.plural)
        report = await _fetch_below(reader, snapshot)
        if not report.podgroups and not report.has_jobset:
            raise
        return report
    report = trainjob_report(snapshot)
    return report if report.state in _FINISHED else await _fetch_below(reader, snapshot)


async def fetch_pod_report(client: "Client", key: Key, scheduler_name: str) -> TrainJobReport:
    """Return the report on a pod: that of its TrainJob, with only its own PodGroup."""
    try:
        pod = await client.get(POD_SNAPSHOTS, key)
    except NotFound as error:
        raise _not_found("pod", key, error) from error
    reader, jobset = _Reader(client), pod.metadata.labels.get(JOBSET_NAME, "")
    snapshot = TrainJobSnapshot(
        POD_SNAPSHOTS.kind, key, client.clock.now(), scheduler_name, pods=(pod,)
    )
    if not jobset:
        podgroups = await _podgroups_of_pods(reader, snapshot)
        return trainjob_report(await _fetch_details(reader, snapshot._replace(podgroups=podgroups)))
    trainjob_key = Key(key.namespace, jobset)
    job = await reader.get(TRAINJOBS, trainjob_key)
    kind = TRAINJOBS.kind if job else JOBSETS.kind
    snapshot = snapshot._replace(kind=kind, key=trainjob_key, trainjob=job, pods=())
    report = trainjob_report(snapshot)
    if report.state in _FINISHED:  # pods that are left say nothing more
        return report
    return _report_of_pod(await _fetch_below(reader, snapshot), pod)


def _report_of_pod(report: TrainJobReport, pod: PodSnapshot) -> TrainJobReport:
    """Return the report with only the PodGroup of a pod."""
    name, uid = pod.metadata.name, pod.metadata.uid
    own_podgroups = [
        it for it in report.podgroups if uid in {one.metadata.uid for one in it.podgroup.pods}
    ]
    if not own_podgroups:
        return report._replace(notes=(*report.notes, f"pod {name} does not count any more"))
    note = f"told is only the unit of pod {name}"
    state = report.state if report.reason else own_podgroups[0].state
    return report._replace(podgroups=(own_podgroups[0],), state=state, notes=(*report.notes, note))


def _not_found(kind: str, key: Key, error: NotFound) -> ConfigError:
    message = f"is not in namespace {key.namespace}: {error.details.message}"
    return ConfigError([FieldError(f"{kind}/{key.name}", message)])


async def _fetch_below(reader: _Reader, snapshot: TrainJobSnapshot) -> TrainJobReport:
    namespace, name = snapshot.key
    jobset = await reader.get(JOBSETS, snapshot.key)
    if (
        jobset is not None
        and snapshot.trainjob
        and not _is_owned_by(jobset, snapshot.trainjob.metadata.uid)
    ):
        jobset = None  # another owner's JobSet of that name
    jobset_selector = f"{JOBSET_NAME}={name}"
    podgroups = await reader.list(PODGROUPS, namespace, jobset_selector)
    pods = await reader.list(POD_SNAPSHOTS, namespace, jobset_selector)
    snapshot = snapshot._replace(jobset=jobset, podgroups=podgroups, pods=pods)
    snapshot = snapshot._replace(
        podgroups=(*podgroups, *await _podgroups_of_pods(reader, snapshot))
    )
    return trainjob_report(await _fetch_details(reader, snapshot))


async def _podgroups_of_pods(reader: _Reader, snapshot: TrainJobSnapshot) -> tuple[PodGroup, ...]:
    """Return the PodGroups that pods name, and that were not read yet."""
    known = {group.metadata.name for group in snapshot.podgroups}
    named = {pod.metadata.annotations.get(POD_GROUP, "") for pod in snapshot.pods} - known - {""}
    if PODGROUPS.plural in reader.unknown:
        return ()
    keys = (Key(snapshot.key.namespace, name) for name in sorted(named)[:_MAX_PODGROUPS])
    return tuple([it for key in keys if (it := await reader.get(PODGROUPS, key))])


async def _fetch_details(reader: _Reader, snapshot: TrainJobSnapshot) -> TrainJobSnapshot:
    """Read the objects that explain why PodGroups wait."""
    snapshot = snapshot._replace(unknown=frozenset(reader.unknown))
    first = trainjob_report(snapshot)
    reasons = (first.reason, *(podgroup.reason for podgroup in first.podgroups))
    titles = {it.title for it in reasons if it is not None}
    namespace, name = snapshot.key
    if ReasonName.JOBSET_MISSING in titles:
        trainjob_selector = f"involvedObject.kind=TrainJob,involvedObject.name={name},type=Warning"
        snapshot = snapshot._replace(
            events=await reader.list(EVENTS, namespace, fields=trainjob_selector)
        )
    elif ReasonName.PODS_MISSING in titles:
        snapshot = snapshot._replace(
            events=await reader.list(EVENTS, namespace, fields=FIELD_SELECTOR)
        )
    evicted = next(evicted_podgroups(first.podgroups), None)
    if evicted is not None:
        podgroup_selector = (
            f"involvedObject.kind=PodGroup,involvedObject.name={evicted.metadata.name}"
        )
        eviction_events = await reader.list(
            EVENTS, namespace, fields=f"{podgroup_selector},reason=Evict"
        )
        snapshot = snapshot._replace(evictions=eviction_events)
    if any(podgroup.reason and podgroup.counts.unplaced for podgroup in first.podgroups):
        lease = await reader.get(LEASES, SCHEDULER_LEASE)
        if LEASES.plural not in reader.unknown:
            snapshot = snapshot._replace(leases=(lease,) if lease else ())
    if ReasonName.UNEXPLAINED in titles:
        queues = {group.spec.queue for group in snapshot.podgroups}
        existing = {it: await reader.get(QUEUES, Key("", it)) is not None for it in sorted(queues)}
        if QUEUES.plural not in reader.unknown:
            snapshot = snapshot._replace(queues=existing)
    elif LEASES.plural in reader.unknown:
        reader.unknown.remove(
            LEASES.plural
        )  # another reason is known, which the Lease would not change
    return snapshot._replace(unknown=frozenset(reader.unknown))


def _is_owned_by(jobset: JobSet, uid: str) -> bool:
    owner = jobset.metadata.controller
    return owner is not None and owner.uid == uid
