"""The cluster that a TrainJob is compared with, and a limit on the work that lint does for one.

A set of nodes is an integer with a bit for each node, so the cost depends on the number of
different nodes. All results are upper bounds: cordons and conditions are ignored, and so are
volumes, other pods and ports. Labels and tolerations count as for the scheduler.

Other reviews wait while a TrainJob is checked. So its parts are counted first, and a TrainJob that
is too large is reported and not checked. A check above the budget is skipped and reports nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import astuple

from trainer_kai.api.bounds import MOST_PARTS
from trainer_kai.api.cluster_kinds import Node, PriorityClass, Taint
from trainer_kai.api.device_kinds import RequestedClass
from trainer_kai.api.jobset import JobSetSpec
from trainer_kai.api.kai_kinds import QueueSpec, TopologySpec
from trainer_kai.api.matching import NodeRule, ValueRange, node_rules, tolerates
from trainer_kai.api.meta import Key, NodeSelectorTerm
from trainer_kai.api.names import AMD_GPU, CLOUD_NODE_PREFIX, CPU, GPU, NODE_PREFIX
from trainer_kai.api.pod import Affinity, Container, PodSpec, Toleration
from trainer_kai.api.quantity import QuantityError, milli, whole

K = TypeVar("K")

_EXCLUDING_EFFECTS: Final = ("NoSchedule", "NoExecute")
_TRANSIENT_PREFIXES: Final = (NODE_PREFIX, CLOUD_NODE_PREFIX)  # of taints that are states of a node
_MOST_COMPARISONS: Final = 400  # of taints with tolerations, for one pod
_MOST_COMPARED: Final = 64  # values of a label that are compared with a number

Allocatable: TypeAlias = tuple[tuple[str, int], ...]  # by resource, in thousandths


class _NodeFacts(NamedTuple):
    labels: Mapping[str, str]
    taints: frozenset[Taint]
    allocatable: Allocatable


class NodeIndex:
    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._bits: Final[dict[str, int]] = {}
        self._free_bits: Final[list[int]] = []
        self._facts: Final[list[_NodeFacts | None]] = []  # by bit
        self.all = 0
        self._by_label_value: Final[dict[str, dict[str, int]]] = {}
        self._by_label: Final[dict[str, int]] = {}  # by label, for all its values
        self._taints: Final[dict[Taint, int]] = {}
        self._by_allocatable: Final[dict[Allocatable, int]] = {}
        self._amounts: Final[dict[Allocatable, Mapping[str, int]]] = {}
        for node in nodes:
            self.put(node)

    @property
    def distinct_count(self) -> int:
        return len(self._by_allocatable)

    def by_allocatable(self) -> Iterator[tuple[Mapping[str, int], int]]:
        """Amounts are in thousandths."""
        for allocatable, nodes in self._by_allocatable.items():
            yield self._amounts[allocatable], nodes

    def put(self, node: Node) -> None:
        """Add or update a node; one with invalid quantities is removed."""
        name = node.metadata.name
        facts = _read(node)
        bit = self._bits.get(name)
        if bit is not None and self._facts[bit] == facts:
            return
        self.drop(name)
        if facts is None:
            return
        bit = self._free_bits.pop() if self._free_bits else len(self._facts)
        if bit == len(self._facts):
            self._facts.append(None)
        self._bits[name], self._facts[bit] = bit, facts
        self.all |= 1 << bit
        self._toggle(facts, 1 << bit)

    def drop(self, name: str) -> None:
        bit = self._bits.pop(name, None)
        facts = None if bit is None else self._facts[bit]
        if bit is not None and facts is not None:
            self._facts[bit] = None
            self._free_bits.append(bit)
            self.all ^= 1 << bit
            self._toggle(facts, 1 << bit)

    def eligible_for(self, pod: PodSpec) -> int:
        """Return the nodes that a pod selects and tolerates; its requests are ignored."""
        found = self.selected_by(pod)
        return found and found & ~self._untolerated(pod.tolerations)

    def selected_by(self, pod: PodSpec) -> int:
        """Taints are ignored."""
        found = self.all
        for label, value in pod.node_selector.items():
            found &= self._by_label_value.get(label, {}).get(value, 0)
        affinity = pod.affinity.node_affinity if pod.affinity else None
        if found and affinity is not None and affinity.required is not None:
            found &= union(map(self._matching_term, affinity.required.node_selector_terms))
        return found

    def label_values(self, label: str) -> tuple[str, ...]:
        return tuple(sorted(self._by_label_value.get(label, ())))

    def taints(self, among: int) -> tuple[str, ...]:
        """As kubectl writes them."""
        found = sorted(map(astuple, (it for it, nodes in self._taints.items() if nodes & among)))
        return tuple(f"{key}={value}:{effect}" for key, value, effect in found)

    def is_unique_label(self, label: str) -> bool:
        return len(self._by_label_value.get(label, ())) == self._by_label.get(label, 0).bit_count()

    def with_labels(self, labels: Sequence[str], among: int) -> int:
        for label in labels:
            among &= self._by_label.get(label, 0)
        return among

    def domains(self, labels: Sequence[str], among: int) -> Iterator[int]:
        """Yield the nodes with the same values for all labels; each node must have all labels."""
        remaining = self.with_labels(labels, among)
        while remaining:
            facts = self._facts[(remaining & -remaining).bit_length() - 1]
            domain = remaining
            if facts is not None:
                for label in labels:
                    domain &= self._by_label_value[label][facts.labels[label]]
            yield domain
            remaining &= ~domain

    def _toggle(self, facts: _NodeFacts, bit: int) -> None:
        for label, value in facts.labels.items():
            _toggle_bit(self._by_label, label, bit)
            _toggle_bit(self._by_label_value.setdefault(label, {}), value, bit)
            if label not in self._by_label:
                del self._by_label_value[label]
        for taint in facts.taints:
            _toggle_bit(self._taints, taint, bit)
        _toggle_bit(self._by_allocatable, facts.allocatable, bit)
        if facts.allocatable not in self._by_allocatable:
            del self._amounts[facts.allocatable]
        else:
            self._amounts.setdefault(facts.allocatable, dict(facts.allocatable))

    def _untolerated(self, tolerations: Sequence[Toleration]) -> int:
        """No node if comparing takes too long."""
        if len(self._taints) * (len(tolerations) + 1) > _MOST_COMPARISONS:
            return 0
        return union(
            nodes
            for taint, nodes in self._taints.items()
            if not any(tolerates(it, taint) for it in tolerations)
        )

    def _matching_term(self, term: NodeSelectorTerm) -> int:
        rules = node_rules(term)
        if rules is None:
            return 0
        found = self.all
        for rule in rules:
            found &= self._accepted(rule)
        return found

    def _accepted(self, rule: NodeRule) -> int:
        """Return the nodes that satisfy a rule; with many values more nodes than those."""
        if isinstance(rule.accepted, ValueRange):
            label = rule.key or ""
            values = self._by_label_value.get(label, {})
            if len(values) > _MOST_COMPARED:
                return self._by_label[label]
            return union(nodes for value, nodes in values.items() if rule.accepted.accepts(value))
        found = union(self._with_value(rule.key, it) for it in rule.accepted.values)
        return self.all & ~found if rule.accepted.is_negated else found

    def _with_value(self, label: str | None, value: str | None) -> int:
        """Return the nodes with a value of a label; of no label by name, of no value without it."""
        if label is None:
            bit = self._bits.get(value or "")
            return 0 if bit is None else 1 << bit
        if value is None:
            return self.all & ~self._by_label.get(label, 0)
        return self._by_label_value.get(label, {}).get(value, 0)


def union(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def _toggle_bit(sets: dict[K, int], key: K, bit: int) -> None:
    found = sets.get(key, 0) ^ bit
    if found:
        sets[key] = found
    else:
        del sets[key]


def _read(node: Node) -> _NodeFacts | None:
    try:
        allocatable = {
            name: max(milli(quantity) if name == CPU else whole(quantity) * 1000, 0)
            for name, quantity in node.status.allocatable.items()
        }
    except QuantityError:
        return None
    taints = frozenset(filter(_is_permanent, node.spec.taints))
    return _NodeFacts(node.metadata.labels, taints, Allocatable(tuple(sorted(allocatable.items()))))


def _is_permanent(taint: Taint) -> bool:
    return taint.effect in _EXCLUDING_EFFECTS and not taint.key.startswith(_TRANSIENT_PREFIXES)


class KnownCluster(NamedTuple):
    """The objects of each kind, by name; None if they were not listed: then nothing is reported."""

    nodes: NodeIndex | None = None
    queues: Mapping[str, QueueSpec] | None = None
    priorities: Mapping[str, PriorityClass] | None = None
    topologies: Mapping[str, TopologySpec] | None = None
    autoscales: bool = False  # the cluster adds nodes when capacity is missing
    gpus: tuple[str, ...] = (GPU, AMD_GPU)  # the resources that queues count as GPUs
    shares_gpus: bool = True  # our scheduler binds pods with shares of GPUs
    topology_defaults: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # what queues say
    device_classes: AbstractSet[str] | None = None
    # What a ResourceClaimTemplate requests: None if it does not exist, nothing if that is unknown.
    claim_template: Callable[[Key], Iterable[RequestedClass] | None] | None = None


NOTHING_KNOWN = KnownCluster()


# How many ports take as much work as a container, an amount of a resource, or a comparison.
_CONTAINER: Final = 20
_AMOUNT: Final = 10
_COMPARISON: Final = 40


class LintBudget:
    """The steps that are left for one TrainJob."""

    def __init__(self, steps: int = 40_000) -> None:
        self._left = steps

    def spend(self, steps: int) -> bool:
        """Return whether enough steps were left."""
        if steps > self._left:
            return False
        self._left -= steps
        return True


def count_spec_parts(specs: Iterable[JobSetSpec]) -> int:
    """Return the number of parts to check; counting stops above the limit."""
    count = 0
    for spec in specs:
        for job in spec.replicated_jobs:
            for more in _pod_parts(job.template.spec.template.spec):
                count += more
                if count > MOST_PARTS:
                    return count
    return count


def _pod_parts(pod: PodSpec) -> Iterator[int]:
    yield _CONTAINER + len(pod.volumes) + len(pod.node_selector) + len(pod.tolerations)
    yield len(pod.scheduling_gates)
    yield from map(_container_parts, (*pod.init_containers, *pod.containers))
    if pod.affinity is not None:
        yield from _affinity_parts(pod.affinity)


def _container_parts(container: Container) -> int:
    resources = container.resources
    amounts = len(resources.requests) + len(resources.limits)
    return _CONTAINER + len(container.ports) + len(resources.claims) + _AMOUNT * amounts


def _affinity_parts(affinity: Affinity) -> Iterator[int]:
    required = affinity.node_affinity.required if affinity.node_affinity else None
    for term in required.node_selector_terms if required else ():
        yield 1
        for requirement in (*term.match_expressions, *term.match_fields):
            yield _COMPARISON if requirement.operator in {"Gt", "Lt"} else 4
            yield len(requirement.values)
