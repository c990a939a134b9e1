"""The reference shares GPUs and offers MIG profiles as was computed by hand: rules 27a to 27i."""

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

from tests.reference.comparison import difference, difference_from, difference_report
from tests.reference.objects import (
    NOW,
    annotated,
    group,
    labelled,
    node,
    pod,
    queue,
    share,
    subgroup_spec,
    terminating,
)
from tests.reference.random_clusters.shared_gpus import shared_gpu_cluster
from tests.reference.scheduler.cycle import run_cycle
from tests.reference.scheduler.eviction import DependsOnOrder, TooManyCandidates
from tests.support.case import Case, ids
from tests.support.size import blocks, by_first_seed
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate

Obj: TypeAlias = dict[str, Any]

_THEN: Final = ("reclaim", "preempt")
_RELOCATES: Final = ("consolidation",)
_MEMORY = "nvidia.com/gpu.memory"
_MIG = "nvidia.com/mig-1g.5gb"
_LARGE_MIG = "nvidia.com/mig-3g.20gb"
_HIGH: Obj = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 90}
_SPREAD: Obj = {
    "kind": "SchedulingShard",
    "metadata": {"name": "default"},
    "spec": {"placementStrategy": {"gpu": "spread", "cpu": "binpack"}},
}


class Scene(NamedTuple):
    """Some objects, and the actions besides allocate."""

    objects: list[Obj]
    then: tuple[str, ...] = ()


def known(name: str, gpu: int, memory: str) -> Obj:
    """Return a node that states the memory of its GPUs."""
    return labelled(node(name, 64, gpu), {_MEMORY: memory})


def few_pods(name: str, gpu: int, pods: str) -> Obj:
    """Return a node that takes few pods."""
    found = node(name, 64, gpu)
    found["status"]["allocatable"]["pods"] = pods
    return found


def mig(name: str, offered: dict[str, str], labels: dict[str, str] | None = None) -> Obj:
    """Return a node that offers MIG profiles."""
    found = labelled(node(name, 64), labels or {})
    found["status"]["allocatable"].update(offered)
    return found


def alone(name: str, fraction: str = "", memory: str = "", devices: str = "") -> Obj:
    """Return a pod that waits in a PodGroup of its own."""
    return share(pod(name, labels={"kai.scheduler/queue": "q"}), fraction, memory, devices)


def there(name: str, at: str, *ids: str, fraction: str, devices: str = "") -> Obj:
    """Return a pod that has shares."""
    return share(pod(name, "r", at=at), fraction, "", devices, *ids)


def requests(name: str, resource: str, amount: str = "1", **more: Any) -> Obj:
    """Return a pod that requests a resource."""
    one = pod(name, labels={"kai.scheduler/queue": "q"}, **more)
    one["spec"]["containers"][0]["resources"]["requests"][resource] = amount
    return one


def waits(*names: str, reason: str = "NoCapacity") -> Obj:
    """Return the reasons of pods without a PodGroup."""
    return {f"pg-{name}-uid-{name}": reason for name in names}


def nominated(one: Obj, node_name: str) -> Obj:
    """Return the same pod, nominated to a node."""
    return {**one, "status": {**one["status"], "nominatedNodeName": node_name}}


def _with_expected(fraction: str) -> list[Obj]:
    """Return a pod with half a GPU, and its PodGroup, which expects another one."""
    later = {"subGroupPrefix": "l-", "replicas": 1, "count": 1, "requests": {"cpu": "1"}}
    text = json.dumps({"later": [{**later, "sharing": {"gpu-fraction": fraction}}]})
    both = group("g", subGroups=[subgroup_spec("n", 1), subgroup_spec("l-0", 1)])
    expects = annotated(both, {"trainer-kai.dev/anticipated": text})
    return [expects, share(pod("p", "g", podset="n"), "0.5")]


RUNNING: list[Obj] = [queue(), group("r", 0)]

# objects -> what is decided, without what is empty
CASES = [
    Case(
        "27a: 10,001 MiB are 0.26 of 40,000 MiB",
        Scene([queue(), known("a", 1, "40000"), alone("p", "", "10001"), alone("q", "0.741")]),
        {"binds": {"p": "a"}, "gpus": {"p": ["p"]}, "unschedulable": waits("q")},
    ),
    Case(
        "27a: memory in bytes, rounded down to 100 MiB",
        Scene([queue(), known("a", 1, str(42050 * 2**20)), alone("p", "", "42000")]),
        {"binds": {"p": "a"}, "gpus": {"p": ["p"]}},
    ),
    Case(
        "27a: a node without the label, and one with GPUs that are too small",
        Scene([queue(), node("a", 4, 1), known("b", 1, "8099"), alone("p", "", "8001")]),
        {"unschedulable": waits("p", reason="NoNodeMatches")},
    ),
    Case(
        "27b: three pods of 0.3 with the same id leave 0.1",
        Scene(
            [
                *(*RUNNING, node("a", 9, 1), alone("p", "0.11"), alone("q", "0.1")),
                *[there(f"r{i}", "a", "x", fraction="0.3") for i in range(3)],
            ]
        ),
        {"binds": {"q": "a"}, "gpus": {"q": ["x"]}, "unschedulable": waits("p")},
    ),
    Case(
        "27b: shares without an id are put together by name",
        Scene(
            [
                *(*RUNNING, node("a", 9, 3), alone("p", "0.6"), alone("q", "0.5")),
                *(there("r0", "a", fraction="0.5"), there("r1", "a", fraction="0.3")),
                *(there("r2", "a", fraction="0.2"), there("r3", "a", "x", fraction="0.4")),
            ]
        ),
        {"binds": {"p": "a", "q": "a"}, "gpus": {"p": ["x"], "q": ["q"]}},
    ),
    Case(
        "27b: a GPU with shares of terminating pods only is a whole one",
        Scene(
            [
                *(*RUNNING, node("a", 9, 1), requests("p", "nvidia.com/gpu")),
                terminating(there("r0", "a", "x", fraction="0.4")),
            ]
        ),
        {"nominations": {"p": "a"}},
    ),
    Case(
        "27c: beside the most used that has so much",
        Scene(
            [
                *(*RUNNING, node("a", 9, 3), alone("p", "0.2")),
                *(there("r0", "a", "x", fraction="0.4"), there("r1", "a", "y", fraction="0.7")),
            ]
        ),
        {"binds": {"p": "a"}, "gpus": {"p": ["y"]}},
    ),
    Case(
        "27c: spread takes a whole one first, then the least used",
        Scene(
            [
                *(*RUNNING, _SPREAD, node("a", 9, 3), group("g", 2)),
                *(share(pod("p", "g"), "0.2"), share(pod("q", "g"), "0.2")),
                *(there("r0", "a", "x", fraction="0.4"), there("r1", "a", "y", fraction="0.7")),
            ]
        ),
        {"binds": {"p": "a", "q": "a"}, "gpus": {"p": ["p+q"], "q": ["p+q"]}},
    ),
    Case(
        "27c: rather than wait beside more it takes what is idle",
        Scene(
            [
                *(*RUNNING, node("a", 9, 2), alone("p", "0.4")),
                *(there("r0", "a", "x", fraction="0.5"), there("r1", "a", "y", fraction="0.1")),
                terminating(there("r2", "a", "x", fraction="0.5")),
            ]
        ),
        {"binds": {"p": "a"}, "gpus": {"p": ["y"]}},
    ),
    Case(
        "27c: it waits for a share of a terminating pod",
        Scene(
            [
                *(*RUNNING, node("a", 9, 1), alone("p", "0.4"), alone("q", "0.2")),
                there("r0", "a", "x", fraction="0.5"),
                terminating(there("r1", "a", "x", fraction="0.4")),
            ]
        ),
        {"nominations": {"p": "a"}, "unschedulable": waits("q")},
    ),
    Case(
        "27c: a whole GPU needs a place for a reservation pod",
        Scene(
            [
                *(*RUNNING, few_pods("a", 2, "3"), alone("p", "0.6"), alone("q", "0.4")),
                *(there("r0", "a", "x", fraction="0.5"), pod("r1", "r", at="a")),
            ]
        ),
        {"binds": {"q": "a"}, "gpus": {"q": ["x"]}, "unschedulable": waits("p")},
    ),
    Case(
        "27c: shares of different GPUs",
        Scene([queue(), node("a", 9, 2), alone("p", "0.5", "", "2"), alone("q", "0.6", "", "2")]),
        {"binds": {"p": "a"}, "gpus": {"p": ["p", "p"]}, "unschedulable": waits("q")},
    ),
    Case(
        "27c: two pods may share a GPU that both wait for",
        Scene(
            [
                *(queue(), node("a", 9, 1), group("g", 2), group("r", 0)),
                *(share(pod("p", "g"), "0.5"), share(pod("q", "g"), "0.5")),
                terminating(pod("r0", "r", gpu=1, at="a")),
            ]
        ),
        {"nominations": {"p": "a", "q": "a"}},
    ),
    Case(
        "27d: a node with a shared GPU before one with fewer whole GPUs",
        Scene(
            [
                *(*RUNNING, node("a", 9, 1), node("b", 9, 4), alone("p", "0.3")),
                there("r0", "b", "x", fraction="0.5"),
            ]
        ),
        {"binds": {"p": "b"}, "gpus": {"p": ["x"]}},
    ),
    Case(
        "27d: else whole GPUs are compared",
        Scene(
            [
                *(*RUNNING, node("a", 9, 4), node("b", 9, 2), alone("p", "0.7")),
                there("r0", "b", "x", fraction="0.5"),
            ]
        ),
        {"binds": {"p": "b"}, "gpus": {"p": ["p"]}},
    ),
    Case(
        "27e: 0.125 is charged as 0.13, and 0.004 as nothing",
        Scene(
            [
                *(queue(gpu={"limit": 0.26}), node("a", 9, 1)),
                *(alone("p", "0.125"), alone("q", "0.125"), alone("r", "0.004"), alone("s", "0.1")),
            ]
        ),
        {
            "binds": {"p": "a", "q": "a", "r": "a"},
            "gpus": {name: ["p+q+r"] for name in "pqr"},
            "unschedulable": waits("s", reason="ExceedsLimit"),
        },
    ),
    Case(
        "27e: where the queue has so much left",
        Scene(
            [
                *(queue(gpu={"limit": 0.3}), alone("p", "", "20000"), alone("q", "", "20000")),
                *(known("a", 1, "40000"), known("b", 1, "80000")),
            ]
        ),
        {
            "binds": {"p": "b"},
            "gpus": {"p": ["p"]},
            "unschedulable": waits("q", reason="ExceedsLimit"),
        },
    ),
    Case(
        "27e: only the second of two would exceed the limit on the smallest GPUs",
        Scene(
            [
                *(queue(gpu={"limit": 0.5}), group("g", 2)),
                *(share(pod(name, "g"), "", "20000") for name in "pq"),
                *(known("a", 1, "40000"), known("b", 1, "80000")),
            ]
        ),
        {"binds": {"p": "b", "q": "b"}, "gpus": {"p": ["p+q"], "q": ["p+q"]}},
    ),
    Case(
        "27g: 3g is charged 3 GPUs, and .me its slices",
        Scene(
            [
                *(queue(gpu={"limit": 3}), requests("p", _LARGE_MIG), requests("q", _MIG)),
                *(mig("a", {_MIG: "7", _LARGE_MIG: "2", f"{_MIG}.me": "1"}),),
                requests("r", f"{_MIG}.me"),
            ]
        ),
        {"binds": {"p": "a"}, "unschedulable": waits("q", "r", reason="ExceedsLimit")},
    ),
    Case(
        "27g: a node that says it is no MIG node",
        Scene(
            [
                *(queue(), requests("p", _MIG), alone("q", "0.5")),
                mig(
                    "a",
                    {_MIG: "7", "nvidia.com/gpu": "1"},
                    {"node-role.kubernetes.io/mig-enabled": "f"},
                ),
            ]
        ),
        {
            "binds": {"q": "a"},
            "gpus": {"q": ["q"]},
            "unschedulable": waits("p", reason="NoNodeMatches"),
        },
    ),
    Case(
        "27g: single takes whole GPUs, mixed MIG profiles",
        Scene(
            [
                *(queue(), requests("p", _MIG), requests("q", "nvidia.com/gpu")),
                mig("a", {_MIG: "7", "nvidia.com/gpu": "7"}, {"nvidia.com/mig.strategy": "single"}),
                mig("b", {_MIG: "7", "nvidia.com/gpu": "7"}, {"nvidia.com/mig.strategy": "mixed"}),
                alone("r", "0.5"),
            ]
        ),
        {"binds": {"p": "b", "q": "a"}, "unschedulable": waits("r", reason="NoNodeMatches")},
    ),
    Case(
        "27h: it uses MIG profiles, is never placed, and keeps others away",
        Scene(
            [
                *(queue(), mig("a", {_MIG: "7"}), mig("b", {_MIG: "1"}), requests("p", _MIG)),
                annotated(pod("r", labels={"kai.scheduler/queue": "q"}, at="a"), {_MIG: "1"}),
                annotated(pod("s", labels={"kai.scheduler/queue": "q"}), {_MIG: "1"}),
            ]
        ),
        {"binds": {"p": "b"}, "unschedulable": waits("s", reason="NoNodeMatches")},
    ),
    Case(
        "27i: what cannot be meant",
        Scene(
            [
                *(queue(), known("a", 8, "40000")),
                *(
                    alone("p", "0"),
                    alone("q", "1.1"),
                    alone("r", "half"),
                    alone("s", "", "3Gi"),
                    alone("t", "", "0"),
                ),
                *(alone("u", "0.5", "", "0"), alone("v", "", "", "2"), alone("w", "0.5", "100")),
                *(alone("x", "0.5", "", "65"), share(requests("y", "nvidia.com/gpu"), "0.5")),
                alone("z", "1"),
            ]
        ),
        {
            "binds": {"z": "a"},
            "gpus": {"z": ["z"]},
            "unschedulable": waits(*"pqrstuvwxy", reason="Misconfigured"),
        },
    ),
    Case(
        "27i: a pod that is on a node and requests whole GPUs has no share",
        Scene(
            [
                *(*RUNNING, node("a", 9, 1), alone("p", "0.5")),
                share(pod("r0", "r", gpu=1, at="a"), "0.1", "", "", "x"),
            ]
        ),
        {"unschedulable": waits("p")},
    ),
    Case(
        "10b: shares are reserved on the nominated node",
        Scene(
            [
                *(*RUNNING, node("a", 9, 1), there("r0", "a", "x", fraction="0.5"), _HIGH),
                group("g", preemptibility="non-preemptible"),
                nominated(share(pod("p", "g"), "0.3"), "a"),
                *(group("h", priorityClassName="high"), share(pod("s", "h"), "0.3")),
            ]
        ),
        {"binds": {"p": "a"}, "gpus": {"p": ["x"]}, "unschedulable": {"h": "NoCapacity"}},
    ),
    Case(
        "9: shares beyond the minimum come one by one",
        Scene(
            [queue(), node("a", 9, 1), group("g", 1)]
            + [share(pod(f"p{i}", "g"), "0.4") for i in range(3)]
        ),
        {
            "binds": {"p0": "a", "p1": "a"},
            "gpus": {"p0": ["p0+p1"], "p1": ["p0+p1"]},
            "unschedulable": {"g": "NoCapacity"},
        },
    ),
    Case(
        "27: a share is reserved for an expected pod",
        Scene([queue(), node("a", 9, 1), *_with_expected("0.5")]),
        {"binds": {"p": "a"}, "gpus": {"p": ["p"]}, "reservations": {("g", "l-0", "a"): 1}},
    ),
    Case(
        "27: without a share for an expected pod no pod starts",
        Scene([queue(), node("a", 9, 1), *_with_expected("0.6")]),
        {"unschedulable": {"g": "NoCapacity"}},
    ),
    Case(
        "39: all shares of a GPU are reclaimed for a whole one",
        Scene(
            [
                *(queue("q", gpu={"quota": 0}), queue("o", gpu={"quota": 1}), node("a", 9, 1)),
                *(group("g", 1), share(pod("g0", "g", at="a"), "0.5", "", "", "x")),
                *(group("h", 1), share(pod("h0", "h", at="a"), "0.5", "", "", "x")),
                pod("p", gpu=1, labels={"kai.scheduler/queue": "o"}),
            ],
            ("reclaim",),
        ),
        {"nominations": {"p": "a"}, "evictions": dict.fromkeys(("g0", "h0"), "reclaim")},
    ),
    Case(
        "39: one share is reclaimed, and the other stays",
        Scene(
            [
                *(queue("q", gpu={"quota": 0}), queue("o", gpu={"quota": 1}), node("a", 9, 1)),
                *(group("g", 1), share(pod("g0", "g", at="a"), "0.3", "", "", "x")),
                *(group("h", 1), share(pod("h0", "h", at="a"), "0.7", "", "", "x")),
                share(pod("p", labels={"kai.scheduler/queue": "o"}), "0.6"),
            ],
            ("reclaim",),
        ),
        {"nominations": {"p": "a"}, "evictions": {"h0": "reclaim"}},
    ),
    Case(
        "40b: a share is relocated beside another",
        Scene(
            [
                *(queue(), node("a", 9, 1), node("b", 9, 1), alone("p", "0.6")),
                *(group("g", 1), share(pod("g0", "g", at="a"), "0.5", "", "", "x")),
                *(group("h", 1), share(pod("h0", "h", at="b"), "0.5", "", "", "y")),
            ],
            ("consolidation",),
        ),
        {
            "nominations": {"p": "b"},
            "evictions": {"h0": "consolidation"},
            "reservations": {("h", "default", "a"): 1},
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_cycle(case: Case[Scene, Obj]) -> None:
    """Each decision is the one worked out by hand, in whatever order the objects are."""
    for objects in (case.given.objects, case.given.objects[::-1]):
        outcome = run_cycle(objects, NOW, case.given.then)
        found = {
            "binds": {pod: node for (_, pod), node in outcome.binds.items()},
            "gpus": {pod: gpus for (_, pod), gpus in outcome.gpus.items()},
            "nominations": {pod: node for (_, pod), node in outcome.nominations.items()},
            "evictions": {pod: action for (_, pod), action in outcome.evictions.items()},
            "reservations": {place[1:]: n for place, n in outcome.reservations.items()},
            "unschedulable": {name: reason for (_, name), reason in outcome.unschedulable.items()},
        }
        assert {name: value for name, value in found.items() if value} == case.want


def play(objects: Sequence[Obj], then: Sequence[str] = _THEN) -> Mapping[str, Any]:
    """Ask the product."""
    return simulate(objects, SimulationOptions(actions=("allocate", *then), kueue=True))


def place(objects: Sequence[Obj]) -> Mapping[str, Any]:
    """Ask the product to evict no pods."""
    return play(objects, ())


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_reference_and_product_share_alike(block: range) -> None:
    """The same pods are on the same GPUs, and everything else is the same, too."""
    sharing = 0
    for seed in block:
        objects = shared_gpu_cluster(Random(seed), few_pods=True)
        decided = run_cycle(objects)
        sharing += bool(decided.gpus)
        if difference_from(decided, objects, place):
            pytest.fail(difference_report(seed, objects, place), pytrace=False)
    assert block.start or sharing >= 0.3 * len(block)


def depends_on_order(objects: Sequence[Obj], then: Sequence[str]) -> bool:
    """Say whether more victims would leave less free: then the product may find others.

    That is so in less than one of 500 clusters.
    """
    try:
        run_cycle(objects, then=then, checks_order=True)
    except DependsOnOrder:
        return True
    return False


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_they_evict_shares_alike(block: range) -> None:
    """An evicted share releases a part of its GPU, and all shares of a GPU a whole GPU."""
    evicting = looked_at = 0
    for seed in block:
        objects = shared_gpu_cluster(Random(seed))
        try:
            decided = run_cycle(objects, then=_THEN)
        except TooManyCandidates:
            continue
        looked_at += 1
        evicting += bool(decided.evictions)
        if difference_from(decided, objects, play) and not depends_on_order(objects, _THEN):
            pytest.fail(difference_report(seed, objects, play, _THEN), pytrace=False)
    assert looked_at >= 0.9 * len(block)
    assert block.start or evicting >= 0.05 * len(block)


def relocate(objects: Sequence[Obj]) -> Mapping[str, Any]:
    """Ask the product to relocate only."""
    return play(objects, _RELOCATES)


@pytest.mark.parametrize("block", blocks(50), ids=by_first_seed)
def test_they_relocate_shares_alike(block: range) -> None:
    """Of clusters in which shares divide each other: where they are, more evictions free more.

    Seeds 3269 and 20032 differ: the places of several PodGroups are put on GPUs in another order.
    """
    moving = looked_at = 0
    for seed in block:
        objects = shared_gpu_cluster(Random(seed), is_even=True)
        try:
            decided = run_cycle(objects, then=_RELOCATES)
        except TooManyCandidates:
            continue
        looked_at += 1
        moving += bool(decided.evictions)
        differs = difference_from(decided, objects, relocate)
        if differs and not depends_on_order(objects, _RELOCATES):
            pytest.fail(difference_report(seed, objects, relocate, _RELOCATES), pytrace=False)
    assert looked_at >= 0.9 * len(block)
    assert block.start or moving >= 0.03 * len(block)


_MODES: Final[tuple[tuple[dict[str, bool], Callable[..., Any], tuple[str, ...]], ...]] = (
    ({"few_pods": True}, place, ()),
    ({}, play, _THEN),
    ({"is_even": True}, relocate, _RELOCATES),
)


def report_of(seed: int) -> str:
    """Return how the two differ on a cluster, if they do; each mode has every third one."""
    settings, ask, then = _MODES[seed % len(_MODES)]
    objects = shared_gpu_cluster(Random(seed), **settings)
    try:
        if not difference(objects, ask, then) or depends_on_order(objects, then):
            return ""
    except TooManyCandidates:
        return ""
    return difference_report(seed, objects, ask, then)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100_000, 120_000, 5_000))
def test_they_agree_on_many_clusters(first: int) -> None:
    """Of a thousand clusters one may differ: see the known limits of shares of GPUs."""
    reports = [*filter(None, map(report_of, range(first, first + 5_000)))]
    print(f"{len(reports)} of 5,000 clusters from seed {first:,} on differ")
    if len(reports) > 5:
        pytest.fail("\n\n".join(reports), pytrace=False)
