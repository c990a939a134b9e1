"""Why nobody loses anything for a unit that may claim it, in sentences."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from scheduler.core.decision import Kept, Lack, Regain, Rejection, Unmoved
from scheduler.core.model import Snapshot

__all__ = ["why_kept"]

_MOST_TOLD: Final = 3  # of reasons and budgets
_LACK: Final = {
    Lack.NOBODY: "It can take nothing back: no queue beside it has more than it may count on",
    Lack.ROOM: "{}, but giving back no more than that would not make the room",
    Lack.FAIRNESS: "{}, but who gave the room would be no better off then than who claims it",
}
# Why a queue has the turn before another one, by the places of their keys.
_TURNS: Final = (
    "the other one has more than its fair share of everything",
    "it would stay within its quota",
    "its priority is larger, {} against {}",
    "nothing is due to the other one of something that it has or would have",
    "it would have the smaller part of what is due to it",
    "it has the smaller part of what is due to it",
    "their parts are alike, and it is smaller or older",
)
_UNMOVED: Final = {
    Unmoved.ACTION: "the action consolidation is off",
    Unmoved.OFFER: "only preemptible TrainJobs that nobody else admits are, of a queue that"
    ' offers it (trainer-kai.dev/consolidation: "on")',
    Unmoved.CLAIM: "that is done only for who is preemptible",
    Unmoved.WAY: "no way was found with those who may be",
}
_LAST: Final = 253_402_300_799  # the last second that a date has a name for


def why_kept(snapshot: Snapshot, rejection: Rejection) -> Iterator[str]:
    """Yield what keeps others from losing anything, as far as anything does."""
    kept = rejection.kept
    if kept.staying:
        more = ", …" if kept.staying[_MOST_TOLD:] else ""
        told = "; ".join(f"{count} because {why}" for why, count in kept.staying[:_MOST_TOLD])
        yield f"Others stay: {told}{more}"
    if kept.protected:
        have = "1 has" if kept.protected == 1 else f"{kept.protected} have"
        name = snapshot.units[kept.first].name
        yield f"{have} not run for long enough: {name} may go from {_moment(kept.until)} on"
    if kept.budgets:
        names = [snapshot.budgets.names[it] for it in kept.budgets]
        more = ", …" if names[_MOST_TOLD:] else ""
        yield f"Too few pods may go by PodDisruptionBudget {', '.join(names[:_MOST_TOLD])}{more}"
    for queue in kept.goals[:_MOST_TOLD]:
        name = snapshot.queues.names[queue]
        goal = "its reclaim-goal is quota-only"
        yield f"Below queue {name} nothing is taken back beyond quotas: {goal}"
    for queue in kept.unbounded[:_MOST_TOLD]:
        name = snapshot.queues.names[queue]
        yield f"Queue {name} owes nothing back: its quota has no bound"
    yield from _nothing_to_take(snapshot, kept)
    if kept.is_cut:
        yield "Not all that others could give back was looked at: that ended at a limit"
    if kept.is_withheld:
        yield "Nobody claims anything for now: enough was taken from others within a minute"
    if kept.is_patient:
        unit = snapshot.units[rejection.unit]
        words = f" of {unit.patience}" if unit.patience else ""
        until = _moment(unit.patient_until)
        when = f"before {until}, when its preemptionDelay{words} is over"
        yield f"It takes nothing from others {when}"


def _nothing_to_take(snapshot: Snapshot, kept: Kept) -> Iterator[str]:
    if kept.lack is not None:
        yield _LACK[kept.lack].format(_over(snapshot, kept.over))
    if kept.regain is not None:
        yield _regain(snapshot, kept.regain)
    if kept.unmoved is not None:
        yield f"Nobody is moved to bring it together: {_UNMOVED[kept.unmoved]}"


def _regain(snapshot: Snapshot, regain: Regain) -> str:
    names, priority = snapshot.queues.names, snapshot.queues.priority
    queue, before, place = regain
    why = _TURNS[min(place, len(_TURNS) - 1)].format(priority[queue], priority[before])
    told = (
        f"Nothing is taken from queue {names[queue]}, for its turn would come again before that of"
    )
    return f"{told} queue {names[before]}: {why}"


def _over(snapshot: Snapshot, queues: Sequence[int]) -> str:
    names = [snapshot.queues.names[it] for it in queues]
    told = ", ".join(names[:_MOST_TOLD]) + (", …" if names[_MOST_TOLD:] else "")
    one, many = f"Queue {told} has more than it", f"Queues {told} have more than they"
    return f"{one if len(names) == 1 else many} may count on"


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
