"""The event loop of long-running processes.

Commands that end at once use the loop of asyncio, because importing this one takes time.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

A = TypeVar("A")


def run(main: Coroutine[Any, Any, A]) -> A:
    """Run a coroutine to its end, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
