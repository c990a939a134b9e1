"""Pod affinity, anti-affinity and topology spread as rows, and the pods that match on each node."""

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
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import PodsPerNode
from trainer_kai.api.affinity import PodAffinityTerm, TopologySpread
from trainer_kai.policy.pods.spec_limits import hard_spread_constraints, required_pod_terms

__all__ = ["AffinityTable", "ClassAffinity"]

_MAX_INT32: Final = 2**31 - 1


class ClassAffinity(NamedTuple):
    """Of one kin."""

    matched_selectors: tuple[int, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    matches_own_affinity: bool = False
    anti_affinity: tuple[int, ...] = ()
    existing_anti_affinity: tuple[int, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()


class AffinityTable:
    """Selectors and terms of anti-affinity, as far as pods that lie or wait somewhere have them."""

    def __init__(
        self, class_numbers: PodClassTable, labels: NodeLabels, namespaces: NamespaceLabels
    ) -> None:
        self._class_table: Final = class_numbers
        self._labels: Final = labels
        self._namespaces: Final = namespaces
        self._selectors: Final = SelectorTable()
        self._terms: Final[
            dict[tuple[AffinityTerm, str], int]
        ] = {}  # with the namespace of whose they are
        self._affinity: Final[dict[int, tuple[AffinityTerm, ...]]] = {}
        self._anti_affinity: Final[dict[int, tuple[int, ...]]] = {}
        self._spread_constraints: Final[dict[int, tuple[tuple[int, TopologySpread], ...]]] = {}
        self._matched_selectors: Final[dict[int, tuple[int, ...]]] = {}
        self._selector_of: Ints = np.zeros(0, dtype=np.int64)  # [term]
        self._is_of_namespace: Final[
            dict[str, NDArray[np.bool_]]
        ] = {}  # by namespace: which are its, [term]
        self._existing_by_content: Final[dict[tuple[str, tuple[int, ...]], tuple[int, ...]]] = {}
        self._by_class: Final[dict[int, ClassAffinity]] = {}

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """Return the terms of anti-affinity."""
        return tuple(term for term, _ in self._terms)

    @property
    def selectors(self) -> tuple[PodSelector, ...]:
        """Return whom the rows mean."""
        return tuple(self._selectors.rows)

    def forget(self, number: int) -> None:
        """Forget the bonds of a kin: another has its number."""
        self._matched_selectors.pop(number, None)
        self._by_class.pop(number, None)

    def read(self, class_numbers: Iterable[int]) -> None:
        """Read what pods say of others; before this is done for all, nobody's bonds are known."""
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
        """Return the bonds of a kin."""
        class_affinity = self._by_class.get(number)
        if class_affinity is None:
            class_affinity = self._by_class[number] = self._build(number)
        return class_affinity

    def count_pods(
        self, on: PodsPerNode, nodes: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the pods that each selector matches, and those that have each term, [.., node]."""
        counts = np.zeros((len(self._selectors.rows), nodes), dtype=np.int32)
        holders = np.zeros((len(self._terms), nodes), dtype=np.int32)
        if not len(counts):
            return counts, holders
        staying_only = np.array(
            [it.ignores_terminating for it in self._selectors.rows], dtype=np.int32
        )
        class_numbers, starts = np.unique(on.class_number, return_index=True)
        array = lru_cache(_array)  # many kin match the same
        bounds = pairwise((*starts.tolist(), len(on.class_number)))
        for pod_class, (start, end) in zip(class_numbers.tolist(), bounds, strict=True):
            matched, anti_affinity = (
                array(self._matching(pod_class)),
                array(self._anti_affinity.get(pod_class, ())),
            )
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
        """Return who must be near, and how near: only those count whom all of the terms mean."""
        terms = required_pod_terms(pod_class.spec.affinity, anti=False)
        if not terms:
            return ()
        meant = intersection(
            term_selector(one, pod_class.namespace, pod_class.labels, self._namespaces)
            for one in terms
        )
        row = self._selectors.row(meant)
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
        found = self._matched_selectors.get(number)
        if found is None:
            pod_class = self._class_table[number]
            found = self._selectors.matching(pod_class.namespace, pod_class.labels)
            self._matched_selectors[number] = found
        return found

    def _existing_anti_affinity(self, own: str, matches: tuple[int, ...]) -> tuple[int, ...]:
        """Return the terms whose selectors match, of pods of the same namespace.

        A pod keeps off no others: else one small pod of any user could keep all off all nodes.
        """
        found = self._existing_by_content.get((own, matches))
        if found is None:
            is_matched = np.zeros(len(self._selectors.rows), dtype=np.bool_)
            is_matched[list(matches)] = True
            of = self._is_of_namespace.get(own)
            rows = [] if of is None else np.flatnonzero(is_matched[self._selector_of] & of).tolist()
            found = self._existing_by_content[own, matches] = tuple(rows)
        return found

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
