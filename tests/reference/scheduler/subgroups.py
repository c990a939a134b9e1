"""PodGroups as trees: minimum, tasks to allocate and tasks to evict: rules 5 to 9 and 35."""

from collections.abc import Iterator
from fractions import Fraction

from tests.reference.scheduler.model import PodGroupInfo, PodInfo, PodSet, SubGroup

_MEMBER_STATES = ("there", "succeeded", "bound", "nominated", "reserved")


def member_count(podset: PodSet, without: tuple[str, ...] = ()) -> int:
    """Return how many members a PodSet has."""
    states = [pod.state for pod in [*podset.pods, *podset.expected]]
    return sum(state in _MEMBER_STATES and state not in without for state in states)


def is_satisfied(part: SubGroup, without: tuple[str, ...] = ()) -> bool:
    """Say whether a part of a PodGroup has what it needs; pods of some states may be left out."""
    return _satisfied_count(part, without) >= part.minimum


def can_be_satisfied(part: SubGroup) -> bool:
    """Say whether a part could be satisfied if there were room."""
    if isinstance(part, PodSet):
        return member_count(part) + len(_waiting(part)) + len(_expected(part)) >= part.minimum
    return sum(can_be_satisfied(child) for child in part.children) >= part.minimum


def tasks_to_allocate(part: SubGroup) -> list[PodInfo]:
    """Return what one attempt takes of a part."""
    if isinstance(part, PodSet):
        lacks = part.minimum - member_count(part)
        if lacks > 0:
            return [*_waiting(part), *_expected(part)][:lacks]
        return _waiting(part)[:1]
    children = sorted(part.children, key=subgroup_rank)
    if is_satisfied(part):
        return next((some for some in map(_next_tasks, children) if some), [])
    lacking = [child for child in children if not is_satisfied(child) and can_be_satisfied(child)]
    lacks = part.minimum - _satisfied_count(part)
    return [pod for child in lacking[:lacks] for pod in tasks_to_allocate(child)]


def elasticity_rank(podgroup: PodGroupInfo) -> int:
    """Return 0 below the minimum, 1 exactly at it, 2 above.

    Exactly at it is a PodGroup that could spare no pod.
    """
    if not is_satisfied(podgroup.root):
        return 0
    for pod in podgroup.pods:
        if pod.state in _MEMBER_STATES:
            kept, pod.state = pod.state, "other"
            spared = is_satisfied(podgroup.root)
            pod.state = kept
            if spared:
                return 2
    return 1


def _next_tasks(part: SubGroup) -> list[PodInfo]:
    """Return the next tasks of a part, if they lead to anything."""
    return tasks_to_allocate(part) if is_satisfied(part) or can_be_satisfied(part) else []


def _satisfied_count(part: SubGroup, without: tuple[str, ...] = ()) -> int:
    if isinstance(part, PodSet):
        return member_count(part, without)
    return sum(is_satisfied(child, without) for child in part.children)


def subgroup_rank(part: SubGroup) -> tuple[object, ...]:
    """Return what orders the children of a group."""
    if not is_satisfied(part):
        return (0, 0, 0, part.name)
    if part.minimum > 0:
        return (1, 0, Fraction(_satisfied_count(part), part.minimum), part.name)
    return (1, 1, _satisfied_count(part), part.name)


def _expected(podset: PodSet) -> list[PodInfo]:
    return [pod for pod in podset.expected if pod.state == "later"]


def _waiting(podset: PodSet) -> list[PodInfo]:
    return sorted((pod for pod in podset.pods if pod.state == "waiting"), key=pod_rank)


def pod_rank(pod: PodInfo) -> tuple[object, ...]:
    """Return what orders the pods of a PodSet."""
    labels = pod.labels
    leads = labels.get("training.kubeflow.org/job-role") in ("master", "launcher")
    leads = leads or labels.get("ray.io/node-type") == "head"
    text = labels.get("kai.scheduler/task-priority", "")
    number = int(text) if text.lstrip("-").isdecimal() else None
    return (not leads, number is None, -(number or 0), pod.created, pod.uid)


def tasks_to_evict(podgroup: PodGroupInfo) -> list[list[PodInfo]]:
    """Return what a PodGroup would lose step by step, before it loses all."""
    found: list[list[PodInfo]] = []
    while some := _next_to_evict(podgroup.root):
        found.append(some)
        for pod in some:
            pod.state = "shed"
    for pod in [pod for some in found for pod in some]:
        pod.state = "there"
    return found


def _next_to_evict(part: SubGroup) -> list[PodInfo]:
    """Return what a part loses next while it keeps what it needs."""
    if isinstance(part, PodSet):
        own = sorted((pod for pod in part.pods if pod.state == "there"), key=pod_rank)
        return own[-1:] if member_count(part) > part.minimum else []
    children = sorted(part.children, key=subgroup_rank, reverse=True)
    kept = [child for child in children if is_satisfied(child)]
    for child in kept:
        if some := _next_to_evict(child):
            return some
    for child in children if len(kept) > part.minimum else ():
        if any(pod.state == "there" for pod in _all_pods(child)):
            return [pod for pod in _all_pods(child) if pod.state in ("there", "shed")]
    return []


def _all_pods(part: SubGroup) -> Iterator[PodInfo]:
    if isinstance(part, PodSet):
        yield from part.pods
    else:
        for child in part.children:
            yield from _all_pods(child)
