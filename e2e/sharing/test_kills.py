"""The scheduler is killed after each single write of a bind, and of a release."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

import pytest

from e2e.cluster.gpu_devices import RESERVATIONS
from e2e.sharing.room import GpuRoom, reservations
from e2e.sharing.sharing_check import NUMBER
from e2e.size import size

_ANSWERED_S: Final = 0.5
_MOST: Final = 20  # writes of one bind
_ONE_GPU: Final = Counter({"reservation": 1, "labels": 1, "ConfigMap": 2, "binding": 1})
_TWO_GPUS: Final = Counter({"reservation": 2, "labels": 1, "ConfigMap": 2, "binding": 1})
_SHAPES: Final[tuple[tuple[dict[str, str], Counter[str]], ...]] = (
    ({}, _ONE_GPU),
    ({NUMBER: "2"}, _TWO_GPUS),
)


@pytest.mark.sized
async def test_killed_after_each_write_of_a_bind(room: GpuRoom) -> None:
    """Whatever was written last, the next process binds the pod, and nothing is left in the end."""
    await room.add_nodes(1, 2)
    for annotations, expected in _SHAPES[: size(1, 2)]:
        for number in range(1, _MOST):
            name = f"pod-{len(annotations)}-{number}"
            written = await _bind_with_kill(room, number, name, annotations)
            await room.delete(name)
            await room.until_nothing_is_left()
            if written:
                break
        else:
            pytest.fail(f"it writes more than {_MOST} times")
        assert written == expected
        assert number == written.total() + 1


async def _bind_with_kill(
    room: GpuRoom, number: int, name: str, annotations: Mapping[str, str]
) -> Counter[str]:
    """Kill the scheduler after so many writes of a bind; return them all if there were fewer."""
    written: Counter[str] = Counter()

    def is_write(method: str, path: str, body: bytes) -> bool:
        kind = _written(method, path, body)
        written.update([kind] if kind else [])
        return bool(kind)

    room.proxy.strike(number, is_write, room.scheduler.process.kill_nowait)
    await room.share(name, annotations=annotations)
    await room.until(
        lambda state: room.proxy.has_struck or name in room.running(state),
        f"{name} runs, or the scheduler is dead",
    )
    if not room.proxy.has_struck:
        await asyncio.sleep(_ANSWERED_S)  # a watch may be quicker than the answer to the last write
    has_struck = room.proxy.has_struck
    room.proxy.withdraw_strike()
    if has_struck:
        await room.start_scheduler()
        await room.run(name)
    assert len(reservations(room.seen.state)) == int(annotations.get(NUMBER, "1"))
    return Counter() if has_struck else written


def _written(method: str, path: str, body: bytes) -> str:
    """Return what a request of the scheduler writes for a bind; nothing for all else."""
    if method == "POST" and path.endswith(f"/{RESERVATIONS}/pods"):
        return "reservation"
    if method == "PATCH" and path.endswith("/status") and b"runai-gpu-group" in body:
        return "labels"
    if method == "PATCH" and "/configmaps/" in path:
        return "ConfigMap"
    return "binding" if method == "POST" and path.endswith("/binding") else ""


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
async def test_killed_when_a_gpu_is_released(is_after: bool, room: GpuRoom) -> None:
    """Before the reservation pod is deleted, and right after."""
    await room.add_nodes(1, 1)
    await room.share("a")
    await room.run("a")
    if is_after:
        kill = room.scheduler.process.kill_nowait
        room.proxy.strike(1, lambda method, *_: method == "DELETE", kill)
    else:
        await room.scheduler.kill()
    await room.delete("a")
    if is_after:
        await room.until(lambda _: room.proxy.has_struck, "the scheduler is dead")
    await room.start_scheduler()
    await room.until_nothing_is_left()
