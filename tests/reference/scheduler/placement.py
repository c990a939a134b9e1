"""Where the next tasks of a PodGroup go, or the reason why not: rules 21 to 27 and 27d."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tests.reference.scheduler.fragments import fragment_rank
from tests.reference.scheduler.model import (
    WHOLE_GPU,
    ClusterInfo,
    NodeInfo,
    NodeState,
    PodGroupInfo,
    PodInfo,
)
from tests.reference.scheduler.node_selection import matches_gpu_mode, selects_node, tolerates
from tests.reference.scheduler.pod_affinity import satisfies_pod_constraints
from tests.reference.scheduler.resources import (
    GPU_RESOURCES,
    Amounts,
    added,
    fits,
    gpu_count,
    is_mig,
    queue_amounts,
    subtracted,
)
from tests.reference.scheduler.shared_gpus import (
    add_shares,
    fits_on,
    fits_without_waiting,
    has_fitting_shared_gpu,
    may_have_shares,
)
from tests.reference.scheduler.subgroups import is_satisfied
from tests.reference.scheduler.topology import (
    is_constrained,
    place_in_domains,
    reach,
    required_scopes,
)


def place(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo], *, above: int = 0
) -> str:
    """Place all of these tasks; if that fails return the reason, and nothing has changed.

    Pods that request memory of GPUs go to nodes with GPUs that have more than *above*.
    """
    cluster.places_gang = len(pods) > 1
    if is_constrained(podgroup, pods):
        reason = _place_in_domains(cluster, podgroup, pods)
    else:
        reason = _place_on(cluster, pods, cluster.nodes, above=above)
    if reason:
        return reason
    nominated = any(pod.state == "nominated" for pod in podgroup.pods)
    if nominated and not is_satisfied(podgroup.root, without=("nominated",)):
        nominate_all(cluster, pods)
    return ""


def _place_on(
    cluster: ClusterInfo,
    pods: Sequence[PodInfo],
    nodes: list[NodeInfo],
    preferences: Mapping[str, int] | None = None,
    above: int = 0,
) -> str:
    before = [(node_info, node_info.state()) for node_info in cluster.nodes]
    states = [(pod, pod.state) for pod in pods]
    for pod in pods:
        node_info = _best_node(cluster, pod, (nodes, preferences, above))
        if node_info is None:
            would = [
                it
                for it in feasible_if_empty(cluster, pod)
                if it in nodes and satisfies_pod_constraints(cluster, pod, it)
            ]
            _undo(before, states)
            return _unschedulable_reason(pods, would)
        _assign(cluster, pod, node_info)
    return ""


def _place_in_domains(cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]) -> str:
    def place_pods(
        some: Sequence[PodInfo], nodes: list[NodeInfo], preferences: Mapping[str, int] | None
    ) -> bool:
        return not _place_on(cluster, some, nodes, preferences)

    if place_in_domains(cluster, podgroup, pods, place_pods):
        return ""
    never = too_large(cluster, podgroup, pods)
    if never is not None and not never:  # no node is in any domain
        return "TopologyUnfit"
    within = [it for domain in reach(cluster, podgroup, pods) for it in domain]
    before = [(node_info, node_info.state()) for node_info in cluster.nodes]
    states = [(pod, pod.state) for pod in pods]
    reason = _place_on(cluster, pods, within)
    _undo(before, states)
    if not reason or (never is not None and reason != "NoNodeMatches"):
        return "TopologyUnfit"
    return reason


def too_large(
    cluster: ClusterInfo, podgroup: PodGroupInfo, pods: list[PodInfo]
) -> list[list[NodeInfo]] | None:
    """Return the domains of the first sub-group that would fit in none of them, were it empty."""
    for mine, domains in required_scopes(cluster, podgroup, pods):
        if max((_fitting(cluster, mine, it) for it in domains), default=0) < len(mine):
            return domains
    return None


def _fitting(cluster: ClusterInfo, pods: list[PodInfo], domain: list[NodeInfo]) -> int:
    """Return how many pods fit on empty nodes, each kind of pods by itself."""
    groups: list[tuple[PodInfo, list[NodeInfo], int]] = []
    for pod in pods:
        takers = feasible_if_empty(cluster, pod)
        for i, (other, theirs, count) in enumerate(groups):
            if is_alike(pod, other) and takers == theirs:
                groups[i] = other, theirs, count + 1
                break
        else:
            groups.append((pod, takers, 1))
    return sum(
        min(count, pod_capacity(pod, [it for it in takers if it in domain]))
        for pod, takers, count in groups
    )


def nominate_all(cluster: ClusterInfo, pods: list[PodInfo]) -> None:
    """Let all of these pods wait."""
    at = {node_info.name: node_info for node_info in cluster.nodes}
    for pod in pods:
        if pod.state in ("bound", "reserved"):
            node_info = at[pod.node]
            node_info.idle_beside_pods = added(node_info.idle_beside_pods, pod.requests)
            node_info.releasing_of_pods = subtracted(node_info.releasing_of_pods, pod.requests)
            pod.state = "nominated"


def feasible_if_empty(cluster: ClusterInfo, pod: PodInfo) -> list[NodeInfo]:
    """Return the nodes that take such pods, were they empty."""
    return [
        node_info
        for node_info in cluster.nodes
        if _is_selected(pod, node_info)
        and fits(pod.requests, node_info.allocatable)
        and may_have_shares(pod, node_info)
    ]


def _is_selected(pod: PodInfo, node_info: NodeInfo) -> bool:
    return (
        node_info.is_schedulable
        and node_info.name not in pod.avoids
        and tolerates(pod.spec, node_info)
        and selects_node(pod.spec, node_info)
        and matches_gpu_mode(pod, node_info)
    )


def _best_node(
    cluster: ClusterInfo,
    pod: PodInfo,
    among: tuple[list[NodeInfo], Mapping[str, int] | None, int],
) -> NodeInfo | None:
    nodes, preferences, above = among
    able = [
        node_info
        for node_info in nodes
        if _is_selected(pod, node_info)
        and (not above or not pod.share or not pod.share.memory or node_info.gpu_memory > above)
        and fits_on(pod, node_info, spreads=cluster.spreads_gpus)
        and satisfies_pod_constraints(cluster, pod, node_info)
    ]
    return min(
        able, key=lambda node_info: _node_rank(cluster, pod, node_info, preferences), default=None
    )


def _node_rank(
    cluster: ClusterInfo,
    pod: PodInfo,
    node_info: NodeInfo,
    preferences: Mapping[str, int] | None,
) -> tuple[object, ...]:
    room = added(node_info.idle, node_info.releasing)
    has_gpus = node_info.is_mig or queue_amounts(node_info.allocatable)[2] > 0
    needs_gpus = bool(pod.share or _requests_gpus(pod))
    free = max(0, gpu_count(room) if needs_gpus else room.get("cpu", 0))
    pack: object
    is_packed = cluster.places_gang and needs_gpus and not pod.share
    if cluster.fragments_gpus and not is_packed if needs_gpus else cluster.fragments_cpu:
        pack = fragment_rank(cluster, pod, node_info), 0 if has_gpus else free
    elif cluster.spreads_gpus if needs_gpus else cluster.spreads_cpu:
        whole = node_info.allocatable
        most = gpu_count(whole) if needs_gpus else whole.get("cpu", 0)
        pack = -Fraction(free, most) if most else Fraction(0)
    else:
        pack = Fraction(free)
    waits = not fits_without_waiting(pod, node_info, spreads=cluster.spreads_gpus)
    prefers_shared = not cluster.spreads_gpus and not cluster.fragments_gpus
    shares = prefers_shared and not waits and has_fitting_shared_gpu(pod, node_info)
    return (
        node_info.name != pod.nominated,
        -preferences[node_info.name] if preferences else 0,
        not shares,
        waits,
        not needs_gpus and has_gpus,
        pack,
        0 if preferences else cluster.lateness.get((needs_gpus, node_info.name), 0),
        node_info.name,
    )


def is_alike(one: PodInfo, other: PodInfo) -> bool:
    """Say whether pods request the same."""
    shares = [
        it.share and (it.share.devices, it.share.thousandths, it.share.memory)
        for it in (one, other)
    ]
    return one.requests == other.requests and shares[0] == shares[1]


def pod_capacity(pod: PodInfo, nodes: list[NodeInfo]) -> int:
    """Count how many such pods nodes could take, were they empty."""
    count = 0
    for node_info in nodes:
        left, here = node_info.allocatable, 0
        while fits(pod.requests, left) and _shares_fit(pod, here + 1, node_info):
            left = subtracted(left, pod.requests)
            here += 1
        count += here
    return count


def _shares_fit(pod: PodInfo, count: int, node_info: NodeInfo) -> bool:
    """Say whether the shares of so many such pods fit on the GPUs of a node, were it empty."""
    part = pod.share.on(node_info.name) if pod.share else None
    if pod.share is None or not part:
        return pod.share is None
    gpus = node_info.allocatable.get(node_info.gpu_resource, 0)
    pods = node_info.allocatable.get("pods", 0)
    return any(
        count <= min(shared * (WHOLE_GPU // part) // pod.share.devices, pods - shared)
        for shared in range(pod.share.devices, gpus + 1)
    )


def _requests_gpus(pod: PodInfo) -> bool:
    """Say whether a pod requests whole GPUs or MIG profiles."""
    requests = pod.requests
    return gpu_count(requests) > 0 or any(is_mig(name) and requests[name] for name in requests)


def _assign(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> None:
    waits = not fits_without_waiting(pod, node_info, spreads=cluster.spreads_gpus)
    add_shares(pod, node_info, spreads=cluster.spreads_gpus)
    pod.node = node_info.name
    if waits:
        node_info.releasing_of_pods = subtracted(node_info.releasing_of_pods, pod.requests)
        pod.state = "nominated"
    else:
        node_info.idle_beside_pods = subtracted(node_info.idle_beside_pods, pod.requests)
        pod.state = "reserved" if pod.is_expected else "bound"


def _undo(before: list[tuple[NodeInfo, NodeState]], states: list[tuple[PodInfo, str]]) -> None:
    for node_info, state in before:
        node_info.restore(state)
    for pod, name in states:
        pod.state, pod.node = name, ""


def _unschedulable_reason(pods: Sequence[PodInfo], would: list[NodeInfo]) -> str:
    """Say why, given the nodes that would do for the pod that found none, had they room."""
    if not would:
        return "NoNodeMatches"
    needs: Amounts = {}
    room: Amounts = {}
    for pod in pods:
        needs = added(needs, {**pod.requests, **_needed_shares(pod, would)})
    for node_info in would:
        here = added(node_info.idle, node_info.releasing)
        here = added(here, _free_shares(node_info))
        room = added(room, {name: max(0, amount) for name, amount in here.items()})
    return "Fragmented" if fits(_in_thousandths(needs), _in_thousandths(room)) else "NoCapacity"


_SHARES = "shares"  # thousandths of GPUs
_NEVER = 10**9  # more than there is


def _needed_shares(pod: PodInfo, would: list[NodeInfo]) -> Amounts:
    """Return the least that shares of a pod are on any of these nodes."""
    if pod.share is None:
        return {}
    parts = [pod.share.on(node_info.name) for node_info in would]
    return {
        _SHARES: min((it for it in parts if it is not None), default=_NEVER) * pod.share.devices
    }


def _free_shares(node_info: NodeInfo) -> Amounts:
    """Return what is free of shared GPUs that are none that is free as a whole."""
    if added(node_info.idle, node_info.releasing).get(node_info.gpu_resource, 0) < 0:
        return {_SHARES: 0}
    kept = [gpu.used("stays") + gpu.used("nominated") for gpu in node_info.gpus]
    return {_SHARES: sum(max(0, WHOLE_GPU - used) for used in kept if used)}


def _in_thousandths(amounts: Amounts) -> Amounts:
    """Return amounts of which whole GPUs and shares are one."""
    others = {name: n for name, n in amounts.items() if name not in (_SHARES, *GPU_RESOURCES)}
    return {**others, _SHARES: amounts.get(_SHARES, 0) + WHOLE_GPU * gpu_count(amounts)}
