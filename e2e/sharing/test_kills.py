"""The scheduler is killed after each single write of a bind, and of a release."""

import asyncio
from collections import Counter
from typing import Final, NamedTuple

import pytest

from e2e.cluster.gpu_devices import RESERVATIONS
from e2e.cluster.patience import slowdown, until
from e2e.sharing.room import GpuRoom, reservations
from e2e.sharing.sharing_check import NUMBER
from e2e.size import size

_ANSWERED_S: Final = 0.5
_MOST: Final = 30  # writes of one bind


class BindCase(NamedTuple):
    """A bind, and all that is written for it."""

    gpus: int
    refusals: int  # of the first tries to bind the pod, after which all is undone
    writes: Counter[str]


_CASES: Final = (
    BindCase(1, 0, Counter({"reservation": 1, "labels": 1, "ConfigMap": 2, "binding": 1})),
    BindCase(2, 0, Counter({"reservation": 2, "labels": 1, "ConfigMap": 2, "binding": 1})),
    BindCase(1, 1, Counter({"labels": 3, "ConfigMap": 4, "deletion": 2, "binding": 1})),
)


@pytest.mark.sized
@pytest.mark.timeout(600)
async def test_killed_after_each_write_of_a_bind(room: GpuRoom) -> None:
    """Whatever was written last, the next process binds the pod, and nothing is left in the end."""
    await room.add_nodes(1, 2)
    for place, case in enumerate(_CASES[: size(1, 3)]):
        for number in range(1, _MOST):
            name = f"pod-{place}-{number}"
            written = await _bind_with_kill(room, number, name, case)
            await room.delete(name)
            await room.until_nothing_is_left()
            if written:
                break
        else:
            pytest.fail(f"it writes more than {_MOST} times")
        assert number == written.total() + 1
        assert written >= case.writes
        assert case.refusals or written == case.writes


async def _bind_with_kill(room: GpuRoom, number: int, name: str, case: BindCase) -> Counter[str]:
    """Kill the scheduler after so many writes of a bind; return them all if there were fewer."""
    written: Counter[str] = Counter()

    def is_write(method: str, path: str, body: bytes) -> bool:
        kind = _written(method, path, body)
        written.update([kind] if kind else [])
        return bool(kind)

    room.proxy.strike(number, is_write, room.scheduler.process.kill_nowait)
    room.proxy.burst(
        403, case.refusals, applies=lambda _, path: path.endswith("/binding"), retry_after_s=None
    )
    await room.share(name, annotations={NUMBER: f"{case.gpus}"})
    await until(
        lambda: room.proxy.has_struck or name in room.running(room.seen.state),
        f"the scheduler is killed at write {number}, or {name} runs",
    )
    if not room.proxy.has_struck:
        await asyncio.sleep(
            _ANSWERED_S * slowdown()
        )  # a watch may be quicker than the answer to the last write
    has_struck = room.proxy.has_struck
    room.proxy.withdraw_strike()
    room.proxy.burst(403, 0)
    if has_struck:
        await room.start_scheduler()
        await room.run(name)
    await room.until(
        lambda state: len(reservations(state)) == case.gpus, "each of its GPUs is reserved once"
    )
    return Counter() if has_struck else written


def _written(method: str, path: str, body: bytes) -> str:
    """Return what a request of the scheduler writes for a bind; nothing for all else."""
    if method == "POST" and path.endswith(f"/{RESERVATIONS}/pods"):
        return "reservation"
    if method == "PATCH" and path.endswith("/status") and b"runai-gpu-group" in body:
        return "labels"
    if "/configmaps/" in path:
        return "ConfigMap" if method == "PATCH" else "deletion"
    return "binding" if method == "POST" and path.endswith("/binding") else ""


async def test_killed_when_a_gpu_is_released(room: GpuRoom) -> None:
    """Before the reservation pod is deleted, and right after."""
    await room.add_nodes(1, 1)
    await room.share("before")
    await room.run("before")
    await room.scheduler.kill()
    await room.delete("before")
    await room.start_scheduler()
    await room.until_nothing_is_left()

    await room.share("after")
    await room.run("after")
    kill = room.scheduler.process.kill_nowait
    room.proxy.strike(1, lambda method, path, _: _is_release(method, path), kill)
    await room.delete("after")
    await until(lambda: room.proxy.has_struck, "the scheduler is killed at its release")
    await room.start_scheduler()
    await room.until_nothing_is_left()


def _is_release(method: str, path: str) -> bool:
    return method == "DELETE" and f"/{RESERVATIONS}/pods/" in path
