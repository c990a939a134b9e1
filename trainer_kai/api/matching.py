"""Which labels a selector accepts, and which taints a toleration tolerates, as in Kubernetes.

The one place that knows the operators. A requirement becomes the set of label values that it
accepts, so that a caller can test one object, or translate the set into an index over many. The
API server refuses unknown operators; where one is read all the same, it accepts nothing.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from trainer_kai.api.cluster_kinds import Taint
from trainer_kai.api.meta import LabelSelector, NodeSelectorTerm, Requirement
from trainer_kai.api.pod import Toleration

_NODE_NAME: Final = "metadata.name"  # the only field of nodes by which pods select them
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")


class ValueSet(NamedTuple):
    """The values of a label that a requirement accepts; None, always alone, is an absent label."""

    values: frozenset[str | None]
    is_negated: bool = False  # accepts all but these; so an absent label, too, if it is not here

    def accepts(self, value: str | None) -> bool:
        return (value in self.values) != self.is_negated


class ValueRange(NamedTuple):
    """The values of a label that are whole numbers above a bound, or below it."""

    bound: int
    is_above: bool

    def accepts(self, value: str | None) -> bool:
        number = None if value is None else label_number(value)
        if number is None:
            return False
        return number > self.bound if self.is_above else number < self.bound


class LabelRule(NamedTuple):
    """A label of any object, and the values that it may have."""

    key: str
    accepted: ValueSet


class NodeRule(NamedTuple):
    """A label of a node, or its name where *key* is None, and the values that it may have."""

    key: str | None
    accepted: ValueSet | ValueRange


_ABSENT: Final[frozenset[str | None]] = frozenset({None})
UNSATISFIABLE: Final = LabelRule("", ValueSet(frozenset()))  # no object satisfies it


def label_rules(selector: LabelSelector | None) -> frozenset[LabelRule]:
    """Return the rules that labels must satisfy, all of them.

    An empty selector has none, and matches all objects; a missing one matches none.
    """
    return frozenset({UNSATISFIABLE} if selector is None else _label_rules(selector))


def _label_rules(selector: LabelSelector) -> Iterator[LabelRule]:
    for key, value in selector.match_labels.items():
        yield LabelRule(key, ValueSet(frozenset({value})))
    for it in selector.match_expressions:
        accepted = accepted_values(it.operator, it.values)
        yield UNSATISFIABLE if accepted is None else LabelRule(it.key, accepted)


def node_rules(term: NodeSelectorTerm) -> tuple[NodeRule, ...] | None:
    """Return the rules that a node must satisfy, all of them.

    None if the term is empty, or any part of it is invalid: then it matches no node.
    """
    rules = [*map(_node_label_rule, term.match_expressions), *map(_name_rule, term.match_fields)]
    valid = tuple(rule for rule in rules if rule is not None)
    return valid if valid and len(valid) == len(rules) else None


def _node_label_rule(requirement: Requirement) -> NodeRule | None:
    accepted: ValueSet | ValueRange | None
    if requirement.operator in {"Gt", "Lt"}:
        bound = label_number(requirement.values[0]) if len(requirement.values) == 1 else None
        accepted = None if bound is None else ValueRange(bound, requirement.operator == "Gt")
    else:
        accepted = accepted_values(requirement.operator, requirement.values)
    return None if accepted is None else NodeRule(requirement.key, accepted)


def _name_rule(requirement: Requirement) -> NodeRule | None:
    if requirement.key != _NODE_NAME or requirement.operator not in {"In", "NotIn"}:
        return None
    accepted = accepted_values(requirement.operator, requirement.values)
    return None if accepted is None else NodeRule(None, accepted)


def accepted_values(operator: str, values: Iterable[str]) -> ValueSet | None:
    """Return the values that a requirement accepts; None if its operator is unknown."""
    match operator:
        case "In":
            return ValueSet(frozenset(values))
        case "NotIn":
            return ValueSet(frozenset(values), is_negated=True)
        case "Exists":
            return ValueSet(_ABSENT, is_negated=True)
        case "DoesNotExist":
            return ValueSet(_ABSENT)
    return None


def label_number(value: str) -> int | None:
    """Return a label value as a whole number of at most 64 bits; None if it is something else."""
    return int(value) if _NUMBER.fullmatch(value) else None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    match toleration.operator:
        case "Exists":
            return toleration.key in {"", taint.key}
        case "" | "Equal":
            return (toleration.key, toleration.value) == (taint.key, taint.value)
    return False
