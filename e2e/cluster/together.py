"""Several things at once; the first error ends the rest and is raised as itself, not in a group."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[object, object, T]], at_once: int = 64) -> list[T]:
    """Do all of *work*, some of it at a time, and return the results in its order."""
    gate = asyncio.Semaphore(at_once)

    async def gated(one: Coroutine[object, object, T]) -> T:
        async with gate:
            return await one

    tasks = [asyncio.create_task(gated(one)) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
