"""What pods require of the other pods on a node, as rows: affinity, spread, and host ports.

Affinity, anti-affinity and topology spread become selectors, and the pods that match each on each
node. A host port of all addresses is a port of each. So a request for a port on all addresses
counts the pods that have it on any address; a request for one address counts the pods that have the
port on this address or on all. No two addresses are compared.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import AffinityTerm, SpreadConstraint
from scheduler.core.model.resources import Ints
from scheduler.state.constraints.selectors import (
    NamespaceLabels,
    PodSelector,
    SelectorTable,
    intersection,
    spread_selector,
    term_selector,
)
from scheduler.state.nodes.labels import NodeLabels
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.pods.pod_class import PodClass, SharedSpec
from scheduler.state.pods.pod_table import PodsPerNode
from trainer_kai.api.pod import PodAffinityTerm, TopologySpread
from trainer_kai.policy.pods.requests import (
    ANY_ADDRESS,
    PodHostPort,
    hard_spread_constraints,
    required_pod_terms,
)

_MAX_INT32: Final = 2**31 - 1
_ANY: Final = ""  # instead of an address


class ClassAffinity(NamedTuple):
    matched_selectors: tuple[int, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    matches_own_affinity: bool = False
    anti_affinity: tuple[int, ...] = ()
    existing_anti_affinity: tuple[int, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()


class AffinityTable:
    """Selectors and anti-affinity terms of pods that are pending or on a node, as rows."""

    def __init__(
        self, class_table: PodClassTable, labels: NodeLabels, namespaces: NamespaceLabels
    ) -> None:
        self._class_table: Final = class_table
        self._labels: Final = labels
        self._namespaces: Final = namespaces
        self._selectors: Final = SelectorTable()
        # By term and the namespace of the pods that have it.
        self._terms: Final[dict[tuple[AffinityTerm, str], int]] = {}
        self._affinity: Final[dict[int, tuple[AffinityTerm, ...]]] = {}
        self._anti_affinity: Final[dict[int, tuple[int, ...]]] = {}
        self._spread_constraints: Final[dict[int, tuple[tuple[int, TopologySpread], ...]]] = {}
        self._matched_selectors: Final[dict[int, tuple[int, ...]]] = {}
        self._selector_of: Ints = np.zeros(0, dtype=np.int64)  # [term]
        # By namespace: whether its pods have the term, [term].
        self._is_of_namespace: Final[dict[str, NDArray[np.bool_]]] = {}
        self._existing_by_content: Final[dict[tuple[str, tuple[int, ...]], tuple[int, ...]]] = {}
        self._by_class: Final[dict[int, ClassAffinity]] = {}

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        return tuple(term for term, _ in self._terms)

    @property
    def selectors(self) -> tuple[PodSelector, ...]:
        return tuple(self._selectors.rows)

    def forget(self, number: int) -> None:
        self._matched_selectors.pop(number, None)
        self._by_class.pop(number, None)

    def read(self, class_numbers: Iterable[int]) -> None:
        """Read the terms of classes; `affinity_of` is valid only after all of them are read."""
        for number in class_numbers:
            spec = self._class_table[number].spec
            if spec.affinity is not None:
                self._read_affinity(number)
            if spec.topology_spread_constraints:
                self._spread_constraints[number] = tuple(self._spread_selectors(number))
        self._selector_of = np.array([term.selector for term, _ in self._terms], dtype=np.int64)
        owner_namespaces = np.array([namespace for _, namespace in self._terms], dtype=np.str_)
        self._is_of_namespace.update(
            {name: owner_namespaces == name for name in {*owner_namespaces.tolist()}}
        )

    def affinity_of(self, number: int) -> ClassAffinity:
        class_affinity = self._by_class.get(number)
        if class_affinity is None:
            class_affinity = self._by_class[number] = self._build(number)
        return class_affinity

    def count_pods(
        self, on: PodsPerNode, nodes: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Count the pods that each selector matches, and those that have each term, [.., node]."""
        counts = np.zeros((len(self._selectors.rows), nodes), dtype=np.int32)
        holders = np.zeros((len(self._terms), nodes), dtype=np.int32)
        if not len(counts):
            return counts, holders
        staying_only = np.array(
            [it.ignores_terminating for it in self._selectors.rows], dtype=np.int32
        )
        class_numbers, starts = np.unique(on.class_number, return_index=True)
        array = lru_cache(_array)  # many classes match the same selectors
        bounds = pairwise((*starts.tolist(), len(on.class_number)))
        for number, (start, end) in zip(class_numbers.tolist(), bounds, strict=True):
            matched = array(self._matching(number))
            anti_affinity = array(self._anti_affinity.get(number, ()))
            where, pod_counts = on.node[start:end], on.pod_counts[start:end].astype(np.int32)
            if len(matched):
                terminating = on.terminating[start:end].astype(np.int32)
                counts[np.ix_(matched, where)] += (
                    pod_counts - terminating * staying_only[matched, None]
                )
            if len(anti_affinity):
                holders[np.ix_(anti_affinity, where)] += pod_counts
        return counts, holders

    def _read_affinity(self, number: int) -> None:
        pod_class = self._class_table[number]
        self._affinity[number] = self._affinity_of(pod_class)
        terms = required_pod_terms(pod_class.spec.affinity, anti=True)
        anti_affinity = ((self._term(pod_class, term), pod_class.namespace) for term in terms)
        rows = (self._terms.setdefault(term, len(self._terms)) for term in anti_affinity)
        self._anti_affinity[number] = tuple(dict.fromkeys(rows))

    def _affinity_of(self, pod_class: PodClass) -> tuple[AffinityTerm, ...]:
        """Return the affinity terms, by topology key: only pods that all of them select count."""
        terms = required_pod_terms(pod_class.spec.affinity, anti=False)
        if not terms:
            return ()
        selector = intersection(
            term_selector(one, pod_class.namespace, pod_class.labels, self._namespaces)
            for one in terms
        )
        row = self._selectors.row(selector)
        keys = dict.fromkeys(self._labels.topology_column(one.topology_key) for one in terms)
        return tuple(AffinityTerm(row, key) for key in keys)

    def _term(self, pod_class: PodClass, term: PodAffinityTerm) -> AffinityTerm:
        selector = term_selector(term, pod_class.namespace, pod_class.labels, self._namespaces)
        return AffinityTerm(
            self._selectors.row(selector), self._labels.topology_column(term.topology_key)
        )

    def _spread_selectors(self, number: int) -> Iterator[tuple[int, TopologySpread]]:
        pod_class = self._class_table[number]
        for spread in hard_spread_constraints(pod_class.spec):
            selector = spread_selector(spread, pod_class.namespace, pod_class.labels)
            yield self._selectors.row(selector), spread

    def _matching(self, number: int) -> tuple[int, ...]:
        matched = self._matched_selectors.get(number)
        if matched is None:
            pod_class = self._class_table[number]
            matched = self._selectors.matching(pod_class.namespace, pod_class.labels)
            self._matched_selectors[number] = matched
        return matched

    def _existing_anti_affinity(self, own: str, matches: tuple[int, ...]) -> tuple[int, ...]:
        """Return the terms of pods of the same namespace that select the pods.

        The anti-affinity of pods of other namespaces does not count: else one small pod of any user
        could keep all pods off all nodes.
        """
        terms = self._existing_by_content.get((own, matches))
        if terms is None:
            is_matched = np.zeros(len(self._selectors.rows), dtype=np.bool_)
            is_matched[list(matches)] = True
            is_own = self._is_of_namespace.get(own)
            if is_own is None:
                terms = ()
            else:
                terms = tuple(np.flatnonzero(is_matched[self._selector_of] & is_own).tolist())
            self._existing_by_content[own, matches] = terms
        return terms

    def _build(self, number: int) -> ClassAffinity:
        matches, own = self._matching(number), self._class_table[number].namespace
        affinity = self._affinity.get(number, ())
        return ClassAffinity(
            matched_selectors=matches,
            affinity=affinity,
            matches_own_affinity=bool(affinity)
            and all(term.selector in matches for term in affinity),
            anti_affinity=self._anti_affinity.get(number, ()),
            existing_anti_affinity=self._existing_anti_affinity(own, matches),
            spread_constraints=tuple(
                SpreadConstraint(
                    selector=selector,
                    key=self._labels.topology_column(spread.topology_key),
                    max_skew=min(spread.max_skew, _MAX_INT32),
                    min_domains=min(spread.min_domains or 1, _MAX_INT32),
                    counts_itself=selector in matches,
                    honours_affinity=spread.node_affinity_policy != "Ignore",
                    honours_taints=spread.node_taints_policy == "Honor",
                )
                for selector, spread in self._spread_constraints.get(number, ())
            ),
        )


def _array(rows: tuple[int, ...]) -> Ints:
    return np.array(rows, dtype=np.int64)


class HostPortTable:
    def __init__(self, requested: tuple[PodHostPort, ...]) -> None:
        conflicting = {it for port in requested for it in _conflicting(port)}
        self.ports: Final = tuple(sorted(conflicting))
        self._column: Final = {port: column for column, port in enumerate(self.ports)}
        self._any_address_column: Final = {
            port[:2]: column for column, port in enumerate(self.ports) if port.address == _ANY
        }
        self._host_ports: Final[dict[SharedSpec, tuple[int, ...]]] = {}

    def host_ports(self, pod_class: PodClass) -> tuple[int, ...]:
        columns = self._host_ports.get(pod_class.shared_spec)
        if columns is None:
            ports, column = pod_class.shared_spec.ports, self._column
            taken = {column[port] for port in ports if port in column}
            taken |= {
                self._any_address_column[port[:2]]
                for port in ports
                if port[:2] in self._any_address_column
            }
            columns = self._host_ports[pod_class.shared_spec] = tuple(sorted(taken))
        return columns

    def conflicting_ports(self, pod_class: PodClass) -> tuple[int, ...]:
        """Return the columns of the ports that must be free on a node for pods of a class."""
        needed = {it for port in pod_class.shared_spec.ports for it in _conflicting(port)}
        return tuple(sorted(self._column[it] for it in needed if it in self._column))

    def count_pods(
        self, on_nodes: PodsPerNode, class_table: PodClassTable, nodes: int
    ) -> NDArray[np.int32]:
        """Return how many pods have each port, [node, port]."""
        table = np.zeros((nodes, len(self._column)), dtype=np.int32)
        if not self.ports:
            return table
        has_ports = class_table.has_ports[on_nodes.class_number]
        for number in np.unique(on_nodes.class_number[has_ports]).tolist():
            columns = list(self.host_ports(class_table[number]))
            if columns:
                is_of_class = on_nodes.class_number == number
                pod_counts = on_nodes.pod_counts[is_of_class].astype(np.int32)
                table[np.ix_(on_nodes.node[is_of_class], columns)] += pod_counts[:, None]
        return table


def _conflicting(port: PodHostPort) -> Iterator[PodHostPort]:
    """Yield the ports that must be free: that of any address, or of this one and of all."""
    if port.address == ANY_ADDRESS:
        yield port._replace(address=_ANY)
    else:
        yield port
        yield port._replace(address=ANY_ADDRESS)
