"""Nodes as bars: a character for each whole GPU and MIG profile, ten for each GPU that pods share.

Plain text of a limited width. Nodes on which pods share GPUs have lines of their own, with the
names of these pods. A shared GPU is in braces, all else is in brackets. If there are many nodes,
nodes that look the same are counted, and a shared GPU has one character. Where a PodGroup has a
constraint of topology, nodes are drawn by domain.
"""

import string
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.gpu_requests import WHOLE_GPU
from trainer_kai.api.text import counted
from trainer_kai.cli.output.table import truncated, without_uids, wrapped_lines

_NAME_WIDTH: Final = 40  # columns of the name of a node
_BAR_WIDTH: Final = 16  # GPUs of a node, or MIG profiles, that are drawn one by one
_SHARED_WIDTH: Final = 10  # characters of a shared GPU
_MAX_SHARED: Final = 16  # shared GPUs of a node that are drawn
_MAX_NODES: Final = 50  # nodes that are drawn one by one
_MAX_DOMAINS: Final = 50  # that are drawn
_MAX_LEGEND: Final = 50  # lines with the names of pods
_LETTERS: Final = string.ascii_lowercase  # of the pods of a node that share GPUs
_USED, _SHARED, _RESERVED, _RELEASING, _IDLE = "#+=~."
_LEGEND: Final = "# used or nominated   = reserved   ~ terminating   . idle"
_MANY_LEGEND: Final = "+ shared by pods"
_SHARED_LEGEND: Final = "ten characters in braces are a shared GPU, and letters are pods"
_NO_BREAK: Final = "\u00a0"


class GpuShare(NamedTuple):
    """What a pod has of one GPU, in 1/1000 GPU."""

    pod: str
    amount: int
    is_nominated: bool = False


class SharedGpu(NamedTuple):
    """A GPU that pods share, in 1/1000 GPU."""

    shares: tuple[GpuShare, ...]
    idle: int
    releasing: int = 0
    reserved: int = 0
    other: int = 0  # of pods of other schedulers


class MigProfile(NamedTuple):
    name: str
    gpus: int  # what a queue is charged for one of them, in 1/1000 GPU
    total: int
    idle: int
    releasing: int = 0
    reserved: int = 0


class NodeGpus(NamedTuple):
    """The GPUs of a node, in 1/1000 GPU; the numbers are of whole GPUs that no pods share."""

    name: str
    total: int
    idle: int
    releasing: int
    reserved: int
    fault: str = ""  # why the node takes no pods
    shared: tuple[SharedGpu, ...] = ()
    profiles: tuple[MigProfile, ...] = ()
    domain: str | None = None  # of the topology in use; empty: of none; None: there is no topology

    @property
    def all_idle(self) -> int:
        shared = sum(it.idle for it in self.shared)
        return self.idle + shared + sum(it.idle * it.gpus for it in self.profiles)

    @property
    def all_releasing(self) -> int:
        shared = sum(it.releasing for it in self.shared)
        return self.releasing + shared + sum(it.releasing * it.gpus for it in self.profiles)


def node_bars(nodes: Sequence[NodeGpus], columns: int) -> str:
    """Return each node with GPUs as a bar, as many in a line as fit."""
    with_gpus = [node for node in nodes if node.total or node.shared or node.profiles]
    if not with_gpus:
        return ""
    without_gpus = len(nodes) - len(with_gpus)
    lines = [f"NODES   {_LEGEND}" + (f"   ({without_gpus} without GPUs)" if without_gpus else "")]
    is_many = len(with_gpus) > _MAX_NODES
    if any(node.shared for node in with_gpus):
        lines.append(f"        {_MANY_LEGEND if is_many else _SHARED_LEGEND}")
    if all(node.domain is None for node in with_gpus):
        return "\n".join([*lines, *_drawn(with_gpus, columns, is_many=is_many)])
    domains = sorted({node.domain or "" for node in with_gpus}, key=lambda it: (not it, it))
    for domain in domains[:_MAX_DOMAINS]:
        nodes_of = [node for node in with_gpus if (node.domain or "") == domain]
        idle = sum(max(node.all_idle, 0) for node in nodes_of) / WHOLE_GPU
        number = counted(len(nodes_of), "node")
        lines.append(f"{domain or 'in no domain'}: {number}, {idle:g} GPUs idle")
        lines += (f"  {it}" for it in _drawn(nodes_of, columns - 2, is_many=is_many))
    left = len(domains) - _MAX_DOMAINS
    return "\n".join([*lines, *[f"{left} more domains; -o json has all nodes"] * (left > 0)])


def _drawn(nodes: Sequence[NodeGpus], columns: int, *, is_many: bool) -> Iterator[str]:
    if is_many:
        yield from _lines_of_cells(_merged_bars(nodes, columns), columns)
        return
    width = max(len(_name(node)) for node in nodes)
    plain = [node for node in nodes if not (node.shared or node.profiles)]
    cells = [(_name(node).ljust(width), _labelled_bar(node)) for node in plain]
    yield from _lines_of_cells(cells, columns)
    others = [node for node in nodes if node.shared or node.profiles]
    yield from _lines_with_legends(others, width, columns)


def _name(node: NodeGpus) -> str:
    return truncated(node.name, _NAME_WIDTH)


def _labelled_bar(node: NodeGpus, *, shared: int = 0) -> str:
    return f"{' '.join(_brackets(node, shared))} {node.fault}".rstrip()


def _lines_of_cells(cells: Iterable[tuple[str, str]], columns: int) -> Iterator[str]:
    named = [*cells]
    width = max((len(name) for name, _ in named), default=0)
    texts = [f"{name.ljust(width)}  {drawn}" for name, drawn in named]
    widest = max(map(len, texts), default=0)
    number = max((columns + 3) // (widest + 3), 1)
    for first in range(0, len(texts), number):
        yield "   ".join(text.ljust(widest) for text in texts[first : first + number]).rstrip()


def _lines_with_legends(nodes: Iterable[NodeGpus], width: int, columns: int) -> Iterator[str]:
    left = _MAX_LEGEND
    for node in nodes:
        name = _name(node)
        for bars in _packed([*_brackets(node), *filter(None, [node.fault])], columns - width - 2):
            yield f"{name.ljust(width)}  {bars}"
            name = ""
        legend = _legend(node, columns)
        yield from legend[: max(left, 0)]
        left -= len(legend)
    if left < 0:
        yield "  Not all pods are named; -o json has all"


def _packed(parts: Iterable[str], columns: int) -> Iterator[str]:
    line = ""
    for part in parts:
        if line and len(line) + 1 + len(part) > columns:
            yield line
            line = ""
        line = f"{line} {part}".lstrip()
    yield line


def _legend(node: NodeGpus, columns: int) -> list[str]:
    entries: dict[str, list[GpuShare]] = {}
    for device in node.shared:
        for share in device.shares:
            entries.setdefault(share.pod, []).append(share)
    texts = [
        f"{letter} {without_uids(pod)} {_amounts(entries[pod])}"
        for letter, pod in zip(_LETTERS, sorted(entries), strict=False)
    ]
    more = len(entries) - len(texts)
    texts += [f"{more} more pods ({_USED})"] if more else []
    unbroken = ",  ".join(text.replace(" ", _NO_BREAK) for text in texts)
    return [line.replace(_NO_BREAK, " ") for line in wrapped_lines(unbroken, "  ", columns)]


def _amounts(shares: Sequence[GpuShare]) -> str:
    times = f"{len(shares)} x " if shares[1:] else ""
    waits = " (nominated)" if shares[0].is_nominated else ""
    return f"{times}{shares[0].amount / WHOLE_GPU:g}{waits}"


def _merged_bars(nodes: Iterable[NodeGpus], columns: int) -> Iterator[tuple[str, str]]:
    """Yield each bar with the number of its nodes, or the name of its only node."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        bar = _labelled_bar(node._replace(shared=()), shared=len(node.shared))
        names.setdefault(truncated(bar, columns - _NAME_WIDTH - 2), []).append(_name(node))
    for drawn, (first, *more) in sorted(names.items()):
        yield f"{len(more) + 1} nodes" if more else first, drawn


def _brackets(node: NodeGpus, shared: int = 0) -> Iterator[str]:
    """Yield the bars of a node; *shared* is a number of shared GPUs of which no parts are drawn."""
    if node.total or shared or not (node.shared or node.profiles):
        yield f"[{_whole_bar(node, shared)}]"
    for it in node.profiles:
        yield f"[{it.name} {_counted(it.total, it.idle, it.releasing, it.reserved)}]"
    pods = sorted({share.pod for device in node.shared for share in device.shares})
    letters = dict(zip(pods, _LETTERS, strict=False))
    for device in node.shared[:_MAX_SHARED]:
        yield f"{{{_shared_bar(device, letters)}}}"
    more = len(node.shared) - _MAX_SHARED
    if more > 0:
        yield f"and {more} more shared GPUs"


def _whole_bar(node: NodeGpus, shared: int) -> str:
    numbers = node.total, node.idle, node.releasing, node.reserved + WHOLE_GPU - 1
    total, idle, releasing, reserved = (it // WHOLE_GPU for it in numbers)
    return _counted(total, idle, releasing, reserved, shared)


def _counted(total: int, idle: int, releasing: int, reserved: int, shared: int = 0) -> str:
    """Return a mark for each device; numbers of many. The total is without shared GPUs."""
    idle = min(max(idle, 0), total)
    releasing = min(max(releasing, 0), total - idle)
    reserved = min(reserved, total - idle - releasing)
    counts = (
        (_USED, total - idle - releasing - reserved),
        (_SHARED, shared),
        (_RESERVED, reserved),
        (_RELEASING, releasing),
        (_IDLE, idle),
    )
    if total + shared <= _BAR_WIDTH:
        return "".join(mark * count for mark, count in counts)
    return " ".join(f"{count}{mark}" for mark, count in counts if count)


def _shared_bar(device: SharedGpu, letters: dict[str, str]) -> str:
    parts = _parts(device, letters)
    widths = _widths([amount for _, amount in parts])
    return "".join(mark * width for (mark, _), width in zip(parts, widths, strict=True))


def _parts(device: SharedGpu, letters: dict[str, str]) -> list[tuple[str, int]]:
    """Return the parts of a GPU, at most ten: the smallest shares are one part if need be."""
    named = [it for it in device.shares if it.pod in letters and it.amount > 0]
    used = device.other + sum(it.amount for it in device.shares if it.pod not in letters)
    others = [(_RESERVED, device.reserved), (_RELEASING, device.releasing), (_IDLE, device.idle)]
    others = [(mark, amount) for mark, amount in others if amount > 0]
    left = _SHARED_WIDTH - len(others)
    if len(named) + (used > 0) > left:
        by_size = sorted(range(len(named)), key=lambda i: -named[i].amount)
        kept = sorted(by_size[: left - 1])
        used += sum(named[i].amount for i in by_size[left - 1 :])
        named = [named[i] for i in kept]
    parts = [(letters[it.pod], it.amount) for it in named]
    return [*parts, *([(_USED, used)] if used > 0 else []), *others]


def _widths(amounts: Sequence[int]) -> list[int]:
    """Return a width for each part of a GPU, at least 1; they add up to that of the GPU."""
    exact = [amount * _SHARED_WIDTH / WHOLE_GPU for amount in amounts]
    widths = [max(round(it), 1) for it in exact]
    parts = range(len(widths))
    while sum(widths) > _SHARED_WIDTH:
        most = max(parts, key=lambda it: (widths[it] > 1, widths[it] - exact[it]))
        widths[most] -= 1
    while widths and sum(widths) < _SHARED_WIDTH:
        widths[max(parts, key=lambda it: exact[it] - widths[it])] += 1
    return widths
