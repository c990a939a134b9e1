"""Which PodGroups keep their minimum because of a minimum runtime (rule 36a)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler.core.model.podgroup import PodSet
from scheduler.core.model.result import Plan
from scheduler.core.plan import plan
from scheduler.policies.registry import PluginSelection, PolicySelection, build_policies
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature

ONE = signature(gpu=1)
NOW = 1000


def policies(**arguments: str) -> Any:
    return build_policies(PolicySelection({"minruntime": PluginSelection(arguments=arguments)}))


def described(answer: Plan) -> str:
    return " ".join(f"{','.join(map(str, it.podgroups))}:{len(it.pods)}" for it in answer.evictions)


def lost(builder: Builder, configured: Any = None) -> str:
    return described(plan(builder.snapshot(now=NOW), configured or policies()))


def lent(queue: SnapshotQueue, *, running_since: int, is_pipelined: int = 1) -> Builder:
    """Return what a queue has of another, job by job."""
    builder = Builder([SnapshotNode()], [queue, SnapshotQueue("b", quota=8)])
    for _ in range(8):
        builder.running_podgroup([0], ONE, queue=queue.name, running_since=running_since)
    builder.uniform_podgroup(is_pipelined, ONE, queue="b")
    return builder


# since when all of A run, and their minimum runtime -> which PodGroup loses pods
RUNS = [
    Case("for long enough", (900, 100), "7:1"),
    Case("a second too short", (901, 100), ""),
    Case("the start is unknown", (0, 100), "7:1"),
    Case("nothing is promised", (1000, 0), "7:1"),
    Case("nothing is said", (1000, -1), "7:1"),
]


@pytest.mark.parametrize("case", RUNS, ids=ids)
def test_how_long(case: Case[tuple[int, int], str]) -> None:
    """The second at which it is over counts already."""
    running_since, seconds = case.given
    assert (
        lost(lent(SnapshotQueue("a", reclaim_min_runtime_s=seconds), running_since=running_since))
        == case.want
    )


def test_others_go_instead() -> None:
    """The youngest would be the first; it has just begun."""
    builder = lent(SnapshotQueue("a", reclaim_min_runtime_s=100), running_since=500)
    builder.podgroups[7] = replace(builder.podgroups[7], running_since=999)
    assert lost(builder) == "6:1"


def test_each_action_has_its_own_minimum_runtime() -> None:
    """What others of the queue may not take, another queue may."""
    assert lost(lent(SnapshotQueue("a", preempt_min_runtime_s=100), running_since=1000)) == "7:1"


@pytest.mark.parametrize(("seconds", "want"), [(100, ""), (50, "0:1")])
def test_preempt(seconds: int, want: str) -> None:
    """In a queue its own word counts, or what is said above it."""
    tree = [
        SnapshotQueue("top", preempt_min_runtime_s=seconds),
        SnapshotQueue("a", quota=8, parent="top"),
    ]
    builder = Builder([SnapshotNode(gpu=1)], tree)
    builder.running_podgroup([0], ONE, priority=40, running_since=950)
    builder.uniform_podgroup(1, ONE)
    assert lost(builder) == want
    assert lost(builder, policies(defaultPreemptMinRuntime="1h")) == want


def test_what_comes_on_top_goes_anyway() -> None:
    """An elastic PodGroup keeps its minimum, and no PodGroup gets room from that."""
    builder = Builder(
        [SnapshotNode()],
        [SnapshotQueue("a", reclaim_min_runtime_s=100), SnapshotQueue("b", quota=8)],
    )
    builder.running_podgroup([0] * 8, ONE, queue="a", minimum=6, running_since=1000)
    builder.uniform_podgroup(1, ONE, queue="b")
    builder.uniform_podgroup(4, ONE, queue="b")
    assert lost(builder) == "0:1"


def test_one_of_a_jobset_keeps_all() -> None:
    builder = Builder(
        [SnapshotNode()],
        [SnapshotQueue("a", reclaim_min_runtime_s=100), SnapshotQueue("b", quota=8)],
    )
    builder.running_podgroup([0] * 4, ONE, queue="a", workload="j", running_since=1)
    builder.running_podgroup([0] * 4, ONE, queue="a", workload="j", running_since=950)
    builder.uniform_podgroup(1, ONE, queue="b")
    assert lost(builder) == ""


TREE: Mapping[str, str] = {"x": "", "y": "x", "a": "y", "z": "x", "b": "z", "c": "y", "d": ""}
HAS_QUOTA = {"b": "xzb", "c": "xyc", "d": "d"}  # the queues with the requested quota
_HOUR = {"defaultReclaimMinRuntime": "1h"}
_AT_LEAF = {"reclaimResolveMethod": "queue"}

# seconds by queue, the reclaimer's queue, the settings -> whether A keeps what it has
CONFIGURED: list[Case[tuple[dict[str, int], str, dict[str, str]], bool]] = [
    Case("none", ({}, "b", {}), False),
    Case("none, to a sibling queue", ({}, "c", {}), False),
    Case("none, to another top queue", ({}, "d", {}), False),
    Case("none, and the setting does", ({}, "b", _HOUR), True),
    Case("the queue itself, of another branch", ({"a": 100}, "b", {}), False),
    Case("the queue itself is asked", ({"a": 100}, "b", _AT_LEAF), True),
    Case("the queue itself, of a sister", ({"a": 100}, "c", {}), True),
    Case("just below the common one", ({"y": 100}, "b", {}), True),
    Case("that of a sister", ({"y": 100}, "c", {}), True),
    Case("the common one", ({"x": 100}, "b", {}), True),
    Case("the nearest counts", ({"x": 100, "y": 0}, "b", {}), False),
    Case("another top, what the top says", ({"x": 100}, "d", {}), True),
    Case("another top, what is below it", ({"y": 100, "a": 100}, "d", _HOUR | {}), True),
    Case("another top, and only below it is said", ({"y": 100, "a": 100}, "d", {}), False),
    Case("the leaf queue says none, the site an hour", ({"a": 0}, "b", _HOUR | _AT_LEAF), False),
    Case("from the leaf queue up", ({"x": 100}, "b", _AT_LEAF), True),
    Case("the reclaimer's queue does not count", ({"b": 100, "z": 100}, "b", {}), False),
]


@pytest.mark.parametrize("case", CONFIGURED, ids=ids)
def test_which_queue_counts(case: Case[tuple[dict[str, int], str, dict[str, str]], bool]) -> None:
    """From just below the common ancestor up, or from the leaf queue up; then the site."""
    dump, reclaimers, configured = case.given
    queues = [
        SnapshotQueue(
            name,
            parent,
            quota=int(name in HAS_QUOTA[reclaimers]),
            reclaim_min_runtime_s=dump.get(name, -1),
        )
        for name, parent in TREE.items()
    ]
    builder = Builder([SnapshotNode(gpu=1)], queues)
    builder.running_podgroup([0], ONE, queue="a", running_since=950)
    builder.uniform_podgroup(1, ONE, queue=reclaimers)
    assert (lost(builder, policies(**configured)) == "") == case.want


def test_a_site_may_turn_it_off() -> None:
    off = build_policies(PolicySelection({"minruntime": PluginSelection(enabled=False)}))
    assert (
        lost(lent(SnapshotQueue("a", reclaim_min_runtime_s=100), running_since=1000), off) == "7:1"
    )


def test_reserved_places_are_protected_as_well() -> None:
    """They are a part of what it has; without since nothing is."""
    builder = Builder(
        [SnapshotNode()],
        [SnapshotQueue("a", reclaim_min_runtime_s=100), SnapshotQueue("b", quota=8)],
    )
    row = builder.signature_row(ONE)
    for _ in range(7):
        builder.pod_on_node(0, row)
    builder.podgroup(PodSet("default", 7, running=7), queue="a", is_kept=True, running_since=950)
    builder.uniform_podgroup(8, ONE, queue="b")
    assert lost(builder) == ""
