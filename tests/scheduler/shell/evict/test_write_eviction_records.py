"""Eviction records: on all PodGroups before a TrainJob is suspended, removed with it."""

import json
from typing import Any

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.scheduler.shell.evict.evictions import (
    eviction_record,
    follow_suspension,
    fragmented,
    is_suspended,
    lend_to_trainjob,
    relocated_trainjob,
)
from tests.support.state.objects import (
    gang_in,
    group,
    make_object,
    node,
    pod,
)
from trainer_kai.api.names import EVICTED_BY


async def test_they_are_there_before_it_is_suspended_and_as_long(harness: SchedulerHarness) -> None:
    """Each names its TrainJob and its PodGroup; they go when it is resumed."""
    lend_to_trainjob(harness, groups=3)
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(2)
        written = harness.api.written()
        names = ["pg-x", "pg-x1", "pg-x2"]
        first = {name: written.index(f"patch podgroups {name}") for name in names}
        assert max(first.values()) < written.index("patch trainjobs x")
        assert is_suspended(harness)
        for name in names:
            found = eviction_record(harness, name)
            assert (found["trainJob"], found["podGroup"]) == ("x", name)
            assert "ns/l gets its resources" in found["why"]
        follow_suspension(harness)
        await harness.advance(2)
        assert not is_suspended(harness)
        assert [eviction_record(harness, name) for name in names] == [None] * 3


async def test_they_stay_until_it_is_seen_that_it_is_resumed(harness: SchedulerHarness) -> None:
    """Else its suspension would look like its user's, and what is kept for it would be let go."""
    lend_to_trainjob(harness)
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(2)
        follow_suspension(harness)
        harness.api.holds_back_events = True
        await harness.advance(5)
        assert not is_suspended(harness)
        assert eviction_record(harness) is not None
        harness.api.holds_back_events = False
        harness.api.deliver()
        await harness.advance(0.1)
        assert eviction_record(harness) is None


async def test_without_its_records_a_trainjob_stays(harness: SchedulerHarness) -> None:
    """It is tried dry, as the suspension is, and it is let alone for a while."""
    lend_to_trainjob(harness, groups=2)
    harness.api.put(*gang_in("lender", "l", 2))
    harness.api.refuse_with = lambda what: 403 if what == "try patch podgroups pg-x1" else None
    async with harness.leading():
        await harness.advance(5)
        (why,) = harness.cache.cluster.suspend_refusals.values()

    assert not is_suspended(harness)
    assert eviction_record(harness) is None
    assert why == "PodGroup ns/pg-x1 cannot be annotated with its eviction"
    (event,) = [it for it in harness.api.events if it.get("reason") == "NotEvicted"]
    assert event["message"].startswith(f"Not evicted: {why}: PATCH ")


async def test_a_record_without_a_suspension_goes(harness: SchedulerHarness) -> None:
    """One of two could not be written after all: the TrainJob runs on, and the other one goes."""
    lend_to_trainjob(harness, groups=2)
    harness.api.put(*gang_in("lender", "l", 2))
    harness.api.refuse_with = lambda what: 403 if what == "patch podgroups pg-x1" else None
    async with harness.leading():
        await harness.advance(5)
        assert eviction_record(harness) is not None
        assert not is_suspended(harness)
        await harness.advance(7)

        assert eviction_record(harness) is None
        assert not is_suspended(harness)


async def test_the_next_leader_takes_it_away(harness: SchedulerHarness) -> None:
    """The process ended between the records and the suspension."""
    lend_to_trainjob(harness)
    found = harness.api.get("PodGroup", "pg-x")
    notes = {EVICTED_BY: json.dumps({"trainJob": "x", "podGroup": "pg-x"})}
    harness.api.put({**found, "metadata": {**found["metadata"], "annotations": notes}})
    async with harness.leading():
        await harness.advance(9)
        assert eviction_record(harness) is not None
        await harness.advance(2)
        assert eviction_record(harness) is None

    assert not is_suspended(harness)
    assert "patch trainjobs x" not in harness.api.written()
    assert harness.api.node_of_pods() == {"x0": "a", "x1": "a"}


async def test_it_is_resumed_though_a_group_was_made_anew(harness: SchedulerHarness) -> None:
    """One of two has the record still, and that is enough."""
    lend_to_trainjob(harness, groups=2)
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(2)
        found = harness.api.get("PodGroup", "pg-x")
        owners = found["metadata"]["ownerReferences"]
        meta = {"ownerReferences": owners, "uid": "another"}
        harness.api.put(group("pg-x", minMember=2, queue="borrower", meta=meta))
        follow_suspension(harness)
        await harness.advance(2)

    assert not is_suspended(harness)
    assert eviction_record(harness, "pg-x1") is None


async def test_not_all_are_written_at_once(harness: SchedulerHarness) -> None:
    """A TrainJob may have very many."""
    lend_to_trainjob(harness, groups=40)
    harness.api.put(*gang_in("lender", "l", 2))
    asked_s: list[float] = []

    def delay_s(what: str) -> float:
        if not what.startswith("patch podgroups pg-x"):
            return 0.0
        asked_s.append(harness.api.clock.monotonic_s())
        return 0.5

    harness.api.delay_s = delay_s
    async with harness.leading():
        await harness.advance(4)
        assert is_suspended(harness)

    records = asked_s[:40]
    assert [records.count(at) for at in sorted({*records})] == [16, 16, 8]


def last_eviction(harness: SchedulerHarness, name: str) -> dict[str, Any]:
    annotations = harness.api.get("PodGroup", name)["metadata"].get("annotations", {})
    found: dict[str, Any] = json.loads(annotations.get("trainer-kai.dev/last-eviction") or "{}")
    return found


async def test_the_last_eviction_stays_after_the_record(harness: SchedulerHarness) -> None:
    """The PodGroup keeps what was evicted, for which PodGroup, and the cost."""
    lend_to_trainjob(harness)
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(2)
        follow_suspension(harness)
        await harness.advance(60)
        assert eviction_record(harness) is None
        found = last_eviction(harness, "pg-x")
        assert "ns/l gets its resources" in found.pop("message")
        assert found.pop("at") != ""
        assert found == {
            "action": "reclaim",
            "rule": "30",
            "queue": "borrower",
            "for": "ns/l",
            "forQueue": "lender",
            "gpus": 2,
            "lostGpuSeconds": 0,
            "evictions": 1,
        }
        counted = harness.metrics.registry.get_sample_value(
            "trainer_kai_evictions_total",
            {"action": "reclaim", "outcome": "evicted", "queue_name": "borrower"},
        )
        assert counted == 1


async def test_a_preemption_stays_on_the_podgroup(harness: SchedulerHarness) -> None:
    """Its pods are deleted, and the PodGroup is still there."""
    harness.api.put(node("p", gpu=2), *gang_in("q", "low", 2, at="p"))
    harness.api.put(make_object("PriorityClass", "high", {"namespace": ""}, value=1000))
    high = group("high", minMember=2, priorityClassName="high")
    harness.api.put(high, *(pod(f"high{i}", "high") for i in range(2)))
    async with harness.leading():
        await harness.advance(3)
        found = last_eviction(harness, "low")
        assert (found["action"], found["rule"], found["for"]) == ("preempt", "38", "ns/high")
        assert (found["queue"], found["forQueue"], found["gpus"]) == ("q", "q", 2)


async def test_a_relocation_stays_on_the_podgroup(harness: SchedulerHarness) -> None:
    """The TrainJob runs elsewhere afterwards, for another PodGroup."""
    fragmented(harness)
    async with harness.leading():
        await harness.advance(1)
        found = last_eviction(harness, f"pg-{relocated_trainjob(harness)}")
        assert (found["action"], found["rule"], found["for"]) == ("consolidation", "40a", "ns/c")


async def test_an_eviction_that_is_undone_does_not_stay(harness: SchedulerHarness) -> None:
    """The JobSet is not suspended, and all pods still run: nothing was evicted."""
    lend_to_trainjob(harness)
    harness.api.put(*gang_in("lender", "l", 2))
    async with harness.leading():
        await harness.advance(2)
        assert last_eviction(harness, "pg-x")["gpus"] == 2
        await harness.advance(60)
        assert ("TrainJob x", "EvictionUndone") in harness.events()
        assert last_eviction(harness, "pg-x") == {}
