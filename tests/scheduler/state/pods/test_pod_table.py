"""The states of pods (rules 4, 6 and 9), and which of them are one class."""

import copy
import time
from typing import Any

import pytest

from scheduler.core.model.snapshot import PodState
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import Cluster, StateOptions, epoch_s
from scheduler.state.pods.class_table import PodClassTable
from scheduler.state.snapshot.cluster_state import encode
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    cluster_cache,
    encode_objects,
    group,
    node,
    pod,
    podset_of,
)
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.pod import (
    Affinity,
    Container,
    Pod,
    PodResourceClaim,
    PodSpec,
    Resources,
    SchedulingGate,
    Toleration,
    TopologySpread,
    Volume,
)

_TERMINATING = {"deletionTimestamp": "2026-01-05T07:58:00Z"}
_STUCK = {"deletionTimestamp": "2026-01-05T07:57:59Z"}
_GATED = [{"name": "example"}]
_SPREAD: dict[str, Any] = {
    "max_skew": 1,
    "topology_key": "a",
    "when_unsatisfiable": "DoNotSchedule",
}

# a pod of a PodGroup → its state as a row, and how many are pending, running, succeeded
STATES = [
    Case("a pod without a node is pending", {}, (PodState.PENDING, (1, 0, 0))),
    Case("no phase is Pending", {"phase": ""}, (PodState.PENDING, (1, 0, 0))),
    Case("a gate holds it", {"schedulingGates": _GATED}, (PodState.GATED, (0, 0, 0))),
    Case("it is bound and not yet running", {"node": "a", "phase": "Pending"}, (2, (0, 1, 0))),
    Case("its node says nothing of it", {"node": "a", "phase": "Unknown"}, (2, (0, 1, 0))),
    Case("it runs on a node that is gone", {"node": "gone"}, (PodState.RUNNING, (0, 1, 0))),
    Case("it is going", {"node": "a", "meta": _TERMINATING}, (PodState.RELEASING, (0, 0, 0))),
    Case(
        "its end is overdue", {"node": "a", "meta": _STUCK}, (PodState.STUCK_RELEASING, (0, 0, 0))
    ),
    Case("it is going before it was placed", {"meta": _TERMINATING}, (PodState.DONE, (0, 0, 0))),
    Case(
        "a pod that succeeded is done",
        {"node": "a", "phase": "Succeeded"},
        (PodState.DONE, (0, 0, 1)),
    ),
    Case(
        "a pod that failed is done, and did not succeed",
        {"node": "a", "phase": "Failed"},
        (PodState.DONE, (0, 0, 0)),
    ),
    Case("it runs nowhere", {"phase": "Running"}, (PodState.DONE, (0, 0, 0))),
]


@pytest.mark.parametrize("case", STATES, ids=ids)
def test_states(case: Case[dict[str, Any], tuple[int, tuple[int, int, int]]]) -> None:
    """The other pod of the PodGroup keeps it in the snapshot."""
    encoded = encode_objects(
        node("a"), group("g"), pod("x", "g", **case.given), pod("y", "g", node="a")
    )

    podset = podset_of(encoded, "g")
    row = encoded.pod_keys.index(Key("ns", "x"))
    counts = len(podset.pending), podset.running - 1, podset.succeeded
    assert (encoded.snapshot.pods.state[row], counts) == case.want


def test_which_pods_use_a_node() -> None:
    """Releasing pods use their node; a stuck pod is not releasing; a done pod uses nothing."""
    encoded = encode_objects(
        node("a", gpu=8),
        pod("there", node="a"),
        pod("going", node="a", meta=_TERMINATING),
        pod("stuck", node="a", meta=_STUCK),
        pod("over", node="a", phase="Succeeded"),
        pod("foreign", node="a", schedulerName="default-scheduler"),
    )

    nodes, gpu = encoded.snapshot.nodes, encoded.snapshot.resources.gpus[0]
    assert (nodes.idle[0, gpu], nodes.releasing[0, gpu]) == (4000, 1000)
    assert (nodes.idle[0, encoded.snapshot.resources.pods]) == 106


def test_the_order_of_pods_in_a_podset() -> None:
    """Launchers first; of them and of others the larger number, then the older, then the uid."""
    late = {"creationTimestamp": "2026-01-05T07:00:00Z"}
    early = {"creationTimestamp": "2026-01-05T06:00:00Z"}
    priority = "kai.scheduler/task-priority"
    encoded = encode_objects(
        group("g", minMember=8),
        pod("plain-b", "g", meta=late),
        pod("plain-a", "g", meta=late),
        pod("old", "g", meta=early),
        pod("five", "g", labels={priority: "5"}, meta=late),
        pod("ten", "g", labels={priority: "10"}, meta=late),
        pod("none", "g", labels={priority: "many"}, meta={**late, "uid": "z"}),
        pod("head", "g", labels={"ray.io/node-type": "head"}, meta=late),
        pod("next", "g", labels={"ray.io/node-type": "head", priority: "1"}, meta=late),
    )

    names = [encoded.pod_keys[row].name for row in podset_of(encoded, "g").pending]
    assert names == ["next", "head", "ten", "five", "old", "plain-a", "plain-b", "none"]


def test_podgroups_are_rows_by_age_then_uid() -> None:
    """The time counts, not its text."""
    encoded = encode_objects(
        pod("c", meta={"creationTimestamp": "2026-01-05T06:30:00Z", "uid": "0"}),
        pod("b", meta={"creationTimestamp": "2026-01-05T08:00:00+02:00", "uid": "2"}),
        pod("a", meta={"creationTimestamp": "2026-01-05T06:00:00Z", "uid": "1"}),
    )

    assert [key.name for key in encoded.podgroup_keys] == ["pg-a-1", "pg-b-2", "pg-c-0"]


def test_pods_of_one_job_are_one_class_unless_a_term_selects_their_index() -> None:
    """The completion index is a label of all of them, and hardly ever selected."""
    index = "batch.kubernetes.io/job-completion-index"
    pods = [pod(f"p{i}", "g", labels={index: str(i)}) for i in range(3)]
    plain = encode_objects(group("g"), *pods)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {index: "1"}}}
    shy = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    asking = encode_objects(group("g"), *pods, pod("shy", affinity=shy))

    assert len(set(plain.snapshot.pods.signature.tolist())) == 1
    names = [key.name for key in asking.pod_keys]
    existing_anti_affinity = [
        asking.snapshot.signatures[row].existing_anti_affinity
        for row in asking.snapshot.pods.signature
    ]
    assert dict(zip(names, existing_anti_affinity, strict=True)) == {
        "p0": (),
        "p1": (0,),
        "p2": (),
        "shy": (),
    }


def test_equal_pods_are_one_class_also_when_they_share_no_objects() -> None:
    """Objects that were created one by one are compared by their content."""
    one, two = (cluster_cache(pod(name)).pods for name in ("x", "y"))

    encoded = encode(Cluster(pods={**one, **two}), StateOptions(now=NOW))

    assert len(encoded.snapshot.signatures) == 1


# Each changes one field of a spec.
_CHANGES: list[dict[str, Any]] = [
    {"volumes": (Volume(name="v"),)},
    {"init_containers": (Container(name="c"),)},
    {"containers": (Container(name="c"),)},
    {"node_selector": {"zone": "a"}},
    {"host_network": True},
    {"affinity": Affinity()},
    {"scheduler_name": "x"},
    {"service_account_name": "x"},
    {"tolerations": (Toleration(),)},
    {"priority_class_name": "x"},
    {"priority": 1},
    {"preemption_policy": "Never"},
    {"overhead": {"cpu": "1"}},
    {"topology_spread_constraints": (TopologySpread(**_SPREAD),)},
    {"scheduling_gates": (SchedulingGate(name="x"),)},
    {"resource_claims": (PodResourceClaim(name="x"),)},
    {"resources": Resources()},
    {"termination_grace_period_seconds": 1},
]


def test_pods_on_nodes_are_of_one_class_if_nothing_but_the_node_differs() -> None:
    """Also pods that follow each other, and of whose specs a single field differs."""
    found = PodClassTable(StateOptions(now=NOW))

    def number_of(node: str, **fields: Any) -> int:
        key = Key("x", "x")
        one = Pod(metadata=Meta(name="x", namespace="x"), spec=PodSpec(node_name=node, **fields))
        return found.class_of(key, one).number

    changed = {name for it in _CHANGES for name in it}
    assert changed == {*PodSpec.__struct_fields__} - {"node_name"}
    plain, numbers = number_of("a"), list[int]()
    for it in _CHANGES:
        assert number_of("a") == plain
        numbers.append(number_of("b", **it))
        assert number_of("c", **copy.deepcopy(it)) == numbers[-1]
        assert number_of("b") == plain
    assert len({*numbers, plain}) == len(_CHANGES) + 1


TIMES = [
    Case("a time in seconds is read", "2026-01-05T08:00:00Z", NOW),
    Case("parts of it", "2026-01-05T08:00:00.5Z", NOW),
    Case("a time of another zone is converted", "2026-01-05T09:00:00+01:00", NOW),
    Case("a time without a zone is UTC", "2026-01-05T08:00:00", NOW),
    Case("an empty time is none", "", None),
    Case("a word is no time", "yesterday", None),
    Case("before all times", "0001-01-01T00:00:00+23:00", -62135679600),
]


def test_a_time_without_a_zone_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time zone of the machine does not count."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert epoch_s.__wrapped__("2026-01-05T08:00:00") == NOW
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("case", TIMES, ids=ids)
def test_times(case: Case[str, int | None]) -> None:
    """An invalid time is None, and no error."""
    assert epoch_s(case.given) == case.want


def _ended(name: str, at: str, **more: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}]}
    return pod(name, **{"node": "a", "phase": "Succeeded", "status": status, **more})


# an ended pod → what it weighs, in sixteenths of a pod
ENDED = [
    Case("in the last hour", _ended("x", "2026-01-05T07:00:01Z"), [8]),
    Case("one hour ago", _ended("x", "2026-01-05T07:00:00Z"), [4]),
    Case("it failed", _ended("x", "2026-01-05T05:30:00Z", phase="Failed"), [2]),
    Case("its node is gone", _ended("x", "2026-01-05T04:00:01Z", node="gone"), [1]),
    Case("four hours ago", _ended("x", "2026-01-05T04:00:00Z"), []),
    Case("by a clock that is ahead", _ended("x", "2026-01-05T09:00:00Z"), [8]),
    Case("it never ran", _ended("x", "2026-01-05T07:30:00Z", node=""), []),
    Case("it runs", _ended("x", "2026-01-05T07:30:00Z", phase="Running"), []),
    Case("no time", _ended("x", "soon"), []),
    Case("another scheduler", _ended("x", "2026-01-05T07:30:00Z", schedulerName="other"), []),
]


@pytest.mark.parametrize("case", ENDED, ids=ids)
def test_ended_pods_weigh_less_and_less(case: Case[dict[str, Any], list[int]]) -> None:
    found = encode_objects(node("a"), case.given, counts_ended_pods=True).snapshot
    assert [*found.ended.values()] == case.want
    assert all(found.signatures[row].request[3] == 1000 for row in found.ended)
    assert not encode_objects(node("a"), case.given).snapshot.ended  # no placement asks for it


def test_ended_pods_of_one_shape_are_counted_in_any_order() -> None:
    pods = [_ended(f"p{i}", f"2026-01-05T0{4 + i % 4}:30:00Z") for i in range(8)]
    orders = (pods, pods[::-1], pods[3:] + pods[:3])
    found = [encode_objects(node("a"), *it, counts_ended_pods=True).snapshot for it in orders]
    assert [[*it.ended.values()] for it in found] == [[30]] * 3


def test_pods_come_where_there_are_no_nodes_yet() -> None:
    """A cluster that gets nodes when it needs them may have none."""
    cache = ClusterCache(lambda: StateOptions(now=0))
    for number in range(200):
        encoded = cluster_cache(pod(f"p{number}")).pods
        cache.update_pod(*next(iter(encoded.items())))
        cache.snapshot()
    cache.check()
