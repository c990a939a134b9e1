"""The report on a TrainJob: its state, which of its PodGroups wait, and why. Pure.

It calls the functions that decide in admission and in the podgrouper, and reads what the scheduler
has written; what no process writes down is derived from the objects.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    JOBSET_NAME,
    QUEUE,
    RESERVED,
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import JOBSETS
from trainer_kai.cli.commands.plan.preview import Preview
from trainer_kai.cli.commands.why.podgroups import (
    PodCounts,
    PodGroupSnapshot,
    count_pods,
    podgroup_snapshots,
    preview_of,
)
from trainer_kai.cli.commands.why.reason_names import SCHEDULER_REASONS, ReasonName
from trainer_kai.cli.commands.why.reasons import (
    WaitingReason,
    event_time,
    evicted_at,
    waiting_reason,
    why_suspended,
)
from trainer_kai.cli.commands.why.snapshot import TrainJobSnapshot

__all__ = [
    "PodGroupExplanation",
    "TrainJobReport",
    "WorkloadState",
    "evicted_podgroups",
    "trainjob_report",
]

_WEBHOOK: Final = ".trainer-kai.dev"


class WorkloadState(StrEnum):
    """The state of a TrainJob or a PodGroup."""

    COMPLETE = "complete"
    FAILED = "failed"
    RUNS = "runs"
    SUSPENDED = "suspended"
    WAITS = "waits"


class PodGroupExplanation(NamedTuple):
    """One PodGroup, with its state and why it waits."""

    podgroup: PodGroupSnapshot
    state: WorkloadState
    counts: PodCounts
    reason: WaitingReason | None = None  # where it waits
    note: str = ""


class TrainJobReport(NamedTuple):
    """The report on a TrainJob or a pod."""

    kind: str
    key: Key
    runtime: str
    queue: str
    state: WorkloadState
    reason: WaitingReason | None  # of all PodGroups together
    has_jobset: bool
    now: datetime  # when the objects were read
    podgroups: tuple[PodGroupExplanation, ...]
    notes: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """Say whether it waits or is suspended."""
        return self.state in {WorkloadState.WAITS, WorkloadState.SUSPENDED}


def trainjob_report(snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a snapshot."""
    plan = preview_of(snapshot)
    podgroups = podgroup_snapshots(snapshot, plan)
    finished = _finished_state(snapshot)
    suspended = None if finished else _suspended_reason(snapshot)
    explanations = tuple(
        _podgroup_explanation(podgroup, snapshot, is_suspended=suspended is not None)
        for podgroup in podgroups
    )
    reason = finished[1] if finished else suspended or _common_reason(snapshot, plan, podgroups)
    return TrainJobReport(
        kind=snapshot.kind,
        key=snapshot.key,
        runtime=_runtime_text(snapshot),
        queue=_queue_name(snapshot),
        state=finished[0] if finished else _overall_state(explanations, suspended, reason),
        reason=reason,
        has_jobset=snapshot.jobset is not None,
        now=snapshot.now,
        podgroups=explanations,
        notes=(*_eviction_notes(snapshot, explanations), *_notes(snapshot)),
        unknown=tuple(sorted(_unreadable_kinds(snapshot))),
    )


def _finished_state(
    snapshot: TrainJobSnapshot,
) -> tuple[WorkloadState, WaitingReason | None] | None:
    conditions = snapshot.trainjob.status.conditions if snapshot.trainjob else ()
    failed = _condition(conditions, "Failed")
    if failed:
        since = failed.last_transition_time or ""
        return WorkloadState.FAILED, WaitingReason(failed.reason or "Failed", failed.message, since)
    return (WorkloadState.COMPLETE, None) if _condition(conditions, "Complete") else None


def _condition(conditions: Iterable[Condition], name: str) -> Condition | None:
    return next((it for it in conditions if it.type == name and it.status == "True"), None)


def _suspended_reason(snapshot: TrainJobSnapshot) -> WaitingReason | None:
    """Return why the TrainJob or its JobSet is suspended; None if neither is."""
    job, jobset = snapshot.trainjob, snapshot.jobset
    if job is None or not job.spec.suspend:
        if job is not None and jobset is not None and jobset.spec.suspend:
            name = jobset.metadata.name
            message = (
                f"its JobSet is suspended, though spec.suspend of {name} is false. "
                "It goes on when Trainer resumes it; if that fails an event of the job says why"
            )
            return WaitingReason(ReasonName.SUSPENDED, message)
        return None
    suspended = _condition(job.status.conditions, "Suspended")
    since = suspended.last_transition_time or "" if suspended else ""
    return WaitingReason(ReasonName.SUSPENDED, why_suspended(job, snapshot.podgroups), since)


def _common_reason(
    snapshot: TrainJobSnapshot, plan: Preview | None, podgroups: tuple[PodGroupSnapshot, ...]
) -> WaitingReason | None:
    """Return the reason that holds for all PodGroups."""
    job = snapshot.trainjob
    manager = job.spec.managed_by if job else ""
    if manager not in {"", TRAINJOB_CONTROLLER}:
        message = f"spec.managedBy leaves it to {manager}: whoever that is knows how far it is"
        return WaitingReason(ReasonName.LEFT_TO_OTHERS, message)
    if job is not None and snapshot.jobset is None and JOBSETS.plural not in snapshot.unknown:
        return _without_jobset(snapshot)
    blocking = [str(it) for it in plan.findings if it.blocks] if plan else []
    if blocking:
        return WaitingReason("Misconfigured", f"it never runs as it is: {'; '.join(blocking)}")
    if not podgroups:
        return WaitingReason(ReasonName.PODS_MISSING, "it has no pods and no groups yet")
    return None


def _without_jobset(snapshot: TrainJobSnapshot) -> WaitingReason:
    if not snapshot.events:
        message = "Trainer has not made its JobSet, and has not said why"
        cause = "events may not be read" if "events" in snapshot.unknown else "it may not run"
        return WaitingReason(ReasonName.JOBSET_MISSING, f"{message}: {cause}")
    last = max(snapshot.events, key=event_time)
    retries = "Trainer tries again by itself, ever more rarely; any change of the TrainJob, an "
    retries += "annotation too, makes it try at once"
    webhook_hint = "The webhook of trainer-kai has to answer. " if _WEBHOOK in last.message else ""
    return WaitingReason(
        ReasonName.JOBSET_MISSING, f"{last.message}. {webhook_hint}{retries}", event_time(last)
    )


def _podgroup_explanation(
    podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot, *, is_suspended: bool
) -> PodGroupExplanation:
    counts = count_pods(podgroup.pods)
    more = counts.unplaced + counts.starting
    is_whole = counts.running + counts.done >= podgroup.min_pods
    if podgroup.is_finished or (is_whole and counts.done and not counts.running and not more):
        return PodGroupExplanation(podgroup, WorkloadState.COMPLETE, counts)
    if is_suspended:
        return PodGroupExplanation(podgroup, WorkloadState.SUSPENDED, counts)
    if not is_whole or not counts.existing:
        reason = waiting_reason(podgroup, counts, snapshot)
        if reason is not None and reason.title in SCHEDULER_REASONS - {
            ReasonName.WAITING_FOR_VICTIMS
        }:
            # A nomination that was withdrawn stays on the pod until it gets another one.
            counts = counts._replace(waiting=counts.waiting + counts.promised, promised=0)
        return PodGroupExplanation(podgroup, WorkloadState.WAITS, counts, reason)
    return PodGroupExplanation(
        podgroup, WorkloadState.RUNS, counts, note=_running_note(podgroup, more)
    )


def _running_note(podgroup: PodGroupSnapshot, more: int) -> str:
    """Return which pods a running PodGroup may still get."""
    notes = []
    if podgroup.expected_jobs:
        is_reserved = (
            podgroup.api_object is not None
            and podgroup.api_object.metadata.annotations.get(RESERVED)
        )
        room = ", and room for it is kept" if is_reserved else ""
        notes.append(f"{', '.join(podgroup.expected_jobs)} comes when the others are Ready{room}")
    if more:
        notes.append(f"it has what it needs; {more} more could run")
    return "; ".join(notes)


def _overall_state(
    explanations: Iterable[PodGroupExplanation],
    suspended: WaitingReason | None,
    reason: WaitingReason | None,
) -> WorkloadState:
    if suspended:
        return WorkloadState.SUSPENDED
    explanations = tuple(explanations)
    if reason or not explanations:
        return WorkloadState.WAITS
    waiting = [it.reason for it in explanations if it.state == WorkloadState.WAITS]
    runs = any(it.state == WorkloadState.RUNS for it in explanations)
    on_its_way = runs and all(it and it.title == ReasonName.WAITING_FOR_STAGE for it in waiting)
    return WorkloadState.WAITS if waiting and not on_its_way else WorkloadState.RUNS


def _runtime_text(snapshot: TrainJobSnapshot) -> str:
    if snapshot.trainjob is None:
        return ""
    reference = snapshot.trainjob.spec.runtime_ref
    return f"{reference.kind} {reference.name}"


def _queue_name(snapshot: TrainJobSnapshot) -> str:
    named = [group.spec.queue for group in snapshot.podgroups]
    labels = [
        it.metadata.labels.get(QUEUE, "") for it in (snapshot.jobset, snapshot.trainjob) if it
    ]
    return next(filter(None, (*named, *labels)), "-")


def _notes(snapshot: TrainJobSnapshot) -> Iterable[str]:
    yield from _queue_change_notes(snapshot)
    for it in (snapshot.trainjob, snapshot.jobset):
        if it is not None and it.metadata.deletion_timestamp:
            kind = "TrainJob" if it is snapshot.trainjob else "JobSet"
            yield f"the {kind} is being deleted"


def evicted_podgroups(explanations: Iterable[PodGroupExplanation]) -> Iterator[PodGroup]:
    """Yield the PodGroups that wait since they were evicted."""
    groups = (it.podgroup.api_object for it in explanations if it.state == WorkloadState.WAITS)
    yield from (group for group in groups if group is not None and evicted_at(group))


def _eviction_notes(
    snapshot: TrainJobSnapshot, explanations: Iterable[PodGroupExplanation]
) -> Iterator[str]:
    """Yield when PodGroups that wait were evicted, and why if the event still exists."""
    since = max(map(evicted_at, evicted_podgroups(explanations)), default="")
    if since:
        last = max(snapshot.evictions, key=event_time, default=None)
        yield f"it was evicted at {since}" + (f": {last.message}" if last else "")


def _queue_change_notes(snapshot: TrainJobSnapshot) -> Iterable[str]:
    """Yield a note if the label of a TrainJob names another queue than its PodGroups have."""
    job, jobset = snapshot.trainjob, snapshot.jobset
    label = job.metadata.labels.get(QUEUE, "") if job else ""
    own_groups = [
        it for it in snapshot.podgroups if it.metadata.labels.get(JOBSET_NAME) == snapshot.key.name
    ]
    is_ours = jobset is None or jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    if job is None or not label or not is_ours or _finished_state(snapshot):
        return
    if any(group.spec.queue != label for group in own_groups):
        when = "resumed" if job.spec.suspend else "suspended and resumed"
        yield f"its label names queue {label} now; that counts once it is {when}"


def _unreadable_kinds(snapshot: TrainJobSnapshot) -> AbstractSet[str]:
    """Return the unreadable kinds that matter: PodGroups say all that a JobSet does."""
    return snapshot.unknown - {JOBSETS.plural} if snapshot.podgroups else snapshot.unknown
