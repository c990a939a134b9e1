"""A simulation as text: queues as a tree, PodGroups with their reasons, nodes as bars.

Plain text of at most 100 columns, which can be copied, searched and piped; sentences and bars are
no wider than the terminal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from trainer_kai.api.meta import Key
from trainer_kai.api.text import counted, listed_names
from trainer_kai.cli.commands.simulate.simulation import SimulationResult
from trainer_kai.cli.output.node_bars import node_bars
from trainer_kai.cli.output.queue_tables import queue_tables
from trainer_kai.cli.output.table import (
    MAX_WIDTH,
    fitted_table,
    truncated,
    without_uids,
    wrapped_lines,
)
from trainer_kai.cli.output.unusable_gpus import unusable_sentences

_PODGROUP_HEADINGS: Final = ("PODGROUP", "QUEUE", "PLACED", "WAITING", "REASON")
_QUEUE_WIDTH: Final = 32  # columns of the queue of a PodGroup
_MAX_LINES: Final = 50  # PodGroups, and lines of a cycle
_MAX_PODS: Final = 16  # pods that a line names
_EVENTS: Final = (("bound", "binds"), ("evicted", "evictions"), ("nominated", "nominations"))


def as_text(result: SimulationResult, width: int = MAX_WIDTH) -> str:
    parts = [
        *queue_tables(result.end_state.queues),
        _podgroup_table(result, width),
        node_bars(result.end_state.nodes, width),
        _unusable_text(result, width),
    ]
    parts += _cycle_texts(result.document["cycles"], width)
    parts += [_stats_text(result.document["stats"])] if "stats" in result.document else []
    return "\n\n".join(filter(None, parts))


def _unusable_text(result: SimulationResult, width: int) -> str:
    nodes = [it.name for it in result.end_state.nodes]
    sentences = unusable_sentences(result.end_state.unusable, nodes)
    lines = [line for text in sentences for line in wrapped_lines(text, "  ", width)]
    return "\n".join(["UNUSABLE", *lines]) if lines else ""


def _stats_text(stats: Mapping[str, Any]) -> str:
    lines = [f"STATS   {stats['load_s']:.3f} s to read the input"]
    for index, it in enumerate(stats["cycles"][:_MAX_LINES], 1):
        actions = ", ".join(f"{name} {took_s:.3f} s" for name, took_s in it["actions"].items())
        cut_short = f", {it['cut']} cut short" if it["cut"] else ""
        trials = f"{counted(it['simulations'], 'trial')}{cut_short}"
        lines.append(f"  cycle {index}: {it['plan_s']:.3f} s ({actions}), {trials}")
    left = len(stats["cycles"]) - _MAX_LINES
    return "\n".join([*lines, *[f"  {left} more cycles; -o json has all"] * (left > 0)])


def _podgroup_table(result: SimulationResult, width: int) -> str:
    """Return the PodGroups with their reasons; of many only those that wait or change."""
    groups, reasons = result.document["podGroups"], _messages(result.document)
    shown = _relevant_podgroups(result)
    if not shown:
        return f"{len(groups)} PodGroups; none waits or changes" if groups else ""
    rows = []
    for group in shown:
        key = _key(group)
        placed, waiting = result.counts.get(key, (0, 0))
        queue, verdict = truncated(group["queue"], _QUEUE_WIDTH), group["verdict"] or "-"
        rows.append((_podgroup_text(result, key), queue, str(placed), str(waiting), verdict))
    head, *lines = fitted_table(_PODGROUP_HEADINGS, rows).splitlines()
    text = [head]
    for group, line in zip(shown, lines, strict=True):
        text.append(line)
        key = _key(group)
        message = reasons.get(key) or result.hints.get(key, "")
        text += wrapped_lines(message, "  ", width)
    left = len(groups) - len(shown)
    text += [f"{left} more PodGroups that neither wait nor change"] if left else []
    return "\n".join(text)


def _podgroup_text(result: SimulationResult, key: Key) -> str:
    name, job = without_uids(str(key)), result.jobs.get(key)
    return f"{name} ({job})" if job else name


def _relevant_podgroups(result: SimulationResult) -> list[Mapping[str, Any]]:
    groups: list[Mapping[str, Any]] = result.document["podGroups"]
    if len(groups) <= _MAX_LINES:
        return groups
    moved = {
        (it["namespace"], it["pod"])
        for cycle in result.document["cycles"]
        for _, name in _EVENTS
        for it in cycle[name]
    }
    busy = {result.podgroup_of_pod.get(Key(*pod)) for pod in moved}
    return [
        group
        for group in groups
        if group["verdict"]
        or (key := _key(group)) in busy
        or result.counts.get(key, (0, 0))[1]
        or key in result.suspended
    ]


def _key(group: Mapping[str, Any]) -> Key:
    return Key(group["namespace"], group["name"])


def _messages(document: Mapping[str, Any]) -> dict[Key, str]:
    last = document["cycles"][-1]["unschedulable"]
    return {Key(it["namespace"], it["podGroup"]): it["message"] for it in last}


def _cycle_texts(cycles: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield the text of each cycle; equal cycles in a row have one text."""
    described = [
        (index, _cycle_summary(cycle), [*_event_lines(cycle, width)])
        for index, cycle in enumerate(cycles, 1)
    ]
    for _, same_cycles in groupby(described, key=lambda it: it[1:]):
        (first, text, events), *more = same_cycles
        head = f"CYCLES {first} to {more[-1][0]}" if more else f"CYCLE {first}"
        more_lines = len(events) - _MAX_LINES
        rest = [f"  {more_lines} more lines; -o json has all"] if more_lines > 1 else []
        yield "\n".join([f"{head}   {text}", *(events[:_MAX_LINES] if rest else events), *rest])


def _cycle_summary(cycle: Mapping[str, Any]) -> str:
    counts = [f"{len(cycle[name])} {word}" for word, name in _EVENTS if cycle[name]]
    reserved_count = sum(it["count"] for it in cycle["reservations"])
    counts += [f"{reserved_count} reserved"] if reserved_count else []
    waiting = len(cycle["unschedulable"])
    counts += [f"{counted(waiting, 'PodGroup')} waiting"] if waiting else []
    return ", ".join(counts) or "no changes"


def _event_lines(cycle: Mapping[str, Any], width: int) -> Iterator[str]:
    for word, name in _EVENTS:
        for (head, reason), events in _by_head(word, cycle[name]).items():
            pods = [f"{it['namespace']}/{it['pod']}" for it in events]
            text = f"{head}: {listed_names(pods, _MAX_PODS)}"
            yield from wrapped_lines(text, "    ", width)
            described = reason + _loss_note(events)
            yield from (f"  {line}" for line in wrapped_lines(described, "  ", width - 2))
            for line in _claim_texts(events):
                yield from (f"  {it}" for it in wrapped_lines(line, "    ", width - 2))
    for it in cycle["reservations"]:
        group = f"{it['namespace']}/{it['podGroup']}"
        text = f"  reserved on {it['node']}: {it['count']} for {it['subGroup']} of {group}"
        yield truncated(text, MAX_WIDTH)


def _claim_texts(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the devices of each claim once: pods that share a claim have the same ones."""
    devices = {
        (it["namespace"], claim): named
        for it in events
        for claim, named in it.get("claims", {}).items()
    }
    for (namespace, claim), named in devices.items():
        yield f"claim {namespace}/{claim}: {listed_names(named, _MAX_PODS)}"


def _loss_note(events: Iterable[Mapping[str, Any]]) -> str:
    """Return a note if a reason holds for several evictions, each with its own loss."""
    podgroups = {(it["namespace"], *it["podGroups"]) for it in events if it.get("workLost")}
    return f" (the same loss for each of {len(podgroups)})" if len(podgroups) > 1 else ""


def _by_head(
    word: str, events: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return the events by node, or by action and reason; *word* is what happened to the pods.

    Pods whose workload is suspended are not evicted one by one: it is resumed as a whole.
    """
    by_head: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for it in events:
        reason, verb = it.get("reason", ""), "suspended" if "suspends" in it else word
        head = f"{verb} by {it['action']}" if reason else f"{word} to {it['node']}"
        by_head.setdefault((head, reason), []).append(it)
    return dict(sorted(by_head.items(), key=lambda it: it[0][0]))
