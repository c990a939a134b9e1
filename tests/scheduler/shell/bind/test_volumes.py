"""Claims that wait for their first consumer."""

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
    """Return a pod that needs the claim."""
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return pod(name, volumes=[volume])


def claim_patches(harness: SchedulerHarness) -> int:
    """Return how often the claim was written."""
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
        assert harness.api.node_of_pods() == {}
        provide(harness)
        await harness.advance(1)
        assert harness.api.node_of_pods() == {"p": "a"}


async def test_a_shared_claim_is_patched_once(harness: SchedulerHarness) -> None:
    """Its consumers wait for the same volume."""
    harness.api.put(node("a"), *storage(), consumer("p"), consumer("r"))
    async with harness.leading():
        await harness.advance(1)
        provide(harness)
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"p": "a", "r": "a"}
        assert claim_patches(harness) == 1
