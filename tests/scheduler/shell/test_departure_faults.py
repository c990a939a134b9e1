"""What may go wrong while somebody makes room: nothing is taken in vain, twice, or for ever."""

import json
from typing import Any

from tests.scheduler.shell.conftest import House
from tests.scheduler.shell.test_departures import borrowed, gang_in, owed, trainjob
from tests.support.clusters import JOBSET, group, jobset_pod, made, node, pod
from trainer_kai.api.meta import Key

_HELD = "trainer-kai.dev/reserved"


def staged(queue: str, name: str) -> list[dict[str, Any]]:
    """Return a unit of two GPUs, of which the second pod comes when the first runs."""
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1}
    later["requests"] = {"nvidia.com/gpu": "1"}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [later]})}
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 1}]
    meta = {"annotations": annotations, "ownerReferences": [JOBSET]}
    return [group(name, meta=meta, subGroups=subs, queue=queue), jobset_pod(f"{name}0", name)]


def two_jobs(house: House, count: int) -> None:
    """Have two TrainJobs on two nodes, and a claim of so many GPUs."""
    house.api.put(owed("lender", 4), owed("borrower", 0), node("a", gpu=2), node("b", gpu=2))
    house.api.put(*trainjob("x", "a"), *trainjob("y", "b"))
    house.api.put(*gang_in("lender", "l", count))


def deletions(house: House) -> list[str]:
    """Return the pods that were deleted."""
    return sorted(it.split()[-1] for it in house.api.said() if it.startswith("delete pods"))


async def test_slots_that_cannot_be_written_take_nobody(house: House) -> None:
    """And who was to go for them counts as there again; later it goes after all."""
    borrowed(house)
    house.api.refuse = lambda what: 403 if what == "patch podgroups s" else None
    house.api.put(*staged("lender", "s"))
    async with house.leading():
        assert not house.live.assumed.whose_eviction(Key("ns", "b10"))
        assert deletions(house) == []
        house.api.refuse = lambda _: None
        await house.passes(120)

    assert deletions(house) == ["b10", "b11"]


async def test_slots_of_who_was_to_go_stay_while_it_stays(house: House) -> None:
    """It is refused: what is held for its later pods is held as before, whoever comes meanwhile."""
    above = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "j"}
    owner = {"ownerReferences": [{**above, "uid": "t", "controller": True}]}
    house.api.put(owed("lender", 4), owed("borrower", 0), node("a", gpu=2))
    house.api.put(made("TrainJob", "j", {"uid": "t"}, spec={"runtimeRef": {"name": "r"}}))
    house.api.put(made("JobSet", "j", {"uid": "u", **owner}, spec={}), *staged("borrower", "v"))
    house.api.refuse = lambda what: 422 if what.startswith("try patch trainjobs") else None
    house.api.delay_s = lambda what: 2.0 if what.startswith("try") else 0.0
    async with house.leading():
        await house.passes(1)
        held = house.api.get("PodGroup", "v")["metadata"]["annotations"][_HELD]
        later = {"uid": "l", "creationTimestamp": "2026-01-05T08:00:00Z"}
        house.api.put(group("l", minMember=1, queue="lender", meta=later), pod("l0", "l"))
        await house.passes(0.5)
        house.api.put(*gang_in("lender", "m", 1))
        await house.passes(20)

    assert house.api.get("PodGroup", "v")["metadata"]["annotations"][_HELD] == held
    assert house.api.where() == {"v0": "a"}


async def test_pods_of_a_trainjob_are_never_deleted(house: House) -> None:
    """Its group is gone while the room is promised: whose pods they are is known all the same."""
    two_jobs(house, 2)
    gone: list[str] = []

    def refuse(what: str) -> None:
        if what == "patch pods/status l0" and not gone:
            gone.append(what)
            house.api.delete("PodGroup", "pg-y")

    house.api.refuse = refuse
    async with house.leading():
        await house.passes(5)

    assert gone
    assert deletions(house) == []


async def test_a_second_claim_leaves_the_first_as_it_is(house: House) -> None:
    """Of one group that grows: each is taken back, or not, on its own."""
    borrowed(house)
    house.api.put(group("l", minMember=2, queue="lender"), pod("l0", "l"), pod("l1", "l"))
    refusals = [403]
    house.api.refuse = lambda what: (
        refusals.pop() if what == "try delete pods b10" and refusals else None
    )
    house.api.delay_s = lambda what: 2.0 if what == "try delete pods b10" else 0.0
    async with house.leading():
        house.api.put(pod("l2", "l"), pod("l3", "l"))
        await house.passes(120)

    assert not refusals
    assert house.api.where() == {f"l{i}": "a" for i in range(4)}
    assert deletions(house) == ["b00", "b01", "b10", "b11"]


async def test_pods_that_may_not_be_deleted_stay_together(house: House) -> None:
    """One of two is refused, also dry: nobody goes, and it is not asked all the time."""
    borrowed(house)
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        return 403 if what.endswith("delete pods b11") else None

    house.api.refuse = refuse
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(30)

    assert deletions(house) == []
    assert 2 <= asked.count("try delete pods b11") <= 8
    assert house.cycle._breaker.left(0) == 64_000


async def test_without_answers_nobody_is_tried_all_the_time(house: House) -> None:
    """Admission is down for ten minutes; afterwards they make room."""
    two_jobs(house, 4)
    house.api.refuse = lambda what: 500 if what.startswith("try") else None
    async with house.leading():
        await house.passes(600)
        counted = house.metrics.evictions.labels("reclaim", "refused")
        tried = counted._value.get()
        house.api.refuse = lambda _: None
        await house.passes(3600)

    assert 2 <= tried <= 10
    assert {"patch trainjobs x", "patch trainjobs y"} <= {*house.api.said()}


async def test_who_goes_goes_though_that_cannot_be_noted(house: House) -> None:
    """It is suspended once, and that is all that it takes."""
    two_jobs(house, 2)
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        is_noted = what.startswith("patch podgroups pg-") and "patch trainjobs y" in asked
        return 403 if is_noted else None

    house.api.refuse = refuse
    async with house.leading():
        await house.passes(5)

    assert [it for it in asked if it.startswith("patch trainjobs")][:1] == ["patch trainjobs y"]
    assert house.cycle._breaker.left(0) == 62_000


async def test_a_successor_of_the_same_name_is_let_alone(house: House) -> None:
    """The one that was meant is gone by then."""
    borrowed(house)
    made_anew: list[str] = []

    def refuse(what: str) -> None:
        if what == "patch pods/status l0" and not made_anew:
            made_anew.append(what)
            house.api.delete("Pod", "b10")
            house.api.put(pod("b10", "b1", meta={"uid": "another"}))

    house.api.refuse = refuse
    house.api.put(*gang_in("lender", "l", 2))
    async with house.leading():
        await house.passes(1)

    assert made_anew
    assert "b10" not in deletions(house)


async def test_nobody_goes_for_who_is_gone(house: House) -> None:
    """Whoever claimed it was deleted while it was tried."""
    two_jobs(house, 2)

    def refuse(what: str) -> None:
        if what.startswith("try") and house.api.has("Pod", "l0"):
            for name in ("l0", "l1"):
                house.api.delete("Pod", name)
            house.api.delete("PodGroup", "l")

    house.api.refuse = refuse
    async with house.leading():
        await house.passes(3)

    assert not [it for it in house.api.said() if it.startswith("patch trainjobs")]


async def test_who_leads_again_may_choose_everybody(house: House) -> None:
    """Who was let alone before would be for ever: nobody is left who would look."""
    two_jobs(house, 4)
    house.api.refuse = lambda what: 422 if what == "try patch trainjobs y" else None
    async with house.leading():
        assert house.live.cluster.refused
    house.api.refuse = lambda _: None
    async with house.again_in_this_process().leading():
        await house.passes(1)

    assert {"patch trainjobs x", "patch trainjobs y"} <= {*house.api.said()}


async def test_who_was_let_alone_is_chosen_again(house: House) -> None:
    """It was told to run while it made room, and giving it up took several attempts."""
    house.api.put(owed("lender", 4), owed("borrower", 0), node("a", gpu=2), *trainjob("x", "a"))
    house.api.put(*gang_in("lender", "l", 2))
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        if what != "get trainjobs x":
            return None
        asked.append(what)
        return 409 if len(asked) < 3 else None

    house.api.refuse = refuse
    async with house.leading():
        await house.passes(0.5)
        found = house.api.get("TrainJob", "x")
        house.api.put({**found, "spec": {**found["spec"], "suspend": False}})
        await house.passes(5)
        assert len(asked) == 3
        assert house.live.cluster.refused
        assert house.api.said().count("patch trainjobs x") == 2  # suspended, and given up
        await house.passes(70)
        assert not house.live.cluster.refused

    assert house.api.said().count("patch trainjobs x") == 3
