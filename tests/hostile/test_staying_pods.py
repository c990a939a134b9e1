"""H1: pods that stay on their nodes while their TrainJob is suspended.

A user can have that: pods made by hand that name the PodGroup and a Job, a Job that another
controller runs, or a JobSet that was deleted and has a finalizer, which its controller leaves be.
"""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import is_suspended, lend_to_trainjob, trainjob_events
from tests.support.state.objects import gang_in
from trainer_kai.policy.workloads.workload import ObjectKey

_STAY_S = 125  # of passes, after which it is not waited for any more
_RATE = 64_000  # thousandths of a GPU a minute


def borrow_all(scheduler: SchedulerHarness) -> None:
    """Let a TrainJob have what another queue claims."""
    lend_to_trainjob(scheduler)
    scheduler.api.put(*gang_in("lender", "l", 2))


def follow(scheduler: SchedulerHarness) -> None:
    """Let its JobSet follow; its pods stay."""
    jobset = scheduler.api.get("JobSet", "x")
    scheduler.api.put({**jobset, "spec": {**jobset["spec"], "suspend": True}})


async def test_it_is_let_alone_and_counts_as_unevictable() -> None:
    """So its queue borrows nothing more; it is told, and the GPUs cost no rate of evictions."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler)
    async with scheduler.leading():
        await scheduler.advance(2)
        follow(scheduler)
        await scheduler.advance(_STAY_S)

        assert not is_suspended(scheduler)
        assert scheduler.cache.cluster.suspend_refusals == {
            ObjectKey("TrainJob", "ns", "x"): "pods were not terminating after 120 s"
        }
        assert scheduler.cycle._rate_limiter.available(0) == _RATE
    (event,) = trainjob_events(scheduler, "EvictionUndone")
    assert "pods were not terminating after 120 s: pod x0 and 1 more. " in event["message"]


async def test_pods_that_are_going_are_none() -> None:
    """A long grace is theirs: the TrainJob is resumed, and may be chosen again."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler)
    async with scheduler.leading():
        await scheduler.advance(2)
        follow(scheduler)
        for name in ("x0", "x1"):
            found = scheduler.api.get("Pod", name)
            meta = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            scheduler.api.put({**found, "metadata": meta})
        await scheduler.advance(_STAY_S)

        assert not is_suspended(scheduler)
        assert not scheduler.cache.cluster.suspend_refusals
