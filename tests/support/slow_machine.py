"""A pytest plugin that makes Python several times slower: `pytest -p tests.support.slow_machine`.

Every line of every module runs a trace function, in this process, its threads and its workers. The
run says how much slower that is. What a test traces itself, or runs in a process of its own, is as
fast as ever.
"""

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from tests.support.machine_speed import slowdown_now


def _trace(_frame: FrameType, _event: str, _value: Any) -> Any:
    return _trace


def _slow_down() -> None:
    threading.settrace(_trace)
    sys.settrace(_trace)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Measure, slow down, and measure again."""
    usual = slowdown_now()
    _slow_down()
    config.stash[_FACTORS] = usual, slowdown_now()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Slow down again, if the test before has ended it."""
    if sys.gettrace() is None:
        _slow_down()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how much slower the run was."""
    usual, traced = config.stash[_FACTORS]
    terminalreporter.section("slow machine")
    terminalreporter.write_line(
        f"without the trace function {usual:.1f} times slower than the reference, "
        f"with it {traced:.1f} times"
    )


_FACTORS = pytest.StashKey[tuple[float, float]]()
