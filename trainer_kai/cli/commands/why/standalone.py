"""The report on pods that belong to no PodGroup: one pod, or the pods of a batch Job. Pure.

The scheduler places such a pod alone, and writes the reason why it waits into the pod's condition
PodScheduled.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from trainer_kai.api.names import POD_GROUP, QUEUE
from trainer_kai.api.reasons import ReasonName
from trainer_kai.api.resources import JOBS, PODS
from trainer_kai.cli.commands.why.podgroups import count_pods, pod_state, standalone_snapshot
from trainer_kai.cli.commands.why.reasons import (
    WaitingReason,
    job_without_pods,
    standalone_reason,
    why_user_suspended,
)
from trainer_kai.cli.commands.why.report import (
    PodGroupExplanation,
    QueueSourceKind,
    TrainJobReport,
    WorkloadState,
    finished_state,
)
from trainer_kai.cli.commands.why.snapshot import PodSnapshot, TrainJobSnapshot

_STATES: Final = {
    "running": WorkloadState.RUNS,
    "terminating": WorkloadState.RUNS,
    "succeeded": WorkloadState.COMPLETE,
    "failed": WorkloadState.FAILED,
}


def has_podgroup(snapshot: TrainJobSnapshot) -> bool:
    """Say whether any pod names a PodGroup."""
    return any(pod.metadata.annotations.get(POD_GROUP) for pod in snapshot.pods)


def standalone_report(snapshot: TrainJobSnapshot) -> TrainJobReport:
    """Return the report on a pod or a Job; pods that are in the same state share one row."""
    queue, source = _queue(snapshot)
    # The default queue of the cluster may have another name than the user has given.
    named = queue if source == QueueSourceKind.LABEL else ""
    explanations = tuple(_explanation(pods, named, snapshot) for pods in _alike(snapshot.pods))
    state, reason = _overall(snapshot, explanations)
    nodes = {pod.spec.node_name for pod in snapshot.pods} if snapshot.kind == PODS.kind else {""}
    return TrainJobReport(
        kind=snapshot.kind,
        key=snapshot.key,
        runtime="",
        queue=queue,
        queue_source=source,
        state=state,
        reason=reason,
        has_jobset=False,
        now=snapshot.now,
        podgroups=explanations,
        notes=tuple(_notes(snapshot)),
        unknown=tuple(sorted(snapshot.unknown)),
        node="".join(nodes),
    )


def _queue(snapshot: TrainJobSnapshot) -> tuple[str, QueueSourceKind | None]:
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


def _explanation(
    pods: list[PodSnapshot], queue: str, snapshot: TrainJobSnapshot
) -> PodGroupExplanation:
    podgroup, counts = standalone_snapshot(pods), count_pods(pods)
    state = _STATES.get(pod_state(pods[0]), WorkloadState.WAITS)
    reason = None
    if state == WorkloadState.WAITS:
        reason = standalone_reason(podgroup, counts, queue, snapshot)
    elif state == WorkloadState.FAILED:
        status = pods[0].status
        reason = WaitingReason(status.reason or "Failed", status.message or "no message")
    return PodGroupExplanation(podgroup, state, counts, reason)


def _overall(
    snapshot: TrainJobSnapshot, explanations: tuple[PodGroupExplanation, ...]
) -> tuple[WorkloadState, WaitingReason | None]:
    if snapshot.job is None:
        return explanations[0].state, None
    job = snapshot.job
    finished = finished_state(job.status.conditions)
    if finished:
        return finished
    if job.spec.suspend:
        message = why_user_suspended(job.metadata, has_kueue=snapshot.has_kueue)
        return WorkloadState.SUSPENDED, WaitingReason(ReasonName.SUSPENDED, message)
    states = {it.state for it in explanations}
    if WorkloadState.WAITS not in states and WorkloadState.RUNS not in states:
        return WorkloadState.WAITS, job_without_pods(job, snapshot)
    return WorkloadState.WAITS if WorkloadState.WAITS in states else WorkloadState.RUNS, None


def _notes(snapshot: TrainJobSnapshot) -> Iterator[str]:
    for it in (snapshot.job, *(snapshot.pods if snapshot.kind == PODS.kind else ())):
        if it is not None and it.metadata.deletion_timestamp:
            kind = JOBS.kind if it is snapshot.job else "pod"
            yield f"the {kind} is terminating"
