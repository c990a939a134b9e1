"""One ProvisioningRequest for a gang: when it comes, when it goes, and what its pods carry."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from scheduler.shell.report.asks import AskPolicy
from scheduler.shell.report.provisioning_requests import ProvisioningRequests
from scheduler.state.podgroups.node_asks import AskLimits
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import Fields, gang, node, queue
from trainer_kai.api.cluster_kinds import ProvisioningRequest
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CONSUMES_CLASS, CONSUMES_REQUEST, PROVISIONING_CLASS
from trainer_kai.kube.watch import Delta, DeltaType
from trainer_kai.kube.workqueue import Requeue
from trainer_kai.service.log import logger

_POLICY = AskPolicy(AskLimits(900, 600), False, (), ("nvidia.com/gpu",))
_KINDS = ("cpu", "memory", "gpu")
_ATOMIC = queue(meta={"annotations": {PROVISIONING_CLASS: "atomic"}})


@asynccontextmanager
async def asking(harness: SchedulerHarness) -> AsyncIterator[ProvisioningRequests]:
    """Schedule where queues may ask by requests."""
    harness.cycle.ask_policy = _POLICY
    requests = ProvisioningRequests(
        harness.api.client, harness.cache, harness.cycle.wake, logger("test")
    )

    def changed(name: str, fields: Fields | None) -> None:
        text = json.dumps(fields).encode()
        seen = decode(ProvisioningRequest, text) if fields else None
        kind = DeltaType.DELETED if seen is None else DeltaType.MODIFIED
        requests.changed(Delta(kind, Key("ns", name), "", seen))

    def podgroup_changed(group: Key) -> None:
        harness.reporter.podgroup_changed(group)
        requests.podgroup_changed(group)

    for name in harness.api.names("ProvisioningRequest"):
        changed(name, harness.api.get("ProvisioningRequest", name))
    harness.api.on_provisioning_request = changed
    harness.cycle.provisioning = requests
    harness.keep_annotations = requests.bind_annotations
    requests.synced()
    running = asyncio.create_task(requests.run())
    async with harness.leading():
        harness.cache.on_podgroup_change = podgroup_changed
        yield requests
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def requests_of(harness: SchedulerHarness) -> list[str]:
    return sorted(harness.api.names("ProvisioningRequest"))


def report(harness: SchedulerHarness, name: str, condition: str) -> None:
    """Write what an autoscaler would."""
    status = {"conditions": [{"type": condition, "status": "True", "message": "so it is"}]}
    harness.api.put({**harness.api.get("ProvisioningRequest", name), "status": status})


def marked(harness: SchedulerHarness) -> int:
    pods = (harness.api.get("Pod", name) for name in harness.api.names("Pod"))
    return sum(bool(it.get("status", {}).get("conditions")) for it in pods)


def message(harness: SchedulerHarness) -> str:
    conditions = harness.api.get("PodGroup", "g")["status"]["schedulingConditions"]
    return str(conditions[-1]["message"])


async def test_a_gang_asks_by_one_request_and_uses_it_up(harness: SchedulerHarness) -> None:
    """Not by marks as well: the same nodes would be bought twice."""
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 4))
    async with asking(harness):
        await harness.advance(10)
        assert (requests_of(harness), harness.api.names("PodTemplate")) == (["g-1"], ["g-1-0"])
        assert marked(harness) == 0
        assert "ProvisioningRequest g-1 of class atomic asks for 4 \u00d7 1 GPU" in message(harness)
        report(harness, "g-1", "Provisioned")
        harness.api.put(node("b", gpu=4))
        await harness.advance(10)
        annotations = harness.api.get("Pod", "g0")["metadata"]["annotations"]
        assert len(harness.api.node_of_pods()) == 4
        assert (annotations[CONSUMES_REQUEST], annotations[CONSUMES_CLASS]) == ("g-1", "atomic")
        await harness.advance(600)
        assert requests_of(harness) == ["g-1"]
        for name in harness.api.names("Pod"):
            harness.api.delete("Pod", name)
        await harness.advance(10)

        assert (requests_of(harness), harness.api.names("PodTemplate")) == ([], [])


async def test_a_request_that_failed_is_deleted_and_another_one_comes_later(
    harness: SchedulerHarness,
) -> None:
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)
        report(harness, "g-1", "Failed")
        await harness.advance(70)
        assert requests_of(harness) == []
        assert "ProvisioningRequest g-1 for 2 \u00d7 1 GPU has ended (Failed: so it is)" in message(
            harness
        )
        await harness.advance(500)
        assert requests_of(harness) == []
        await harness.advance(60)

        assert requests_of(harness) == ["g-2"]


@pytest.mark.parametrize("kind", ["podtemplates", "provisioningrequests"])
async def test_a_request_that_cannot_be_created_is_given_up_for_a_while(
    harness: SchedulerHarness, kind: str
) -> None:
    """The component with the rights is not installed: that is said, and the gang does not hang."""
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    harness.api.refuse_with = lambda what: 403 if what.startswith(f"post {kind}") else None
    async with asking(harness):
        await harness.advance(80)
        assert "ProvisioningRequest g-1 for 2 \u00d7 1 GPU has ended (it was not created: " in (
            message(harness)
        )
        assert "403" in message(harness)
        harness.api.refuse_with = lambda _what: None
        await harness.advance(620)

        assert requests_of(harness) == ["g-2"]
        assert "ProvisioningRequest g-2 of class atomic asks for" in message(harness)


async def test_a_new_leader_creates_no_second_request(harness: SchedulerHarness) -> None:
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)
    created = [it for it in harness.api.written() if it.startswith("post provisioningrequests")]
    again = harness.successor()
    async with asking(again):
        await again.advance(30)
        report(again, "g-1", "Accepted")
        await again.advance(30)

        assert requests_of(again) == ["g-1"]
        assert "(accepted)" in message(again)
    assert created == [
        it for it in again.api.written() if it.startswith("post provisioningrequests")
    ]


async def test_an_invalid_class_is_named_and_nothing_is_asked_for(
    harness: SchedulerHarness,
) -> None:
    harness.api.put(queue(meta={"annotations": {PROVISIONING_CLASS: "No Class"}}))
    harness.api.put(node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)

        assert (requests_of(harness), marked(harness)) == ([], 0)
        assert (
            "No nodes are asked for: metadata.annotations[trainer-kai.dev/provisioning-class] of "
            "queue q: " in message(harness)
        )


async def test_little_is_written_while_a_request_waits(harness: SchedulerHarness) -> None:
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 8))
    async with asking(harness):
        await harness.advance(10)
        first = len(harness.api.written())
        await harness.advance(3600)

        assert len(harness.api.written()) == first


async def test_a_gang_that_runs_is_looked_at_when_something_changes(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands may run: each is looked at a few times in an hour, and when its pods end."""
    looked, reconcile = list[Key](), ProvisioningRequests._reconcile

    async def counted(requests: ProvisioningRequests, key: Key) -> Requeue | None:
        looked.append(key)
        return await reconcile(requests, key)

    monkeypatch.setattr(ProvisioningRequests, "_reconcile", counted)
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)
        harness.api.put(node("b", gpu=2))
        await harness.advance(10)
        looked.clear()
        await harness.advance(3600)
        assert len(looked) <= 7
        assert requests_of(harness) == ["g-1"]
        for name in harness.api.names("Pod"):
            found = harness.api.get("Pod", name)
            harness.api.put({**found, "kind": "Pod", "status": {"phase": "Succeeded"}})
        await harness.advance(3)

        assert requests_of(harness) == []


async def test_a_request_of_another_class_replaces_the_one_that_waits(
    harness: SchedulerHarness,
) -> None:
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)
        harness.api.put(queue(meta={"annotations": {PROVISIONING_CLASS: "other"}}))
        await harness.advance(70)

        assert requests_of(harness) == ["g-2"]
        spec = harness.api.get("ProvisioningRequest", "g-2")["spec"]
        assert spec["provisioningClassName"] == "other"


async def test_a_request_stays_while_the_binds_are_under_way(harness: SchedulerHarness) -> None:
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)
        harness.api.delay_s = lambda what: 4.0 if what.startswith("bind") else 0.0
        harness.api.put(node("b", gpu=2))
        await harness.advance(3)
        assert (harness.api.node_of_pods(), requests_of(harness)) == ({}, ["g-1"])
        await harness.advance(10)

        assert (len(harness.api.node_of_pods()), requests_of(harness)) == (2, ["g-1"])


async def test_a_request_goes_when_the_gang_waits_for_its_queue(harness: SchedulerHarness) -> None:
    harness.api.put(_ATOMIC, node("a", gpu=0), *gang("g", 2))
    async with asking(harness):
        await harness.advance(10)
        assert requests_of(harness) == ["g-1"]
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
        harness.api.put(
            {**_ATOMIC, "spec": {"resources": dict.fromkeys(_KINDS, free) | {"gpu": none}}}
        )
        await harness.advance(10)

        assert requests_of(harness) == []
