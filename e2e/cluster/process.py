"""One running program of the chain: start, stop, kill, pause; its log; never an orphan."""

import asyncio
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from e2e.cluster.patience import patience_s, slowdown
from e2e.cluster.process_identity import Identity, identify
from e2e.cluster.programs import Program
from e2e.cluster.tether import tethered

_STOPPED: Final = ("T", "t", "Z", "X")  # states of threads that run no more
_STOPPED_S: Final = 1.0  # in which they all stop


def _thread_state(stat: Path) -> str:
    return stat.read_text().rpartition(")")[2].split()[0]


class ProgramDied(RuntimeError):
    """A program of the chain ended although nobody asked it to."""


class Process:
    """A program that can be started again after it was stopped or killed."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.log = log
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """Return the name of the program."""
        return self.program.name

    @property
    def wanted(self) -> bool:
        """Say whether the program was ever started."""
        return self._running is not None

    @property
    def identity(self) -> Identity | None:
        """Return who runs now, or None."""
        if self._running is None or self._running.poll() is not None:
            return None
        return identify(self._running.pid)

    @property
    def exit_status(self) -> int | None:
        """Return the exit status of the last run, negative for a signal; None while it runs."""
        return None if self._running is None else self._running.poll()

    def start(self) -> None:
        """Run the program, appending to its log; a second call while it runs is a mistake."""
        if self.identity is not None:
            message = f"{self.name} runs already"
            raise RuntimeError(message)
        if threading.current_thread() is not threading.main_thread():
            message = "start programs from the main thread: with another one they would end early"
            raise RuntimeError(message)
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                tethered(self.program.argv),
                env=os.environ | self.program.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we end the program in our order
            )

    def check(self) -> None:
        """Raise `ProgramDied` with the end of its log when the program is not running."""
        if self.identity is None:
            last = "\n".join(self.tail(15))
            message = f"{self.name} is not running; the end of {self.log}:\n{last}"
            raise ProgramDied(message)

    async def stop(self, grace_s: float = 5.0) -> None:
        """End the program as an operator would: ask, wait, insist."""
        self._signal(signal.SIGTERM)
        try:
            await self._ended(grace_s * slowdown())
        except subprocess.TimeoutExpired:
            await self.kill()

    async def kill(self) -> None:
        """End the program at once, as a crash would."""
        self.kill_nowait()
        await self._ended(patience_s(10))

    def kill_nowait(self) -> None:
        """Send the signal that ends the program at once, paused or not."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the program: it keeps its connections and answers nobody."""
        self._signal(signal.SIGSTOP)
        end_s = time.monotonic() + patience_s(_STOPPED_S)
        while (
            self._has_running_threads() and time.monotonic() < end_s
        ):  # its threads stop one after the other
            time.sleep(0.001)

    def _has_running_threads(self) -> bool:
        """Say whether a thread of the program is not stopped yet."""
        pid = 0 if self._running is None else self._running.pid
        try:
            states = [_thread_state(it) for it in Path(f"/proc/{pid}/task").glob("*/stat")]
        except OSError:
            return True  # one of them has just ended
        return any(state not in _STOPPED for state in states)

    def resume(self) -> None:
        """Let a frozen program go on."""
        self._signal(signal.SIGCONT)

    def tail(self, lines: int) -> list[str]:
        """Return the last lines of the log."""
        if not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-lines:]

    def _signal(self, number: signal.Signals) -> None:
        if self._running is not None:
            self._running.send_signal(number)

    async def _ended(self, timeout_s: float) -> None:
        if self._running is not None:
            await asyncio.to_thread(self._running.wait, timeout_s)
