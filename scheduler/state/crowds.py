"""Pods that speak of other pods or take host ports, and for which their namespace says too much.

Of a namespace so many terms and host ports are looked at: of pods on nodes first, then of the
oldest. The order is kept from one snapshot to the next, and only where a kin has changed it is
looked through again, as far as the bound.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Bools, Ints
from scheduler.state.kin import Kin, Recipe
from scheduler.state.roll import Roll
from trainer_kai.policy.podbounds import MOST_OF_NAMESPACE
from trainer_kai.policy.ports import NodePort

__all__ = ["Crowds", "Heard", "too_much"]

_FIELDS: Final = "spec.affinity, spec.topologySpreadConstraints and spec.containers[*].ports"
_ONCE: Final = "(equal pods count once)"
_SPEAK: Final = "terms that speak of other pods"


class Heard(NamedTuple):
    """What is looked at: serials of the kin that have terms, and all host ports."""

    speakers: tuple[int, ...] = ()
    ports: tuple[NodePort, ...] = ()


class _Tally:
    """How many different terms and host ports some kin have together."""

    def __init__(self) -> None:
        self._known: Final[set[Recipe]] = set()
        self._ports: Final[set[NodePort]] = set()
        self.terms = 0

    def add(self, kin: Kin) -> None:
        recipe = kin.recipe
        if recipe not in self._known or recipe.has_label_keys:
            self.terms += recipe.terms
        self._known.add(recipe)
        self._ports.update(recipe.ports)

    @property
    def ports(self) -> int:
        return len(self._ports)

    @property
    def is_too_much(self) -> bool:
        return self.terms + len(self._ports) > MOST_OF_NAMESPACE


class _Crowd:
    """The kin of one namespace, by number: the first first, as far as that is known."""

    def __init__(self) -> None:
        self._kins: dict[int, tuple[Kin, tuple[object, ...] | None]] = {}
        self._most = 0  # terms and ports, if no two of them were alike
        self.left_out: list[int] = []

    def __len__(self) -> int:
        return len(self._kins)

    def enter(self, number: int, kin: Kin) -> None:
        """Take a kin, whose place is not known yet."""
        self._kins[number] = kin, None
        self._most += _size(kin)

    def leave(self, number: int) -> None:
        """Forget a kin."""
        self._most -= _size(self._kins.pop(number)[0])

    def choose(self, roll: Roll, lying: Bools) -> None:
        """Find who is left out: the kin with which it is too much, and all behind it."""
        self.left_out = []
        if self._most <= MOST_OF_NAMESPACE:
            return
        for number, (kin, place) in self._kins.items():
            if place is None:
                self._kins[number] = kin, _place(kin, roll, is_lying=bool(lying[number]))
        line = [(place, number, kin) for number, (kin, place) in self._kins.items()]
        line.sort(key=itemgetter(0))  # it is in order but for what is new
        self._kins = {number: (kin, place) for place, number, kin in line}
        tally = _Tally()
        for at, (_, _, kin) in enumerate(line):
            tally.add(kin)
            if tally.is_too_much:
                self.left_out = [number for _, number, _ in line[at:]]
                return


class Crowds:
    """Of all namespaces; who is left out is a column of the kin."""

    def __init__(self, roll: Roll) -> None:
        self._roll: Final = roll
        self._crowds: Final[dict[str, _Crowd]] = {}
        self._known: Final[dict[int, Kin]] = {}  # by number, also where another has it by now
        self._states: Ints = np.zeros(0, dtype=np.int64)  # [kin]: who it is and whether it lies
        self.heard = Heard()

    def read(self, present: Bools, lying: Bools) -> list[int]:
        """Take which kin are there; return those that are left out now or no longer."""
        kins, size = self._roll.kins, len(present)
        speaks = (kins.speaks[:size] | kins.has_ports[:size]) & ~kins.is_excessive[:size]
        states = np.where(present & speaks, 2 * kins.serial[:size] + lying, NONE)
        changed = self._changed(states)
        if not len(changed):
            return []
        self._states = states
        namespaces: dict[str, None] = {}
        for number in changed.tolist():
            namespaces.update(dict.fromkeys(self._take(number, is_there=states[number] != NONE)))
        for namespace in namespaces:
            crowd = self._crowds[namespace]
            crowd.choose(self._roll, lying)
            if not len(crowd):
                del self._crowds[namespace]
        return self._leave_out(states != NONE)

    def _changed(self, states: Ints) -> NDArray[np.intp]:
        """Return the numbers of kin that are others, or whose oldest pod may be another."""
        before = np.full(len(states), NONE, dtype=np.int64)
        before[: len(self._states)] = self._states
        is_other = states != before
        touched = [kin.number for kin in self._roll.touched]
        is_other[touched] |= states[touched] != NONE
        return np.flatnonzero(is_other)

    def _take(self, number: int, *, is_there: bool) -> Iterable[str]:
        """Take the kin that has a number now; yield the namespaces that it concerns."""
        before = self._known.pop(number, None)
        if before is not None:
            self._crowds[before.namespace].leave(number)
            yield before.namespace
        if is_there:
            kin = self._known[number] = self._roll.kins[number]
            self._crowds.setdefault(kin.namespace, _Crowd()).enter(number, kin)
            yield kin.namespace

    def _leave_out(self, is_there: Bools) -> list[int]:
        kins, size = self._roll.kins, len(is_there)
        left_out = np.zeros(size, dtype=np.bool_)
        for crowd in self._crowds.values():
            left_out[crowd.left_out] = True
        moved: list[int] = np.flatnonzero(left_out != kins.is_left_out[:size]).tolist()
        kins.is_left_out[:size] = left_out
        heard = [self._known[number] for number in np.flatnonzero(is_there & ~left_out).tolist()]
        ports = {port for recipe in {kin.recipe for kin in heard} for port in recipe.ports}
        self.heard = Heard(
            speakers=tuple(sorted(kin.serial for kin in heard if kin.recipe.terms)),
            ports=tuple(sorted(ports)),
        )
        return [number for number in moved if kins.is_known(number)]


def too_much(namespace: str, kins: Iterable[Kin]) -> str:
    """Return what to tell a PodGroup whose pods are left out; *kins* are all of its pods."""
    own = _Tally()
    for kin in kins:
        own.add(kin)
    if own.is_too_much:
        return (
            f"the PodGroup has {own.terms} different {_SPEAK} and {own.ports} host ports, of a"
            f" namespace ({namespace}) at most {MOST_OF_NAMESPACE} are looked at together: as it is"
            f" it never has its turn. Name at most {MOST_OF_NAMESPACE} in {_FIELDS} of its pods"
            f" {_ONCE}, or make several PodGroups that start one after another"
        )
    return (
        f"the pods of namespace {namespace} have more than {MOST_OF_NAMESPACE} different {_SPEAK}"
        f" and host ports together; the PodGroup has {own.terms} terms and {own.ports} host ports"
        " of its own, and older ones come first. It has its turn when older ones are gone, or when"
        f" pods of the namespace have fewer of them in {_FIELDS} {_ONCE}"
    )


def _size(kin: Kin) -> int:
    return kin.recipe.terms + len(kin.recipe.ports)


def _place(kin: Kin, roll: Roll, *, is_lying: bool) -> tuple[object, ...]:
    """Return what orders kin: the age tells them apart, but for pods that are not there yet."""
    if kin.slots:
        return not is_lying, False, roll.age(roll.first(kin))
    return not is_lying, True, (), kin.recipe.text, sorted(kin.labels.items())
