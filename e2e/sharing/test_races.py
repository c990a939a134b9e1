"""Shares and whole GPUs compete for the same devices, and come and go at random times."""

import asyncio
import random
from typing import Final

import pytest

from e2e.cluster.patience import patience
from e2e.sharing.room import GpuRoom, share_pod, whole_pod
from e2e.size import SEED, size

_EACH: Final = 10  # pods of a round with shares, and as many with whole GPUs
_ALL_S: Final = 60.0  # so long a round may take, which needs every device several times


@pytest.mark.sized
async def test_shares_and_whole_gpus_never_get_the_same_device(room: GpuRoom) -> None:
    """All of them run in the end; that no device was given twice is seen from the record."""
    await _add_nodes(room)
    lot = random.Random(SEED)  # noqa: S311 - tests are to be the same each time
    for number in range(size(3, 30)):
        await _compete(room, lot, number)


@pytest.mark.soak
async def test_they_compete_while_the_scheduler_is_killed(room: GpuRoom) -> None:
    """Again and again, and its requests are refused, or cut off."""
    await _add_nodes(room)
    lot = random.Random(SEED)  # noqa: S311 - tests are to be the same each time
    for number in range(size(1, 15)):
        async with asyncio.TaskGroup() as group:
            harm = group.create_task(_harm(room, lot))
            await _compete(room, lot, number)
            harm.cancel()


async def _harm(room: GpuRoom, lot: random.Random) -> None:
    """Kill the scheduler and start it, refuse what it sends, and cut its connections."""
    while True:
        await asyncio.sleep(lot.uniform(0.1, 2))
        kind = lot.choice(("kill", "refuse", "cut"))
        if kind == "kill":
            await room.scheduler.kill()
            await asyncio.shield(asyncio.create_task(room.start_scheduler()))
        elif kind == "refuse":
            room.proxy.burst(lot.choice((409, 429, 500, 503)), lot.randint(1, 20))
        else:
            room.proxy.reset()


async def _add_nodes(room: GpuRoom) -> None:
    await room.add_nodes(1, 1, "one")
    await room.add_nodes(2, 2, "two")


async def _compete(room: GpuRoom, lot: random.Random, number: int) -> None:
    """Create pods with shares and with whole GPUs; each is deleted some time after it begins."""
    shares = [
        share_pod(room.namespace, f"share-{number}-{it}", lot.choice(("0.3", "0.5", "0.7")))
        for it in range(_EACH)
    ]
    whole = [whole_pod(room.namespace, f"whole-{number}-{it}") for it in range(_EACH)]
    pods = [*shares, *whole]
    lot.shuffle(pods)
    async with patience(_ALL_S), asyncio.TaskGroup() as users:
        for pod in pods:
            await room.create(pod)
            users.create_task(_use(room, pod["metadata"]["name"], lot.uniform(0, 0.5)))
    await room.until_nothing_is_left(_ALL_S)


async def _use(room: GpuRoom, name: str, seconds: float) -> None:
    """Delete a pod some time after it begins."""
    await room.run(name, timeout_s=_ALL_S)
    await asyncio.sleep(seconds)
    await room.delete(name)
