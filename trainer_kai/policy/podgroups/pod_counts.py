"""How many pods of each Job of a JobSet are waiting, bound, succeeded, or only occupy a node.

Only pods of the newest attempt count. Pods of an older attempt, and terminating pods, only occupy
their nodes. A pod that succeeded counts, although it occupies nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from trainer_kai.api.names import JOB_INDEX, JOB_RESTART_ATTEMPT, REPLICATED_JOB, RESTART_ATTEMPT
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.policy.podgroups.podgroup_plan import podset_name

RestartAttempt: TypeAlias = tuple[int, int]  # of the JobSet, of the Job


class PodObservation(NamedTuple):
    podset: str
    attempt: RestartAttempt
    phase: str
    is_bound: bool
    is_terminating: bool


class JobPodCounts(NamedTuple):
    waiting: int = 0
    bound: int = 0
    succeeded: int = 0
    occupying: int = 0  # pods of an older attempt, or terminating


def observe_pod(pod: Pod) -> PodObservation:
    """Read a pod; the caller checks that it belongs to the JobSet."""
    podset, attempt = podset_and_attempt(pod.metadata.labels)
    return PodObservation(
        podset=podset,
        attempt=attempt,
        phase=pod.status.phase,
        is_bound=bool(pod.spec.node_name),
        is_terminating=bool(pod.metadata.deletion_timestamp),
    )


def podset_and_attempt(labels: Mapping[str, str]) -> tuple[str, RestartAttempt]:
    podset = podset_name(labels.get(REPLICATED_JOB, ""), labels.get(JOB_INDEX, ""))
    return podset, (_number(labels.get(RESTART_ATTEMPT)), _number(labels.get(JOB_RESTART_ATTEMPT)))


def newest_attempts(
    attempts: Sequence[tuple[str, RestartAttempt]],
) -> Mapping[str, RestartAttempt]:
    """Return the newest attempt of each Job, as a PodSet, within the newest of their JobSet."""
    newest = max((attempt[0] for _, attempt in attempts), default=0)
    newest_of: dict[str, RestartAttempt] = {}
    for podset, attempt in attempts:
        newest_of[podset] = max(newest_of.get(podset, (newest, 0)), attempt)
    return newest_of


def count_pods(pods: Iterable[PodObservation]) -> Mapping[str, JobPodCounts]:
    pods = list(pods)
    newest_of = newest_attempts([(pod.podset, pod.attempt) for pod in pods])
    counts: dict[str, JobPodCounts] = {}
    for pod in pods:
        count = counts.get(pod.podset, JobPodCounts())
        counts[pod.podset] = _counted(count, pod, counts=pod.attempt == newest_of[pod.podset])
    return counts


def _counted(count: JobPodCounts, pod: PodObservation, *, counts: bool) -> JobPodCounts:
    if counts and pod.phase == "Succeeded":
        return count._replace(succeeded=count.succeeded + 1)
    if pod.phase in TERMINAL_PHASES:
        return count
    if pod.is_terminating or not counts:
        return count._replace(occupying=count.occupying + pod.is_bound)
    if pod.is_bound:
        return count._replace(bound=count.bound + 1)
    return count._replace(waiting=count.waiting + 1)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
