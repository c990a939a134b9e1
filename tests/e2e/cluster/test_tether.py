"""Processes that end with the one that started them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


@contextlib.contextmanager
def hold_processes(
    mode: str, command: list[str]
) -> Iterator[tuple["subprocess.Popen[str]", list[Identity]]]:
    """Have a program hold a tethered one that runs already; yield both, and end both."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, mode, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        lines = sorted(holder.stdout.readline() for _ in range(2 if command is FAMILY else 1))
        pids = [int(pid) for line in reversed(lines) for pid in line.split()[1:]]
        held = [process for pid in pids if (process := identify(pid)) is not None]
        try:
            yield holder, held
        finally:
            for process in (identify(holder.pid), *held):
                if process is not None:
                    process.send(signal.SIGKILL)


def test_it_ends_with_a_killed_parent() -> None:
    """The parent has no time to clean up after kill -9, and still nothing is left."""
    with hold_processes("exec", SLEEP) as (holder, [sleep]):
        until(lambda: is_running(sleep, SLEEP), "sleep runs")

        holder.kill()

        until(lambda: not sleep.alive, "it is gone")


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    """Who is started by a process that dies meanwhile does not start to live alone."""
    us = str(os.getpid())
    orphaned = ["1" if part == us else part for part in tethered(["/bin/echo", "here"])]

    done = subprocess.run(orphaned, capture_output=True, check=False, timeout=PATIENCE_S)

    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("end", ["its end is asked for", "its parent is killed"])
def test_a_group_ends_with_all_in_it(end: str) -> None:
    """Even the children of the program, asked politely or after kill -9 of the parent."""
    with hold_processes("group", FAMILY) as (holder, held):
        if asked := end == "its end is asked for":
            assert held[0].send(signal.SIGTERM)
        else:
            holder.kill()

        until(lambda: not any(process.alive for process in held), "all are gone")
        assert holder.wait(PATIENCE_S) == (0 if asked else -signal.SIGKILL)


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
