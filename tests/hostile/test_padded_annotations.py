"""H1: annotations padded to their size limit, so that the scheduler cannot add its own."""

import json
from typing import Any

from tests.scheduler.shell.conftest import House
from tests.scheduler.shell.test_departures import gang_in, owed, trainjob
from tests.scheduler.shell.test_records import borrowed, is_suspended, leave, record
from tests.support.clusters import node
from trainer_kai.api.names import EVICTED_BY, LAST_APPLIED

_LIMIT = 256 * 1024


def pad(house: House, name: str = "x", **notes: str) -> None:
    """Let the annotations of a TrainJob be as large as they may be."""
    found = house.api.get("TrainJob", name)
    length = _LIMIT - sum(len(it) + len(text) for it, text in notes.items()) - len("padding")
    notes = {"padding": "x" * length, **notes}
    house.api.put({**found, "metadata": {**found["metadata"], "annotations": notes}})


def told(house: House, reason: str) -> list[dict[str, Any]]:
    """Return the Events of a reason about TrainJobs."""
    made = [it for it in house.api.events if it.get("reason") == reason]
    return [it for it in made if it["involvedObject"]["kind"] == "TrainJob"]


def lent_with_padding() -> House:
    """Return a house in which a padded TrainJob has borrowed what its lender asks for."""
    house = House()
    borrowed(house)
    pad(house)
    house.api.put(*gang_in("lender", "l", 2))
    return house


async def test_a_padded_trainjob_gives_back() -> None:
    """It is suspended without the copy, its PodGroup says so, and it is resumed afterwards."""
    house = lent_with_padding()
    async with house.leading():
        await house.passes(2)
        assert is_suspended(house)
        assert record(house)["copied"] is False
        assert EVICTED_BY not in house.api.get("TrainJob", "x")["metadata"]["annotations"]
        leave(house)
        await house.passes(3)
        assert house.api.where() == {"l0": "a", "l1": "a"}
        assert not is_suspended(house)
        assert record(house) is None


async def test_the_next_leader_resumes_a_padded_trainjob() -> None:
    """The missing copy is no wish of its user, for the PodGroup says that there was none."""
    house = lent_with_padding()
    async with house.leading():
        await house.passes(2)
        assert is_suspended(house)
    leave(house)
    async with house.again().leading():
        await house.passes(3)

    assert not is_suspended(house)
    assert record(house) is None


async def test_a_suspended_manifest_is_no_wish_of_a_padded_trainjob() -> None:
    """It was applied suspended and started by hand: it is resumed, as with the copy."""
    house = House()
    borrowed(house)
    pad(house, **{LAST_APPLIED: json.dumps({"spec": {"suspend": True}})})
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(2)
        assert is_suspended(house)
        leave(house)
        await house.passes(3)

    assert not is_suspended(house)


async def test_where_a_suspension_is_refused_too_another_trainjob_goes() -> None:
    """The refused one is told once, however often it is tried."""
    house = House()
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2), node("b", gpu=2))
    house.api.put(*trainjob("x", "a"), *trainjob("y", "b"))
    house.api.refuse = lambda what: 422 if what == "try patch trainjobs y" else None
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(2)
        assert "patch trainjobs x" in house.api.said()
        await house.passes(300)

    (event,) = told(house, "NotEvicted")
    assert event["involvedObject"]["name"] == "y"
    assert event["type"] == "Warning"
    assert "it cannot be suspended" in event["message"]
