"""kube-scheduler as judge: random claims and slices, one at a time, each asked of both schedulers.

Where kube-scheduler allocates, ours allocates devices that satisfy the same claim; where it cannot,
ours cannot. It may choose other devices. A selector that fails on some device is no case here:
kube-scheduler refuses the whole claim then, and ours leaves out the device.
"""

import asyncio
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from e2e.claims.devices import (
    DRIVER,
    claimed_devices,
    device,
    resource_slice,
    template,
)
from e2e.cluster.patience import patience
from e2e.cluster.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Obj
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import QUEUE

_NODES: Final = ("node-0", "node-1")
_CASES: Final = 40
_SEEN_S: Final = 0.3  # until the schedulers have seen the slices: else the first answer is early
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_TAINT: Final = {"key": "broken", "effect": "NoSchedule"}
_SELECTORS: Final = (
    f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0",
    f"device.attributes['{DRIVER}'].model == 'a100'",
    f"device.attributes['{DRIVER}'].model.startsWith('h')",
    f"device.attributes['{DRIVER}'].version.isGreaterThan(semver('1.5.0'))",
    f"!('model' in device.attributes['{DRIVER}']) || device.attributes['{DRIVER}'].index < 2",
)


class _Question(NamedTuple):
    """The devices of each node, and a claim."""

    devices: dict[str, list[Obj]]
    spec: Obj


def _question(random: Random) -> _Question:
    devices = {node: [_device(random, n) for n in range(random.randint(0, 4))] for node in _NODES}
    count = random.randint(1, 2)
    requests = [_request(random, f"r{n}") for n in range(count)]
    constraints = [{"matchAttribute": _ROOT}] if random.random() < 0.3 else []
    return _Question(devices, {"devices": {"requests": requests, "constraints": constraints}})


def _device(random: Random, number: int) -> Obj:
    attributes: Obj = {
        "model": {"string": random.choice(("a100", "h100", "h200"))},
        "version": {"version": random.choice(("1.0.0", "2.1.0"))},
        "index": {"int": number},
        _ROOT: {"string": f"root-{number // 2}"},
    }
    taints = [_TAINT] if random.random() < 0.2 else []
    capacity = {"memory": {"value": random.choice(("24Gi", "80Gi"))}}
    more: Obj = {"taints": taints} if taints else {}
    return device(f"gpu-{number}", attributes=attributes, capacity=capacity, **more)


def _request(random: Random, name: str) -> Obj:
    if random.random() < 0.3:
        alternatives = [{"name": f"s{n}", **_exact(random)} for n in range(2)]
        return {"name": name, "firstAvailable": alternatives}
    return {"name": name, "exactly": _exact(random)}


def _exact(random: Random) -> Obj:
    found: Obj = {"deviceClassName": DRIVER}
    if random.random() < 0.6:
        found["selectors"] = [{"cel": {"expression": random.choice(_SELECTORS)}}]
    if random.random() < 0.2:
        found["allocationMode"] = "All"
    else:
        found["count"] = random.randint(1, 3)
    if random.random() < 0.3:
        found["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    return found


@pytest.mark.timeout(600)
async def test_kube_scheduler_agrees(judged_installation: Installation) -> None:
    random = Random(1)  # noqa: S311 - the same questions each time
    differences = []
    answers = {True: 0, False: 0}
    for number in range(_CASES):
        question = _question(random)
        judged = await _ask(judged_installation, number, question, "default-scheduler")
        ours = await _ask(judged_installation, number, question, "kai-scheduler")
        answers[judged is not None] += 1
        if (judged is None) != (ours is None):
            differences.append((number, question, judged, ours))
    assert not differences
    assert min(answers.values()) >= _CASES // 8, "both answers are asked for"


async def _ask(
    installation: Installation, number: int, question: _Question, scheduler: str
) -> list[tuple[str, str, str]] | None:
    """Return the devices that a scheduler allocates, or None if it says that it cannot."""
    api = installation.cluster.api
    name = f"{scheduler.partition('-')[0]}-{number}"
    slices = [resource_slice(node, of) for node, of in question.devices.items() if of]
    for it in slices:
        await api.create(it)
    await asyncio.sleep(_SEEN_S)
    await api.create(template("judge", name, question.spec))
    await api.create(_pod(name, scheduler))
    async with patience(20):
        while (answer := await _answer(installation, name)) == "":
            await asyncio.sleep(0.05)
    found = None
    if answer == "placed":
        claims, _ = await api.list(RESOURCE_CLAIMS, "judge")
        found = [device for it in claims for device in claimed_devices(it)]
        _check_satisfied(question, claims[0])
    await api.delete(PODS, "judge", name)
    await api.until_no_pods("judge")
    for it in slices:
        await api.delete(RESOURCE_SLICES, None, it["metadata"]["name"])
    return found


async def _answer(installation: Installation, name: str) -> str:
    pod = await installation.cluster.api.get(PODS, "judge", name)
    if "nodeName" in pod["spec"]:
        return "placed"
    conditions = pod["status"].get("conditions") or ()
    waits = [it for it in conditions if it["type"] == "PodScheduled" and it["status"] == "False"]
    # A claim that is not created yet is no answer.
    is_answer = waits and "created" not in waits[0].get("message", "")
    return "waits" if is_answer and "not found" not in waits[0].get("message", "") else ""


def _check_satisfied(question: _Question, claim: Obj) -> None:
    """Check counts, roots and taints of what was allocated, by rules of this test's own."""
    results = claim["status"]["allocation"]["devices"]["results"]
    known = {(node, it["name"]): it for node, of in question.devices.items() for it in of}
    assert len({(it["pool"], it["device"]) for it in results}) == len(results)
    assert len({it["pool"] for it in results}) == 1
    if question.spec["devices"]["constraints"]:
        roots = {known[it["pool"], it["device"]]["attributes"][_ROOT]["string"] for it in results}
        assert len(roots) == 1
    requests = {it["name"]: it for it in question.spec["devices"]["requests"]}
    for name, request in requests.items():
        of = [it for it in results if it["request"].partition("/")[0] == name]
        chosen: Any = request.get("exactly") or next(
            it for it in request["firstAvailable"] if f"{name}/{it['name']}" == of[0]["request"]
        )
        assert "count" not in chosen or len(of) == chosen["count"]
        for it in of:
            taints = known[it["pool"], it["device"]].get("taints")
            assert not taints or chosen.get("tolerations")


def _pod(name: str, scheduler: str) -> Obj:
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"namespace": "judge", "name": name, "labels": {QUEUE: "default-queue"}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        },
    }
