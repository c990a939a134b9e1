"""Which nodes a pod may be on for who else is there: ports, pod affinity, spread.

What the rules leave to Kubernetes is done as kube-scheduler does it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from tests.support.reference.matching import labels_match, selects_node, tolerates
from tests.support.reference.things import Cluster, Machine, Pod

__all__ = ["gets_along", "is_minded"]

Term: TypeAlias = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def gets_along(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    """Say whether a pod may be on a node beside those that are there."""
    return (
        _ports_are_free(cluster, pod, machine)
        and _wants_nobody_away(cluster, pod, machine)
        and _nobody_wants_it_away(cluster, pod, machine)
        and _finds_company(cluster, pod, machine)
        and _is_spread(cluster, pod, machine)
    )


def is_minded(pod: Pod, other: Pod) -> bool:
    """Say whether a pod wants to be near another, or is spread beside it."""
    terms = _terms(pod, "podAffinity")
    if terms and all(_means(term, pod, other) for term in terms):
        return True
    return any(
        other.namespace == pod.namespace and labels_match(one.get("labelSelector"), other.labels)
        for one in pod.spec.get("topologySpreadConstraints", ())
        if one["whenUnsatisfiable"] == "DoNotSchedule"
    )


def _there(cluster: Cluster) -> list[tuple[Pod, Machine]]:
    """Return who is on a node, with the node; who is going still is."""
    at = {machine.name: machine for machine in cluster.machines}
    return [(pod, at[pod.node]) for pod in cluster.pods if pod.node in at]


def _ports(pod: Pod) -> Iterator[tuple[int, str, str]]:
    for container in pod.spec.get("containers", ()):
        for port in container.get("ports", ()):
            if port.get("hostPort"):
                address = port.get("hostIP") or "0.0.0.0"
                yield port["hostPort"], port.get("protocol", "TCP"), address


def _ports_are_free(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    taken = [port for other, at in _there(cluster) if at is machine for port in _ports(other)]
    for number, protocol, address in _ports(pod):
        for one, how, where in taken:
            meets = address == where or "0.0.0.0" in (address, where)
            if meets and (one, how) == (number, protocol):
                return False
    return True


def _terms(pod: Pod, kind: str) -> list[Term]:
    affinity = (pod.spec.get("affinity") or {}).get(kind) or {}
    return list(affinity.get(_REQUIRED, ()))


def _means(term: Term, owner: Pod, other: Pod) -> bool:
    """Say whether a term of its owner means another pod."""
    spaces = term.get("namespaces", ())
    if term.get("namespaceSelector") is None:
        near = other.namespace in (spaces or [owner.namespace])
    else:  # only the empty one, which means all, is ever made
        near = True
    return near and labels_match(term.get("labelSelector"), other.labels)


def _same_place(term: Term, one: Machine, other: Machine) -> bool:
    key = term["topologyKey"]
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _wants_nobody_away(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    return not any(
        _means(term, pod, other) and _same_place(term, machine, at)
        for term in _terms(pod, "podAntiAffinity")
        for other, at in _there(cluster)
    )


def _nobody_wants_it_away(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    return not any(
        _means(term, other, pod) and _same_place(term, machine, at)
        for other, at in _there(cluster)
        if other.namespace == pod.namespace
        for term in _terms(other, "podAntiAffinity")
    )


def _finds_company(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    """Hold required affinity; the first of pods that want each other's company needs none."""
    terms = _terms(pod, "podAffinity")
    if any(term["topologyKey"] not in machine.labels for term in terms):
        return False
    friends = [
        at for other, at in _there(cluster) if all(_means(term, pod, other) for term in terms)
    ]
    if all(any(_same_place(term, machine, at) for at in friends) for term in terms):
        return True
    known = any(term["topologyKey"] in at.labels for at in friends for term in terms)
    return not known and all(_means(term, pod, pod) for term in terms)


def _is_spread(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    hard = [
        one
        for one in pod.spec.get("topologySpreadConstraints", ())
        if one["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    return all(_is_even(cluster, pod, machine, one, hard) for one in hard)


def _is_even(cluster: Cluster, pod: Pod, machine: Machine, one: Term, hard: list[Term]) -> bool:
    key, selector = one["topologyKey"], one.get("labelSelector")
    if key not in machine.labels:
        return False
    counts: dict[str, int] = {}
    eligible = [at for at in cluster.machines if _is_eligible(pod, at, one, hard)]
    for at in eligible:
        counts.setdefault(at.labels[key], 0)
    for other, at in _there(cluster):
        like = other.namespace == pod.namespace and labels_match(selector, other.labels)
        if like and at in eligible and not other.going:
            counts[at.labels[key]] += 1
    least = min(counts.values(), default=0)
    if len(counts) < one.get("minDomains", 1):
        least = 0
    own = 1 if labels_match(selector, pod.labels) else 0
    most: int = one["maxSkew"]
    return counts.get(machine.labels[key], 0) + own - least <= most


def _is_eligible(pod: Pod, machine: Machine, one: Term, hard: list[Term]) -> bool:
    """Say whether a node counts where pods are spread."""
    if any(other["topologyKey"] not in machine.labels for other in hard):
        return False
    if one.get("nodeAffinityPolicy", "Honor") == "Honor" and not selects_node(pod.spec, machine):
        return False
    return one.get("nodeTaintsPolicy", "Ignore") == "Ignore" or tolerates(pod.spec, machine)
