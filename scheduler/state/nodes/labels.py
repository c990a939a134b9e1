"""Labels of nodes as codes, and the node selectors of pods as sets of codes.

Only labels that nodes have and pods select by get a column; as topology keys, all labels that no
node has share one column. A value that no node has gets no code. A requirement that all nodes
satisfy is left out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import LabelRequirement
from scheduler.core.model.resources import NONE
from trainer_kai.api.cluster_kinds import Node, TopologySelectorTerm
from trainer_kai.api.matching import NodeRule, ValueRange, label_number, node_rules
from trainer_kai.api.meta import NodeSelector, NodeSelectorTerm
from trainer_kai.api.text import first_listed

Alternatives = tuple[tuple[LabelRequirement, ...], ...]

_NAME: Final = "metadata.name"
_MAX_VALUE: Final = 63  # characters of a value that is named; the API server limits those of labels
_first: Final = itemgetter(0)
_ABSENT: Final = ""  # no label has this name
_ALWAYS: Final = LabelRequirement(NONE, frozenset(), is_negated=True)  # all nodes satisfy it


class _NumericValues:
    """The values of a label that are numbers, in their order; equal results are one set."""

    def __init__(self, codes: Mapping[str, int]) -> None:
        numbers = ((label_number(value), code) for value, code in codes.items())
        self._numbers: Final = sorted(
            (number, code) for number, code in numbers if number is not None
        )
        self._codes_between: Final[dict[tuple[int, int], frozenset[int]]] = {}

    def above(self, bound: int) -> frozenset[int]:
        return self._between(bisect_right(self._numbers, bound, key=_first), len(self._numbers))

    def below(self, bound: int) -> frozenset[int]:
        return self._between(0, bisect_left(self._numbers, bound, key=_first))

    def _between(self, start: int, end: int) -> frozenset[int]:
        codes = self._codes_between.get((start, end))
        if codes is None:
            codes = frozenset(code for _, code in self._numbers[start:end])
            self._codes_between[start, end] = codes
        return codes


class NodeLabels:
    """The label columns, each added when a selector first uses it."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes: Final = nodes
        self._columns: Final[dict[tuple[bool, str], int]] = {}
        self._codes: Final[list[dict[str, int]]] = []
        self._values: Final[list[NDArray[np.int32]]] = []
        self._names: Final = frozenset(chain.from_iterable(it.metadata.labels for it in nodes))
        self._numbers: Final[dict[int, _NumericValues]] = {}
        self._codes_present: Final[list[frozenset[int]]] = []  # with NONE if a node lacks the label

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self._columns)

    @property
    def key_values(self) -> tuple[Mapping[str, int], ...]:
        return tuple(self._codes)

    def table(self) -> NDArray[np.int32]:
        """Return the codes, [node, key]."""
        if not self._values:
            return np.zeros((len(self._nodes), 0), dtype=np.int32)
        return np.ascontiguousarray(np.stack(self._values, axis=1))

    def topology_column(self, name: str) -> int:
        """Return the column of a topology key: nodes with the same value are one domain."""
        return self._column(name if name in self._names else _ABSENT)

    def _column(self, name: str, *, is_field: bool = False) -> int:
        """Return the column of a label, or of the node name for a field."""
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
        return (
            self._without_trivial(self._one_of(name, (wanted[name],)) for name in sorted(wanted)),
        )

    def match_present(self, name: str) -> Alternatives:
        if name not in self._names:
            return ((LabelRequirement(NONE, frozenset(), name),),)
        column = self._column(name)
        codes = frozenset(range(len(self._codes[column])))
        return (self._without_trivial([LabelRequirement(column, codes)]),)

    def match_node_selector(self, selector: NodeSelector) -> Alternatives:
        """Translate node selector terms: one must match; without terms no node matches."""
        terms = (self._term(term) for term in selector.node_selector_terms)
        return tuple(dict.fromkeys(term for term in terms if term is not None))

    def match_topologies(self, terms: Iterable[TopologySelectorTerm]) -> Alternatives:
        """Translate the topologies in which a storage class creates volumes."""
        return tuple(
            self._without_trivial(
                self._one_of(one.key, one.values) for one in term.match_label_expressions
            )
            for term in terms
        )

    def match_node(self, name: str) -> Alternatives:
        column = self._column(_NAME, is_field=True)
        return ((LabelRequirement(column, _known_codes(self._codes[column], (name,))),),)

    def match_no_node(self) -> Alternatives:
        return ((LabelRequirement(self._column(_NAME, is_field=True), frozenset()),),)

    def _one_of(self, name: str, values: Iterable[str]) -> LabelRequirement:
        if name not in self._names:
            return LabelRequirement(NONE, frozenset(), _with_values(name, values))
        column = self._column(name)
        codes = _known_codes(self._codes[column], values)
        return LabelRequirement(column, codes, "" if codes else _with_values(name, values))

    def _without_trivial(
        self, requirements: Iterable[LabelRequirement]
    ) -> tuple[LabelRequirement, ...]:
        return tuple(it for it in requirements if not self._is_trivial(it))

    def _is_trivial(self, requirement: LabelRequirement) -> bool:
        if not requirement.codes:
            return requirement.is_negated
        present = self._codes_present[requirement.key]
        return not requirement.is_negated and present <= requirement.codes

    def _term(self, term: NodeSelectorTerm) -> tuple[LabelRequirement, ...] | None:
        rules = node_rules(term)
        return None if rules is None else self._without_trivial(map(self._requirement, rules))

    def _requirement(self, rule: NodeRule) -> LabelRequirement:
        if rule.key is None:
            column = self._column(_NAME, is_field=True)
        elif rule.key in self._names:
            column = self._column(rule.key)
        elif rule.accepted.accepts(None):
            return _ALWAYS
        else:
            return LabelRequirement(NONE, frozenset(), _wanted_by(rule))
        if isinstance(rule.accepted, ValueRange):
            return LabelRequirement(column, self._codes_in(rule.accepted, column))
        codes, is_negated = (
            _known_codes(self._codes[column], rule.accepted.values),
            rule.accepted.is_negated,
        )
        wanted = "" if codes or is_negated else _wanted_by(rule)
        return LabelRequirement(column, codes, wanted, is_negated)

    def _codes_in(self, accepted: ValueRange, column: int) -> frozenset[int]:
        known = self._numbers.get(column)
        if known is None:
            known = self._numbers[column] = _NumericValues(self._codes[column])
        return known.above(accepted.bound) if accepted.is_above else known.below(accepted.bound)


def _wanted_by(rule: NodeRule) -> str:
    name = _NAME if rule.key is None else rule.key
    if isinstance(rule.accepted, ValueRange) or rule.accepted.is_negated:
        return name
    return _with_values(name, filter(None, rule.accepted.values))


def _with_values(name: str, values: Iterable[str]) -> str:
    """Return a label and what a pod wants there, which no node has."""
    named = first_listed((it[:_MAX_VALUE] for it in sorted(values)), between=" or ")
    return f"{name}={named}" if named else name


def _known_codes(codes: Mapping[str, int], values: Iterable[str | None]) -> frozenset[int]:
    """Return the codes of values; an absent label has the code NONE, in all columns."""
    return frozenset(
        NONE if value is None else codes[value]
        for value in values
        if value is None or value in codes
    )
