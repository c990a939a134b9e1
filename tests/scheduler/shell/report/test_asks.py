"""How PodGroups ask for nodes: marks of pods, the record, and how often anything is written."""

from typing import Any

from scheduler.shell.report.asks import AskPolicy
from scheduler.state.podgroups.node_asks import AskLimits
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.devices import (
    claim_template,
    claiming_gang,
    device_class,
    resource_slice,
)
from tests.support.state.objects import Fields, gang, group, node, pod, queue
from trainer_kai.api.names import ASKED_FOR_NODES

_POLICY = AskPolicy(AskLimits(900, 600), False, ("karpenter.sh/",), ("nvidia.com/gpu",))
_READY = [{"type": "Ready", "status": "True"}]


def message(harness: SchedulerHarness, name: str = "g") -> str:
    conditions = harness.api.get("PodGroup", name)["status"]["schedulingConditions"]
    return str(conditions[-1]["message"])


def marked(harness: SchedulerHarness) -> list[str]:
    """Return the pods that an autoscaler acts on."""
    return [
        name
        for name in sorted(harness.api.names("Pod"))
        if "Unschedulable" in [it["reason"] for it in _conditions(harness.api.get("Pod", name))]
    ]


def _conditions(fields: Fields) -> Any:
    return fields.get("status", {}).get("conditions", [])


def record(harness: SchedulerHarness, name: str = "g") -> str | None:
    found = harness.api.get("PodGroup", name)["metadata"].get("annotations", {})
    text: str | None = found.get(ASKED_FOR_NODES)
    return text


def writes(harness: SchedulerHarness) -> int:
    return len(harness.api.written())


async def test_a_gang_asks_gives_up_and_asks_again(harness: SchedulerHarness) -> None:
    """Three of four nodes came: the marks are removed, so that these can be removed."""
    harness.cycle.ask_policy = _POLICY
    harness.api.put(node("a", gpu=0), *gang("g", 4))
    async with harness.leading():
        await harness.advance(5)
        assert marked(harness) == ["g0", "g1", "g2", "g3"]
        assert "It waits for nodes: asked for 4 \u00d7 1 GPU at " in message(harness)
        assert record(harness) is not None
        harness.api.put(node("b", gpu=3, conditions=_READY))
        await harness.advance(905)

        assert marked(harness) == []
        await harness.advance(70)
        assert "Room for 3 of 4 pods came" in message(harness)
        await harness.advance(600)
        assert len(marked(harness)) == 4
        harness.api.put(node("c", gpu=1, conditions=_READY))
        await harness.advance(5)
        assert len(harness.api.node_of_pods()) == 4
        assert record(harness) is None


async def test_who_gave_up_leaves_room_for_the_next_one(harness: SchedulerHarness) -> None:
    """The queue would let only one of them start, and for the first one no nodes came."""
    harness.cycle.ask_policy = _POLICY
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    two = {"quota": 2, "limit": 2, "overQuotaWeight": 1}
    limited = queue(resources={"cpu": free, "memory": free, "gpu": two})
    harness.api.put(limited, node("a", gpu=0), *gang("g", 2))
    async with harness.leading():
        await harness.advance(5)
        harness.api.put(*gang("h", 2))
        await harness.advance(890)
        assert marked(harness) == ["g0", "g1"]
        await harness.advance(80)
        assert marked(harness) == ["h0", "h1"]
        assert "released after 15 minutes, nodes are asked for again at" in message(harness)
        await harness.advance(900)
        assert marked(harness) == ["g0", "g1"]


async def test_a_new_leader_asks_on_and_remembers_that_it_gave_up(
    harness: SchedulerHarness,
) -> None:
    harness.cycle.ask_policy = _POLICY
    harness.api.put(node("a", gpu=0), *gang("g", 2))
    async with harness.leading():
        await harness.advance(600)
    again = harness.successor()
    again.cycle.ask_policy = _POLICY
    async with again.leading():
        await again.advance(290)
        assert len(marked(again)) == 2
        await again.advance(20)
        assert marked(again) == []
    last = harness.successor()
    last.cycle.ask_policy = _POLICY
    async with last.leading():
        await last.advance(500)
        assert marked(last) == []
        await last.advance(120)
        assert len(marked(last)) == 2


async def test_little_is_written_for_a_gang_that_waits(harness: SchedulerHarness) -> None:
    """What a gang costs while it waits is bounded: a condition and a record, and each pod once."""
    harness.cycle.ask_policy = _POLICY
    harness.api.put(node("a", gpu=0), *gang("g", 8))
    async with harness.leading():
        await harness.advance(10)
        first = writes(harness)
        await harness.advance(800)
        assert writes(harness) == first
        pods = sum("pods/status" in it for it in harness.api.written())
        groups = sum("podgroups" in it for it in harness.api.written())

        assert (pods, groups) == (8, 2)


async def test_a_queue_at_its_limit_asks_for_nothing(harness: SchedulerHarness) -> None:
    harness.cycle.ask_policy = _POLICY
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    two = {"quota": 2, "limit": 2, "overQuotaWeight": 1}
    limited = queue(resources={"cpu": free, "memory": free, "gpu": two})
    harness.api.put(limited, node("a", gpu=0), *gang("g", 2), *gang("h", 2))
    async with harness.leading():
        await harness.advance(5)

        assert marked(harness) == ["g0", "g1"]
        assert message(harness, "h").endswith(
            "No nodes are asked for: queue q would exceed its limit together with what others ask"
            " for"
        )
        assert record(harness, "h") is None


async def test_what_karpenter_ignores_is_said(harness: SchedulerHarness) -> None:
    """The pods ask all the same: cluster-autoscaler reads claims, and Karpenter if told so."""
    harness.cycle.ask_policy = _POLICY
    free = [node("a", gpu=0), resource_slice("a"), device_class(), claim_template()]
    harness.api.put(*free, group("g", minMember=3), *claiming_gang("g", 3), *gang("h", 2))
    async with harness.leading():
        await harness.advance(5)

        assert marked(harness) == ["g0", "g1", "g2", "h0", "h1"]
        assert message(harness).endswith(
            "Karpenter ignores pods with ResourceClaims unless it runs with"
            " --ignore-dra-requests=false"
        )
        assert "Karpenter" not in message(harness, "h")


async def test_without_the_setting_nothing_is_recorded(harness: SchedulerHarness) -> None:
    """And a record of before is removed."""
    harness.cycle.ask_policy = _POLICY
    harness.api.put(node("a", gpu=0), *gang("g", 2))
    async with harness.leading():
        await harness.advance(5)
        assert record(harness) is not None
    again = harness.successor()
    async with again.leading():
        await again.advance(5)

        assert record(again) is None
        assert "asked for" not in message(again)
        assert marked(again) == ["g0", "g1"]


async def test_pods_without_a_podgroup_ask_as_well(harness: SchedulerHarness) -> None:
    harness.cycle.ask_policy = _POLICY
    harness.api.put(node("a", gpu=0), pod("p"))
    async with harness.leading():
        await harness.advance(35)

        assert marked(harness) == ["p"]
        (condition,) = harness.api.get("Pod", "p")["status"]["conditions"]
        assert "It waits for nodes: asked for 1 \u00d7 1 GPU" in condition["message"]
