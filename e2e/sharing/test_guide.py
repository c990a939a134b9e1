"""The guide `docs/gpu-sharing.md`: its commands, as a user runs them on a node with one GPU."""

from typing import Final

from e2e.cluster.gpu_devices import GPU_GROUP
from e2e.cluster.resources import Obj
from e2e.fixtures.page_commands import command_blocks, run_script
from e2e.fixtures.podgroups import pods_in
from e2e.sharing.room import GpuRoom, reservations
from e2e.sharing.sharing_check import DEVICES
from tests.support.repository import ROOT

_PAGE: Final = ROOT / "docs" / "gpu-sharing.md"
_FREE: Final = "0.1 of a GPU free on gpu-0"


async def test_the_guide(room: GpuRoom) -> None:
    """Two model servers share the GPU, a third one waits until one of them is deleted."""
    await room.add_nodes(1, 1)
    submit, show, third, end = command_blocks(_PAGE)
    await run_script(room.cluster, submit)
    await room.seen.settle()
    large, small = (_pod(room, name) for name in ("vllm-large", "vllm-small"))
    (reservation,) = reservations(room.seen.state)
    groups = {it["metadata"]["labels"][GPU_GROUP] for it in (large, small, reservation)}
    assert len(groups) == 1
    assert {it["metadata"]["annotations"][DEVICES] for it in (large, small)} == {"GPU-gpu-0-0"}

    shown = await run_script(room.cluster, show)
    assert shown.count(f"gpu-0   {groups.pop()}") == 2
    assert "0.7 of a GPU, device GPU-gpu-0-0" in shown
    assert _FREE in await run_script(room.cluster, third)
    await room.seen.settle()
    conditions = _pod(room, "vllm-third")["status"]["conditions"]
    assert any(_FREE in it.get("message", "") for it in conditions)

    await run_script(room.cluster, end)
    await room.until_nothing_is_left()


def _pod(room: GpuRoom, app: str) -> Obj:
    """Return the one pod of a Deployment of the guide."""
    pods = pods_in(room.seen.state)
    (found,) = [it for it in pods if it["metadata"].get("labels", {}).get("app") == app]
    return found
