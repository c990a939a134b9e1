"""A unit that was whole and loses a pod keeps the place that it had, for the pod that replaces it.

The place is a slot like any other, written into the group's annotation: it lies there like a pod,
is charged to the queue, and goes when a pod takes it, when its node is no good any more, or when
nothing of the unit is left. Decided here is only that a pod is lost, and that it will be replaced.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scheduler.core.chunks import is_satisfied
from scheduler.core.model import PodSet, ReservationCause
from scheduler.state.awaited import expected_prefixes
from scheduler.state.reserved import NamedPlace, read_relocations, read_reserved, write_reserved
from scheduler.state.trees import DEFAULT_PODSET, min_members, podgroup_tree, spec_failure
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import RESERVED, SUBGROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.census import observe_pod

__all__ = [
    "Shortage",
    "is_lost",
    "is_short",
    "replaces_lost_pods",
    "reserve_lost_places",
    "shortage_of",
    "staleness_grace_s",
]

_TERMINAL_PHASES = ("Succeeded", "Failed")


class Shortage(NamedTuple):
    """What a unit lacks that has begun."""

    running: int
    needed: int
    all_exist: bool  # those that are missing wait for room; otherwise some are still to be made

    def __str__(self) -> str:
        return f"{self.running} of {self.needed} of its pods have a place"


def is_lost(before: Pod | None, now: Pod | None) -> bool:
    """Say whether a pod that had its place gives it up without having succeeded."""
    if before is None or not before.spec.node_name or _is_terminating_or_finished(before):
        return False
    if now is None or now.metadata.uid != before.metadata.uid:
        return True
    return _is_terminating_or_finished(now) and now.status.phase != "Succeeded"


def reserve_lost_places(
    lost: Iterable[Pod], others: Iterable[Pod], group: PodGroup, jobset: JobSet | None
) -> str | None:
    """Return the annotation with the places of lost pods in it; None if no pod will want them.

    All that a group has lost is looked at once: to look at all its pods for each that it loses took
    minutes for thousands, which a user may delete in a moment.
    """
    if not replaces_lost_pods(group, jobset) or spec_failure(group) is not None:
        return None
    lost = list(lost)
    counting = _newest_attempt((*lost, *others))
    if any(pod.status.phase == "Succeeded" for pod in counting):
        return None  # it is about to end
    are_counting = set(map(id, counting))
    minimums = min_members(group)
    running = Counter(
        podset_of(pod, minimums)
        for pod in counting
        if pod.spec.node_name and pod.status.phase not in _TERMINAL_PHASES
    )
    text = group.metadata.annotations.get(RESERVED, "")
    reserved = read_reserved(text)
    reserved_places = (
        []
        if isinstance(reserved, str)
        else [reserved_place for some in reserved.values() for reserved_place in some]
    )
    pod_counts = running + Counter(reserved_place.podset for reserved_place in reserved_places)
    places = [
        NamedPlace(podset, pod.spec.node_name, ReservationCause.REPAIR)
        for pod in lost
        if id(pod) in are_counting and (podset := podset_of(pod, minimums)) in minimums
    ]
    if not places or not _is_enough(group, pod_counts):
        return None  # it was not whole: what is missing gets a place anew, with the others
    return write_reserved([*reserved_places, *places], read_relocations(text))


def shortage_of(group: PodGroup, pods: Iterable[Pod], jobset: JobSet | None) -> Shortage | None:
    """Return what a unit lacks; None if it is whole, has not begun, or comes to its end."""
    pods = _newest_attempt(pods)
    if not replaces_lost_pods(group, jobset) or spec_failure(group) is not None:
        return None
    if any(pod.status.phase == "Succeeded" for pod in pods):
        return None
    minimums = min_members(group)
    alive = [pod for pod in pods if not _is_terminating_or_finished(pod)]
    running = Counter(podset_of(pod, minimums) for pod in alive if pod.spec.node_name)
    existing = Counter(podset_of(pod, minimums) for pod in alive)
    if not running.total() or not is_short(group, running, existing):
        return None
    expected = _expected(group, existing)
    needed = sum(count for podset, count in minimums.items() if podset not in expected)
    return Shortage(running.total(), needed, all_exist=_is_enough(group, existing + expected))


def is_short(group: PodGroup, running: Mapping[str, int], existing: Mapping[str, int]) -> bool:
    """Say whether a group that has begun lacks pods; those of a later stage it lacks not yet."""
    return not _is_enough(group, Counter(running) + _expected(group, existing))


def staleness_grace_s(group: PodGroup, usual_s: float) -> float:
    """Return for how many seconds a unit may be short; below zero without end."""
    try:
        return nanoseconds(group.spec.staleness_grace_period) / 1e9
    except DurationError:
        return usual_s


def _expected(group: PodGroup, existing: Mapping[str, int]) -> Counter[str]:
    """Return the leaves of later stages of which no pod exists, and what these need."""
    prefixes = expected_prefixes(group)
    minimums = min_members(group).items()
    return Counter(
        {
            podset: n
            for podset, n in minimums
            if not existing.get(podset) and podset.startswith(prefixes)
        }
    )


def _is_enough(group: PodGroup, pod_counts: Mapping[str, int]) -> bool:
    """Say whether a group is as whole as it has to be with so many pods in each leaf."""
    return is_satisfied(
        podgroup_tree(
            group, lambda name, minimums: PodSet(name, minimums, running=pod_counts.get(name, 0))
        )
    )


def _newest_attempt(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of the newest attempt, of their JobSet and then of their Job."""
    seen = [(pod, observe_pod(pod)) for pod in pods]
    newest = max((it.attempt[0] for _, it in seen), default=0)
    newest_of_job: dict[str, tuple[int, int]] = {}
    for _, it in seen:
        newest_of_job[it.podset] = max(newest_of_job.get(it.podset, (newest, 0)), it.attempt)
    return [pod for pod, it in seen if it.attempt == newest_of_job[it.podset]]


def podset_of(pod: Pod, minimums: Mapping[str, int]) -> str:
    """Return the leaf that a pod names."""
    return pod.metadata.labels.get(SUBGROUP) or (DEFAULT_PODSET if len(minimums) == 1 else "")


def replaces_lost_pods(group: PodGroup, jobset: JobSet | None) -> bool:
    """Say whether there will be another pod for one that is lost."""
    if group.metadata.deletion_timestamp:
        return False
    owners = [owner for owner in group.metadata.owner_references if owner.kind == "JobSet"]
    if not owners:
        return True  # whoever made the pods may make another
    if jobset is None or jobset.metadata.deletion_timestamp:
        return False
    return not (jobset.spec.suspend or jobset.status.terminal_state)


def _is_terminating_or_finished(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp) or pod.status.phase in _TERMINAL_PHASES
