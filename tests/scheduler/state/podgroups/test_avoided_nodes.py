"""Nodes that a PodGroup avoids: no pod of it is placed there, and pods of others are."""

import json
from typing import Any, Final

import pytest

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.commands import commands_from_plan
from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import ClusterState
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import NOW, encode_objects, gang, node, pod, queue
from tests.support.state.random_changes import apply_change, deleted

Fields = dict[str, Any]
_POLICIES: Final = build_policies(PolicySelection())
BOTH: Final = {"g0": "b", "g1": "a"}
UNTIL: Final = "2026-01-05T08:05:00Z"  # five minutes after NOW


def avoiding(pods: int = 1, *, name: str = "g", uid: str = "", **nodes: str) -> list[Fields]:
    """Return a gang that avoids nodes until a time."""
    podgroup, *members = gang(name, pods)
    records = {
        node: {"uid": uid, "until": until, "reason": "OutOfcpu"} for node, until in nodes.items()
    }
    podgroup["metadata"]["annotations"] = {"trainer-kai.dev/avoided-nodes": json.dumps(records)}
    return [podgroup, *members]


def nodes_of(encoded: EncodedSnapshot) -> dict[str, str]:
    commands = commands_from_plan(encoded, plan(encoded.snapshot, _POLICIES))
    return {it.pod.name: it.node for it in commands.binds}


PLACED: Final[list[Case[list[Fields], dict[str, str]]]] = [
    Case("it gets another node", avoiding(a=UNTIL), {"g0": "b"}),
    Case("its time is over", avoiding(2, a="2026-01-05T08:00:00Z"), BOTH),
    Case("the node was made anew", avoiding(2, uid="x", a=UNTIL), BOTH),
    Case("no node of that name", avoiding(2, z=UNTIL), BOTH),
    Case("no time", avoiding(2, a="soon"), BOTH),
    Case("other PodGroups use it", [*avoiding(a=UNTIL), *gang("h", 1)], {"g0": "b", "h0": "a"}),
    Case("all are avoided", avoiding(a=UNTIL, b=UNTIL), {}),
]


@pytest.mark.parametrize("case", PLACED, ids=ids)
def test_where_pods_are_placed(case: Case[list[Fields], dict[str, str]]) -> None:
    assert nodes_of(encode_objects(node("a"), node("b", gpu=1), *case.given)) == case.want


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"a": {"until": 3}}', "x" * 70_000])
def test_what_is_not_ours_counts_for_nothing(text: str) -> None:
    podgroup, *pods = gang("g", 1)
    podgroup["metadata"]["annotations"] = {"trainer-kai.dev/avoided-nodes": text}
    assert nodes_of(encode_objects(node("a"), podgroup, *pods)) == {"g0": "a"}


def test_a_gang_is_not_split_by_it() -> None:
    """Without the avoided node there is too little room for all of it."""
    encoded = encode_objects(node("a", gpu=4), node("b", gpu=2), *avoiding(4, a=UNTIL))
    assert nodes_of(encoded) == {}
    (rejection,) = plan(encoded.snapshot, _POLICIES).rejections
    assert "avoided because it refused a pod of the PodGroup" in rejection_message(
        encoded.snapshot, rejection
    )


def test_if_all_are_avoided_the_reason_says_until_when() -> None:
    given = node("a"), node("b"), *avoiding(a=UNTIL, b="2026-01-05T08:02:00Z")
    encoded = encode_objects(*given)
    (rejection,) = plan(encoded.snapshot, _POLICIES).rejections
    assert rejection_message(encoded.snapshot, rejection) == (
        "A pod requests 1 GPU, and none of the 2 nodes fits it: 2 nodes are avoided because they "
        "refused pods of the PodGroup (b, a; b until 2026-01-05T08:02:00Z). It can start when a "
        "node is avoided no longer, or a node that matches is added, if enough is then free there"
    )
    assert rejection.reason == "NoNodeMatches"


def test_after_so_many_refusals_no_other_node_is_tried() -> None:
    """Until the time of the first one is over: pods that all nodes refuse cost little."""
    nodes = [node(f"n{number:02}") for number in range(40)]
    until = {f"n{number:02}": f"2026-01-05T08:{10 + number}:00Z" for number in range(32)}
    encoded = encode_objects(*nodes, *avoiding(2, **until))
    assert nodes_of(encoded) == {}
    (rejection,) = plan(encoded.snapshot, _POLICIES).rejections
    assert (
        "40 nodes are avoided because they refused pods of the PodGroup (32 nodes refused pods, "
        "and no other one is tried meanwhile; until 2026-01-05T08:10:00Z)"
    ) in rejection_message(encoded.snapshot, rejection)
    del until["n00"]
    assert nodes_of(encode_objects(*nodes, *avoiding(2, **until))) == {"g0": "n00", "g1": "n00"}


def test_no_victim_is_evicted_on_an_avoided_node() -> None:
    """Its room would be of no use."""
    busy = [pod(f"old{n}", node=n, asks={"nvidia.com/gpu": "8"}) for n in "ab"]
    podgroup, *pods = avoiding(a=UNTIL)
    podgroup["spec"]["priorityClassName"] = "high"
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 90}
    encoded = encode_objects(node("a"), node("b"), high, *busy, podgroup, *pods)
    commands = commands_from_plan(encoded, plan(encoded.snapshot, _POLICIES))
    evicted = [it.name for one in commands.podgroups for e in one.evictions for it in e.pods]
    assert evicted == ["oldb"]


def test_the_state_follows_time_and_nodes() -> None:
    """The same as a state that is read anew."""
    state = ClusterState(StateOptions(now=NOW, default_queue="q"))
    for one in (queue(), node("a"), node("b", gpu=1), *avoiding(2, uid="old", a=UNTIL)):
        apply_change(state, one)
    assert nodes_of(state.snapshot(NOW)) == BOTH
    old = {**node("a"), "metadata": {"name": "a", "uid": "old"}}
    apply_change(state, old)
    assert nodes_of(state.snapshot(NOW)) == {}
    state.check(NOW)
    assert nodes_of(state.snapshot(NOW + 299)) == {}
    assert nodes_of(state.snapshot(NOW + 300)) == BOTH
    state.check(NOW)  # the clock went back
    apply_change(state, node("0"))  # the rows of all nodes change
    state.check(NOW)
    assert nodes_of(state.snapshot(NOW)) == {"g0": "b", "g1": "0"}
    apply_change(state, deleted(old))
    state.check(NOW)
    apply_change(state, node("a"))
    apply_change(state, deleted(node("0")))
    state.check(NOW)
    assert nodes_of(state.snapshot(NOW)) == BOTH
