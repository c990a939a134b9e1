"""On what codes depend, apart from the pods that are written in them."""

from typing import NamedTuple

from scheduler.state.crowds import ConsideredConstraints
from scheduler.state.kins import PodClassTable
from scheduler.state.nodes import NodeTable

__all__ = ["EncodingGenerations", "EncodingKey", "current_encoding_key"]


class EncodingGenerations(NamedTuple):
    """How often something changed of which nothing more needs to be known."""

    namespaces: int = 0
    signatures: int = 0  # too many that nobody has


class EncodingKey(NamedTuple):
    """When it is another, codes are made anew."""

    generations: EncodingGenerations
    nodes: int  # version of their names, labels and taints
    resources: frozenset[str]  # that nodes have
    considered: ConsideredConstraints  # kin that say something of other pods, and ports
    namespaces: frozenset[str]  # in which they may be, if anybody speaks


def current_encoding_key(
    class_table: PodClassTable,
    considered: ConsideredConstraints,
    nodes: NodeTable,
    generations: EncodingGenerations,
) -> EncodingKey:
    """Return it for what is so now."""
    if not considered.term_classes:
        generations = generations._replace(namespaces=0)  # nobody asks for them
    return EncodingKey(
        generations=generations,
        nodes=nodes.version,
        resources=nodes.resources,
        considered=considered,
        namespaces=frozenset(class_table.namespaces) if considered.term_classes else frozenset(),
    )
