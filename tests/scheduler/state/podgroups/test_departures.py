"""Why pods leave with their node, and when a PodGroup may be moved for it (rules 21a, 40h)."""

import json
from typing import Any, Final

import pytest

from scheduler.core.model.podgroup import Departure, podsets_of
from scheduler.core.model.snapshot import NodeFault
from scheduler.state.inputs import ApiEviction, StateOptions
from scheduler.state.podgroups.departures import api_evictions_of
from scheduler.state.snapshot.cluster_state import ClusterState, encode
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    Fields,
    cluster_cache,
    decode_object,
    encode_objects,
    group,
    node,
    pod,
    queue,
)
from trainer_kai.api.meta import Key
from trainer_kai.policy.leaving_nodes import LeavingSigns

_KARPENTER: Final = {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}
_CORDON: Final = {"unschedulable": True}
_EVICTED: Final = [
    {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
]
_TERMINATES: Final = {"deletionTimestamp": "2026-01-05T08:00:30Z"}
_SIGNS: Final = LeavingSigns(("x/leaves=now",), ("GpuUnhealthy", "Hardware=False"))

# taints, conditions → why the node leaves
CAUSES: list[Case[tuple[dict[str, str], dict[str, str]], str]] = [
    Case("nothing", ({}, {}), ""),
    Case("a listed taint", ({"x/leaves": "now"}, {}), "it has the taint x/leaves=now"),
    Case("with another value", ({"x/leaves": "soon"}, {}), ""),
    Case("another taint", ({"karpenter.sh/disrupted": ""}, {}), ""),
    Case(
        "a listed condition",
        ({}, {"Ready": "True", "GpuUnhealthy": "True"}),
        "its condition GpuUnhealthy is True",
    ),
    Case("that is not so", ({}, {"GpuUnhealthy": "False"}), ""),
    Case("of which nobody knows", ({}, {"GpuUnhealthy": "Unknown"}), ""),
    Case("a listed status", ({}, {"Hardware": "False"}), "its condition Hardware is False"),
    Case("the other one", ({}, {"Hardware": "True"}), ""),
    Case("a condition that nobody listed", ({}, {"KernelDeadlock": "True"}), ""),
]


@pytest.mark.parametrize("case", CAUSES, ids=ids)
def test_which_nodes_leave(case: Case[tuple[dict[str, str], dict[str, str]], str]) -> None:
    taints, conditions = case.given
    spec = {"taints": [{"key": k, "value": v, "effect": "NoExecute"} for k, v in taints.items()]}
    status = [{"type": name, "status": value} for name, value in conditions.items()]

    _, _, found = decode_object(node("a", spec=spec, conditions=status))

    sign = _SIGNS.of(found)

    assert (sign.cause if sign else "") == case.want
    assert sign is None or sign.is_notice == bool(taints)


def test_the_taints_of_autoscalers_are_listed() -> None:
    """Also of a node that is cordoned: the reason is worth more than the cordon."""
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "17", "effect": "NoSchedule"}
    encoded = encode_objects(node("a", spec={"taints": [taint], **_CORDON}), node("b"))

    assert encoded.snapshot.nodes.fault.tolist() == [NodeFault.LEAVING, NodeFault.NONE]
    assert encoded.snapshot.total[2] == 8000


def _cluster(spec: Fields, *more: Fields, meta: Fields | None = None) -> list[Fields]:
    """Return a gang with two pods on node a and one on node b."""
    pods = [pod(f"g{i}", "g", node=at) for i, at in enumerate("aab")]
    gang = group("g", minMember=3, meta=meta or {})
    return [node("a", spec=spec), node("b"), queue(), gang, *pods, *more]


def _departure(*objects: Fields, **options: Any) -> tuple[Departure | None, int]:
    """Return why pods of the gang leave, and how many."""
    cluster = cluster_cache(*objects)
    cluster.api_evictions.update(api_evictions_of(cluster.pods, NOW))
    encoded = encode(cluster, StateOptions(now=NOW, **options))
    found = encoded.snapshot.podgroups[encoded.podgroup_keys.index(Key("ns", "g"))]
    return found.departure, sum(it.leaving for it in podsets_of(found.tree))


def _evicted(at: str, **meta: Any) -> Fields:
    meta = {**_TERMINATES, **meta}
    return pod("gone", "g", node=at, meta=meta, status={"conditions": _EVICTED})


def _moved(count: int) -> Fields:
    last = {"moved": {"count": count, "at": "2026-01-05T07:59:00Z"}}
    return {"annotations": {"trainer-kai.dev/last-eviction": json.dumps(last)}}


_LEAVES: Final = "node a leaves: it has the taint karpenter.sh/disrupted"
_DRAINED: Final = "node a is drained: pod gone, which the PodGroup needs, was evicted from it"
_UNTIL: Final = NOW + 60
DEPARTURES: list[Case[tuple[list[Fields], Fields], tuple[Departure | None, int]]] = [
    Case("its nodes stay", (_cluster({}), {}), (None, 0)),
    Case("two pods leave", (_cluster(_KARPENTER), {}), (Departure(_LEAVES), 2)),
    Case(
        "a node that leaves and is ignored, because nobody knows what it has",
        (_cluster({}, node("a", spec=_KARPENTER, has={"cpu": "many"})), {}),
        (None, 0),
    ),
    Case("a cordon alone is no drain", (_cluster(_CORDON), {}), (None, 0)),
    Case(
        "a pod was evicted from a cordoned node",
        (_cluster(_CORDON, _evicted("a")), {}),
        (Departure(_DRAINED, _UNTIL), 0),
    ),
    Case("from one that is not", (_cluster({}, _evicted("a")), {}), (None, 0)),
    Case(
        "from one that is gone",
        (_cluster({}, _evicted("c")), {}),
        (Departure(_DRAINED.replace("node a", "node c"), _UNTIL), 0),
    ),
    Case(
        "from one that leaves",
        (_cluster(_KARPENTER, _evicted("a")), {}),
        (Departure(f"{_LEAVES}, and{_DRAINED.partition(':')[2]}", _UNTIL), 2),
    ),
    Case(
        "not evicted, but deleted",
        (_cluster(_CORDON, pod("gone", "g", node="a", meta=_TERMINATES)), {}),
        (None, 0),
    ),
    Case(
        "it was moved a minute ago",
        (_cluster(_KARPENTER, meta=_moved(1)), {}),
        (Departure(_LEAVES, 0, NOW + 240), 2),
    ),
    Case(
        "for the third time",
        (_cluster(_KARPENTER, meta=_moved(3)), {}),
        (Departure(_LEAVES, 0, NOW + 1140), 2),
    ),
    Case(
        "for the hundredth time",
        (_cluster(_KARPENTER, meta=_moved(100)), {}),
        (Departure(_LEAVES, 0, NOW + 6 * 3600 - 60), 2),
    ),
]


@pytest.mark.parametrize("case", DEPARTURES, ids=ids)
def test_why_pods_leave(
    case: Case[tuple[list[Fields], Fields], tuple[Departure | None, int]],
) -> None:
    objects, options = case.given

    assert _departure(*objects, **options) == case.want


def test_non_preemptible_podgroups_are_kept_if_a_site_wants_it() -> None:
    """By default they leave like all others: their node goes in any case."""
    gang = group("g", minMember=3, preemptibility="non-preemptible")
    objects = [*_cluster(_KARPENTER), gang]

    assert _departure(*objects) == (Departure(_LEAVES), 2)
    assert _departure(*objects, keeps_non_preemptible=True) == (None, 2)


def test_a_condition_is_no_notice() -> None:
    condition = {"type": "GpuUnhealthy", "status": "True"}
    objects = [*_cluster({}), node("a", conditions=[condition])]

    found, leaving = _departure(*objects, leaving=_SIGNS)

    reason = "node a leaves: its condition GpuUnhealthy is True"
    assert (found, leaving) == (Departure(reason, is_notice=False), 2)


def test_several_nodes_are_counted() -> None:
    found, leaving = _departure(*_cluster(_KARPENTER), node("b", spec=_KARPENTER))

    assert (found and found.reason, leaving) == (
        "node a leaves, as 1 more of its nodes do: it has the taint karpenter.sh/disrupted",
        3,
    )


def test_changes_of_nodes_and_evictions_are_followed() -> None:
    """Nodes begin to leave, stay after all or are gone, and the state is as a new one each time."""
    state = ClusterState(StateOptions(now=NOW))
    state.put_all(cluster_cache(*_cluster({})))
    seen = []
    for spec in ({}, _KARPENTER, {}, _CORDON, _KARPENTER, None):
        fields = node("a", spec=spec)
        resource, key, obj = decode_object(fields)
        state.put(resource, key, obj if spec is not None else None)
        encoded = state.snapshot(NOW)
        seen.append(encoded.snapshot.podgroups[0].departure is not None)
        state.check(NOW)
    assert seen == [False, True, False, False, True, False]

    state.api_evictions.put(Key("ns", "g"), ApiEviction("g2", "b", NOW))
    assert state.snapshot(NOW).snapshot.podgroups[0].departure is None
    resource, key, obj = decode_object(node("b", spec=_CORDON))
    state.put(resource, key, obj)  # the eviction was seen before the cordon
    begun = state.snapshot(NOW).snapshot.podgroups[0].departure
    state.api_evictions.put(Key("ns", "g"), None)

    assert begun is not None
    assert state.snapshot(NOW).snapshot.podgroups[0].departure is None
    state.check(NOW)
