"""Running pods that name a PodGroup without a place for them are charged, and can be evicted."""

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import TENANT, VICTIMS, Obj, cluster, pod, pod_group, queue


def _victims() -> list[Obj]:
    """Return a gang of eight for each victim, which fill what they have a quota of."""
    return [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]


def _running(group: str, sub_group: str = "") -> list[Obj]:
    """Return eight pods of the tenant, in a queue with a quota of 0, on one node."""
    pods = [pod(TENANT, f"t{number}", 1, group, "n0") for number in range(8)]
    for it in pods if sub_group else ():
        it["metadata"]["labels"]["kai.scheduler/subgroup-name"] = sub_group
    return pods


@pytest.mark.parametrize(
    "warnings",
    [
        pytest.param(_running("none"), id="the PodGroup does not exist"),
        pytest.param([pod_group(TENANT, "g"), *_running("g", "none")], id="nor the sub-group"),
    ],
)
def test_the_others_get_their_quota_back(warnings: list[Obj], simulate: SimulateFixture) -> None:
    """One victim starts on the free node, and the other takes that of the tenant."""
    found = simulate([*cluster(), *_victims(), *warnings])
    assert len(found.binds) == 8
    assert found.evictions == {f"{TENANT}/t{number}": "reclaim" for number in range(8)}


def test_they_are_charged_to_the_queue_that_they_name(simulate: SimulateFixture) -> None:
    """Its limit holds for them and for what comes after them."""
    objs = [*cluster(), pod_group(TENANT, "g"), *_running("g", "none")[:6], *_running("none")[6:]]
    queue = next(it for it in objs if it["kind"] == "Queue" and it["metadata"]["name"] == TENANT)
    queue["spec"]["resources"]["gpu"]["limit"] = 8
    found = simulate([*objs, pod(TENANT, "more", 1)])
    assert not found.binds
    (why,) = found.waiting.values()
    assert why["message"].startswith("Queue tenant has a limit of ")


def test_waiting_misplaced_pods_are_reported_and_not_placed(simulate: SimulateFixture) -> None:
    """As long as they have no place in the PodGroup that they name."""
    waiting = [pod(TENANT, "a", 1, "none"), pod(TENANT, "b", 1, "g")]
    waiting[1]["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "none"
    found = simulate([*cluster(), pod_group(TENANT, "g"), *waiting])
    assert not found.binds


@pytest.mark.parametrize("named", ["none", "red", "all"])
def test_they_are_charged_to_the_queue_of_the_group_that_they_name(
    named: str, simulate: SimulateFixture
) -> None:
    """A user can take the owner from a pod that runs: its labels were no matter until then.

    They name no queue, that of a victim, or one above it; the victims get their quota all the same.
    """
    group = pod_group(TENANT, "g")
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "x", "uid": "x"}
    group["metadata"]["ownerReferences"] = [jobset]
    pods = _running("g")
    for it in pods:
        it["metadata"]["labels"]["kai.scheduler/queue"] = named
    above = [queue("all", 16), *(queue(name, 8, parent="all") for name in VICTIMS)]
    rest = [it for it in cluster() if it["metadata"]["name"] not in VICTIMS]
    found = simulate([*above, *rest, *_victims(), group, *pods])
    assert len(found.binds) == 8
    assert found.evictions == {f"{TENANT}/t{number}": "reclaim" for number in range(8)}


@pytest.mark.parametrize("named", ["none", "all"])
def test_without_a_group_and_a_queue_they_are_in_the_default_queue(
    named: str, simulate: SimulateFixture
) -> None:
    """A user can delete the JobSet beneath pods that no Job owns, and with it the group."""
    pods = _running("gone")
    for it in pods:
        it["metadata"]["labels"]["kai.scheduler/queue"] = named
    above = [queue("all", 16), *(queue(name, 8, parent="all") for name in VICTIMS)]
    rest = [it for it in cluster() if it["metadata"]["name"] not in VICTIMS]
    found = simulate([*above, *rest, queue("default-queue", 0), *_victims(), *pods])
    assert len(found.binds) == 8
    assert found.evictions == {f"{TENANT}/t{number}": "reclaim" for number in range(8)}
