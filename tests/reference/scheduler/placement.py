"""Where the next tasks of a PodGroup go, or the reason why not: rules 21 to 27."""

from tests.reference.scheduler.model import ClusterInfo, NodeInfo, PodGroupInfo, PodInfo
from tests.reference.scheduler.node_selection import selects_node, tolerates
from tests.reference.scheduler.pod_affinity import satisfies_pod_constraints
from tests.reference.scheduler.resources import Amounts, added, fits, gpu_count, subtracted
from tests.reference.scheduler.subgroups import is_satisfied

__all__ = ["place"]


def place(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo], *, waits: bool = False
) -> str:
    """Place all of these tasks; if that fails return the reason, and nothing has changed.

    If it *waits* for terminating pods, all tasks are nominated.
    """
    before = [(node_info, node_info.idle, node_info.releasing) for node_info in cluster.nodes]
    states = [(pod, pod.state) for pod in pods]
    for pod in pods:
        node_info = _best_node(cluster, pod)
        if node_info is None:
            would = _feasible_if_empty(cluster, pod)
            _undo(before, states)
            return _unschedulable_reason(pods, would)
        _assign(pod, node_info)
    nominated = any(pod.state == "nominated" for pod in podgroup.pods)
    if waits or (nominated and not is_satisfied(podgroup.root, without=("nominated",))):
        _nominate_all(cluster, pods)
    for pod in pods:
        cluster.charge(podgroup, pod)
    return ""


def _passes_predicates(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> bool:
    return (
        node_info.is_schedulable
        and tolerates(pod.spec, node_info)
        and selects_node(pod.spec, node_info)
        and satisfies_pod_constraints(cluster, pod, node_info)
    )


def _feasible_if_empty(cluster: ClusterInfo, pod: PodInfo) -> list[NodeInfo]:
    """Return the nodes of which at most the room is missing."""
    return [
        node_info
        for node_info in cluster.nodes
        if _passes_predicates(cluster, pod, node_info) and fits(pod.requests, node_info.allocatable)
    ]


def _best_node(cluster: ClusterInfo, pod: PodInfo) -> NodeInfo | None:
    able = [
        node_info
        for node_info in cluster.nodes
        if fits(pod.requests, node_info.idle, node_info.releasing)
        and _passes_predicates(cluster, pod, node_info)
    ]
    return min(able, key=lambda node_info: _node_rank(pod, node_info), default=None)


def _node_rank(pod: PodInfo, node_info: NodeInfo) -> tuple[object, ...]:
    room = added(node_info.idle, node_info.releasing)
    needs_gpus = gpu_count(pod.requests) > 0
    return (
        node_info.name != pod.nominated,
        not fits(pod.requests, node_info.idle),
        not needs_gpus and gpu_count(node_info.allocatable) > 0,
        max(0, gpu_count(room) if needs_gpus else room.get("cpu", 0)),
        node_info.name,
    )


def _assign(pod: PodInfo, node_info: NodeInfo) -> None:
    pod.node = node_info.name
    if fits(pod.requests, node_info.idle):
        node_info.idle = subtracted(node_info.idle, pod.requests)
        pod.state = "reserved" if pod.is_expected else "bound"
    else:
        node_info.releasing = subtracted(node_info.releasing, pod.requests)
        pod.state = "nominated"


def _nominate_all(cluster: ClusterInfo, pods: list[PodInfo]) -> None:
    at = {node_info.name: node_info for node_info in cluster.nodes}
    for pod in pods:
        if pod.state in ("bound", "reserved"):
            node_info = at[pod.node]
            node_info.idle = added(node_info.idle, pod.requests)
            node_info.releasing = subtracted(node_info.releasing, pod.requests)
            pod.state = "nominated"


def _undo(
    before: list[tuple[NodeInfo, Amounts, Amounts]], states: list[tuple[PodInfo, str]]
) -> None:
    for node_info, idle, releasing in before:
        node_info.idle, node_info.releasing = idle, releasing
    for pod, state in states:
        pod.state, pod.node = state, ""


def _unschedulable_reason(pods: list[PodInfo], would: list[NodeInfo]) -> str:
    """Say why, given the nodes that would do for the pod that found none, had they room."""
    if not would:
        return "NoNodeMatches"
    needs: Amounts = {}
    for pod in pods:
        needs = added(needs, pod.requests)
    room: Amounts = {}
    for node_info in would:
        here = added(node_info.idle, node_info.releasing)
        room = added(room, {name: max(0, amount) for name, amount in here.items()})
    return "Fragmented" if fits(needs, room) else "NoCapacity"
