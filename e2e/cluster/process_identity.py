"""Identifies a process by number and start time, so that a reused number is never mistaken."""

import os
import signal
from pathlib import Path
from typing import NamedTuple


class Identity(NamedTuple):
    """One process, told apart from a later one that was given the same number."""

    pid: int
    born_ticks: int

    @property
    def alive(self) -> bool:
        """Say whether this very process still runs; a zombie does not."""
        return identify(self.pid) == self

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; return False when it is gone."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def identify(pid: int) -> Identity | None:
    """Read who a process number is now; None when it is nobody or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    state, threads, born_ticks = fields[0], int(fields[17]), int(fields[19])
    # The main thread of a killed process may be a zombie while others still hold its ports.
    gone = state in "ZX" and threads <= 1
    return None if gone else Identity(pid, born_ticks)
