"""PodGroups that were whole and lose a pod: its place is reserved for the next one."""

import json

import pytest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.objects import group, node, pod

_RESERVED = "trainer-kai.dev/reserved"


def reservation(harness: SchedulerHarness) -> dict[str, Fields]:
    annotations = harness.api.get("PodGroup", "g")["metadata"].get("annotations", {})
    found: dict[str, Fields] = json.loads(annotations.get(_RESERVED, "{}"))
    return found


def run_gang(harness: SchedulerHarness, count: int = 2, gpu: int = 2) -> None:
    """Run a PodGroup on a node that is full with it."""
    pods = (pod(f"g{i}", "g", node="a") for i in range(count))
    harness.api.put(node("a", gpu=gpu), group("g", minMember=count), *pods)


async def test_its_place_is_kept_for_the_next(harness: SchedulerHarness) -> None:
    """No other pod gets it, and it is released when it is taken."""
    run_gang(harness)
    async with harness.leading():
        harness.api.delete("Pod", "g1")
        await harness.advance(0.2)
        assert reservation(harness) == {"default": {"nodes": {"a": 1}, "cause": "repair"}}
        harness.api.put(pod("thief"))
        await harness.advance(1)
        harness.api.put(pod("g2", "g"))
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"g0": "a", "g2": "a"}
        assert reservation(harness) == {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"meta": {"deletionTimestamp": "2026-01-05T08:00:00Z"}}, id="going"),
    ],
)
async def test_a_pod_that_is_about_to_go_is_lost(harness: SchedulerHarness, change: Fields) -> None:
    """The Job controller makes the next one at once."""
    run_gang(harness)
    async with harness.leading():
        harness.api.put(pod("g1", "g", node="a", **change))
        await harness.advance(0.2)

        assert reservation(harness)["default"]["nodes"] == {"a": 1}


async def test_two_are_lost(harness: SchedulerHarness) -> None:
    """Each has its place, as long as one pod of the PodGroup is left."""
    run_gang(harness, count=3, gpu=3)
    async with harness.leading():
        harness.api.delete("Pod", "g1")
        harness.api.delete("Pod", "g2")
        await harness.advance(0.2)
        assert reservation(harness)["default"]["nodes"] == {"a": 2}
        harness.api.delete("Pod", "g0")
        harness.api.put(pod("thief"))
        await harness.advance(1)

        assert harness.api.node_of_pods() == {"thief": "a"}


async def test_a_pod_that_has_succeeded_is_not_lost(harness: SchedulerHarness) -> None:
    """No pod replaces it; and after the first one, others that go count as finished too."""
    pods = (pod(f"g{i}", "g", node="a") for i in range(3))
    harness.api.put(node("a", gpu=3), group("g", minMember=1), *pods)
    async with harness.leading():
        harness.api.put(pod("g0", "g", node="a", phase="Succeeded"))
        harness.api.delete("Pod", "g1")
        await harness.advance(0.2)

        assert "patch podgroups g" not in harness.api.written()


async def test_what_was_not_whole_keeps_nothing(harness: SchedulerHarness) -> None:
    """Missing pods get places with the others."""
    harness.api.put(node("a", gpu=2), group("g", minMember=3))
    harness.api.put(*(pod(f"g{i}", "g", node="a") for i in range(2)))
    async with harness.leading():
        harness.api.delete("Pod", "g1")
        await harness.advance(0.2)

        assert reservation(harness) == {}


async def test_a_node_that_is_no_good_any_more(harness: SchedulerHarness) -> None:
    """The next one goes elsewhere."""
    run_gang(harness)
    async with harness.leading():
        harness.api.put(node("b"), node("a", gpu=2, spec={"unschedulable": True}))
        harness.api.delete("Pod", "g1")
        harness.api.put(pod("g2", "g"))
        await harness.advance(1)

        assert harness.api.node_of_pods()["g2"] == "b"
        assert reservation(harness) == {}


async def test_a_place_outlives_us(harness: SchedulerHarness) -> None:
    """The next leader reads the reservation."""
    run_gang(harness)
    async with harness.leading():
        harness.api.delete("Pod", "g1")
        await harness.advance(0.2)
    harness.api.put(pod("thief"))
    async with harness.successor().leading():
        await harness.advance(1)

        assert "thief" not in harness.api.node_of_pods()


async def test_in_a_namespace_that_is_deleted_nothing_is_kept(harness: SchedulerHarness) -> None:
    """No controller creates another pod there."""
    run_gang(harness)
    going = {"name": "ns", "deletionTimestamp": "2026-01-05T08:00:00Z"}
    async with harness.leading():
        harness.api.put({"kind": "Namespace", "metadata": going})
        harness.api.delete("Pod", "g1")
        await harness.advance(5)
        assert reservation(harness) == {}


async def test_two_places_are_taken_one_by_one(harness: SchedulerHarness) -> None:
    """The first pod does not wait for the other."""
    run_gang(harness, count=4, gpu=4)
    async with harness.leading():
        harness.api.delete("Pod", "g2")
        harness.api.delete("Pod", "g3")
        await harness.advance(0.2)
        harness.api.put(pod("g4", "g"))
        await harness.advance(0.1)

        assert harness.api.node_of_pods() == {"g0": "a", "g1": "a", "g4": "a"}
