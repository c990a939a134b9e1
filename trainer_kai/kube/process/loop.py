"""The event loop of processes that run for long.

Commands that end at once stay on that of asyncio: they would wait for this one to be imported.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

__all__ = ["run"]

A = TypeVar("A")


def run(main: Coroutine[Any, Any, A]) -> A:
    """Run until the end, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
