"""Failures during evictions: no victim is evicted in vain, twice, or tried for ever."""

import json
from typing import Any

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import fill_over_quota
from tests.support.state.objects import (
    JOBSET,
    gang_in,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
    queue_with_quota,
    trainjob,
)
from trainer_kai.api.meta import Key

_RESERVED = "trainer-kai.dev/reserved"


def staged(queue: str, name: str) -> list[dict[str, Any]]:
    """Return a PodGroup of two GPUs, of which the second pod is created when the first runs."""
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 1}
    later["requests"] = {"nvidia.com/gpu": "1"}
    annotations = {"trainer-kai.dev/anticipated": json.dumps({"later": [later]})}
    subs = [{"name": "n-replica-0", "minMember": 1}, {"name": "l-replica-0", "minMember": 1}]
    meta = {"annotations": annotations, "ownerReferences": [JOBSET]}
    return [group(name, meta=meta, subGroups=subs, queue=queue), jobset_pod(f"{name}0", name)]


def two_jobs(harness: SchedulerHarness, count: int) -> None:
    """Run two TrainJobs on two nodes, and a preemptor of so many GPUs."""
    harness.api.put(
        queue_with_quota("lender", 4),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        node("b", gpu=2),
    )
    harness.api.put(*trainjob("x", "a"), *trainjob("y", "b"))
    harness.api.put(*gang_in("lender", "l", count))


def deletions(harness: SchedulerHarness) -> list[str]:
    return sorted(it.split()[-1] for it in harness.api.written() if it.startswith("delete pods"))


async def test_places_that_cannot_be_written_evict_nothing(harness: SchedulerHarness) -> None:
    """The victims count as running again; later they are evicted after all."""
    fill_over_quota(harness)
    harness.api.refuse_with = lambda what: 403 if what == "patch podgroups s" else None
    harness.api.put(*staged("lender", "s"))
    async with harness.leading():
        assert not harness.cache.assumed.evicted_uid(Key("ns", "b10"))
        assert deletions(harness) == []
        harness.api.refuse_with = lambda _: None
        await harness.advance(120)

    assert deletions(harness) == ["b10", "b11"]


async def test_places_of_a_victim_stay_while_it_stays(harness: SchedulerHarness) -> None:
    """Its eviction is refused: its reservation stays as it was, whatever is created meanwhile."""
    trainjob_reference = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "j",
    }
    owner = {"ownerReferences": [{**trainjob_reference, "uid": "t", "controller": True}]}
    harness.api.put(
        queue_with_quota("lender", 4), queue_with_quota("borrower", 0), node("a", gpu=2)
    )
    harness.api.put(make_object("TrainJob", "j", {"uid": "t"}, spec={"runtimeRef": {"name": "r"}}))
    harness.api.put(
        make_object("JobSet", "j", {"uid": "u", **owner}, spec={}), *staged("borrower", "v")
    )
    harness.api.refuse_with = lambda what: 422 if what.startswith("try patch trainjobs") else None
    harness.api.delay_s = lambda what: 2.0 if what.startswith("try") else 0.0
    async with harness.leading():
        await harness.advance(1)
        reserved = harness.api.get("PodGroup", "v")["metadata"]["annotations"][_RESERVED]
        later = {"uid": "l", "creationTimestamp": "2026-01-05T08:00:00Z"}
        harness.api.put(group("l", minMember=1, queue="lender", meta=later), pod("l0", "l"))
        await harness.advance(0.5)
        harness.api.put(*gang_in("lender", "m", 1))
        await harness.advance(20)

    assert harness.api.get("PodGroup", "v")["metadata"]["annotations"][_RESERVED] == reserved
    assert harness.api.node_of_pods() == {"v0": "a"}


async def test_pods_of_a_trainjob_are_never_deleted(harness: SchedulerHarness) -> None:
    """Its PodGroup is gone while the preemptor is nominated: its pods still have a known owner."""
    two_jobs(harness, 2)
    deleted: list[str] = []

    def refuse(what: str) -> None:
        if what == "patch pods/status l0" and not deleted:
            deleted.append(what)
            harness.api.delete("PodGroup", "pg-y")

    harness.api.refuse_with = refuse
    async with harness.leading():
        await harness.advance(5)

    assert deleted
    assert deletions(harness) == []


async def test_a_second_preemption_leaves_the_first_as_it_is(harness: SchedulerHarness) -> None:
    """Of one PodGroup that grows: each is cancelled, or not, on its own."""
    fill_over_quota(harness)
    harness.api.put(group("l", minMember=2, queue="lender"), pod("l0", "l"), pod("l1", "l"))
    refusals = [403]
    harness.api.refuse_with = lambda what: (
        refusals.pop() if what == "try delete pods b10" and refusals else None
    )
    harness.api.delay_s = lambda what: 2.0 if what == "try delete pods b10" else 0.0
    async with harness.leading():
        harness.api.put(pod("l2", "l"), pod("l3", "l"))
        await harness.advance(120)

    assert not refusals
    assert harness.api.node_of_pods() == {f"l{i}": "a" for i in range(4)}
    assert deletions(harness) == ["b00", "b01", "b10", "b11"]


async def test_pods_that_may_not_be_deleted_stay_together(harness: SchedulerHarness) -> None:
    """The dry run of one of two is refused: none is evicted, and it is not tried all the time."""
    fill_over_quota(harness)
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        return 403 if what.endswith("delete pods b11") else None

    harness.api.refuse_with = refuse
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(30)

    assert deletions(harness) == []
    assert 2 <= asked.count("try delete pods b11") <= 8
    assert harness.cycle._rate_limiter.available(0) == 64_000


async def test_without_answers_no_victim_is_tried_all_the_time(harness: SchedulerHarness) -> None:
    """Admission is down for ten minutes; afterwards the victims are evicted."""
    two_jobs(harness, 4)
    harness.api.refuse_with = lambda what: 500 if what.startswith("try") else None
    async with harness.leading():
        await harness.advance(600)
        counted = harness.metrics.evictions.labels("reclaim", "refused", "borrower")
        tried = counted._value.get()
        harness.api.refuse_with = lambda _: None
        await harness.advance(1200)

    assert 2 <= tried <= 10
    assert {"patch trainjobs x", "patch trainjobs y"} <= {*harness.api.written()}


async def test_an_eviction_goes_on_though_it_cannot_be_recorded(harness: SchedulerHarness) -> None:
    """It is suspended once, and that is all that it takes."""
    two_jobs(harness, 2)
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        asked.append(what)
        is_noted = what.startswith("patch podgroups pg-") and "patch trainjobs y" in asked
        return 403 if is_noted else None

    harness.api.refuse_with = refuse
    async with harness.leading():
        await harness.advance(5)

    assert [it for it in asked if it.startswith("patch trainjobs")][:1] == ["patch trainjobs y"]
    assert harness.cycle._rate_limiter.available(0) == 62_000


async def test_a_successor_of_the_same_name_is_let_alone(harness: SchedulerHarness) -> None:
    """The victim is gone by then."""
    fill_over_quota(harness)
    made_anew: list[str] = []

    def refuse(what: str) -> None:
        if what == "patch pods/status l0" and not made_anew:
            made_anew.append(what)
            harness.api.delete("Pod", "b10")
            harness.api.put(pod("b10", "b1", meta={"uid": "another"}))

    harness.api.refuse_with = refuse
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(1)

    assert made_anew
    assert "b10" not in deletions(harness)


async def test_no_victim_goes_for_a_deleted_preemptor(harness: SchedulerHarness) -> None:
    """The preemptor was deleted during the dry run."""
    two_jobs(harness, 2)

    def refuse(what: str) -> None:
        if what.startswith("try") and harness.api.has("Pod", "l0"):
            for name in ("l0", "l1"):
                harness.api.delete("Pod", name)
            harness.api.delete("PodGroup", "l")

    harness.api.refuse_with = refuse
    async with harness.leading():
        await harness.advance(3)

    assert not [it for it in harness.api.written() if it.startswith("patch trainjobs")]


async def test_a_leader_again_may_choose_all_trainjobs(harness: SchedulerHarness) -> None:
    """A backoff from before would last for ever: its timer is gone."""
    two_jobs(harness, 4)
    harness.api.refuse_with = lambda what: 422 if what == "try patch trainjobs y" else None
    async with harness.leading():
        assert harness.cache.cluster.suspend_refusals
    harness.api.refuse_with = lambda _: None
    async with harness.lead_again().leading():
        await harness.advance(1)

    assert {"patch trainjobs x", "patch trainjobs y"} <= {*harness.api.written()}


async def test_a_trainjob_is_chosen_again_after_its_backoff(harness: SchedulerHarness) -> None:
    """It was resumed while it made room, and giving it up took several attempts."""
    harness.api.put(
        queue_with_quota("lender", 4),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        *trainjob("x", "a"),
    )
    harness.api.put(*gang_in("lender", "l", 2))
    asked: list[str] = []

    def refuse(what: str) -> int | None:
        if what != "get trainjobs x":
            return None
        asked.append(what)
        return 409 if len(asked) < 3 else None

    harness.api.refuse_with = refuse
    async with harness.leading():
        await harness.advance(0.5)
        found = harness.api.get("TrainJob", "x")
        harness.api.put({**found, "spec": {**found["spec"], "suspend": False}})
        await harness.advance(5)
        assert len(asked) == 3
        assert harness.cache.cluster.suspend_refusals
        assert harness.api.written().count("patch trainjobs x") == 2  # suspended, and given up
        await harness.advance(70)
        assert not harness.cache.cluster.suspend_refusals

    assert harness.api.written().count("patch trainjobs x") == 3
