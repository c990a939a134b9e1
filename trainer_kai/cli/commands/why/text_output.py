"""The report of `why` as text and as JSON."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from trainer_kai.cli.commands.why.podgroups import PodCounts
from trainer_kai.cli.commands.why.reasons import WaitingReason, parse_time
from trainer_kai.cli.commands.why.report import PodGroupExplanation, TrainJobReport
from trainer_kai.cli.output.table import table, without_uids, wrapped_lines

__all__ = ["as_json", "as_text"]

_SCHEMA: Final = "trainer-kai/why/v1"
_TIME_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_HEADINGS: Final = ("STAGE", "GROUP", "AFTER", "MEMBERS", "STATE", "PODS")
_VERBS: Final = {
    "running": ("runs", "run"),
    "starting": ("starts", "start"),
    "promised": ("is promised a node", "are promised a node"),
    "gated": ("is gated", "are gated"),
    "waiting": ("waits", "wait"),
    "going": ("ends", "end"),
    "done": ("is done", "are done"),
    "failed": ("failed", "failed"),
}


def as_text(report: TrainJobReport, width: int) -> str:
    """Return the state, the numbers of objects, and the PodGroups with their reasons."""
    head = [f"{report.kind} {report.key}", report.state.value]
    if report.runtime:
        head.append(f"runtime {report.runtime}")
    lines = ["   ".join([*head, f"queue {report.queue}"])]
    if report.reason:
        lines += wrapped_lines(_reason_text(report.reason, report.now), "  ", width)
    if report.has_jobset or report.podgroups:
        lines += ["", _summary_line(report)]
    if report.podgroups:
        lines += ["", *_podgroup_lines(report, width)]
    lines += (f"note: {it}" for it in report.notes)
    if report.unknown:
        lines.append(f"not known, for it may not be read by you: {', '.join(report.unknown)}")
    return "\n".join(lines)


def _summary_line(report: TrainJobReport) -> str:
    """Return the objects from the TrainJob down to its pods, with their numbers."""
    steps = [report.kind] if report.kind != "TrainJob" else ["TrainJob", "JobSet"]
    number = len(report.podgroups)
    steps.append(f"{number} unit{'s' * (number != 1)}")
    counts = PodCounts(
        *map(sum, zip(*(explanation.counts for explanation in report.podgroups), strict=True))
    )
    pods = sum(counts)
    steps.append(f"{pods} pod{'s' * (pods != 1)}" + (f": {_counts_text(counts)}" if pods else ""))
    return " → ".join(steps)


def _podgroup_lines(report: TrainJobReport, width: int) -> Iterator[str]:
    rows = [
        (
            explanation.podgroup.stage,
            without_uids(explanation.podgroup.name) or "-",
            explanation.podgroup.after or "-",
            explanation.podgroup.members,
            explanation.state.value,
            _counts_text(explanation.counts) or "-",
        )
        for explanation in report.podgroups
    ]
    head, *lines = table(_HEADINGS, rows).splitlines()
    yield head
    for explanation, line in zip(report.podgroups, lines, strict=True):
        yield line
        text = (
            _reason_text(explanation.reason, report.now) if explanation.reason else explanation.note
        )
        yield from wrapped_lines(text, "  ", width)


def _counts_text(counts: PodCounts) -> str:
    numbers = counts._asdict().items()
    return ", ".join(f"{number} {_VERBS[name][number != 1]}" for name, number in numbers if number)


def _reason_text(reason: WaitingReason, now: datetime) -> str:
    since = parse_time(reason.since)
    age = f" (for {_age_text(now, since)})" if since else ""
    return f"{reason.title}{age}: {reason.message}"


def _age_text(now: datetime, since: datetime) -> str:
    """Return a duration; clocks differ, so it may be slightly negative."""
    seconds = max(int((now - since).total_seconds()), 0)
    length, suffix = next((it for it in _TIME_UNITS if seconds >= it[0]), _TIME_UNITS[-1])
    return f"{seconds // length}{suffix}"


def as_json(report: TrainJobReport) -> dict[str, Any]:
    """Return the JSON document of a report."""
    return {
        "schema": _SCHEMA,
        "kind": report.kind,
        "namespace": report.key.namespace,
        "name": report.key.name,
        "runtime": report.runtime or None,
        "queue": report.queue if report.queue != "-" else None,
        "state": report.state.value,
        "waits": report.waits,
        "reason": _reason_json(report.reason),
        "units": [*map(_podgroup_json, report.podgroups)],
        "notes": [*report.notes],
        "unknown": [*report.unknown],
    }


def _podgroup_json(explanation: PodGroupExplanation) -> dict[str, Any]:
    podgroup = explanation.podgroup
    return {
        "stage": podgroup.stage if podgroup.stage != "-" else None,
        "podGroup": podgroup.name or None,
        "after": podgroup.after or None,
        "members": podgroup.members if podgroup.members != "-" else None,
        "state": explanation.state.value,
        "reason": _reason_json(explanation.reason),
        "note": explanation.note or None,
        "needs": podgroup.min_pods,
        "pods": explanation.counts._asdict(),
    }


def _reason_json(reason: WaitingReason | None) -> dict[str, Any] | None:
    if reason is None:
        return None
    return {"title": reason.title, "message": reason.message, "since": reason.since or None}
