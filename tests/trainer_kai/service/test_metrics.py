"""The list of metrics: its names, and that two sets count apart."""

import re

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest

from trainer_kai.service.metrics import Metric, Metrics, all_metrics

METRICS = all_metrics()
# Each has a handful of values, or as many as there are kinds, queues and leases in the program.
SMALL_LABELS = {
    "action",
    "cause",
    "configuration",
    "gpus",
    "kind",
    "lease",
    "name",
    "outcome",
    "part",
    "resource",
    "status",
    "type",
    "verb",
}
SMALL_LABELS |= {"queue_name", "reason"}
SMALL_LABELS |= {"node"}  # at most 100 of them


def shown(metrics: Metrics) -> list[str]:
    text = generate_latest(metrics.registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_names_follow_the_convention(metric: Metric[Counter | Gauge | Histogram]) -> None:
    """Counters end in _total, histograms in their unit; all begin with our name, or with KAI's."""
    endings = {Counter: r"_total", Histogram: r"_(seconds|bytes)", Gauge: r"(?<!_total)"}

    assert re.fullmatch(rf"(trainer_)?kai_[a-z0-9]+(_[a-z]+)*{endings[metric.kind]}", metric.name)
    assert metric.doc.endswith(".")
    assert SMALL_LABELS.issuperset(metric.labels)


def test_the_attribute_says_the_name() -> None:
    """The name of an attribute leads to the metric, and the other way round."""
    ours = {name: it for name, it in METRICS.items() if it.name.startswith("trainer_kai_")}

    assert [metric.name for metric in ours.values()] == [
        f"trainer_kai_{attribute}{'_total' if metric.kind is Counter else ''}"
        for attribute, metric in ours.items()
    ]


def test_gauges_may_be_set_when_they_are_read() -> None:
    """The same reader sees them, and the next one sees them anew."""
    metrics, seen = Metrics(), iter((2, 3))
    metrics.call_before_reads(lambda: metrics.unusable_gpus.labels("cpu").set(next(seen)))

    series = 'trainer_kai_unusable_gpus{cause="cpu"}'
    assert [f"{series} {it}.0" in shown(metrics) for it in (2, 3)] == [True, True]


def test_all_are_there_before_anything_happened() -> None:
    """A metric that appears with its first value looks like one that is misspelt before that."""
    text = generate_latest(Metrics().registry).decode()

    listed = set(re.findall(r"^# TYPE ((?:trainer_)?kai_\w+) ", text, re.MULTILINE))
    assert listed == {metric.name for metric in METRICS.values()}


def test_the_process_is_measured_as_well() -> None:
    """Memory, processor time and files of the process, under the names everyone uses."""
    names = {re.split(r"[ {]", line)[0] for line in shown(Metrics())}

    wanted = {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
    assert wanted | {"python_info", "python_gc_collections_total"} <= names
    assert not [name for name in names if name.endswith("_created")]


def test_two_sets_count_apart() -> None:
    first, second = Metrics(), Metrics()

    first.api_requests.labels("get", "pods", "2xx").inc()

    line = 'trainer_kai_api_requests_total{resource="pods",status="2xx",verb="get"} 1.0'
    assert line in shown(first)
    assert not [other for other in shown(second) if "api_requests_total{" in other]


def test_a_metric_is_the_same_at_every_look() -> None:
    """It is made once; a second one would start from nothing."""
    metrics = Metrics()

    assert metrics.api_requests is metrics.api_requests


def test_a_work_queue_tells_its_numbers_under_its_name() -> None:
    """Depth, waiting, work and retries of one queue, beside those of another."""
    metrics = Metrics()
    queue = metrics.work_queue("jobsets")
    metrics.work_queue("pods").set_depth(9)

    queue.set_depth(3)
    queue.set_depth(2)
    queue.waited(0.25)
    queue.worked(1.5)
    queue.worked(0.5)
    queue.retried()

    of_ours = [line for line in shown(metrics) if 'name="jobsets"' in line]
    assert [line for line in of_ours if "_bucket" not in line] == [
        'trainer_kai_work_queue_depth{name="jobsets"} 2.0',
        'trainer_kai_work_queue_wait_seconds_count{name="jobsets"} 1.0',
        'trainer_kai_work_queue_wait_seconds_sum{name="jobsets"} 0.25',
        'trainer_kai_work_queue_work_seconds_count{name="jobsets"} 2.0',
        'trainer_kai_work_queue_work_seconds_sum{name="jobsets"} 2.0',
        'trainer_kai_work_queue_retries_total{name="jobsets"} 1.0',
    ]
