"""What a ProvisioningRequest contains, which queues ask by one, and what has become of it."""

import json
from typing import Any

import pytest

from scheduler.state.podgroups.provisioning import (
    RequestState,
    provisioning_classes,
    request_objects,
    request_state,
)
from tests.support.state.objects import Fields, decode_object, group, pod, queue
from trainer_kai.api.cluster_kinds import ProvisioningRequest
from trainer_kai.api.decode import decode
from trainer_kai.api.names import PROVISIONING_CLASS


def made(*pods: Fields) -> Any:
    _, _, owner = decode_object(group("g"))
    found = [decode_object(it)[2] for it in pods]
    return request_objects(owner, "g-1", "atomic", "2026-01-05T08:00:00Z", found)


def test_equal_pods_are_one_template() -> None:
    """Names and indexes of pods do not tell them apart, what decides about nodes does."""
    gpu = {"nvidia.com/gpu": "8"}
    workers = [pod(f"g{i}", "g", asks=gpu, labels={"index": str(i)}) for i in range(3)]
    zone: Fields = {"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]}
    templates, request = made(*workers, pod("h", "g", asks={"cpu": "1"}, **zone))

    assert [it["metadata"]["name"] for it in templates] == ["g-1-0", "g-1-1"]
    assert request["spec"] == {
        "provisioningClassName": "atomic",
        "podSets": [
            {"podTemplateRef": {"name": "g-1-0"}, "count": 3},
            {"podTemplateRef": {"name": "g-1-1"}, "count": 1},
        ],
    }
    spec = templates[1]["template"]["spec"]
    assert (spec["nodeSelector"], spec["tolerations"][0]["operator"]) == ({"zone": "a"}, "Exists")
    (container,) = templates[0]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == gpu
    assert (container["name"], container["image"]) == ("main-0", "trainer-kai.invalid/never-runs")
    for it in (*templates, request):
        (owner,) = it["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("PodGroup", "g", "g")


def test_a_request_has_at_most_32_templates() -> None:
    pods = [pod(f"g{i}", "g", asks={"cpu": str(i + 1)}) for i in range(33)]

    assert len(made(*pods[:32])[0]) == 32
    assert made(*pods) is None


def test_a_queue_asks_as_the_nearest_above_it_says() -> None:
    def noted(text: str) -> Fields:
        return {"annotations": {PROVISIONING_CLASS: text}}

    queues = [
        queue("top", meta=noted("atomic")),
        queue("mid", parentQueue="top"),
        queue("own", meta=noted("check"), parentQueue="mid"),
        queue("bad", meta=noted("No Class"), parentQueue="mid"),
        queue("one", parentQueue="two"),
        queue("two", parentQueue="one"),
        queue("alone", parentQueue="missing"),
    ]
    found = provisioning_classes({it["metadata"]["name"]: decode_object(it)[2] for it in queues})

    assert {name: it.name for name, it in found.items() if not it.fault} == {
        "top": "atomic",
        "mid": "atomic",
        "own": "check",
    }
    assert found["bad"].fault.startswith(
        "metadata.annotations[trainer-kai.dev/provisioning-class] of queue bad: "
    )


def _ended(condition: str) -> tuple[str, str]:
    return condition.lower(), f"{condition}: no"


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ({}, ("", "")),
        ({"Accepted": "True"}, ("accepted", "")),
        ({"Accepted": "True", "Provisioned": "True"}, ("provisioned", "")),
        ({"Accepted": "True", "Provisioned": "False"}, ("accepted", "")),
        ({"Accepted": "True", "Failed": "True"}, _ended("Failed")),
        ({"Provisioned": "True", "BookingExpired": "True"}, _ended("BookingExpired")),
        ({"Provisioned": "True", "CapacityRevoked": "True"}, _ended("CapacityRevoked")),
        ({"Failed": "False"}, ("", "")),
    ],
)
def test_what_has_become_of_a_request(conditions: Fields, state: tuple[str, str]) -> None:
    listed = [{"type": it, "status": is_so, "message": "no"} for it, is_so in conditions.items()]
    fields = {"metadata": {"name": "g-1"}, "status": {"conditions": listed}}
    request = decode(ProvisioningRequest, json.dumps(fields).encode())

    assert request_state(request) == RequestState("", *state)
