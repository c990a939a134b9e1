"""Selectors of objects by their labels, and of nodes also by fields."""

from collections.abc import Mapping

import msgspec


class Requirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One key, an operator (In, NotIn, Exists, DoesNotExist; for nodes Gt and Lt too), values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """All requirements must hold; an empty selector matches all objects, a missing one none."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """All requirements must hold; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """At least one term must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()
