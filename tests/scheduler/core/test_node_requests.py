"""Which PodGroups ask for nodes, and why the others ask for none."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.messages.node_request_messages import lacking_pods_text, refusal_text
from scheduler.core.model.node_request import NodeRequest
from scheduler.core.node_requests import node_requests
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.state.objects import Fields, encode_objects, group, make_object, node, pod, queue
from trainer_kai.api.names import AVOIDED_NODES, GPU_CONFIG_MAP
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.policy.podgroups.avoided_nodes import MOST_TRIED_NODES

_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_POLICIES: Final = build_policies(PolicySelection())


def gpus(limit: int = -1, quota: int = -1) -> Fields:
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    return queue(resources={"cpu": _FREE, "memory": _FREE, "gpu": gpu})


def gang(name: str, pods: int, each: int = 8, **spec: Any) -> list[Fields]:
    """Return a gang that cannot start with fewer pods."""
    asks = {"nvidia.com/gpu": str(each)}
    created = spec.pop("meta", {"creationTimestamp": f"2026-01-05T07:00:{len(name):02}Z"})
    members = [pod(f"{name}-{i}", name, asks=asks) for i in range(pods)]
    return [group(name, meta=created, **{"minMember": pods, **spec}), *members]


def requests_of(
    encoded: EncodedSnapshot,
    asking: tuple[str, ...] = (),
    paused: tuple[str, ...] = (),
    **terms: Any,
) -> Mapping[str, NodeRequest]:
    rejections = plan(encoded.snapshot, _POLICIES).rejections
    names = [key.name for key in encoded.podgroup_keys]
    rows, others = ({names.index(it) for it in some} for some in (asking, paused))
    found = node_requests(encoded.snapshot, rejections, rows, others, **terms)
    return {names[row]: it for row, it in found.items()}


def asking(found: Mapping[str, NodeRequest]) -> dict[str, int]:
    return {name: len(it.pods) for name, it in found.items() if it.pods}


def why_not(encoded: EncodedSnapshot, request: NodeRequest) -> str:
    assert request.refusal is not None
    assert not request.pods
    return refusal_text(encoded.snapshot, request.refusal)


def test_a_gang_asks_for_all_of_its_pods_and_says_what_is_lacking() -> None:
    """Also for those that would fit: an autoscaler fills the free nodes itself."""
    encoded = encode_objects(node("a"), *gang("g", 4))
    found = requests_of(encoded)["g"]

    assert len(found.pods) == 4
    assert (found.lacking_count, lacking_pods_text(found.lacking)) == (3, "3 \u00d7 8 GPU")


def test_of_ten_gangs_those_ask_that_the_limit_would_let_start() -> None:
    """Each alone is within the limit; together they are not."""
    gangs = [it for i in range(10) for it in gang("g" * (i + 1), 2)]
    encoded = encode_objects(gpus(limit=32), node("a", gpu=0), *gangs)
    found = requests_of(encoded)

    assert asking(found) == {"g": 2, "gg": 2}
    assert why_not(encoded, found["ggg"]) == (
        "queue q would exceed its limit together with what others ask for"
    )


def test_who_asks_already_asks_on() -> None:
    """A PodGroup that comes first would otherwise have the same nodes bought twice."""
    gangs = [*gang("g", 2, 8), *gang("gg", 2, 8)]
    encoded = encode_objects(gpus(limit=16), node("a", gpu=0), *gangs)

    assert asking(requests_of(encoded)) == {"g": 2}
    assert asking(requests_of(encoded, ("gg",))) == {"gg": 2}


def test_who_has_given_up_for_a_while_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither room in the queue nor a place among those that may ask: no node would ever fit it."""
    monkeypatch.setattr("scheduler.core.node_requests.MOST_ASKING", 1)
    encoded = encode_objects(gpus(limit=16), node("a", gpu=0), *gang("g", 2), *gang("gg", 2))
    found = requests_of(encoded, paused=("g",))

    assert asking(found) == {"gg": 2}
    assert (found["g"].refusal, found["g"].has_claims) == (None, False)


def test_nothing_is_asked_for_where_the_limit_is_in_use() -> None:
    running = pod("r", node="a", asks={"nvidia.com/gpu": "8"})
    encoded = encode_objects(gpus(limit=16), node("a"), running, *gang("g", 2))

    assert why_not(encoded, requests_of(encoded)["g"]) == "queue q is at its limit"


def test_quotas_bound_what_is_asked_for_if_a_site_wants_that() -> None:
    """What is over quota may be borrowed, and a node may be too much for that."""
    encoded = encode_objects(gpus(quota=8), node("a", gpu=0), *gang("g", 1), *gang("gg", 2))

    assert asking(requests_of(encoded)) == {"g": 1, "gg": 2}
    within = requests_of(encoded, is_within_quota=True)
    assert asking(within) == {"g": 1}
    assert why_not(encoded, within["gg"]) == (
        "queue q would exceed its quota together with what others ask for"
    )


def test_gangs_that_cannot_be_preempted_ask_within_the_quota() -> None:
    fixed: dict[str, Any] = {"preemptibility": "non-preemptible"}
    gangs = [*gang("g", 1, **fixed), *gang("gg", 1, **fixed), *gang("ggg", 2, **fixed)]
    encoded = encode_objects(gpus(quota=8), node("a", gpu=0), *gangs)
    found = requests_of(encoded)

    assert asking(found) == {"g": 1}
    assert why_not(encoded, found["ggg"]) == "queue q is at its quota"


def test_pods_beyond_the_minimum_ask_as_far_as_the_limit_goes() -> None:
    elastic = gang("g", 4, minMember=2)
    encoded = encode_objects(gpus(limit=24), node("a", gpu=0), *elastic)

    assert asking(requests_of(encoded)) == {"g": 3}


def test_a_preemption_delay_asks_for_nothing() -> None:
    delayed = gang(
        "g", 2, 1, preemptionDelay="1h", priorityClassName="high",
        meta={"creationTimestamp": "2026-01-05T07:59:59Z"},
    )  # fmt: skip
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 75}
    running = [pod(f"r{i}", node="a") for i in range(2)]
    encoded = encode_objects(gpus(quota=4), node("a", gpu=2), high, *running, *delayed)

    assert "its preemption delay is over" in why_not(encoded, requests_of(encoded)["g"])


def test_a_rack_and_a_share_of_a_gpu_are_nothing_that_an_autoscaler_sees() -> None:
    levels = [{"nodeLabel": "rack"}]
    topology = {**make_object("Topology", "dc"), "spec": {"levels": levels}}
    near = {"topology": "dc", "requiredTopologyLevel": "rack"}
    nodes = [node(it, gpu=8, labels={"rack": it}) for it in ("a", "b")]
    rack = encode_objects(topology, *nodes, *gang("g", 2, topologyConstraint=near))
    share = pod(
        "p",
        "s",
        asks={"cpu": "1"},
        annotations={"gpu-fraction": "0.5", GPU_CONFIG_MAP: "p-x1y2z3a-shared-gpu"},
    )
    shares = encode_objects(node("a", gpu=0), group("s"), share, places_gpu_shares=True)

    assert "one domain of level rack" in why_not(rack, requests_of(rack)["g"])
    assert "shares of GPUs" in why_not(shares, requests_of(shares)["s"])


def test_who_avoids_all_nodes_asks_for_no_other_one() -> None:
    """It would stay empty; a few avoided nodes are no reason not to ask for others."""
    names = [f"n{number}" for number in range(MOST_TRIED_NODES)]
    nodes = [node(it, gpu=1, meta={"uid": it}) for it in names]
    waiting = []
    for tried in (MOST_TRIED_NODES, MOST_TRIED_NODES - 1):
        records = {it: {"uid": it, "until": "2027-01-01T00:00:00Z"} for it in names[:tried]}
        meta = {"annotations": {AVOIDED_NODES: json.dumps(records)}}
        encoded = encode_objects(*nodes, *gang("g", 2, 1, meta=meta))
        waiting.append((encoded, requests_of(encoded)["g"]))

    assert why_not(*waiting[0]) == "it tries no other node either, after so many refused its pods"
    assert len(waiting[1][1].pods) == 2


def test_a_volume_that_is_missing_asks_for_no_node() -> None:
    """The reason is NoNodeMatches, and no node would match."""
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    claim = make_object("PersistentVolumeClaim", "c", spec={"storageClassName": ""})
    waits = pod("p", "g", volumes=[volume])
    found = requests_of(encode_objects(node("a"), claim, group("g"), waits))

    assert found == {}


_ASKING_REASONS: Final = {
    UnschedulableReason.NO_NODE_MATCHES,
    UnschedulableReason.FRAGMENTED,
    UnschedulableReason.NO_CAPACITY,
}
# No nodes are asked for with these two either, and the messages say why: see above.
_SAID: Final = {UnschedulableReason.TOPOLOGY_UNFIT, UnschedulableReason.PREEMPTION_DELAY}


@pytest.mark.parametrize("reason", [it for it in UnschedulableReason if it not in _SAID])
def test_only_who_waits_for_room_asks(reason: UnschedulableReason) -> None:
    """Not for a permission, a stage, a hold or a quota, whatever the nodes lack as well."""
    encoded = encode_objects(node("a", gpu=0), *gang("g", 2))
    (rejection,) = plan(encoded.snapshot, _POLICIES).rejections
    found = node_requests(encoded.snapshot, [replace(rejection, reason=reason)])

    assert [len(it.pods) for it in found.values()] == [2] * (reason in _ASKING_REASONS)


def test_only_so_many_podgroups_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have tens of thousands wait."""
    monkeypatch.setattr("scheduler.core.node_requests.MOST_ASKING", 1)
    encoded = encode_objects(node("a", gpu=0), *gang("g", 2), *gang("gg", 2), *gang("ggg", 2))
    found = requests_of(encoded)

    assert asking(found) == {"g": 2}
    assert why_not(encoded, found["ggg"]) == "2000 PodGroups that come before it ask already"
