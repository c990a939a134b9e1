"""Gangs with ResourceClaims in one domain of a topology."""

from typing import Any

from tests.support.state.claim_plans import BASE, STARTED, Planned, planned
from tests.support.state.devices import claiming_pod, resource_claim, resource_slice
from tests.support.state.objects import Fields, group, make_object, node, pod


def _racks(**racks: str) -> list[Fields]:
    """Return nodes of racks with two devices each."""
    levels = [{"nodeLabel": "rack"}]
    nodes = [node(name, gpu=0, labels={"rack": rack}) for name, rack in racks.items()]
    slices = [resource_slice(name) for name in racks]
    return [make_object("Topology", "dc", spec={"levels": levels}), *nodes, *slices]


def _gang_in_a_rack(count: int, **pod_fields: Any) -> list[Fields]:
    """Return a gang of pods with a device each, all in one rack."""
    constraint = {"topology": "dc", "requiredTopologyLevel": "rack"}
    names = [f"g{n}" for n in range(count)]
    claims = [resource_claim(f"{name}-gpu", of=name) for name in names]
    pods = [claiming_pod(name, "g", **pod_fields) for name in names]
    return [group("g", minMember=count, topologyConstraint=constraint), *pods, *claims]


def test_devices_in_one_domain() -> None:
    """The rack must have the devices of all pods."""
    racks = _racks(a="r1", b="r2", c="r2")
    want = {"g0": "b gpu=gpu-0", "g1": "b gpu=gpu-1", "g2": "c gpu=gpu-0"}
    assert planned(*BASE, *racks, *_gang_in_a_rack(3)) == Planned(want)
    message = planned(*BASE, *racks, *_gang_in_a_rack(5))
    assert "5 pods in one domain of level rack of Topology dc, but at most 4 would fit" in message


def test_the_fuller_domain_where_gpus_come_by_claims() -> None:
    """Devices are no resource of a node, so that its CPUs decide."""
    racks, asks = _racks(a="r1", b="r2"), {"cpu": "8"}
    other = [group("o", minMember=1, meta=STARTED), pod("o0", "o", node="b", asks=asks)]
    pods = _gang_in_a_rack(2, asks=asks)
    want = {"g0": "b gpu=gpu-0", "g1": "b gpu=gpu-1"}
    assert planned(*BASE, *racks, *other, *pods) == Planned(want)
