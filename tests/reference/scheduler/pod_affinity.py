"""Which nodes a pod may run on beside other pods: host ports, pod affinity, spread.

What the rules leave to Kubernetes is done as kube-scheduler does it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tests.reference.scheduler.model import ClusterInfo, NodeInfo, PodInfo
from tests.reference.scheduler.node_selection import labels_match, selects_node, tolerates

Term: TypeAlias = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def satisfies_pod_constraints(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> bool:
    """Say whether a pod may be on a node beside those that are there."""
    return (
        _ports_are_free(cluster, pod, node_info)
        and _satisfies_own_anti_affinity(cluster, pod, node_info)
        and _satisfies_existing_anti_affinity(cluster, pod, node_info)
        and _satisfies_affinity(cluster, pod, node_info)
        and _satisfies_spread(cluster, pod, node_info)
    )


def has_affinity_to(pod: PodInfo, other: PodInfo) -> bool:
    """Say whether a pod wants to be near another, or is spread beside it."""
    terms = _terms(pod, "podAffinity")
    if terms and all(_selects(term, pod, other) for term in terms):
        return True
    return any(
        other.namespace == pod.namespace and labels_match(one.get("labelSelector"), other.labels)
        for one in pod.spec.get("topologySpreadConstraints", ())
        if one["whenUnsatisfiable"] == "DoNotSchedule"
    )


def _pods_on_nodes(cluster: ClusterInfo) -> list[tuple[PodInfo, NodeInfo]]:
    """Return the pods on nodes, each with its node; terminating pods too."""
    at = {node_info.name: node_info for node_info in cluster.nodes}
    return [(pod, at[pod.node]) for pod in cluster.pods if pod.node in at]


def _ports(pod: PodInfo) -> Iterator[tuple[int, str, str]]:
    for container in pod.spec.get("containers", ()):
        for port in container.get("ports", ()):
            if port.get("hostPort"):
                address = port.get("hostIP") or "0.0.0.0"
                yield port["hostPort"], port.get("protocol", "TCP"), address


def _ports_are_free(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> bool:
    taken = [
        port for other, at in _pods_on_nodes(cluster) if at is node_info for port in _ports(other)
    ]
    for number, protocol, address in _ports(pod):
        for one, how, where in taken:
            meets = address == where or "0.0.0.0" in (address, where)
            if meets and (one, how) == (number, protocol):
                return False
    return True


def _terms(pod: PodInfo, kind: str) -> list[Term]:
    affinity = (pod.spec.get("affinity") or {}).get(kind) or {}
    return list(affinity.get(_REQUIRED, ()))


def _selects(term: Term, owner: PodInfo, other: PodInfo) -> bool:
    """Say whether a term of its owner means another pod."""
    spaces = term.get("namespaces", ())
    if term.get("namespaceSelector") is None:
        near = other.namespace in (spaces or [owner.namespace])
    else:  # only the empty one, which means all, is ever made
        near = True
    return near and labels_match(term.get("labelSelector"), other.labels)


def _same_domain(term: Term, one: NodeInfo, other: NodeInfo) -> bool:
    key = term["topologyKey"]
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _satisfies_own_anti_affinity(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> bool:
    return not any(
        _selects(term, pod, other) and _same_domain(term, node_info, at)
        for term in _terms(pod, "podAntiAffinity")
        for other, at in _pods_on_nodes(cluster)
    )


def _satisfies_existing_anti_affinity(
    cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo
) -> bool:
    return not any(
        _selects(term, other, pod) and _same_domain(term, node_info, at)
        for other, at in _pods_on_nodes(cluster)
        if other.namespace == pod.namespace
        for term in _terms(other, "podAntiAffinity")
    )


def _satisfies_affinity(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> bool:
    """Hold required affinity; the first of pods that want each other's company needs none."""
    terms = _terms(pod, "podAffinity")
    if any(term["topologyKey"] not in node_info.labels for term in terms):
        return False
    friends = [
        at
        for other, at in _pods_on_nodes(cluster)
        if all(_selects(term, pod, other) for term in terms)
    ]
    if all(any(_same_domain(term, node_info, at) for at in friends) for term in terms):
        return True
    known = any(term["topologyKey"] in at.labels for at in friends for term in terms)
    return not known and all(_selects(term, pod, pod) for term in terms)


def _satisfies_spread(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> bool:
    hard = [
        one
        for one in pod.spec.get("topologySpreadConstraints", ())
        if one["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    return all(_is_within_max_skew(cluster, pod, node_info, one, hard) for one in hard)


def _is_within_max_skew(
    cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo, one: Term, hard: list[Term]
) -> bool:
    key, selector = one["topologyKey"], one.get("labelSelector")
    if key not in node_info.labels:
        return False
    counts: dict[str, int] = {}
    eligible = [at for at in cluster.nodes if _counts_for_spread(pod, at, one, hard)]
    for at in eligible:
        counts.setdefault(at.labels[key], 0)
    for other, at in _pods_on_nodes(cluster):
        like = other.namespace == pod.namespace and labels_match(selector, other.labels)
        if like and at in eligible and not other.is_terminating:
            counts[at.labels[key]] += 1
    least = min(counts.values(), default=0)
    if len(counts) < one.get("minDomains", 1):
        least = 0
    own = 1 if labels_match(selector, pod.labels) else 0
    most: int = one["maxSkew"]
    return counts.get(node_info.labels[key], 0) + own - least <= most


def _counts_for_spread(pod: PodInfo, node_info: NodeInfo, one: Term, hard: list[Term]) -> bool:
    """Say whether a node counts where pods are spread."""
    if any(other["topologyKey"] not in node_info.labels for other in hard):
        return False
    if one.get("nodeAffinityPolicy", "Honor") == "Honor" and not selects_node(pod.spec, node_info):
        return False
    return one.get("nodeTaintsPolicy", "Ignore") == "Ignore" or tolerates(pod.spec, node_info)
