"""What is told of a TrainJob: how far it is, which of its units wait, and why. Pure.

It asks the functions that decide in admission and in the podgrouper, and reads what the scheduler
has written; what nobody writes down is worked out from what is there.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from trainer_kai.api.meta import Condition, Key
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    JOBSET_NAME,
    QUEUE,
    RESERVED,
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import JOBSETS
from trainer_kai.cli.found import Found
from trainer_kai.cli.parts import Heads, Part, count, parts_of, planned
from trainer_kai.cli.preview import Preview
from trainer_kai.cli.reasons import Reason, event_time, evicted_at, why_part
from trainer_kai.cli.suspended import why_suspended
from trainer_kai.cli.titles import VERDICTS, Title

__all__ = ["Answer", "State", "UnitAnswer", "answer", "evicted_groups"]

_WEBHOOK: Final = ".trainer-kai.dev"


class State(StrEnum):
    """How far something is."""

    COMPLETE = "complete"
    FAILED = "failed"
    RUNS = "runs"
    SUSPENDED = "suspended"
    WAITS = "waits"


class UnitAnswer(NamedTuple):
    """One unit."""

    part: Part
    state: State
    heads: Heads
    reason: Reason | None = None  # where it waits
    note: str = ""


class Answer(NamedTuple):
    """All of it."""

    kind: str
    key: Key
    runtime: str
    queue: str
    state: State
    reason: Reason | None  # of the whole
    has_jobset: bool
    now: datetime  # when it was asked
    units: tuple[UnitAnswer, ...]
    notes: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """Say whether something waits."""
        return self.state in {State.WAITS, State.SUSPENDED}


def answer(found: Found) -> Answer:
    """Return what is to be told."""
    plan = planned(found)
    parts = parts_of(found, plan)
    over = _over(found)
    suspended = None if over else _suspended(found)
    units = tuple(_unit(part, found, is_suspended=suspended is not None) for part in parts)
    reason = over[1] if over else suspended or _of_all(found, plan, parts)
    return Answer(
        kind=found.kind,
        key=found.key,
        runtime=_runtime(found),
        queue=_queue(found),
        state=over[0] if over else _state(units, suspended, reason),
        reason=reason,
        has_jobset=found.jobset is not None,
        now=found.now,
        units=units,
        notes=(*_evicted(found, units), *_notes(found)),
        unknown=tuple(sorted(_unknown(found))),
    )


def _over(found: Found) -> tuple[State, Reason | None] | None:
    conditions = found.trainjob.status.conditions if found.trainjob else ()
    failed = _condition(conditions, "Failed")
    if failed:
        since = failed.last_transition_time or ""
        return State.FAILED, Reason(failed.reason or "Failed", failed.message, since)
    return (State.COMPLETE, None) if _condition(conditions, "Complete") else None


def _condition(conditions: Iterable[Condition], name: str) -> Condition | None:
    return next((it for it in conditions if it.type == name and it.status == "True"), None)


def _suspended(found: Found) -> Reason | None:
    """Say who has suspended it."""
    job, jobset = found.trainjob, found.jobset
    if job is None or not job.spec.suspend:
        if job is not None and jobset is not None and jobset.spec.suspend:
            name = jobset.metadata.name
            sentence = (
                f"its JobSet is suspended, though spec.suspend of {name} is false. "
                "It goes on when Trainer resumes it; if that fails an event of the job says why"
            )
            return Reason(Title.SUSPENDED, sentence)
        return None
    since = _condition(job.status.conditions, "Suspended")
    last = since.last_transition_time or "" if since else ""
    return Reason(Title.SUSPENDED, why_suspended(job, found.groups), last)


def _of_all(found: Found, plan: Preview | None, parts: tuple[Part, ...]) -> Reason | None:
    """Say what is in the way of all units."""
    job = found.trainjob
    manager = job.spec.managed_by if job else ""
    if manager not in {"", TRAINJOB_CONTROLLER}:
        sentence = f"spec.managedBy leaves it to {manager}: whoever that is knows how far it is"
        return Reason(Title.LEFT_TO_OTHERS, sentence)
    if job is not None and found.jobset is None and JOBSETS.plural not in found.unknown:
        return _without_jobset(found)
    blocks = [str(it) for it in plan.findings if it.blocks] if plan else []
    if blocks:
        return Reason("Misconfigured", f"it never runs as it is: {'; '.join(blocks)}")
    if not parts:
        return Reason(Title.PODS_MISSING, "it has no pods and no groups yet")
    return None


def _without_jobset(found: Found) -> Reason:
    if not found.events:
        silent = "Trainer has not made its JobSet, and has not said why"
        who = "events may not be read" if "events" in found.unknown else "it may not run"
        return Reason(Title.JOBSET_MISSING, f"{silent}: {who}")
    last = max(found.events, key=event_time)
    retries = "Trainer tries again by itself, ever more rarely; any change of the TrainJob, an "
    retries += "annotation too, makes it try at once"
    ours = "The webhook of trainer-kai has to answer. " if _WEBHOOK in last.message else ""
    return Reason(Title.JOBSET_MISSING, f"{last.message}. {ours}{retries}", event_time(last))


def _unit(part: Part, found: Found, *, is_suspended: bool) -> UnitAnswer:
    heads = count(part.pods)
    more = heads.unplaced + heads.starting
    is_whole = heads.running + heads.done >= part.least
    if part.is_over or (is_whole and heads.done and not heads.running and not more):
        return UnitAnswer(part, State.COMPLETE, heads)
    if is_suspended:
        return UnitAnswer(part, State.SUSPENDED, heads)
    if not is_whole or not heads.there:
        reason = why_part(part, heads, found)
        if reason is not None and reason.title in VERDICTS - {Title.WAITING_FOR_VICTIMS}:
            # A promise that was taken back stays on the pod until it gets another one.
            heads = heads._replace(waiting=heads.waiting + heads.promised, promised=0)
        return UnitAnswer(part, State.WAITS, heads, reason)
    return UnitAnswer(part, State.RUNS, heads, note=_more(part, more))


def _more(part: Part, more: int) -> str:
    """Say what a unit that runs may still get."""
    told = []
    if part.later:
        kept = part.found is not None and part.found.metadata.annotations.get(RESERVED)
        room = ", and room for it is kept" if kept else ""
        told.append(f"{', '.join(part.later)} comes when the others are Ready{room}")
    if more:
        told.append(f"it has what it needs; {more} more could run")
    return "; ".join(told)


def _state(units: Iterable[UnitAnswer], suspended: Reason | None, reason: Reason | None) -> State:
    if suspended:
        return State.SUSPENDED
    units = tuple(units)
    if reason or not units:
        return State.WAITS
    waiting = [it.reason for it in units if it.state == State.WAITS]
    runs = any(it.state == State.RUNS for it in units)
    on_its_way = runs and all(it and it.title == Title.WAITING_FOR_STAGE for it in waiting)
    return State.WAITS if waiting and not on_its_way else State.RUNS


def _runtime(found: Found) -> str:
    if found.trainjob is None:
        return ""
    reference = found.trainjob.spec.runtime_ref
    return f"{reference.kind} {reference.name}"


def _queue(found: Found) -> str:
    named = [group.spec.queue for group in found.groups]
    labels = [it.metadata.labels.get(QUEUE, "") for it in (found.jobset, found.trainjob) if it]
    return next(filter(None, (*named, *labels)), "-")


def _notes(found: Found) -> Iterable[str]:
    yield from _moves(found)
    for it in (found.trainjob, found.jobset):
        if it is not None and it.metadata.deletion_timestamp:
            kind = "TrainJob" if it is found.trainjob else "JobSet"
            yield f"the {kind} is being deleted"


def evicted_groups(units: Iterable[UnitAnswer]) -> Iterator[PodGroup]:
    """Yield the groups that wait since they were evicted."""
    groups = (it.part.found for it in units if it.state == State.WAITS)
    yield from (group for group in groups if group is not None and evicted_at(group))


def _evicted(found: Found, units: Iterable[UnitAnswer]) -> Iterator[str]:
    """Say when what waits was evicted, and why as far as that is known still."""
    since = max(map(evicted_at, evicted_groups(units)), default="")
    if since:
        last = max(found.evictions, key=event_time, default=None)
        yield f"it was evicted at {since}" + (f": {last.message}" if last else "")


def _moves(found: Found) -> Iterable[str]:
    """Say that the label of a TrainJob names another queue than that of its groups, by now."""
    job, jobset = found.trainjob, found.jobset
    label = job.metadata.labels.get(QUEUE, "") if job else ""
    ours = [it for it in found.groups if it.metadata.labels.get(JOBSET_NAME) == found.key.name]
    is_ours = jobset is None or jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    if job is None or not label or not is_ours or _over(found):
        return
    if any(group.spec.queue != label for group in ours):
        when = "resumed" if job.spec.suspend else "suspended and resumed"
        yield f"its label names queue {label} now; that counts once it is {when}"


def _unknown(found: Found) -> AbstractSet[str]:
    """Return what may not be read and would say more: groups say all that a JobSet does."""
    return found.unknown - {JOBSETS.plural} if found.groups else found.unknown
