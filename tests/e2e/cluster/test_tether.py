"""Processes that end with the one that started them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.tether import tethered
from tests.support.repository import ROOT

# A program that starts a tethered one, says its number, and waits for it.
HOLDER = """
import subprocess, sys
from e2e.cluster.tether import tethered

mode, *command = sys.argv[1:]
running = subprocess.Popen(tethered(command, group=mode == "group"))
print("tethered", running.pid, flush=True)
running.wait()
"""
SLEEP = ["/bin/sleep", "60"]
FAMILY = ["/bin/sh", "-c", "/bin/sleep 60 & echo family $$ $!; wait"]
PATIENCE_S = 60.0


class HeldProcesses(NamedTuple):
    """A program that holds others, and who they are."""

    holder: "subprocess.Popen[str]"
    tethered: Identity
    family: list[Identity]

    @property
    def pids(self) -> list[Identity]:
        """Return everybody below the holder."""
        return [self.tethered, *self.family]


@contextlib.contextmanager
def hold_processes(mode: str, command: list[str]) -> Iterator[HeldProcesses]:
    """Have a program hold a tethered one that runs already; leave nobody behind."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, mode, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        held = HeldProcesses(holder, *read_numbers(holder, expect_family=command is FAMILY))
        try:
            yield held
        finally:
            for process in (identify(holder.pid), *held.pids):
                if process is not None:
                    process.send(signal.SIGKILL)


def test_it_ends_with_a_killed_parent() -> None:
    """The parent has no time to clean up after kill -9, and still nothing is left."""
    with hold_processes("exec", SLEEP) as held:
        until(lambda: is_running(held.tethered, SLEEP), "sleep runs")

        held.holder.kill()

        until(lambda: not held.tethered.alive, "it is gone")


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    """Who is started by a process that dies meanwhile does not start to live alone."""
    us = str(os.getpid())
    orphaned = ["1" if part == us else part for part in tethered(["/bin/echo", "here"])]

    done = subprocess.run(orphaned, capture_output=True, check=False, timeout=PATIENCE_S)

    assert (done.returncode, done.stdout) == (1, b"")


def test_a_group_ends_when_it_is_told_to() -> None:
    """The children of the program end with it, even if it was asked politely."""
    with hold_processes("group", FAMILY) as held:
        assert held.tethered.send(signal.SIGTERM)

        until(lambda: not any(process.alive for process in held.pids), "all are gone")
        assert held.holder.wait(PATIENCE_S) == 0


def test_a_group_ends_with_a_killed_parent() -> None:
    """After kill -9 of the parent even the children of its child are gone."""
    with hold_processes("group", FAMILY) as held:
        held.holder.kill()

        until(lambda: not any(process.alive for process in held.pids), "all are gone")


def read_numbers(
    holder: "subprocess.Popen[str]", *, expect_family: bool
) -> tuple[Identity, list[Identity]]:
    """Read who was started from what holder and program say."""
    assert holder.stdout is not None
    output: dict[str, list[Identity]] = {}
    for _ in range(2 if expect_family else 1):
        word, *numbers = holder.stdout.readline().split()
        output[word] = [process for n in numbers if (process := identify(int(n))) is not None]
    (program,) = output["tethered"]
    return program, output.get("family", [])


def is_running(process: Identity, command: list[str]) -> bool:
    """Say whether a process has become the program that it was started for."""
    arguments = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    return arguments[:-1] == command


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something is true, for processes take their time to die."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s in vain until {what}"
        time.sleep(0.005)
