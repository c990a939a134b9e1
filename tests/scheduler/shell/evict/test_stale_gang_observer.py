"""Stale gangs in a running scheduler: the controller observes, a plan decides, the evictor acts."""

from typing import Any

import pytest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import group, node, pod, trainjob
from trainer_kai.api.meta import Key
from trainer_kai.api.names import STALE_SINCE

_KEY = Key("ns", "g")
_EIGHT = {"nvidia.com/gpu": "8"}
_GRACE_S = 60.0
_TICKS_S = 3.0  # until the controller, the timer and the plan have seen the end of a grace


def gang(*, replaced: bool = True, **spec: Any) -> list[dict[str, Any]]:
    """Return a node, and a PodGroup that has two of its three pods on it; the third fits nowhere.

    Unless *replaced*, the third pod does not exist.
    """
    third = [pod("p2", "g", asks=_EIGHT)] if replaced else []
    running = [pod(f"p{i}", "g", node="a") for i in range(2)]
    return [node("a", gpu=4), group("g", minMember=3, queue="q", **spec), *running, *third]


def deleted(harness: SchedulerHarness) -> list[str]:
    return [it.split()[-1] for it in harness.api.written() if it.startswith("delete pods")]


def annotation(harness: SchedulerHarness) -> str | None:
    """Return since when the PodGroup is stale, as it says."""
    return harness.cache.cluster.pod_groups[_KEY].metadata.annotations.get(STALE_SINCE)


async def test_a_gang_that_finds_no_node_for_a_pod_is_evicted_whole(
    harness: SchedulerHarness,
) -> None:
    """When its grace is over and not before; once, though its pods take long to terminate."""
    harness.api.put(*gang())
    harness.api.keeps_deleted_pods = True
    async with harness.leading():
        await harness.advance(_GRACE_S - 1)
        assert deleted(harness) == []
        assert annotation(harness) == "2026-01-05T08:00:04+00:00"
        await harness.advance(_TICKS_S)
        assert sorted(deleted(harness)) == ["p0", "p1"]
        await harness.advance(10)
        assert sorted(deleted(harness)) == ["p0", "p1"]

    messages = {it["reason"]: it["message"] for it in harness.api.events}
    assert messages["StaleJob"] == (
        "2 of 3 required pods are on nodes. If the others find no node for 60 s, "
        "the PodGroup is evicted"
    )
    assert ("PodGroup g", "Evict") in harness.events()
    assert ("PodGroup g", "Evicting") not in harness.events()


async def test_the_plan_comes_when_the_grace_is_over(harness: SchedulerHarness) -> None:
    """Though no event comes, and no other plan is due: the grace of the PodGroup is its own."""
    harness.api.put(*gang(stalenessGracePeriod="2s"))
    async with harness.leading():
        await harness.advance(1 + 2 + 1)  # seen, in its grace, and the next tick
        assert sorted(deleted(harness)) == ["p0", "p1"]


@pytest.mark.parametrize("grace", ["", "0s"])
async def test_no_grace_counts_before_the_missing_pods_exist(
    harness: SchedulerHarness, grace: str
) -> None:
    """Their controller is about to create them; from then on they wait for a node."""
    harness.api.put(*gang(replaced=False, stalenessGracePeriod=grace))
    async with harness.leading():
        await harness.advance(2 * _GRACE_S)
        assert deleted(harness) == []
        assert annotation(harness)
        harness.api.put(pod("p2", "g", asks=_EIGHT))
        await harness.advance((0 if grace else _GRACE_S) + _TICKS_S)

    assert sorted(deleted(harness)) == ["p0", "p1"]


async def test_a_grace_begins_anew_when_a_missing_pod_was_away(harness: SchedulerHarness) -> None:
    """The grace period of a PodGroup does not end while its pods are replaced again and again."""
    harness.api.put(*gang())
    async with harness.leading():
        await harness.advance(_GRACE_S - 5)
        harness.api.delete("Pod", "p2")
        await harness.advance(2)
        harness.api.put(pod("p2", "g", asks=_EIGHT))
        await harness.advance(_GRACE_S - 5)
        assert deleted(harness) == []
        await harness.advance(5 + _TICKS_S)

    assert sorted(deleted(harness)) == ["p0", "p1"]


async def test_a_gang_that_is_repaired_is_left_alone(harness: SchedulerHarness) -> None:
    """A node comes at the last moment; then nothing says any more that the gang is stale."""
    harness.api.put(*gang())
    async with harness.leading():
        await harness.advance(_GRACE_S - 1)
        harness.api.put(node("b", gpu=8))
        await harness.advance(2 * _GRACE_S)
        assert annotation(harness) is None
        assert not harness.cache.cluster.stale_since

    assert deleted(harness) == []


async def test_another_leader_counts_the_grace_anew(harness: SchedulerHarness) -> None:
    """What the annotation says is not trusted: the pods may have been created since."""
    harness.api.put(*gang(meta={"annotations": {STALE_SINCE: "2026-01-05T07:00:00Z"}}))
    async with harness.leading():
        await harness.advance(_GRACE_S - 5)
    await harness.advance(_GRACE_S)  # another process leads
    async with harness.lead_again().leading():
        await harness.advance(_GRACE_S - 5)
        assert deleted(harness) == []
        await harness.advance(5 + _TICKS_S)
        assert sorted(deleted(harness)) == ["p0", "p1"]


@pytest.mark.parametrize("step_s", [-3600, 3600])
async def test_a_step_of_the_wall_clock_is_no_grace(
    harness: SchedulerHarness, step_s: float
) -> None:
    """The grace is as long as it would be without: the controller notes it anew within a second."""
    harness.api.put(*gang())
    async with harness.leading():
        await harness.advance(10)
        harness.api.clock.step(step_s)
        await harness.advance(_GRACE_S - 15)
        evicted_at_once = deleted(harness)
        await harness.advance(5 + _TICKS_S)

    assert evicted_at_once == []
    assert sorted(deleted(harness)) == ["p0", "p1"]


async def test_a_trainjob_is_suspended_and_resumed(harness: SchedulerHarness) -> None:
    """Its pods are not deleted one by one, and its eviction counts for no rate limit."""
    objects = trainjob("x", "a")
    harness.api.put(node("a", gpu=2), *objects[:2])
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "n", "jobset.sigs.k8s.io/job-index": "0"}
    owned = {**objects[2]["metadata"]}
    harness.api.put(group("pg-x", minMember=3, queue="q", meta=owned), *objects[3:])
    harness.api.put(pod("x2", "pg-x", labels=labels, meta={**objects[3]["metadata"], "name": "x2"}))
    async with harness.leading():
        await harness.advance(_GRACE_S + _TICKS_S)
        assert harness.api.written().count("patch trainjobs x") == 1

    assert deleted(harness) == []
    assert (
        harness.cache.cluster.pod_groups[Key("ns", "pg-x")].metadata.annotations[
            "trainer-kai.dev/evicted-gpus"
        ]
        == "0"
    )


async def test_a_refused_eviction_is_tried_again_later(harness: SchedulerHarness) -> None:
    """The PodGroup says why it was not evicted; the grace counts anew after that."""
    harness.api.put(*gang(stalenessGracePeriod="5s"))
    tried: list[float] = []

    def refuse(what: str) -> int | None:
        if what.startswith("try delete pods"):
            tried.append(harness.api.clock.monotonic_s())
            return 403 if len(tried) <= 4 else None
        return None

    harness.api.refuse_with = refuse
    async with harness.leading():
        await harness.advance(60)

    assert sorted(deleted(harness)) == ["p0", "p1"]
    assert "NotEvicted" in {it.get("reason") for it in harness.api.events}
    assert 5 <= tried[2] - tried[0] <= 20
