"""The gauges of idle GPUs that no pod that waits can use: set when they are read."""

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.shell.report.unusable_gpu_gauges import UnusableGpuGauges
from tests.support.snapshot.builder import Builder, SnapshotNode, signature
from trainer_kai.service.metrics import Metrics

POLICIES = build_policies(PolicySelection())


def read(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Read all metrics; return the two gauges without zeros, by node and cause."""
    return {
        (sample.labels.get("node", ""), sample.labels["cause"]): sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if metric.name.endswith("unusable_gpus") and sample.value
    }


def planned(gauges: UnusableGpuGauges, *nodes: SnapshotNode) -> None:
    builder = Builder(nodes)
    builder.uniform_podgroup(1, signature(gpu=2, cpu=8))
    snapshot = builder.snapshot()
    gauges.planned(snapshot, plan(snapshot, POLICIES))


def test_they_say_what_the_last_plan_left() -> None:
    """A node without any has no series any more."""
    metrics = Metrics()
    gauges = UnusableGpuGauges(metrics)
    assert read(metrics) == {}
    planned(gauges, SnapshotNode(cpu=4), SnapshotNode(gpu=1))
    wanted = {
        ("", "cpu"): 8,
        ("", "node_too_small"): 1,
        ("node-0", "cpu"): 8,
        ("node-1", "node_too_small"): 1,
    }
    assert [read(metrics), read(metrics)] == [wanted] * 2
    planned(gauges, SnapshotNode(gpu=1))
    assert read(metrics) == {("", "node_too_small"): 1, ("node-0", "node_too_small"): 1}
    planned(gauges, SnapshotNode(gpu=3))  # the pod is placed
    assert read(metrics) == {}


def test_few_nodes_have_series() -> None:
    metrics = Metrics()
    planned(UnusableGpuGauges(metrics), *[SnapshotNode(gpu=1)] * 150, SnapshotNode(cpu=4))
    found = read(metrics)
    assert (len([it for it in found if it[0]]), found["", "node_too_small"]) == (100, 150)
    assert ("node-150", "cpu") in found  # it has the most
