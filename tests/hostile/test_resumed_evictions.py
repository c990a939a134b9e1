"""H1: a client that resumes its TrainJob at once makes no room, and uses up no eviction rate."""

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import gang_in, node, pod, queue_with_quota, trainjob
from trainer_kai.api.names import EVICTED_GPUS

_RATE = 64_000  # thousandths of a GPU a minute
_EACH = 40  # GPUs of a node, and of a TrainJob


def borrow_all(scheduler: SchedulerHarness, nodes: int = 2) -> None:
    """Let a TrainJob run on all GPUs of each node, and their owner claim one node."""
    asks = {"nvidia.com/gpu": str(_EACH // 2)}
    scheduler.api.put(queue_with_quota("lender", _EACH * nodes), queue_with_quota("borrower", 0))
    for number in range(nodes):
        name = f"x{number}-"
        scheduler.api.put(node(f"n{number}", gpu=_EACH), *trainjob(name, f"n{number}"))
        for member in range(2):
            found = scheduler.api.get("Pod", f"{name}{member}")
            meta = {**found["metadata"]}
            notes, labels = meta.pop("annotations"), meta.pop("labels")
            more = {"annotations": notes, "labels": labels, "meta": meta, "asks": asks}
            scheduler.api.put(pod(meta["name"], node=f"n{number}", **more))
    members = [pod(f"l{it}", "l", asks=asks) for it in range(2)]
    scheduler.api.put(gang_in("lender", "l", 2)[0], *members)


def suspended(scheduler: SchedulerHarness) -> list[str]:
    """Return which TrainJobs are suspended."""
    names = [it for it in ("x0-", "x1-") if scheduler.api.has("TrainJob", it)]
    return [it for it in names if scheduler.api.get("TrainJob", it)["spec"].get("suspend")]


def resume(scheduler: SchedulerHarness, name: str) -> None:
    """Let the client of a TrainJob tell it to run."""
    found = scheduler.api.get("TrainJob", name)
    scheduler.api.put({**found, "spec": {**found["spec"], "suspend": False}})


def eviction_record(scheduler: SchedulerHarness, name: str) -> str:
    """Return how many GPUs the PodGroup of a TrainJob is said to have lost."""
    notes = scheduler.api.get("PodGroup", f"pg-{name}")["metadata"]["annotations"]
    return str(notes[EVICTED_GPUS])


async def test_its_gpus_go_back_to_the_rate() -> None:
    """Two TrainJobs of 40 GPUs are resumed at once: within the minute each was asked."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler)
    async with scheduler.leading():
        await scheduler.advance(1)
        (first,) = suspended(scheduler)
        resume(scheduler, first)
        await scheduler.advance(3)
        assert eviction_record(scheduler, first) == "0"
        (second,) = suspended(scheduler)
        assert second != first
        assert scheduler.cycle._rate_limiter.available(0) == _RATE - _EACH * 1000
        resume(scheduler, second)
        await scheduler.advance(3)
        assert scheduler.cycle._rate_limiter.available(0) == _RATE
        assert len(scheduler.cache.cluster.suspend_refusals) == 2


async def test_the_next_leader_counts_it_neither() -> None:
    """It reads from the PodGroup that nothing was taken."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler, nodes=1)
    async with scheduler.leading():
        await scheduler.advance(1)
        resume(scheduler, "x0-")
        await scheduler.advance(3)
    scheduler.api.delete("PodGroup", "l")
    for member in ("l0", "l1"):
        scheduler.api.delete("Pod", member)
    other = scheduler.successor()
    async with other.leading():
        assert other.cycle._rate_limiter.available(0) == _RATE


async def test_what_had_left_by_then_counts() -> None:
    """One of its two pods was deleted before its client resumed it: half of it was taken."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler, nodes=1)
    async with scheduler.leading():
        await scheduler.advance(1)
        scheduler.api.delete("Pod", "x0-0")
        resume(scheduler, "x0-")
        await scheduler.advance(3)
        assert eviction_record(scheduler, "x0-") == "20"
        assert scheduler.cycle._rate_limiter.available(0) == _RATE - _EACH * 500


async def test_a_resumption_within_milliseconds_is_seen() -> None:
    """The news of both comes at once: it is let alone like any other."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler, nodes=1)
    async with scheduler.leading():
        scheduler.api.holds_back_events = True
        await scheduler.advance(1)
        resume(scheduler, "x0-")
        scheduler.api.holds_back_events = False
        scheduler.api.deliver()
        await scheduler.advance(3)
        assert scheduler.cache.cluster.suspend_refusals
        assert eviction_record(scheduler, "x0-") == "0"


async def test_it_is_asked_less_often_each_time() -> None:
    """It was let alone for one minute, and is for two the next time."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler, nodes=1)
    async with scheduler.leading():
        await scheduler.advance(1)
        resume(scheduler, "x0-")
        await scheduler.advance(62)
        assert suspended(scheduler)
        resume(scheduler, "x0-")
        await scheduler.advance(110)
        assert not suspended(scheduler)
        await scheduler.advance(15)
        assert suspended(scheduler)


async def test_a_jobset_that_does_not_follow_is_let_alone() -> None:
    """It is given up after half a minute, and its GPUs go back then."""
    scheduler = SchedulerHarness()
    borrow_all(scheduler, nodes=1)
    async with scheduler.leading():
        await scheduler.advance(29)
        assert suspended(scheduler)
        await scheduler.advance(4)
        assert not suspended(scheduler)
        assert scheduler.cache.cluster.suspend_refusals
        assert eviction_record(scheduler, "x0-") == "0"
        assert scheduler.cycle._rate_limiter.available(0) == _RATE
