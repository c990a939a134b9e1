"""What a pod requests of its node, and how much its spec may contain.

Requests are the most that a pod uses of each resource. Init containers run one after another,
before the others. One that restarts Always is a sidecar and stays, so those after it, and the
containers, run beside it. Requests of the whole pod outrank its containers; a limit of the whole
pod stands for a request that is not given. With host network each container port of a sidecar or
container is a host port, also where no host port is given.

The spec is limited so that one pod does not slow down the others. A pending pod above a limit is
Misconfigured, with the field and both numbers. A pod that is on a node keeps its node, whatever its
spec contains.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.bounds import (
    MOST_EXPRESSIONS,
    MOST_PORTS,
    MOST_RESOURCES,
    MOST_TERMS,
    MOST_TOLERATIONS,
    MOST_VALUES,
    MOST_VOLUMES,
)
from trainer_kai.api.meta import Requirement
from trainer_kai.api.names import EPHEMERAL_STORAGE, MEMORY
from trainer_kai.api.pod import (
    Affinity,
    PodAffinityTerm,
    PodSpec,
    Resources,
    TopologySpread,
)
from trainer_kai.api.quantity import Quantity, format_bytes, format_milli, milli

ResourceAmounts = Mapping[str, int]  # resource → thousandths
_HUGE_PAGES: Final = "hugepages-"
_BYTES: Final = (MEMORY, EPHEMERAL_STORAGE)
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - an address in an object, which no process binds to
TCP: Final = "TCP"


_AFFINITY: Final = "spec.affinity"
_SPREAD: Final = "spec.topologySpreadConstraints"
_HOST_NETWORK_REMEDY: Final = (
    ". With hostNetwork each containerPort is a host port: remove containerPorts that need no host"
    " port"
)


class PodHostPort(NamedTuple):
    protocol: str
    number: int
    address: str


def pod_requests(spec: PodSpec) -> ResourceAmounts:
    """Overhead included; a limit without a request is one."""
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(beside, _effective_requests(container.resources))
            _raise_to(most, beside)
        else:
            alone = dict(beside)
            _add(alone, _effective_requests(container.resources))
            _raise_to(most, alone)
    for container in spec.containers:
        _add(beside, _effective_requests(container.resources))
    _raise_to(most, beside)
    if spec.resources is not None:
        pod_level = _pod_level_requests(spec.resources)
        most = {**_effective_requests(spec.resources), **most, **pod_level}
    _add(most, {name: milli(quantity) for name, quantity in spec.overhead.items()})
    return {name: amount for name, amount in most.items() if amount}


def format_amounts(amounts: ResourceAmounts) -> dict[str, str]:
    """In order of their names."""
    return {name: format_amount(name, amounts[name]) for name in sorted(amounts)}


def format_amount(name: str, thousandths: int) -> str:
    is_whole = name in _BYTES and thousandths % 1000 == 0
    return format_bytes(thousandths // 1000) if is_whole else format_milli(thousandths)


def _effective_requests(resources: Resources) -> ResourceAmounts:
    requested: dict[str, Quantity] = {**resources.limits, **resources.requests}
    return {name: milli(quantity) for name, quantity in requested.items()}


def _pod_level_requests(resources: Resources) -> ResourceAmounts:
    """Huge pages have no limit above what is requested."""
    limits = {k: v for k, v in resources.limits.items() if k.startswith(_HUGE_PAGES)}
    return _effective_requests(Resources(requests=resources.requests, limits=limits))


def _add(amounts: dict[str, int], more: ResourceAmounts) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def _raise_to(amounts: dict[str, int], least: ResourceAmounts) -> None:
    for name, amount in least.items():
        amounts[name] = max(amounts.get(name, 0), amount)


def pod_host_ports(spec: PodSpec) -> Iterator[PodHostPort]:
    """With duplicates."""
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                yield PodHostPort(port.protocol or TCP, number, port.host_ip or ANY_ADDRESS)


class _Measurement(NamedTuple):
    field: str
    message: str  # with a place for the number
    number: int
    most: int
    remedy: str = ""  # how to come below the limit


def spec_limit_fault(spec: PodSpec) -> str | None:
    for it in _measurements(spec):
        if it.number > it.most:
            message = it.message.format(it.number)
            remedy = f"name at most {it.most}{it.remedy}"
            return f"{it.field}: the pod {message}, but at most {it.most} are supported; {remedy}"
    return None


def required_pod_terms(affinity: Affinity | None, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    if affinity is None:
        return ()
    chosen = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return chosen.required if chosen else ()


def hard_spread_constraints(spec: PodSpec) -> Iterator[TopologySpread]:
    for spread in spec.topology_spread_constraints:
        if spread.when_unsatisfiable == "DoNotSchedule":
            yield spread


def term_count(spec: PodSpec) -> int:
    """Return how many required terms and hard spread constraints a pod has."""
    return len(_terms(spec)) + len([*hard_spread_constraints(spec)])


def has_inter_pod_constraints(spec: PodSpec) -> bool:
    """Say whether the place of a pod depends on other pods, or theirs on it."""
    return term_count(spec) > 0 or any(pod_host_ports(spec))


def has_match_label_keys(spec: PodSpec) -> bool:
    """Say whether a term depends on the labels of the pod itself."""
    return any(it.match_label_keys or it.mismatch_label_keys for it in _terms(spec)) or any(
        it.match_label_keys for it in hard_spread_constraints(spec)
    )


def _measurements(spec: PodSpec) -> Iterator[_Measurement]:
    resources = len({*_resource_names(spec)})
    field = "spec.containers[*].resources"
    yield _Measurement(field, "requests {} resources", resources, MOST_RESOURCES)
    ports = _port_count(spec)
    field, remedy = "spec.containers[*].ports", _HOST_NETWORK_REMEDY if spec.host_network else ""
    yield _Measurement(field, "uses {} host ports", ports, MOST_PORTS, remedy)
    terms, text = term_count(spec), "has {} terms about other pods"
    yield _Measurement(f"{_AFFINITY}, {_SPREAD}", text, terms, MOST_TERMS)
    field, (expression_count, values) = f"spec.nodeSelector, {_AFFINITY}", _selector_size(spec)
    yield _Measurement(field, "has {} selector expressions", expression_count, MOST_EXPRESSIONS)
    yield _Measurement(field, "names {} values in selector expressions", values, MOST_VALUES)
    text, tolerations = "has {} tolerations", len(spec.tolerations)
    yield _Measurement("spec.tolerations", text, tolerations, MOST_TOLERATIONS)
    yield _Measurement("spec.volumes", "has {} volumes", len(spec.volumes), MOST_VOLUMES)


def _resource_names(spec: PodSpec) -> Iterator[str]:
    parts = [one.resources for one in (*spec.init_containers, *spec.containers)]
    for part in (*parts, *([spec.resources] if spec.resources else [])):
        yield from part.requests
        yield from part.limits
    yield from spec.overhead


def _port_count(spec: PodSpec) -> int:
    """Count the distinct host ports; where there are few ports, an upper bound."""
    named = sum([len(one.ports) for one in (*spec.init_containers, *spec.containers)])
    return named if named <= MOST_PORTS else len({*pod_host_ports(spec)})


def _terms(spec: PodSpec) -> tuple[PodAffinityTerm, ...]:
    return required_pod_terms(spec.affinity, anti=False) + required_pod_terms(
        spec.affinity, anti=True
    )


def _selector_size(spec: PodSpec) -> tuple[int, int]:
    """Count selector expressions and their values; an equality is one of each."""
    equal = len(spec.node_selector)
    names = 0  # of namespaces
    expressions = [*_node_expressions(spec)]
    for one in _terms(spec):
        names += len(one.namespaces)
        equal += len(one.match_label_keys) + len(one.mismatch_label_keys)
        for selector in (one.label_selector, one.namespace_selector):
            if selector is not None:
                equal += len(selector.match_labels)
                expressions += selector.match_expressions
    for spread in hard_spread_constraints(spec):
        equal += len(spread.match_label_keys)
        if spread.label_selector is not None:
            equal += len(spread.label_selector.match_labels)
            expressions += spread.label_selector.match_expressions
    values = sum([len(it.values) for it in expressions])
    return equal + len(expressions), equal + names + values


def _node_expressions(spec: PodSpec) -> Iterator[Requirement]:
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    if node_affinity is not None and node_affinity.required is not None:
        for term in node_affinity.required.node_selector_terms:
            yield from term.match_expressions
            yield from term.match_fields
