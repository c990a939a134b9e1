"""Why a PodGroup waits or its TrainJob is suspended: a reason, and a message with what changes it.

A fact that the objects show comes before what the scheduler has written, which may be old. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from trainer_kai.api.event import Event
from trainer_kai.api.job import ReplicatedJobStatus
from trainer_kai.api.lease import Lease
from trainer_kai.api.names import (
    EVICTED_BY,
    JOB_NAME,
    KUEUE_QUEUE,
    LAST_EVICTION,
    LAST_START,
    POD_GROUP,
    REPLICATED_JOB,
    STALE_SINCE,
)
from trainer_kai.api.podgroup import PodGroup, SchedulingCondition
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.cli.commands.why.podgroups import PodCounts, PodGroupSnapshot
from trainer_kai.cli.commands.why.reason_names import SCHEDULER_REASONS, ReasonName
from trainer_kai.cli.commands.why.snapshot import SCHEDULER_LEASE, PodSnapshot, TrainJobSnapshot
from trainer_kai.policy.podgroups.eviction_record import eviction_reason
from trainer_kai.policy.pods.creation_failures import (
    CANNOT_CREATE,
    CreatedPod,
    PodCreationFailure,
    has_created_since,
    is_recent,
    owning_replicated_job,
    read_creation_failure,
    still_applies,
)
from trainer_kai.policy.stages import COMPLETE, Edge

__all__ = [
    "WaitingReason",
    "event_time",
    "evicted_at",
    "parse_time",
    "waiting_reason",
    "why_suspended",
]

_LEASE_TOLERANCE: Final = timedelta(minutes=2)  # clocks differ; leaders renew every few seconds
_MAX_NAMED: Final = 3
_OUR_REASONS: Final = SCHEDULER_REASONS | {ReasonName.SCHEDULER_PAUSED}
_RETRIED: Final = ". It goes on when that can be made"
_RESUMED: Final = "It goes on by itself, unless its user has suspended it, too"
_FORGED: Final = (
    f"no PodGroup of it says that it was evicted: its annotation {EVICTED_BY} is not the"
    " scheduler's, or out of date. It goes on when spec.suspend is false"
)


class WaitingReason(NamedTuple):
    """Why a TrainJob or a PodGroup waits."""

    title: str
    message: str
    since: str = ""  # RFC 3339; "" where it is not known


def waiting_reason(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason:
    """Return the first reason why a PodGroup waits."""
    candidates = (
        _no_pods_reason(podgroup, counts, snapshot),
        _starting(podgroup, counts),
        _other_scheduler(podgroup, snapshot),
        _no_scheduler(podgroup, counts, snapshot),
        _scheduler_explanation(podgroup, snapshot),
        _no_podgroup(podgroup, snapshot),
        _pods_missing(podgroup, counts, snapshot) if counts.existing < podgroup.min_pods else None,
        _gated_or_nominated(podgroup, counts),
        _queue_missing(podgroup, snapshot),
        _incomplete(podgroup, counts),
        _pod_condition_reason(podgroup),
    )
    subject = f"{_pods_text(counts.unplaced)} {_verb_form(counts.unplaced, 'wait')}"
    default_message = "nobody has said why yet. If that stays so, the scheduler may not run"
    return next(
        filter(None, candidates),
        WaitingReason(ReasonName.UNEXPLAINED, f"{subject}: {default_message}"),
    )


def _no_pods_reason(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    """Return why a PodGroup has no pods at all; None where it has some."""
    if counts.existing:
        return None
    pending = [*_unmet_dependencies(podgroup.dependencies, snapshot)]
    if pending:
        message = f"{'; '.join(pending)}. Its pods are made afterwards"
        return WaitingReason(ReasonName.WAITING_FOR_STAGE, message)
    reason = _scheduler_explanation(podgroup, snapshot)
    is_known = reason is not None and reason.title == ReasonName.PODS_MISSING
    return reason if is_known else _pods_missing(podgroup, counts, snapshot)


def _unmet_dependencies(edges: Iterable[Edge], snapshot: TrainJobSnapshot) -> Iterator[str]:
    """Yield the stage dependencies that are not met."""
    for edge in edges:
        done, needed, what = _progress(edge, snapshot)
        if done < needed:
            yield f"{edge.before} is not {edge.status}: {done} of {needed} of its {what} are"


def _progress(edge: Edge, snapshot: TrainJobSnapshot) -> tuple[int, int, str]:
    """Return done and needed numbers of a dependency, and what is counted: Jobs or pods."""
    is_complete = edge.status == COMPLETE
    jobset = snapshot.jobset
    if jobset is not None:
        counts = {it.name: it for it in jobset.status.replicated_jobs_status}
        job_counts = counts.get(edge.before, ReplicatedJobStatus(name=edge.before))
        replicas = {it.name: it.replicas for it in jobset.spec.replicated_jobs}
        done = job_counts.succeeded + (0 if is_complete else job_counts.ready)
        return done, replicas.get(edge.before, 1), "Jobs"
    pods = [it for it in snapshot.pods if it.metadata.labels.get(REPLICATED_JOB) == edge.before]
    succeeded = sum(it.status.phase == "Succeeded" for it in pods)
    ready = 0 if is_complete else sum(map(_is_ready, pods))
    return succeeded + ready, max(len(pods), 1), "pods"


def _is_ready(pod: PodSnapshot) -> bool:
    return any(it.type == "Ready" and it.status == "True" for it in pod.status.conditions)


def _pods_missing(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason:
    exist = f"pods are missing: {counts.existing} of {podgroup.min_pods} exist"
    failure = _last_failure(podgroup, snapshot)
    if failure:
        return WaitingReason(ReasonName.PODS_MISSING, f"{exist}. {failure}{_RETRIED}")
    going = f" once {_pods_text(counts.going)} of it ended" if counts.going else ""
    return WaitingReason(ReasonName.PODS_MISSING, f"{exist}. Their Jobs make the others{going}")


def _last_failure(podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot) -> str:
    """Return the last failure to create pods, where it still applies."""
    pods = [_created_pod(pod) for pod in snapshot.pods]
    events = filter(None, map(read_creation_failure, snapshot.events))
    failures = [
        failure
        for failure in events
        if _is_of_podgroup(failure, podgroup, snapshot) and _still_holds(failure, pods, snapshot)
    ]
    return str(max(failures)) if failures else ""


def _is_of_podgroup(
    failure: PodCreationFailure, podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot
) -> bool:
    if snapshot.jobset is None:
        return failure.job.name.startswith(
            tuple(f"{snapshot.key.name}-{it}-" for it in podgroup.replicated_jobs)
        )
    owner = owning_replicated_job(failure.job, {snapshot.key: snapshot.jobset})
    return owner is not None and owner[1].name in podgroup.replicated_jobs


def _still_holds(
    failure: PodCreationFailure, pods: list[CreatedPod], snapshot: TrainJobSnapshot
) -> bool:
    if snapshot.jobset is None:  # the JobSet may not be read
        return is_recent(failure, snapshot.now) and not has_created_since(failure, pods)
    return still_applies(failure, snapshot.jobset, pods, snapshot.now)


def _created_pod(pod: PodSnapshot) -> CreatedPod:
    meta = pod.metadata
    counts = not meta.deletion_timestamp and pod.status.phase != "Failed"
    return CreatedPod(meta.labels.get(JOB_NAME, ""), meta.creation_timestamp, counts)


def _starting(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason | None:
    """Return why pods that have a node do not run yet."""
    if not counts.starting or counts.unplaced:
        return None
    pods = [it for it in podgroup.pods if it.spec.node_name and it.status.phase == "Pending"]
    why = Counter(filter(None, map(_container_waiting, pods)))
    cause = (
        "; ".join(text for text, _ in why.most_common(_MAX_NAMED)) or "its kubelet has not said why"
    )
    nodes = _first_names(sorted({pod.spec.node_name for pod in pods}))
    do = "does" if counts.starting == 1 else "do"
    begin = f"{_pods_text(counts.starting)} on {nodes} {do} not run yet"
    return WaitingReason(ReasonName.STARTING, f"{begin}: {cause}")


def _container_waiting(pod: PodSnapshot) -> str:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        pending = status.state.waiting
        if pending is not None and pending.reason != "PodInitializing":
            return f"{pending.reason}: {pending.message}" if pending.message else pending.reason
    return ""


def _other_scheduler(
    podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    """Return that pods wait for another scheduler, if they do."""
    others = [
        pod for pod in _unplaced(podgroup) if pod.spec.scheduler_name != snapshot.scheduler_name
    ]
    if not others:
        return None
    scheduler_names = _first_names(sorted({pod.spec.scheduler_name or "nobody" for pod in others}))
    scheduling_message = next(
        filter(None, map(_scheduling_message, others)), "it has said nothing of them yet"
    )
    message = (
        f"{_pods_text(len(others))} {_verb_form(len(others), 'wait')} for "
        f"{scheduler_names}, not for us: {scheduling_message}"
    )
    return WaitingReason(ReasonName.LEFT_TO_OTHERS, message)


def _no_scheduler(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    is_flat = podgroup.api_object is not None and not podgroup.api_object.spec.sub_groups
    if snapshot.leases is None or is_flat or not counts.unplaced:
        return None
    last = _scheduler_reason(podgroup)
    if not snapshot.leases and last is not None:
        return None  # the scheduler runs in another namespace
    text = _lease_problem(snapshot.leases, snapshot.now)
    if not text:
        return None
    more = f". The last that was said of it: {last.title}: {last.message}" if last else ""
    return WaitingReason(
        ReasonName.NO_SCHEDULER, f"{text}. It goes on when the scheduler runs{more}"
    )


def _lease_problem(leases: Iterable[Lease], now: datetime) -> str:
    """Return that no scheduler leads, by its Lease; "" where one may."""
    lease = next(iter(leases), None)
    if lease is None:
        return (
            "no scheduler has ever run, or not in its namespace: there is no "
            f"Lease {SCHEDULER_LEASE}"
        )
    name, spec = str(lease.metadata.key), lease.spec
    if not spec.holder_identity:
        return f"no scheduler runs: nobody holds the Lease {name} since {spec.renew_time}"
    renewed = parse_time(spec.renew_time)
    if renewed is None or now - renewed <= _LEASE_TOLERANCE:
        return ""
    holder = spec.holder_identity.partition("_")[0]
    return f"no scheduler runs: {holder} has not renewed the Lease {name} since {spec.renew_time}"


def _scheduler_reason(podgroup: PodGroupSnapshot) -> WaitingReason | None:
    """Return the reason that a scheduler has written on the PodGroup; a KAI's as it is."""
    conditions = podgroup.api_object.status.scheduling_conditions if podgroup.api_object else ()
    for it in reversed(conditions):
        ours = next(
            (reason for reason in reversed(it.reasons) if reason.reason in _OUR_REASONS),
            None,
        )
        if ours is not None:
            return WaitingReason(ours.reason, ours.message or it.message, it.last_transition_time)
    return _condition_reason(conditions[-1]) if conditions else None


def _scheduler_explanation(
    podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    """Return the scheduler's reason; for missing pods with the failure of their creation."""
    reason = _scheduler_reason(podgroup)
    if reason is None or reason.title != ReasonName.PODS_MISSING:
        return reason
    failure = "" if CANNOT_CREATE in reason.message else _last_failure(podgroup, snapshot)
    message = f"{reason.message}. {failure}" if failure else reason.message
    return reason._replace(message=f"{message}{_RETRIED if CANNOT_CREATE in message else ''}")


def _condition_reason(condition: SchedulingCondition) -> WaitingReason:
    reasons = [
        f"{it.reason}: {it.message}" if it.message else it.reason for it in condition.reasons
    ]
    message = condition.message or "; ".join(reasons) or "nothing more is said"
    title = condition.reasons[-1].reason if condition.reasons else condition.reason
    return WaitingReason(title or condition.type, message, condition.last_transition_time)


def _no_podgroup(podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot) -> WaitingReason | None:
    if podgroup.api_object is not None or "podgroups" in snapshot.unknown:
        return None
    named = sorted(
        {it.metadata.annotations.get(POD_GROUP, "") for it in _unplaced(podgroup)} - {""}
    )
    if named:
        begin = f"its pods are in the PodGroup {_first_names(named)}, which does not exist"
    elif podgroup.name:
        begin = f"its pods name no PodGroup, and {podgroup.name} does not exist"
    else:
        begin = "its pods name no PodGroup"
    remedy = "It goes on when the podgrouper, or whoever groups them, makes it"
    return WaitingReason(ReasonName.GROUP_MISSING, f"{begin}. {remedy}")


def _gated_or_nominated(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason | None:
    if counts.gated and counts.gated == counts.unplaced:
        gates = sorted({it.name for pod in _unplaced(podgroup) for it in pod.spec.scheduling_gates})
        begin = f"{_pods_text(counts.gated)} {'is' if counts.gated == 1 else 'are'} gated"
        return WaitingReason(
            ReasonName.GATED,
            f"{begin}. It goes on when these gates are gone: {_first_names(gates)}",
        )
    if counts.promised:
        nodes = sorted({it.status.nominated_node_name for it in _unplaced(podgroup)} - {""})
        begin = (
            f"{_pods_text(counts.promised)} {'has' if counts.promised == 1 else 'have'} the promise"
        )
        return WaitingReason(
            ReasonName.WAITING_FOR_VICTIMS,
            f"{begin} of {_first_names(nodes)}, and can start when others left",
        )
    return None


def _queue_missing(podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot) -> WaitingReason | None:
    queue = podgroup.api_object.spec.queue if podgroup.api_object else ""
    if snapshot.queues.get(queue, True):
        return None
    remedy = "It goes on when that is made, or when it is suspended and resumed with another"
    return WaitingReason(ReasonName.QUEUE_MISSING, f"queue {queue} does not exist. {remedy}")


def _pod_condition_reason(podgroup: PodGroupSnapshot) -> WaitingReason | None:
    """Return the reason that is written on pods, for users that may not read PodGroups."""
    scheduling_message = next(filter(None, map(_scheduling_message, _unplaced(podgroup))), "")
    title, _, message = scheduling_message.partition(": ")
    if title in SCHEDULER_REASONS:
        return WaitingReason(title, message)
    return WaitingReason("Unschedulable", scheduling_message) if scheduling_message else None


def _incomplete(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason | None:
    """Return that a running PodGroup has lost pods; the scheduler reports it after its grace."""
    started = counts.running + counts.starting
    if not started or not counts.unplaced:
        return None
    annotations = podgroup.api_object.metadata.annotations if podgroup.api_object else {}
    needs = f"{counts.unplaced} more {_verb_form(counts.unplaced, 'need')} room"
    shortage = f"{_pods_text(started)} {_verb_form(started, 'run')}, and {needs}"
    message = (
        f"{shortage}. If there is none in time it is taken off its nodes whole, and starts anew"
    )
    return WaitingReason(ReasonName.INCOMPLETE, message, annotations.get(STALE_SINCE, ""))


def _scheduling_message(pod: PodSnapshot) -> str:
    return next(
        (it.message for it in pod.status.conditions if it.type == "PodScheduled" and it.message), ""
    )


def _unplaced(podgroup: PodGroupSnapshot) -> list[PodSnapshot]:
    finished = ("Succeeded", "Failed")
    return [
        pod
        for pod in podgroup.pods
        if not (
            pod.spec.node_name or pod.metadata.deletion_timestamp or pod.status.phase in finished
        )
    ]


def event_time(event: Event) -> str:
    """Return when an event happened last, as a text that can be compared."""
    times = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(it or "" for it in times)


def evicted_at(group: PodGroup) -> str:
    """Return when a PodGroup was evicted last; "" if it was not, or has started since."""
    evicted, started = (
        group.metadata.annotations.get(it, "") for it in (LAST_EVICTION, LAST_START)
    )
    evicted_time, started_time = parse_time(evicted), parse_time(started)
    is_restarted = started_time and evicted_time and started_time > evicted_time
    return evicted if evicted_time and not is_restarted else ""


def parse_time(text: str) -> datetime | None:
    """Return a time from its text; None for another text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None


def _first_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _pods_text(number: int) -> str:
    return f"{number} pod{'s' * (number != 1)}"


def _verb_form(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb


def why_suspended(job: TrainJob, groups: Iterable[PodGroup]) -> str:
    """Return why a TrainJob is suspended; *groups* include its own PodGroups."""
    kueue = job.metadata.labels.get(KUEUE_QUEUE)
    evicted = next(filter(None, (eviction_reason(job, group) for group in groups)), "")
    if evicted:
        return f"it was taken off its nodes: {evicted}. {_RESUMED}"
    if kueue:
        return f"Kueue has not admitted it (queue {kueue}). It goes on when Kueue does"
    if job.metadata.annotations.get(EVICTED_BY):
        return _FORGED
    return "somebody has suspended it. It goes on when spec.suspend is false"
