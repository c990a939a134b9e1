"""Messages about evictions that are made: why a victim is evicted, and what is waited for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.resources import NONE
from scheduler.core.model.result import Action, Eviction
from scheduler.core.model.snapshot import Snapshot, SnapshotQueues

_MAX_NAMES: Final = 3  # of victims or budgets
_WORK_UNITS: Final = ((3600, "GPU-hour"), (60, "GPU-minute"))  # used from two of them
_Why: TypeAlias = Callable[[SnapshotQueues, PodGroupInfo, PodGroupInfo], str]


def eviction_message(snapshot: Snapshot, one: Eviction) -> str:
    """Return why pods are evicted, and which work is lost."""
    notes = *_budget_notes(snapshot, one.budgets), _lost_work_note(snapshot, one), one.victim_order
    more = "".join(f"; {it}" for it in notes if it)
    if one.preemptor == NONE:
        return f"the PodGroup had fewer pods than its minimum for too long{more}"
    preemptor, victim = snapshot.podgroups[one.preemptor], snapshot.podgroups[one.podgroups[0]]
    why = _REASONS[one.action](snapshot.queues, victim, preemptor)
    return f"{preemptor.name} gets its resources: {why}{more}"


def nominated_message(pods: int, nodes: int, victims: Iterable[str]) -> str:
    """Return for which victims the nominated pods of a PodGroup wait."""
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    are = "1 pod is" if pods == 1 else f"{pods} pods are"
    titles = sorted({*victims})
    more = len(titles) - _MAX_NAMES
    rest = f" and {more} more" if more > 0 else ""
    named = f": {', '.join(titles[:_MAX_NAMES])}{rest}" if titles else ""
    begin = f"{are} nominated to {where}, where evicted pods are terminating{named}"
    return f"{begin}. It starts when the evicted pods have terminated"


def _budget_notes(snapshot: Snapshot, rows: Sequence[int]) -> Iterator[str]:
    """Yield which disruption budgets allow fewer evictions."""
    budgets = snapshot.budgets
    for row in rows[:_MAX_NAMES]:
        yield f"PodDisruptionBudget {budgets.names[row]} allows only {budgets.allowed[row]}"
    if rows[_MAX_NAMES:]:
        yield f"and {len(rows) - _MAX_NAMES} more PodDisruptionBudgets"


def _lost_work_note(snapshot: Snapshot, one: Eviction) -> str:
    """Return how much work is lost, in the largest unit of time of which it is at least two."""
    if not one.work_lost:
        return ""
    seconds, name = next(
        (it for it in _WORK_UNITS if one.work_lost >= 2 * it[0]), (1, "GPU-second")
    )
    count = f"{one.work_lost / seconds:.1f}".removesuffix(".0")
    podgroups = [snapshot.podgroups[row] for row in one.podgroups]
    is_saved = all(podgroup.checkpoint_at >= podgroup.running_since for podgroup in podgroups)
    start = "its last checkpoint" if is_saved else "its start"
    many, are = ("", "is") if count == "1" else ("s", "are")
    return f"{count} {name}{many} since {start} {are} lost"


def _reclaimed(queues: SnapshotQueues, victim: PodGroupInfo, preemptor: PodGroupInfo) -> str:
    over, below = queues.names[victim.queue], queues.names[preemptor.queue]
    return f"queue {over} was over its fair share, and queue {below} below its fair share"


def _preempted(_queues: SnapshotQueues, victim: PodGroupInfo, preemptor: PodGroupInfo) -> str:
    return f"its priority is {preemptor.priority}, that of {victim.name} is {victim.priority}"


def _consolidated(_queues: SnapshotQueues, victim: PodGroupInfo, _preemptor: PodGroupInfo) -> str:
    return f"{victim.name} is relocated, and resources elsewhere are reserved for it"


_REASONS: Final[Mapping[Action, _Why]] = MappingProxyType(
    {
        Action.RECLAIM: _reclaimed,
        Action.PREEMPT: _preempted,
        Action.CONSOLIDATION: _consolidated,
    }
)
