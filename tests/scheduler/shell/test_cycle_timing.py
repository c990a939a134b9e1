"""When a cycle begins: soon, but not for each event, nor for one that helps no waiting pod."""

import json
from datetime import timedelta

import pytest

from scheduler.core.model.rejections import ClusterEvent
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import gang, group, node, pod

_READY = [{"type": "Ready", "status": "True"}]


def longest_wait_s(harness: SchedulerHarness, put_s: list[float]) -> float:
    """Return how long an event ever waited for a plan, but for the end of one that was made."""
    waits_s = []
    for at_s in put_s:
        last_s, next_s = (
            max(it for it in harness.plan_starts_s if it < at_s),
            min(it for it in harness.plan_starts_s if it >= at_s),
        )
        waits_s.append(next_s - max(at_s, last_s + harness.planning_s - 0.05))
    return round(max(waits_s), 6)


async def test_a_burst_is_one_plan_or_a_few(harness: SchedulerHarness) -> None:
    """A cycle waits for a pause, and for no longer than a moment."""
    harness.api.put(node("a", gpu=100, has={"pods": "500"}))
    async with harness.leading():
        before, put_s = harness.plans, []
        for i in range(100):
            put_s.append(harness.api.clock.monotonic_s())
            harness.api.put(pod(f"p{i}"))
            await harness.advance(0.002)
        await harness.advance(0.1)

        assert len(harness.api.node_of_pods()) == 100
        assert harness.plans - before <= 6
        assert longest_wait_s(harness, put_s) <= 0.05


async def test_long_cycles_are_few(harness: SchedulerHarness) -> None:
    """After one comes a rest that is three times as long, but events wait for a moment only."""
    harness.api.put(node("a", gpu=200, has={"pods": "500"}))
    harness.planning_s = 0.03
    async with harness.leading():
        await harness.advance(2)
        before, put_s = harness.plans, []
        for i in range(100):  # 800 ms, and each is a pause
            put_s.append(harness.api.clock.monotonic_s())
            harness.api.put(pod(f"p{i}"))
            await harness.advance(0.008)
        assert harness.plans - before <= 16  # else there would be 20, of 30 ms and a pause each

        await harness.advance(1)
        assert len(harness.api.node_of_pods()) == 100
        assert longest_wait_s(harness, put_s) <= 0.05


async def test_there_is_no_rest_without_events(harness: SchedulerHarness) -> None:
    """A single event begins a plan at once, however lately the one before came."""
    harness.api.put(node("a"))
    harness.planning_s = 0.03
    async with harness.leading():
        await harness.advance(2)
        harness.api.put(pod("first"))
        await harness.advance(0.036)
        assert len(harness.api.node_of_pods()) == 1
        at_s = harness.api.clock.monotonic_s()
        harness.api.put(pod("second"))
        await harness.advance(0.035)
        assert len(harness.api.node_of_pods()) == 2
        assert harness.plan_starts_s[-1] - at_s <= 0.01


async def test_events_during_a_long_plan_have_waited_already(harness: SchedulerHarness) -> None:
    """A pod that ended while a plan was made helps waiting pods: the next plan begins at once."""
    harness.api.put(node("a", gpu=1), pod("p"))
    async with harness.leading():
        await harness.advance(2)
        harness.planning_s = 0.3
        harness.api.put(*gang("g", 1))
        await harness.advance(0.05)
        harness.api.delete("Pod", "p")
        at_s = harness.plan_starts_s[-1]
        await harness.advance(0.3)
        assert harness.plan_starts_s[-1] - at_s <= 0.302
        await harness.advance(0.3)
        assert harness.api.node_of_pods() == {"g0": "a"}


async def test_pods_of_other_schedulers_make_no_plan(harness: SchedulerHarness) -> None:
    """No pod waits: pods of other schedulers begin no plan, and their nodes count later."""
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(2)
        before = harness.plans
        for i in range(5):
            harness.api.put(pod(f"s{i}", schedulerName="else"))
            await harness.advance(0.02)
        harness.api.delete("Pod", "s4")
        await harness.advance(2)
        assert harness.plans == before

        for i in range(4):
            harness.api.put(pod(f"s{i}", node="a", schedulerName="else"))
            await harness.advance(0.02)
        await harness.advance(2)
        assert harness.plans - before == 1


async def test_a_pod_of_another_scheduler_may_be_waited_for(harness: SchedulerHarness) -> None:
    """A pod that wants to be near another one goes there as soon as that has its node."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    harness.api.put(node("a", labels={"zone": "z"}), pod("p", affinity=near))
    async with harness.leading():
        await harness.advance(2)
        assert harness.api.node_of_pods() == {}
        meta = {"labels": {"app": "db"}}
        harness.api.put(pod("db", node="a", schedulerName="else", meta=meta))
        await harness.advance(0.1)
        assert harness.api.node_of_pods() == {"db": "a", "p": "a"}


async def test_what_helps_no_pod_makes_no_plan(harness: SchedulerHarness) -> None:
    """No pod waits: pods that start, and our own writes, are no events."""
    harness.api.put(node("a"), *gang("g", 2))
    async with harness.leading():
        await harness.advance(2)  # what they have is looked at once more
        before = harness.plans
        for name in ("g0", "g1"):
            running = {**pod(name, "g", node="a"), "status": {"phase": "Running"}}
            harness.api.put(running)
            harness.api.put({**running, "status": {"phase": "Running", "conditions": _READY}})
        harness.api.put(node("a", conditions=_READY))
        await harness.advance(1)

        assert harness.plans == before


@pytest.mark.parametrize("event", [ClusterEvent.ANY, ClusterEvent.RESOURCES_FREED])
async def test_a_namespace_starts_few_plans_for_nothing(
    event: ClusterEvent, harness: SchedulerHarness
) -> None:
    """What others do starts one at once; and what it did counts soon after all.

    Events that arrive while a plan is made start no more of them.
    """
    harness.api.put(node("a", gpu=2), *gang("g", 3))
    harness.planning_s = 0.02
    async with harness.leading():
        before = harness.plans
        for _ in range(330):
            harness.cycle.wake(event, "tenant")
            await harness.advance(0.015)
        started = harness.plans - before
        last_s = harness.plan_starts_s[-1]

        await harness.advance(0.03)
        harness.cycle.wake(ClusterEvent.ANY, "other")
        await harness.advance(0.01)
        assert harness.plan_starts_s[-1] > last_s
        await harness.advance(0.03)
        others = harness.plans
        harness.cycle.wake(event, "tenant")
        await harness.advance(0.35)
        assert harness.plans > others

    assert 15 <= started <= 8 + 5 / 0.3 + 2  # at first a few at once; one each 5 s for all


async def test_long_plans_are_fewer(harness: SchedulerHarness) -> None:
    """Between two for nothing there is time for three of others."""
    harness.api.put(node("a", gpu=2), *gang("g", 3))
    harness.planning_s = 0.5
    async with harness.leading():
        plans = []
        for _ in range(1000):
            harness.cycle.wake(ClusterEvent.RESOURCES_FREED, "tenant")
            await harness.advance(0.05)
            plans.append(harness.plans)
        assert plans[-1] - plans[400] <= 30 / 1.5 + 30 / 5 + 2  # a full one each 5 s


async def test_a_nomination_that_is_repeated_is_no_help(harness: SchedulerHarness) -> None:
    """A pod that waits for its victims to terminate is nominated in every plan."""
    harness.api.put(node("a", gpu=1), pod("v", node="a"), *gang("g", 1))
    async with harness.leading():
        await harness.advance(2)
        ends = (harness.api.clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        victim = harness.api.get("Pod", "v")
        metadata = {**victim["metadata"], "deletionTimestamp": ends}
        harness.api.put({**victim, "metadata": metadata})
        await harness.advance(20)
        assert harness.api.get("Pod", "g0")["status"]["nominatedNodeName"] == "a"
        before = harness.plans
        for _ in range(200):
            harness.cycle.wake(ClusterEvent.RESOURCES_FREED, "tenant")
            await harness.advance(0.05)
        assert harness.plans - before <= 8 + 10 / 0.3 + 10 + 2  # one each second for all


async def test_plans_that_help_are_no_plans_for_nothing(harness: SchedulerHarness) -> None:
    """A namespace that brings one gang after the other has each of them bound at once."""
    harness.api.put(*(node(f"n{it}") for it in range(5)))
    async with harness.leading():
        for number in range(20):
            one, *others = gang(f"g{number}", 2)
            for obj in (one, *others):  # in several plans, of which the last one helps
                harness.api.put(obj)
                await harness.advance(0.06)
            assert len(harness.api.node_of_pods()) == 2 * (number + 1)


async def test_a_gang_that_was_moved_lately_is_moved_in_time(harness: SchedulerHarness) -> None:
    """Its node leaves again: no event is needed when it may be moved again."""
    moved = {"moved": {"count": 1, "at": harness.api.clock.now().isoformat()}}
    meta = {"annotations": {"trainer-kai.dev/last-eviction": json.dumps(moved)}}
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    pods = [pod(f"g{i}", "g", node=at) for i, at in enumerate("ab")]
    harness.api.put(node("a", spec={"taints": [taint]}), node("b"))
    harness.api.put(group("g", minMember=2, meta=meta), *pods)
    async with harness.leading():
        await harness.advance(295)
        assert len(harness.api.node_of_pods()) == 2
        await harness.advance(10)
        assert harness.api.node_of_pods() == {}
