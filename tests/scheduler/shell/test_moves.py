"""Who is moved: his new place is written before he goes, and is there when he comes back."""

from typing import Any

from tests.scheduler.shell.conftest import House
from tests.scheduler.shell.test_departures import gang_in, trainjob
from tests.support.clusters import group, node, pod, queue

_RESERVED = "trainer-kai.dev/reserved"
_OFFERS = {"annotations": {"trainer-kai.dev/consolidation": "on"}}


def scattered(house: House, notes: dict[str, Any] | None = None) -> None:
    """Let two TrainJobs of two GPUs lie on two nodes of four, and somebody need four in one."""
    house.api.put(queue("borrower", meta=_OFFERS if notes is None else notes))
    for name in ("m", "n"):
        house.api.put(node(name, gpu=4), *trainjob(f"t{name}", name))
    claim = pod("c0", "c", asks={"nvidia.com/gpu": "4"})
    house.api.put(group("c", minMember=1, queue="borrower"), claim)


async def suspended(house: House, name: str) -> None:
    """Play those who follow the suspension of a TrainJob, before it is resumed."""
    _, jobset, _, *pods = trainjob(name, "")
    house.api.put({**jobset, "spec": {"suspend": True}})
    for one in pods:
        house.api.delete("Pod", one["metadata"]["name"])
    await house.passes(0.2)


def moved(house: House) -> str:
    """Return the one TrainJob that was ever suspended."""
    (gone,) = {it[-2:] for it in house.api.said() if it.startswith("patch trainjobs")}
    return gone


def stayed(gone: str) -> list[str]:
    """Return the pods of whoever was not moved."""
    return [f"t{'n' if gone == 'tm' else 'm'}{i}" for i in range(2)]


def held(house: House, name: str) -> list[str]:
    """Return what was written on a group of its slots, one after the other."""
    bodies = [it.body for it in house.api.wrote if it.what == f"patch podgroups {name}"]
    notes = [it["metadata"]["annotations"] for it in bodies]
    return [it[_RESERVED] or "" for it in notes if _RESERVED in it]


async def test_who_moves_finds_its_place_when_it_is_back(house: House) -> None:
    """Slots, promise, suspension; a rival does not get the place while nobody is there."""
    scattered(house)
    async with house.leading():
        said, gone = house.api.said(), moved(house)
        to, of = "n" if gone == "tm" else "m", gone[-1]
        assert said.index(f"patch podgroups pg-{gone}") < said.index(f"patch trainjobs {gone}")
        assert said.index("patch pods/status c0") < said.index(f"patch trainjobs {gone}")
        assert f'"nodes":{{"{to}":2}}' in held(house, f"pg-{gone}")[0]

        house.api.put(*gang_in("borrower", "rival", 2))
        await suspended(house, gone)
        assert house.api.where() == {"c0": of, **dict.fromkeys(stayed(gone), to)}

        job, jobset, _, *pods = trainjob(gone, "")
        house.api.put(job, jobset)
        await house.passes(0.2)
        assert house.api.where() == {"c0": of, **dict.fromkeys(stayed(gone), to)}
        house.api.put(*pods)
        await house.passes(1)
        where = house.api.where()
        assert [where[f"{gone}{i}"] for i in range(2)] == [to, to]
        assert "rival0" not in where
    assert held(house, f"pg-{gone}")[1:] == [""]


async def test_whoever_leads_next_knows_who_is_going(house: House) -> None:
    """Nobody has followed the suspension yet: its place is kept, and nobody goes in its stead."""
    scattered(house)
    async with house.leading():
        gone = moved(house)
    await house.passes(100)
    other = house.again()
    async with other.leading():
        await other.passes(20)
        assert moved(house) == gone
        assert len(held(house, f"pg-{gone}")) == 1
        assert "c0" not in house.api.where()


async def test_who_goes_slowly_is_going_all_the_same(house: House) -> None:
    """Its JobSet has followed, and for a minute nobody deletes its pods."""
    scattered(house)
    async with house.leading():
        gone = moved(house)
        _, jobset, *_ = trainjob(gone, "")
        house.api.put({**jobset, "spec": {"suspend": True}})
        await house.passes(100)
        assert moved(house) == gone
        assert len(held(house, f"pg-{gone}")) == 1


async def test_a_place_that_is_lost_meanwhile_becomes_another(house: House) -> None:
    """Its node takes nobody any more; another one does, and is kept like the first."""
    scattered(house)
    async with house.leading():
        gone = moved(house)
        await suspended(house, gone)
        to = "n" if gone == "tm" else "m"
        house.api.put(node("spare", gpu=2), node(to, gpu=4, spec={"unschedulable": True}))
        await house.passes(0.2)
        house.api.put(*gang_in("borrower", "rival", 2))
        await house.passes(0.2)
        assert "rival0" not in house.api.where()
    first, second = held(house, f"pg-{gone}")
    assert second == first.replace(f'"{to}":2', '"spare":2')


async def test_nobody_moves_whose_place_cannot_be_written(house: House) -> None:
    """It is asked again; nobody was suspended for it before."""
    refusals = [422, 422]
    house.api.refuse = lambda what: (
        refusals.pop() if what.startswith("patch podgroups pg-t") and refusals else None
    )
    scattered(house)
    async with house.leading():
        await house.passes(2.5)
        assert not refusals
        assert not [it for it in house.api.said() if "trainjobs" in it]
        await house.passes(4)
        said = house.api.said()

    (written, *_) = [i for i, it in enumerate(said) if it.startswith("patch podgroups pg-t")]
    assert min(i for i, it in enumerate(said) if "trainjobs" in it) > written


async def test_nobody_moves_unasked(house: House) -> None:
    """Not unless a queue offers it."""
    scattered(house, {})
    async with house.leading():
        await house.passes(10)

    assert not [it for it in house.api.said() if "trainjobs" in it]
