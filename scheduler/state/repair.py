"""A unit that was whole and loses a pod keeps the place that it had, for the pod that replaces it.

The place is a slot like any other, written into the group's annotation: it lies there like a pod,
is charged to the queue, and goes when a pod takes it, when its node is no good any more, or when
nothing of the unit is left. Decided here is only that a pod is lost, and that it will be replaced.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scheduler.core.chunks import is_satisfied
from scheduler.core.model import Cause, Leaf
from scheduler.state.awaited import later_prefixes
from scheduler.state.reserved import SlotAt, coming_back, read_reserved, write_reserved
from scheduler.state.trees import DEFAULT, group_bar, minima, tree
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import RESERVED, SUBGROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.census import sight

__all__ = ["Shortage", "goes_on", "grace_of", "is_lost", "is_short", "kept_places", "lack_of"]

_OVER = ("Succeeded", "Failed")


class Shortage(NamedTuple):
    """What a unit lacks that has begun."""

    there: int
    needed: int
    all_exist: bool  # those that are missing wait for room; otherwise some are still to be made

    def __str__(self) -> str:
        return f"{self.there} of {self.needed} of its pods have a place"


def is_lost(before: Pod | None, now: Pod | None) -> bool:
    """Say whether a pod that had its place gives it up without having succeeded."""
    if before is None or not before.spec.node_name or _is_leaving(before):
        return False
    if now is None or now.metadata.uid != before.metadata.uid:
        return True
    return _is_leaving(now) and now.status.phase != "Succeeded"


def kept_places(
    lost: Iterable[Pod], others: Iterable[Pod], group: PodGroup, jobset: JobSet | None
) -> str | None:
    """Return the annotation with the places of lost pods in it; None if no pod will want them.

    All that a group has lost is looked at once: to look at all its pods for each that it loses took
    minutes for thousands, which a user may delete in a moment.
    """
    if not goes_on(group, jobset) or group_bar(group) is not None:
        return None
    lost = list(lost)
    counting = _of_newest((*lost, *others))
    if any(pod.status.phase == "Succeeded" for pod in counting):
        return None  # it is about to end
    are_counting = set(map(id, counting))
    least = minima(group)
    there = Counter(
        leaf_of(pod, least)
        for pod in counting
        if pod.spec.node_name and pod.status.phase not in _OVER
    )
    text = group.metadata.annotations.get(RESERVED, "")
    held = read_reserved(text)
    slots = [] if isinstance(held, str) else [slot for some in held.values() for slot in some]
    has = there + Counter(slot.leaf for slot in slots)
    places = [
        SlotAt(leaf, pod.spec.node_name, Cause.REPAIR)
        for pod in lost
        if id(pod) in are_counting and (leaf := leaf_of(pod, least)) in least
    ]
    if not places or not _is_enough(group, has):
        return None  # it was not whole: what is missing gets a place anew, with the others
    return write_reserved([*slots, *places], coming_back(text))


def lack_of(group: PodGroup, pods: Iterable[Pod], jobset: JobSet | None) -> Shortage | None:
    """Return what a unit lacks; None if it is whole, has not begun, or comes to its end."""
    pods = _of_newest(pods)
    if not goes_on(group, jobset) or group_bar(group) is not None:
        return None
    if any(pod.status.phase == "Succeeded" for pod in pods):
        return None
    least = minima(group)
    alive = [pod for pod in pods if not _is_leaving(pod)]
    there = Counter(leaf_of(pod, least) for pod in alive if pod.spec.node_name)
    exist = Counter(leaf_of(pod, least) for pod in alive)
    if not there.total() or not is_short(group, there, exist):
        return None
    later = _to_come(group, exist)
    needed = sum(count for leaf, count in least.items() if leaf not in later)
    return Shortage(there.total(), needed, all_exist=_is_enough(group, exist + later))


def is_short(group: PodGroup, there: Mapping[str, int], exist: Mapping[str, int]) -> bool:
    """Say whether a group that has begun lacks pods; those of a later stage it lacks not yet."""
    return not _is_enough(group, Counter(there) + _to_come(group, exist))


def grace_of(group: PodGroup, usual_s: float) -> float:
    """Return for how many seconds a unit may be short; below zero without end."""
    try:
        return nanoseconds(group.spec.staleness_grace_period) / 1e9
    except DurationError:
        return usual_s


def _to_come(group: PodGroup, exist: Mapping[str, int]) -> Counter[str]:
    """Return the leaves of later stages of which no pod exists, and what these need."""
    prefixes = later_prefixes(group)
    least = minima(group).items()
    return Counter(
        {leaf: n for leaf, n in least if not exist.get(leaf) and leaf.startswith(prefixes)}
    )


def _is_enough(group: PodGroup, has: Mapping[str, int]) -> bool:
    """Say whether a group is as whole as it has to be with so many pods in each leaf."""
    return is_satisfied(tree(group, lambda name, least: Leaf(name, least, there=has.get(name, 0))))


def _of_newest(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of the newest attempt, of their JobSet and then of their Job."""
    seen = [(pod, sight(pod)) for pod in pods]
    newest = max((it.attempt[0] for _, it in seen), default=0)
    of_job: dict[str, tuple[int, int]] = {}
    for _, it in seen:
        of_job[it.leaf] = max(of_job.get(it.leaf, (newest, 0)), it.attempt)
    return [pod for pod, it in seen if it.attempt == of_job[it.leaf]]


def leaf_of(pod: Pod, least: Mapping[str, int]) -> str:
    """Return the leaf that a pod names."""
    return pod.metadata.labels.get(SUBGROUP) or (DEFAULT if len(least) == 1 else "")


def goes_on(group: PodGroup, jobset: JobSet | None) -> bool:
    """Say whether there will be another pod for one that is lost."""
    if group.metadata.deletion_timestamp:
        return False
    owners = [owner for owner in group.metadata.owner_references if owner.kind == "JobSet"]
    if not owners:
        return True  # whoever made the pods may make another
    if jobset is None or jobset.metadata.deletion_timestamp:
        return False
    return not (jobset.spec.suspend or jobset.status.terminal_state)


def _is_leaving(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp) or pod.status.phase in _OVER
