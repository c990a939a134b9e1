"""The rows of `list` as a table, as names, and as a document."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from trainer_kai.api.text import listed_names
from trainer_kai.cli.commands.list.rows import WorkloadRow
from trainer_kai.cli.output.ages import age_of
from trainer_kai.cli.output.short_reasons import short_reason
from trainer_kai.cli.output.table import table, with_coloured_column, wrapped_lines
from trainer_kai.policy.workloads.state import WorkloadState

SCHEMA: Final = "trainer-kai/list/v1"

_HEADINGS: Final = (
    "WORKLOAD", "QUEUE", "STATE", "SINCE", "POSITION", "GPUS", "NODES", "REASON"
)  # fmt: skip
_MAX_NODES: Final = 4
_COLOURS: Final = {
    WorkloadState.RUNS: 32,
    WorkloadState.WAITS: 33,
    WorkloadState.SUSPENDED: 36,
    WorkloadState.FAILED: 31,
}


def as_table(
    rows: Sequence[WorkloadRow],
    now: datetime,
    *,
    with_namespace: bool,
    is_wide: bool = False,
    is_coloured: bool = False,
) -> str:
    """Return a table; the wide one has whole sentences, and the names of nodes and PodGroups."""
    namespace = ("NAMESPACE",) if with_namespace else ()
    headings = (*namespace, *_HEADINGS, *(("PODGROUPS",) if is_wide else ()))
    lines = (
        (*((row.key.namespace,) if with_namespace else ()), *_cells(row, now, is_wide=is_wide))
        for row in rows
    )
    text = table(headings, lines)
    colours = {str(state): code for state, code in _COLOURS.items()} if is_coloured else {}
    return with_coloured_column(text, "STATE", colours)


def _cells(row: WorkloadRow, now: datetime, *, is_wide: bool) -> Iterable[str]:
    yield row.title
    yield row.queue or "-"
    yield row.state.value
    yield age_of(row.since, now) or "-"
    yield str(row.place) if row.place else "-"
    yield "-" if row.gpus is None else f"{row.gpus:g}"
    if is_wide:
        yield listed_names(row.nodes, _MAX_NODES) or "-"
    else:
        yield str(len(row.nodes)) if row.nodes else "-"
    yield _reason_text(row, is_wide=is_wide) or "-"
    if is_wide:
        yield ",".join(row.podgroups) or "-"


def _reason_text(row: WorkloadRow, *, is_wide: bool) -> str:
    if row.reason is None:
        return ""
    title, message, _ = row.reason
    return f"{title}: {message if is_wide else short_reason(title, message)}"


def as_sentences(rows: Sequence[WorkloadRow], now: datetime, namespace: str, width: int) -> str:
    """Return each workload with the whole sentence why it waits."""
    if not rows:
        return f"Nothing waits in namespace {namespace}."
    lines: list[str] = []
    for row in rows:
        parts = [f"{row.key.kind} {row.key}", row.state.value, f"queue {row.queue or '-'}"]
        if row.place is not None:
            parts.append(f"position {row.place}")
        age = age_of(row.since, now)
        parts += [f"for {age}"] if age else []
        lines.append("   ".join(parts))
        if row.reason is not None:
            text = f"{row.reason.title}: {row.reason.message}"
            lines += wrapped_lines(text, "  ", width)
    return "\n".join(lines)


def as_names(rows: Iterable[WorkloadRow]) -> str:
    return "\n".join(row.title for row in rows)


def as_document(rows: Iterable[WorkloadRow], notes: Iterable[str]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "workloads": [*map(_row_document, rows)],
        "notes": [*notes],
    }


def _row_document(row: WorkloadRow) -> dict[str, Any]:
    reason = row.reason
    return {
        "kind": row.key.kind,
        "namespace": row.key.namespace,
        "name": row.key.name,
        "queue": row.queue or None,
        "state": row.state.value,
        "reason": reason
        and {
            "title": str(reason.title),
            "short": short_reason(reason.title, reason.message),
            "message": reason.message,
            "since": reason.since or None,
        },
        "since": row.since or None,
        "position": row.place.position if row.place else None,
        "waitingInQueue": row.place.waiting if row.place else None,
        "gpus": row.gpus,
        "nodes": [*row.nodes],
        "podGroups": [*row.podgroups],
    }
