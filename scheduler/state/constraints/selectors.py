"""Pod selectors as rows, and which of them match a pod.

Every PodGroup may have a selector of its own. So each selector is indexed in its namespaces by
every label that it requires or excludes: matching counts labels and tries no selector by itself.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from trainer_kai.api.cluster_kinds import Namespace
from trainer_kai.api.matching import UNSATISFIABLE, LabelRule, ValueSet, label_rules
from trainer_kai.api.meta import LabelSelector
from trainer_kai.api.names import NAMESPACE_NAME
from trainer_kai.api.pod import PodAffinityTerm, TopologySpread

if TYPE_CHECKING:
    from scheduler.core.model.resources import Ints

_MAX_INDEXED_NAMESPACES: Final = 16  # a selector of more is indexed once for all of them


class PodSelector(NamedTuple):
    """Pods of some namespaces, or of all (None), with labels that satisfy all rules."""

    namespaces: frozenset[str] | None
    rules: frozenset[LabelRule]
    ignores_terminating: bool = False  # terminating pods do not count


class NamespaceLabels:
    """The namespaces by label; each has at least the label of its name."""

    def __init__(self, known: Mapping[str, Namespace], others: Iterable[str]) -> None:
        self._names: Final = frozenset({*known, *others})
        self._by_label: Final[dict[tuple[str, str], set[str]]] = {}
        self._by_label_key: Final[dict[str, set[str]]] = {}
        for name in self._names:
            labels = known[name].metadata.labels if name in known else {}
            for label in {**labels, NAMESPACE_NAME: name}.items():
                self._by_label.setdefault(label, set()).add(name)
                self._by_label_key.setdefault(label[0], set()).add(name)
        self._found: Final[dict[frozenset[LabelRule], frozenset[str]]] = {}

    def namespaces_of(self, term: PodAffinityTerm, own: str) -> frozenset[str] | None:
        """Return the namespaces of a term; None for all."""
        selector = term.namespace_selector
        if selector is None:
            return frozenset(term.namespaces or (own,))
        rules = label_rules(selector)
        if not rules:
            return None
        found = self._found.get(rules)
        if found is None:
            found = self._found[rules] = self._matching(rules)
        return found.union(term.namespaces) if term.namespaces else found

    def _matching(self, rules: Iterable[LabelRule]) -> frozenset[str]:
        names = self._names
        for key, (values, is_negated) in rules:
            if None in values:
                found = self._names - self._by_label_key.get(key, set())
            else:
                having = (self._by_label.get((key, value or ""), ()) for value in values)
                found = frozenset(chain.from_iterable(having))
            names = names - found if is_negated else names & found
        return names


class _SelectorIndex:
    def __init__(self) -> None:
        self.rows: Final[list[int]] = []
        self._needed: Final[list[int]] = []  # the number of labels that a selector requires
        # By label, and by name for any value: the selectors that require it, and that exclude it.
        self._requiring: Final[dict[tuple[str, str | None], list[int]]] = {}
        self._excluding: Final[dict[tuple[str, str | None], list[int]]] = {}
        self._columns: tuple[Ints, Ints] | None = None  # `rows` and `_needed` as arrays
        self._found: Final[dict[bytes, tuple[int, ...]]] = {}  # many pods match the same selectors

    def add(self, row: int, rules: Iterable[LabelRule]) -> None:
        number, self._columns = len(self.rows), None
        self.rows.append(row)
        needed = 0
        for key, (values, is_negated) in rules:
            # An absent label is none that is required or excluded: the label is, with any value.
            requires = is_negated if None in values else not is_negated
            needed += requires
            index = self._requiring if requires else self._excluding
            for value in values:
                index.setdefault((key, value), []).append(number)
        self._needed.append(needed)

    def matching(self, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows of the selectors that match these labels, in order."""
        satisfied, refused = list[int](), list[int]()
        for label in labels.items():
            any_value = label[0], None
            satisfied += self._requiring.get(label, ())
            satisfied += self._requiring.get(any_value, ())
            refused += self._excluding.get(label, ())
            refused += self._excluding.get(any_value, ())
        if self._columns is None:
            self._columns = np.array(self.rows), np.array(self._needed)
        rows, needed = self._columns
        is_met = np.bincount(satisfied, minlength=len(rows)) == needed
        is_met[refused] = False
        bits = np.packbits(is_met).tobytes()
        found = self._found.get(bits)
        if found is None:
            found = self._found[bits] = tuple(rows[is_met].tolist())
        return found


class SelectorTable:
    """The selectors as rows, each added when it is first used."""

    def __init__(self) -> None:
        self.rows: Final[dict[PodSelector, int]] = {}
        self._of_namespace: Final[dict[str, _SelectorIndex]] = {}
        self._of_many_namespaces: Final = _SelectorIndex()  # of many namespaces, or of all
        self._namespaces: Final[dict[int, frozenset[str]]] = {}  # by row, of selectors of many

    def row(self, selector: PodSelector) -> int:
        row = self.rows.get(selector)
        if row is None:
            row = self.rows[selector] = len(self.rows)
            self._add(selector, row)
        return row

    def _add(self, selector: PodSelector, row: int) -> None:
        rules, namespaces = selector.rules, selector.namespaces
        if UNSATISFIABLE in rules:
            return
        if namespaces is None or len(namespaces) > _MAX_INDEXED_NAMESPACES:
            if namespaces is not None:
                self._namespaces[row] = namespaces
            self._of_many_namespaces.add(row, rules)
            return
        for namespace in namespaces:
            self._of_namespace.setdefault(namespace, _SelectorIndex()).add(row, rules)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        own = self._of_namespace.get(namespace)
        here = own.matching(labels) if own is not None else ()
        if not self._of_many_namespaces.rows:
            return here
        found = self._of_many_namespaces.matching(labels)
        if self._namespaces:
            found = tuple(row for row in found if self._includes(row, namespace))
        return tuple(sorted((*here, *found))) if here else found

    def _includes(self, row: int, namespace: str) -> bool:
        return row not in self._namespaces or namespace in self._namespaces[row]


def term_selector(
    term: PodAffinityTerm, namespace: str, labels: Mapping[str, str], namespaces: NamespaceLabels
) -> PodSelector:
    rules = label_rules(term.label_selector)
    rules |= _own_values(term.match_label_keys, labels)
    rules |= _own_values(term.mismatch_label_keys, labels, is_negated=True)
    return PodSelector(namespaces.namespaces_of(term, namespace), rules)


def intersection(selectors: Iterable[PodSelector]) -> PodSelector:
    namespaces: frozenset[str] | None = None
    rules = frozenset[LabelRule]()
    for one in selectors:
        rules |= one.rules
        if one.namespaces is not None:
            known = one.namespaces if namespaces is None else namespaces
            namespaces = known & one.namespaces
    return PodSelector(namespaces, rules)


def spread_selector(
    spread: TopologySpread, namespace: str, labels: Mapping[str, str]
) -> PodSelector:
    rules = label_rules(spread.label_selector) | _own_values(spread.match_label_keys, labels)
    return PodSelector(frozenset({namespace}), rules, ignores_terminating=True)


def budget_selector(selector: LabelSelector | None, namespace: str) -> PodSelector:
    return PodSelector(frozenset({namespace}), label_rules(selector))


def _own_values(
    keys: Iterable[str], labels: Mapping[str, str], *, is_negated: bool = False
) -> frozenset[LabelRule]:
    """Return the rules that labels have the values of these ones, or others; *keys* may lack."""
    return frozenset(
        LabelRule(key, ValueSet(frozenset({labels[key]}), is_negated))
        for key in keys
        if key in labels
    )
