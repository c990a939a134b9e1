"""Places in the line while pods are bound, while other processes lead, and with any deadline."""

import json
from typing import Any

import pytest
from prometheus_client import generate_latest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import gang, node, pod, queue, trainjob
from trainer_kai.service.metrics import Metrics

RESERVE = {"annotations": {"trainer-kai.dev/queue-order": "reserve"}}


def line(harness: SchedulerHarness) -> dict[str, Any]:
    annotations = harness.api.get("PodGroup", "g")["metadata"].get("annotations", {})
    found: dict[str, Any] = json.loads(annotations.get("trainer-kai.dev/line") or "{}")
    return found


def kept_gpu_seconds(metrics: Metrics) -> float:
    lines = generate_latest(metrics.registry).decode().splitlines()
    (found,) = [it for it in lines if it.startswith("trainer_kai_kept_gpu_seconds_total ")]
    return float(found.split()[-1])


@pytest.fixture
def waiting(harness: SchedulerHarness) -> SchedulerHarness:
    """Return two nodes, of which one is free, and a gang that waits for both."""
    nodes = node("a", gpu=1), node("b", gpu=1)
    harness.api.put(queue(meta=RESERVE), *nodes, pod("old", node="b"), *gang("g", 2))
    return harness


async def test_a_refused_bind_costs_no_place(waiting: SchedulerHarness) -> None:
    """The gang waits as long as before; with its bind the place ends."""
    async with waiting.leading():
        await waiting.advance(2400)
        since = line(waiting)["since"]
        assert line(waiting)["nextSince"]
        waiting.api.refuse_with = lambda what: (
            403 if what.startswith(("bind", "create pods/binding")) else None
        )
        waiting.api.delete("Pod", "old")
        await waiting.advance(20)
        assert not {"g0", "g1"} & waiting.api.node_of_pods().keys()
        assert line(waiting)["since"] == since
        waiting.api.refuse_with = lambda _: None
        await waiting.advance(120)
        assert {"g0", "g1"} <= waiting.api.node_of_pods().keys()
        assert not line(waiting)


async def test_nothing_is_kept_while_another_process_leads(waiting: SchedulerHarness) -> None:
    """The metric does not count that time."""
    async with waiting.leading():
        await waiting.advance(1900)
    before = kept_gpu_seconds(waiting.metrics)
    assert before
    await waiting.advance(36_000)
    async with waiting.lead_again().leading():
        await waiting.advance(1)
    assert kept_gpu_seconds(waiting.metrics) < before + 120


async def test_a_deadline_of_any_size_stops_nothing(harness: SchedulerHarness) -> None:
    """Of a TrainJob on a node for which a gang waits."""
    job, *others = trainjob("t", "b")
    job["metadata"]["creationTimestamp"] = "2026-01-05T07:00:00Z"
    job["spec"]["activeDeadlineSeconds"] = 10**12
    harness.api.put(queue(meta=RESERVE), queue("borrower", meta=RESERVE))
    harness.api.put(node("a", gpu=2), node("b", gpu=2), job, *others, *gang("g", 4))
    async with harness.leading():  # it asserts that no task has ended
        await harness.advance(1900)
        assert line(harness)
        harness.api.put(*gang("w", 2))
        await harness.advance(5)
