"""Claims that wait for their first consumer."""

from tests.scheduler.shell.conftest import House
from tests.support.clusters import made, node, pod
from tests.support.fakecluster import Fields

_NODE = "volume.kubernetes.io/selected-node"


def storage() -> list[Fields]:
    """Return a class whose volumes are made where their pod is, and a claim of it."""
    of_class = made("StorageClass", "disks", provisioner="disks.example")
    of_class["volumeBindingMode"] = "WaitForFirstConsumer"
    claim = made("PersistentVolumeClaim", "c", spec={"storageClassName": "disks"})
    return [of_class, claim]


def consumer(name: str) -> Fields:
    """Return a pod that needs the claim."""
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return pod(name, volumes=[volume])


def tells(house: House) -> int:
    """Return how often the claim was told something."""
    return house.api.said().count("patch persistentvolumeclaims c")


def provide(house: House) -> None:
    """Make the volume, as a provisioner would."""
    claim = house.api.get("PersistentVolumeClaim", "c")
    bound = {**claim["spec"], "volumeName": "pv"}
    house.api.put(
        {**claim, "kind": "PersistentVolumeClaim", "spec": bound, "status": {"phase": "Bound"}}
    )


async def test_the_volume_comes_first(house: House) -> None:
    """The claim is told its node, and the pod is bound when it has its volume."""
    house.api.put(node("a"), *storage(), consumer("p"))
    async with house.leading():
        await house.passes(1)
        told = house.api.get("PersistentVolumeClaim", "c")["metadata"]["annotations"]
        assert told == {_NODE: "a"}
        assert house.api.where() == {}
        provide(house)
        await house.passes(1)

        assert house.api.where() == {"p": "a"}


async def test_no_volume_comes(house: House) -> None:
    """The claim is told nothing again, and the pod is planned for anew."""
    house.api.put(node("a"), *storage(), consumer("p"))
    async with house.leading():
        await house.passes(115)
        assert tells(house) == 1
        await house.passes(10)

        assert tells(house) == 3
        assert house.api.where() == {}
        provide(house)
        await house.passes(1)
        assert house.api.where() == {"p": "a"}


async def test_a_shared_claim_is_told_once(house: House) -> None:
    """Its consumers wait for the same volume."""
    house.api.put(node("a"), *storage(), consumer("p"), consumer("r"))
    async with house.leading():
        await house.passes(1)
        provide(house)
        await house.passes(1)

        assert house.api.where() == {"p": "a", "r": "a"}
        assert tells(house) == 1
