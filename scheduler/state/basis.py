"""On what codes depend, apart from the pods that are written in them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scheduler.core.model import NONE, Bools, Ints
from scheduler.state.gangs import Gangs
from scheduler.state.kin import Kin, Recipe
from scheduler.state.nodes import NodeRows
from scheduler.state.roll import THERE, WAITING, Roll
from trainer_kai.policy.podbounds import MOST_OF_NAMESPACE
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
    resources: frozenset[str]  # that nodes have
    speakers: tuple[int, ...]  # kin that say something of other pods
    crowded_out: frozenset[int]  # kin that would, if older ones of their namespace said less
    namespaces: frozenset[str]  # in which they may be, if anybody speaks
    ports: tuple[NodePort, ...]


def basis_of(roll: Roll, gangs: Gangs, nodes: NodeRows, heads: Ints, versions: Versions) -> Basis:
    """Return it for what is so now."""
    kins, size = roll.kins, len(heads)
    lying = np.bincount(roll.kin[roll.node != NONE], minlength=size) > 0
    is_meant = _present(roll, gangs, heads, lying) & ~kins.is_excessive[:size]
    is_meant &= kins.speaks[:size] | kins.has_ports[:size]
    heard = [kins[number] for number in np.flatnonzero(is_meant).tolist()]
    crowded_out = frozenset(kin.serial for kin in _crowded_out(heard, roll, lying))
    heard = [kin for kin in heard if kin.serial not in crowded_out]
    speakers = tuple(sorted(kin.serial for kin in heard if kin.recipe.terms))
    recipes = {kin.recipe for kin in heard}
    if not speakers:
        versions = versions._replace(namespaces=0)  # nobody asks for them
    return Basis(
        versions=versions,
        nodes=nodes.version,
        resources=nodes.resources,
        speakers=speakers,
        crowded_out=crowded_out,
        namespaces=frozenset(kins.namespaces) if speakers else frozenset(),
        ports=tuple(sorted({port for recipe in recipes for port in recipe.ports})),
    )


def _present(roll: Roll, gangs: Gangs, heads: Ints, lying: Bools) -> Bools:
    """Return the kin that lie somewhere, want to, or are of gangs that may keep room for them."""
    kins, size = roll.kins, len(heads)
    wanting = (kins.is_ours[:size] & (heads[:, WAITING] > 0)) | kins.is_foreseen[:size]
    alone = kins.is_alone[:size] & heads[:, : THERE + 1].any(axis=1)
    present: Bools = lying | wanting | alone | gangs.is_listed[kins.gang[:size]]
    return present


def _crowded_out(heard: list[Kin], roll: Roll, lying: Bools) -> Iterator[Kin]:
    """Yield those for whom their namespace says too much: the newest, and rather who waits."""
    of_namespace: dict[str, list[Kin]] = {}
    for kin in heard:
        of_namespace.setdefault(kin.namespace, []).append(kin)
    for kins in of_namespace.values():
        most = sum(kin.recipe.terms + len(kin.recipe.ports) for kin in kins)
        if most > MOST_OF_NAMESPACE:
            yield from _beyond(sorted(kins, key=lambda kin: _place(kin, roll, lying)))


def _beyond(kins: list[Kin]) -> list[Kin]:
    """Return those with whom different terms and ports are too many, and all behind them."""
    known: set[Recipe] = set()
    ports: set[NodePort] = set()
    terms = 0
    for at, kin in enumerate(kins):
        recipe = kin.recipe
        if recipe not in known or recipe.has_label_keys:
            terms += recipe.terms
        known.add(recipe)
        ports.update(recipe.ports)
        if terms + len(ports) > MOST_OF_NAMESPACE:
            return kins[at:]
    return []


def _place(kin: Kin, roll: Roll, lying: Bools) -> tuple[object, ...]:
    age = roll.age(roll.first(kin)) if kin.slots else ()
    return not lying[kin.number], not kin.slots, age, kin.recipe.text, sorted(kin.labels.items())
