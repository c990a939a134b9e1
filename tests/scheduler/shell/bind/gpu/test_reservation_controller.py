"""Reservation pods come back, go, and are taken over from a process that died, or from KAI."""

import json

from tests.scheduler.shell.bind.gpu.conftest import (
    DEVICE,
    GROUP,
    SharingHarness,
    reservation_of_kai,
    share,
)
from tests.support.state.objects import make_object, node, trainjob

_DEVICES = "trainer-kai.dev/gpu-devices"


async def test_a_lost_reservation_pod_comes_back(sharing: SharingHarness) -> None:
    """It gets the same device, and its users stay."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        (first,) = sharing.reservation_pods()
        sharing.api.delete("Pod", first["metadata"]["name"])
        await sharing.advance(1)
        assert sharing.reservation_pods() == []  # it may have been seen late
        await sharing.advance(4)

        (second,) = sharing.reservation_pods()
        assert second["metadata"]["labels"] == first["metadata"]["labels"]
        assert sharing.api.node_of_pods()["p"] == "a"


async def test_it_comes_back_with_another_device(sharing: SharingHarness) -> None:
    """A whole-GPU pod may have the device by now: the users are deleted, and told why."""
    sharing.api.put(node("a", gpu=2), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        (first,) = sharing.reservation_pods()
        sharing.is_agent_silent = True
        sharing.api.delete("Pod", first["metadata"]["name"])
        await sharing.advance(3)
        (second,) = sharing.reservation_pods()
        sharing.annotate(second, {DEVICE: "GPU-a-1"})
        await sharing.advance(2)

        assert not sharing.api.has("Pod", "p")
        assert ("Pod p", "GpuReservationLost") in sharing.events()
        assert sharing.reservation_pods() == []


async def test_no_gpu_is_left_for_it(sharing: SharingHarness) -> None:
    """The kubelet refuses the new reservation pod: the users are deleted."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        (first,) = sharing.reservation_pods()
        sharing.api.delete("Pod", first["metadata"]["name"])
        sharing.rejects = True
        await sharing.advance(5)

        assert not sharing.api.has("Pod", "p")
        assert ("Pod p", "GpuReservationLost") in sharing.events()


async def test_a_failed_reservation_pod_is_replaced(sharing: SharingHarness) -> None:
    """One that its kubelet evicted holds no GPU any more; the next one does."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        (first,) = sharing.reservation_pods()
        sharing.api.put({**first, "kind": "Pod", "status": {"phase": "Failed"}})
        await sharing.advance(5)

        (second,) = sharing.reservation_pods()
        assert second["metadata"]["uid"] != first["metadata"]["uid"]
        assert sharing.api.node_of_pods()["p"] == "a"


async def test_what_kai_bound_is_kept_and_freed(sharing: SharingHarness) -> None:
    """Its group is filled up, and its reservation pod deleted with the last user."""
    bound = share("p", "0.7", node="a", labels={GROUP: "g1"})
    sharing.api.put(node("a", gpu=1), reservation_of_kai(), bound)
    sharing.api.put(share("r", "0.2"), share("s", "0.2"))
    async with sharing.leading():
        await sharing.advance(3)
        assert sharing.groups_of_pods()["r"] == ["g1"]
        assert sharing.api.node_of_pods().keys() & {"p", "r", "s"} == {"p", "r"}
        annotations = sharing.api.get("Pod", "r")["metadata"]["annotations"]
        assert annotations[_DEVICES] == "GPU-kai"
        for name in ("p", "r", "s"):
            sharing.api.delete("Pod", name)
        await sharing.advance(3)

        assert sharing.reservation_pods() == []


async def test_a_reservation_pod_without_users_is_deleted(sharing: SharingHarness) -> None:
    """As a process leaves it that ends right after its creation."""
    sharing.api.put(node("a", gpu=1), reservation_of_kai(), share("p"))
    async with sharing.leading():
        await sharing.advance(5)

        (made,) = sharing.reservation_pods()
        assert made["metadata"]["name"] != "gpu-reservation-a-x7f2k"
        assert sharing.api.node_of_pods()["p"] == "a"


async def test_what_a_dead_process_left_is_removed(sharing: SharingHarness) -> None:
    """A pod with a label and ConfigMaps, for which there is no room any more, loses both."""
    left = share("p", labels={GROUP: "g1"})
    left["metadata"]["annotations"][_DEVICES] = "GPU-x"
    names = ("p-x1y2z3a-shared-gpu-0", "p-x1y2z3a-shared-gpu-0-evar")
    sharing.api.put(left, *(make_object("ConfigMap", name) for name in names))
    async with sharing.leading():
        await sharing.advance(5)

        assert sharing.groups_of_pods() == {}
        assert sharing.config_maps() == []
        assert _DEVICES not in sharing.api.get("Pod", "p")["metadata"]["annotations"]


async def test_a_trainjob_is_evicted_whole(sharing: SharingHarness) -> None:
    """Its pods are never deleted one by one, also if only one of them has lost its GPU."""
    parts = trainjob("j", at="a")
    parts[2]["spec"]["queue"] = "q"
    (lost, kept), others = parts[3:], parts[:3]
    for obj, of in ((lost, "g1"), (kept, "g2")):
        shared = share(obj["metadata"]["name"], "0.9")["metadata"]["annotations"]
        obj["metadata"]["annotations"] |= {**shared, "received-resource-type": "Fraction"}
        obj["metadata"]["annotations"][_DEVICES] = f"GPU-{of}"
        obj["metadata"]["labels"][GROUP] = of
        obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    held = [reservation_of_kai(f"gpu-reservation-a-{it}", it) for it in ("g1", "g2")]
    for obj, device in zip(held, ("GPU-other", "GPU-g2"), strict=True):
        obj["metadata"]["annotations"] = {DEVICE: device}
    sharing.api.put(node("a", gpu=2), *others, lost, kept, *held)
    async with sharing.leading():
        await sharing.advance(2)

        written = sharing.api.written()
        assert "patch trainjobs j" in written
        assert not [it for it in written if it.startswith("delete pods j")]
        assert ("PodGroup pg-j", "Evict") in sharing.events()
        annotations = sharing.api.get("PodGroup", "pg-j")["metadata"]["annotations"]
        record = json.loads(annotations["trainer-kai.dev/last-eviction"])
        assert (record["rule"], record["queue"], record["gpus"]) == ("27j", "q", 1.8)
