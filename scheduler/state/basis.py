"""On what codes depend, apart from the pods that are written in them."""

from typing import NamedTuple

from scheduler.state.crowds import Heard
from scheduler.state.kins import Kins
from scheduler.state.nodes import NodeRows

__all__ = ["Basis", "Versions", "basis_of"]


class Versions(NamedTuple):
    """How often something changed of which nothing more needs to be known."""

    namespaces: int = 0
    shapes: int = 0  # too many that nobody has


class Basis(NamedTuple):
    """When it is another, codes are made anew."""

    versions: Versions
    nodes: int  # version of their names, labels and taints
    resources: frozenset[str]  # that nodes have
    heard: Heard  # kin that say something of other pods, and ports
    namespaces: frozenset[str]  # in which they may be, if anybody speaks


def basis_of(kins: Kins, heard: Heard, nodes: NodeRows, versions: Versions) -> Basis:
    """Return it for what is so now."""
    if not heard.speakers:
        versions = versions._replace(namespaces=0)  # nobody asks for them
    return Basis(
        versions=versions,
        nodes=nodes.version,
        resources=nodes.resources,
        heard=heard,
        namespaces=frozenset(kins.namespaces) if heard.speakers else frozenset(),
    )
