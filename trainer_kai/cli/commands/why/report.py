"""The report on a workload, or on pods without a PodGroup: the state, what waits, and why. Pure.

The report on a workload calls the functions that decide in admission and in the podgrouper, once,
and reads what the scheduler has written; what no process writes is derived from the objects. Some
reasons need objects that are read only then, such as Events: `with_details` adds these.

Pods without a PodGroup are one pod, or the pods of a Job that is not ours. The scheduler places
each alone, and writes the reason why it waits into the pod's condition PodScheduled.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final, NamedTuple

from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    JOBSET_NAME,
    POD_GROUP,
    QUEUE,
    RESERVED,
)
from trainer_kai.api.reasons import SCHEDULER_REASONS, UnschedulableReason
from trainer_kai.api.resources import EVENTS, JOBS, JOBSETS, PODS, TRAINJOBS
from trainer_kai.api.text import truncated_message
from trainer_kai.cli.commands.plan.preview import Preview
from trainer_kai.cli.commands.why.podgroups import (
    PodCounts,
    PodGroupSnapshot,
    count_pods,
    pod_state,
    podgroup_snapshots,
    preview_of,
    standalone_snapshot,
)
from trainer_kai.cli.commands.why.reasons import (
    WaitingReason,
    event_time,
    evicted_at,
    job_without_pods,
    not_ours,
    parse_time,
    standalone_reason,
    waiting_reason,
    why_more_wait,
    why_suspended,
    why_user_suspended,
)
from trainer_kai.cli.commands.why.snapshot import PodSnapshot, TrainJobSnapshot
from trainer_kai.policy.podgroups.eviction_record import LastEviction, last_eviction_of
from trainer_kai.policy.workloads.state import WorkloadState, finished_state, true_condition
from trainer_kai.policy.workloads.workload import Workload

_WEBHOOK: Final = ".trainer-kai.dev"
_RFC_3339: Final = "%Y-%m-%dT%H:%M:%SZ"
_NEVER_S: Final = 10 * 365 * 24 * 3600  # a deadline after so long is none
_WITHOUT_NOMINATION: Final = SCHEDULER_REASONS - {UnschedulableReason.WAITING_FOR_VICTIMS}


_STATE_OF_PODS: Final = {  # in other states pods wait
    "running": WorkloadState.RUNS,
    "terminating": WorkloadState.RUNS,
    "succeeded": WorkloadState.COMPLETE,
    "failed": WorkloadState.FAILED,
}


class QueueSourceKind(StrEnum):
    """The object that names the queue."""

    PODGROUP = "podGroup"  # its spec
    LABEL = "label"  # of the workload or pod
    DEFAULT = "default"  # the setting, because a pod has no label


class PodGroupExplanation(NamedTuple):
    podgroup: PodGroupSnapshot
    state: WorkloadState
    counts: PodCounts
    reason: WaitingReason | None = None  # if it waits or has failed
    note: str = ""


class TrainJobReport(NamedTuple):
    kind: str
    key: Key
    runtime: str
    queue: str
    queue_source: QueueSourceKind | None
    state: WorkloadState
    reason: WaitingReason | None  # of all PodGroups together
    has_workload: bool  # the JobSet or Job is known, and not finished
    now: datetime  # when the objects were read
    podgroups: tuple[PodGroupExplanation, ...]
    notes: tuple[str, ...]
    unknown: tuple[str, ...]
    node: str = ""  # of the pod that the user asks about

    @property
    def waits(self) -> bool:
        return self.state in {WorkloadState.WAITS, WorkloadState.SUSPENDED}


def trainjob_report(snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a snapshot; it plans the workload, which takes most of the time."""
    finished = _finished_state(_conditions(snapshot))
    plan = preview_of(snapshot) if finished is None else None
    podgroups = podgroup_snapshots(snapshot, plan)
    suspended = None if finished else _suspended_reason(snapshot)
    explanations = tuple(
        _podgroup_explanation(podgroup, snapshot, is_suspended=suspended is not None)
        for podgroup in podgroups
    )
    reason = finished[1] if finished else suspended or _common_reason(snapshot, plan, podgroups)
    queue, queue_source = _queue(snapshot)
    reference = snapshot.trainjob.spec.runtime_ref if snapshot.trainjob else None
    return TrainJobReport(
        kind=snapshot.kind,
        key=snapshot.key,
        runtime=f"{reference.kind} {reference.name}" if reference else "",
        queue=queue,
        queue_source=queue_source,
        state=finished[0] if finished else _overall_state(explanations, suspended, reason),
        reason=reason,
        has_workload=snapshot.workload is not None and not finished,
        now=snapshot.now,
        podgroups=explanations,
        notes=(*_eviction_notes(snapshot, explanations), *_notes(snapshot)),
        unknown=tuple(sorted(_unreadable_kinds(snapshot))),
    )


def finished_report(snapshot: TrainJobSnapshot, groups: Iterable[PodGroup]) -> TrainJobReport:
    """Return the report on a workload that has ended; it still tells the last eviction."""
    report = trainjob_report(snapshot)
    note = _last_recorded_eviction(groups)
    return report._replace(notes=(*note, *report.notes))


def with_details(report: TrainJobReport, snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return a report with what was read after it: Events, the Lease, queues, Kueue.

    They change the messages of what waits. The JobSet is not planned again.
    """
    is_suspended = report.state == WorkloadState.SUSPENDED
    explanations = tuple(
        _podgroup_explanation(it.podgroup, snapshot, is_suspended=is_suspended)
        if it.state == WorkloadState.WAITS
        else it
        for it in report.podgroups
    )
    reason = report.reason
    if is_suspended:
        reason = _suspended_reason(snapshot)
    elif reason is not None and reason.title == UnschedulableReason.JOBSET_MISSING:
        reason = _without_jobset(snapshot)
    return report._replace(
        reason=reason,
        podgroups=explanations,
        notes=(*_eviction_notes(snapshot, explanations), *_notes(snapshot)),
        unknown=tuple(sorted(_unreadable_kinds(snapshot))),
    )


def is_finished(snapshot: TrainJobSnapshot) -> bool:
    return _finished_state(_conditions(snapshot)) is not None


def _conditions(snapshot: TrainJobSnapshot) -> tuple[Condition, ...]:
    """Return the conditions of the object that its users look at."""
    if snapshot.trainjob is not None:
        return snapshot.trainjob.status.conditions
    if snapshot.other is not None:
        return snapshot.other_conditions
    if snapshot.suspendable is None:
        return ()
    known = (it for it in (snapshot.jobset, snapshot.job) if it is not None)
    return tuple(condition for it in known for condition in it.status.conditions)


def conditions_of(obj: Any, workload: Workload) -> tuple[Condition, ...]:
    """Return the conditions of an object; one says that it is over, if no other does."""
    status = getattr(obj, "status", None)
    conditions: tuple[Condition, ...] = getattr(status, "conditions", ())
    if not workload.is_finished or _finished_state(conditions) is not None:
        return conditions
    state = getattr(status, "job_deployment_status", "")
    has_succeeded = state == "Complete" or true_condition(conditions, "Succeeded")
    kind = "Complete" if has_succeeded else "Failed"
    message = f"The {workload.key.kind} is {state or 'finished'}"
    return (*conditions, Condition(type=kind, status="True", message=message))


def _finished_state(
    conditions: Iterable[Condition],
) -> tuple[WorkloadState, WaitingReason | None] | None:
    finished = finished_state(conditions)
    if finished is None or finished[0] == WorkloadState.COMPLETE:
        return finished and (finished[0], None)
    failed = finished[1]
    since = failed.last_transition_time or ""
    return WorkloadState.FAILED, WaitingReason(failed.reason or "Failed", failed.message, since)


def _suspended_reason(snapshot: TrainJobSnapshot) -> WaitingReason | None:
    """Return why the workload is suspended, or only the JobSet of a TrainJob; None if it is not."""
    it, jobset = snapshot.suspendable, snapshot.jobset
    if it is None:
        return None
    if not it.is_suspended:
        if jobset is None or not jobset.spec.suspend:
            return None
        name = jobset.metadata.name
        message = (
            f"The JobSet is suspended, although spec.suspend of TrainJob {name} is false. It starts"
            " when Trainer resumes the JobSet; if that fails, see the Events of the TrainJob"
        )
        return WaitingReason(UnschedulableReason.SUSPENDED, message)
    suspended = true_condition(_conditions(snapshot), "Suspended")
    since = suspended.last_transition_time or "" if suspended else ""
    message = why_suspended(it, snapshot.podgroups, has_kueue=snapshot.has_kueue)
    return WaitingReason(UnschedulableReason.SUSPENDED, message, since)


def _common_reason(
    snapshot: TrainJobSnapshot, plan: Preview | None, podgroups: tuple[PodGroupSnapshot, ...]
) -> WaitingReason | None:
    """Return the reason that holds for all PodGroups."""
    managed = _managed_elsewhere(snapshot)
    if managed is not None:
        return managed
    if (
        snapshot.trainjob is not None
        and snapshot.jobset is None
        and JOBSETS.plural not in snapshot.unknown
    ):
        return _without_jobset(snapshot)
    blocking = [str(it) for it in plan.findings if it.blocks] if plan else []
    if blocking:
        kind = plan.kind if plan else ""
        return WaitingReason("Misconfigured", f"The {kind} cannot run: {'; '.join(blocking)}")
    if not podgroups:
        workload = snapshot.workload
        others = not_ours(workload, snapshot.scheduler_name) if workload else None
        if others is not None:
            return others
        message = f"The {snapshot.kind} has no pods and no PodGroups yet"
        return WaitingReason(UnschedulableReason.PODS_MISSING, message)
    return None


def _managed_elsewhere(snapshot: TrainJobSnapshot) -> WaitingReason | None:
    it, other = snapshot.suspendable, snapshot.other
    if it is None or it.is_managed_here or (other is not None and other.is_managed_here):
        return None
    if other is not None:
        message = f"Another controller runs the {it.key.kind}: see the status that it reports"
        return WaitingReason(UnschedulableReason.LEFT_TO_OTHERS, message)
    objects = (snapshot.trainjob, snapshot.jobset, snapshot.job)
    manager = next(obj.spec.managed_by for obj in objects if obj is not None)
    message = f"{manager} runs the {it.key.kind} (spec.managedBy): see the status that it reports"
    return WaitingReason(UnschedulableReason.LEFT_TO_OTHERS, message)


def _without_jobset(snapshot: TrainJobSnapshot) -> WaitingReason:
    if not snapshot.events:
        message = "Trainer has not created the JobSet, and no Event gives a reason"
        remedy = "Check that Trainer is running"
        if EVENTS.plural in snapshot.unknown:
            message, remedy = "Trainer has not created the JobSet", "You may not read Events"
        return WaitingReason(UnschedulableReason.JOBSET_MISSING, f"{message}. {remedy}")
    last = max(snapshot.events, key=event_time)
    is_ours = _WEBHOOK in last.message
    hint = "Check the webhook of trainer-kai (`trainer-kai doctor`). " if is_ours else ""
    message = (
        f"{last.message}. {hint}Trainer retries with growing delays; any change of the TrainJob,"
        " such as an annotation, makes it retry at once"
    )
    return WaitingReason(UnschedulableReason.JOBSET_MISSING, message, event_time(last))


def _podgroup_explanation(
    podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot, *, is_suspended: bool
) -> PodGroupExplanation:
    counts = count_pods(podgroup.pods)
    more = counts.unplaced + counts.starting
    is_whole = counts.running + counts.succeeded >= podgroup.min_pods
    if podgroup.is_finished or (is_whole and counts.succeeded and not counts.running and not more):
        return PodGroupExplanation(podgroup, WorkloadState.COMPLETE, counts)
    if is_suspended:
        return PodGroupExplanation(podgroup, WorkloadState.SUSPENDED, counts)
    if not is_whole or not counts.existing:
        reason = waiting_reason(podgroup, counts, snapshot)
        if reason.title in _WITHOUT_NOMINATION:
            # A withdrawn nomination stays on the pod until the pod is nominated again.
            counts = counts._replace(waiting=counts.waiting + counts.nominated, nominated=0)
        return PodGroupExplanation(podgroup, WorkloadState.WAITS, counts, reason)
    note = _running_note(podgroup, more, snapshot)
    return PodGroupExplanation(podgroup, WorkloadState.RUNS, counts, note=note)


def _running_note(podgroup: PodGroupSnapshot, more: int, snapshot: TrainJobSnapshot) -> str:
    notes = []
    if podgroup.expected_jobs:
        group = podgroup.api_object
        is_reserved = group is not None and group.metadata.annotations.get(RESERVED)
        reserved = ", and resources are reserved for them" if is_reserved else ""
        names = ", ".join(podgroup.expected_jobs)
        notes.append(f"the pods of {names} are created when the others are Ready{reserved}")
    if more:
        # A Job starts with its first pod, so the others are most of it.
        why = why_more_wait(podgroup) if snapshot.job is not None else ""
        more_text = f"{more} more can start" + (f" ({why})" if why else "")
        notes.append(f"the PodGroup runs with its minimum; {more_text}")
    return "; ".join(notes)


def _overall_state(
    explanations: tuple[PodGroupExplanation, ...],
    suspended: WaitingReason | None,
    reason: WaitingReason | None,
) -> WorkloadState:
    if suspended:
        return WorkloadState.SUSPENDED
    if reason or not explanations:
        return WorkloadState.WAITS
    waiting = [it.reason for it in explanations if it.state == WorkloadState.WAITS]
    runs = any(it.state == WorkloadState.RUNS for it in explanations)
    on_its_way = runs and all(
        it and it.title == UnschedulableReason.WAITING_FOR_STAGE for it in waiting
    )
    return WorkloadState.WAITS if waiting and not on_its_way else WorkloadState.RUNS


def _queue(snapshot: TrainJobSnapshot) -> tuple[str, QueueSourceKind | None]:
    """Return the queue, and the object that names it; "-" if no object does."""
    queue = next(filter(None, (group.spec.queue for group in snapshot.podgroups)), "")
    if queue:
        return queue, QueueSourceKind.PODGROUP
    labelled = (it.metadata.labels for it in (snapshot.workload, snapshot.trainjob) if it)
    queue = next(filter(None, (labels.get(QUEUE, "") for labels in labelled)), "")
    return (queue, QueueSourceKind.LABEL) if queue else ("-", None)


def _notes(snapshot: TrainJobSnapshot) -> Iterable[str]:
    yield from _queue_change_notes(snapshot)
    yield from _unreviewed_notes(snapshot)
    yield from _deadline_notes(snapshot)
    kinds = (TRAINJOBS.kind, JOBSETS.kind, JOBS.kind)
    for kind, it in zip(kinds, (snapshot.trainjob, snapshot.jobset, snapshot.job), strict=True):
        if it is not None and it.metadata.deletion_timestamp:
            yield f"the {kind} is terminating"
    if snapshot.other is not None and snapshot.other.metadata.deletion_timestamp:
        yield f"the {snapshot.kind} is terminating"


def _deadline_notes(snapshot: TrainJobSnapshot) -> Iterator[str]:
    """Yield when the controller of a workload will end it, whether its pods run or wait."""
    it = snapshot.suspendable
    if it is None or not 0 < it.deadline_s < _NEVER_S or is_finished(snapshot):
        return
    bound = f"activeDeadlineSeconds: {it.deadline_s}"
    begin = parse_time(it.deadline_from)
    if begin is None:
        yield f"{bound} counts from when the {it.key.kind} starts, also while its pods wait"
    else:
        end = (begin.astimezone(UTC) + timedelta(seconds=it.deadline_s)).strftime(_RFC_3339)
        yield f"it will be ended at {end} ({bound}), also if its pods still wait then"


def _unreviewed_notes(snapshot: TrainJobSnapshot) -> Iterator[str]:
    """Yield that admission did not review a workload of ours, so that it has no PodGroup."""
    workload = snapshot.workload
    if workload is None or workload.is_over or not snapshot.pods:
        return
    reason = not_ours(workload, snapshot.scheduler_name)
    if reason is not None and reason.title == UnschedulableReason.GROUP_MISSING:
        yield f"{reason.message[0].lower()}{reason.message[1:]}"


def last_evicted(explanations: Iterable[PodGroupExplanation]) -> PodGroup | None:
    """Return the PodGroup that was evicted last, of those that have waited since then.

    A PodGroup that records its last eviction is none: no Event is needed for its cause.
    """
    groups = (it.podgroup.api_object for it in explanations if it.state == WorkloadState.WAITS)
    evicted = (
        group
        for group in groups
        if group is not None and evicted_at(group) and last_eviction_of(group) is None
    )
    return max(evicted, key=evicted_at, default=None)


def _eviction_notes(
    snapshot: TrainJobSnapshot, explanations: tuple[PodGroupExplanation, ...]
) -> Iterator[str]:
    """Yield when a PodGroup was evicted last, and why if a record or the Event still exists."""
    groups = (it.podgroup.api_object for it in explanations)
    yield from _last_recorded_eviction(it for it in groups if it is not None)
    group = last_evicted(explanations)
    if group is not None:
        event = max(snapshot.evictions, key=event_time, default=None)
        cause = f": {event.message}" if event else ""
        yield f"PodGroup {group.metadata.name} was evicted at {evicted_at(group)}{cause}"


def _last_recorded_eviction(groups: Iterable[PodGroup]) -> Iterator[str]:
    recorded = [(it, last_eviction_of(it)) for it in groups]
    known = [(last.at, it, last) for it, last in recorded if last is not None]
    if known:
        _, evicted, last = max(known, key=itemgetter(0))
        yield _recorded_eviction_note(evicted, last)


def _recorded_eviction_note(group: PodGroup, last: LastEviction) -> str:
    at, message = (truncated_message(" ".join(it.split())) for it in (last.at, last.message))
    rule = f" (action {last.action}, rule {last.rule})" if last.rule else ""
    queue = f" of queue {last.queue}" if last.queue else ""
    gpus = f"{last.gpus:g} GPU{queue}" if last.gpus else f"no GPU{queue}"
    lost = f", lost {last.lost_gpu_seconds} GPU-seconds of work" if last.lost_gpu_seconds else ""
    times = "once" if last.evictions == 1 else f"{last.evictions} times"
    return (
        f"PodGroup {group.metadata.name} was evicted at {at}{rule}: {message}. It used"
        f" {gpus}{lost}, and was evicted {times} so far"
    )


def _queue_change_notes(snapshot: TrainJobSnapshot) -> Iterable[str]:
    it, workload = snapshot.suspendable, snapshot.workload
    label = it.metadata.labels.get(QUEUE, "") if it else ""
    is_ours = workload is None or workload.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    if it is None or not label or not is_ours or is_finished(snapshot):
        return
    name_label, name = workload.kind.name_label if workload else JOBSET_NAME, snapshot.key.name
    own = (group for group in snapshot.podgroups if group.metadata.labels.get(name_label) == name)
    if any(group.spec.queue != label for group in own):
        when = "resumed" if it.is_suspended else "suspended and resumed"
        yield f"the label names queue {label}; it takes effect when the {it.key.kind} is {when}"


def _unreadable_kinds(snapshot: TrainJobSnapshot) -> AbstractSet[str]:
    """Return the unreadable kinds that matter: PodGroups contain all that is needed of a JobSet."""
    return snapshot.unknown - {JOBSETS.plural} if snapshot.podgroups else snapshot.unknown


def has_podgroup(snapshot: TrainJobSnapshot) -> bool:
    return any(pod.metadata.annotations.get(POD_GROUP) for pod in snapshot.pods)


def standalone_report(snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a pod or a Job; pods that are in the same state share one row."""
    queue, source = _standalone_queue(snapshot)
    # The default queue of the cluster may have another name than the user has given.
    named = queue if source == QueueSourceKind.LABEL else ""
    explanations = tuple(_explained(pods, named, snapshot) for pods in _alike(snapshot.pods))
    state, reason = _job_state(snapshot, explanations)
    nodes = {pod.spec.node_name for pod in snapshot.pods} if snapshot.kind == PODS.kind else {""}
    return TrainJobReport(
        kind=snapshot.kind,
        key=snapshot.key,
        runtime="",
        queue=queue,
        queue_source=source,
        state=state,
        reason=reason,
        has_workload=False,
        now=snapshot.now,
        podgroups=explanations,
        notes=tuple(_standalone_notes(snapshot)),
        unknown=tuple(sorted(snapshot.unknown)),
        node="".join(nodes),
    )


def _standalone_queue(snapshot: TrainJobSnapshot) -> tuple[str, QueueSourceKind | None]:
    """Return the queue of the pods; "-" if another scheduler places them."""
    pods = [it for it in snapshot.pods if it.spec.scheduler_name == snapshot.scheduler_name]
    if not pods:
        return "-", None
    label = next(filter(None, (it.metadata.labels.get(QUEUE, "") for it in pods)), "")
    if label:
        return label, QueueSourceKind.LABEL
    return snapshot.default_queue, QueueSourceKind.DEFAULT


def _alike(pods: Iterable[PodSnapshot]) -> list[list[PodSnapshot]]:
    """Return the pods in groups of the same state and the same cause; the largest group first."""
    groups: dict[tuple[object, ...], list[PodSnapshot]] = {}
    for pod in pods:
        messages = [it.message for it in pod.status.conditions if it.type == "PodScheduled"]
        gates = [it.name for it in pod.spec.scheduling_gates]
        cause = (pod.spec.scheduler_name, *messages, *gates)
        groups.setdefault((pod_state(pod), cause), []).append(pod)
    return sorted(groups.values(), key=lambda them: (-len(them), them[0].metadata.name))


def _explained(
    pods: list[PodSnapshot], queue: str, snapshot: TrainJobSnapshot
) -> PodGroupExplanation:
    podgroup, counts = standalone_snapshot(pods), count_pods(pods)
    state = _STATE_OF_PODS.get(pod_state(pods[0]), WorkloadState.WAITS)
    reason = None
    if state == WorkloadState.WAITS:
        reason = standalone_reason(podgroup, counts, queue, snapshot)
    elif state == WorkloadState.FAILED:
        it = pods[0].status
        reason = WaitingReason(it.reason or "Failed", it.message or "no message")
    return PodGroupExplanation(podgroup, state, counts, reason)


def _job_state(
    snapshot: TrainJobSnapshot, explanations: tuple[PodGroupExplanation, ...]
) -> tuple[WorkloadState, WaitingReason | None]:
    if snapshot.job is None:
        return explanations[0].state, None
    job = snapshot.job
    finished = _finished_state(job.status.conditions)
    if finished:
        return finished
    if job.spec.suspend:
        message = why_user_suspended(job.metadata, has_kueue=snapshot.has_kueue)
        return WorkloadState.SUSPENDED, WaitingReason(UnschedulableReason.SUSPENDED, message)
    managed = _managed_elsewhere(snapshot)
    if managed is not None:
        return WorkloadState.WAITS, managed
    states = {it.state for it in explanations}
    if WorkloadState.WAITS not in states and WorkloadState.RUNS not in states:
        return WorkloadState.WAITS, job_without_pods(job, snapshot)
    return WorkloadState.WAITS if WorkloadState.WAITS in states else WorkloadState.RUNS, None


def _standalone_notes(snapshot: TrainJobSnapshot) -> Iterator[str]:
    yield from _unreviewed_notes(snapshot)
    for it in (snapshot.job, *(snapshot.pods if snapshot.kind == PODS.kind else ())):
        if it is not None and it.metadata.deletion_timestamp:
            kind = JOBS.kind if it is snapshot.job else "pod"
            yield f"the {kind} is terminating"
