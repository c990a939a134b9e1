"""The tables of one run of the demo as an animated picture (SVG), without scripts and font files.

It shows the states that lasted for a moment, each for the same time, and at last the result.
A viewer without animation shows the result.
"""

import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.terminal_theme import SVG_EXPORT_THEME

from e2e.demo.screen import Frame, ended_table, live_table
from e2e.demo.status_rows import Ended

__all__ = ["key_frames", "picture"]

_COLUMNS: Final = 106
_LINE_PX: Final = 24.4  # as rich draws it: 20 px high, 12.2 px wide
_WIDTH_PX: Final = 1330
_MARGIN_PX: Final = 18
_LASTING_S: Final = 0.3
_SHOWN_S: Final = 1.7
_RESULT_S: Final = 10.0
_PARTS: Final = "{styles}\0{matrix}"
_CLIP: Final = re.compile(r' clip-path="[^"]*"')


class _Drawn(NamedTuple):
    """A table as a part of the picture: its style rules, its texts, and its height."""

    styles: str
    texts: str
    lines: int


def key_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the last frame of each set of states that lasted for a moment."""
    groups = [[*it] for _, it in itertools.groupby(frames, _states)]
    return [
        now[-1]
        for now, then in itertools.pairwise(groups)
        if now[-1].rows and then[0].after_s - now[0].after_s >= _LASTING_S
    ]


def picture(frames: Sequence[Frame], result: Sequence[Ended], title: str) -> str:
    """Return the key frames and the result, one after the other, as an SVG."""
    tables = [
        *((f"after {it.after_s:.1f} s", live_table(it.rows)) for it in key_frames(frames)),
        (f"after {frames[-1].after_s:.1f} s: the result", ended_table(result)),
    ]
    drawn = [_draw(table, heading, f"f{no}") for no, (heading, table) in enumerate(tables)]
    height = max(it.lines for it in drawn) * _LINE_PX + 3 * _MARGIN_PX + _LINE_PX
    groups = "\n".join(f'<g class="f" id="g{no}">{it.texts}</g>' for no, it in enumerate(drawn))
    background, foreground = SVG_EXPORT_THEME.background_color, SVG_EXPORT_THEME.foreground_color
    return f"""\
<svg viewBox="0 0 {_WIDTH_PX} {height:.0f}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>{title}</title>
<style>
text {{ font: 20px "Fira Code", Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }}
{"".join(it.styles for it in drawn)}
{"".join(_animation(len(drawn)))}
</style>
<rect width="{_WIDTH_PX}" height="{height:.0f}" rx="8" fill="{background.hex}"/>
<text x="{_MARGIN_PX}" y="{_MARGIN_PX + 20}" fill="{foreground.hex}">{title}</text>
<g transform="translate({_MARGIN_PX},{2 * _MARGIN_PX + _LINE_PX:.0f})">
{groups}
</g>
</svg>
"""


def _states(frame: Frame) -> list[tuple[str, str]]:
    return [(row.job, row.state) for row in frame.rows]


def _draw(table: Table, heading: str, name: str) -> _Drawn:
    table.box, table.expand = box.SIMPLE_HEAD, True
    text = io.StringIO()
    console = Console(
        record=True, width=_COLUMNS, file=text, force_terminal=True, color_system="256"
    )
    console.print(Group(f"  {heading}", table), highlight=False)
    lines = text.getvalue().count("\n")
    parts = console.export_svg(code_format=_PARTS, unique_id=name)
    styles, _, texts = parts.replace("&#160;", "\N{NO-BREAK SPACE}").partition("\0")
    return _Drawn(f"{styles}\n", _CLIP.sub("", texts), lines)


def _animation(count: int) -> Iterator[str]:
    """Yield the rules by which one group after the other is visible; without them the last is."""
    whole_s = (count - 1) * _SHOWN_S + _RESULT_S
    yield ".f { visibility: hidden }\n"
    yield f"#g{count - 1} {{ visibility: visible }}\n"
    yield "@media (prefers-reduced-motion: no-preference) {\n"
    for no in range(count):
        begin, end = no * _SHOWN_S / whole_s, (no + 1) * _SHOWN_S / whole_s
        end = min(end, 1.0) if no < count - 1 else 1.0
        yield (
            f"#g{no} {{ animation: k{no} {whole_s:g}s step-end infinite }}\n"
            f"@keyframes k{no} {{ 0% {{ visibility: {'visible' if no == 0 else 'hidden'} }} "
            f"{begin:.3%} {{ visibility: visible }} "
            f"{end:.3%} {{ visibility: {'visible' if end == 1 else 'hidden'} }} }}\n"
        )
    yield "}\n"
