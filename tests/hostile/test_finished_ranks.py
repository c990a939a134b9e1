"""H1: a rank that succeeded; its Job would leave it out, and the others would wait for ever."""

import json
from typing import Any

import pytest_asyncio

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import make_object, node, queue_with_quota, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY
from trainer_kai.api.resources import TRAINJOBS
from trainer_kai.kube.rest.request import WriteOptions

_JOBSET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "x", "uid": "x"}
_EVICTION_WRITE = WriteOptions(field_manager="trainer-kai-eviction", force=True)
_DELETE = "delete jobs x-n-0"


def job(uid: str, *, succeeded: int) -> dict[str, Any]:
    """Return the Job of a TrainJob with two ranks."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "x",
        "jobset.sigs.k8s.io/replicatedjob-name": "n",
        "jobset.sigs.k8s.io/job-index": "0",
    }
    meta = {"uid": uid, "labels": labels, "ownerReferences": [{**_JOBSET, "controller": True}]}
    spec = {"completions": 2, "parallelism": 2, "suspend": True}
    return make_object("Job", "x-n-0", meta, spec=spec, status={"succeeded": succeeded})


@pytest_asyncio.fixture
async def evicted() -> SchedulerHarness:
    """Return a TrainJob that was evicted: one rank is done, and the pod of the other is gone."""
    scheduler = SchedulerHarness()
    scheduler.api.put(
        queue_with_quota("lender", 2),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        *trainjob("x", "a"),
    )
    applied = {"metadata": {"annotations": {EVICTED_BY: "{}"}}, "spec": {"suspend": True}}
    await scheduler.api.client.apply(TRAINJOBS, Key("ns", "x"), applied, _EVICTION_WRITE)
    jobset = scheduler.api.get("JobSet", "x")
    template = {"spec": {"completions": 2, "parallelism": 2}}
    jobs = [{"name": "n", "replicas": 1, "template": template}]
    scheduler.api.put({**jobset, "spec": {"replicatedJobs": jobs, "suspend": True}})
    group = scheduler.api.get("PodGroup", "pg-x")
    record = {EVICTED_BY: json.dumps({"trainJob": "x", "podGroup": "pg-x"})}
    scheduler.api.put({**group, "metadata": {**group["metadata"], "annotations": record}})
    done = scheduler.api.get("Pod", "x0")
    scheduler.api.put({**done, "status": {"phase": "Succeeded"}})
    scheduler.api.delete("Pod", "x1")
    scheduler.api.put(job("x-n-0", succeeded=1))
    return scheduler


def is_suspended(scheduler: SchedulerHarness) -> bool:
    """Say whether the TrainJob is."""
    return bool(scheduler.api.get("TrainJob", "x")["spec"].get("suspend"))


async def test_its_job_is_made_anew_before_it_is_resumed(evicted: SchedulerHarness) -> None:
    """The one that it is, by its uid; it is resumed when the pod of that rank is gone."""
    async with evicted.leading():
        await evicted.advance(5)
        assert evicted.api.written().count(_DELETE) == 1
        assert evicted.api.body(_DELETE)["preconditions"] == {"uid": "x-n-0"}
        assert evicted.api.body(_DELETE)["propagationPolicy"] == "Background"
        evicted.api.put(job("another", succeeded=0))  # by the JobSet controller
        await evicted.advance(5)
        assert is_suspended(evicted)
        evicted.api.delete("Pod", "x0")  # by the garbage collector
        await evicted.advance(2)

    assert not is_suspended(evicted)
    assert evicted.api.written().count(_DELETE) == 1


async def test_the_next_leader_goes_on(evicted: SchedulerHarness) -> None:
    """One is killed after the Job was deleted, the next one after its pods are gone."""
    async with evicted.leading():
        await evicted.advance(1)
        assert _DELETE in evicted.api.written()
    evicted.api.put(job("another", succeeded=0))
    scheduler = evicted.successor()
    async with scheduler.leading():
        await scheduler.advance(3)
        assert is_suspended(scheduler)
    scheduler.api.delete("Pod", "x0")
    scheduler = scheduler.successor()
    async with scheduler.leading():
        await scheduler.advance(2)

    assert not is_suspended(scheduler)
    assert scheduler.api.written().count(_DELETE) == 1


async def test_a_job_that_may_not_be_deleted_keeps_nothing_suspended(
    evicted: SchedulerHarness,
) -> None:
    """The TrainJob is resumed all the same, and is told what it lacks."""
    evicted.api.refuse_with = lambda what: 403 if what == _DELETE else None
    async with evicted.leading():
        await evicted.advance(5)

    assert not is_suspended(evicted)
    assert ("TrainJob x", "RanksLeftOut") in evicted.events()


async def test_a_job_that_is_over_stays(evicted: SchedulerHarness) -> None:
    """All ranks had succeeded when it was evicted: the JobSet is about to be done."""
    evicted.api.put(job("x-n-0", succeeded=2))
    async with evicted.leading():
        await evicted.advance(5)

    assert _DELETE not in evicted.api.written()
    assert not is_suspended(evicted)


async def test_pods_that_stay_are_not_waited_for_without_end(evicted: SchedulerHarness) -> None:
    """A finalizer keeps the pod of the rank that is done: after two minutes it goes on."""
    async with evicted.leading():
        await evicted.advance(1)
        evicted.api.put(job("another", succeeded=0))
        await evicted.advance(115)
        assert is_suspended(evicted)
        await evicted.advance(8)

    assert not is_suspended(evicted)
