"""Which pods of a group count.

Of several attempts only the newest counts; pods of an older one, and pods that are going, just
occupy their nodes. A pod that succeeded has done its part, so it counts although it holds nothing.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from trainer_kai.api.names import JOB_INDEX, JOB_RESTART_ATTEMPT, REPLICATED_JOB, RESTART_ATTEMPT
from trainer_kai.api.pod import Pod
from trainer_kai.policy.names import leaf_name

__all__ = ["Attempt", "Count", "Sighting", "attempt_of", "census", "sight"]

Attempt: TypeAlias = tuple[int, int]  # of the JobSet, of the Job


class Sighting(NamedTuple):
    """What of a pod decides whether it counts."""

    leaf: str
    attempt: Attempt
    phase: str
    is_bound: bool
    is_going: bool


class Count(NamedTuple):
    """The pods of one Job, by what they are good for."""

    waiting: int = 0
    bound: int = 0
    succeeded: int = 0
    occupying: int = 0  # of an older attempt, or going


def sight(pod: Pod) -> Sighting:
    """Read a pod; whether it may name its JobSet is for others to say."""
    leaf, attempt = attempt_of(pod.metadata.labels)
    return Sighting(
        leaf=leaf,
        attempt=attempt,
        phase=pod.status.phase,
        is_bound=bool(pod.spec.node_name),
        is_going=bool(pod.metadata.deletion_timestamp),
    )


def attempt_of(labels: Mapping[str, str]) -> tuple[str, Attempt]:
    """Return the Job of pods, as a leaf, and which attempt they are of."""
    leaf = leaf_name(labels.get(REPLICATED_JOB, ""), labels.get(JOB_INDEX, ""))
    return leaf, (_number(labels.get(RESTART_ATTEMPT)), _number(labels.get(JOB_RESTART_ATTEMPT)))


def census(pods: Iterable[Sighting]) -> Mapping[str, Count]:
    """Count the pods of one JobSet, for each of its Jobs."""
    pods = list(pods)
    newest = max((pod.attempt[0] for pod in pods), default=0)
    newest_of: dict[str, Attempt] = {}
    for pod in pods:
        newest_of[pod.leaf] = max(newest_of.get(pod.leaf, (newest, 0)), pod.attempt)
    counts: dict[str, Count] = {}
    for pod in pods:
        count = counts.get(pod.leaf, Count())
        counts[pod.leaf] = _with(count, pod, counts=pod.attempt == newest_of[pod.leaf])
    return counts


def _with(count: Count, pod: Sighting, *, counts: bool) -> Count:
    if counts and pod.phase == "Succeeded":
        return count._replace(succeeded=count.succeeded + 1)
    if pod.phase in {"Succeeded", "Failed"}:
        return count
    if pod.is_going or not counts:
        return count._replace(occupying=count.occupying + pod.is_bound)
    if pod.is_bound:
        return count._replace(bound=count.bound + 1)
    return count._replace(waiting=count.waiting + 1)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
