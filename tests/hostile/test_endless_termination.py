"""Pods that take 68 years to go: the queue has no more than its limit, and others get theirs."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.hostile.conftest import Measured, SimulateFixture
from tests.hostile.objects import TENANT, node, pod, pod_group, queue

_GRACE: Final = 2**31 - 1  # seconds: the most that a user may ask for with kubectl
_ASKED_AT: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_NOW_S: Final = int(_ASKED_AT.timestamp()) + 60
_STUCK_S: Final = int(_ASKED_AT.timestamp()) + 3600 + 121


def _terminating(one: dict[str, Any], grace: int) -> dict[str, Any]:
    """Return a pod that was deleted, as the API server writes it."""
    due = (_ASKED_AT + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = {**one["metadata"], "deletionTimestamp": due, "deletionGracePeriodSeconds": grace}
    return {**one, "metadata": meta}


def _borrowing_pods(namespace: str, grace: int = _GRACE) -> list[dict[str, Any]]:
    """Return pods that were deleted, with all of one node."""
    return [_terminating(pod(namespace, f"old{n}", 1, node="n0"), grace) for n in range(8)]


def _tenant() -> list[dict[str, Any]]:
    """Return a queue at its limit with only terminating pods, and twice as much that waits."""
    waits = (pod(TENANT, f"new{n:02}", 1) for n in range(16))
    return [queue(TENANT, 0, limit=8), *_borrowing_pods(TENANT), *waits]


def _gang(namespace: str) -> list[dict[str, Any]]:
    pods = (pod(namespace, f"p{n}", 1, "job") for n in range(8))
    return [queue(namespace, 8), pod_group(namespace, "job", 8), *pods]


def _nodes(count: int) -> list[dict[str, Any]]:
    return [node(f"n{n}") for n in range(count)]


def _nominated(found: Measured) -> Mapping[str, str]:
    """Return the node that each pod is promised, by namespace/name."""
    first = found.document["cycles"][0]
    return {f"{it['namespace']}/{it['pod']}": it["node"] for it in first["nominations"]}


def test_a_queue_has_no_more_on_nodes_than_its_limit(simulate: SimulateFixture) -> None:
    """Nothing of it is bound, and only the room of its own pods is promised to it."""
    found = simulate([*_nodes(4), *_tenant(), *_gang("red"), *_gang("blue")], now=_NOW_S)
    assert {name.partition("/")[0] for name in found.binds} == {"red", "blue"}
    assert len(found.binds) == 16
    assert {*_nominated(found).values()} <= {"n0"}
    waiting = [it for name, it in found.waiting.items() if name.startswith(TENANT)]
    assert {it["reason"] for it in waiting} == {"ExceedsLimit"}
    message = waiting[0]["message"]
    assert (
        "Queue tenant has a limit of 8 GPU and uses 0 GPU, and its terminating pods use 8 GPU"
        in (message)
    )
    assert "It can start when terminating pods of queue tenant release 1 GPU" in message


def test_room_that_is_not_given_back_is_sought_elsewhere(simulate: SimulateFixture) -> None:
    """Red waits for it for an hour and two minutes, and then takes back what blue has borrowed."""
    runs = [pod("blue", f"p{n}", 1, node=f"n{1 + n // 8}") for n in range(16)]
    queues = [queue(TENANT, 0, limit=8), queue("blue", 8)]
    objects = [*_nodes(3), *queues, *_borrowing_pods(TENANT), *_gang("red"), *runs]
    before, after = (simulate(objects, now=now) for now in (_NOW_S, _STUCK_S))
    assert {node for name, node in _nominated(before).items() if "red" in name} == {"n0"}
    assert not before.evictions
    assert {node for name, node in _nominated(after).items() if "red" in name} <= {"n1", "n2"}
    assert sorted(after.evictions.values()) == ["reclaim"] * 8
    assert all(name.startswith("blue/") for name in after.evictions)


def test_pods_that_should_be_gone_are_charged(simulate: SimulateFixture) -> None:
    """After the same time they count as there: the queue is at its limit, and full."""
    found = simulate([*_nodes(2), *_tenant()], now=_STUCK_S)
    assert not found.binds
    assert not _nominated(found)
    assert {it["reason"] for it in found.waiting.values()} == {"ExceedsLimit"}
    (tenant,) = (it for it in found.document["queues"] if it["name"] == TENANT)
    assert tenant["allocated"]["gpu"] == 8


def test_no_grace_is_too_long_to_be_counted(simulate: SimulateFixture) -> None:
    """One of 292,000,000,000 years, too: the API server lets it wrap, and so it is long over."""
    objects = [*_nodes(2), *_tenant(), *_gang("red")]
    for one in objects:
        if "deletionTimestamp" in one["metadata"]:
            one["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:59Z"
            one["metadata"]["deletionGracePeriodSeconds"] = 2**63 - 1
    found = simulate(objects, now=_NOW_S)
    assert {name.partition("/")[0] for name in found.binds} == {"red"}


def test_the_next_gang_at_a_limit_waits_for_the_last_one(simulate: SimulateFixture) -> None:
    """It is promised that room where no other is free, else it starts when the last one is gone."""
    objects = [*_nodes(1), *_gang("red"), *_borrowing_pods("red", grace=30)]
    for one in objects:
        if one["kind"] == "Queue":
            one["spec"]["resources"]["gpu"]["limit"] = 8
    found = simulate(objects, now=_NOW_S)
    assert {*_nominated(found).values()} == {"n0"}
    assert len(_nominated(found)) == 8
    beside = simulate([*objects, node("n1")], now=_NOW_S)
    assert beside.waiting["red/job"]["reason"] == "ExceedsLimit"
