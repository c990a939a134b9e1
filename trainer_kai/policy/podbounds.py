"""How much one pod may say: what is above a bound costs the pods of others nothing.

A pod that waits and says more is Misconfigured, with the field and both numbers. One that is on a
node keeps its node, whatever it says.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from trainer_kai.api.affinity import Affinity, PodAffinityTerm, TopologySpread
from trainer_kai.api.pod import PodSpec
from trainer_kai.api.selector import Requirement
from trainer_kai.policy.ports import node_ports

__all__ = [
    "MOST_EXPRESSIONS",
    "MOST_OF_NAMESPACE",
    "MOST_PORTS",
    "MOST_RESOURCES",
    "MOST_TERMS",
    "MOST_TOLERATIONS",
    "MOST_VALUES",
    "MOST_VOLUMES",
    "excess",
    "has_label_keys",
    "is_related",
    "pod_terms",
    "spreads",
    "term_count",
]

MOST_RESOURCES: Final = 64  # by name
MOST_PORTS: Final = 256  # of the node
MOST_TERMS: Final = 64  # of other pods, near, apart or spread, as far as they must hold
MOST_EXPRESSIONS: Final = 256  # in selectors of nodes and of pods
MOST_VALUES: Final = 1024  # in these expressions together
MOST_TOLERATIONS: Final = 256
MOST_VOLUMES: Final = 256
MOST_OF_NAMESPACE: Final = 2048  # different terms and host ports of the pods of one namespace

_AFFINITY: Final = "spec.affinity"
_SPREAD: Final = "spec.topologySpreadConstraints"
_OF_NODE: Final = (
    ": with hostNetwork each containerPort is a host port, remove containerPorts that need no host"
    " port"
)


class _Measured(NamedTuple):
    """How many of something a pod has."""

    field: str
    says: str  # what it does with how many of what
    number: int
    most: int
    how: str = ""  # to come below it


def excess(spec: PodSpec) -> str | None:
    """Return the first field of a pod that says more than is looked at, and what would be right."""
    for it in _measured(spec):
        if it.number > it.most:
            says = it.says.format(it.number)
            looked_at = f"at most {it.most} are looked at; name at most {it.most}"
            return f"{it.field}: {says}, {looked_at}{it.how}"
    return None


def pod_terms(affinity: Affinity | None, *, apart: bool) -> tuple[PodAffinityTerm, ...]:
    """Return which neighbours must be near, or must not be."""
    if affinity is None:
        return ()
    of = affinity.pod_anti_affinity if apart else affinity.pod_affinity
    return of.required if of else ()


def spreads(spec: PodSpec) -> Iterator[TopologySpread]:
    """Yield the constraints that must hold."""
    for spread in spec.topology_spread_constraints:
        if spread.when_unsatisfiable == "DoNotSchedule":
            yield spread


def term_count(spec: PodSpec) -> int:
    """Return how many terms a pod has that speak of other pods."""
    return len(_terms(spec)) + len([*spreads(spec)])


def is_related(spec: PodSpec) -> bool:
    """Say whether it matters to a pod where others are, or to others of its kind where it is."""
    return term_count(spec) > 0 or any(node_ports(spec))


def has_label_keys(spec: PodSpec) -> bool:
    """Say whether a term depends on the labels of the pod itself."""
    return any(it.match_label_keys or it.mismatch_label_keys for it in _terms(spec)) or any(
        it.match_label_keys for it in spreads(spec)
    )


def _measured(spec: PodSpec) -> Iterator[_Measured]:
    resources = len({*_resources(spec)})
    field = "spec.containers[*].resources"
    yield _Measured(field, "asks for {} resources", resources, MOST_RESOURCES)
    ports = _port_count(spec)
    field, how = "spec.containers[*].ports", _OF_NODE if spec.host_network else ""
    yield _Measured(field, "takes {} host ports", ports, MOST_PORTS, how)
    terms, said = term_count(spec), "has {} terms that speak of other pods"
    yield _Measured(f"{_AFFINITY}, {_SPREAD}", said, terms, MOST_TERMS)
    field, (wishes, values) = f"spec.nodeSelector, {_AFFINITY}", _wishes(spec)
    yield _Measured(field, "has {} selector expressions", wishes, MOST_EXPRESSIONS)
    yield _Measured(field, "names {} values in selector expressions", values, MOST_VALUES)
    number = len(spec.tolerations)
    yield _Measured("spec.tolerations", "has {} tolerations", number, MOST_TOLERATIONS)
    number = len(spec.volumes)
    yield _Measured("spec.volumes", "has {} volumes", number, MOST_VOLUMES)


def _resources(spec: PodSpec) -> Iterator[str]:
    parts = [one.resources for one in (*spec.init_containers, *spec.containers)]
    for part in (*parts, *([spec.resources] if spec.resources else [])):
        yield from part.requests
        yield from part.limits
    yield from spec.overhead


def _port_count(spec: PodSpec) -> int:
    """Count host ports, those that are named twice once; of few ports in all an upper bound."""
    named = sum([len(one.ports) for one in (*spec.init_containers, *spec.containers)])
    return named if named <= MOST_PORTS else len({*node_ports(spec)})


def _terms(spec: PodSpec) -> tuple[PodAffinityTerm, ...]:
    return pod_terms(spec.affinity, apart=False) + pod_terms(spec.affinity, apart=True)


def _wishes(spec: PodSpec) -> tuple[int, int]:
    """Count expressions, and the values in them; what is required to be equal is one of each."""
    equal = len(spec.node_selector)
    names = 0  # of namespaces
    expressions = [*_of_nodes(spec)]
    for one in _terms(spec):
        names += len(one.namespaces)
        equal += len(one.match_label_keys) + len(one.mismatch_label_keys)
        for selector in (one.label_selector, one.namespace_selector):
            if selector is not None:
                equal += len(selector.match_labels)
                expressions += selector.match_expressions
    for spread in spreads(spec):
        equal += len(spread.match_label_keys)
        if spread.label_selector is not None:
            equal += len(spread.label_selector.match_labels)
            expressions += spread.label_selector.match_expressions
    values = sum([len(it.values) for it in expressions])
    return equal + len(expressions), equal + names + values


def _of_nodes(spec: PodSpec) -> Iterator[Requirement]:
    of_nodes = spec.affinity.node_affinity if spec.affinity else None
    if of_nodes is not None and of_nodes.required is not None:
        for term in of_nodes.required.node_selector_terms:
            yield from term.match_expressions
            yield from term.match_fields
