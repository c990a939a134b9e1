"""The way back: from the rows of a plan to the names of what is to be done."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scheduler.core.decision import Admission, BarNumbers, Placing, Plan, Rejection, Reservation
from scheduler.core.model import NONE, Cause, Leaf, PodState, Verdict, leaves_of
from scheduler.state.departures import Departure, departure_of, slots_of, together
from scheduler.state.encode import Encoded
from scheduler.state.reserved import SlotAt, coming_back, write_reserved
from trainer_kai.api.meta import Key

__all__ = ["Hold", "Orders", "PodAt", "Refused", "UnitOrders", "read_orders"]


class PodAt(NamedTuple):
    """A pod, and the node that it gets or is promised."""

    pod: Key
    node: str


class Hold(NamedTuple):
    """Slots that are held from now on for pods that do not exist."""

    group: Key
    sub_group: str
    node: str
    number: int
    cause: str


class Refused(NamedTuple):
    """A group that waits."""

    group: Key
    verdict: Verdict
    rejection: Rejection


class UnitOrders(NamedTuple):
    """What is done for one unit: hold, then bind and promise, then have others go, and let go."""

    group: Key  # of a pod that is on its own: a name that no group has
    hold: str | None  # the annotation, with the slots that are new; None leaves it as it is
    binds: tuple[PodAt, ...]
    nominations: tuple[PodAt, ...]  # "" takes back what was promised
    let_go: str | None  # the annotation at the end, where that is another
    departures: tuple[Departure, ...] = ()  # that make room for what is promised
    uids: tuple[str, ...] = ()  # of the pods that are promised something, once it is assumed


@dataclass(frozen=True)
class Orders:
    """What a plan comes to."""

    binds: tuple[PodAt, ...]
    nominations: tuple[PodAt, ...]
    reservations: tuple[Hold, ...]
    unschedulable: tuple[Refused, ...]
    reserved: dict[Key, str]  # by group: the annotation, where it must be another; "" is none
    units: tuple[UnitOrders, ...]  # the same, by unit, in the order in which it was decided
    departures: tuple[Departure, ...] = ()


def read_orders(encoded: Encoded, plan: Plan) -> Orders:
    """Return what to do by names, in the order in which it was decided."""
    nodes = encoded.snapshot.nodes.names
    binds, nominations, reservations = [], [], []
    for admission in plan.decisions:
        group = encoded.units[admission.unit]
        binds += [PodAt(encoded.pods[pod], nodes[node]) for pod, node in admission.binds]
        nominations += [PodAt(encoded.pods[pod], nodes[n]) for pod, n in admission.nominations]
        reservations += [_hold(group, one, nodes) for one in admission.reservations]
    for move in plan.moves:
        reservations += [_hold(encoded.units[move.unit], one, nodes) for one in move.slots]
    refused = {
        encoded.units[it.unit]: Refused(encoded.units[it.unit], it.verdict, it)
        for it in plan.rejections
    }
    refused |= {it.group: it for it in _astray(encoded)}
    return Orders(
        binds=tuple(binds),
        nominations=tuple(nominations),
        reservations=tuple(reservations),
        unschedulable=tuple(refused.values()),
        reserved=dict(_annotations(encoded, plan)),
        units=tuple(_of_units(encoded, plan)),
        departures=tuple(departure_of(encoded, one) for one in together(plan.evictions)),
    )


def _of_units(encoded: Encoded, plan: Plan) -> Iterator[UnitOrders]:
    nodes = encoded.snapshot.nodes.names

    def named(placings: Iterable[Placing]) -> tuple[PodAt, ...]:
        return tuple(PodAt(encoded.pods[pod], nodes[node]) for pod, node in placings)

    of_unit, gone, broken = _by_unit(plan.decisions), _gone(plan), _broken(encoded, plan)
    leaving: dict[int, list[Departure]] = {}
    for it in together(plan.evictions):
        leaving.setdefault(it.claimant, []).append(departure_of(encoded, it, plan.moves))
    for row in [*of_unit, *sorted((encoded.reserved.keys() | broken.keys()) - of_unit.keys())]:
        admissions = of_unit.get(row, [])
        if row in gone:
            continue  # what it holds it lets go when it is gone, or others hold it for it
        now = encoded.reserved.get(row, "")
        moved = coming_back(now)
        then = write_reserved(_slots(encoded, row, admissions), moved)
        with_new = write_reserved(_slots(encoded, row, admissions, keeps_all=True), moved)
        is_more = any(one.reservations for one in admissions)
        hold = with_new if is_more and with_new != now else None
        let_go = then if then != (now if hold is None else hold) else None
        binds = named(it for one in admissions for it in one.binds)
        nominations = named(it for one in admissions for it in one.nominations)
        nominations += tuple(PodAt(encoded.pods[pod], "") for pod in broken.get(row, ()))
        if hold is not None or let_go is not None or binds or nominations:
            departures = tuple(leaving.get(row, ()))
            yield UnitOrders(encoded.units[row], hold, binds, nominations, let_go, departures)


def _by_unit(decisions: Iterable[Admission]) -> dict[int, list[Admission]]:
    of_unit: dict[int, list[Admission]] = {}
    for admission in decisions:
        of_unit.setdefault(admission.unit, []).append(admission)
    return of_unit


def _broken(encoded: Encoded, plan: Plan) -> dict[int, list[int]]:
    """Return the pods, by unit, that were promised a node, and have no room there or elsewhere."""
    snapshot = encoded.snapshot
    promises = [row for row, shape in enumerate(snapshot.shapes) if shape.nominated != NONE]
    if not promises:
        return {}
    tried = {it.unit for it in plan.rejections if it.verdict >= Verdict.EXCEEDS_LIMIT}
    placed = {placing.pod for one in plan.decisions for placing in (*one.binds, *one.nominations)}
    found: dict[int, list[int]] = {}
    pods = snapshot.pods
    for pod in np.flatnonzero(np.isin(pods.shape, promises)).tolist():
        unit = int(pods.unit[pod])
        if unit in tried and pods.state[pod] == PodState.WAITING and pod not in placed:
            found.setdefault(unit, []).append(pod)
    return found


def _gone(plan: Plan) -> set[int]:
    """Return the units that lose all they have, slots too."""
    return {row for one in plan.evictions if one.is_whole for row in one.units}


def _astray(encoded: Encoded) -> Iterator[Refused]:
    """Yield the groups of which pods wait that cannot be counted, whatever else they wait for."""
    told: set[Key] = set()
    for stray in sorted(encoded.strays):
        if stray.waits and stray.group not in told:
            told.add(stray.group)
            numbers = BarNumbers(stray.message)
            rejection = Rejection(
                NONE, Verdict.MISCONFIGURED, numbers, is_curable=False, wakes_on=frozenset({"pods"})
            )
            yield Refused(stray.group, Verdict.MISCONFIGURED, rejection)


def _hold(group: Key, one: Reservation, nodes: tuple[str, ...]) -> Hold:
    cause = Cause(one.cause).name.lower()
    return Hold(group, one.leaf, nodes[one.node], one.number, cause)


def _annotations(encoded: Encoded, plan: Plan) -> Iterator[tuple[Key, str]]:
    moves = [Admission(move.unit, reservations=move.slots) for move in plan.moves]
    of_unit, gone = _by_unit((*plan.decisions, *moves)), _gone(plan)
    gone -= {move.unit for move in plan.moves}  # they get others
    for row in sorted({*of_unit, *encoded.reserved}):
        text = write_reserved(
            _slots(encoded, row, of_unit.get(row, [])), coming_back(encoded.reserved.get(row, ""))
        )
        text = "" if row in gone else text
        if text != encoded.reserved.get(row, ""):
            yield encoded.units[row], text


def _slots(
    encoded: Encoded, row: int, admissions: list[Admission], *, keeps_all: bool = False
) -> Iterator[SlotAt]:
    """Yield what a unit holds after the plan: each pod that got its place gave up one slot.

    With *keeps_all* also those: they are let go when their pods are where they should be.
    """
    nodes = encoded.snapshot.nodes.names
    placed = {placing.pod for one in admissions for placing in (*one.binds, *one.nominations)}
    placed = set() if keeps_all else placed
    for leaf in leaves_of(encoded.snapshot.units[row].tree):
        for slot in leaf.slots[_count(leaf, placed) :]:
            yield SlotAt(leaf.name, nodes[slot.node], slot.cause)
    for admission in admissions:
        yield from slots_of(nodes, admission.reservations)


def _count(leaf: Leaf, placed: set[int]) -> int:
    return sum(pod in placed for pod in leaf.waiting)
