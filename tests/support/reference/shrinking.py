"""What a unit loses step by step: rule 35."""

from collections.abc import Iterator

from tests.support.reference.things import PodGroupInfo, PodInfo, PodSet, SubGroup
from tests.support.reference.trees import is_satisfied, member_count, pod_rank, subgroup_rank

__all__ = ["tasks_to_evict"]


def tasks_to_evict(podgroup: PodGroupInfo) -> list[list[PodInfo]]:
    """Return what a unit would lose step by step, before it loses all."""
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
