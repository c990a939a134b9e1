"""A simulation as a picture for people: queues as a tree, units with their reasons, nodes as bars.

Plain text of at most 100 columns, so that it can be copied, searched and piped; sentences and bars
are no wider than the terminal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from trainer_kai.api.meta import Key
from trainer_kai.cli.ending import NodeEnd
from trainer_kai.cli.queuetables import queue_tables
from trainer_kai.cli.simulation import Outcome
from trainer_kai.cli.table import WIDEST, cut, fitted, without_uids, wrapped

__all__ = ["bar", "picture"]

_NAME: Final = 40  # columns of a node's name
_QUEUE: Final = 32  # and of a queue's beside a unit
_BAR: Final = 16  # devices that are drawn one by one
_MANY: Final = 50  # units, nodes, and lines of what happens
_FEW: Final = 16  # pods that are named
_LEGEND: Final = "# used or promised   = reserved   ~ being released   . idle"
_EVENTS: Final = (
    ("bound", "binds"),
    ("evicted", "evictions"),
    ("nominated", "nominations"),
)


def picture(outcome: Outcome, width: int = WIDEST) -> str:
    """Return the whole picture."""
    parts = [*queue_tables(outcome.ending.queues), _units(outcome, width), _nodes(outcome, width)]
    parts += _cycles(outcome.document["cycles"], width)
    parts += [_stats(outcome.document["stats"])] if "stats" in outcome.document else []
    return "\n\n".join(filter(None, parts))


def _stats(stats: Mapping[str, Any]) -> str:
    """Return how long it took, and how much was tried to find room at the cost of others."""
    lines = [f"STATS   {stats['load_s']:.3f} s to read it"]
    for at, it in enumerate(stats["cycles"][:_MANY], 1):
        actions = ", ".join(f"{name} {took_s:.3f} s" for name, took_s in it["actions"].items())
        cut_short = f", {it['cut']} cut short" if it["cut"] else ""
        tried = f"{it['simulations']} trial{'s' * (it['simulations'] != 1)}{cut_short}"
        lines.append(f"  cycle {at}: {it['plan_s']:.3f} s ({actions}), {tried}")
    left = len(stats["cycles"]) - _MANY
    return "\n".join([*lines, *[f"  {left} more cycles; -o json has all"] * (left > 0)])


def _units(outcome: Outcome, width: int) -> str:
    """Return the units, each with its reason below it; where there are many, those that matter."""
    groups, reasons = outcome.document["podGroups"], _reasons(outcome.document)
    shown = _that_matter(outcome)
    if not shown:
        return f"{len(groups)} units, and none of them waits or moves" if groups else ""
    rows = []
    for group in shown:
        key = Key(group["namespace"], group["name"])
        placed, waiting = outcome.counts.get(key, (0, 0))
        queue, verdict = cut(group["queue"], _QUEUE), group["verdict"] or "-"
        rows.append((without_uids(str(key)), queue, str(placed), str(waiting), verdict))
    head, *lines = fitted(("UNIT", "QUEUE", "PLACED", "WAITING", "VERDICT"), rows).splitlines()
    text = [head]
    for group, line in zip(shown, lines, strict=True):
        text.append(line)
        key = Key(group["namespace"], group["name"])
        message = reasons.get(key) or outcome.hints.get(key, "")
        text += wrapped(message, "  ", width)
    left = len(groups) - len(shown)
    text += [f"{left} more of which nothing waits or moves"] if left else []
    return "\n".join(text)


def _that_matter(outcome: Outcome) -> list[Mapping[str, Any]]:
    groups: list[Mapping[str, Any]] = outcome.document["podGroups"]
    if len(groups) <= _MANY:
        return groups
    moved = {
        (it["namespace"], it["pod"])
        for cycle in outcome.document["cycles"]
        for _, name in _EVENTS
        for it in cycle[name]
    }
    busy = {outcome.groups.get(Key(*pod)) for pod in moved}
    return [
        group
        for group in groups
        if group["verdict"]
        or (key := Key(group["namespace"], group["name"])) in busy
        or outcome.counts.get(key, (0, 0))[1]
        or key in outcome.held_back
    ]


def _reasons(document: Mapping[str, Any]) -> dict[Key, str]:
    last = document["cycles"][-1]["unschedulable"]
    return {Key(it["namespace"], it["podGroup"]): it["message"] for it in last}


def _nodes(outcome: Outcome, columns: int) -> str:
    """Return each node with GPUs as a bar, as many beside each other as there is room for."""
    nodes = [node for node in outcome.ending.nodes if node.whole]
    bare = len(outcome.ending.nodes) - len(nodes)
    if not nodes:
        return ""
    bars = [(cut(node.name, _NAME), f"{bar(node)} {node.fault}".rstrip()) for node in nodes]
    named = bars if len(bars) <= _MANY else [*_alike(bars)]
    width = max(len(name) for name, _ in named)
    cells = [f"{name.ljust(width)}  {drawn}" for name, drawn in named]
    widest = max(map(len, cells))
    across = max((columns + 3) // (widest + 3), 1)
    lines = [
        "   ".join(cell.ljust(widest) for cell in cells[at : at + across]).rstrip()
        for at in range(0, len(cells), across)
    ]
    head = f"NODES   {_LEGEND}" + (f"   ({bare} without GPUs)" if bare else "")
    return "\n".join([head, *lines])


def _alike(bars: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield how many nodes have a bar; the name where it is only one."""
    names: dict[str, list[str]] = {}
    for name, drawn in bars:
        names.setdefault(drawn, []).append(name)
    for drawn, (first, *more) in sorted(names.items()):
        yield f"{len(more) + 1} nodes" if more else first, drawn


def bar(node: NodeEnd) -> str:
    """Draw the devices of a node; where a device is shared, it is used."""
    whole = node.whole // 1000
    idle = min(max(node.idle // 1000, 0), whole)
    releasing = min(max(node.releasing // 1000, 0), whole - idle)
    reserved = min(-(-node.reserved // 1000), whole - idle - releasing)
    used = whole - idle - releasing - reserved
    counts = (("#", used), ("=", reserved), ("~", releasing), (".", idle))
    if whole <= _BAR:
        return f"[{''.join(mark * count for mark, count in counts)}]"
    return f"[{' '.join(f'{count}{mark}' for mark, count in counts if count)}]"


def _cycles(cycles: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield what happens; cycles one after another that are alike are told once."""
    told = [(at, _told(cycle), [*_events(cycle, width)]) for at, cycle in enumerate(cycles, 1)]
    for _, alike in groupby(told, key=lambda it: it[1:]):
        (first, text, events), *more = alike
        head = f"CYCLES {first} to {more[-1][0]}" if more else f"CYCLE {first}"
        more_lines = len(events) - _MANY
        rest = [f"  {more_lines} more lines; -o json has all"] if more_lines > 1 else []
        yield "\n".join([f"{head}   {text}", *(events[:_MANY] if rest else events), *rest])


def _told(cycle: Mapping[str, Any]) -> str:
    counts = [f"{len(cycle[name])} {word}" for word, name in _EVENTS if cycle[name]]
    held = sum(it["count"] for it in cycle["reservations"])
    counts += [f"{held} reserved"] if held else []
    waiting = len(cycle["unschedulable"])
    counts += [f"{waiting} unit{'s' * (waiting > 1)} waiting"] if waiting else []
    return ", ".join(counts) or "nothing happens"


def _events(cycle: Mapping[str, Any], width: int) -> Iterator[str]:
    for word, name in _EVENTS:
        for (where, why), events in _by_place(cycle[name]).items():
            pods = [f"{it['namespace']}/{it['pod']}" for it in events]
            more = f" and {len(pods) - _FEW} more" if len(pods) > _FEW else ""
            text = f"{word} {where}: {', '.join(pods[:_FEW])}{more}"
            yield from wrapped(text, "    ", width)
            told = why + _of_each(events)
            yield from (f"  {line}" for line in wrapped(told, "  ", width - 2))
    for it in cycle["reservations"]:
        group = f"{it['namespace']}/{it['podGroup']}"
        text = f"  reserved on {it['node']}: {it['count']} for {it['subGroup']} of {group}"
        yield cut(text, WIDEST)


def _of_each(events: Iterable[Mapping[str, Any]]) -> str:
    """Say of how many that leave by themselves a reason tells what is lost."""
    units = {(it["namespace"], *it["podGroups"]) for it in events if it.get("workLost")}
    return f" (each of {len(units)} loses as much)" if len(units) > 1 else ""


def _by_place(
    events: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return the pods by where they come to, or by what makes them go and, as they come, why."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for it in events:
        why = it.get("reason", "")
        where = f"by {it['action']}" if why else f"to {it['node']}"
        found.setdefault((where, why), []).append(it)
    return dict(sorted(found.items(), key=lambda it: it[0][0]))
