"""A recorded run as a picture (SVG): a row per node, a line per TrainJob that waits. Pure.

It is static, loads nothing, and brings its own background, dark for a reader who prefers that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from e2e.cluster.resources import Obj
from e2e.demo.intervals import Bar, Intervals, Place, Wait

_WIDTH: Final = 900
_LEFT: Final = 96  # the names of nodes and TrainJobs are left of it
_RIGHT: Final = 884
_TOP: Final = 92
_NODE_PX: Final = 64  # of a node with 8 GPUs
_SMALL_NODE_PX: Final = 90  # of a node with one: 0.2 of it are high enough for a name
_GAP: Final = 8
_LANE_PX: Final = 26
_TEXT: Final = 13
_SMALL: Final = 12
_CHAR: Final = 0.6  # how wide a character is at most on average, in parts of its height
_NOTHING: Final = 0.01  # of a GPU
_TICKS_S: Final = (5, 10, 20, 30, 60, 120, 300)
_QUEUE_COLOURS: Final = ("#CC79A7", "#56B4E9", "#E69F00", "#009E73", "#F0E442")  # Okabe and Ito
_MARK_PX: Final = 18
_USUAL_ROLE: Final = "node"
_TITLE: Final = "Nine TrainJobs of four queues on five nodes"
_SUBTITLE: Final = (
    "Recorded by make demo on a real control plane. "
    "A bar is a TrainJob on a node, as high as the GPUs it has there."
)
_WAITING: Final = (
    "Waiting, from the submission or eviction until pods are on nodes, and the scheduler's reason:"
)
_STYLE: Final = f"""\
text {{ font: {_TEXT}px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif }}
text {{ fill: #1f2328 }} .pale {{ fill: #59636e }} .on {{ fill: #111 }}
.paper {{ fill: #ffffff }} .row {{ fill: #f3f5f8 }} .frame {{ stroke: #d1d9e0; fill: none }}
.grid {{ stroke: #d1d9e0 }} .cut {{ stroke: #ffffff }} .halo {{ stroke: #ffffff }}
.halo {{ paint-order: stroke; stroke-width: 5px; stroke-linejoin: round }}
.s {{ font-size: {_SMALL}px }} .b {{ font-weight: 600 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .pale {{ fill: #9aa4af }} .on {{ fill: #111 }}
.paper {{ fill: #0d1117 }} .row {{ fill: #171d25 }} .frame, .grid {{ stroke: #343c46 }}
.cut, .halo {{ stroke: #0d1117 }}
}}"""


class _Scale(NamedTuple):
    """Where a second is, and which colour a queue has."""

    end_s: float
    colours: Mapping[str, str]

    def x(self, at_s: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * at_s / self.end_s


class _Row(NamedTuple):
    """A node."""

    name: str
    gpus: float
    y: float
    height: float


class _Slot(NamedTuple):
    """A bar, above so many GPUs of its node."""

    bar: Bar
    offset: float

    @property
    def top(self) -> float:
        return self.offset + self.bar.gpus


def timeline_svg(run: Intervals, nodes: Mapping[str, float], queues: Sequence[Obj]) -> str:
    """Return the picture of a run on nodes with so many GPUs each."""
    used = {it.queue for it in run.waits}
    shown = [it for it in queues if it["metadata"]["name"] in used]
    names = [it["metadata"]["name"] for it in shown]
    scale = _Scale(run.end_s, dict(zip(names, _QUEUE_COLOURS, strict=False)))
    rows = [*_rows(nodes)]
    lanes = _lanes(run)
    lanes_y = rows[-1].y + rows[-1].height + 34
    axis_y = lanes_y + _LANE_PX * len(lanes) + 4
    parts = [
        *_head(shown, scale),
        *_ground(rows, scale, axis_y),
        *(part for row in rows for part in _draw_row(row, run, scale)),
        _text(16, lanes_y - 8, _WAITING, "pale s halo"),
        *_draw_lanes(lanes, run, scale, lanes_y),
    ]
    height = axis_y + 30
    body = "\n".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:g}" \
viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-labelledby="title desc">
<title id="title">{_TITLE}</title>
<desc id="desc">{escape(_description(run))}</desc>
<style>
{_STYLE}
</style>
<defs>{_patterns(scale)}</defs>
<rect class="paper" width="{_WIDTH}" height="{height:g}" rx="8"/>
<rect class="frame" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1:g}" rx="8"/>
{body}
</svg>
"""


def _rows(nodes: Mapping[str, float]) -> Iterator[_Row]:
    y = float(_TOP)
    for name, gpus in nodes.items():
        height = _NODE_PX if gpus > 1 else _SMALL_NODE_PX
        yield _Row(name, gpus, y, height)
        y += height + _GAP


def _lanes(run: Intervals) -> list[str]:
    """Return the TrainJobs with a line: one that was told why it waits, or runs without GPUs."""
    told = [it for it in run.waits if it.reason or it.evicted_for]
    without = [it for it in run.bars if not it.gpus]
    begun = [(it.begin_s, it.job) for it in told] + [(it.begin_s, it.job) for it in without]
    return list(dict.fromkeys(job for _, job in sorted(begun)))


def _head(queues: Sequence[Obj], scale: _Scale) -> Iterator[str]:
    yield _text(16, 30, _TITLE, "b", size=17)
    yield _text(16, 51, _SUBTITLE, "pale s")
    x = 16.0
    for queue in queues:
        name, gpu = queue["metadata"]["name"], queue["spec"]["resources"]["gpu"]
        limit = f", limit {gpu['limit']} GPU" if gpu["limit"] > 0 else ""
        words = f"quota {gpu['quota']} GPU{limit}"
        yield _rect(x, 65, 13, 13, f'rx="3" fill="{scale.colours[name]}"')
        yield _text(x + 19, 76, f'<tspan class="b">{name}</tspan> {words}', "s")
        x += 19 + 0.88 * _width(f"{name} {words}", _SMALL) + 24


def _ground(rows: Sequence[_Row], scale: _Scale, axis_y: float) -> Iterator[str]:
    """Yield the rows of nodes, and the seconds."""
    for row in rows:
        yield _rect(_LEFT, row.y, _RIGHT - _LEFT, row.height, 'class="row" rx="3"')
        yield _text(16, row.y + row.height / 2 - 2, row.name, "b")
        yield _text(16, row.y + row.height / 2 + 14, f"{row.gpus:g} GPU", "pale s")
    step_s = next((it for it in _TICKS_S if scale.end_s / it <= 10), _TICKS_S[-1])
    for no in range(int(scale.end_s / step_s) + 1):
        x = scale.x(no * step_s)
        if x < _RIGHT - 8:
            yield f'<path class="grid" d="M{x:.1f} {_TOP - 4}V{axis_y:g}"/>'
            yield _text(x, axis_y + 17, f"{no * step_s} s", "pale s", anchor="middle")


def _draw_row(row: _Row, run: Intervals, scale: _Scale) -> Iterator[str]:
    slots = _stacked([it for it in run.bars if it.node == row.name and it.gpus])
    px = row.height / row.gpus
    heights = {slot: (row.y + row.height - slot.top * px, slot.bar.gpus * px) for slot in slots}
    for slot, (y, height) in heights.items():
        yield from _draw_bar(slot.bar, y, height, scale)
        for place in run.places:
            if place.taken_by == slot.bar:
                begin_s = max([place.begin_s, *_ends_of_others(slot, slots)])
                yield from _draw_place(place._replace(begin_s=begin_s), y, height, scale)
    for slot, (y, height) in heights.items():  # last: the name of a short bar covers its neighbours
        yield from _name_bar(slot.bar, y, height, scale)


def _stacked(bars: Sequence[Bar]) -> list[_Slot]:
    """Put the bars of a node above each other, each as low as there is room."""
    slots: list[_Slot] = []
    for bar in bars:
        offset = 0.0
        beside = [it for it in slots if it.bar.end_s > bar.begin_s]
        for slot in sorted(beside, key=lambda it: it.offset):
            if slot.offset < offset + bar.gpus - _NOTHING:
                offset = max(offset, slot.top)
        slots.append(_Slot(bar, offset))
    return slots


def _ends_of_others(slot: _Slot, slots: Sequence[_Slot]) -> list[float]:
    """Return until when other bars were where this one is."""
    return [
        it.bar.end_s
        for it in slots
        if it.offset < slot.top - _NOTHING
        and it.top > slot.offset + _NOTHING
        and it.bar.end_s <= slot.bar.begin_s
    ]


def _draw_bar(bar: Bar, y: float, height: float, scale: _Scale) -> Iterator[str]:
    x, right = scale.x(bar.begin_s), scale.x(bar.end_s)
    style = f'class="cut" rx="3" fill="{scale.colours[bar.queue]}"'
    yield _rect(x, y, right - x, height, style)
    if bar.evicted_for and right - x < 2 * _MARK_PX:  # above a name that is written upwards
        yield _cross((x + right) / 2, y + 12)
    elif bar.evicted_for:
        yield _cross(right - 13, y + height / 2)


def _name_bar(bar: Bar, y: float, height: float, scale: _Scale) -> Iterator[str]:
    """Write along a bar if there is room, else upwards in it, else beside it."""
    x, right = scale.x(bar.begin_s), scale.x(bar.end_s)
    room = right - x - 12 - (_MARK_PX if bar.evicted_for else 0)
    name = bar.job if bar.role == _USUAL_ROLE else f"{bar.job} {bar.role}"
    if _width(name, _TEXT) > room and bar.role != _USUAL_ROLE:
        name = bar.role
    if _width(name, _TEXT) <= room:
        lines = _words_in(bar, name, room, height)
        yield from _lines(x + 7, y + height / 2, lines, "on")
    elif _width(name, _TEXT) <= height - 24 and right - x >= _TEXT - 3:
        x, y = (x + right) / 2 + 4, y + height - 4
        yield f'<g transform="rotate(-90 {x:.1f} {y:.1f})">{_text(x, y, name, "on b")}</g>'
    else:
        yield _text(_beside(x, right, name), y + height / 2 + 4, name, "b halo")


def _words_in(bar: Bar, name: str, room: float, height: float) -> list[str]:
    """Return the lines of text that a bar has room for."""
    amount = f"{bar.gpus:g} GPU"
    lines = [f'<tspan class="b">{name}</tspan>']
    if _width(f"{name} {amount}", _TEXT) <= room:
        lines[0] += f" {amount}"
    elif height >= 2.4 * _TEXT and _width(amount, _TEXT) <= room:
        lines.append(amount)
    if bar.evicted_for and height >= (len(lines) + 1.4) * _TEXT:
        words = f"evicted for {bar.evicted_for}"
        lines += [words] if _width(words, _TEXT) <= room else []
    return lines


def _draw_place(place: Place, y: float, height: float, scale: _Scale) -> Iterator[str]:
    bar = place.taken_by
    x, right = scale.x(place.begin_s), scale.x(bar.begin_s)
    style = f'fill="url(#{_pattern_of(bar.queue)})" stroke="{scale.colours[bar.queue]}"'
    style += ' stroke-dasharray="4 3" rx="3"'
    yield _rect(x + 1, y + 1, right - x - 2, height - 2, style)
    words = ["reserved for", f"{bar.job}'s {bar.role}"]
    if _width(" ".join(words), _TEXT) <= right - x - 16:
        words = [" ".join(words)]
    yield from _lines(x + 8, y + height / 2, words, "halo")


def _draw_lanes(lanes: Sequence[str], run: Intervals, scale: _Scale, top: float) -> Iterator[str]:
    for no, job in enumerate(lanes):
        y = top + (no + 0.5) * _LANE_PX
        waits = [it for it in run.waits if it.job == job]
        colour = scale.colours[waits[0].queue]
        yield _rect(16, y - 6, 11, 11, f'rx="3" fill="{colour}"')
        yield _text(33, y + 4, job, "b")
        for wait in waits:
            yield from _draw_wait(wait, y, scale)
        without = [it for it in run.bars if it.job == job and not it.gpus]
        if without:
            yield _draw_work(without, y, scale)
            pods = "1 pod runs" if len(without) == 1 else f"{len(without)} pods run"
            words = f"{pods} without GPUs"
            right = scale.x(max([it.end_s for it in waits] + [it.end_s for it in without]))
            x = _beside(scale.x(waits[0].begin_s), right, words)
            yield _text(x, y + 4, words, "halo")


def _draw_wait(wait: Wait, y: float, scale: _Scale) -> Iterator[str]:
    x, right = scale.x(wait.begin_s), scale.x(wait.end_s)
    stroke = f'stroke="{scale.colours[wait.queue]}" stroke-width="2.5"'
    yield f'<path {stroke} stroke-dasharray="6 4" d="M{x:.1f} {y:g}H{right:.1f}"/>'
    yield f'<path {stroke} d="M{right:.1f} {y - 6:g}v12"/>'
    told = wait.reason
    if wait.evicted_for:
        yield _cross(x, y)
        words = f"evicted for {wait.evicted_for}"
        if _width(words, _TEXT) <= right - x - 28:
            yield _text(x + 14, y + 4, words, "halo")
        else:
            told = f"{words}, {told}"
    else:
        yield f'<path {stroke} d="M{x:.1f} {y - 6:g}v12"/>'
    if told:
        took = f"{wait.end_s - wait.begin_s:.1f} s"
        label = f'{told} <tspan class="pale">{took}</tspan>'
        yield _text(_beside(x, right, f"{told} {took}"), y + 4, label, "halo")


def _beside(x: float, right: float, words: str) -> float:
    """Return where a text begins that is right of something, or left of it if cut off there."""
    width = _width(words, _TEXT)
    return right + 8 if right + 8 + width <= _RIGHT else max(_LEFT, x - 10 - width)


def _draw_work(bars: Sequence[Bar], y: float, scale: _Scale) -> str:
    """Return a line for pods without GPUs."""
    x = scale.x(min(it.begin_s for it in bars))
    right = scale.x(max(it.end_s for it in bars))
    style = f'rx="2" fill="{scale.colours[bars[0].queue]}"'
    return _rect(x, y - 4, right - x, 8, style)


def _patterns(scale: _Scale) -> str:
    return "".join(
        f'<pattern id="{_pattern_of(queue)}" width="8" height="8" '
        f'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<path d="M0 0V8" stroke="{colour}" stroke-width="2" opacity="0.5"/></pattern>'
        for queue, colour in scale.colours.items()
    )


def _pattern_of(queue: str) -> str:
    return f"reserved-{queue}"


def _description(run: Intervals) -> str:
    """Return the run in words, for a reader who does not see it."""
    told = [
        f"{it.job} of queue {it.queue} has {it.gpus:g} GPU of {it.node} "
        f"from {it.begin_s:.0f} to {it.end_s:.0f} s"
        + (f" and is evicted for {it.evicted_for}" if it.evicted_for else "")
        for it in run.bars
        if it.gpus
    ]
    told += [
        f"{it.gpus:g} GPU of {it.node} are reserved for the {it.role} of {it.job} "
        f"from {begin_s:.0f} to {it.begin_s:.0f} s"
        for it, begin_s in run.places
    ]
    told += [
        f"{it.job} waits from {it.begin_s:.0f} to {it.end_s:.0f} s: {it.reason}"
        for it in run.waits
        if it.reason
    ]
    return "; ".join(told) + "."


def _lines(x: float, middle: float, lines: Sequence[str], style: str) -> Iterator[str]:
    """Yield lines of text around a height."""
    for no, line in enumerate(lines):
        y = middle + (no - (len(lines) - 1) / 2) * (_TEXT + 2) + _TEXT * 0.32
        yield _text(x, y, line, style)


def _text(
    x: float, y: float, words: str, style: str = "", *, size: int = 0, anchor: str = ""
) -> str:
    more = f' style="font-size:{size}px"' if size else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}"{more}>{words}</text>'


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'


def _cross(x: float, y: float) -> str:
    """Return the mark of an eviction."""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="#B3261E" stroke="#fff"/>'
        f'<path d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7" stroke="#fff" stroke-width="2"/>'
    )


def _width(words: str, size: int) -> float:
    return len(words) * size * _CHAR
