"""Labels of nodes as codes, and the node selectors of pods as sets of codes.

Only labels that nodes have and pods select by get a column; as a topology key all labels that no
node has are one. A value that no node has gets no code. What all nodes satisfy is left out.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import LabelRequirement
from scheduler.core.model.resources import NONE
from trainer_kai.api.node import Node
from trainer_kai.api.selector import NodeSelector, NodeSelectorTerm, Requirement
from trainer_kai.api.storage import TopologySelectorTerm

__all__ = ["Alternatives", "NodeLabels"]

Alternatives = tuple[tuple[LabelRequirement, ...], ...]

_NAME: Final = "metadata.name"
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")
_first: Final = itemgetter(0)
_ABSENT: Final = ""  # no label is called so
_ALWAYS: Final = LabelRequirement(NONE, frozenset(), is_negated=True)  # all nodes satisfy it


class _NumericValues:
    """The values of a label that are numbers, in their order; equal answers are one set."""

    def __init__(self, codes: Mapping[str, int]) -> None:
        found = [(int(value), code) for value, code in codes.items() if _NUMBER.fullmatch(value)]
        self._numbers: Final = sorted(found)
        self._codes_between: Final[dict[tuple[int, int], frozenset[int]]] = {}

    def above(self, bound: int) -> frozenset[int]:
        """Return the codes of larger numbers."""
        return self._between(bisect_right(self._numbers, bound, key=_first), len(self._numbers))

    def below(self, bound: int) -> frozenset[int]:
        """Return the codes of smaller numbers."""
        return self._between(0, bisect_left(self._numbers, bound, key=_first))

    def _between(self, start: int, end: int) -> frozenset[int]:
        found = self._codes_between.get((start, end))
        if found is None:
            found = frozenset(code for _, code in self._numbers[start:end])
            self._codes_between[start, end] = found
        return found


class NodeLabels:
    """The columns, made as they are asked for."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes: Final = nodes
        self._columns: Final[dict[tuple[bool, str], int]] = {}
        self._codes: Final[list[dict[str, int]]] = []
        self._values: Final[list[NDArray[np.int32]]] = []
        self._names: Final = frozenset(chain.from_iterable(it.metadata.labels for it in nodes))
        self._numbers: Final[dict[int, _NumericValues]] = {}
        self._codes_present: Final[list[frozenset[int]]] = []  # codes, and NONE if a node lacks it

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return what the columns are called."""
        return tuple(name for _, name in self._columns)

    def table(self) -> NDArray[np.int32]:
        """Return the codes, [node, key]."""
        if not self._values:
            return np.zeros((len(self._nodes), 0), dtype=np.int32)
        return np.ascontiguousarray(np.stack(self._values, axis=1))

    def topology_column(self, name: str) -> int:
        """Return the column of a label by which nodes are one place."""
        return self._column(name if name in self._names else _ABSENT)

    def _column(self, name: str, *, is_field: bool = False) -> int:
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
            self._codes_present.append(frozenset(coded))
            self._values.append(np.array(coded, dtype=np.int32))
        return column

    def match_labels(self, wanted: Mapping[str, str]) -> Alternatives:
        """Translate labels that must be there."""
        return (
            self._without_trivial(self._one_of(name, (wanted[name],)) for name in sorted(wanted)),
        )

    def match_node_selector(self, selector: NodeSelector) -> Alternatives:
        """Translate terms of which one must hold; none of them is no node."""
        terms = (self._term(term) for term in selector.node_selector_terms)
        return tuple(dict.fromkeys(term for term in terms if term is not None))

    def match_topologies(self, terms: Iterable[TopologySelectorTerm]) -> Alternatives:
        """Translate where a class makes volumes."""
        return tuple(
            self._without_trivial(
                self._one_of(one.key, one.values) for one in term.match_label_expressions
            )
            for term in terms
        )

    def match_node(self, name: str) -> Alternatives:
        """Translate that it must be this node."""
        column = self._column(_NAME, is_field=True)
        return ((LabelRequirement(column, _known_codes(self._codes[column], (name,))),),)

    def match_no_node(self) -> Alternatives:
        """Return what no node has."""
        return ((LabelRequirement(self._column(_NAME, is_field=True), frozenset()),),)

    def _one_of(self, name: str, values: Iterable[str]) -> LabelRequirement:
        if name not in self._names:
            return LabelRequirement(NONE, frozenset(), name)
        column = self._column(name)
        return LabelRequirement(column, _known_codes(self._codes[column], values))

    def _without_trivial(self, needs: Iterable[LabelRequirement]) -> tuple[LabelRequirement, ...]:
        """Leave out what all nodes satisfy."""
        return tuple(it for it in needs if not self._is_trivial(it))

    def _is_trivial(self, need: LabelRequirement) -> bool:
        """Say whether all nodes satisfy a need."""
        if not need.codes:
            return need.is_negated
        return not need.is_negated and self._codes_present[need.key] <= need.codes

    def _term(self, term: NodeSelectorTerm) -> tuple[LabelRequirement, ...] | None:
        """Return what must hold; None for what cannot be meant, as a term that asks for nothing."""
        needs = tuple(self._requirements(term))
        if not needs or any(need is None for need in needs):
            return None
        return self._without_trivial(need for need in needs if need is not None)

    def _requirements(self, term: NodeSelectorTerm) -> Iterator[LabelRequirement | None]:
        for expression in term.match_expressions:
            known = expression.key in self._names
            yield (
                self._requirement(self._column(expression.key), expression)
                if known
                else _requirement_of_absent(expression)
            )
        for expression in term.match_fields:
            if expression.key == _NAME and expression.operator in {"In", "NotIn"}:
                yield self._requirement(self._column(_NAME, is_field=True), expression)
            else:
                yield None

    def _requirement(self, column: int, expression: Requirement) -> LabelRequirement | None:
        codes = self._codes[column]
        match expression.operator:
            case "In":
                return LabelRequirement(column, _known_codes(codes, expression.values))
            case "NotIn":
                return LabelRequirement(
                    column, _known_codes(codes, expression.values), is_negated=True
                )
            case "Exists":
                return LabelRequirement(column, frozenset({NONE}), is_negated=True)
            case "DoesNotExist":
                return LabelRequirement(column, frozenset({NONE}))
            case "Gt" | "Lt":
                return self._comparison(column, expression)
        return None

    def _comparison(self, column: int, expression: Requirement) -> LabelRequirement | None:
        bound = _bound_value(expression)
        if bound is None:
            return None
        known = self._numbers.get(column)
        if known is None:
            known = self._numbers[column] = _NumericValues(self._codes[column])
        return LabelRequirement(
            column, known.above(bound) if expression.operator == "Gt" else known.below(bound)
        )


def _requirement_of_absent(expression: Requirement) -> LabelRequirement | None:
    """Translate what is asked of a label that no node has; None for what cannot be meant."""
    match expression.operator:
        case "NotIn" | "DoesNotExist":
            return _ALWAYS
        case "Gt" | "Lt" if _bound_value(expression) is None:
            return None
        case "In" | "Exists" | "Gt" | "Lt":
            return LabelRequirement(NONE, frozenset(), expression.key)
    return None


def _bound_value(expression: Requirement) -> int | None:
    """Return the number to compare with; None for what is no number."""
    if len(expression.values) != 1 or not _NUMBER.fullmatch(expression.values[0]):
        return None
    return int(expression.values[0])


def _known_codes(codes: Mapping[str, int], values: Iterable[str]) -> frozenset[int]:
    return frozenset(codes[value] for value in values if value in codes)
