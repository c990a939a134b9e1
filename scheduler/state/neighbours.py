"""Who wants to be near whom, who keeps away from whom, and how many of them lie where."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import Ints, Spread, Term
from scheduler.state.charges import Lying
from scheduler.state.kin import Kin
from scheduler.state.kins import Kins
from scheduler.state.labels import NodeLabels
from scheduler.state.selectors import Namespaces, Selector, Selectors, all_of, of_spread, of_term
from trainer_kai.api.affinity import PodAffinityTerm, TopologySpread
from trainer_kai.policy.podbounds import pod_terms, spreads

__all__ = ["Bonds", "NeighbourRows"]

_MOST: Final = 2**31 - 1


class Bonds(NamedTuple):
    """Of one kin."""

    matches: tuple[int, ...] = ()
    near: tuple[Term, ...] = ()
    is_own_neighbour: bool = False
    apart: tuple[int, ...] = ()
    shunned: tuple[int, ...] = ()
    spread: tuple[Spread, ...] = ()


class NeighbourRows:
    """Selectors and terms of anti-affinity, as far as pods that lie or wait somewhere have them."""

    def __init__(self, kins: Kins, labels: NodeLabels, namespaces: Namespaces) -> None:
        self._kins: Final = kins
        self._labels: Final = labels
        self._namespaces: Final = namespaces
        self._selectors: Final = Selectors()
        self._terms: Final[dict[tuple[Term, str], int]] = {}  # with the namespace of whose they are
        self._near: Final[dict[int, tuple[Term, ...]]] = {}
        self._apart: Final[dict[int, tuple[int, ...]]] = {}
        self._spread: Final[dict[int, tuple[tuple[int, TopologySpread], ...]]] = {}
        self._matches: Final[dict[int, tuple[int, ...]]] = {}
        self._selector_of: Ints = np.zeros(0, dtype=np.int64)  # [term]
        self._of: Final[dict[str, NDArray[np.bool_]]] = {}  # by namespace: which are its, [term]
        self._shunned_by: Final[dict[tuple[str, tuple[int, ...]], tuple[int, ...]]] = {}
        self._bonds: Final[dict[int, Bonds]] = {}

    @property
    def terms(self) -> tuple[Term, ...]:
        """Return the terms of anti-affinity."""
        return tuple(term for term, _ in self._terms)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Return whom the rows mean."""
        return tuple(self._selectors.rows)

    def forget(self, number: int) -> None:
        """Forget the bonds of a kin: another has its number."""
        self._matches.pop(number, None)
        self._bonds.pop(number, None)

    def read(self, kins: Iterable[int]) -> None:
        """Read what pods say of others; before this is done for all, nobody's bonds are known."""
        for number in kins:
            spec = self._kins[number].spec
            if spec.affinity is not None:
                self._read_affinity(number)
            if spec.topology_spread_constraints:
                self._spread[number] = tuple(self._spreads(number))
        self._selector_of = np.array([term.selector for term, _ in self._terms], dtype=np.int64)
        whose = np.array([namespace for _, namespace in self._terms], dtype=np.str_)
        self._of.update({name: whose == name for name in {*whose.tolist()}})

    def of(self, number: int) -> Bonds:
        """Return the bonds of a kin."""
        bonds = self._bonds.get(number)
        if bonds is None:
            bonds = self._bonds[number] = self._made(number)
        return bonds

    def counts(self, on: Lying, nodes: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the pods that each selector matches, and those that have each term, [.., node]."""
        counts = np.zeros((len(self._selectors.rows), nodes), dtype=np.int32)
        holders = np.zeros((len(self._terms), nodes), dtype=np.int32)
        if not len(counts):
            return counts, holders
        staying_only = np.array([it.only_staying for it in self._selectors.rows], dtype=np.int32)
        kins, starts = np.unique(on.kin, return_index=True)
        array = lru_cache(_array)  # many kin match the same
        bounds = pairwise((*starts.tolist(), len(on.kin)))
        for kin, (start, end) in zip(kins.tolist(), bounds, strict=True):
            matched, apart = array(self._matching(kin)), array(self._apart.get(kin, ()))
            where, heads = on.node[start:end], on.heads[start:end].astype(np.int32)
            if len(matched):
                leaving = on.leaving[start:end].astype(np.int32)
                counts[np.ix_(matched, where)] += heads - leaving * staying_only[matched, None]
            if len(apart):
                holders[np.ix_(apart, where)] += heads
        return counts, holders

    def _read_affinity(self, number: int) -> None:
        kin = self._kins[number]
        self._near[number] = self._near_of(kin)
        terms = pod_terms(kin.spec.affinity, apart=True)
        apart = ((self._term(kin, term), kin.namespace) for term in terms)
        rows = (self._terms.setdefault(term, len(self._terms)) for term in apart)
        self._apart[number] = tuple(dict.fromkeys(rows))

    def _near_of(self, kin: Kin) -> tuple[Term, ...]:
        """Return who must be near, and how near: only those count whom all of the terms mean."""
        terms = pod_terms(kin.spec.affinity, apart=False)
        if not terms:
            return ()
        meant = all_of(of_term(one, kin.namespace, kin.labels, self._namespaces) for one in terms)
        row = self._selectors.row(meant)
        keys = dict.fromkeys(self._labels.place(one.topology_key) for one in terms)
        return tuple(Term(row, key) for key in keys)

    def _term(self, kin: Kin, term: PodAffinityTerm) -> Term:
        selector = of_term(term, kin.namespace, kin.labels, self._namespaces)
        return Term(self._selectors.row(selector), self._labels.place(term.topology_key))

    def _spreads(self, number: int) -> Iterator[tuple[int, TopologySpread]]:
        kin = self._kins[number]
        for spread in spreads(kin.spec):
            selector = of_spread(spread, kin.namespace, kin.labels)
            yield self._selectors.row(selector), spread

    def _matching(self, number: int) -> tuple[int, ...]:
        found = self._matches.get(number)
        if found is None:
            kin = self._kins[number]
            found = self._selectors.matching(kin.namespace, kin.labels)
            self._matches[number] = found
        return found

    def _shunned(self, own: str, matches: tuple[int, ...]) -> tuple[int, ...]:
        """Return the terms whose selectors match, of pods of the same namespace.

        A pod keeps off no others: else one small pod of any user could keep all off all nodes.
        """
        found = self._shunned_by.get((own, matches))
        if found is None:
            is_matched = np.zeros(len(self._selectors.rows), dtype=np.bool_)
            is_matched[list(matches)] = True
            of = self._of.get(own)
            rows = [] if of is None else np.flatnonzero(is_matched[self._selector_of] & of).tolist()
            found = self._shunned_by[own, matches] = tuple(rows)
        return found

    def _made(self, number: int) -> Bonds:
        matches, own = self._matching(number), self._kins[number].namespace
        near = self._near.get(number, ())
        return Bonds(
            matches=matches,
            near=near,
            is_own_neighbour=bool(near) and all(term.selector in matches for term in near),
            apart=self._apart.get(number, ()),
            shunned=self._shunned(own, matches),
            spread=tuple(
                Spread(
                    selector=selector,
                    key=self._labels.place(spread.topology_key),
                    max_skew=min(spread.max_skew, _MOST),
                    min_domains=min(spread.min_domains or 1, _MOST),
                    counts_itself=selector in matches,
                    honours_affinity=spread.node_affinity_policy != "Ignore",
                    honours_taints=spread.node_taints_policy == "Honor",
                )
                for selector, spread in self._spread.get(number, ())
            ),
        )


def _array(rows: tuple[int, ...]) -> Ints:
    return np.array(rows, dtype=np.int64)
