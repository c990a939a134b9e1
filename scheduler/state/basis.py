"""On what codes depend, apart from the pods that are written in them."""

from typing import NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Ints
from scheduler.state.gangs import Gangs
from scheduler.state.nodes import NodeRows
from scheduler.state.roll import THERE, WAITING, Roll
from trainer_kai.policy.ports import NodePort

__all__ = ["Basis", "Versions", "basis_of"]


class Versions(NamedTuple):
    """How often something changed of which nothing more needs to be known."""

    namespaces: int = 0
    shapes: int = 0  # too many that nobody has


class Basis(NamedTuple):
    """When it is another, codes are made anew."""

    versions: Versions
    nodes: int  # version of their names, labels and taints
    resources: frozenset[str]
    speakers: tuple[int, ...]  # kin that say something of other pods
    namespaces: frozenset[str]  # in which they may be, if anybody speaks
    ports: tuple[NodePort, ...]


def basis_of(roll: Roll, gangs: Gangs, nodes: NodeRows, heads: Ints, versions: Versions) -> Basis:
    """Return it for what is so now."""
    kins, size = roll.kins, len(heads)
    wanting = (kins.is_ours[:size] & (heads[:, WAITING] > 0)) | kins.is_foreseen[:size]
    asked = (kins.resources[code] for code in np.unique(kins.asks[:size][wanting]).tolist())
    present = _present(roll, gangs, heads, wanting)
    serials = kins.serial[:size][present & kins.speaks[:size]]
    recipes = {kins[n].recipe for n in np.flatnonzero(present & kins.has_ports[:size]).tolist()}
    if not len(serials):
        versions = versions._replace(namespaces=0)  # nobody asks for them
    return Basis(
        versions=versions,
        nodes=nodes.version,
        resources=nodes.resources.union(*asked),
        speakers=tuple(sorted(serials.tolist())),
        namespaces=frozenset(kins.namespaces) if len(serials) else frozenset(),
        ports=tuple(sorted({port for recipe in recipes for port in recipe.ports})),
    )


def _present(roll: Roll, gangs: Gangs, heads: Ints, wanting: Bools) -> Bools:
    """Return the kin that lie somewhere, want to, or are of gangs that may keep room for them."""
    kins, size = roll.kins, len(heads)
    lying = np.bincount(roll.kin[roll.node != NONE], minlength=size) > 0
    alone = kins.is_alone[:size] & heads[:, : THERE + 1].any(axis=1)
    present: Bools = lying | wanting | alone | gangs.is_listed[kins.gang[:size]]
    return present
