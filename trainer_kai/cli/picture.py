"""A simulation as a picture for people: queues as a tree, units with their reasons, nodes as bars.

Plain text of at most 100 columns, so that it can be copied, searched and piped.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.core.model import UNBOUND, Kind
from trainer_kai.api.meta import Key
from trainer_kai.cli.ending import NodeEnd, QueueEnd
from trainer_kai.cli.simulation import Outcome
from trainer_kai.cli.table import table

__all__ = ["picture"]

_WIDTH: Final = 100
_NAME: Final = 40  # columns of a name
_BAR: Final = 16  # devices that are drawn one by one
_TITLES: Final = {Kind.GPU: "GPUS", Kind.CPU: "CPUS", Kind.MEMORY: "MEMORY"}
_LEGEND: Final = "# used   = reserved   ~ being released   . idle"
_EVENTS: Final = (
    ("bound", "binds"),
    ("evicted", "evictions"),
    ("nominated", "nominations"),
)


def picture(outcome: Outcome) -> str:
    """Return the whole picture."""
    parts = [*_queues(outcome.ending.queues), _units(outcome), _nodes(outcome)]
    parts += _cycles(outcome.document["cycles"])
    return "\n\n".join(filter(None, parts))


def cut(text: str, width: int) -> str:
    """Return a text that is not wider than so many columns."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _queues(queues: Sequence[QueueEnd]) -> Iterator[str]:
    """Yield a table for each kind that somebody bounds, and for GPUs where there are some."""
    for kind in (Kind.GPU, Kind.CPU, Kind.MEMORY):
        if not any(_is_told(queue, kind) for queue in queues):
            continue
        rows = [
            (
                cut("  " * depth + queue.name, _NAME),
                _amount(queue.quota[kind], kind),
                _amount(queue.limit[kind], kind),
                _amount(queue.fair_share[kind], kind),
                _amount(queue.allocated[kind], kind),
                _borrowed(queue, kind),
                _amount(max(queue.requested[kind] - queue.allocated[kind], 0), kind),
            )
            for depth, queue in _tree(queues)
        ]
        headings = (_TITLES[kind], "QUOTA", "LIMIT", "FAIR SHARE", "USED", "BORROWED", "WAITING")
        yield table(headings, rows)


def _is_told(queue: QueueEnd, kind: Kind) -> bool:
    if kind == Kind.GPU:
        return bool(queue.allocated[kind] or queue.requested[kind] or queue.quota[kind] > 0)
    return queue.quota[kind] > 0 or queue.limit[kind] != UNBOUND


def _tree(queues: Sequence[QueueEnd]) -> Iterator[tuple[int, QueueEnd]]:
    """Yield each queue below its parent; those without a way up, which take nobody, come last."""
    shown = set()
    for depth, queue in _below(queues, "", 0):
        shown.add(queue.name)
        yield depth, queue
    yield from ((0, queue) for queue in queues if queue.name not in shown)


def _below(queues: Sequence[QueueEnd], parent: str, depth: int) -> Iterator[tuple[int, QueueEnd]]:
    for queue in queues:
        if queue.parent == parent:
            yield depth, queue
            yield from _below(queues, queue.name, depth + 1)


def _amount(amount: float, kind: Kind) -> str:
    if amount == UNBOUND:
        return "-"
    if kind == Kind.MEMORY:
        return f"{_number(amount / 2**30)}Gi"
    return _number(amount / 1000)


def _number(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _borrowed(queue: QueueEnd, kind: Kind) -> str:
    quota = queue.quota[kind]
    more = max(queue.allocated[kind] - quota, 0) if quota != UNBOUND else 0
    return _amount(more, kind) if more else "-"


def _units(outcome: Outcome) -> str:
    """Return the units, each with its reason below it if it has one."""
    groups, reasons = outcome.document["podGroups"], _reasons(outcome.document)
    if not groups:
        return ""
    rows = []
    for group in groups:
        name = f"{group['namespace']}/{group['name']}"
        placed, waiting = outcome.counts.get(Key(group["namespace"], group["name"]), (0, 0))
        queue, verdict = cut(group["queue"], _NAME // 2), group["verdict"] or "-"
        rows.append((cut(name, _NAME), queue, str(placed), str(waiting), verdict))
    lines = table(("UNIT", "QUEUE", "PLACED", "WAITING", "VERDICT"), rows).splitlines()
    shown = [lines[0]]
    for group, line in zip(groups, lines[1:], strict=True):
        shown.append(line)
        message = reasons.get((group["namespace"], group["name"]), "")
        shown += textwrap.wrap(message, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(shown)


def _reasons(document: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    last = document["cycles"][-1]["unschedulable"]
    return {(it["namespace"], it["podGroup"]): it["message"] for it in last}


def _nodes(outcome: Outcome) -> str:
    """Return each node with GPUs as a bar, as many beside each other as there is room for."""
    nodes = [node for node in outcome.ending.nodes if node.whole]
    bare = len(outcome.ending.nodes) - len(nodes)
    if not nodes:
        return ""
    width = max(len(cut(node.name, _NAME)) for node in nodes)
    cells = [f"{cut(node.name, _NAME).ljust(width)}  {_bar(node)}" for node in nodes]
    widest = max(map(len, cells))
    across = max((_WIDTH + 3) // (widest + 3), 1)
    lines = [
        "   ".join(cell.ljust(widest) for cell in cells[at : at + across]).rstrip()
        for at in range(0, len(cells), across)
    ]
    head = f"NODES   {_LEGEND}" + (f"   ({bare} without GPUs)" if bare else "")
    return "\n".join([head, *lines])


def _bar(node: NodeEnd) -> str:
    """Draw the devices of a node; where a device is shared, it is used."""
    whole = node.whole // 1000
    idle = min(max(node.idle // 1000, 0), whole)
    releasing = min(max(node.releasing // 1000, 0), whole - idle)
    reserved = min(-(-node.reserved // 1000), whole - idle - releasing)
    used = whole - idle - releasing - reserved
    marks = "".join(
        mark * count
        for mark, count in (("#", used), ("=", reserved), ("~", releasing), (".", idle))
    )
    if whole <= _BAR:
        return f"[{marks}]"
    counts = (("#", used), ("=", reserved), ("~", releasing), (".", idle))
    return f"[{' '.join(f'{count}{mark}' for mark, count in counts if count)}]"


def _cycles(cycles: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, cycle in enumerate(cycles, 1):
        yield "\n".join([f"CYCLE {number}   {_told(cycle)}", *_events(cycle)])


def _told(cycle: Mapping[str, Any]) -> str:
    counts = [f"{len(cycle[name])} {word}" for word, name in _EVENTS if cycle[name]]
    held = sum(it["count"] for it in cycle["reservations"])
    counts += [f"{held} reserved"] if held else []
    counts += [f"{len(cycle['unschedulable'])} waiting"] if cycle["unschedulable"] else []
    return ", ".join(counts) or "nothing happens"


def _events(cycle: Mapping[str, Any]) -> Iterator[str]:
    for word, name in _EVENTS:
        for where, pods in _by_node(cycle[name]).items():
            text = f"{word}{f' {where}' if where else ''}: {', '.join(pods)}"
            yield from textwrap.wrap(
                text,
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
    for it in cycle["reservations"]:
        group = f"{it['namespace']}/{it['podGroup']}"
        text = f"  reserved on {it['node']}: {it['count']} for {it['subGroup']} of {group}"
        yield cut(text, _WIDTH)


def _by_node(events: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for it in events:
        where = f"to {it['node']}" if "node" in it else f"by {it['action']}"
        found.setdefault(where, []).append(f"{it['namespace']}/{it['pod']}")
    return dict(sorted(found.items()))
