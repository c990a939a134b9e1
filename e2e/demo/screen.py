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

__all__ = ["Screen", "show_ended"]

_STYLES = {
    "waits": "yellow",
    "starts": "cyan",
    "runs": "green",
    "leaves": "magenta",
    "Failed": "red",
}
_LONG = ("and was told", "because")


class Screen:
    """Shows rows; `with` begins and ends it."""

    def __init__(self, console: Console, began_s: float) -> None:
        self.console = console
        self._began_s = began_s
        self._shown: dict[str, Row] = {}
        self._live = (
            Live(_table(()), console=console, refresh_per_second=10, transient=True)
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
        """Show how everything is now."""
        if self._live:
            self._live.update(_table(rows))
            return
        for row in rows:
            if self._shown.get(row.job) != row:
                self._shown[row.job] = row
                self._say(row)

    def _say(self, row: Row) -> None:
        after_s = time.monotonic() - self._began_s
        pods = f"stage {row.stage}, {row.pods} pods" if row.is_under_way else ""
        line = f"{after_s:5.1f} s  {row.job:<5}  {row.state:<8}  {pods:<21}  {row.reason}"
        self.console.print(line.rstrip(), highlight=False, soft_wrap=True)


def show_ended(console: Console, rows: Sequence[Ended]) -> None:
    """Show what became of TrainJobs."""
    table = _headed("TrainJob", "queue", "waited", "and was told", "ran on", "is")
    table.box = box.ROUNDED if console.is_terminal else None
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def _table(rows: Sequence[Row]) -> Table:
    table = _headed("TrainJob", "queue", "stage", "pods", "state", "because")
    table.expand = True  # else its width changes with every row
    for row in rows:
        table.add_row(*row, style=_STYLES.get(row.state, ""))
    return table


def _headed(*headings: str) -> Table:
    table = Table(box=box.ROUNDED)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading not in _LONG)
    return table
