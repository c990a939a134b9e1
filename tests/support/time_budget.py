"""A plugin of pytest (`-p tests.support.time_budget`): a run that exceeds its `--budget` fails.

The budget holds on the machine on which the probe had its reference. On another one it is
multiplied by the slowdown that the probe sees during the run, in seconds of the processor, so that
the load of the tests themselves does not count. `--budget-since`, in seconds since the epoch, is
the beginning of several runs with one budget: the Makefile gives it to the last one of them.
"""

import statistics
import threading
import time
from pathlib import Path
from typing import Final

import pytest

from tests.support.machine_speed import processor_slowdown
from tests.support.repository import ROOT

_SAMPLES: Final = ROOT / ".reports" / "slowdown"  # a line for each: when, and how slow
_EVERY_S: Final = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the budget, and what to call the run."""
    group = parser.getgroup("time budget")
    group.addoption("--budget", type=float, default=0.0, metavar="SECONDS", help="0: no budget")
    group.addoption("--budget-of", default="the run", metavar="NAME", help="what has the budget")
    group.addoption("--budget-since", type=float, default=0.0, metavar="TIME", help="0: now")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, in the process that the workers report to."""
    if config.getoption("budget") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_TimeBudget(config), "time-budget")


class _TimeBudget:
    """Counts from the beginning of the run, or from that of the first one of several."""

    def __init__(self, config: pytest.Config) -> None:
        self._name: Final = config.getoption("budget_of")
        self._usual_s: Final = config.getoption("budget")
        self._began_at: Final = config.getoption("budget_since") or time.time()
        self._ended: Final = threading.Event()
        self._sampler: Final = threading.Thread(target=self._sample, daemon=True)
        self._report = ""
        _SAMPLES.parent.mkdir(exist_ok=True)
        self._sampler.start()

    def _sample(self) -> None:
        while True:
            with _SAMPLES.open("a") as file:
                file.write(f"{time.time():.0f} {processor_slowdown():.3f}\n")
            if self._ended.wait(_EVERY_S):
                return

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare; a run that failed already keeps its exit status."""
        self._ended.set()
        self._sampler.join()
        took_s, slowdown = time.time() - self._began_at, _mean_since(self._began_at, _SAMPLES)
        budget_s = self._usual_s * slowdown
        self._report = (
            f"{self._name} took {took_s:.0f} s of at most {budget_s:.0f} s "
            f"({self._usual_s:g} s, and this machine is {slowdown:.2f} times slower)"
        )
        if took_s > budget_s:
            self._report += ": move breadth that rarely fails to the soak, or replace other tests"
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it before the last line of pytest."""
        terminalreporter.section("time")
        terminalreporter.write_line(self._report)


def _mean_since(began_at: float, file: Path) -> float:
    """Return the mean of the samples from a moment on, never below one."""
    samples = (line.split() for line in file.read_text().splitlines())
    slowdowns = [float(it[1]) for it in samples if len(it) == 2 and int(it[0]) >= int(began_at)]
    return max(1.0, statistics.fmean(slowdowns or [1.0]))
