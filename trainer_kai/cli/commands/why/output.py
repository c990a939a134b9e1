"""The report of `why` as text and as JSON.

The JSON keeps the names that it had first, because scripts read them.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from trainer_kai.api.names import QUEUE
from trainer_kai.api.resources import JOBS, JOBSETS, PODS, TRAINJOBS
from trainer_kai.api.text import counted, listed_names
from trainer_kai.cli.commands.why.podgroups import PodCounts
from trainer_kai.cli.commands.why.reasons import WaitingReason, parse_time
from trainer_kai.cli.commands.why.report import (
    PodGroupExplanation,
    QueueSourceKind,
    TrainJobReport,
)
from trainer_kai.cli.commands.why.snapshot import placed_gpu_shares
from trainer_kai.cli.output.ages import age_text
from trainer_kai.cli.output.table import escaped, table, without_uids, wrapped_lines

_SCHEMA: Final = "trainer-kai/why/v2"
_HEADINGS: Final = ("STAGE", "PODGROUP", "AFTER", "MEMBERS", "STATE", "PODS")
_POD_HEADINGS: Final = ("POD", "STATE", "NODE", "PODS")
_MAX_NAMED: Final = 3
_MAX_SHARES: Final = 16  # pods with shares of GPUs that the text lists
_QUEUE_SOURCES: Final = {
    QueueSourceKind.LABEL: f" (label {QUEUE})",
    QueueSourceKind.DEFAULT: f" (the default, without a label {QUEUE})",
}


def as_text(report: TrainJobReport, width: int) -> str:
    lines = [_headline(report)]
    is_one_pod = _is_of_pods(report) and report.kind == PODS.kind
    reason = report.podgroups[0].reason if is_one_pod else report.reason
    if reason:
        lines += wrapped_lines(_reason_text(reason, report.now), "  ", width)
    if not is_one_pod and (report.has_workload or report.podgroups):
        lines += ["", _summary_line(report)]
    if not is_one_pod and report.podgroups:
        lines += ["", *_table_lines(report, width)]
    lines += _share_lines(report, width)
    lines += (f"note: {it}" for it in report.notes)
    if report.unknown:
        lines.append(f"not known, because you may not read them: {', '.join(report.unknown)}")
    return "\n".join(lines)


def _is_of_pods(report: TrainJobReport) -> bool:
    """Say whether the report is on pods without a PodGroup, and not on a TrainJob."""
    is_standalone = report.kind in {PODS.kind, JOBS.kind}
    return is_standalone and not any(it.podgroup.name for it in report.podgroups)


def _headline(report: TrainJobReport) -> str:
    parts = [f"{report.kind} {report.key}", report.state.value]
    if report.runtime:
        parts.append(f"runtime {report.runtime}")
    source = _QUEUE_SOURCES.get(report.queue_source, "") if report.queue_source else ""
    parts.append(f"queue {report.queue}{source}")
    if report.node:
        parts.append(f"node {report.node}")
    return "   ".join(parts)


def _summary_line(report: TrainJobReport) -> str:
    steps = [report.kind] if report.kind != TRAINJOBS.kind else [TRAINJOBS.kind, JOBSETS.kind]
    if not _is_of_pods(report):
        steps.append(counted(len(report.podgroups), "PodGroup"))
    counts = PodCounts(*map(sum, zip(*(it.counts for it in report.podgroups), strict=True)))
    pods = sum(counts)
    steps.append(counted(pods, "pod") + (f": {_counts_text(counts)}" if pods else ""))
    return " → ".join(steps)


def _table_lines(report: TrainJobReport, width: int) -> Iterator[str]:
    is_of_pods = _is_of_pods(report)
    headings, cells = (_POD_HEADINGS, _pod_row) if is_of_pods else (_HEADINGS, _podgroup_row)
    head, *lines = table(headings, map(cells, report.podgroups)).splitlines()
    yield head
    for explanation, line in zip(report.podgroups, lines, strict=True):
        yield line
        reason = explanation.reason
        text = _reason_text(reason, report.now) if reason else explanation.note
        yield from wrapped_lines(text, "  ", width)


def _share_lines(report: TrainJobReport, width: int) -> Iterator[str]:
    shares = [*placed_gpu_shares(pod for it in report.podgroups for pod in it.podgroup.pods)]
    if shares:
        yield from ("", "shares of GPUs:")
    for share in shares[:_MAX_SHARES]:
        yield from wrapped_lines(escaped(str(share)), "    ", width)
    if len(shares) > _MAX_SHARES:
        yield f"  and {len(shares) - _MAX_SHARES} more (-o json lists all)"


def _podgroup_row(explanation: PodGroupExplanation) -> tuple[str, ...]:
    podgroup = explanation.podgroup
    return (
        podgroup.stage,
        without_uids(podgroup.name) or "-",
        podgroup.after or "-",
        podgroup.members,
        explanation.state.value,
        _counts_text(explanation.counts) or "-",
    )


def _pod_row(explanation: PodGroupExplanation) -> tuple[str, ...]:
    pods = explanation.podgroup.pods
    return (
        _first_names(pod.metadata.name for pod in pods),
        explanation.state.value,
        _first_names(filter(None, (pod.spec.node_name for pod in pods))) or "-",
        _counts_text(explanation.counts),
    )


def _first_names(names: Iterable[str]) -> str:
    return listed_names(sorted(set(names)), _MAX_NAMED)


def _counts_text(counts: PodCounts) -> str:
    return ", ".join(f"{number} {state}" for state, number in counts._asdict().items() if number)


def _reason_text(reason: WaitingReason, now: datetime) -> str:
    since = parse_time(reason.since)
    age = f" (for {age_text(now, since)})" if since else ""
    return f"{reason.title}{age}: {reason.message}"


def as_json(report: TrainJobReport) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "kind": report.kind,
        "namespace": report.key.namespace,
        "name": report.key.name,
        "runtime": report.runtime or None,
        "queue": report.queue if report.queue != "-" else None,
        "queueSource": report.queue_source.value if report.queue_source else None,
        "node": report.node or None,
        "state": report.state.value,
        "waits": report.waits,
        "reason": _reason_json(report.reason),
        "podGroups": [*map(_podgroup_json, report.podgroups)],
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
        "gpuShares": [it.as_json() for it in placed_gpu_shares(podgroup.pods)],
    }


def _reason_json(reason: WaitingReason | None) -> dict[str, Any] | None:
    if reason is None:
        return None
    return {"title": reason.title, "message": reason.message, "since": reason.since or None}
