"""Which pods are meant by their labels: selectors as rows, and which of them match whom.

A gang may have a selector of its own, so that there are as many of them as gangs. Each is kept
under the labels of which it asks for one, or under the key that it asks for, and pods are only
tried against those that ask for one of theirs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from trainer_kai.api.affinity import PodAffinityTerm, TopologySpread
from trainer_kai.api.names import NAMESPACE_NAME
from trainer_kai.api.namespace import Namespace
from trainer_kai.api.selector import LabelSelector, Requirement

__all__ = ["Namespaces", "Selector", "Selectors", "all_of", "of_budget", "of_spread", "of_term"]

Need: TypeAlias = tuple[str, str, tuple[str, ...]]  # label, operator, values


_NEVER: Final[Need] = ("", "", ())  # an operator that there is not


class Selector(NamedTuple):
    """Pods of some namespaces, or of all, with all of this in their labels."""

    namespaces: frozenset[str] | None
    needs: tuple[Need, ...]
    only_staying: bool = False  # those that are going do not count

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Say whether pods are meant."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return all(_holds(need, labels) for need in self.needs)


class Namespaces:
    """The namespaces and their labels; all of them have at least their name."""

    def __init__(self, known: Mapping[str, Namespace], others: Iterable[str]) -> None:
        names = sorted({*known, *others})
        self._labels: Final = {
            name: {**(known[name].metadata.labels if name in known else {}), NAMESPACE_NAME: name}
            for name in names
        }

    def of(self, term: PodAffinityTerm, own: str) -> frozenset[str] | None:
        """Return in which namespaces pods are meant; None is in all."""
        chosen = term.namespace_selector
        if chosen is None:
            return frozenset(term.namespaces or (own,))
        needs = _needs(chosen)
        if not needs:
            return None
        found = (
            name
            for name, labels in self._labels.items()
            if all(_holds(need, labels) for need in needs)
        )
        return frozenset({*term.namespaces, *found})


class Selectors:
    """The rows, made as they are asked for."""

    def __init__(self) -> None:
        self.rows: Final[dict[Selector, int]] = {}
        self._by_label: Final[dict[tuple[str, str], list[Selector]]] = {}
        self._by_key: Final[dict[str, list[Selector]]] = {}
        self._others: Final[list[Selector]] = []

    def row(self, selector: Selector) -> int:
        """Return the row of a selector."""
        row = self.rows.get(selector)
        if row is None:
            row = self.rows[selector] = len(self.rows)
            self._keep(selector)
        return row

    def _keep(self, selector: Selector) -> None:
        """File a selector where pods that it may match find it, and find it once."""
        need = min(selector.needs, key=_width, default=None)
        match need:
            case (key, "In", values):
                for value in values:
                    self._by_label.setdefault((key, value), []).append(selector)
            case (key, "Exists", _):
                self._by_key.setdefault(key, []).append(selector)
            case _:
                self._others.append(selector)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the rows that match pods."""
        if not self.rows:
            return ()
        tried = list(self._others)
        for label in labels.items():
            tried += self._by_label.get(label, ())
            tried += self._by_key.get(label[0], ())
        return tuple(sorted(self.rows[one] for one in tried if one.matches(namespace, labels)))


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


def _holds(need: Need, labels: Mapping[str, str]) -> bool:
    key, operator, values = need
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False


def _width(need: Need) -> tuple[int, int]:
    """Return how much a need lets through, roughly: few values, one key, everything else."""
    _, operator, values = need
    return {"In": (0, len(values)), "Exists": (1, 0)}.get(operator, (2, 0))
