"""`kubectl describe pod` shows why a pod waits, and the number of Events is bounded."""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import group, node, pod, queue


def names(harness: SchedulerHarness) -> list[str]:
    """Return the pods that have an Event, in the order of the Events."""
    return [name for name, _ in harness.pod_events()]


async def test_waiting_pods_have_an_event(harness: SchedulerHarness) -> None:
    """Type and reason are those of kube-scheduler; the message is that of the condition."""
    harness.api.put(node("a", gpu=1), group("g", minMember=2), pod("g0", "g"), pod("g1", "g"))
    harness.api.put(pod("alone", asks={"nvidia.com/gpu": "2"}))
    async with harness.leading():
        await harness.advance(3)
        found = dict(harness.pod_events())
        assert sorted(found) == ["alone", "g0", "g1"]
        (condition,) = harness.api.get("PodGroup", "g")["status"]["schedulingConditions"]

        event = found["g0"]
        assert (event["type"], event["count"]) == ("Warning", 1)
        assert event["message"] == f"NoCapacity: {condition['message']}"
        assert event["firstTimestamp"] == event["lastTimestamp"] != ""
        assert event["involvedObject"]["uid"] == harness.api.get("Pod", "g0")["metadata"]["uid"]
        (condition,) = harness.api.get("Pod", "alone")["status"]["conditions"]
        assert found["alone"]["message"] == condition["message"]


async def test_only_the_first_pods_of_a_podgroup_have_an_event(harness: SchedulerHarness) -> None:
    """They wait for one reason; pods that are gated or on nodes do not wait for a node."""
    gated = pod("g00", "g")
    gated["spec"]["schedulingGates"] = [{"name": "wait"}]
    runs = pod("g01", "g", node="a")
    harness.api.put(node("a", gpu=1), group("g", minMember=40), gated, runs)
    harness.api.put(*(pod(f"g{number:02}", "g") for number in range(2, 60)))
    async with harness.leading():
        await harness.advance(60)
        assert sorted(names(harness)) == ["g02", "g03", "g04", "g05", "g06"]

        harness.api.delete("Pod", "g03")
        await harness.advance(60)
        assert names(harness)[5:] == ["g07"]


async def test_an_event_repeats_for_another_reason_and_before_it_expires(
    harness: SchedulerHarness,
) -> None:
    """New numbers are not worth an Event; half an hour without one is."""
    harness.api.put(node("a", gpu=1), pod("alone", asks={"nvidia.com/gpu": "8"}))
    async with harness.leading():
        await harness.advance(3)
        harness.api.put(node("a", gpu=2))
        await harness.advance(300)
        assert [it["count"] for _, it in harness.pod_events()] == [1]

        await harness.advance(1800)
        assert len(names(harness)) == 2  # its numbers are new ones

        await harness.advance(1800)
        assert [it["count"] for _, it in harness.pod_events()] == [1, 1, 2]
        repeated = harness.pod_events()[-1][1]
        assert repeated["firstTimestamp"] < repeated["lastTimestamp"]

        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        none = {"quota": 0, "limit": 0, "overQuotaWeight": 0}
        spec = {"resources": {"cpu": free, "memory": free, "gpu": none}}
        harness.api.put({**queue(), "spec": spec}, node("a", gpu=8))
        await harness.advance(3)
        assert harness.pod_events()[-1][1]["message"].startswith("ExceedsLimit: ")


async def test_pods_that_start_have_no_event(harness: SchedulerHarness) -> None:
    """Neither have pods that are missing for a moment, while they are created."""
    harness.api.put(node("a", gpu=4), group("g", minMember=2), pod("g0", "g"))
    async with harness.leading():
        await harness.advance(1)
        harness.api.put(pod("g1", "g"))
        await harness.advance(30)
        assert names(harness) == []


async def test_a_pod_of_a_missing_podgroup_has_an_event(harness: SchedulerHarness) -> None:
    """There is no PodGroup that could show the reason."""
    harness.api.put(node("a", gpu=1), pod("lost", "nowhere"))
    async with harness.leading():
        await harness.advance(30)
        ((name, event),) = harness.pod_events()
        assert (name, event["message"].split(":")[0]) == ("lost", "Misconfigured")


async def test_events_of_pods_are_limited_in_all(harness: SchedulerHarness) -> None:
    """Of 300 pods that come to wait at once 50 have an Event at once, and 10 more each second."""
    harness.api.put(node("a", gpu=0), *(pod(f"p{number}") for number in range(300)))
    async with harness.leading():
        await harness.advance(2)
        assert 50 <= len(names(harness)) <= 75
        await harness.advance(10)
        assert 150 <= len(names(harness)) <= 175
        await harness.advance(30)
        assert len(names(harness)) == 300
