"""Resources of terminating pods, and which PodGroup may wait for them: rules 20a and 37."""

from tests.reference.scheduler.model import ClusterInfo, PodGroupInfo, PodInfo, QueueInfo
from tests.reference.scheduler.placement import place
from tests.reference.scheduler.queue_order import capacity_failure
from tests.reference.scheduler.resources import queue_amounts

__all__ = [
    "Checkpoint",
    "awaits_own_release",
    "charge_eviction",
    "claim_release",
    "try_allocate",
    "waits_for_release",
]


class Checkpoint:
    """The state of everything, to be restored."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._nodes = [(one, one.idle, one.releasing) for one in cluster.nodes]
        self._queues = [
            (
                one,
                [*one.allocated],
                [*one.non_preemptible],
                [*one.unclaimed_release],
                [*one.evicted],
                _copy(one.unclaimed_release_by_node),
            )
            for one in cluster.queues.values()
        ]
        self._pods = [(pod, pod.state, pod.node) for one in cluster.podgroups for pod in one.pods]
        self._podgroups = [
            (podgroup, podgroup.awaits_own_release) for podgroup in cluster.podgroups
        ]

    def restore(self) -> None:
        """Restore everything."""
        for node_info, idle, releasing in self._nodes:
            node_info.idle, node_info.releasing = idle, releasing
        for queue, allocated, fixed, left, lost, left_at in self._queues:
            queue.allocated, queue.non_preemptible = allocated, fixed
            queue.unclaimed_release, queue.evicted, queue.unclaimed_release_by_node = (
                left,
                lost,
                left_at,
            )
        for pod, state, node in self._pods:
            pod.state, pod.node = state, node
        for podgroup, awaits in self._podgroups:
            podgroup.awaits_own_release = awaits


def _copy(left_at: dict[str, list[int]]) -> dict[str, list[int]]:
    return {node: [*amounts] for node, amounts in left_at.items()}


def try_allocate(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo], *, waits: bool = False
) -> str:
    """Place all of these tasks; if that fails return the reason, and nothing has changed."""
    podgroup.awaits_own_release = False
    reason = capacity_failure(cluster, podgroup, pods)
    if reason:
        return reason
    own = awaits_own_release(cluster, podgroup, pods)
    waits = waits or waits_for_release(cluster, podgroup, pods)
    saved = Checkpoint(cluster)
    reason = place(cluster, podgroup, pods, waits=waits)
    if not reason and claim_release(cluster, podgroup, pods, waits=waits):
        return ""
    saved.restore()
    podgroup.awaits_own_release = own
    return "ExceedsLimit" if own else reason


def awaits_own_release(cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]) -> bool:
    """Say whether the releasing pods of its queues would be in the way of a PodGroup."""
    more = _total_requests(pods)
    return any(
        more[i]
        and queue.unclaimed_release[i]
        and _exceeds_limit(queue, i, queue.unclaimed_release[i] + more[i])
        for queue in cluster.queue_with_ancestors(podgroup.queue)
        for i in range(3)
    )


def waits_for_release(cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]) -> bool:
    """Say whether a PodGroup cannot be bound before all releasing pods of its queues are gone."""
    more = _total_requests(pods)
    return any(
        more[i]
        and _exceeds_limit(queue, i, queue.unclaimed_release[i] + queue.evicted[i] + more[i])
        for queue in cluster.queue_with_ancestors(podgroup.queue)
        for i in range(3)
    )


def claim_release(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo], *, waits: bool
) -> bool:
    """Let placed pods wait for the releasing pods of their queues; say whether that is enough."""
    way, more = cluster.queue_with_ancestors(podgroup.queue), _total_requests(pods)
    waiting = [pod for pod in pods if pod.state == "nominated" and not pod.is_expected]
    waiting += [pod for pod in pods if pod.is_expected] if waits else []
    for_its_own = [_claim_from_queue(way[at], waiting) for at in range(len(way))]
    least = [min(some[i] for some in for_its_own) for i in range(3)]
    return not any(
        more[i] > least[i] and _exceeds_limit(queue, i, queue.unclaimed_release[i])
        for queue in way
        for i in range(3)
    )


def _claim_from_queue(queue: QueueInfo, waiting: list[PodInfo]) -> list[int]:
    """Let pods wait for the releasing pods of a queue; return how much of it."""
    found = [0, 0, 0]
    for pod in waiting:
        here = queue.unclaimed_release_by_node.get(pod.node, [0, 0, 0])
        for i, amount in enumerate(queue_amounts(pod.requests)):
            is_promised = pod.node == pod.nominated
            most = (
                queue.unclaimed_release[i]
                if is_promised
                else min(queue.unclaimed_release[i], here[i])
            )
            some = min(amount, most)
            found[i] += some
            queue.unclaimed_release[i] -= some
            here[i] -= min(some, here[i])
    return found


def _exceeds_limit(queue: QueueInfo, i: int, more: int) -> bool:
    return bool(queue.limit[i] != -1 and queue.allocated[i] + more > queue.limit[i])


def charge_eviction(cluster: ClusterInfo, queue: str, amounts: tuple[int, int, int]) -> None:
    """Note that pods of a queue go for a claimant."""
    for one in cluster.queue_with_ancestors(queue):
        one.evicted = [has + more for has, more in zip(one.evicted, amounts, strict=True)]


def _total_requests(pods: list[PodInfo]) -> list[int]:
    return [sum(queue_amounts(pod.requests)[i] for pod in pods) for i in range(3)]
