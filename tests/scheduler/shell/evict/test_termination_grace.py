"""Pods that ask for 68 years to terminate: an evicted pod gets what the site allows."""

from datetime import timedelta
from typing import Any, Final

import pytest

from tests.scheduler.shell.conftest import MOST_GRACE_S, SchedulerHarness
from tests.support.state.objects import gang_in, node, queue_with_quota, trainjob

_ENDLESS_S: Final = 2**31 - 1


def _endless(objects: list[dict[str, Any]], grace_s: int = _ENDLESS_S) -> list[dict[str, Any]]:
    for it in objects:
        if it["kind"] == "Pod":
            it["spec"]["terminationGracePeriodSeconds"] = grace_s
    return objects


def _graces(harness: SchedulerHarness) -> dict[str, int | None]:
    """Return the grace that pods were deleted with, the last time."""
    deletions = (it for it in harness.api.writes if it.what.startswith("delete"))
    return {it.what.rpartition(" ")[2]: it.body.get("gracePeriodSeconds") for it in deletions}


async def test_an_evicted_pod_ends_when_the_site_says(harness: SchedulerHarness) -> None:
    """It is deleted with its own grace, and once more with the longest that it may have."""
    harness.api.put(
        queue_with_quota("lender", 2), queue_with_quota("borrower", 0), node("a", gpu=2)
    )
    harness.api.put(*_endless(gang_in("borrower", "b", 2, at="a")), *gang_in("lender", "l", 2))
    harness.api.keeps_deleted_pods = True
    async with harness.leading():
        await harness.advance(10)
        deletions = [it for it in harness.api.written() if it.startswith("delete pods")]

    assert _graces(harness) == {"b0": int(MOST_GRACE_S), "b1": int(MOST_GRACE_S)}
    assert len(deletions) == 4, deletions  # each twice, and no more


async def test_a_pod_with_less_grace_keeps_it(harness: SchedulerHarness) -> None:
    """It is deleted once."""
    harness.api.put(
        queue_with_quota("lender", 2), queue_with_quota("borrower", 0), node("a", gpu=2)
    )
    harness.api.put(*_endless(gang_in("borrower", "b", 2, at="a"), 60), *gang_in("lender", "l", 2))
    harness.api.keeps_deleted_pods = True
    async with harness.leading():
        await harness.advance(10)

    assert _graces(harness) == {"b0": None, "b1": None}


async def test_pods_of_a_suspended_trainjob_too(harness: SchedulerHarness) -> None:
    """The Job controller deletes them with their own grace; the next leader shortens it."""
    harness.api.put(
        queue_with_quota("lender", 2), queue_with_quota("borrower", 0), node("a", gpu=2)
    )
    harness.api.put(*_endless(trainjob("t", "a")), *gang_in("lender", "l", 2))
    harness.api.keeps_deleted_pods = True
    async with harness.leading():
        await harness.advance(1)
        assert harness.api.get("TrainJob", "t")["spec"]["suspend"]
    for name in ("t0", "t1"):
        going = {
            "deletionTimestamp": "2094-01-23T11:14:07Z",
            "deletionGracePeriodSeconds": _ENDLESS_S,
        }
        pod = harness.api.get("Pod", name)
        harness.api.put({**pod, "metadata": {**pod["metadata"], **going}})
    other = harness.successor()
    async with other.leading():
        await other.advance(5)

    assert _graces(harness) == {"t0": int(MOST_GRACE_S), "t1": int(MOST_GRACE_S)}


@pytest.mark.parametrize(("ago_s", "graces"), [(500, {}), (700, {"b0": int(MOST_GRACE_S)})])
async def test_what_a_user_deletes_may_take_as_long_as_the_site_says(
    harness: SchedulerHarness, ago_s: int, graces: dict[str, int]
) -> None:
    """No eviction is behind it: it has all of the time that a pod may have, and no more."""
    deletion_time = harness.api.clock.now() + timedelta(seconds=_ENDLESS_S - ago_s)
    group, pod = _endless(gang_in("borrower", "b", 1, at="a"))
    pod["metadata"] |= {
        "deletionTimestamp": f"{deletion_time:%Y-%m-%dT%H:%M:%SZ}",
        "deletionGracePeriodSeconds": _ENDLESS_S,
    }
    harness.api.put(
        queue_with_quota("lender", 2), queue_with_quota("borrower", 0), node("a", gpu=2), group, pod
    )
    harness.api.keeps_deleted_pods = True
    async with harness.leading():
        await harness.advance(10)

    assert _graces(harness) == graces
