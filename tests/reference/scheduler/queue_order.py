"""Which PodGroup is next, and which queue has capacity for it: rules 18 to 20."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias

from tests.reference.scheduler.fair_share import allocatable_share
from tests.reference.scheduler.model import (
    ClusterInfo,
    PodGroupInfo,
    QueueInfo,
    total_charge,
)
from tests.reference.scheduler.placement import feasible_if_empty, is_alike, pod_capacity
from tests.reference.scheduler.resources import Amount, QueueAmounts
from tests.reference.scheduler.subgroups import elasticity_rank, tasks_to_allocate
from tests.reference.scheduler.topology import reach

NominationRank: TypeAlias = Callable[[QueueInfo, PodGroupInfo], int]


def next_podgroup(
    cluster: ClusterInfo, podgroups: list[PodGroupInfo], early: NominationRank | None = None
) -> PodGroupInfo:
    """Return the PodGroup that comes next; before all else counts how *early* queues are."""
    tops = [queue for queue in cluster.queues.values() if not queue.parent]
    found = _best_below_all(cluster, tops, podgroups, early)
    assert found is not None
    return found


def capacity_failure(cluster: ClusterInfo, podgroup: PodGroupInfo, more: QueueAmounts) -> str:
    """Return the reason if a queue may not have so much more, else nothing."""
    way = cluster.queue_with_ancestors(podgroup.queue)
    for queue in way:
        for i in range(3):
            if more[i] and queue.limit[i] != -1 and queue.allocated[i] + more[i] > queue.limit[i]:
                return "ExceedsLimit"
    for queue in [] if podgroup.preemptible else way:
        for i in range(3):
            if (
                more[i]
                and queue.quota[i] != -1
                and queue.non_preemptible[i] + more[i] > queue.quota[i]
            ):
                return "NonPreemptibleOverQuota"
    for queue in way[:1]:
        for i in range(3):
            is_over = queue.quota[i] != -1 and queue.non_preemptible[i] > queue.quota[i]
            if more[i] and queue.non_evictable[i] and is_over:
                return "NonPreemptibleOverQuota"
    return ""


def _best_below_all(
    cluster: ClusterInfo,
    queues: list[QueueInfo],
    podgroups: list[PodGroupInfo],
    early: NominationRank | None,
) -> PodGroupInfo | None:
    """Return the best PodGroup below queues of one level."""
    candidates = []
    for queue in queues:
        podgroup = _best_below_one(cluster, queue, podgroups, early)
        if podgroup is not None:
            rank = queue_rank(cluster, queue, total_charge(tasks_to_allocate(podgroup.root)))
            candidates.append(((early(queue, podgroup) if early else 0, rank), podgroup))
    return min(candidates, key=lambda one: one[0])[1] if candidates else None


def _best_below_one(
    cluster: ClusterInfo,
    queue: QueueInfo,
    podgroups: list[PodGroupInfo],
    early: NominationRank | None,
) -> PodGroupInfo | None:
    if queue.children:
        return _best_below_all(cluster, queue.children, podgroups, early)
    own = [podgroup for podgroup in podgroups if podgroup.queue == queue.name]
    return min(own, key=lambda one: waiting_rank(cluster, one)) if own else None


def waiting_rank(cluster: ClusterInfo, podgroup: PodGroupInfo) -> tuple[Any, ...]:
    """Return what orders the PodGroups of a queue that wait."""
    priority, *others = podgroup_rank(podgroup)
    return (
        not fits_empty_cluster(cluster, podgroup),
        priority,
        not is_nominated(cluster, podgroup),
        *others,
    )


def fits_empty_cluster(cluster: ClusterInfo, podgroup: PodGroupInfo) -> bool:
    """Say whether the next tasks of a PodGroup would fit if the cluster were empty."""
    pods = tasks_to_allocate(podgroup.root)
    more = total_charge(pods, is_least=True)
    for queue in cluster.queue_with_ancestors(podgroup.queue):
        if any(0 <= limit < asked for asked, limit in zip(more, queue.limit, strict=True)):
            return False
    domains = reach(cluster, podgroup, pods)
    within = [it for domain in domains for it in domain]
    takers = [[it for it in feasible_if_empty(cluster, pod) if it in within] for pod in pods]
    return any(
        all(
            pod_capacity(pod, [it for it in mine if it in domain])
            >= sum(
                is_alike(it, pod) and theirs == mine
                for it, theirs in zip(pods, takers, strict=True)
            )
            for pod, mine in zip(pods, takers, strict=True)
        )
        for domain in domains
    )


def is_nominated(cluster: ClusterInfo, podgroup: PodGroupInfo) -> bool:
    """Say whether all pods that a PodGroup takes next are nominated to nodes."""
    names = {node_info.name for node_info in cluster.nodes}
    pods = [pod for pod in tasks_to_allocate(podgroup.root) if not pod.is_expected]
    return bool(pods) and all(pod.nominated in names for pod in pods)


def podgroup_rank(podgroup: PodGroupInfo, stands: int | None = None) -> tuple[Any, ...]:
    """Return what orders the PodGroups of a queue, as it stands or as it would."""
    return (
        -podgroup.priority,
        elasticity_rank(podgroup) if stands is None else stands,
        podgroup.created,
        podgroup.uid,
    )


def queue_rank(cluster: ClusterInfo, queue: QueueInfo, more: Sequence[Amount]) -> tuple[Any, ...]:
    """Return what orders queues of one level, of which this one would have so much more."""
    has = queue.allocated
    would = [has[i] + more[i] for i in range(3)]
    share = [allocatable_share(queue, i) for i in range(3)]
    bounds = [inf if one == -1 else one for one in share]
    return (
        all(has[i] > queue.fair_share[i] for i in range(3)),
        not all(queue.quota[i] == -1 or would[i] <= queue.quota[i] for i in range(3)),
        -queue.priority,
        any(share[i] == 0 and would[i] > 0 for i in range(3)),
        _dominant_share(cluster, share, would),
        _dominant_share(cluster, share, has),
        (bounds[2], bounds[0], bounds[1]),
        queue.created,
        queue.uid,
    )


def _dominant_share(cluster: ClusterInfo, share: list[Any], has: Sequence[Amount]) -> Fraction:
    parts = []
    for i in range(3):
        whole = cluster.total[i] if share[i] == -1 else share[i]
        parts.append(Fraction(has[i]) / whole if whole else Fraction(has[i]) * 1000)
    return max(parts)
