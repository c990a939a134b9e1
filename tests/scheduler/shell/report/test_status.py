"""What is reported, when, and how often."""

from typing import Any

from scheduler.shell.report.status import numbers_interval_s
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.objects import group, node, pod, queue
from trainer_kai.api.meta import Key


def gang_objects(count: int = 2, **spec: Any) -> list[Fields]:
    return [group("g", minMember=count, **spec), *(pod(f"g{i}", "g") for i in range(count))]


def conditions(harness: SchedulerHarness) -> list[Fields]:
    found: list[Fields] = (
        harness.api.get("PodGroup", "g").get("status", {}).get("schedulingConditions", [])
    )
    return found


def pod_conditions(harness: SchedulerHarness, name: str) -> list[Fields]:
    found: list[Fields] = harness.api.get("Pod", name)["status"].get("conditions", [])
    return found


def write_count(harness: SchedulerHarness, what: str) -> int:
    return sum(it.startswith(what) for it in harness.api.written())


async def test_a_waiting_group_is_reported_once(harness: SchedulerHarness) -> None:
    """KAI's reason and ours stand beside each other; an Event gives the reason as well."""
    harness.api.put(node("a", gpu=1), *gang_objects())
    async with harness.leading():
        await harness.advance(60)
        (condition,) = conditions(harness)

        assert (condition["type"], condition["nodePool"]) == ("UnschedulableOnNodePool", "default")
        assert (condition["status"], condition["reason"], condition["transitionID"]) == (
            "True",
            "Unschedulable",
            "1",
        )
        assert [it["reason"] for it in condition["reasons"]] == [
            "PodSchedulingErrors",
            "NoCapacity",
        ]
        assert condition["message"] == condition["reasons"][1]["message"]
        assert write_count(harness, "patch podgroups/status") == 1  # with what it asks for
        assert harness.events() == [("PodGroup g", "Unschedulable")]


async def test_it_is_taken_back(harness: SchedulerHarness) -> None:
    """When nothing waits any more, nothing says that it does."""
    harness.api.put(node("a", gpu=1), *gang_objects())
    async with harness.leading():
        await harness.advance(1)
        assert pod_conditions(harness, "g0")
        harness.api.put(node("a", gpu=2))
        await harness.advance(3)

        assert conditions(harness) == []
        assert len(harness.api.node_of_pods()) == 2
        assert harness.events() == [("PodGroup g", "Unschedulable"), ("PodGroup g", "Scheduled")]


async def test_another_reason_is_reported_at_once_and_another_number_is_not(
    harness: SchedulerHarness,
) -> None:
    """Users read the condition: numbers that change all the time help no user."""
    harness.api.put(node("a", gpu=0), *gang_objects())
    async with harness.leading():
        await harness.advance(3)
        harness.api.put(node("a", gpu=1))
        await harness.advance(3)
        before = conditions(harness)
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
        harness.api.put(
            {**queue(), "spec": {"resources": {"cpu": free, "memory": free, "gpu": none}}}
        )
        await harness.advance(3)

        assert [it["reasons"][1]["reason"] for it in before] != ["ExceedsLimit"]
        assert [it["reasons"][1]["reason"] for it in conditions(harness)] == ["ExceedsLimit"]
        assert int(conditions(harness)[0]["transitionID"]) == int(before[0]["transitionID"]) + 1


async def test_only_another_node_may_be_asked_for(harness: SchedulerHarness) -> None:
    """A pod that waits for its quota is not marked: an autoscaler would buy a node in vain."""
    none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    without_gpus = {**queue(), "spec": {"resources": {"cpu": free, "memory": free, "gpu": none}}}
    harness.api.put(without_gpus, node("a"), *gang_objects())
    async with harness.leading():
        await harness.advance(3)
        assert pod_conditions(harness, "g0") == []
        harness.api.put(queue(), node("a", gpu=1))
        await harness.advance(3)
        assert [
            (it["type"], it["status"], it["reason"]) for it in pod_conditions(harness, "g0")
        ] == [("PodScheduled", "False", "Unschedulable")]
        harness.api.put(without_gpus)
        await harness.advance(3)

        assert [it["reason"] for it in conditions(harness)[0]["reasons"]][-1] == "ExceedsLimit"


async def test_a_group_may_want_no_marks(harness: SchedulerHarness) -> None:
    """Its pods are left alone."""
    harness.api.put(node("a", gpu=1), *gang_objects(markUnschedulable=False))
    async with harness.leading():
        await harness.advance(3)

        assert (len(conditions(harness)), pod_conditions(harness, "g0")) == (1, [])


async def test_used_resources_are_reported(harness: SchedulerHarness) -> None:
    """Of the group and of its queue, as Kubernetes spells it."""
    harness.api.put(node("a"), *gang_objects(), queue("top"), queue("q", parentQueue="top"))
    async with harness.leading():
        await harness.advance(5)

        use = harness.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        assert use == {
            "allocated": {"nvidia.com/gpu": "2"},
            "requested": {"nvidia.com/gpu": "2"},
        }
        harness.api.put(
            *({**pod(f"g{i}", "g", node="a"), "status": {"phase": "Succeeded"}} for i in range(2))
        )
        await harness.advance(5)
        use = harness.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        status = harness.api.get("Queue", "top")["status"]

        assert use == {"allocated": {}, "requested": {}}
        assert status["childQueues"] == ["q"]
        assert status["allocated"]["nvidia.com/gpu"] == "0"


async def test_used_parts_of_gpus_are_reported(harness: SchedulerHarness) -> None:
    """Of memory once a pod is on a node: the size of its GPUs is known."""
    half = {"gpu-fraction": "0.35", "gpu-fraction-num-devices": "2"}
    memory = {"gpu-memory": "20000"}
    harness.api.put(
        node("a", labels={"nvidia.com/gpu.memory": "80000"}),
        group("g", minMember=1),
        pod("g0", "g", node="a", annotations=half, asks={}),
        pod("g1", "g", node="a", annotations=memory, asks={}),
        pod("g2", "g", annotations=memory, asks={}, schedulingGates=[{"name": "later"}]),
        queue("q"),
    )
    async with harness.leading():
        await harness.advance(5)

        use = harness.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        assert use["allocated"] == {"nvidia.com/gpu": "950m"}
        assert use["requested"] == {"nvidia.com/gpu": "950m"}


def _binds_for(harness: SchedulerHarness, number: int) -> None:
    """Let many pods be bound at once, in a PodGroup of their own."""
    name = f"many{number}"
    pods = [pod(f"{name}-{i}", name) for i in range(12)]
    harness.api.put(group(name, minMember=12), *pods)


async def test_used_resources_wait_while_many_pods_are_bound(harness: SchedulerHarness) -> None:
    """Each PodGroup has one write then, once there is time for it."""
    harness.api.put(node("a", gpu=100), *gang_objects())
    async with harness.leading():
        for second in range(6):
            _binds_for(harness, second)
            await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 2 + 6 * 12
        assert write_count(harness, "patch podgroups/status") == 0
        await harness.advance(6)

        use = harness.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        assert use["allocated"] == {"nvidia.com/gpu": "2"}
        assert write_count(harness, "patch podgroups/status") == 1 + 6


async def test_used_resources_do_not_wait_for_ever(harness: SchedulerHarness) -> None:
    """Pods may be bound all day."""
    harness.api.put(*(node(name, gpu=100) for name in "abc"), *gang_objects())
    async with harness.leading():
        for second in range(18):
            _binds_for(harness, second)
            await harness.advance(1)

        assert write_count(harness, "patch podgroups/status g") == 1


async def test_a_reason_does_not_wait_while_many_pods_are_bound(
    harness: SchedulerHarness,
) -> None:
    """It is written with the resources that the PodGroup requests."""
    harness.api.put(node("a", gpu=100), *gang_objects(200))
    async with harness.leading():
        for second in range(3):
            _binds_for(harness, second)
            await harness.advance(1)

        assert len(conditions(harness)) == 1
        use = harness.api.get("PodGroup", "g")["status"]["resourcesStatus"]
        assert use["requested"] == {"nvidia.com/gpu": "200"}


async def test_a_failed_report_is_tried_again(harness: SchedulerHarness) -> None:
    """A failed write is repeated once the API server is back."""
    unavailable = [True]
    harness.api.refuse_with = lambda what: 503 if unavailable and "status" in what else None
    harness.api.put(node("a", gpu=1), *gang_objects())
    async with harness.leading():
        await harness.advance(5)
        assert conditions(harness) == []
        unavailable.clear()
        await harness.advance(70)

        assert len(conditions(harness)) == 1


async def test_gauges_have_the_names_of_kai(harness: SchedulerHarness) -> None:
    """A dashboard made for KAI shows the same; a queue that is gone has no series."""
    harness.api.put(node("a"), *gang_objects(), queue("other"))

    def value(name: str, **labels: str) -> float | None:
        return harness.metrics.registry.get_sample_value(name, labels)

    async with harness.leading():
        await harness.advance(2)
        assert value("kai_queue_allocated_gpus", queue_name="q") == 2
        assert value("kai_queue_deserved_gpus", queue_name="q") == -1
        assert value("kai_queue_info", queue_name="other") == 1
        harness.api.delete("Queue", "other")
        harness.api.put(*gang_objects(9))
        await harness.advance(1)

        assert value("kai_queue_info", queue_name="other") is None
        assert value("trainer_kai_podgroups_waiting", reason="NoCapacity") == 1


async def test_a_deleted_queue_keeps_the_gauges_of_its_use(harness: SchedulerHarness) -> None:
    """Its PodGroups have the GPUs, and no other queue is charged for them."""
    harness.api.put(node("a"), *gang_objects())

    def values(*names: str) -> list[float | None]:
        labels = {"queue_name": "q"}
        return [
            harness.metrics.registry.get_sample_value(f"kai_queue_{it}", labels) for it in names
        ]

    async with harness.leading():
        await harness.advance(5)
        harness.api.delete("Queue", "q")
        await harness.advance(5)
        assert values("info", "deserved_gpus", "allocated_gpus") == [None, None, 2]
        for i in range(2):
            harness.api.delete("Pod", f"g{i}")
        await harness.advance(5)
        assert values("allocated_gpus") == [None]
        harness.api.put(queue())
        await harness.advance(5)
        assert values("info", "deserved_gpus", "allocated_gpus") == [1, -1, 0]


async def test_numbers_are_reported_anew_now_and_then(harness: SchedulerHarness) -> None:
    """They were true when they were written; soon they are not, however often they change."""
    harness.api.put(node("a", gpu=1), *gang_objects(9))
    async with harness.leading():
        await harness.advance(2)
        (before,) = conditions(harness)
        harness.api.put(node("a", gpu=2))
        await harness.advance(1)
        assert conditions(harness) == [before]
        for gpus in range(3, 6):
            harness.api.put(node("a", gpu=gpus))
            await harness.advance(1)
        (after,) = conditions(harness)

        assert after["message"] != before["message"]
        stays = ("transitionID", "lastTransitionTime")
        assert [after[it] for it in stays] == [before[it] for it in stays]
        assert after["reasons"][1]["reason"] == before["reasons"][1]["reason"]
        assert harness.events() == [("PodGroup g", "Unschedulable")]


def test_the_more_wait_the_less_often_numbers_are_reported() -> None:
    """Those of all PodGroups are never written at once, nor faster than is allowed."""
    keys = [Key("room", f"group-{i}") for i in range(1000)]
    few = {numbers_interval_s(key, 75) for key in keys}
    many = [numbers_interval_s(key, 1000) for key in keys]
    most = max(numbers_interval_s(key, 100_000) for key in keys)

    assert few == {3.0}
    assert sum(1 / pause for pause in many) <= 50
    assert max(sum(at <= pause < at + 1 for pause in many) for at in range(20, 40)) <= 80
    assert 100 < most <= 120


async def test_a_nominated_group_gets_an_event_when_it_starts(harness: SchedulerHarness) -> None:
    """Before that one says that it waits for victims, and no longer for room."""
    going = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
    others = ("x", "y")
    harness.api.put(node("a", gpu=2), *gang_objects(2), *(pod(it, node="a") for it in others))
    async with harness.leading():
        await harness.advance(3)
        assert harness.events() == [("PodGroup g", "Unschedulable")]
        harness.api.put(*(pod(it, node="a", meta=going) for it in others))
        await harness.advance(3)
        (condition,) = conditions(harness)
        assert condition["message"].startswith(
            "2 pods are nominated to 1 node, where evicted pods are terminating"
        )
        assert [it["reason"] for it in condition["reasons"]] == ["WaitingForVictims"]
        for name in others:
            harness.api.delete("Pod", name)
        await harness.advance(3)

        assert len(harness.api.node_of_pods()) == 2
        assert conditions(harness) == []
        reasons = [reason for _, reason in harness.events()]
        assert reasons == ["Unschedulable", "Unschedulable", "Scheduled"]


async def test_a_deleted_group_gets_no_event_that_it_starts(harness: SchedulerHarness) -> None:
    """Its pods are gone, and so is their condition."""
    harness.api.put(node("a", gpu=1), *gang_objects(2))
    async with harness.leading():
        await harness.advance(3)
        assert harness.events() == [("PodGroup g", "Unschedulable")]
        for i in range(2):
            harness.api.delete("Pod", f"g{i}")
        await harness.advance(3)

        assert conditions(harness) == []
        assert harness.events() == [("PodGroup g", "Unschedulable")]


async def test_what_is_deleted_is_forgotten(harness: SchedulerHarness) -> None:
    """PodGroups and queues come and go for months."""
    harness.api.put(node("a", gpu=1), *gang_objects(2))
    async with harness.leading():
        await harness.advance(5)
        known = vars(harness.reporter)
        kept = ("_reported_s", "_posted_s", "_reported_waiting", "_queue_uids", "_queue_reported_s")
        assert all(known[name] for name in kept)
        for i in range(2):
            harness.api.delete("Pod", f"g{i}")
        await harness.advance(3)
        harness.api.delete("PodGroup", "g")
        harness.api.delete("Queue", "q")
        await harness.advance(5)

        assert [name for name in kept if known[name]] == []


async def test_a_group_that_runs_before_us_gets_no_event_that_it_starts(
    harness: SchedulerHarness,
) -> None:
    """The leader before had not removed the condition yet."""
    reasons = [{"reason": "NoCapacity", "message": "so"}]
    left = [{"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True"}]
    status = {"schedulingConditions": [{**left[0], "reasons": reasons, "transitionID": "1"}]}
    runs = [pod(f"g{i}", "g", node="a") for i in range(2)]
    harness.api.put(node("a"), {**group("g", minMember=2), "status": status}, *runs)
    async with harness.leading():
        await harness.advance(3)

        assert conditions(harness) == []
        assert harness.events() == []


async def test_what_the_one_before_marked_is_taken_back(harness: SchedulerHarness) -> None:
    """The leader before marked a pod, and the reason does not hold any more."""
    mark = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    without_gpus = {**queue(), "spec": {"resources": {"cpu": free, "memory": free, "gpu": none}}}
    marked = {**pod("g0", "g"), "status": {"phase": "Pending", "conditions": mark}}
    harness.api.put(without_gpus, node("a"), *gang_objects(1), marked)
    async with harness.leading():
        await harness.advance(3)

        assert write_count(harness, "patch pods/status g0") == 1


async def test_returned_resources_are_reported_although_nothing_waits(
    harness: SchedulerHarness,
) -> None:
    """The status of a queue is zero within moments after its pods have finished."""
    harness.api.put(node("a"), *gang_objects())
    async with harness.leading():
        await harness.advance(5)
        assert harness.api.get("Queue", "q")["status"]["allocated"]["nvidia.com/gpu"] == "2"
        for i in range(2):
            harness.api.put(pod(f"g{i}", "g", node="a", phase="Succeeded"))
        await harness.advance(5)

        assert harness.api.get("Queue", "q")["status"]["allocated"]["nvidia.com/gpu"] == "0"


async def test_pods_that_are_being_made_are_not_missing_yet(harness: SchedulerHarness) -> None:
    """Each PodGroup lacks pods for a moment; it is reported when no more come for a while."""
    harness.api.put(node("a", gpu=8), group("g", minMember=4), pod("g0", "g"))
    async with harness.leading():
        await harness.advance(1)
        harness.api.put(pod("g1", "g"))
        await harness.advance(2)
        assert conditions(harness) == []
        assert harness.events() == []
        await harness.advance(4)
        (condition,) = conditions(harness)

        assert condition["reasons"][-1]["reason"] == "PodsMissing"
        assert "2" in condition["message"]
        harness.api.put(pod("g2", "g"), pod("g3", "g"))
        await harness.advance(1)
        assert conditions(harness) == []
        assert len(harness.api.node_of_pods()) == 4


async def test_a_recreated_queue_gets_its_status(harness: SchedulerHarness) -> None:
    """Though nothing else changed: the status of the new one is empty."""
    harness.api.put(node("a"), *gang_objects())
    async with harness.leading():
        await harness.advance(5)
        harness.api.delete("Queue", "q")
        again = queue()
        again["metadata"]["uid"] = "another"
        harness.api.put(again)
        await harness.advance(5)

        assert harness.api.get("Queue", "q")["status"]["allocated"]["nvidia.com/gpu"] == "2"


async def test_a_pod_without_a_podgroup_shows_why_it_waits(harness: SchedulerHarness) -> None:
    """It has no PodGroup to show it; an autoscaler acts on the reason Unschedulable alone."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
    spec = {"resources": {"cpu": free, "memory": free, "gpu": none}}
    harness.api.put(
        {**queue(), "spec": spec}, node("a", gpu=2), pod("alone", asks={"nvidia.com/gpu": "2"})
    )
    async with harness.leading():
        await harness.advance(3)
        (condition,) = pod_conditions(harness, "alone")
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "ExceedsLimit",
        )
        assert condition["message"].startswith("ExceedsLimit: ")
        assert write_count(harness, "patch pods/status alone") == 1

        harness.api.put(node("a", gpu=1), queue())
        await harness.advance(3)
        (condition,) = pod_conditions(harness, "alone")
        assert condition["reason"] == "Unschedulable"
        assert write_count(harness, "patch pods/status alone") == 2

        harness.api.put(node("a", gpu=2))
        await harness.advance(3)
        assert harness.api.node_of_pods() == {"alone": "a"}


async def test_numbers_of_a_pod_are_written_anew_once_a_minute(harness: SchedulerHarness) -> None:
    """A pod without a PodGroup is reported with numbers that are true, and few writes."""
    harness.api.put(node("a", gpu=0), pod("alone", asks={"nvidia.com/gpu": "8"}))
    async with harness.leading():
        await harness.advance(3)
        (before,) = pod_conditions(harness, "alone")
        for gpus in range(1, 7):
            harness.api.put(node("a", gpu=gpus))
            await harness.advance(5)
        assert pod_conditions(harness, "alone") == [before]
        await harness.advance(40)
        (after,) = pod_conditions(harness, "alone")

        assert "6 GPU" in after["message"]
        assert before["lastTransitionTime"] == after["lastTransitionTime"]
        assert write_count(harness, "patch pods/status alone") == 2
