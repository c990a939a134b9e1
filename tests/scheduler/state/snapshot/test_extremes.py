"""Whatever pods, nodes and queues say they are, no amount of a snapshot is negative or wraps."""

import json
from collections import Counter
from typing import Any, Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.model.resources import SUM_MOST, ResourceKind
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.size import examples
from tests.support.snapshot.plan_violations import plan_violations
from tests.support.state.objects import Fields, encode_objects, group, node, pod, queue

_QUEUES: Final = {"top": "", "left": "top", "middle": "top", "right": "top"}
_POLICIES: Final = build_policies(PolicySelection())
_LARGE: Final = st.sampled_from(["0", "1", "1Ei", "9999999999999999999", "1e30", "7Pi", "64"])
_REQUESTED: Final = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-7g.80gb", "x/y"]),
    _LARGE,
    min_size=1,
    max_size=3,
)
_BOUND: Final = st.sampled_from([-1, 0, 1, 10**9, 2**53 + 1, 10**18, 10**30])
_TERMINATING: Final = ("2026-01-05T07:59:59Z", "2020-01-05T07:59:59Z")
_COUNT: Final = st.sampled_from([0, 1, 1000, 3_000])


def _queue(name: str, parent: str, quota: int, limit: int) -> Fields:
    share = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    resources = {"cpu": share, "memory": share, "gpu": share}
    return queue(name, resources=resources, parentQueue=parent)


def _podgroup_expecting(name: str, queue: str, requested: Fields, count: int) -> Fields:
    anticipated = {"subGroupPrefix": "later-", "replicas": 1, "count": count, "requests": requested}
    notes = {"trainer-kai.dev/anticipated": json.dumps({"later": [anticipated]})}
    podsets = [{"name": "first", "minMember": 1}, {"name": "later-0", "minMember": 1}]
    return group(name, meta={"annotations": notes}, queue=queue, minMember=2, subGroups=podsets)


@st.composite
def _podgroups(draw: st.DrawFn) -> list[Fields]:
    """Return PodGroups with a few pods, and with expected pods."""
    found: list[Fields] = []
    for at in range(draw(st.integers(1, 4))):
        name, requested = f"g{at}", draw(_REQUESTED)
        found.append(
            _podgroup_expecting(
                name, draw(st.sampled_from(["left", "right"])), requested, draw(_COUNT)
            )
        )
        for number in range(draw(st.integers(1, 3))):
            at_node = draw(st.sampled_from(["", "a", "b"]))
            releasing = {"deletionTimestamp": draw(st.sampled_from(_TERMINATING))}
            meta = releasing if at_node and draw(st.booleans()) else {}
            found.append(
                pod(f"{name}-{number}", name, "first", node=at_node, asks=requested, meta=meta)
            )
    return found


@st.composite
def _clusters(draw: st.DrawFn) -> EncodedSnapshot:
    nodes = [node(name, has=draw(_REQUESTED)) for name in "ab"]
    queues = [_queue(name, above, draw(_BOUND), draw(_BOUND)) for name, above in _QUEUES.items()]
    return encode_objects(*nodes, *queues, *draw(_podgroups()))


def _amounts(snapshot: Snapshot) -> dict[str, Any]:
    queues, nodes = snapshot.queues, snapshot.nodes
    return {
        "allocated": queues.allocated,
        "fixed": queues.non_preemptible,
        "requested": queues.requested,
        "allocatable": nodes.allocatable,
        "releasing": nodes.releasing,
        "used": nodes.allocatable - nodes.idle,
        "total": np.array(snapshot.total),
    }


@settings(max_examples=examples(100), deadline=None)
@given(_clusters())
def test_no_amount_is_negative_or_wraps(found: EncodedSnapshot) -> None:
    """Nor is any of a plan, and the plan keeps all invariants."""
    for name, amounts in _amounts(found.snapshot).items():
        assert (amounts >= 0).all(), name
        assert (amounts <= SUM_MOST).all(), name
    made = plan(found.snapshot, _POLICIES)
    assert (made.fair_share >= 0).all()
    assert [*plan_violations(found.snapshot, made)] == []


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(1, 99_999), st.sampled_from([*ResourceKind]))
def test_queues_have_the_amounts_of_their_descendants(count: int, kind: ResourceKind) -> None:
    """Up to the largest amount, to the last byte."""
    name = ("cpu", "memory", "nvidia.com/gpu")[kind]
    asked = Counter(left=2**45 - 1, middle=2**44 + 3, right=2**45)
    objects = [_queue(of, above, -1, -1) for of, above in _QUEUES.items()]
    for of, amount in asked.items():
        requested = {name: str(amount) if kind == ResourceKind.MEMORY else f"{amount}m"}
        objects += [
            _podgroup_expecting(of, of, requested, count),
            pod(of, of, "first", asks=requested),
        ]
    table = encode_objects(node("a"), *objects).snapshot.queues
    has = dict(zip(table.names, table.requested[:, kind].tolist(), strict=True))
    each = {of: amount * (count + 1) for of, amount in asked.items()}
    each["top"] = sum(each.values())
    assert has == {"q": 0, **{of: min(amount, SUM_MOST) for of, amount in each.items()}}
