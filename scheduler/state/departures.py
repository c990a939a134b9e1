"""Who leaves, for whom and why: from the evictions of a plan to names and words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from scheduler.core.decision import Action, Eviction, Relocation, Reservation
from scheduler.core.model import NONE, PodGroupInfo, ReservationCause, SnapshotQueues
from scheduler.state.encoded import EncodedSnapshot
from scheduler.state.reserved import NamedPlace
from trainer_kai.api.meta import Key
from trainer_kai.policy.names import workload_name

__all__ = [
    "OwningTrainJob",
    "PlannedEviction",
    "merge_steps",
    "named_places",
    "nominated_message",
    "planned_eviction",
]

_MAX_NAMES: Final = 3  # who leaves, or which budget, by name
_SPANS: Final = ((3600, "GPU-hour"), (60, "GPU-minute"))  # of which there are at least two


class OwningTrainJob(NamedTuple):
    """A TrainJob."""

    key: Key
    uid: str


class PlannedEviction(NamedTuple):
    """Pods that go at once: all that a TrainJob has, or what one unit loses."""

    groups: tuple[Key, ...]
    pods: tuple[Key, ...]
    action: str
    preemptor: Key | None  # the group that gets their room, if any does
    reason: str  # as whoever loses it is told
    gpus: int  # thousandths
    lost_work: int = 0  # GPU-seconds
    places: tuple[
        tuple[Key, tuple[NamedPlace, ...]], ...
    ] = ()  # elsewhere, of groups that are moved
    reserved_annotations: tuple[
        tuple[Key, str], ...
    ] = ()  # the same as annotations, once it is assumed
    uids: tuple[str, ...] = ()  # of the pods, once it is assumed that they go
    owner: OwningTrainJob | None = None  # that is suspended; pods of nobody's are deleted

    @property
    def title(self) -> str:
        """Return who leaves, as others are told."""
        return f"{workload_name(self.groups[0])} ({self.action})"


def planned_eviction(
    encoded: EncodedSnapshot, one: Eviction, moves: Iterable[Relocation] = ()
) -> PlannedEviction:
    """Return an eviction by names, with the slots of those that are moved."""
    nodes = encoded.snapshot.nodes.names
    return PlannedEviction(
        groups=tuple(encoded.podgroup_keys[row] for row in one.podgroups),
        pods=tuple(encoded.pod_keys[row] for row in one.pods),
        action=one.action.title,
        preemptor=None if one.preemptor == NONE else encoded.podgroup_keys[one.preemptor],
        reason=_reason(encoded, one),
        gpus=one.gpus,
        lost_work=one.work_lost,
        places=tuple(
            (encoded.podgroup_keys[move.podgroup], named_places(nodes, move.reservations))
            for move in moves
            if move.podgroup in one.podgroups
        ),
    )


def merge_steps(evictions: Iterable[Eviction]) -> list[Eviction]:
    """Return evictions, of which all steps by which a unit shrinks for one claimant are one."""
    found: dict[tuple[object, ...], Eviction] = {}
    for one in evictions:
        identity = one.podgroups, one.is_whole, one.action, one.preemptor, one.victim_order
        before = found.get(identity)
        found[identity] = one if before is None else _merged(before, one)
    return [*found.values()]


def _merged(one: Eviction, more: Eviction) -> Eviction:
    return replace(
        one,
        pods=one.pods + more.pods,
        gpus=one.gpus + more.gpus,
        work_lost=one.work_lost + more.work_lost,
        budgets=tuple(sorted({*one.budgets, *more.budgets})),
    )


def named_places(
    nodes: Sequence[str], reservations: Iterable[Reservation]
) -> tuple[NamedPlace, ...]:
    """Return what a plan holds, each slot by names."""
    return tuple(
        NamedPlace(one.podset, nodes[one.node], ReservationCause(one.cause))
        for one in reservations
        for _ in range(one.number)
    )


def _reason(encoded: EncodedSnapshot, one: Eviction) -> str:
    notes = *_budgets(encoded, one.budgets), _lost_work(encoded, one), one.victim_order
    lost = "".join(f"; {it}" for it in notes if it)
    if one.preemptor == NONE:
        return f"it has lacked some of its pods for too long{lost}"
    snapshot = encoded.snapshot
    preemptor, loser = snapshot.podgroups[one.preemptor], snapshot.podgroups[one.podgroups[0]]
    why = _REASONS[one.action](snapshot.queues, loser, preemptor)
    return f"{preemptor.name} gets its room: {why}{lost}"


def _budgets(encoded: EncodedSnapshot, rows: Sequence[int]) -> Iterator[str]:
    """Say which budgets let fewer pods go."""
    budgets = encoded.snapshot.budgets
    for row in rows[:_MAX_NAMES]:
        yield f"although PodDisruptionBudget {budgets.names[row]} allows {budgets.allowed[row]}"
    if rows[_MAX_NAMES:]:
        yield f"and {len(rows) - _MAX_NAMES} more PodDisruptionBudgets"


def _lost_work(encoded: EncodedSnapshot, one: Eviction) -> str:
    """Say how much work is lost, in the largest unit of which it is at least two."""
    if not one.work_lost:
        return ""
    seconds, name = next((it for it in _SPANS if one.work_lost >= 2 * it[0]), (1, "GPU-second"))
    count = f"{one.work_lost / seconds:.1f}".removesuffix(".0")
    podgroups = [encoded.snapshot.podgroups[row] for row in one.podgroups]
    is_saved = all(podgroup.checkpoint_at >= podgroup.running_since for podgroup in podgroups)
    start = "its last checkpoint" if is_saved else "its start"
    many, are = ("", "is") if count == "1" else ("s", "are")
    return f"{count} {name}{many} since {start} {are} lost"


def nominated_message(pods: int, nodes: int, evictions: Sequence[PlannedEviction]) -> str:
    """Say what a unit waits for that is promised room."""
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    pods_text = "1 of its pods is" if pods == 1 else f"{pods} of its pods are"
    beginning = f"{pods_text} promised room on {where}, which others are leaving"
    names = ", ".join(sorted({one.title for one in evictions})[:_MAX_NAMES])
    more = len({one.title for one in evictions}) - _MAX_NAMES
    rest = f" and {more} more" if more > 0 else ""
    names_text = f": {names}{rest}" if names else ""
    return f"{beginning}{names_text}. It starts when they are gone"


def _reclaimed(queues: SnapshotQueues, loser: PodGroupInfo, preemptor: PodGroupInfo) -> str:
    loser_queue, preemptor_queue = queues.names[loser.queue], queues.names[preemptor.queue]
    return f"queue {loser_queue} had more than its share, and queue {preemptor_queue} less"


def _preempted(_queues: SnapshotQueues, loser: PodGroupInfo, preemptor: PodGroupInfo) -> str:
    return f"its priority is {preemptor.priority}, and here it is {loser.priority}"


def _consolidated(_queues: SnapshotQueues, loser: PodGroupInfo, _preemptor: PodGroupInfo) -> str:
    return f"{loser.name} moves, and a place elsewhere is kept for it"


_REASONS: Final = MappingProxyType(
    {
        Action.RECLAIM: _reclaimed,
        Action.PREEMPT: _preempted,
        Action.CONSOLIDATION: _consolidated,
    }
)
