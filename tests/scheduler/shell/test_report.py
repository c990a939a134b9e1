"""What is said, when, and how often."""

from typing import Any

from scheduler.shell.report import numbers_pause_s
from tests.scheduler.shell.conftest import House
from tests.support.clusters import group, node, pod, queue
from tests.support.fakecluster import Fields
from trainer_kai.api.meta import Key


def waiting(count: int = 2, **spec: Any) -> list[Fields]:
    """Return a gang."""
    return [group("g", minMember=count, **spec), *(pod(f"g{i}", "g") for i in range(count))]


def conditions(house: House) -> list[Fields]:
    """Return what the group is told."""
    found: list[Fields] = (
        house.api.get("PodGroup", "g").get("status", {}).get("schedulingConditions", [])
    )
    return found


def marks(house: House, name: str) -> list[Fields]:
    """Return the conditions of a pod."""
    found: list[Fields] = house.api.get("Pod", name)["status"].get("conditions", [])
    return found


def writes(house: House, what: str) -> int:
    """Return how often something was written."""
    return sum(it.startswith(what) for it in house.api.said())


async def test_who_waits_is_told_once(house: House) -> None:
    """KAI's reason and ours stand beside each other; an Event says it as well."""
    house.api.put(node("a", gpu=1), *waiting())
    async with house.leading():
        await house.passes(60)
        (said,) = conditions(house)

        assert (said["type"], said["nodePool"]) == ("UnschedulableOnNodePool", "default")
        assert (said["status"], said["reason"], said["transitionID"]) == (
            "True",
            "Unschedulable",
            "1",
        )
        assert [it["reason"] for it in said["reasons"]] == ["PodSchedulingErrors", "NoCapacity"]
        assert said["message"] == said["reasons"][1]["message"]
        assert writes(house, "patch podgroups/status") == 1  # with what it asks for
        assert house.events() == [("PodGroup g", "Unschedulable")]


async def test_it_is_taken_back(house: House) -> None:
    """When nothing waits any more, nothing says that it does."""
    house.api.put(node("a", gpu=1), *waiting())
    async with house.leading():
        await house.passes(1)
        assert marks(house, "g0")
        house.api.put(node("a", gpu=2))
        await house.passes(3)

        assert conditions(house) == []
        assert len(house.api.where()) == 2
        assert house.events() == [("PodGroup g", "Unschedulable"), ("PodGroup g", "Scheduled")]


async def test_another_verdict_is_news_and_another_number_is_not(house: House) -> None:
    """Somebody reads this: what changes all the time is read by nobody."""
    house.api.put(node("a", gpu=0), *waiting())
    async with house.leading():
        await house.passes(3)
        house.api.put(node("a", gpu=1))
        await house.passes(3)
        before = conditions(house)
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
        house.api.put(
            {**queue(), "spec": {"resources": {"cpu": free, "memory": free, "gpu": none}}}
        )
        await house.passes(3)

        assert [it["reasons"][1]["reason"] for it in before] != ["ExceedsLimit"]
        assert [it["reasons"][1]["reason"] for it in conditions(house)] == ["ExceedsLimit"]
        assert int(conditions(house)[0]["transitionID"]) == int(before[0]["transitionID"]) + 1


async def test_only_another_node_may_be_asked_for(house: House) -> None:
    """A pod that waits for its quota is not marked: an autoscaler would buy a node in vain."""
    none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    poor = {**queue(), "spec": {"resources": {"cpu": free, "memory": free, "gpu": none}}}
    house.api.put(poor, node("a"), *waiting())
    async with house.leading():
        await house.passes(3)
        assert marks(house, "g0") == []
        house.api.put(queue(), node("a", gpu=1))
        await house.passes(3)
        assert [(it["type"], it["status"], it["reason"]) for it in marks(house, "g0")] == [
            ("PodScheduled", "False", "Unschedulable")
        ]
        house.api.put(poor)
        await house.passes(3)

        assert [it["reason"] for it in conditions(house)[0]["reasons"]][-1] == "ExceedsLimit"


async def test_a_group_may_want_no_marks(house: House) -> None:
    """Its pods are left alone."""
    house.api.put(node("a", gpu=1), *waiting(markUnschedulable=False))
    async with house.leading():
        await house.passes(3)

        assert (len(conditions(house)), marks(house, "g0")) == (1, [])


async def test_what_is_used_is_said(house: House) -> None:
    """Of the group and of its queue, as Kubernetes spells it."""
    house.api.put(node("a"), *waiting(), queue("top"), queue("q", parentQueue="top"))
    async with house.leading():
        await house.passes(5)

        use = house.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        assert use == {
            "allocated": {"nvidia.com/gpu": "2"},
            "requested": {"nvidia.com/gpu": "2"},
        }
        house.api.put(
            *({**pod(f"g{i}", "g", node="a"), "status": {"phase": "Succeeded"}} for i in range(2))
        )
        await house.passes(5)
        use = house.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        status = house.api.get("Queue", "top")["status"]

        assert use == {"allocated": {}, "requested": {}}
        assert status["childQueues"] == ["q"]
        assert status["allocated"]["nvidia.com/gpu"] == "0"


async def test_what_cannot_be_said_is_tried_again(house: House) -> None:
    """An API server that is away is told when it is back."""
    away = [True]
    house.api.refuse = lambda what: 503 if away and "status" in what else None
    house.api.put(node("a", gpu=1), *waiting())
    async with house.leading():
        await house.passes(5)
        assert conditions(house) == []
        away.clear()
        await house.passes(70)

        assert len(conditions(house)) == 1


async def test_gauges_have_the_names_of_kai(house: House) -> None:
    """A dashboard made for KAI shows the same; a queue that is gone has no series."""
    house.api.put(node("a"), *waiting(), queue("other"))

    def value(name: str, **labels: str) -> float | None:
        return house.metrics.registry.get_sample_value(name, labels)

    async with house.leading():
        await house.passes(2)
        assert value("kai_queue_allocated_gpus", queue_name="q") == 2
        assert value("kai_queue_deserved_gpus", queue_name="q") == -1
        assert value("kai_queue_info", queue_name="other") == 1
        house.api.delete("Queue", "other")
        house.api.put(*waiting(9))
        await house.passes(1)

        assert value("kai_queue_info", queue_name="other") is None
        assert value("trainer_kai_units_waiting", verdict="NoCapacity") == 1


async def test_numbers_are_said_anew_now_and_then(house: House) -> None:
    """They were true when they were said; soon they are not, however often they change."""
    house.api.put(node("a", gpu=1), *waiting(9))
    async with house.leading():
        await house.passes(2)
        (before,) = conditions(house)
        house.api.put(node("a", gpu=2))
        await house.passes(1)
        assert conditions(house) == [before]
        for gpus in range(3, 6):
            house.api.put(node("a", gpu=gpus))
            await house.passes(1)
        (after,) = conditions(house)

        assert after["message"] != before["message"]
        stays = ("transitionID", "lastTransitionTime")
        assert [after[it] for it in stays] == [before[it] for it in stays]
        assert after["reasons"][1]["reason"] == before["reasons"][1]["reason"]
        assert house.events() == [("PodGroup g", "Unschedulable")]


def test_the_more_wait_the_less_often_numbers_are_said() -> None:
    """Those of all groups are never written all at once, nor faster than is allowed."""
    keys = [Key("room", f"group-{i}") for i in range(1000)]
    few = {numbers_pause_s(key, 75) for key in keys}
    many = [numbers_pause_s(key, 1000) for key in keys]
    most = max(numbers_pause_s(key, 100_000) for key in keys)

    assert few == {3.0}
    assert sum(1 / pause for pause in many) <= 50
    assert max(sum(at <= pause < at + 1 for pause in many) for at in range(20, 40)) <= 80
    assert 100 < most <= 120


async def test_who_has_a_promise_is_told_when_it_starts(house: House) -> None:
    """Before that, that it waits no longer for room but for others to leave."""
    going = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
    others = ("x", "y")
    house.api.put(node("a", gpu=2), *waiting(2), *(pod(it, node="a") for it in others))
    async with house.leading():
        await house.passes(3)
        assert house.events() == [("PodGroup g", "Unschedulable")]
        house.api.put(*(pod(it, node="a", meta=going) for it in others))
        await house.passes(3)
        (said,) = conditions(house)
        assert said["message"].startswith("2 of its pods are promised room on 1 node, ")
        assert [it["reason"] for it in said["reasons"]] == ["WaitingForVictims"]
        for name in others:
            house.api.delete("Pod", name)
        await house.passes(3)

        assert len(house.api.where()) == 2
        assert conditions(house) == []
        reasons = [reason for _, reason in house.events()]
        assert reasons == ["Unschedulable", "Unschedulable", "Scheduled"]


async def test_who_goes_before_it_starts_is_not_told_that_it_does(house: House) -> None:
    """Its pods are gone, and so is what was said of them."""
    house.api.put(node("a", gpu=1), *waiting(2))
    async with house.leading():
        await house.passes(3)
        assert house.events() == [("PodGroup g", "Unschedulable")]
        for i in range(2):
            house.api.delete("Pod", f"g{i}")
        await house.passes(3)

        assert conditions(house) == []
        assert house.events() == [("PodGroup g", "Unschedulable")]


async def test_who_runs_when_we_begin_is_not_told_that_it_starts(house: House) -> None:
    """Whoever led before had not come to take a condition back."""
    reasons = [{"reason": "NoCapacity", "message": "so"}]
    left = [{"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True"}]
    status = {"schedulingConditions": [{**left[0], "reasons": reasons, "transitionID": "1"}]}
    runs = [pod(f"g{i}", "g", node="a") for i in range(2)]
    house.api.put(node("a"), {**group("g", minMember=2), "status": status}, *runs)
    async with house.leading():
        await house.passes(3)

        assert conditions(house) == []
        assert house.events() == []


async def test_what_the_one_before_marked_is_taken_back(house: House) -> None:
    """Another scheduler of ours marked a pod, and what it said is no longer so."""
    mark = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    poor = {**queue(), "spec": {"resources": {"cpu": free, "memory": free, "gpu": none}}}
    marked = {**pod("g0", "g"), "status": {"phase": "Pending", "conditions": mark}}
    house.api.put(poor, node("a"), *waiting(1), marked)
    async with house.leading():
        await house.passes(3)

        assert writes(house, "patch pods/status g0") == 1


async def test_what_is_given_back_is_said_although_nobody_waits(house: House) -> None:
    """A queue whose work is over has nothing, and says so within moments."""
    house.api.put(node("a"), *waiting())
    async with house.leading():
        await house.passes(5)
        assert house.api.get("Queue", "q")["status"]["allocated"]["nvidia.com/gpu"] == "2"
        for i in range(2):
            house.api.put(pod(f"g{i}", "g", node="a", phase="Succeeded"))
        await house.passes(5)

        assert house.api.get("Queue", "q")["status"]["allocated"]["nvidia.com/gpu"] == "0"


async def test_pods_that_are_being_made_are_not_missing_yet(house: House) -> None:
    """Every gang lacks some for a moment; it is told when no more have come for a while."""
    house.api.put(node("a", gpu=8), group("g", minMember=4), pod("g0", "g"))
    async with house.leading():
        await house.passes(1)
        house.api.put(pod("g1", "g"))
        await house.passes(2)
        assert conditions(house) == []
        assert house.events() == []
        await house.passes(4)
        (said,) = conditions(house)

        assert said["reasons"][-1]["reason"] == "PodsMissing"
        assert "2" in said["message"]
        house.api.put(pod("g2", "g"), pod("g3", "g"))
        await house.passes(1)
        assert conditions(house) == []
        assert len(house.api.where()) == 4


async def test_a_queue_that_is_made_again_is_told_what_it_has(house: House) -> None:
    """Though nothing else changed: the new one says nothing yet, whoever made it so soon."""
    house.api.put(node("a"), *waiting())
    async with house.leading():
        await house.passes(5)
        house.api.delete("Queue", "q")
        again = queue()
        again["metadata"]["uid"] = "another"
        house.api.put(again)
        await house.passes(5)

        assert house.api.get("Queue", "q")["status"]["allocated"]["nvidia.com/gpu"] == "2"
