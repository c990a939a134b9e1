"""H1: annotations padded to their size limit, so that the scheduler cannot add its own."""

import json

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import (
    eviction_record,
    follow_suspension,
    is_suspended,
    lend_to_trainjob,
    trainjob_events,
)
from tests.support.state.objects import gang_in, node, queue_with_quota, trainjob
from trainer_kai.api.names import EVICTED_BY, LAST_APPLIED

_LIMIT = 256 * 1024


def pad(scheduler: SchedulerHarness, name: str = "x", **notes: str) -> None:
    """Let the annotations of a TrainJob be as large as they may be."""
    found = scheduler.api.get("TrainJob", name)
    length = _LIMIT - sum(len(it) + len(text) for it, text in notes.items()) - len("padding")
    notes = {"padding": "x" * length, **notes}
    scheduler.api.put({**found, "metadata": {**found["metadata"], "annotations": notes}})


def borrow_with_padding() -> SchedulerHarness:
    """Return a scheduler in which a padded TrainJob has borrowed what another queue asks for."""
    scheduler = SchedulerHarness()
    lend_to_trainjob(scheduler)
    pad(scheduler)
    scheduler.api.put(*gang_in("lender", "l", 2))
    return scheduler


async def test_a_padded_trainjob_gives_back() -> None:
    """It is suspended without the copy, its PodGroup says so, and it is resumed afterwards."""
    scheduler = borrow_with_padding()
    async with scheduler.leading():
        await scheduler.advance(2)
        assert is_suspended(scheduler)
        assert eviction_record(scheduler)["copied"] is False
        assert EVICTED_BY not in scheduler.api.get("TrainJob", "x")["metadata"]["annotations"]
        follow_suspension(scheduler)
        await scheduler.advance(3)
        assert scheduler.api.node_of_pods() == {"l0": "a", "l1": "a"}
        assert not is_suspended(scheduler)
        assert eviction_record(scheduler) is None


async def test_the_next_leader_resumes_a_padded_trainjob() -> None:
    """The missing copy is no wish of its user, for the PodGroup says that there was none."""
    scheduler = borrow_with_padding()
    async with scheduler.leading():
        await scheduler.advance(2)
        assert is_suspended(scheduler)
    follow_suspension(scheduler)
    async with scheduler.successor().leading():
        await scheduler.advance(3)

    assert not is_suspended(scheduler)
    assert eviction_record(scheduler) is None


async def test_a_suspended_manifest_is_no_wish_of_a_padded_trainjob() -> None:
    """It was applied suspended and started by hand: it is resumed, as with the copy."""
    scheduler = SchedulerHarness()
    lend_to_trainjob(scheduler)
    pad(scheduler, **{LAST_APPLIED: json.dumps({"spec": {"suspend": True}})})
    scheduler.api.put(*gang_in("lender", "l", 2))
    async with scheduler.leading():
        await scheduler.advance(2)
        assert is_suspended(scheduler)
        follow_suspension(scheduler)
        await scheduler.advance(3)

    assert not is_suspended(scheduler)


async def test_where_a_suspension_is_refused_too_another_trainjob_goes() -> None:
    """The refused one is told once, however often it is tried."""
    scheduler = SchedulerHarness()
    scheduler.api.put(
        queue_with_quota("lender", 2),
        queue_with_quota("borrower", 0),
        node("a", gpu=2),
        node("b", gpu=2),
    )
    scheduler.api.put(*trainjob("x", "a"), *trainjob("y", "b"))
    scheduler.api.refuse_with = lambda what: 422 if what == "try patch trainjobs y" else None
    scheduler.api.put(*gang_in("lender", "l", 2))
    async with scheduler.leading():
        await scheduler.advance(2)
        assert "patch trainjobs x" in scheduler.api.written()
        await scheduler.advance(300)

    (event,) = trainjob_events(scheduler, "NotEvicted")
    assert event["involvedObject"]["name"] == "y"
    assert event["type"] == "Warning"
    assert "the TrainJob cannot be suspended" in event["message"]
