"""Pods that run and name a PodGroup in which they have no place are charged, and can be evicted."""

import pytest

from tests.hostile.conftest import Simulate
from tests.hostile.teams import TENANT, VICTIMS, Obj, cluster, pod, pod_group


def _victims() -> list[Obj]:
    """Return a gang of eight for each victim, which fill what they have a quota of."""
    return [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]


def _running(group: str, sub_group: str = "") -> list[Obj]:
    """Return eight pods of the tenant, whose queue has a quota of nothing, on one node."""
    pods = [pod(TENANT, f"t{number}", 1, group, "n0") for number in range(8)]
    for it in pods if sub_group else ():
        it["metadata"]["labels"]["kai.scheduler/subgroup-name"] = sub_group
    return pods


@pytest.mark.parametrize(
    "strays",
    [
        pytest.param(_running("none"), id="the PodGroup does not exist"),
        pytest.param([pod_group(TENANT, "g"), *_running("g", "none")], id="nor the sub-group"),
    ],
)
def test_the_others_get_their_quota_back(strays: list[Obj], simulate: Simulate) -> None:
    """One victim starts on the free node, and the other takes that of the tenant."""
    found = simulate([*cluster(), *_victims(), *strays])
    assert len(found.binds) == 8
    assert found.evictions == {f"{TENANT}/t{number}": "reclaim" for number in range(8)}


def test_they_are_charged_to_the_queue_that_they_name(simulate: Simulate) -> None:
    """Its limit holds for them and for what comes after them."""
    objs = [*cluster(), pod_group(TENANT, "g"), *_running("g", "none")[:6], *_running("none")[6:]]
    queue = next(it for it in objs if it["kind"] == "Queue" and it["metadata"]["name"] == TENANT)
    queue["spec"]["resources"]["gpu"]["limit"] = 8
    found = simulate([*objs, pod(TENANT, "more", 1)])
    assert not found.binds
    (why,) = found.waiting.values()
    assert why["message"].startswith("queue tenant")


def test_those_that_wait_are_told_and_placed_nowhere(simulate: Simulate) -> None:
    """As long as they have no place in the PodGroup that they name."""
    waiting = [pod(TENANT, "a", 1, "none"), pod(TENANT, "b", 1, "g")]
    waiting[1]["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "none"
    found = simulate([*cluster(), pod_group(TENANT, "g"), *waiting])
    assert not found.binds
