"""Units that were whole and lose a pod."""

import json

import pytest

from tests.scheduler.shell.conftest import House
from tests.support.clusters import group, node, pod
from tests.support.fakecluster import Fields

_HELD = "trainer-kai.dev/reserved"


def held(house: House) -> dict[str, Fields]:
    """Return what the group holds."""
    annotations = house.api.get("PodGroup", "g")["metadata"].get("annotations", {})
    found: dict[str, Fields] = json.loads(annotations.get(_HELD, "{}"))
    return found


def running(house: House, count: int = 2, gpu: int = 2) -> None:
    """Have a gang that runs, on a node that is full with it."""
    pods = (pod(f"g{i}", "g", node="a") for i in range(count))
    house.api.put(node("a", gpu=gpu), group("g", minMember=count), *pods)


async def test_its_place_is_kept_for_the_next(house: House) -> None:
    """Nobody else gets it, and it is let go when it is taken."""
    running(house)
    async with house.leading():
        house.api.delete("Pod", "g1")
        await house.passes(0.2)
        assert held(house) == {"default": {"nodes": {"a": 1}, "cause": "repair"}}
        house.api.put(pod("thief"))
        await house.passes(1)
        house.api.put(pod("g2", "g"))
        await house.passes(1)

        assert house.api.where() == {"g0": "a", "g2": "a"}
        assert held(house) == {}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"meta": {"deletionTimestamp": "2026-01-05T08:00:00Z"}}, id="going"),
    ],
)
async def test_who_is_about_to_go_is_lost(house: House, change: Fields) -> None:
    """The Job controller makes the next one at once."""
    running(house)
    async with house.leading():
        house.api.put(pod("g1", "g", node="a", **change))
        await house.passes(0.2)

        assert held(house)["default"]["nodes"] == {"a": 1}


async def test_two_are_lost(house: House) -> None:
    """Each has its place, as long as one is left that they belong to."""
    running(house, count=3, gpu=3)
    async with house.leading():
        house.api.delete("Pod", "g1")
        house.api.delete("Pod", "g2")
        await house.passes(0.2)
        assert held(house)["default"]["nodes"] == {"a": 2}
        house.api.delete("Pod", "g0")
        house.api.put(pod("thief"))
        await house.passes(1)

        assert house.api.where() == {"thief": "a"}


async def test_who_has_succeeded_is_not_lost(house: House) -> None:
    """Nobody comes after him; and after the first of them, others that go are done too."""
    pods = (pod(f"g{i}", "g", node="a") for i in range(3))
    house.api.put(node("a", gpu=3), group("g", minMember=1), *pods)
    async with house.leading():
        house.api.put(pod("g0", "g", node="a", phase="Succeeded"))
        house.api.delete("Pod", "g1")
        await house.passes(0.2)

        assert "patch podgroups g" not in house.api.said()


async def test_what_was_not_whole_keeps_nothing(house: House) -> None:
    """Who is missing gets a place with the others."""
    house.api.put(node("a", gpu=2), group("g", minMember=3))
    house.api.put(*(pod(f"g{i}", "g", node="a") for i in range(2)))
    async with house.leading():
        house.api.delete("Pod", "g1")
        await house.passes(0.2)

        assert held(house) == {}


async def test_a_node_that_is_no_good_any_more(house: House) -> None:
    """The next one goes elsewhere."""
    running(house)
    async with house.leading():
        house.api.put(node("b"), node("a", gpu=2, spec={"unschedulable": True}))
        house.api.delete("Pod", "g1")
        house.api.put(pod("g2", "g"))
        await house.passes(1)

        assert house.api.where()["g2"] == "b"
        assert held(house) == {}


async def test_a_place_outlives_us(house: House) -> None:
    """What is written is believed by whoever leads next."""
    running(house)
    async with house.leading():
        house.api.delete("Pod", "g1")
        await house.passes(0.2)
    house.api.put(pod("thief"))
    async with house.again().leading():
        await house.passes(1)

        assert "thief" not in house.api.where()


async def test_in_a_namespace_that_is_deleted_nothing_is_kept(house: House) -> None:
    """Nobody will make another pod there."""
    running(house)
    going = {"name": "ns", "deletionTimestamp": "2026-01-05T08:00:00Z"}
    async with house.leading():
        house.api.put({"kind": "Namespace", "metadata": going})
        house.api.delete("Pod", "g1")
        await house.passes(5)
        assert held(house) == {}


async def test_two_places_are_taken_one_by_one(house: House) -> None:
    """Whoever comes first does not wait for the other."""
    running(house, count=4, gpu=4)
    async with house.leading():
        house.api.delete("Pod", "g2")
        house.api.delete("Pod", "g3")
        await house.passes(0.2)
        house.api.put(pod("g4", "g"))
        await house.passes(0.1)

        assert house.api.where() == {"g0": "a", "g1": "a", "g4": "a"}
