"""The table of TrainJobs: redrawn on a terminal, elsewhere a line for whatever changes."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.demo.status_rows import Ended, Row

_STYLES = {
    "waits": "yellow",
    "starts": "cyan",
    "runs": "green",
    "evicted": "magenta",
    "Failed": "red",
}
_NODES_WIDTH = 15  # two names a line
_LONG = ("message", "nodes")


class Screen:
    """Shows rows; `with` begins and ends it."""

    def __init__(self, console: Console, began_s: float) -> None:
        self.console = console
        self.after_s = 0.0  # the last rows were shown
        self._began_s = began_s
        self._shown: dict[str, Row] = {}
        self._live = (
            Live(_live_table(()), console=console, refresh_per_second=10, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, rows: Sequence[Row]) -> None:
        """Show the rows of now."""
        self.after_s = time.monotonic() - self._began_s
        if self._live:
            self._live.update(_live_table(rows))
            return
        for row in rows:
            if self._shown.get(row.job) != row:
                self._shown[row.job] = row
                self._say(row)

    def _say(self, row: Row) -> None:
        pods = f"stage {row.stage}, {row.pods} pods" if row.is_under_way else ""
        line = f"{self.after_s:5.1f} s  {row.job:<5}  {row.state:<8}  {pods:<21}  {row.message}"
        self.console.print(line.rstrip(), highlight=False, soft_wrap=True)


def show_ended(console: Console, rows: Sequence[Ended]) -> None:
    """Show what became of TrainJobs."""
    table = _ended_table(rows)
    table.box = box.ROUNDED if console.is_terminal else None
    console.print()
    console.print(table)


def _ended_table(rows: Sequence[Ended]) -> Table:
    """Return a table of what became of TrainJobs."""
    table = _headed("TrainJob", "queue", "waited", "evicted", "message", "nodes", "state")
    for row in rows:
        table.add_row(*row)
    return table


def _live_table(rows: Sequence[Row]) -> Table:
    """Return a table of TrainJobs at one moment."""
    table = _headed("TrainJob", "queue", "stage", "pods", "state", "message")
    table.expand = True  # else its width changes with every row
    for row in rows:
        table.add_row(*row, style=_STYLES.get(row.state, ""))
    return table


def _headed(*headings: str) -> Table:
    table = Table(box=box.ROUNDED)
    for heading in headings:
        table.add_column(
            heading,
            overflow="fold",
            no_wrap=heading not in _LONG,
            ratio=1 if heading == "message" else None,  # it gets the rest of an expanded table
            max_width=_NODES_WIDTH if heading == "nodes" else None,
        )
    return table
