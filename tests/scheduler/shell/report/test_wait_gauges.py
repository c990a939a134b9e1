"""The gauges of the longest waits: set when they are read."""

from typing import Any

import pytest

from scheduler.state.inputs import format_timestamp
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, group, node, pod
from trainer_kai.api.names import GPU
from trainer_kai.service.metrics import Metrics

SIZES = ("1", "2-7", "8-15", "16-31", "32+")


def waits(metrics: Metrics) -> dict[str, float]:
    """Read all metrics; return the waits without zeros, by size."""
    found = {
        sample.labels["gpus"]: sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if metric.name == "trainer_kai_longest_wait_seconds"
    }
    assert found.keys() == {*SIZES} or not found
    return {size: value for size, value in found.items() if value}


def made(seconds: int) -> dict[str, Any]:
    """Return the metadata of an object that was created so long before the scheduler began."""
    return {"creationTimestamp": format_timestamp(NOW - seconds)}


def waiting(name: str, gpus: int, age_s: int, count: int = 1) -> list[dict[str, Any]]:
    """Return a PodGroup that was created a day before its pods."""
    asks = {GPU: str(gpus)}
    pods = [pod(f"{name}{i}", name, asks=asks, meta=made(age_s)) for i in range(count)]
    return [group(name, minMember=count, meta=made(age_s + 86_400)), *pods]


async def test_the_longest_wait_of_each_size(harness: SchedulerHarness) -> None:
    """Since its pods were created: the PodGroup may be older; it grows until they start."""
    harness.api.put(node("a"), pod("old", node="a", asks={GPU: "8"}))
    harness.api.put(*waiting("x", 4, 100, 2), *waiting("y", 8, 300), *waiting("z", 2, 200))
    harness.api.put(*waiting("l", 4, 50, 9), *waiting("m", 4, 70, 4))
    assert waits(harness.metrics) == {}
    async with harness.leading():
        await harness.advance(9.9)
        first = {"2-7": 210, "8-15": 310, "16-31": 80, "32+": 60}
        assert waits(harness.metrics) == first
        await harness.advance(3600)
        assert waits(harness.metrics) == {size: it + 3600 for size, it in first.items()}
        harness.api.delete("Pod", "old")
        await harness.advance(10)
        assert "y0" in harness.api.node_of_pods()
        assert waits(harness.metrics)["8-15"] == 3720  # of the next one
    assert waits(harness.metrics) == {}  # another process may lead


SMALL: list[Case[list[dict[str, Any]], dict[str, float]]] = [
    Case("one GPU", waiting("g", 1, 60), {"1": 70}),
    Case(
        "parts of GPUs are rounded up",
        [
            group("g", minMember=3),
            *(
                pod(f"g{i}", "g", asks={}, annotations={"gpu-fraction": "0.5"}, meta=made(60))
                for i in range(3)
            ),
        ],
        {"2-7": 70},
    ),
    Case("no GPU", [pod("p", asks={"cpu": "99"}, meta=made(60))], {}),
    Case("a pod that has no PodGroup", [pod("p", meta=made(60))], {"1": 70}),
    Case(
        "the minimum counts",
        [group("g", minMember=2), *(pod(f"g{i}", "g", meta=made(60 + i)) for i in range(9))],
        {"2-7": 78},
    ),
    Case(
        "pods of different sizes are added up",
        [
            group("g", minMember=3),
            pod("g0", "g", asks={"cpu": "1"}, meta=made(70)),
            *(pod(f"g{i}", "g", asks={GPU: "8"}, meta=made(60)) for i in (1, 2, 3)),
        ],
        {"16-31": 80},
    ),
    Case(
        "pods that do not exist yet are like the first one",
        [group("g", minMember=2), pod("g0", "g", asks={GPU: "8"}, meta=made(60))],
        {"16-31": 70},
    ),
    Case(
        "sub-groups are added up",
        [
            group("g", subGroups=[{"name": it, "minMember": 1} for it in ("a", "b")]),
            pod("g0", "g", "a", meta=made(60)),
            pod("g1", "g", "b", asks={GPU: "8"}, meta=made(90)),
        ],
        {"8-15": 100},
    ),
    Case(
        "pods that join a PodGroup that runs",
        [group("g", minMember=1), pod("r", "g", node="b"), pod("g0", "g", meta=made(60))],
        {},
    ),
    Case("pods that are held back", [pod("p", schedulingGates=[{"name": "x"}], meta=made(60))], {}),
]


@pytest.mark.parametrize("case", SMALL, ids=ids)
async def test_who_counts(
    harness: SchedulerHarness, case: Case[list[dict[str, Any]], dict[str, float]]
) -> None:
    """On a full cluster, after ten seconds."""
    nodes = node("a", gpu=1), node("b", gpu=1)
    harness.api.put(*nodes, pod("old", node="a"), pod("other", node="b"), *case.given)
    async with harness.leading():
        await harness.advance(9.9)
        assert waits(harness.metrics) == case.want
