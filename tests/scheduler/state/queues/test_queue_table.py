"""Queues: their shares, their usage, and which cannot be used (rules 11 and 12)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.rejections import PreFilterFailure
from scheduler.core.model.resources import ResourceKind
from scheduler.core.model.snapshot import SnapshotQueues
from scheduler.state.inputs import StateOptions
from scheduler.state.queues.queue_table import QueueTable
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.case import Case, ids
from tests.support.instruction_count import instruction_growth
from tests.support.state.objects import (
    NOW,
    cluster_cache,
    decode_object,
    encode_objects,
    group,
    make_object,
    node,
    pod,
    prefilter_failure_of,
    queue,
)
from trainer_kai.api.names import ANTICIPATED


def _bounds(number: Any) -> dict[str, Any]:
    share = {"quota": number, "limit": number, "overQuotaWeight": number}
    return {"resources": dict.fromkeys(("cpu", "memory", "gpu"), share)}


def test_what_counts_otherwise_is_reported() -> None:
    """The queue takes PodGroups; each value is named with what counts in its place."""
    wrong = {"quota": -2, "limit": -3, "overQuotaWeight": -1}
    odd = queue("odd", resources={"gpu": wrong}, reclaimMinRuntime="-1s")

    found = encode_objects(odd, group("g", queue="odd"), pod("p", "g"))

    row = found.snapshot.queues.names.index("odd")
    assert prefilter_failure_of(found, "g") is None
    assert found.snapshot.queues.quota[row].tolist() == [0, 0, -1]
    assert found.snapshot.queues.limit[row].tolist() == [0, 0, -1]
    assert found.snapshot.queues.weight[row].tolist() == [0, 0, 1]
    assert found.snapshot.queues.reclaim_min_s[row] == 0
    bound = "must be 0 or more, or -1 (unlimited): it counts as -1"
    assert [(it.still_counts, it.message) for it in found.warnings] == [
        (True, f"queue odd: {it}")
        for it in (
            "spec.reclaimMinRuntime: '-1s' must not be negative: it counts as 0s",
            f"spec.resources.gpu.limit: -3 {bound}",
            "spec.resources.gpu.overQuotaWeight: -1 must be 0 or more: it counts as 1",
            f"spec.resources.gpu.quota: -2 {bound}",
        )
    ]


# quota, limit and weight → quota by kind, weight by kind
SHARES = [
    Case("whole GPUs are read", _bounds(2), ([2, 2_000_000, 2000], [2.0] * 3)),
    Case("parts of a GPU are read", _bounds(0.5), ([0, 500_000, 500], [0.5] * 3)),
    Case("more than there is", _bounds(1e30), ([2**60] * 3, [1e9] * 3)),
    Case("a GPU only", {"resources": {"gpu": {"quota": 1}}}, ([0, 0, 1000], [0.0] * 3)),
    Case("nothing is said", {"resources": None}, ([0] * 3, [0.0] * 3)),
]


@pytest.mark.parametrize("case", SHARES, ids=ids)
def test_shares(case: Case[dict[str, Any], tuple[list[int], list[float]]]) -> None:
    """CPU in thousandths, memory in bytes, GPUs in thousandths; what is left out is 0."""
    found = encode_objects(queue(**case.given)).snapshot.queues

    assert (found.quota[0].tolist(), found.weight[0].tolist()) == case.want
    assert found.priority == (100,)


def test_absent_resources() -> None:
    """A resource whose numbers are written as 0 is not absent."""
    found = encode_objects(
        queue("b", resources={"gpu": {"quota": 1}, "cpu": {"limit": 0}}),
        queue("c", resources=None),
    ).snapshot.queues
    absent = {(found.names[row], ResourceKind(kind).name) for row, kind in found.absent}

    assert absent == {("b", "MEMORY"), ("c", "CPU"), ("c", "MEMORY"), ("c", "GPU")}
    rows = QueueTable({"b": cluster_cache(queue("b", resources={"cpu": {"limit": 0}})).queues["b"]})
    assert not rows.is_same({"b": cluster_cache(queue("b", resources={})).queues["b"]})


def test_no_bound() -> None:
    """-1 means unlimited."""
    found = encode_objects(queue(priority=7)).snapshot.queues

    assert (found.quota.tolist(), found.limit.tolist()) == ([[-1] * 3], [[-1] * 3])
    assert found.priority == (7,)


def _goals(goal: str | None) -> dict[str, Any]:
    notes = {} if goal is None else {"annotations": {"trainer-kai.dev/reclaim-goal": goal}}
    return queue("b", meta=notes)


_NO_GOAL = (
    "queue b: annotation trainer-kai.dev/reclaim-goal is 'Quota', but must be fair-share or "
    "quota-only; fair-share is used"
)

# the annotation of a queue -> whether its children reclaim up to quotas only, and the warnings
GOALS: list[Case[str | None, tuple[tuple[bool, ...], list[str]]]] = [
    Case("without an annotation there is no goal", None, ((), [])),
    Case("as KAI has it", "fair-share", ((), [])),
    Case("quota-only stops reclaim at the quota", "quota-only", ((True, False), [])),
    Case("what cannot be meant", "Quota", ((), [_NO_GOAL])),
]


@pytest.mark.parametrize("case", GOALS, ids=ids)
def test_goals(case: Case[str | None, tuple[tuple[bool, ...], list[str]]]) -> None:
    """An invalid value leaves the queue usable."""
    found = encode_objects(_goals(case.given))
    reported = [one.message for one in found.warnings]
    assert (
        found.snapshot.queues.names,
        prefilter_failure_of(encode_objects(_goals("x"), pod("p")), "pg-p-p"),
    ) == (
        ("b", "q"),
        None,
    )
    assert (found.snapshot.queues.is_quota_only, reported) == case.want


def test_an_unknown_annotation_is_reported() -> None:
    """Also of a queue that was there before."""
    notes = {"annotations": {"trainer-kai.dev/reclaim-gaol": "quota-only"}}
    found = encode_objects(queue("b", meta=notes))
    assert [one.message for one in found.warnings] == [
        (
            "queue b: metadata.annotations[trainer-kai.dev/reclaim-gaol]: has no effect: "
            "unknown name. Did you mean trainer-kai.dev/reclaim-goal?"
        )
    ]
    rows = QueueTable({"b": cluster_cache(queue("b")).queues["b"]})
    assert not rows.is_same({"b": cluster_cache(queue("b", meta=notes)).queues["b"]})


def test_a_number_beyond_all_is_reported() -> None:
    """Another one counts in its place; -1 means unlimited."""
    share = {"quota": 10**15, "limit": 1e30, "overQuotaWeight": 1e9}
    found = encode_objects(queue("b", resources={"gpu": share, "memory": share}))

    limit = {"gpu": 2**60 // 1000, "memory": 2**60 // 10**6}
    largest = f"the largest value, {limit['memory']}, is used"
    assert [one.message for one in found.warnings] == [
        f"queue b: spec.resources.gpu.limit is 1e+30; the largest value, {limit['gpu']}, is used",
        f"queue b: spec.resources.memory.limit is 1e+30; {largest}",
        f"queue b: spec.resources.memory.quota is 1e+15; {largest}",
    ]


def test_another_goal_counts_at_once() -> None:
    """Though nothing else of the queue has changed."""
    rows = [
        QueueTable({"b": cluster_cache(_goals(goal)).queues["b"]})
        for goal in (None, "fair-share", "quota-only")
    ]
    others = [cluster_cache(_goals(goal)).queues for goal in (None, "quota-only")]
    known = [{"b": one["b"]} for one in others]
    assert [[one.is_same(it) for it in known] for one in rows] == [
        [True, False],
        [True, False],
        [False, True],
    ]


def test_rows_are_by_age_then_uid() -> None:
    """And parents are rows."""
    old = {"creationTimestamp": "2025-01-01T00:00:00Z"}
    found = encode_objects(
        queue("a", meta={"uid": "2"}),
        queue("b", meta={"uid": "1"}, parentQueue="c"),
        queue("c", meta={**old, "uid": "3"}),
    ).snapshot.queues

    assert (found.names, found.parent) == (("b", "a", "q", "c"), (3, -1, -1, -1))


_USABLE = [
    queue("top"),
    queue("q", parentQueue="top"),
    queue("inner"),
    queue("in", parentQueue="inner"),
]
_MISSING = (
    "Queue x does not exist. It can start when queue x is created, or when it names another queue "
    "(suspend its workload, change the label kai.scheduler/queue, and resume it): in, q"
)
_INNER = (
    "Queue inner has child queues, so it takes no PodGroups. It can start when it names a "
    "descendant of queue inner: in"
)


def _without_parent(name: str) -> str:
    return (
        f"Queue {name} has the parent queue x, which does not exist. It can start when the parent "
        f"queue is created, or when spec.parentQueue of queue {name} is corrected"
    )


def _cycle(name: str, path: str) -> str:
    return (
        f"Queue {name} is its own ancestor: {path}. It can start when spec.parentQueue of one of "
        "these queues is corrected"
    )


# more queues, the queue that a PodGroup names → the reason, and the message
FAILURES = [
    Case("a queue that exists is no failure", ([], "q"), None),
    Case("it does not", ([], "x"), ("QueueMissing", _MISSING)),
    Case(
        "none is named",
        ([], ""),
        ("Misconfigured", "The PodGroup names no queue. It can start when it names one: in, q"),
    ),
    Case(
        "it has children",
        ([], "inner"),
        ("Misconfigured", _INNER),
    ),
    Case(
        "its parent does not exist",
        ([queue("a", parentQueue="x")], "a"),
        ("QueueMissing", _without_parent("a")),
    ),
    Case(
        "the parent of its parent does not",
        ([queue("a", parentQueue="b"), queue("b", parentQueue="x")], "a"),
        ("QueueMissing", _without_parent("b")),
    ),
    Case(
        "it is above itself",
        ([queue("a", parentQueue="a")], "a"),
        ("Misconfigured", _cycle("a", "a → a")),
    ),
    Case(
        "one above it is above itself",
        (
            [queue("a", parentQueue="b"), queue("b", parentQueue="c"), queue("c", parentQueue="b")],
            "a",
        ),
        ("Misconfigured", _cycle("b", "b → c → b")),
    ),
]


@pytest.mark.parametrize("case", FAILURES, ids=ids)
def test_failures(case: Case[tuple[list[Any], str], tuple[str, str] | None]) -> None:
    """A fault of a queue is a failure of the PodGroups in it, and of no others."""
    more, name = case.given

    found = encode_objects(
        *_USABLE, *more, group("g", queue=name), pod("p", "g"), group("h"), pod("r", "h")
    )

    assert prefilter_failure_of(found, "g") == case.want
    assert prefilter_failure_of(found, "h") is None
    assert (found.snapshot.podgroups[found.podgroup_keys.index(("ns", "g"))].queue == -1) == bool(
        case.want
    )
    sound = {"top", "q", "inner", "in"}
    assert set(found.snapshot.queues.names) == sound
    assert {warning.object_key.name for warning in found.warnings} == {
        it["metadata"]["name"] for it in more
    }


def _used(found: SnapshotQueues, name: str) -> tuple[int, int, int]:
    row = found.names.index(name)
    return tuple(
        int(table[row, 2]) // 1000
        for table in (found.allocated, found.non_preemptible, found.requested)
    )  # type: ignore[return-value]


_TERMINATING = {"deletionTimestamp": "2026-01-05T07:59:00Z"}
_STUCK = {"deletionTimestamp": "2026-01-05T07:00:00Z"}
# a pod of a PodGroup → GPUs of its queue: allocated, non-preemptible and requested
USAGE = [
    Case("a waiting pod counts as requested only", ("g", {}), (0, 0, 1)),
    Case("it is there", ("g", {"node": "a"}), (1, 0, 1)),
    Case("it cannot be preempted", ("fixed", {"node": "a"}), (1, 1, 1)),
    Case("nothing of it is there", ("fixed", {}), (0, 0, 1)),
    Case("its node is gone", ("g", {"node": "b"}), (1, 0, 1)),
    Case("it is gated", ("g", {"schedulingGates": [{"name": "x"}]}), (0, 0, 0)),
    Case("it is going", ("g", {"node": "a", "meta": _TERMINATING}), (0, 0, 0)),
    Case("its end is overdue", ("g", {"node": "a", "meta": _STUCK}), (1, 0, 1)),
    Case(
        "a pod that succeeded counts nowhere", ("g", {"node": "a", "phase": "Succeeded"}), (0, 0, 0)
    ),
    Case("another scheduler has it", ("g", {"node": "a", "schedulerName": "x"}), (0, 0, 0)),
    Case("it is in no group", ("", {"node": "a"}), (1, 0, 1)),
    Case("its group does not exist", ("none", {"node": "a"}), (1, 0, 1)),
    Case("it waits for a group that does not exist", ("none", {}), (0, 0, 0)),
    Case("its group cannot be meant", ("wrong", {}), (0, 0, 0)),
    Case("its group cannot be meant any more", ("wrong", {"node": "a"}), (1, 0, 1)),
    Case(
        "it shares a device",
        (
            "g",
            {
                "node": "a",
                "asks": {},
                "annotations": {"gpu-fraction": "0.9", "gpu-fraction-num-devices": "5"},
            },
        ),
        (4, 0, 4),
    ),
]


@pytest.mark.parametrize("case", USAGE, ids=ids)
def test_usage(case: Case[tuple[str, dict[str, Any]], tuple[int, int, int]]) -> None:
    """On all levels; misconfigured PodGroups request nothing."""
    name, given_fields = case.given

    found = encode_objects(
        queue("top"),
        queue("q", parentQueue="top"),
        node("a"),
        group("g"),
        group("fixed", preemptibility="non-preemptible"),
        group("wrong", minMember=-1),
        pod("p", name, **given_fields),
    ).snapshot.queues

    assert _used(found, "q") == _used(found, "top") == case.want


def test_priorities() -> None:
    """That of a class, else of the smallest default class; from 100 on it is non-preemptible."""
    classes = [
        make_object("PriorityClass", "build", value=100),
        make_object("PriorityClass", "usual", value=70, globalDefault=True),
        make_object("PriorityClass", "other", value=80, globalDefault=True),
    ]
    found = encode_objects(
        *classes,
        *(group(n, priorityClassName=c) for n, c in (("a", "build"), ("b", "unknown"), ("c", ""))),
        group("d", priorityClassName="build", preemptibility="preemptible"),
        *(pod(f"p{n}", n) for n in "abcd"),
        pod("e", priorityClassName="usual", labels={"priorityClassName": "build"}),
        pod("f", priorityClassName="build"),
        pod("g", labels={"kai.scheduler/preemptibility": "non-preemptible"}),
    )

    got = [
        (podgroup.name, podgroup.priority, podgroup.is_preemptible)
        for podgroup in found.snapshot.podgroups
    ]
    assert got == [
        ("ns/a", 100, False),
        ("ns/b", 70, True),
        ("ns/c", 70, True),
        ("ns/d", 100, True),
        ("ns/pg-e-e", 100, False),
        ("ns/pg-f-f", 100, False),
        ("ns/pg-g-g", 70, False),
    ]


def test_a_class_that_a_label_may_not_name_does_not_count() -> None:
    """Neither for a PodGroup nor for a standalone pod, unless pods name it in their spec."""
    high: dict[str, Any] = {"priorityClassName": "high"}
    found = encode_objects(
        make_object("PriorityClass", "high", value=10**9),
        *(group(n, **high) for n in ("a", "b", "c", "d")),
        pod("pa", "a"),
        pod("pb", "b", **high),
        *(pod("pc", "c", **high), pod("pc2", "c")),
        pod("pd", "d", node="n"),
        node("n"),
        pod("e", labels=high),
        pod("f", labels=high, **high),
    )

    got = {
        podgroup.name: (
            podgroup.priority,
            podgroup.is_preemptible,
            *(it is not None for it in _failures(podgroup)),
        )
        for podgroup in found.snapshot.podgroups
    }
    refused, fine = (50, True, True, False), (10**9, False, False, False)
    assert got == {
        "ns/a": refused,
        "ns/b": fine,
        "ns/c": (50, True, False, False),
        "ns/d": (50, True, False, True),
        "ns/pg-e-e": refused,
        "ns/pg-f-f": fine,
    }


def test_classes_that_a_site_does_not_offer() -> None:
    """As those of the system; a pending PodGroup is Misconfigured."""
    objects = [make_object("PriorityClass", name, value=60) for name in ("build", "other")]
    records = [group("a", priorityClassName="build"), group("b", priorityClassName="other")]
    pods = [pod("pa", "a"), pod("pb", "b")]

    found = encode_objects(*objects, *records, *pods, priority_classes=frozenset({"build"}))

    assert [podgroup.priority for podgroup in found.snapshot.podgroups] == [60, 50]
    assert prefilter_failure_of(found, "a") is None
    reason, message = prefilter_failure_of(found, "b") or ("", "")
    assert reason == "Misconfigured"
    assert message == (
        "spec.priorityClassName: choose build, or set spec.priorityClassName of all pods to other, "
        "which the API server checks. A label or PodGroup may not choose PriorityClass other: the "
        "setting priority_classes of the scheduler does not list it"
    )


def test_a_quota_that_comes_and_goes() -> None:
    """It concerns its namespace only, and only by its scopes of priority classes."""
    state = ClusterState(StateOptions(now=NOW, default_queue="q"))
    high: dict[str, Any] = {"priorityClassName": "high"}
    quota = make_object(
        "ResourceQuota",
        "r",
        spec={
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
            }
        },
    )
    plain = make_object("ResourceQuota", "r", spec={"hard": {"pods": "1"}})
    other = {**quota, "metadata": {"name": "r", "namespace": "other"}}
    objects = [
        make_object("PriorityClass", "high", value=90),
        queue(),
        group("g", **high),
        pod("p", "g"),
    ]

    def is_pending(*reported: dict[str, Any], is_present: bool = True) -> list[bool]:
        for fields in reported:
            resource, key, one = decode_object(fields)
            state.put(resource, key, one if is_present else None)
        state.check(NOW)
        return [
            podgroup.prefilter_failure is not None
            for podgroup in state.snapshot(NOW).snapshot.podgroups
        ]

    assert is_pending(*objects, pod("e", labels=high)) == [False, False]
    assert is_pending(other, plain) == [False, False]
    assert is_pending(quota) == [True, True]
    assert is_pending(plain) == [False, False]
    assert is_pending(quota) == [True, True]
    assert is_pending(quota, is_present=False) == [False, False]


@pytest.mark.parametrize("names", ["aba", "bab"])
def test_the_quota_that_is_named_does_not_depend_on_the_order_of_events(names: str) -> None:
    """Of several that count a class the first by name is named, whichever has changed last."""
    state = ClusterState(StateOptions(now=NOW, default_queue="q"))
    quotas = [
        make_object(
            "ResourceQuota", name, spec={"hard": {"pods": pods}, "scopes": ["PriorityClass"]}
        )
        for name, pods in zip(names, "112", strict=True)
    ]
    objects = [
        *(make_object("PriorityClass", "high", value=90), queue()),
        *(group("g", priorityClassName="high"), pod("p", "g")),
    ]

    elsewhere = {**quotas[0], "metadata": {"name": "r", "namespace": "other"}}

    for fields in (*objects, *quotas, elsewhere, pod("p2", "g")):
        state.put(*decode_object(fields))
        state.check(NOW)

    assert (
        "ResourceQuota a limits the pods of this class"
        in (prefilter_failure_of(state.snapshot(NOW), "g") or ("", ""))[1]
    )


def test_a_class_counts_once_all_pods_have_come() -> None:
    """Until then the API server has not admitted all of them; so too when one is gone."""
    state = ClusterState(StateOptions(now=NOW, default_queue="q"))
    high: dict[str, Any] = {"priorityClassName": "high"}
    expected = {"subGroupPrefix": "l-", "replicas": 1, "count": 2, "priorityClassName": "high"}
    objects = [
        *(make_object("PriorityClass", "high", value=10**9), queue()),
        group(
            "g",
            **high,
            subGroups=[{"name": "n", "minMember": 1}, {"name": "l-0", "minMember": 2}],
            meta={"annotations": {ANTICIPATED: json.dumps({"later": [expected]})}},
        ),
    ]

    def priority(*reported: dict[str, Any], is_present: bool = True) -> list[int]:
        for fields in reported:
            resource, key, one = decode_object(fields)
            state.put(resource, key, one if is_present else None)
        state.check(NOW)
        return [podgroup.priority for podgroup in state.snapshot(NOW).snapshot.podgroups]

    assert priority(*objects, pod("p", "g", "n", **high)) == [50]
    assert priority(pod("p0", "g", "l-0", **high)) == [50]
    assert priority(pod("p1", "g", "l-0", **high)) == [10**9]
    assert priority(pod("p1", "g", "l-0", **high), is_present=False) == [50]
    assert priority(pod("p1", "g", "l-0")) == [50]


def _failures(podgroup: PodGroupInfo) -> tuple[PreFilterFailure | None, PreFilterFailure | None]:
    return podgroup.prefilter_failure, podgroup.elastic_failure


def test_without_classes_the_priority_is_50() -> None:
    """That of KAI's class train."""
    found = encode_objects(group("g", priorityClassName="build"), pod("p", "g")).snapshot

    assert (found.podgroups[0].priority, found.podgroups[0].is_preemptible) == (50, True)


@pytest.mark.parametrize(("label", "row"), [("other", 0), ("", 1)])
def test_the_queue_of_a_standalone_pod(label: str, row: int) -> None:
    """Its label, else the default."""
    labels = {"kai.scheduler/queue": label}

    found = encode_objects(queue("other", meta={"uid": "a"}), pod("p", labels=labels)).snapshot

    assert (found.queues.names, found.podgroups[0].queue) == (("other", "q"), row)


def _chain(length: int, top: str = "") -> list[Any]:
    """Return queues, each the parent of the next, by name downwards or upwards."""
    parents = (f"q{number - 1:04}" if number else top for number in range(length))
    return [queue(f"q{number:04}", parentQueue=parent) for number, parent in enumerate(parents)]


# what is above the uppermost → whether all are rows
CHAINS = [
    Case("a chain with an end is in the table", "", True),
    Case("one that does not exist", "x", False),
    Case("a chain that ends in itself is not", "q1999", False),
]


@pytest.mark.parametrize("case", CHAINS, ids=ids)
def test_long_chains(case: Case[str, bool]) -> None:
    """A chain of any length is followed, with no recursion."""
    rows = QueueTable(cluster_cache(*_chain(2000, case.given)).queues)
    found = rows.table(*([[1] * 3 for _ in rows.names] for _ in range(3)))
    failures = [rows.prefilter_failure(name) for name in ("q0000", "q1000", "q1999")]

    assert len(rows.names) == (2000 if case.want else 0)
    assert all(prefilter_failure is not None for prefilter_failure in failures[:2])
    if case.want:
        top = rows.row_by_name["q0000"]
        assert found.allocated[top].tolist() == [2000] * 3
        assert found.allocated[rows.row_by_name["q1999"]].tolist() == [1] * 3


# what is above the uppermost of a chain of so many
GROWING = [
    Case("nothing", lambda _: "", None),
    Case("one that does not exist", lambda _: "x", None),
    Case("the lowest", lambda number: f"q{number - 1:04}", None),
]


@pytest.mark.parametrize("case", GROWING, ids=ids)
def test_time_grows_with_the_chain(case: Case[Callable[[int], str], None]) -> None:
    """Not with the square of its length."""

    def work(number: int) -> Callable[[], None]:
        queues = cluster_cache(*_chain(number, case.given(number))).queues

        def build() -> None:
            rows = QueueTable(queues)
            rows.table(*([[1] * 3 for _ in rows.names] for _ in range(3)))
            rows.prefilter_failure("q0000")

        return build

    assert instruction_growth(work, 200) < 2.5
