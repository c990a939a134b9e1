"""Devices and claims that change: the snapshot is that of a state that knew nothing before."""

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from tests.support.size import examples
from tests.support.state.devices import (
    DRIVER,
    allocation,
    claim_template,
    claiming_pod,
    device_class,
    gpu,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import NOW, Fields, group, make_object, node, pod, queue
from tests.support.state.random_changes import ObjectChange, apply_change, deleted

OPTIONS: Final = StateOptions(now=NOW, default_queue="q")
_RULE: Final = make_object(
    "DeviceTaintRule",
    "rule",
    spec={"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "k", "effect": "NoExecute"}},
)
_BASE: Final = [
    queue(),
    node("a"),
    node("b", gpu=0),
    device_class(),
    claim_template(),
    resource_slice("a"),
    group("g", minMember=1),
    claiming_pod("g0", "g"),
    resource_claim("g0-gpu", of="g0"),
]
CHANGES: dict[str, list[ObjectChange]] = {
    "a slice comes and goes": [resource_slice("b"), deleted(resource_slice("b"))],
    "a slice has other devices": [resource_slice("a", [gpu("x")]), resource_slice("a", 4)],
    "a pool gets a new generation": [
        resource_slice("a", 1, name="new", pool={"generation": 2}),
        deleted(resource_slice("a")),
    ],
    "a node goes and comes back": [deleted(node("a")), node("a")],
    "a class changes": [
        device_class(DRIVER, "true"),
        deleted(device_class()),
        device_class(),
    ],
    "a class stands for a resource, and no longer": [
        pod("x", asks={"example.com/gpu": "1"}),
        device_class(extendedResourceName="example.com/gpu"),
        device_class(),
    ],
    "a template changes": [
        claim_template("t", request(count=2)),
        deleted(claim_template()),
        claim_template(),
    ],
    "a rule taints devices": [_RULE, deleted(_RULE)],
    "a claim is allocated, then its pod is bound, then both go": [
        resource_claim("g0-gpu", of="g0", status=allocation("a", "gpu-1", users=["g0"])),
        claiming_pod("g0", "g", node="a"),
        claiming_pod("g0", "g", node="a", meta={"deletionTimestamp": "2026-01-05T08:00:00Z"}),
        deleted(claiming_pod("g0", "g")),
        deleted(resource_claim("g0-gpu", of="g0")),
    ],
    "a pod gets its claim late": [
        deleted(resource_claim("g0-gpu", of="g0")),
        claiming_pod("g0", "g", has_claim=False),
        resource_claim("g0-gpu", of="g0"),
        claiming_pod("g0", "g"),
    ],
    "a claim of several pods": [
        resource_claim("s", meta={"labels": {"kai.scheduler/queue": "q"}}),
        claiming_pod("g1", "g", claim="s"),
        claiming_pod("g2", "g", claim="s"),
        resource_claim(
            "s",
            meta={"labels": {"kai.scheduler/queue": "q"}},
            status=allocation("a", "gpu-0", users=["g1"]),
        ),
        claiming_pod("g1", "g", claim="s", node="a"),
        deleted(claiming_pod("g2", "g", claim="s")),
        deleted(resource_claim("s")),
    ],
    "a template changes while a pod runs": [
        claiming_pod("g0", "g", node="a"),
        resource_claim("g0-gpu", of="g0", status=allocation("a", "gpu-1", users=["g0"])),
        claim_template("t", request(count=2)),
        claim_template("t", request(deviceClassName="x")),
        resource_claim("g0-gpu", of="g0", status=allocation("a", "gpu-0", "gpu-1", users=["g0"])),
        deleted(claim_template()),
    ],
    "a claim in use is deleted": [
        resource_claim("s", status=allocation("a", "gpu-0", users=["g1"])),
        claiming_pod("g1", "g", claim="s", node="a"),
        claiming_pod("g2", "g", claim="s"),
        resource_claim(
            "s",
            meta={"deletionTimestamp": "2026-01-05T08:00:00Z"},
            status=allocation("a", "gpu-0", users=["g1"]),
        ),
        claiming_pod("g1", "g", node="a", claim="s", status={"phase": "Failed"}),
    ],
    "a place is reserved for a pod with a claim": [
        group(
            "g",
            minMember=2,
            meta={
                "annotations": {
                    "kai.scheduler/last-start-timestamp": "2026-01-05T07:00:00Z",
                    "trainer-kai.dev/reserved": '{"default": {"a": {"repair": 1}}}',
                }
            },
        ),
        claiming_pod("g0", "g", node="a"),
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_change_the_snapshot_is_that_of_a_new_state(name: str) -> None:
    state = ClusterState(OPTIONS)
    for it in _BASE:
        apply_change(state, it)
    state.check(NOW)
    for change in CHANGES[name]:
        apply_change(state, change)
        state.check(NOW)
    state.put_all(state.cluster)
    state.check(NOW)


def _changes() -> st.SearchStrategy[list[ObjectChange]]:
    known: list[Fields] = [*_BASE, *(it for of in CHANGES.values() for it in of)]
    whole: st.SearchStrategy[Any] = st.sampled_from(known)
    change = st.tuples(whole, st.booleans()).map(lambda it: deleted(it[0]) if it[1] else it[0])
    return st.lists(change, min_size=1, max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_changes(), min_size=1, max_size=5))
def test_after_any_changes_the_snapshot_is_that_of_a_new_state(
    turns: list[list[ObjectChange]],
) -> None:
    state = ClusterState(OPTIONS)
    apply_change(state, queue())
    for changes in turns:
        for change in changes:
            apply_change(state, change)
        state.check(NOW)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(_changes(), min_size=1, max_size=4), st.integers(1, 6_000))
def test_what_is_evaluated_bit_by_bit_is_the_same(
    turns: list[list[ObjectChange]], steps: int
) -> None:
    """Also if devices and claims change meanwhile; it always ends."""
    state = ClusterState(replace(OPTIONS, selector_steps=steps))
    apply_change(state, queue())
    for changes in turns:
        for change in changes:
            apply_change(state, change)
        state.snapshot(NOW)
    for _ in range(100):
        if not state.snapshot(NOW).unevaluated_namespaces:
            break
    assert not state.snapshot(NOW).unevaluated_namespaces
    state.check(NOW)
