"""The records of an eviction: on all PodGroups before a TrainJob is suspended, and gone with it."""

import json
from typing import Any

from tests.scheduler.shell.conftest import House
from tests.scheduler.shell.test_departures import gang_in, owed, trainjob
from tests.support.clusters import group, node

_RECORD = "trainer-kai.dev/evicted-by"


def borrowed(house: House, groups: int = 1) -> None:
    """Let a TrainJob with so many PodGroups run on two GPUs that another queue owns."""
    house.api.put(owed("lender", 2), owed("borrower", 0), node("a", gpu=2), *trainjob("x", "a"))
    owners = house.api.get("PodGroup", "pg-x")["metadata"]["ownerReferences"]
    for i in range(1, groups):
        meta = {"ownerReferences": owners}
        house.api.put(group(f"pg-x{i}", minMember=1, queue="borrower", meta=meta))


def record(house: House, name: str = "pg-x") -> Any:
    """Return what a PodGroup says of an eviction."""
    notes = house.api.get("PodGroup", name)["metadata"].get("annotations", {})
    return json.loads(notes.get(_RECORD, "null"))


def is_suspended(house: House) -> bool:
    """Say whether the TrainJob is."""
    return bool(house.api.get("TrainJob", "x")["spec"].get("suspend"))


def leave(house: House) -> None:
    """Let Trainer, JobSet and the Job controller follow."""
    jobset = house.api.get("JobSet", "x")
    house.api.put({**jobset, "spec": {**jobset["spec"], "suspend": True}})
    for i in range(2):
        house.api.delete("Pod", f"x{i}")


async def test_they_are_there_before_it_is_suspended_and_as_long(house: House) -> None:
    """Each names its TrainJob and its PodGroup; they go when it is resumed."""
    borrowed(house, groups=3)
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(2)
        said = house.api.said()
        names = ["pg-x", "pg-x1", "pg-x2"]
        first = {name: said.index(f"patch podgroups {name}") for name in names}
        assert max(first.values()) < said.index("patch trainjobs x")
        assert is_suspended(house)
        for name in names:
            found = record(house, name)
            assert (found["trainJob"], found["podGroup"]) == ("x", name)
            assert "ns/l gets its room" in found["why"]
        leave(house)
        await house.passes(2)
        assert not is_suspended(house)
        assert [record(house, name) for name in names] == [None] * 3


async def test_they_stay_until_it_is_seen_that_it_is_resumed(house: House) -> None:
    """Else its suspension would look like its user's, and what is kept for it would be let go."""
    borrowed(house)
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(2)
        leave(house)
        house.api.keeps_news = True
        await house.passes(5)
        assert not is_suspended(house)
        assert record(house) is not None
        house.api.keeps_news = False
        house.api.deliver()
        await house.passes(0.1)
        assert record(house) is None


async def test_without_its_records_a_trainjob_stays(house: House) -> None:
    """It is tried dry, as the suspension is, and it is let alone for a while."""
    borrowed(house, groups=2)
    house.api.put(*gang_in("lender", "l", 2))
    house.api.refuse = lambda what: 403 if what == "try patch podgroups pg-x1" else None
    async with house.leading():
        await house.passes(5)
        (why,) = house.live.cluster.refused.values()

    assert not is_suspended(house)
    assert record(house) is None
    assert why.startswith("PodGroup ns/pg-x1 cannot be told that it is evicted: ")


async def test_a_record_without_a_suspension_goes(house: House) -> None:
    """One of two could not be written after all: the TrainJob runs on, and the other one goes."""
    borrowed(house, groups=2)
    house.api.put(*gang_in("lender", "l", 2))
    house.api.refuse = lambda what: 403 if what == "patch podgroups pg-x1" else None
    async with house.leading():
        await house.passes(5)
        assert record(house) is not None
        assert not is_suspended(house)
        await house.passes(7)

        assert record(house) is None
        assert not is_suspended(house)


async def test_the_next_leader_takes_it_away(house: House) -> None:
    """The process ended between the records and the suspension."""
    borrowed(house)
    found = house.api.get("PodGroup", "pg-x")
    notes = {_RECORD: json.dumps({"trainJob": "x", "podGroup": "pg-x"})}
    house.api.put({**found, "metadata": {**found["metadata"], "annotations": notes}})
    async with house.leading():
        await house.passes(9)
        assert record(house) is not None
        await house.passes(2)
        assert record(house) is None

    assert not is_suspended(house)
    assert "patch trainjobs x" not in house.api.said()
    assert house.api.where() == {"x0": "a", "x1": "a"}


async def test_it_is_resumed_though_a_group_was_made_anew(house: House) -> None:
    """One of two has the record still, and that is enough."""
    borrowed(house, groups=2)
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(2)
        found = house.api.get("PodGroup", "pg-x")
        owners = found["metadata"]["ownerReferences"]
        meta = {"ownerReferences": owners, "uid": "another"}
        house.api.put(group("pg-x", minMember=2, queue="borrower", meta=meta))
        leave(house)
        await house.passes(2)

    assert not is_suspended(house)
    assert record(house, "pg-x1") is None


async def test_not_all_are_written_at_once(house: House) -> None:
    """A TrainJob may have very many."""
    borrowed(house, groups=40)
    house.api.put(*gang_in("lender", "l", 2))
    asked_s: list[float] = []

    def delay_s(what: str) -> float:
        if not what.startswith("patch podgroups pg-x"):
            return 0.0
        asked_s.append(house.api.clock.monotonic_s())
        return 0.5

    house.api.delay_s = delay_s
    async with house.leading():
        await house.passes(4)
        assert is_suspended(house)

    records = asked_s[:40]
    assert [records.count(at) for at in sorted({*records})] == [16, 16, 8]
