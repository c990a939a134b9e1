"""Pod selectors as rows, and which of them match a pod.

Every PodGroup may have a selector of its own. So each selector is indexed in its namespaces by
every label that it requires or excludes: matching counts labels and tries no selector by itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from trainer_kai.api.cluster_kinds import Namespace
from trainer_kai.api.meta import LabelSelector, Requirement
from trainer_kai.api.names import NAMESPACE_NAME
from trainer_kai.api.pod import PodAffinityTerm, TopologySpread

if TYPE_CHECKING:
    from scheduler.core.model.resources import Ints

PodLabelRequirement: TypeAlias = tuple[str, str, tuple[str, ...]]  # label, operator, values
_NEVER: Final[PodLabelRequirement] = ("", "", ())  # its operator does not exist: matches no pod
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_MAX_INDEXED_NAMESPACES: Final = 16  # a selector of more is indexed once for all of them


class PodSelector(NamedTuple):
    """Pods of some namespaces, or of all (None), with labels that satisfy all requirements."""

    namespaces: frozenset[str] | None
    requirements: tuple[PodLabelRequirement, ...]
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
        self._found: Final[dict[tuple[PodLabelRequirement, ...], frozenset[str]]] = {}

    def namespaces_of(self, term: PodAffinityTerm, own: str) -> frozenset[str] | None:
        """Return the namespaces of a term; None for all."""
        selector = term.namespace_selector
        if selector is None:
            return frozenset(term.namespaces or (own,))
        requirements = _requirements(selector)
        if not requirements:
            return None
        found = self._found.get(requirements)
        if found is None:
            found = self._found[requirements] = self._matching(requirements)
        return found.union(term.namespaces) if term.namespaces else found

    def _matching(self, requirements: tuple[PodLabelRequirement, ...]) -> frozenset[str]:
        names = self._names
        for key, operator, values in requirements:
            having = set[str]().union(*(self._by_label.get((key, value), ()) for value in values))
            match operator:
                case "In":
                    names = names & having
                case "NotIn":
                    names = names - having
                case "Exists":
                    names = names & self._by_label_key.get(key, set())
                case "DoesNotExist":
                    names = names - self._by_label_key.get(key, set())
                case _:
                    return frozenset()
        return names


class _SelectorIndex:
    """Selectors by the labels that they require or exclude."""

    def __init__(self) -> None:
        self.rows: Final[list[int]] = []
        self._needed: Final[list[int]] = []  # the number of labels that a selector requires
        self._in_values: Final[dict[tuple[str, str], list[int]]] = {}
        self._exists: Final[dict[str, list[int]]] = {}
        self._not_in_values: Final[dict[tuple[str, str], list[int]]] = {}
        self._not_exists: Final[dict[str, list[int]]] = {}
        self._columns: tuple[Ints, Ints] | None = None  # `rows` and `_needed` as arrays
        self._found: Final[dict[bytes, tuple[int, ...]]] = {}  # many pods match the same selectors

    def add(self, row: int, requirements: tuple[PodLabelRequirement, ...]) -> None:
        """Index a selector."""
        number, self._columns = len(self.rows), None
        self.rows.append(row)
        self._needed.append(sum(operator in {"In", "Exists"} for _, operator, _ in requirements))
        for key, operator, values in requirements:
            match operator:
                case "In" | "NotIn":
                    index = self._in_values if operator == "In" else self._not_in_values
                    for value in values:
                        index.setdefault((key, value), []).append(number)
                case "Exists":
                    self._exists.setdefault(key, []).append(number)
                case _:
                    self._not_exists.setdefault(key, []).append(number)

    def matching(self, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows of the selectors that match these labels, in order."""
        satisfied, refused = list[int](), list[int]()
        for label in labels.items():
            satisfied += self._in_values.get(label, ())
            satisfied += self._exists.get(label[0], ())
            refused += self._not_in_values.get(label, ())
            refused += self._not_exists.get(label[0], ())
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
        """Return the row of a selector."""
        row = self.rows.get(selector)
        if row is None:
            row = self.rows[selector] = len(self.rows)
            self._add(selector, row)
        return row

    def _add(self, selector: PodSelector, row: int) -> None:
        """Index a selector in its namespaces, or once for many of them."""
        requirements, namespaces = selector.requirements, selector.namespaces
        if any(operator not in _OPERATORS for _, operator, _ in requirements):
            return  # no pod can match it
        if namespaces is None or len(namespaces) > _MAX_INDEXED_NAMESPACES:
            if namespaces is not None:
                self._namespaces[row] = namespaces
            self._of_many_namespaces.add(row, requirements)
            return
        for namespace in namespaces:
            self._of_namespace.setdefault(namespace, _SelectorIndex()).add(row, requirements)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows of the selectors that match pods with these labels."""
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
    """Return the selector of an affinity term of pods with these labels."""
    requirements = {*_requirements_or_never(term.label_selector)}
    requirements |= {(key, "In", (labels[key],)) for key in term.match_label_keys if key in labels}
    requirements |= {
        (key, "NotIn", (labels[key],)) for key in term.mismatch_label_keys if key in labels
    }
    return PodSelector(namespaces.namespaces_of(term, namespace), tuple(sorted(requirements)))


def intersection(selectors: Iterable[PodSelector]) -> PodSelector:
    """Return the selector of the pods that all given selectors match."""
    namespaces: frozenset[str] | None = None
    requirements: set[PodLabelRequirement] = set()
    for one in selectors:
        requirements.update(one.requirements)
        if one.namespaces is not None:
            known = one.namespaces if namespaces is None else namespaces
            namespaces = known & one.namespaces
    return PodSelector(namespaces, tuple(sorted(requirements)))


def spread_selector(
    spread: TopologySpread, namespace: str, labels: Mapping[str, str]
) -> PodSelector:
    """Return the selector of a topology spread constraint."""
    requirements = {*_requirements_or_never(spread.label_selector)}
    requirements |= {
        (key, "In", (labels[key],)) for key in spread.match_label_keys if key in labels
    }
    return PodSelector(
        frozenset({namespace}), tuple(sorted(requirements)), ignores_terminating=True
    )


def budget_selector(selector: LabelSelector | None, namespace: str) -> PodSelector:
    """Return the selector of a disruption budget."""
    return PodSelector(frozenset({namespace}), tuple(sorted({*_requirements_or_never(selector)})))


def _requirements_or_never(selector: LabelSelector | None) -> tuple[PodLabelRequirement, ...]:
    """Return the requirements; an empty selector matches all pods, and None matches none."""
    return (_NEVER,) if selector is None else _requirements(selector)


def _requirements(selector: LabelSelector) -> tuple[PodLabelRequirement, ...]:
    return tuple(
        sorted(
            {
                *_label_requirements(selector.match_labels),
                *_expression_requirements(selector.match_expressions),
            }
        )
    )


def _label_requirements(labels: Mapping[str, str]) -> Iterator[PodLabelRequirement]:
    for key, value in labels.items():
        yield key, "In", (value,)


def _expression_requirements(expressions: Iterable[Requirement]) -> Iterator[PodLabelRequirement]:
    for expression in expressions:
        yield expression.key, expression.operator, tuple(sorted(set(expression.values)))
