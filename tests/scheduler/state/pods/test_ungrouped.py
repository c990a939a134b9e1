"""A pod with an owner waits for its PodGroup, and not for ever."""

from typing import Any, Final

import pytest

from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    cluster_cache,
    decode_object,
    group,
    node,
    pod,
    podgroup_of,
    queue,
)
from trainer_kai.api.names import SKIP_PODGROUPER
from trainer_kai.api.reasons import UnschedulableReason

_OWNER: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r"}
_WAIT_S: Final = 30


def _owned(**more: Any) -> dict[str, Any]:
    meta = {"creationTimestamp": "2026-01-05T08:00:00Z", "ownerReferences": [_OWNER]}
    return pod("w", meta={**meta, **more.pop("meta", {})}, **more)


def _state(*objects: dict[str, Any], wait_s: int = _WAIT_S) -> ClusterState:
    options = StateOptions(now=NOW, default_queue="q", ungrouped_wait_s=wait_s)
    state = ClusterState(options)
    state.put_all(cluster_cache(queue(), node("a"), *objects))
    return state


def _reason(state: ClusterState, now: int = NOW, name: str = "pg-w-w") -> str | None:
    found = podgroup_of(state.snapshot(now), name).prefilter_failure
    return found and found.reason


CASES: list[Case[dict[str, Any], str | None]] = [
    Case("with an owner", _owned(), UnschedulableReason.GROUP_MISSING),
    Case("without one", _owned(meta={"ownerReferences": []}), None),
    Case("from long ago", _owned(meta={"creationTimestamp": "2026-01-05T07:00:00Z"}), None),
    Case("without a time", _owned(meta={"creationTimestamp": ""}), None),
    Case("that skips the podgrouper", _owned(annotations={SKIP_PODGROUPER: "true"}), None),
    Case("on a node", _owned(node="a"), None),
    Case("in a missing queue", _owned(labels={"kai.scheduler/queue": "x"}), "QueueMissing"),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_which_pods_wait(case: Case[dict[str, Any], str | None]) -> None:
    assert _reason(_state(case.given)) == case.want


def test_it_waits_as_long_as_the_setting_says() -> None:
    """Without any change of the pod; not at all where the setting is 0, as in files."""
    state = _state(_owned())
    assert _reason(state, NOW + _WAIT_S - 1) is not None
    state.check(NOW + _WAIT_S - 1)
    assert _reason(state, NOW + _WAIT_S) is None
    state.check(NOW + _WAIT_S)
    assert _reason(_state(_owned(), wait_s=0)) is None


def test_it_starts_as_soon_as_it_is_grouped() -> None:
    state = _state(_owned())
    assert _reason(state) is not None
    for it in (group("pg-web"), _owned(annotations={"pod-group-name": "pg-web"})):
        state.put(*decode_object(it))
    assert _reason(state, name="pg-web") is None
    state.check(NOW)
