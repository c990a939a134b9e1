"""One line that tells a person what is going on and for how long; in a log, a line now and then."""

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_TICK_S: Final = 1.0
_LOG_EVERY_S: Final = 15.0


class Progress:
    """A title, the latest word on it and the time that went by, kept moving by a thread."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._word: Callable[[], str] = str
        self._started = time.monotonic()
        self._logged = -_LOG_EVERY_S
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep_moving, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._print("failed" if kind else "done", end="\n")

    def say(self, word: str) -> None:
        """Replace the latest word."""
        self._word = lambda: word

    def follow(self, word: Callable[[], str]) -> None:
        """Ask for the latest word whenever it is shown."""
        self._word = word

    def _keep_moving(self) -> None:
        terminal = sys.stdout.isatty()
        while not self._done.wait(_TICK_S):
            elapsed = time.monotonic() - self._started
            if terminal:
                self._print(self._word(), end="")
            elif elapsed - self._logged >= _LOG_EVERY_S:
                self._logged = elapsed
                self._print(self._word(), end="\n")

    def _print(self, word: str, end: str) -> None:
        seconds = int(time.monotonic() - self._started)
        clear = "\r\x1b[2K" if sys.stdout.isatty() else ""
        line = f"{clear}{self._title}: {word} ({seconds // 60}:{seconds % 60:02})"
        print(line, end=end, flush=True)
