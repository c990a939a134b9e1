"""What may happen to a shared GPU: its reservation pod, its agent, and the bind of its users."""

import itertools
from collections import Counter
from typing import Final

import pytest

from e2e.cluster.gpu_devices import AGENT, RESERVATIONS, SILENT
from e2e.cluster.resources import CONFIG_MAPS, NODES, PODS
from e2e.cluster.timeline import State
from e2e.sharing.room import GpuRoom, device_of, is_bound, reservations
from e2e.sharing.sharing_check import DEVICES, groups_of

_LOST: Final = "GpuReservationLost"


async def test_a_reservation_pod_is_deleted(room: GpuRoom) -> None:
    """It comes back with the device that its users have, and they do not notice."""
    room.deletes_reservations = True
    await room.add_nodes(1, 2)
    await room.share("a")
    await room.share("b")
    await room.run("a", "b")
    (before,) = reservations(room.seen.state)
    users = room.uids("a", "b")

    await room.api.delete(PODS, RESERVATIONS, before["metadata"]["name"], gracePeriodSeconds=0)

    def is_back(state: State) -> bool:
        pods = [it for it in reservations(state) if device_of(it)]
        return bool(pods) and pods[0]["metadata"]["uid"] != before["metadata"]["uid"]

    await room.until(is_back, "it is back with a device")
    (after,) = reservations(room.seen.state)
    assert device_of(after) == device_of(before)
    assert room.uids("a", "b") == users


@pytest.mark.parametrize("gpus", [2, 1], ids=["another-device", "no-device"])
async def test_another_pod_gets_the_device(gpus: int, room: GpuRoom) -> None:
    """Its user is deleted, and told why; what is created for it is planned again."""
    await room.add_nodes(1, gpus)
    await room.share("a")
    await room.run("a")

    await room.lose_reservation("gpu-0", "other")
    await room.until(lambda state: not room.is_there("a", state), "the user of the GPU is deleted")

    await room.until_event("a", _LOST)
    await room.share("again")  # another name: KWOK deletes by name, at times twice
    if gpus == 1:
        await room.delete("other")
    await room.run("again")
    assert room.pod("again")["metadata"]["annotations"][DEVICES] == f"GPU-gpu-0-{gpus - 1}"


async def test_an_agent_says_nothing(room: GpuRoom) -> None:
    """The reservation pod is deleted in time, and the pod waits until an agent says its device."""
    await room.add_nodes(1, 1)
    await room.api.merge(NODES, None, "gpu-0", {"metadata": {"annotations": {AGENT: SILENT}}})
    await room.share("a")
    await room.until(lambda state: bool(reservations(state)), "a reservation pod is created")
    await room.until(lambda state: not reservations(state), "it is deleted")
    assert not is_bound(room.pod("a"))

    await room.api.merge(NODES, None, "gpu-0", {"metadata": {"annotations": {AGENT: None}}})
    await room.run("a")


async def test_a_bind_is_refused(room: GpuRoom) -> None:
    """What was written for it is undone; then the pod is bound."""
    await room.add_nodes(1, 1)
    for status, name in ((403, "forbidden"), (409, "conflict")):
        room.proxy.burst(
            status, 1, applies=lambda _, path: path.endswith("/binding"), retry_after_s=None
        )
        await room.share(name)
        await room.run(name)
    await room.seen.settle()

    history = room.seen.history()
    for name in ("forbidden", "conflict"):
        maps = [it.type for it in history if it.key.resource == CONFIG_MAPS and name in it.key.name]
        assert Counter(maps) >= Counter({"ADDED": 4, "DELETED": 2})
        labelled = [bool(groups_of(it.obj)) for it in history if it.key == room.key(name)]
        assert [it for it, _ in itertools.groupby(labelled)] == [False, True, False, True]
