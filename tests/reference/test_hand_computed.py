"""The reference decides what was computed by hand."""

import json
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.reference.objects import NOW, group, node, pod, queue, subgroup_spec, terminating
from tests.reference.scheduler.cycle import CycleResult, run_cycle
from tests.reference.scheduler.fair_share import ResourceShare, divide
from tests.support.case import Case, ids

Obj: TypeAlias = dict[str, Any]


class Division(NamedTuple):
    """An amount, and the queues that share it."""

    total: int
    resource_shares: list[ResourceShare]


def resource_share(quota: int, weight: int, requested: Any, **more: Any) -> ResourceShare:
    """Write a claim as the table does."""
    return ResourceShare(quota, weight, Fraction(str(requested)), **more)


_CLASS: Obj = {"kind": "PriorityClass", "value": 2 * 10**9}
_SYSTEM: Obj = {"priorityClassName": "system"}
_OF_Q: Obj = {"kai.scheduler/queue": "q"}

# an amount and claims -> the shares, and what is left; the rows are KAI's
DIVISIONS = [
    Case(
        "all content", Division(15, [resource_share(2, 2, 6), resource_share(2, 2, 6)]), ([6, 6], 3)
    ),
    Case(
        "all just content",
        Division(12, [resource_share(2, 2, 6), resource_share(2, 2, 6)]),
        ([6, 6], 0),
    ),
    Case("by weight", Division(8, [resource_share(2, 1, 6), resource_share(2, 3, 6)]), ([3, 5], 0)),
    Case(
        "up to a limit",
        Division(12, [resource_share(2, 2, 6, limit=5), resource_share(2, 2, 6)]),
        ([5, 6], 1),
    ),
    Case(
        "the larger rest",
        Division(11, [resource_share(2, 1, 10), resource_share(2, 4, 10)]),
        ([3, 8], 0),
    ),
    Case(
        "of equal rests the older",
        Division(11, [resource_share(2, 2, 6, created="2"), resource_share(2, 2, 6, created="1")]),
        ([5, 6], 0),
    ),
    Case(
        "by priority",
        Division(6, [resource_share(2, 2, 6, priority=1), resource_share(2, 2, 6, priority=2)]),
        ([2, 4], 0),
    ),
    Case(
        "priority before weight",
        Division(6, [resource_share(2, 100, 6, priority=1), resource_share(2, 1, 6, priority=2)]),
        ([2, 4], 0),
    ),
    Case(
        "a rest is given once",
        Division(10, [resource_share(0, 1, 4.3), resource_share(0, 1, 9), resource_share(0, 1, 9)]),
        ([4, 3, 3], 0),
    ),
    Case(
        "quotas are not scaled",
        Division(3, [resource_share(2, 1, 5), resource_share(2, 1, 5)]),
        ([2, 2], -1),
    ),
    Case(
        "a quota without bound",
        Division(3, [resource_share(-1, 1, 5), resource_share(1, 1, 5)]),
        ([3, 1], -1),
    ),
    Case(
        "a second round",
        Division(12, [resource_share(0, 1, 1), resource_share(0, 1, 9), resource_share(0, 1, 9)]),
        ([1, 6, 5], 0),
    ),
    Case(
        "a queue that gets all it requests remembers no fraction",
        Division(5, [resource_share(0, 1, 1), resource_share(0, 1, 3)]),
        ([1, 3], 1),
    ),
    Case(
        "one device for two",
        Division(1, [resource_share(0, 1, 1), resource_share(0, 1, 1)]),
        ([1, 0], 0),
    ),
]

ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "x"}},
            }
        ]
    }
}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "x"}},
}
LATER = {"later": [{"subGroupPrefix": "l-", "replicas": 1, "count": 1, "requests": {"cpu": "2"}}]}


def with_namespace(name: str, **more: Any) -> Obj:
    """Return a pod that says what it is."""
    return pod(name, "g", labels={"app": "x"}, **more)


def annotated(one: Obj, value: Obj) -> Obj:
    """Return a group that says what is to come."""
    text = {"trainer-kai.dev/anticipated": json.dumps(value)}
    return {**one, "metadata": {**one["metadata"], "annotations": text}}


def below(name: str, queue_name: str, **more: Any) -> Obj:
    """Return a pod without a group, in a queue."""
    return pod(name, labels={"kai.scheduler/queue": queue_name}, **more)


# objects -> what is decided, without what is empty
PLACEMENTS = [
    Case(
        "the fuller node",
        [queue(), node("a"), node("b"), group("g"), pod("p", "g")]
        + [pod(f"r{i}", at="b", scheduler="other") for i in range(2)],
        {"binds": {"p": "b"}},
    ),
    Case(
        "equal nodes by name",
        [queue(), node("b"), node("a"), group("g"), pod("p", "g")],
        {"binds": {"p": "a"}},
    ),
    Case(
        "a pod without GPUs leaves GPUs alone",
        [queue(), node("a", 2, 4), node("b", 8), group("g"), pod("p", "g")],
        {"binds": {"p": "b"}},
    ),
    Case(
        "all or nothing, and a PodGroup that fits starts",
        [
            *(queue(), node("a", 3), group("g", 4), group("h")),
            *[pod(f"p{i}", "g") for i in range(4)],
            pod("q", "h"),
        ],
        {"binds": {"q": "a"}, "unschedulable": {"g": "NoCapacity"}},
    ),
    Case(
        "what is beyond the minimum comes one by one",
        [queue(), node("a", 2), group("g", 1), *[pod(f"p{i}", "g") for i in range(3)]],
        {"binds": {"p0": "a", "p1": "a"}, "unschedulable": {"g": "NoCapacity"}},
    ),
    Case(
        "if one of a gang must wait, all do",
        [
            *(queue(), node("a", 1), node("b", 1), group("g", 2), pod("p0", "g"), pod("p1", "g")),
            terminating(pod("r", at="b", scheduler="other")),
        ],
        {"nominations": {"p0": "a", "p1": "b"}},
    ),
    Case(
        "one beyond the minimum may wait alone",
        [
            *(queue(), node("a", 1), node("b", 1), group("g", 1), pod("p0", "g"), pod("p1", "g")),
            terminating(pod("r", at="b", scheduler="other")),
        ],
        {"binds": {"p0": "a"}, "nominations": {"p1": "b"}},
    ),
    Case(
        "two minutes overdue are stuck",
        [
            *(queue(), node("a", 1), group("g"), pod("p", "g")),
            terminating(pod("r", at="a", scheduler="other"), "2026-01-01T00:57:59Z"),
        ],
        {"unschedulable": {"g": "NoCapacity"}},
    ),
    Case(
        "enough room in two pieces",
        [queue(), node("a", 3), node("b", 3), group("g"), pod("p", "g", 3)]
        + [pod(f"at-{name}", at=name, scheduler="other") for name in "ab"],
        {"unschedulable": {"g": "Fragmented"}},
    ),
    Case(
        "larger than any node",
        [queue(), node("a"), node("b"), group("g"), pod("p", "g", 5)],
        {"unschedulable": {"g": "NoNodeMatches"}},
    ),
    Case(
        "the only node that would do is cordoned",
        [queue(), node("a", spec={"unschedulable": True}), group("g"), pod("p", "g")],
        {"unschedulable": {"g": "NoNodeMatches"}},
    ),
    Case(
        "three that shun each other do not fit on two nodes",
        [queue(), node("a"), node("b"), group("g", 3)]
        + [with_namespace(f"p{i}", affinity=ANTI) for i in range(3)],
        {"unschedulable": {"g": "NoNodeMatches"}},
    ),
    Case(
        "anti-affinity holds for both pods",
        [
            *(queue(), node("a"), node("b", 3), group("g", 0)),
            pod("r", at="a", labels={"app": "x"}, scheduler="other"),
            *(with_namespace("p", affinity=ANTI), with_namespace("s")),
        ],
        {"binds": {"p": "b", "s": "a"}},
    ),
    Case(
        "spread over zones",
        [queue(), node("a", 9, zone="x"), node("b", 9, zone="y"), group("g", 4)]
        + [with_namespace(f"p{i}", topologySpreadConstraints=[SPREAD]) for i in range(4)],
        {"binds": {"p0": "a", "p1": "b", "p2": "a", "p3": "b"}},
    ),
    Case(
        "a host port is taken once",
        [queue(), node("a"), node("b"), group("g", 2)]
        + [pod(f"p{i}", "g", ports=[{"hostPort": 80}]) for i in range(2)],
        {"binds": {"p0": "a", "p1": "b"}},
    ),
    Case(
        "above its limit",
        [queue(cpu={"limit": 2000}), node("a"), group("g", 3)]
        + [pod(f"p{i}", "g") for i in range(3)],
        {"unschedulable": {"g": "ExceedsLimit"}},
    ),
    Case(
        "above the quota of the parent, and not to be preempted",
        [
            *(queue("q", "top"), queue("top", cpu={"quota": 500}), node("a")),
            *(group("g", preemptibility="non-preemptible"), pod("p", "g")),
        ],
        {"unschedulable": {"g": "NonPreemptibleOverQuota"}},
    ),
    Case(
        "queues take turns",
        [queue("q"), queue("r"), node("a", 3)]
        + [below(f"q{i}", "q") for i in range(3)]
        + [below(f"r{i}", "r") for i in range(3)],
        {
            "binds": {"q0": "a", "r0": "a", "q1": "a"},
            "unschedulable": {
                "pg-q2-uid-q2": "NoCapacity",
                "pg-r1-uid-r1": "NoCapacity",
                "pg-r2-uid-r2": "NoCapacity",
            },
        },
    ),
    Case(
        "of two queues the one that would have less",
        [queue("q"), queue("r"), node("a", 3), below("p", "q", cpu=3), below("s", "r")],
        {"binds": {"s": "a"}, "unschedulable": {"pg-p-uid-p": "NoCapacity"}},
    ),
    Case(
        "a pod without a queue is in the default queue",
        [queue("default-queue"), node("a"), pod("p"), below("s", "gone")],
        {"binds": {"p": "a"}, "unschedulable": {"pg-s-uid-s": "QueueMissing"}},
    ),
    Case(
        "queues that cannot be",
        [
            *(queue("q", "gone"), queue("r"), queue("s", "r"), queue("t", "u"), queue("u", "t")),
            *(node("a"), below("p", "q"), below("o", "r"), below("n", "u"), below("m", "s")),
        ],
        {
            "binds": {"m": "a"},
            "unschedulable": {
                "pg-p-uid-p": "QueueMissing",
                "pg-o-uid-o": "Misconfigured",
                "pg-n-uid-n": "Misconfigured",
            },
        },
    ),
    Case(
        "pods that are not there, or not where they say",
        [
            *(queue(), node("a"), group("g", 2), pod("p", "g")),
            *(group("h", subGroups=[subgroup_spec("x", 1)]), pod("r", "h", podset="y")),
        ],
        {"unschedulable": {"g": "PodsMissing", "h": "Misconfigured"}},
    ),
    Case(
        "one of two sub-groups is enough, and the second comes whole",
        [
            queue(),
            node("a", 3),
            group("g", minSubGroup=1, subGroups=[subgroup_spec("x", 2), subgroup_spec("y", 2)]),
        ]
        + [pod(f"{leaf}{i}", "g", podset=leaf) for leaf in "xy" for i in range(2)],
        {"binds": {"x0": "a", "x1": "a"}, "unschedulable": {"g": "NoCapacity"}},
    ),
    Case(
        "a sub-group that has no pods is passed over",
        [
            *(queue(), node("a", 3)),
            group("g", minSubGroup=1, subGroups=[subgroup_spec("x", 3), subgroup_spec("y", 1)]),
            *(pod("x0", "g", podset="x"), pod("y0", "g", podset="y")),
        ],
        {"binds": {"y0": "a"}, "unschedulable": {"g": "PodsMissing"}},
    ),
    Case(
        "a place is reserved for an expected pod",
        [
            *(queue(), node("a", 2), node("b", 2), pod("p", "g", podset="n")),
            annotated(
                group("g", subGroups=[subgroup_spec("n", 1), subgroup_spec("l-0", 1)]), LATER
            ),
        ],
        {"binds": {"p": "b"}, "reservations": {("g", "l-0", "a"): 1}},
    ),
    Case(
        "without a place for an expected pod no pod starts",
        [
            *(queue(), node("a", 2), pod("p", "g", podset="n")),
            annotated(
                group("g", subGroups=[subgroup_spec("n", 1), subgroup_spec("l-0", 1)]), LATER
            ),
        ],
        {"unschedulable": {"g": "NoCapacity"}},
    ),
    Case(
        "a class of the system is chosen by no label, but by what all pods say",
        [
            *(queue(), node("a", 3), {**_CLASS, "metadata": {"name": "system", "uid": "s"}}),
            *(group("g", **_SYSTEM), pod("p", "g"), group("h", **_SYSTEM)),
            *(pod("r", "h", **_SYSTEM), pod("o", labels={**_SYSTEM, **_OF_Q})),
            pod("n", labels={**_SYSTEM, **_OF_Q}, **_SYSTEM),
        ],
        {
            "binds": {"r": "a", "n": "a"},
            "unschedulable": {"g": "Misconfigured", "pg-o-uid-o": "Misconfigured"},
        },
    ),
    Case(
        "what others have is not shared",
        [queue(), node("a", 2), pod("o", at="a", scheduler="other"), below("p", "q", cpu=2)],
        {"unschedulable": {"pg-p-uid-p": "NoCapacity"}},
    ),
]


@pytest.mark.parametrize("case", DIVISIONS, ids=ids)
def test_an_amount_is_divided(case: Case[Division, tuple[list[int], int]]) -> None:
    """The shares and what is left are KAI's."""
    assert divide(*case.given) == case.want


@pytest.mark.parametrize("case", PLACEMENTS, ids=ids)
def test_a_cycle(case: Case[list[Obj], Obj]) -> None:
    """Everything that is decided is what was worked out by hand, in whatever order it is told."""
    assert decided(run_cycle(case.given, NOW)) == case.want
    assert decided(run_cycle(case.given[::-1], NOW)) == case.want


def test_shares_of_a_tree() -> None:
    """The children of a queue share what it got; what others have is not shared."""
    tops = [queue("q", cpu={"quota": 1000}), queue("r", cpu={"quota": 0, "overQuotaWeight": 3})]
    low = [queue("s", "r", cpu={"quota": 0}), queue("t", "r", cpu={"quota": 0, "limit": 1000})]
    pods = [below("p", "q", cpu=9), below("s", "s", cpu=9), below("t", "t", cpu=9)]
    foreign = pod("o", at="a", scheduler="other")
    shares = run_cycle([*tops, *low, *pods, foreign, node("a", 10)], NOW).fair_shares
    assert {name: share["cpu"] for name, share in shares.items()} == {
        "q": 3000,
        "r": 6000,
        "s": 5000,
        "t": 1000,
    }


def decided(outcome: CycleResult) -> Obj:
    """Return what was decided, without the namespace and what is empty."""
    found = {
        "binds": {pod: node for (_, pod), node in outcome.binds.items()},
        "nominations": {pod: node for (_, pod), node in outcome.nominations.items()},
        "reservations": {
            reserved_place[1:]: count for reserved_place, count in outcome.reservations.items()
        },
        "unschedulable": {name: reason for (_, name), reason in outcome.unschedulable.items()},
    }
    return {name: value for name, value in found.items() if value}
