"""An answer to `why` as people read it, and as programs do."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from trainer_kai.cli.answer import Answer, UnitAnswer
from trainer_kai.cli.parts import Heads
from trainer_kai.cli.reasons import Reason, moment
from trainer_kai.cli.table import table, without_uids, wrapped

__all__ = ["as_json", "as_text"]

_SCHEMA: Final = "trainer-kai/why/v1"
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_HEADINGS: Final = ("STAGE", "GROUP", "AFTER", "MEMBERS", "STATE", "PODS")
_DO: Final = {
    "running": ("runs", "run"),
    "starting": ("starts", "start"),
    "promised": ("is promised a node", "are promised a node"),
    "gated": ("is gated", "are gated"),
    "waiting": ("waits", "wait"),
    "going": ("ends", "end"),
    "done": ("is done", "are done"),
    "failed": ("failed", "failed"),
}


def as_text(told: Answer, width: int) -> str:
    """Return a headline, the way down, and the units, each with its reason below it."""
    head = [f"{told.kind} {told.key}", told.state.value]
    if told.runtime:
        head.append(f"runtime {told.runtime}")
    lines = ["   ".join([*head, f"queue {told.queue}"])]
    if told.reason:
        lines += wrapped(_reason(told.reason, told.now), "  ", width)
    if told.has_jobset or told.units:
        lines += ["", _way(told)]
    if told.units:
        lines += ["", *_units(told, width)]
    lines += (f"note: {it}" for it in told.notes)
    if told.unknown:
        lines.append(f"not known, for it may not be read by you: {', '.join(told.unknown)}")
    return "\n".join(lines)


def _way(told: Answer) -> str:
    """Return how far it came: from the object down to its pods."""
    steps = [told.kind] if told.kind != "TrainJob" else ["TrainJob", "JobSet"]
    number = len(told.units)
    steps.append(f"{number} unit{'s' * (number != 1)}")
    heads = Heads(*map(sum, zip(*(unit.heads for unit in told.units), strict=True)))
    pods = sum(heads)
    steps.append(f"{pods} pod{'s' * (pods != 1)}" + (f": {_heads(heads)}" if pods else ""))
    return " → ".join(steps)


def _units(told: Answer, width: int) -> Iterator[str]:
    rows = [
        (
            unit.part.stage,
            without_uids(unit.part.group) or "-",
            unit.part.after or "-",
            unit.part.members,
            unit.state.value,
            _heads(unit.heads) or "-",
        )
        for unit in told.units
    ]
    head, *lines = table(_HEADINGS, rows).splitlines()
    yield head
    for unit, line in zip(told.units, lines, strict=True):
        yield line
        text = _reason(unit.reason, told.now) if unit.reason else unit.note
        yield from wrapped(text, "  ", width)


def _heads(heads: Heads) -> str:
    told = heads._asdict().items()
    return ", ".join(f"{number} {_DO[name][number != 1]}" for name, number in told if number)


def _reason(reason: Reason, now: datetime) -> str:
    since = moment(reason.since)
    age = f" (for {_age(now, since)})" if since else ""
    return f"{reason.title}{age}: {reason.sentence}"


def _age(now: datetime, since: datetime) -> str:
    """Return how long that is; clocks differ, so it may be a little less than nothing."""
    seconds = max(int((now - since).total_seconds()), 0)
    length, unit = next((it for it in _UNITS if seconds >= it[0]), _UNITS[-1])
    return f"{seconds // length}{unit}"


def as_json(told: Answer) -> dict[str, Any]:
    """Return plain values."""
    return {
        "schema": _SCHEMA,
        "kind": told.kind,
        "namespace": told.key.namespace,
        "name": told.key.name,
        "runtime": told.runtime or None,
        "queue": told.queue if told.queue != "-" else None,
        "state": told.state.value,
        "waits": told.waits,
        "reason": _plain(told.reason),
        "units": [*map(_unit, told.units)],
        "notes": [*told.notes],
        "unknown": [*told.unknown],
    }


def _unit(unit: UnitAnswer) -> dict[str, Any]:
    part = unit.part
    return {
        "stage": part.stage if part.stage != "-" else None,
        "podGroup": part.group or None,
        "after": part.after or None,
        "members": part.members if part.members != "-" else None,
        "state": unit.state.value,
        "reason": _plain(unit.reason),
        "note": unit.note or None,
        "needs": part.least,
        "pods": unit.heads._asdict(),
    }


def _plain(reason: Reason | None) -> dict[str, Any] | None:
    if reason is None:
        return None
    return {"title": reason.title, "message": reason.sentence, "since": reason.since or None}
