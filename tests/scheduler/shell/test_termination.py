"""Pods that ask for 68 years to end: what is evicted has only as long as the site allows."""

from datetime import timedelta
from typing import Any, Final

import pytest

from tests.scheduler.shell.conftest import MOST_GRACE_S, House
from tests.scheduler.shell.test_departures import gang_in, owed, trainjob
from tests.support.clusters import node

_ENDLESS_S: Final = 2**31 - 1


def _endless(objects: list[dict[str, Any]], grace_s: int = _ENDLESS_S) -> list[dict[str, Any]]:
    for it in objects:
        if it["kind"] == "Pod":
            it["spec"]["terminationGracePeriodSeconds"] = grace_s
    return objects


def _graces(house: House) -> dict[str, int | None]:
    """Return the grace that pods were deleted with, the last time."""
    told = (it for it in house.api.wrote if it.what.startswith("delete"))
    return {it.what.rpartition(" ")[2]: it.body.get("gracePeriodSeconds") for it in told}


async def test_an_evicted_pod_ends_when_the_site_says(house: House) -> None:
    """It is deleted with its own grace, and once more with the longest that it may have."""
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2))
    house.api.put(*_endless(gang_in("borrower", "b", 2, at="a")), *gang_in("lender", "l", 2))
    house.api.keeps_pods = True
    async with house.leading():
        await house.passes(10)
        said = [it for it in house.api.said() if it.startswith("delete pods")]

    assert _graces(house) == {"b0": int(MOST_GRACE_S), "b1": int(MOST_GRACE_S)}
    assert len(said) == 4, said  # each twice, and no more


async def test_a_pod_with_less_grace_keeps_it(house: House) -> None:
    """It is deleted once."""
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2))
    house.api.put(*_endless(gang_in("borrower", "b", 2, at="a"), 60), *gang_in("lender", "l", 2))
    house.api.keeps_pods = True
    async with house.leading():
        await house.passes(10)

    assert _graces(house) == {"b0": None, "b1": None}


async def test_pods_of_a_suspended_trainjob_too(house: House) -> None:
    """The Job controller deletes them with their own grace; the next leader shortens it."""
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2))
    house.api.put(*_endless(trainjob("t", "a")), *gang_in("lender", "l", 2))
    house.api.keeps_pods = True
    async with house.leading():
        await house.passes(1)
        assert house.api.get("TrainJob", "t")["spec"]["suspend"]
    for name in ("t0", "t1"):
        going = {
            "deletionTimestamp": "2094-01-23T11:14:07Z",
            "deletionGracePeriodSeconds": _ENDLESS_S,
        }
        pod = house.api.get("Pod", name)
        house.api.put({**pod, "metadata": {**pod["metadata"], **going}})
    other = house.again()
    async with other.leading():
        await other.passes(5)

    assert _graces(house) == {"t0": int(MOST_GRACE_S), "t1": int(MOST_GRACE_S)}


@pytest.mark.parametrize(("ago_s", "graces"), [(500, {}), (700, {"b0": int(MOST_GRACE_S)})])
async def test_what_a_user_deletes_may_take_as_long_as_the_site_says(
    house: House, ago_s: int, graces: dict[str, int]
) -> None:
    """No eviction is behind it: it has all of the time that a pod may have, and no more."""
    due = house.api.clock.now() + timedelta(seconds=_ENDLESS_S - ago_s)
    group, pod = _endless(gang_in("borrower", "b", 1, at="a"))
    pod["metadata"] |= {
        "deletionTimestamp": f"{due:%Y-%m-%dT%H:%M:%SZ}",
        "deletionGracePeriodSeconds": _ENDLESS_S,
    }
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2), group, pod)
    house.api.keeps_pods = True
    async with house.leading():
        await house.passes(10)

    assert _graces(house) == graces
