"""Who leaves, for whom and why: from the evictions of a plan to names and words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from scheduler.core.decision import Action, Eviction, Move, Reservation
from scheduler.core.model import NONE, Cause, Queues, Unit
from scheduler.state.encoded import Encoded
from scheduler.state.reserved import SlotAt
from trainer_kai.api.meta import Key
from trainer_kai.policy.names import unit_name

__all__ = ["Departure", "Owner", "departure_of", "slots_of", "together", "waiting_for"]

_TOLD: Final = 3  # who leaves, or which budget, by name
_SPANS: Final = ((3600, "GPU-hour"), (60, "GPU-minute"))  # of which there are at least two


class Owner(NamedTuple):
    """A TrainJob."""

    key: Key
    uid: str


class Departure(NamedTuple):
    """Pods that go at once: all that a TrainJob has, or what one unit loses."""

    groups: tuple[Key, ...]
    pods: tuple[Key, ...]
    action: str
    claimant: Key | None  # the group that gets their room, if any does
    why: str  # as whoever loses it is told
    gpus: int  # thousandths
    work_lost: int = 0  # GPU-seconds
    slots: tuple[tuple[Key, tuple[SlotAt, ...]], ...] = ()  # elsewhere, of groups that are moved
    holds: tuple[tuple[Key, str], ...] = ()  # the same as annotations, once it is assumed
    uids: tuple[str, ...] = ()  # of the pods, once it is assumed that they go
    owner: Owner | None = None  # that is suspended; pods of nobody's are deleted

    @property
    def title(self) -> str:
        """Return who leaves, as others are told."""
        return f"{unit_name(self.groups[0])} ({self.action})"


def departure_of(encoded: Encoded, one: Eviction, moves: Iterable[Move] = ()) -> Departure:
    """Return an eviction by names, with the slots of those that are moved."""
    nodes = encoded.snapshot.nodes.names
    return Departure(
        groups=tuple(encoded.units[row] for row in one.units),
        pods=tuple(encoded.pods[row] for row in one.pods),
        action=one.action.title,
        claimant=None if one.claimant == NONE else encoded.units[one.claimant],
        why=_why(encoded, one),
        gpus=one.gpus,
        work_lost=one.work_lost,
        slots=tuple(
            (encoded.units[move.unit], slots_of(nodes, move.slots))
            for move in moves
            if move.unit in one.units
        ),
    )


def together(evictions: Iterable[Eviction]) -> list[Eviction]:
    """Return evictions, of which all steps by which a unit shrinks for one claimant are one."""
    found: dict[tuple[object, ...], Eviction] = {}
    for one in evictions:
        like = one.units, one.is_whole, one.action, one.claimant, one.order
        before = found.get(like)
        found[like] = one if before is None else _both(before, one)
    return [*found.values()]


def _both(one: Eviction, more: Eviction) -> Eviction:
    return replace(
        one,
        pods=one.pods + more.pods,
        gpus=one.gpus + more.gpus,
        work_lost=one.work_lost + more.work_lost,
        budgets=tuple(sorted({*one.budgets, *more.budgets})),
    )


def slots_of(nodes: Sequence[str], held: Iterable[Reservation]) -> tuple[SlotAt, ...]:
    """Return what a plan holds, each slot by names."""
    return tuple(
        SlotAt(one.leaf, nodes[one.node], Cause(one.cause))
        for one in held
        for _ in range(one.number)
    )


def _why(encoded: Encoded, one: Eviction) -> str:
    told = *_budgets(encoded, one.budgets), _lost(encoded, one), one.order
    lost = "".join(f"; {it}" for it in told if it)
    if one.claimant == NONE:
        return f"it has lacked some of its pods for too long{lost}"
    snapshot = encoded.snapshot
    claimant, loser = snapshot.units[one.claimant], snapshot.units[one.units[0]]
    why = _WHY[one.action](snapshot.queues, loser, claimant)
    return f"{claimant.name} gets its room: {why}{lost}"


def _budgets(encoded: Encoded, rows: Sequence[int]) -> Iterator[str]:
    """Say which budgets let fewer pods go."""
    budgets = encoded.snapshot.budgets
    for row in rows[:_TOLD]:
        yield f"although PodDisruptionBudget {budgets.names[row]} allows {budgets.allowed[row]}"
    if rows[_TOLD:]:
        yield f"and {len(rows) - _TOLD} more PodDisruptionBudgets"


def _lost(encoded: Encoded, one: Eviction) -> str:
    """Say how much work is lost, in the largest unit of which it is at least two."""
    if not one.work_lost:
        return ""
    seconds, name = next((it for it in _SPANS if one.work_lost >= 2 * it[0]), (1, "GPU-second"))
    count = f"{one.work_lost / seconds:.1f}".removesuffix(".0")
    units = [encoded.snapshot.units[row] for row in one.units]
    is_saved = all(unit.saved >= unit.since for unit in units)
    ground = "its last checkpoint" if is_saved else "its start"
    many, are = ("", "is") if count == "1" else ("s", "are")
    return f"{count} {name}{many} since {ground} {are} lost"


def waiting_for(pods: int, nodes: int, departures: Sequence[Departure]) -> str:
    """Say what a unit waits for that is promised room."""
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    which = "1 of its pods is" if pods == 1 else f"{pods} of its pods are"
    begin = f"{which} promised room on {where}, which others are leaving"
    names = ", ".join(sorted({one.title for one in departures})[:_TOLD])
    more = len({one.title for one in departures}) - _TOLD
    rest = f" and {more} more" if more > 0 else ""
    whom = f": {names}{rest}" if names else ""
    return f"{begin}{whom}. It starts when they are gone"


def _reclaimed(queues: Queues, loser: Unit, claimant: Unit) -> str:
    theirs, mine = queues.names[loser.queue], queues.names[claimant.queue]
    return f"queue {theirs} had more than its share, and queue {mine} less"


def _preempted(_queues: Queues, loser: Unit, claimant: Unit) -> str:
    return f"its priority is {claimant.priority}, and here it is {loser.priority}"


def _moved(_queues: Queues, loser: Unit, _claimant: Unit) -> str:
    return f"{loser.name} moves, and a place elsewhere is kept for it"


_WHY: Final = MappingProxyType(
    {
        Action.RECLAIM: _reclaimed,
        Action.PREEMPT: _preempted,
        Action.CONSOLIDATION: _moved,
    }
)
