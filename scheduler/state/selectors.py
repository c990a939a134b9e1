"""Which pods are meant by their labels: selectors as rows, and which of them match whom.

A gang may have a selector of its own, so that there are as many of them as gangs. Each is kept in
the namespaces that it is about, under every label that it asks for or that it refuses, and those
that match pods are counted out, not tried one by one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from trainer_kai.api.affinity import PodAffinityTerm, TopologySpread
from trainer_kai.api.names import NAMESPACE_NAME
from trainer_kai.api.namespace import Namespace
from trainer_kai.api.selector import LabelSelector, Requirement

if TYPE_CHECKING:
    from scheduler.core.model import Ints

__all__ = ["Namespaces", "Selector", "Selectors", "all_of", "of_budget", "of_spread", "of_term"]

Need: TypeAlias = tuple[str, str, tuple[str, ...]]  # label, operator, values


_NEVER: Final[Need] = ("", "", ())  # an operator that there is not
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_FEW: Final = 16  # namespaces of which each knows a selector


class Selector(NamedTuple):
    """Pods of some namespaces, or of all, with all of this in their labels."""

    namespaces: frozenset[str] | None
    needs: tuple[Need, ...]
    only_staying: bool = False  # those that are going do not count


class Namespaces:
    """The namespaces and their labels; all of them have at least their name."""

    def __init__(self, known: Mapping[str, Namespace], others: Iterable[str]) -> None:
        self._names: Final = frozenset({*known, *others})
        self._having: Final[dict[tuple[str, str], set[str]]] = {}
        self._with_key: Final[dict[str, set[str]]] = {}
        for name in self._names:
            labels = known[name].metadata.labels if name in known else {}
            for label in {**labels, NAMESPACE_NAME: name}.items():
                self._having.setdefault(label, set()).add(name)
                self._with_key.setdefault(label[0], set()).add(name)
        self._found: Final[dict[tuple[Need, ...], frozenset[str]]] = {}

    def of(self, term: PodAffinityTerm, own: str) -> frozenset[str] | None:
        """Return in which namespaces pods are meant; None is in all."""
        chosen = term.namespace_selector
        if chosen is None:
            return frozenset(term.namespaces or (own,))
        needs = _needs(chosen)
        if not needs:
            return None
        found = self._found.get(needs)
        if found is None:
            found = self._found[needs] = self._matching(needs)
        return found.union(term.namespaces) if term.namespaces else found

    def _matching(self, needs: tuple[Need, ...]) -> frozenset[str]:
        found = self._names
        for key, operator, values in needs:
            having = set[str]().union(*(self._having.get((key, value), ()) for value in values))
            match operator:
                case "In":
                    found = found & having
                case "NotIn":
                    found = found - having
                case "Exists":
                    found = found & self._with_key.get(key, set())
                case "DoesNotExist":
                    found = found - self._with_key.get(key, set())
                case _:
                    return frozenset()
        return found


class _Filed:
    """Selectors by what they ask of labels, so that finding those that match tries none of them."""

    def __init__(self) -> None:
        self.rows: Final[list[int]] = []
        self._needed: Final[list[int]] = []  # labels that must be there
        self._having: Final[dict[tuple[str, str], list[int]]] = {}
        self._with_key: Final[dict[str, list[int]]] = {}
        self._not_having: Final[dict[tuple[str, str], list[int]]] = {}
        self._without_key: Final[dict[str, list[int]]] = {}
        self._columns: tuple[Ints, Ints] | None = None  # rows, and what is needed
        self._found: Final[dict[bytes, tuple[int, ...]]] = {}  # many pods match the same

    def keep(self, row: int, needs: tuple[Need, ...]) -> None:
        """File a selector that some pods can match."""
        number, self._columns = len(self.rows), None
        self.rows.append(row)
        self._needed.append(sum(operator in {"In", "Exists"} for _, operator, _ in needs))
        for key, operator, values in needs:
            match operator:
                case "In" | "NotIn":
                    filed = self._having if operator == "In" else self._not_having
                    for value in values:
                        filed.setdefault((key, value), []).append(number)
                case "Exists":
                    self._with_key.setdefault(key, []).append(number)
                case _:
                    self._without_key.setdefault(key, []).append(number)

    def matching(self, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows of those that match pods, in order."""
        held, refused = list[int](), list[int]()
        for label in labels.items():
            held += self._having.get(label, ())
            held += self._with_key.get(label[0], ())
            refused += self._not_having.get(label, ())
            refused += self._without_key.get(label[0], ())
        if self._columns is None:
            self._columns = np.array(self.rows), np.array(self._needed)
        rows, needed = self._columns
        is_met = np.bincount(held, minlength=len(rows)) == needed
        is_met[refused] = False
        which = np.packbits(is_met).tobytes()
        found = self._found.get(which)
        if found is None:
            found = self._found[which] = tuple(rows[is_met].tolist())
        return found


class Selectors:
    """The rows, made as they are asked for."""

    def __init__(self) -> None:
        self.rows: Final[dict[Selector, int]] = {}
        self._of_namespace: Final[dict[str, _Filed]] = {}
        self._elsewhere: Final = _Filed()  # those of many namespaces, or of all
        self._namespaces: Final[dict[int, frozenset[str]]] = {}  # of those of many

    def row(self, selector: Selector) -> int:
        """Return the row of a selector."""
        row = self.rows.get(selector)
        if row is None:
            row = self.rows[selector] = len(self.rows)
            self._keep(selector, row)
        return row

    def _keep(self, selector: Selector, row: int) -> None:
        """File a selector where pods that it may match find it, and find it once."""
        needs, namespaces = selector.needs, selector.namespaces
        if any(operator not in _OPERATORS for _, operator, _ in needs):
            return  # nobody can match it
        if namespaces is None or len(namespaces) > _FEW:
            if namespaces is not None:
                self._namespaces[row] = namespaces
            self._elsewhere.keep(row, needs)
            return
        for namespace in namespaces:
            self._of_namespace.setdefault(namespace, _Filed()).keep(row, needs)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows that match pods."""
        own = self._of_namespace.get(namespace)
        here = own.matching(labels) if own is not None else ()
        if not self._elsewhere.rows:
            return here
        found = self._elsewhere.matching(labels)
        if self._namespaces:
            found = tuple(row for row in found if self._is_meant(row, namespace))
        return tuple(sorted((*here, *found))) if here else found

    def _is_meant(self, row: int, namespace: str) -> bool:
        return row not in self._namespaces or namespace in self._namespaces[row]


def of_term(
    term: PodAffinityTerm, namespace: str, labels: Mapping[str, str], namespaces: Namespaces
) -> Selector:
    """Return whom a term of pods with these labels means."""
    needs = {*_needs_or_nobody(term.label_selector)}
    needs |= {(key, "In", (labels[key],)) for key in term.match_label_keys if key in labels}
    needs |= {(key, "NotIn", (labels[key],)) for key in term.mismatch_label_keys if key in labels}
    return Selector(namespaces.of(term, namespace), tuple(sorted(needs)))


def all_of(selectors: Iterable[Selector]) -> Selector:
    """Return whom all of some selectors mean."""
    namespaces: frozenset[str] | None = None
    needs: set[Need] = set()
    for one in selectors:
        needs.update(one.needs)
        if one.namespaces is not None:
            known = one.namespaces if namespaces is None else namespaces
            namespaces = known & one.namespaces
    return Selector(namespaces, tuple(sorted(needs)))


def of_spread(spread: TopologySpread, namespace: str, labels: Mapping[str, str]) -> Selector:
    """Return who is to lie evenly."""
    needs = {*_needs_or_nobody(spread.label_selector)}
    needs |= {(key, "In", (labels[key],)) for key in spread.match_label_keys if key in labels}
    return Selector(frozenset({namespace}), tuple(sorted(needs)), only_staying=True)


def of_budget(selector: LabelSelector | None, namespace: str) -> Selector:
    """Return whom a budget of disruption means."""
    return Selector(frozenset({namespace}), tuple(sorted({*_needs_or_nobody(selector)})))


def _needs_or_nobody(selector: LabelSelector | None) -> tuple[Need, ...]:
    """Return what must hold; an empty selector is everybody, and none at all is nobody."""
    return (_NEVER,) if selector is None else _needs(selector)


def _needs(selector: LabelSelector) -> tuple[Need, ...]:
    return tuple(sorted({*_of_labels(selector.match_labels), *_of(selector.match_expressions)}))


def _of_labels(labels: Mapping[str, str]) -> Iterator[Need]:
    for key, value in labels.items():
        yield key, "In", (value,)


def _of(wishes: Iterable[Requirement]) -> Iterator[Need]:
    for wish in wishes:
        yield wish.key, wish.operator, tuple(sorted(set(wish.values)))
