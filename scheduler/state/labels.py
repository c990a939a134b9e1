"""Labels of nodes as codes, and what pods ask of them as sets of codes.

Only labels that somebody asks for get a column. A value that no node has gets no code: asking for
it is asking for nothing that there is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Require
from trainer_kai.api.node import Node
from trainer_kai.api.selector import NodeSelector, NodeSelectorTerm, Requirement
from trainer_kai.api.storage import TopologySelectorTerm

__all__ = ["Alternatives", "NodeLabels"]

Alternatives = tuple[tuple[Require, ...], ...]

_NAME: Final = "metadata.name"
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")


class NodeLabels:
    """The columns, made as they are asked for."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes: Final = nodes
        self._columns: Final[dict[tuple[bool, str], int]] = {}
        self._codes: Final[list[dict[str, int]]] = []
        self._values: Final[list[NDArray[np.int32]]] = []

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return what the columns are called."""
        return tuple(name for _, name in self._columns)

    def table(self) -> NDArray[np.int32]:
        """Return the codes, [node, key]."""
        if not self._values:
            return np.zeros((len(self._nodes), 0), dtype=np.int32)
        return np.ascontiguousarray(np.stack(self._values, axis=1))

    def key(self, name: str, *, is_field: bool = False) -> int:
        """Return the column of a label, or of the name of the node itself."""
        column = self._columns.get((is_field, name))
        if column is None:
            column = self._columns[is_field, name] = len(self._values)
            if is_field:
                values: list[str | None] = [node.metadata.name for node in self._nodes]
            else:
                values = [node.metadata.labels.get(name) for node in self._nodes]
            known = sorted({value for value in values if value is not None})
            codes = {value: code for code, value in enumerate(known)}
            self._codes.append(codes)
            coded = [NONE if value is None else codes[value] for value in values]
            self._values.append(np.array(coded, dtype=np.int32))
        return column

    def of_map(self, wanted: Mapping[str, str]) -> Alternatives:
        """Translate labels that must be there."""
        return (tuple(self._one_of(name, (wanted[name],)) for name in sorted(wanted)),)

    def of_selector(self, selector: NodeSelector) -> Alternatives:
        """Translate terms of which one must hold; none of them is no node."""
        terms = (self._term(term) for term in selector.node_selector_terms)
        return tuple(dict.fromkeys(term for term in terms if term is not None))

    def of_topologies(self, terms: Iterable[TopologySelectorTerm]) -> Alternatives:
        """Translate where a class makes volumes."""
        return tuple(
            tuple(self._one_of(one.key, one.values) for one in term.match_label_expressions)
            for term in terms
        )

    def at_node(self, name: str) -> Alternatives:
        """Translate that it must be this node."""
        column = self.key(_NAME, is_field=True)
        return ((Require(column, _some(self._codes[column], (name,))),),)

    def nowhere(self) -> Alternatives:
        """Return what no node has."""
        return ((Require(self.key(_NAME, is_field=True), frozenset()),),)

    def _one_of(self, name: str, values: Iterable[str]) -> Require:
        column = self.key(name)
        return Require(column, _some(self._codes[column], values))

    def _term(self, term: NodeSelectorTerm) -> tuple[Require, ...] | None:
        """Return what must hold; None for what cannot be meant, as a term that asks for nothing."""
        needs = tuple(self._needs(term))
        if not needs or any(need is None for need in needs):
            return None
        return tuple(need for need in needs if need is not None)

    def _needs(self, term: NodeSelectorTerm) -> Iterator[Require | None]:
        for wish in term.match_expressions:
            yield self._need(self.key(wish.key), wish)
        for wish in term.match_fields:
            if wish.key == _NAME and wish.operator in {"In", "NotIn"}:
                yield self._need(self.key(_NAME, is_field=True), wish)
            else:
                yield None

    def _need(self, column: int, wish: Requirement) -> Require | None:
        codes = self._codes[column]
        match wish.operator:
            case "In":
                return Require(column, _some(codes, wish.values))
            case "NotIn":
                left = frozenset(codes.values()) - _some(codes, wish.values)
                return Require(column, left | {NONE})
            case "Exists":
                return Require(column, frozenset(codes.values()))
            case "DoesNotExist":
                return Require(column, frozenset({NONE}))
            case "Gt" | "Lt":
                return _compared(column, codes, wish)
        return None


def _some(codes: Mapping[str, int], values: Iterable[str]) -> frozenset[int]:
    return frozenset(codes[value] for value in values if value in codes)


def _compared(column: int, codes: Mapping[str, int], wish: Requirement) -> Require | None:
    if len(wish.values) != 1 or not _NUMBER.fullmatch(wish.values[0]):
        return None
    bound, sign = int(wish.values[0]), 1 if wish.operator == "Gt" else -1
    return Require(
        column,
        frozenset(
            code
            for value, code in codes.items()
            if _NUMBER.fullmatch(value) and (int(value) - bound) * sign > 0
        ),
    )
