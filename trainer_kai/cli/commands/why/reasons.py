"""Why a PodGroup or a pod waits, or a workload is suspended: a reason, and a message with a remedy.

The reasons are tried in an order: what the objects show comes before what the scheduler has
written, which may be outdated. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from trainer_kai.api.cluster_kinds import Event, Lease
from trainer_kai.api.jobset import Job, ReplicatedJobStatus
from trainer_kai.api.kai_kinds import PodGroup, SchedulingCondition
from trainer_kai.api.meta import Condition, Meta
from trainer_kai.api.names import (
    ADMITTED,
    EVICTED_BY,
    GPU_FRACTION,
    GPU_MEMORY,
    JOB_NAME,
    KUEUE_QUEUE,
    LAST_EVICTION,
    LAST_START,
    POD_GROUP,
    QUEUE,
    REPLICATED_JOB,
    STALE_SINCE,
)
from trainer_kai.api.pod import TERMINAL_PHASES
from trainer_kai.api.reasons import SCHEDULER_REASONS, UnschedulableReason
from trainer_kai.api.resources import JOBS, PODGROUPS, PODS
from trainer_kai.api.text import counted, listed_names, verb_form
from trainer_kai.cli.commands.plan.admission import FIRST_SCHEDULER_FIELD, other_schedulers
from trainer_kai.cli.commands.why.podgroups import (
    PodCounts,
    PodGroupSnapshot,
    is_for_kai_scheduler,
    standalone_snapshot,
)
from trainer_kai.cli.commands.why.snapshot import SCHEDULER_LEASE, PodSnapshot, TrainJobSnapshot
from trainer_kai.policy.podgroups.eviction_record import eviction_reason
from trainer_kai.policy.pods.creation_failures import (
    CANNOT_CREATE,
    CreatedPod,
    PodCreationFailure,
    has_created_since,
    is_recent,
    read_creation_failure,
    still_applies,
)
from trainer_kai.policy.start_order import COMPLETE, Edge
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.kinds import KINDS, workload_of_job
from trainer_kai.policy.workloads.workload import Suspendable, Workload

_LEASE_TOLERANCE: Final = timedelta(minutes=2)  # clocks differ; leaders renew every few seconds
_MAX_NAMED: Final = 3
_OF_USERS: Final = frozenset(it.resource.kind for it in KINDS)  # workloads without a TrainJob
_OUR_REASONS: Final = SCHEDULER_REASONS | {UnschedulableReason.SCHEDULER_PAUSED}
_CHECK: Final = "check that the scheduler is running (`trainer-kai doctor`)"
_RETRIED: Final = ". The Job retries, and creates the pods when the cause is removed"
_RESUMED: Final = "The scheduler resumes it, unless a user has suspended it as well"
_SUSPEND: Final = "spec.suspend"
_UNSUSPEND: Final = "To start it, set spec.suspend to false"


class WaitingReason(NamedTuple):
    title: str
    message: str
    since: str = ""  # RFC 3339; "" if it is not known


def waiting_reason(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason:
    queue = podgroup.api_object.spec.queue if podgroup.api_object else ""
    candidates = (
        _no_pods_reason(podgroup, counts, snapshot),
        _starting(podgroup, counts),
        _other_scheduler(podgroup, snapshot),
        _no_scheduler(podgroup, counts, snapshot),
        _scheduler_explanation(podgroup, snapshot),
        _no_podgroup(podgroup, snapshot),
        _pods_missing(podgroup, counts, snapshot) if counts.existing < podgroup.min_pods else None,
        _gated_or_nominated(podgroup, counts),
        _queue_missing(queue, snapshot),
        _incomplete(podgroup, counts),
        _pod_condition_reason(podgroup),
    )
    return next(filter(None, candidates), _no_status(podgroup, counts))


def standalone_reason(
    podgroup: PodGroupSnapshot, counts: PodCounts, queue: str, snapshot: TrainJobSnapshot
) -> WaitingReason:
    """Return the first reason why pods without a PodGroup wait; *queue* is their queue."""
    candidates = (
        _starting(podgroup, counts),
        _other_scheduler(podgroup, snapshot),
        _no_scheduler(podgroup, counts, snapshot),
        _gated_or_nominated(podgroup, counts) if counts.gated else None,
        _pod_condition_reason(podgroup),
        _gated_or_nominated(podgroup, counts),
        _queue_missing(queue, snapshot),
    )
    return next(filter(None, candidates), _no_status(podgroup, counts))


def why_more_wait(podgroup: PodGroupSnapshot) -> str:
    """Return what the scheduler says of pods that wait while others of their PodGroup run."""
    reason = _pod_condition_reason(podgroup) or _scheduler_reason(podgroup)
    return f"{reason.title}: {reason.message}" if reason else ""


def not_ours(workload: Workload, scheduler_name: str) -> WaitingReason | None:
    """Return why no process of ours serves a workload without a TrainJob; None if they do."""
    if workload.is_admitted_here or workload.needs_owner or not workload.is_managed_here:
        return None
    kind, others = workload.key.kind, other_schedulers(workload, scheduler_name)
    if others:
        path = workload.own_path(FIRST_SCHEDULER_FIELD)
        message = (
            f"The pods are for scheduler {others}. To have trainer-kai schedule the {kind}, create"
            f" it anew with {path}: {scheduler_name}"
        )
        return WaitingReason(UnschedulableReason.LEFT_TO_OTHERS, message)
    message = (
        f"The {kind} has no annotation {ADMITTED}, because the webhook of trainer-kai did not"
        " review its creation. So its pods have no PodGroup, and start one by one. Create it anew;"
        " if it still has none, see `trainer-kai doctor`"
    )
    return WaitingReason(UnschedulableReason.GROUP_MISSING, message)


def _no_pods_reason(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    """Return why a PodGroup has no pods at all; None if it has pods."""
    if counts.existing:
        return None
    pending = [*_unmet_dependencies(podgroup.dependencies, snapshot)]
    if pending:
        message = f"{'; '.join(pending)}. The pods of this PodGroup are created afterwards"
        return WaitingReason(UnschedulableReason.WAITING_FOR_STAGE, message)
    reason = _scheduler_explanation(podgroup, snapshot)
    is_known = reason is not None and reason.title == UnschedulableReason.PODS_MISSING
    return reason if is_known else _pods_missing(podgroup, counts, snapshot)


def _unmet_dependencies(edges: Iterable[Edge], snapshot: TrainJobSnapshot) -> Iterator[str]:
    for edge in edges:
        done, needed, what = _progress(edge, snapshot)
        if done < needed:
            yield f"{edge.before} is not {edge.status} ({done} of {needed} {what})"


def _progress(edge: Edge, snapshot: TrainJobSnapshot) -> tuple[int, int, str]:
    """Return how many objects meet a dependency, how many must, and whether Jobs or pods."""
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
    exist = f"{counts.existing} of {counted(podgroup.min_pods, 'pod')} exist"
    failure = _last_failure(podgroup, snapshot)
    if failure:
        return WaitingReason(UnschedulableReason.PODS_MISSING, f"{exist}. {failure}{_RETRIED}")
    going = counts.terminating
    after = f" when {_pods(going, 'have')} terminated" if going else ""
    remedy = f"The Job controller creates the missing pods{after}"
    return WaitingReason(UnschedulableReason.PODS_MISSING, f"{exist}. {remedy}")


def job_without_pods(job: Job, snapshot: TrainJobSnapshot) -> WaitingReason:
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    wanted = standalone_snapshot(())._replace(min_pods=parallelism)
    return _pods_missing(wanted, PodCounts(), snapshot)


def _last_failure(podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot) -> str:
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
    if snapshot.other is not None:
        return False  # its pods are no Job's
    if snapshot.job is not None:
        return failure.job == snapshot.key
    if snapshot.jobset is None:
        return failure.job.name.startswith(
            tuple(f"{snapshot.key.name}-{it}-" for it in podgroup.replicated_jobs)
        )
    workload = jobset_workload(snapshot.jobset)
    owner = workload_of_job(failure.job, {workload.key: workload})
    return owner is not None and owner[1].name in podgroup.replicated_jobs


def _still_holds(
    failure: PodCreationFailure, pods: list[CreatedPod], snapshot: TrainJobSnapshot
) -> bool:
    if snapshot.jobset is None:  # there is none, or the user may not read it
        return is_recent(failure, snapshot.now) and not has_created_since(failure, pods)
    return still_applies(failure, jobset_workload(snapshot.jobset), pods, snapshot.now)


def _created_pod(pod: PodSnapshot) -> CreatedPod:
    meta = pod.metadata
    counts = not meta.deletion_timestamp and pod.status.phase != "Failed"
    return CreatedPod(meta.labels.get(JOB_NAME, ""), meta.creation_timestamp, counts)


def _starting(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason | None:
    if not counts.starting or counts.unplaced:
        return None
    pods = [it for it in podgroup.pods if it.spec.node_name and it.status.phase == "Pending"]
    why = Counter(filter(None, map(_container_waiting, pods)))
    cause = "; ".join(text for text, _ in why.most_common(_MAX_NAMED))
    cause = cause or "the kubelet has not reported a reason"
    nodes = listed_names(sorted({pod.spec.node_name for pod in pods}), _MAX_NAMED)
    begin = f"{counted(counts.starting, 'pod')} on {nodes} {verb_form(counts.starting, 'are')}"
    return WaitingReason(UnschedulableReason.STARTING, f"{begin} not running yet: {cause}")


def _container_waiting(pod: PodSnapshot) -> str:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        pending = status.state.waiting
        if pending is not None and pending.reason != "PodInitializing":
            return f"{pending.reason}: {pending.message}" if pending.message else pending.reason
    return ""


def _other_scheduler(
    podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    ours = snapshot.scheduler_name
    others = [pod for pod in _unplaced(podgroup) if pod.spec.scheduler_name != ours]
    if not others:
        return None
    names = {pod.spec.scheduler_name or "(none)" for pod in others}
    status = next(filter(None, map(_scheduling_message, others)), "no status yet")
    listed = listed_names(sorted(names), _MAX_NAMED)
    begin = f"{_pods(len(others), 'wait')} for scheduler {listed}"
    limits = f"trainer-kai schedules pods with schedulerName {ours} only"
    remedy = ""
    if snapshot.kind in _OF_USERS:
        remedy = f". To have it schedule the {snapshot.kind}, create that anew with this name"
    message = f"{begin}: {status}. {limits}{remedy}"
    return WaitingReason(UnschedulableReason.LEFT_TO_OTHERS, message)


def _no_scheduler(
    podgroup: PodGroupSnapshot, counts: PodCounts, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    is_for_kai = podgroup.api_object is not None and is_for_kai_scheduler(podgroup.api_object)
    if snapshot.leases is None or is_for_kai or not counts.unplaced:
        return None
    last = _scheduler_reason(podgroup) or _pod_condition_reason(podgroup)
    if not snapshot.leases and last is not None:
        return None  # the scheduler runs in another namespace
    text = _lease_problem(snapshot.leases, snapshot.now)
    if not text:
        return None
    more = f". Last status: {last.title}: {last.message}" if last else ""
    return WaitingReason(UnschedulableReason.NO_SCHEDULER, f"{text}. {_CHECK.capitalize()}{more}")


def _lease_problem(leases: Iterable[Lease], now: datetime) -> str:
    """Return that no scheduler leads, by its Lease; "" if one may lead."""
    lease = next(iter(leases), None)
    if lease is None:
        missing = f"Lease {SCHEDULER_LEASE} does not exist"
        return f"No scheduler has run in namespace {SCHEDULER_LEASE.namespace}: {missing}"
    name, spec = str(lease.metadata.key), lease.spec
    if not spec.holder_identity:
        return f"No scheduler is active: Lease {name} has no holder since {spec.renew_time}"
    renewed = parse_time(spec.renew_time)
    if renewed is None or now - renewed <= _LEASE_TOLERANCE:
        return ""
    holder = spec.holder_identity.partition("_")[0]
    return f"No scheduler is active: {holder} last renewed Lease {name} at {spec.renew_time}"


def _scheduler_reason(podgroup: PodGroupSnapshot) -> WaitingReason | None:
    """Return the reason that a scheduler has written on the PodGroup; KAI's as it is."""
    conditions = podgroup.api_object.status.scheduling_conditions if podgroup.api_object else ()
    for it in reversed(conditions):
        ours = next((one for one in reversed(it.reasons) if one.reason in _OUR_REASONS), None)
        if ours is not None:
            return WaitingReason(ours.reason, ours.message or it.message, it.last_transition_time)
    return _condition_reason(conditions[-1]) if conditions else None


def _scheduler_explanation(
    podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot
) -> WaitingReason | None:
    """Return the scheduler's reason; for missing pods with the failure to create them."""
    reason = _scheduler_reason(podgroup)
    if reason is None or reason.title != UnschedulableReason.PODS_MISSING:
        return reason
    failure = "" if CANNOT_CREATE in reason.message else _last_failure(podgroup, snapshot)
    message = f"{reason.message}. {failure}" if failure else reason.message
    return reason._replace(message=f"{message}{_RETRIED if CANNOT_CREATE in message else ''}")


def _condition_reason(condition: SchedulingCondition) -> WaitingReason:
    reasons = condition.reasons
    causes = (f"{it.reason}: {it.message}" if it.message else it.reason for it in reasons)
    message = condition.message or "; ".join(causes) or "no message"
    title = reasons[-1].reason if reasons else condition.reason
    return WaitingReason(title or condition.type, message, condition.last_transition_time)


def _no_podgroup(podgroup: PodGroupSnapshot, snapshot: TrainJobSnapshot) -> WaitingReason | None:
    is_admitted = snapshot.jobset is None or jobset_workload(snapshot.jobset).is_admitted_here
    if podgroup.api_object or PODGROUPS.plural in snapshot.unknown or not is_admitted:
        return None
    named = {it.metadata.annotations.get(POD_GROUP, "") for it in _unplaced(podgroup)} - {""}
    if named:
        names = listed_names(sorted(named), _MAX_NAMED)
        begin = f"PodGroup {names}, which the pods name, does not exist"
    elif podgroup.name:
        begin = f"PodGroup {podgroup.name} does not exist, and the pods name no PodGroup"
    else:
        begin = "The pods name no PodGroup"
    remedy = "Check that the podgrouper is running (`trainer-kai doctor`)"
    return WaitingReason(UnschedulableReason.GROUP_MISSING, f"{begin}. {remedy}")


def _gated_or_nominated(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason | None:
    if counts.gated and counts.gated == counts.unplaced:
        gates = sorted({it.name for pod in _unplaced(podgroup) for it in pod.spec.scheduling_gates})
        begin = f"{_pods(counts.gated, 'have')} scheduling gates"
        remedy = "Wait until their controllers remove the gates"
        message = f"{begin}: {listed_names(gates, _MAX_NAMED)}. {remedy}"
        return WaitingReason(UnschedulableReason.GATED, message)
    if counts.nominated:
        nodes = sorted({it.status.nominated_node_name for it in _unplaced(podgroup)} - {""})
        begin = f"{_pods(counts.nominated, 'are')} nominated to {listed_names(nodes, _MAX_NAMED)}"
        message = f"{begin}. Wait until the pods that terminate there are gone"
        return WaitingReason(UnschedulableReason.WAITING_FOR_VICTIMS, message)
    return None


def _queue_missing(queue: str, snapshot: TrainJobSnapshot) -> WaitingReason | None:
    if snapshot.queues.get(queue, True):
        return None
    remedy = f"Create it, or suspend the {snapshot.kind}, change its queue label and resume it"
    if snapshot.kind in {PODS.kind, JOBS.kind}:
        remedy = f"Create it, or create the pods anew with another label {QUEUE}"
    return WaitingReason(
        UnschedulableReason.QUEUE_MISSING, f"Queue {queue} does not exist. {remedy}"
    )


def _pod_condition_reason(podgroup: PodGroupSnapshot) -> WaitingReason | None:
    condition = next(filter(None, map(_scheduling_condition, _unplaced(podgroup))), None)
    if condition is None:
        return None
    title, _, message = condition.message.partition(": ")
    if title not in SCHEDULER_REASONS:
        title, message = condition.reason or "Unschedulable", condition.message
    return WaitingReason(title, message, condition.last_transition_time or "")


def _no_status(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason:
    begin = _pods(counts.unplaced, "wait")
    sharing = next((it for it in _unplaced(podgroup) if _requests_share(it)), None)
    if sharing is not None:
        name, namespace = sharing.metadata.name, sharing.metadata.namespace
        message = (
            f"{begin}, and the scheduler has written no status yet. It may be reserving their "
            "GPUs: if that fails, an Event GpuReservationFailed says why "
            f"(`kubectl describe pod {name} -n {namespace}`). Else {_CHECK}"
        )
        return WaitingReason(UnschedulableReason.NO_STATUS, message)
    message = f"{begin}, and the scheduler has written no status yet. If this persists, {_CHECK}"
    return WaitingReason(UnschedulableReason.NO_STATUS, message)


def _requests_share(pod: PodSnapshot) -> bool:
    return not pod.metadata.annotations.keys().isdisjoint((GPU_FRACTION, GPU_MEMORY))


def _incomplete(podgroup: PodGroupSnapshot, counts: PodCounts) -> WaitingReason | None:
    """Return that a running PodGroup has lost pods; the scheduler reports it after its grace."""
    started = counts.running + counts.starting
    if not started or not counts.unplaced:
        return None
    annotations = podgroup.api_object.metadata.annotations if podgroup.api_object else {}
    more = f"{counts.unplaced} more {verb_form(counts.unplaced, 'wait')} for a node"
    message = (
        f"{_pods(started, 'run')}, and {more}. If no node has free"
        " resources in time, the whole PodGroup is evicted and waits again"
    )
    return WaitingReason(UnschedulableReason.INCOMPLETE, message, annotations.get(STALE_SINCE, ""))


def _scheduling_condition(pod: PodSnapshot) -> Condition | None:
    return next(
        (it for it in pod.status.conditions if it.type == "PodScheduled" and it.message), None
    )


def _scheduling_message(pod: PodSnapshot) -> str:
    condition = _scheduling_condition(pod)
    return condition.message if condition else ""


def _unplaced(podgroup: PodGroupSnapshot) -> list[PodSnapshot]:
    pods = (it for it in podgroup.pods if it.status.phase not in TERMINAL_PHASES)
    return [it for it in pods if not (it.spec.node_name or it.metadata.deletion_timestamp)]


def event_time(event: Event) -> str:
    """Return when an event happened last, as a text that can be compared."""
    times = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(it or "" for it in times)


def evicted_at(group: PodGroup) -> str:
    """Return when a PodGroup was evicted last; "" if it was not, or has started since."""
    evicted = group.metadata.annotations.get(LAST_EVICTION, "")
    evicted_time = parse_time(evicted)
    started_time = parse_time(group.metadata.annotations.get(LAST_START, ""))
    is_restarted = started_time and evicted_time and started_time > evicted_time
    return evicted if evicted_time and not is_restarted else ""


def parse_time(text: str) -> datetime | None:
    """Return a time from its text; None for another text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None


def _pods(number: int, verb: str) -> str:
    """Return "1 pod waits" or "3 pods wait"."""
    return f"{counted(number, 'pod')} {verb_form(number, verb)}"


def why_suspended(
    it: Suspendable, groups: Iterable[PodGroup], *, has_kueue: bool | None = None
) -> str:
    """Return why a workload is suspended; *groups* include its own PodGroups.

    A label with a queue of Kueue means nothing if Kueue does not run: *has_kueue* says whether the
    cluster serves its API, and is None if that is not known.
    """
    meta, kind = it.metadata, it.key.kind
    evicted = next(filter(None, (eviction_reason(it, group) for group in groups)), "")
    if evicted:
        return f"The scheduler evicted the {kind}: {evicted}. {_RESUMED}"
    if not meta.labels.get(KUEUE_QUEUE) and EVICTED_BY in meta.annotations:
        return (
            f"spec.suspend is true, and no PodGroup of the {kind} records an eviction: its"
            f" annotation {EVICTED_BY} is outdated, or was not written by the scheduler."
            f" {_UNSUSPEND}"
        )
    # The same sentences for each kind, with the field of this one.
    message = why_user_suspended(meta, has_kueue=has_kueue)
    return message.replace(_SUSPEND, ".".join(it.suspend_path))


def why_user_suspended(meta: Meta, *, has_kueue: bool | None) -> str:
    """Return why a TrainJob or Job is suspended that the scheduler did not evict."""
    queue = meta.labels.get(KUEUE_QUEUE)
    if not queue:
        return f"spec.suspend is true. {_UNSUSPEND}"
    if has_kueue:
        return f"Kueue has not admitted the workload (Kueue queue {queue}). It starts afterwards"
    if has_kueue is None:
        remedy = "If Kueue runs in the cluster, it has not admitted the workload. Otherwise"
        start = "set spec.suspend to false to start it"
        return f"spec.suspend is true, and a label names Kueue queue {queue}. {remedy}, {start}"
    label = f"label {KUEUE_QUEUE} has no effect, because the cluster has no API of Kueue"
    return f"spec.suspend is true ({label}). {_UNSUSPEND}"
