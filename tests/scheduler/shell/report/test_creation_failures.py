"""What is reported on PodGroups when their pods cannot be created."""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.failed_create import (
    MESSAGE,
    PODGROUP_NAME,
    QUOTA,
    failed_create_event,
    jobset,
    pod_of_job,
    podgroup_object,
)
from tests.support.state.objects import node
from trainer_kai.api.meta import Key


def conditions(harness: SchedulerHarness) -> list[Fields]:
    status = harness.api.get("PodGroup", PODGROUP_NAME).get("status", {})
    found: list[Fields] = status.get("schedulingConditions", [])
    return found


def deliver_refusal(harness: SchedulerHarness, second: int, why: str = QUOTA) -> None:
    """Deliver a FailedCreate Event of the Job."""
    event = failed_create_event(second, why=why)
    harness.cycle.wake(harness.cache.creation_failures.update(event.metadata.key, event))


async def test_a_group_without_pods_reports_why(harness: SchedulerHarness) -> None:
    """No plan reports it, for it requests nothing; once its pods exist the condition goes."""
    harness.api.put(node("a"), jobset(), podgroup_object())
    async with harness.leading():
        await harness.advance(5)
        assert conditions(harness) == []
        deliver_refusal(harness, 1)
        await harness.advance(5)
        (condition,) = conditions(harness)
        assert condition["message"] == (
            "Pods are missing: 0 of 3 exist. It cannot start before the missing pods exist. "
            f"{MESSAGE}"
        )
        assert condition["reasons"][-1] == {
            "reason": "PodsMissing",
            "message": condition["message"],
        }
        harness.api.put(*(pod_of_job(i, 9) for i in range(3)))
        await harness.advance(3)

        assert conditions(harness) == []
        assert len(harness.api.node_of_pods()) == 3


async def test_a_group_with_too_few_pods_reports_why(harness: SchedulerHarness) -> None:
    """After the numbers; an old failure is not the reason of another shortage."""
    harness.api.put(node("a"), jobset(), podgroup_object(), pod_of_job(0, 1))
    async with harness.leading():
        deliver_refusal(harness, 1)
        await harness.advance(5)
        (condition,) = conditions(harness)
        assert condition["message"] == (
            "Pods are missing: 1 of 3 exist in sub-group n-replica-0. It cannot start before "
            f"the missing pods exist. {MESSAGE}"
        )
        harness.api.put(pod_of_job(1, 9))
        await harness.advance(10)
        (condition,) = conditions(harness)

        assert condition["message"].startswith("Pods are missing: 2 of 3")
        assert QUOTA not in condition["message"]


async def test_another_reason_is_reported_and_none_without_an_event(
    harness: SchedulerHarness,
) -> None:
    """The last Event counts, and its reason goes with it."""
    harness.api.put(node("a"), jobset(), podgroup_object())
    async with harness.leading():
        deliver_refusal(harness, 1)
        await harness.advance(5)
        deliver_refusal(harness, 2, "violates PodSecurity")
        await harness.advance(10)
        assert conditions(harness)[0]["message"].endswith(
            "cannot create its pods: violates PodSecurity"
        )
        harness.cycle.wake(harness.cache.creation_failures.update(Key("ns", "e"), None))
        await harness.advance(5)

        assert conditions(harness) == []
