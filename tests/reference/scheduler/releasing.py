"""Resources of terminating pods, and which PodGroup may wait for them: rules 20a, 27e and 37."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tests.reference.scheduler.model import (
    ClusterInfo,
    PodGroupInfo,
    PodInfo,
    QueueInfo,
    total_charge,
)
from tests.reference.scheduler.placement import nominate_all, place
from tests.reference.scheduler.queue_order import capacity_failure
from tests.reference.scheduler.resources import Amount, QueueAmounts

CapacityFailure: TypeAlias = Callable[[PodGroupInfo, QueueAmounts], str]


class Checkpoint:
    """The state of everything, to be restored."""

    def __init__(self, cluster: ClusterInfo) -> None:
        self._nodes = [(one, one.state()) for one in cluster.nodes]
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
        for node_info, used in self._nodes:
            node_info.restore(used)
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


def _copy(left_at: dict[str, list[Amount]]) -> dict[str, list[Amount]]:
    return {node: [*amounts] for node, amounts in left_at.items()}


def try_allocate(
    cluster: ClusterInfo,
    podgroup: PodGroupInfo,
    pods: list[PodInfo],
    failure: CapacityFailure | None = None,
    *,
    waits: bool = False,
) -> str:
    """Place all of these tasks; if that fails return the reason, and nothing has changed.

    *failure* says which limits count; without one the limits of the queues alone.
    """
    failure = failure or partial(capacity_failure, cluster)
    podgroup.awaits_own_release = False
    reason = failure(podgroup, total_charge(pods, is_least=True))
    if reason:
        return reason
    own = awaits_own_release(cluster, podgroup, pods)
    saved = Checkpoint(cluster)
    reason, waits = place_within_limits(cluster, podgroup, pods, failure, waits=waits)
    if not reason and claim_release(cluster, podgroup, pods, waits=waits):
        return ""
    saved.restore()
    podgroup.awaits_own_release = own = own or not reason
    return "ExceedsLimit" if own else reason


def place_within_limits(
    cluster: ClusterInfo,
    podgroup: PodGroupInfo,
    pods: list[PodInfo],
    failure: CapacityFailure,
    *,
    waits: bool,
) -> tuple[str, bool]:
    """Place all of these tasks on GPUs on which no limit is exceeded, and charge them: rule 27e.

    Return the reason if that fails, and whether all of them wait for others to terminate.
    """
    reason, above = "", 0
    at = {node_info.name: node_info for node_info in cluster.nodes}
    while True:
        saved = Checkpoint(cluster)
        none = place(cluster, podgroup, pods, above=above)
        if none:
            return reason or none, waits
        some = [at[pod.node].gpu_memory for pod in pods if pod.share and pod.share.memory]
        exceeded = failure(podgroup, total_charge(pods)) if some else ""
        if not exceeded:
            break
        saved.restore()
        reason, above = reason or exceeded, min(some)
    waits = waits or waits_for_release(cluster, podgroup, pods)
    if waits:
        nominate_all(cluster, pods)
    for pod in pods:
        cluster.charge(podgroup, pod)
    return "", waits


def awaits_own_release(cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]) -> bool:
    """Say whether the releasing pods of its queues would be in the way of a PodGroup."""
    more = total_charge(pods, is_least=True)
    return any(
        more[i]
        and queue.unclaimed_release[i]
        and _exceeds_limit(queue, i, queue.unclaimed_release[i] + more[i])
        for queue in cluster.queue_with_ancestors(podgroup.queue)
        for i in range(3)
    )


def waits_for_release(cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]) -> bool:
    """Say whether a PodGroup cannot be bound before all releasing pods of its queues are gone."""
    more = total_charge(pods)
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
    way, more = cluster.queue_with_ancestors(podgroup.queue), total_charge(pods)
    waiting = [pod for pod in pods if pod.state == "nominated" and not pod.is_expected]
    waiting += [pod for pod in pods if pod.is_expected] if waits else []
    for_its_own = [_claim_from_queue(way[at], waiting) for at in range(len(way))]
    least = [min(some[i] for some in for_its_own) for i in range(3)]
    return not any(
        more[i] > least[i] and _exceeds_limit(queue, i, queue.unclaimed_release[i])
        for queue in way
        for i in range(3)
    )


def _claim_from_queue(queue: QueueInfo, waiting: list[PodInfo]) -> list[Amount]:
    """Let pods wait for the releasing pods of a queue; return how much of it."""
    found: list[Amount] = [0, 0, 0]
    for pod in waiting:
        here = queue.unclaimed_release_by_node.get(pod.node, [0, 0, 0])
        for i, amount in enumerate(pod.charged):
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


def _exceeds_limit(queue: QueueInfo, i: int, more: Amount) -> bool:
    return bool(queue.limit[i] != -1 and queue.allocated[i] + more > queue.limit[i])


def charge_eviction(cluster: ClusterInfo, queue: str, amounts: QueueAmounts) -> None:
    """Note that pods of a queue go for a claimant."""
    for one in cluster.queue_with_ancestors(queue):
        one.evicted = [has + more for has, more in zip(one.evicted, amounts, strict=True)]
