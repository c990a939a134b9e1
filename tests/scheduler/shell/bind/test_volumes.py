"""Claims that wait for their first consumer."""

import gc

import pytest

from scheduler.shell.bind import volumes
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.objects import make_object, node, pod

_NODE = "volume.kubernetes.io/selected-node"


def storage() -> list[Fields]:
    """Return a StorageClass that waits for its first consumer, and a PersistentVolumeClaim."""
    of_class = make_object("StorageClass", "disks", provisioner="disks.example")
    of_class["volumeBindingMode"] = "WaitForFirstConsumer"
    claim = make_object("PersistentVolumeClaim", "c", spec={"storageClassName": "disks"})
    return [of_class, claim]


def consumer(name: str) -> Fields:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return pod(name, volumes=[volume])


def claim_patches(harness: SchedulerHarness) -> int:
    return harness.api.written().count("patch persistentvolumeclaims c")


def provide(harness: SchedulerHarness) -> None:
    """Make the volume, as a provisioner would."""
    claim = harness.api.get("PersistentVolumeClaim", "c")
    bound = {**claim["spec"], "volumeName": "pv"}
    harness.api.put(
        {**claim, "kind": "PersistentVolumeClaim", "spec": bound, "status": {"phase": "Bound"}}
    )


async def test_the_volume_comes_first(harness: SchedulerHarness) -> None:
    """The claim gets its selected node, and the pod is bound when the claim has its volume."""
    harness.api.put(node("a"), *storage(), consumer("p"))
    async with harness.leading():
        await harness.advance(1)
        annotations = harness.api.get("PersistentVolumeClaim", "c")["metadata"]["annotations"]
        assert annotations == {_NODE: "a"}
        assert harness.api.node_of_pods() == {}
        provide(harness)
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"p": "a"}


async def test_no_volume_comes(harness: SchedulerHarness) -> None:
    """The selected node is removed from the claim, and the pod is planned anew."""
    harness.api.put(node("a"), *storage(), consumer("p"))
    async with harness.leading():
        await harness.advance(115)
        assert claim_patches(harness) == 1
        await harness.advance(10)

        assert claim_patches(harness) == 3
        assert harness.events() == [("Pod p", "VolumeNotBound")]
        assert harness.api.node_of_pods() == {}
        provide(harness)
        await harness.advance(1)
        assert harness.api.node_of_pods() == {"p": "a"}


async def test_a_namespace_has_so_many_claims_that_wait(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod with one claim more has an Event, and its claim is written when another is bound."""
    monkeypatch.setattr(volumes, "_MOST_WAITING", 1)
    of_class, claim = storage()
    other = {**claim, "metadata": {**claim["metadata"], "name": "d"}}
    second = pod("r", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}])
    harness.api.put(node("a"), of_class, claim, other, consumer("p"), second)
    async with harness.leading():
        await harness.advance(1)
        events = [it for it in harness.api.events if it["reason"] == "VolumeNotBound"]
        assert {it["involvedObject"]["name"] for it in events} == {"r"}
        assert events[0]["message"] == (
            "1 PersistentVolumeClaims of namespace ns wait for their volumes, and no more may: "
            "PersistentVolumeClaim d comes later"
        )
        provide(harness)
        await harness.advance(60)

        assert harness.api.node_of_pods() == {"p": "a"}
        assert "patch persistentvolumeclaims d" in harness.api.written()


async def test_waiting_costs_nothing(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch wakes it: no claim is looked at again and again."""
    sleeps, sleep = 0, harness.api.clock.sleep

    async def counted(seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        await sleep(seconds)

    harness.api.put(node("a"), *storage(), consumer("p"))
    async with harness.leading():
        await harness.advance(1)
        monkeypatch.setattr(harness.api.clock, "sleep", counted)
        await harness.advance(60)

        assert sleeps < 600


async def test_a_shared_claim_is_patched_once(harness: SchedulerHarness) -> None:
    """Its consumers wait for the same volume."""
    harness.api.put(node("a"), *storage(), consumer("p"), consumer("r"))
    async with harness.leading():
        await harness.advance(1)
        provide(harness)
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"p": "a", "r": "a"}
        assert claim_patches(harness) == 1


async def test_another_scheduler_leads_while_a_claim_waits(
    harness: SchedulerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """No pod awaits the claim any more, and no error of it is left over."""
    harness.api.put(node("a"), *storage(), consumer("p"))
    async with harness.leading():
        await harness.advance(1)
    harness.api.delete("PersistentVolumeClaim", "c")
    await harness.advance(130)
    gc.collect()

    assert not [it for it in caplog.records if it.name == "asyncio"]
