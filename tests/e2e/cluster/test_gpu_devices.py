"""Devices go to pods in the order of the store, and a device that two pods get is noticed."""

from e2e.cluster.gpu_devices import (
    GPU_GROUP,
    RESERVATIONS,
    RESERVED_DEVICE,
    DeviceLedger,
    Refusal,
    is_reservation,
    refusals_in,
    whole_gpus,
)
from e2e.cluster.nodes import GPU, NodeShape, make_nodes
from e2e.cluster.resources import NODES, PODS, Obj, Resource
from e2e.cluster.timeline import Key, Moment

(TWO,) = make_nodes(1, NodeShape(gpus=2), prefix="two")


def pod(name: str, gpus: int = 1, *, node: str = "two-0", phase: str = "Pending") -> Obj:
    """Return a pod with whole GPUs; its name is its uid."""
    container = {"name": "c", "image": "none", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": name},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def reservation(name: str, device: str = "") -> Obj:
    """Return a reservation pod, with the device that it says it has."""
    made = pod(name)
    annotations = {"annotations": {RESERVED_DEVICE: device}} if device else {}
    labels = {"app": RESERVATIONS, GPU_GROUP: name}
    made["metadata"] |= {"namespace": RESERVATIONS, "labels": labels, **annotations}
    return made


def ledger() -> DeviceLedger:
    """Return the ledger of one node with two devices."""
    made = DeviceLedger()
    made.set_node(TWO)
    return made


def test_the_lowest_free_device_is_taken_and_given_back() -> None:
    """By the end of a pod as well as by its deletion, and only once."""
    devices = ledger()

    assert devices.set_pod(pod("a", node="")) is None
    assert devices.set_pod(pod("a")) == (0,)
    assert devices.set_pod(pod("a", phase="Running")) is None
    assert devices.set_pod(reservation("b")) == (1,)
    assert devices.set_pod(pod("a", phase="Succeeded")) is None
    assert devices.set_pod(pod("c")) == (0,)
    devices.remove_pod("b")
    devices.remove_pod("b")
    assert devices.set_pod(pod("d")) == (1,)
    assert devices.refusals == []


def test_a_pod_without_enough_devices_gets_none_and_is_noted_once() -> None:
    """It holds nothing, so what comes later is not refused because of it."""
    devices = ledger()
    devices.set_pod(pod("a"))

    assert devices.set_pod(pod("b", 2)) == ()
    assert devices.set_pod(pod("b", 2, phase="Running")) is None
    assert devices.set_pod(pod("c")) == (1,)
    assert devices.refusals == [Refusal("team/b", "two-0", 2, 1)]


def test_a_device_that_a_pod_says_it_has_stays_its_own() -> None:
    """As after a restart of the process with the ledger."""
    devices = ledger()

    assert devices.set_pod(reservation("a", "GPU-two-0-1")) == (1,)
    assert devices.set_pod(reservation("b")) == (0,)


def test_pods_wait_for_the_ledger_to_know_their_node() -> None:
    """Two watches have no order among each other."""
    devices = DeviceLedger()

    assert devices.set_pod(pod("a")) is None
    assert [*devices.pods] == ["a"]
    assert devices.set_node(TWO) == [pod("a")]
    assert devices.set_pod(pod("a")) == (0,)


def test_a_record_is_read_in_the_order_of_the_store() -> None:
    """One device goes from a pod to the next; the third comes while the second has it."""

    def moment(version: int, kind: str, resource: Resource, obj: Obj) -> Moment:
        meta = obj["metadata"]
        key = Key(resource, meta.get("namespace", ""), meta["name"])
        return Moment(0.0, version, kind, key, obj)

    (one,) = make_nodes(1, NodeShape(gpus=1), prefix="one")
    first, second, third = (pod(name, node="one-0") for name in ("a", "b", "c"))
    history = [
        moment(9, "LISTED", NODES, one),
        moment(12, "MODIFIED", PODS, third),
        moment(10, "DELETED", PODS, first),
        moment(11, "ADDED", PODS, second),
        moment(5, "LISTED", PODS, first),
    ]

    assert refusals_in(history) == [Refusal("team/c", "one-0", 1, 0)]


def test_what_a_pod_requests() -> None:
    """Containers together, or the largest init container; a marked pod elsewhere reserves none."""
    several = pod("a", 2)
    several["spec"]["containers"] *= 2
    assert whole_gpus(several) == 4
    several["spec"]["initContainers"] = pod("b", 5)["spec"]["containers"]
    assert whole_gpus(several) == 5
    del several["spec"]["initContainers"]
    several["spec"]["containers"][0].pop("resources")
    assert whole_gpus(several) == 0

    elsewhere = reservation("a")
    assert is_reservation(elsewhere)
    elsewhere["metadata"]["namespace"] = "team"
    assert not is_reservation(elsewhere)
