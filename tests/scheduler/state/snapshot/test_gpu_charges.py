"""What queues are charged for shares of GPUs, and the shares of reserved places."""

import json
from typing import Any, Final

import pytest

from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import (
    encode_objects,
    group,
    jobset_pod,
    node,
    pod,
    podset_of,
    signature_of,
)

_LABEL: Final = "nvidia.com/gpu.memory"
_NODES: Final = [
    node("big", labels={_LABEL: "80000"}),
    node("small", labels={_LABEL: "40000"}),
    node("unknown"),
]


def _share(name: str, at: str = "", devices: int = 1, **annotations: str) -> dict[str, Any]:
    notes = {f"gpu-{key}": value for key, value in annotations.items()}
    if devices > 1:
        notes["gpu-fraction-num-devices"] = str(devices)
    labels = {"kai.scheduler/queue": "q"}
    return pod(name, node=at, asks={"cpu": "1"}, annotations=notes, labels=labels)


def _gpus(found: EncodedSnapshot) -> tuple[int, int, int]:
    """Return the GPUs of the queue: allocated, requested, and releasing on all nodes."""
    queues = found.snapshot.queues
    q = queues.names.index("q")
    releasing = sum(it.amounts[2] for it in queues.releasing if it.queue == q)
    return int(queues.allocated[q, 2]), int(queues.requested[q, 2]), releasing


# pods → thousandths of GPUs: allocated, requested, releasing
CHARGES: list[Case[list[dict[str, Any]], tuple[int, int, int]]] = [
    Case(
        "half a hundredth is rounded up",
        [_share("p", "big", fraction="0.125")],
        (130, 130, 0),
    ),
    Case("less than half is rounded down", [_share("p", "big", fraction="0.004")], (0, 0, 0)),
    Case(
        "each of several GPUs is rounded", [_share("p", "big", 3, fraction="0.125")], (390, 390, 0)
    ),
    Case("a pending fraction", [_share("p", fraction="0.125")], (0, 130, 0)),
    Case("memory on a large GPU", [_share("p", "big", memory="20000")], (250, 250, 0)),
    Case("memory on a small GPU", [_share("p", "small", memory="20000")], (500, 500, 0)),
    Case("memory on an unknown GPU", [_share("p", "unknown", memory="20000")], (1000, 1000, 0)),
    Case("memory on a node that is gone", [_share("p", "gone", memory="20000")], (500, 500, 0)),
    Case("of several GPUs", [_share("p", "big", 2, memory="20001")], (520, 520, 0)),
    Case("pending memory: the smallest GPU", [_share("p", memory="20000")], (0, 500, 0)),
    Case("at most a whole GPU", [_share("p", devices=2, memory="60000")], (0, 2000, 0)),
    Case(
        "equal pods on several nodes",
        [_share(f"{at}{n}", at, memory="20000") for at in ("big", "small", "") for n in range(2)],
        (1500, 2500, 0),
    ),
    Case(
        "a terminating pod is releasing",
        [
            {
                **(it := _share(f"p-{at}", at, memory="20000")),
                "metadata": {**it["metadata"], "deletionTimestamp": "2026-01-05T08:00:00Z"},
            }
            for at in ("big", "small")
        ],
        (0, 0, 750),
    ),
    Case(
        "stuck in terminating",
        [
            {
                **(it := _share("p", "big", memory="20000")),
                "metadata": {**it["metadata"], "deletionTimestamp": "2026-01-05T07:00:00Z"},
            }
        ],
        (250, 250, 0),
    ),
    Case("an invalid one", [_share("p", fraction="2")], (0, 0, 0)),
]


@pytest.mark.parametrize("case", CHARGES, ids=ids)
def test_what_queues_are_charged(
    case: Case[list[dict[str, Any]], tuple[int, int, int]],
) -> None:
    """Fractions in hundredths; memory by the node, or by the smallest GPU while it is pending."""
    assert (
        _gpus(encode_objects(*_NODES, *case.given, places_gpu_shares=True, trusts_gpu_labels=True))
        == case.want
    )


def test_memory_where_no_node_states_it() -> None:
    """Each GPU counts whole."""
    found = encode_objects(
        node("a"),
        _share("p", devices=2, memory="1"),
        places_gpu_shares=True,
        trusts_gpu_labels=True,
    )

    assert _gpus(found) == (0, 2000, 0)
    assert signature_of(found, "p").least_queue_request is None


# node of the pod → share, memory, charge, charge on the largest GPU
SIGNATURES: list[Case[str, tuple[int, int, int, int | None]]] = [
    Case("a pending pod is charged by the smallest GPU", "", (0, 20000, 500, 250)),
    Case("on a large GPU", "big", (250, 20000, 250, None)),
    Case("on a small GPU", "small", (500, 20000, 500, None)),
    Case("on an unknown GPU", "unknown", (1000, 20000, 1000, None)),
]


@pytest.mark.parametrize("case", SIGNATURES, ids=ids)
def test_signatures_with_memory(case: Case[str, tuple[int, int, int, int | None]]) -> None:
    """A pod on a node has the share that it has there."""
    found = signature_of(
        encode_objects(
            *_NODES,
            _share("p", case.given, memory="20000"),
            places_gpu_shares=True,
            trusts_gpu_labels=True,
        ),
        "p",
    )

    least = found.least_queue_request
    assert (
        found.device_share,
        found.device_memory,
        found.queue_request[2],
        least and least[2],
    ) == case.want
    assert (found.shared_devices, found.has_gpu, found.requests_mig) == (1, True, False)


def test_signatures_with_mig_profiles() -> None:
    """Also of a form that has no slices in its name."""
    names = {"p": "nvidia.com/mig-3g.20gb", "q": "nvidia.com/mig-large", "r": "nvidia.com/gpu"}
    pods = [pod(name, asks={resource: "1"}) for name, resource in names.items()]
    found = encode_objects(node("a", has=dict.fromkeys(names.values(), "4")), *pods)

    signatures = [signature_of(found, name) for name in names]
    assert [(it.requests_mig, it.has_gpu, it.queue_request[2]) for it in signatures] == [
        (True, True, 3000),
        (True, True, 0),
        (False, True, 1000),
    ]


_SUBGROUPS: Final = [
    {"name": "n-replica-0", "minMember": 1},
    {"name": "l-replica-0", "minMember": 2},
]


def _with_places(name: str, places: dict[str, int], **sharing: str) -> list[dict[str, Any]]:
    """Return a PodGroup that runs on "z" and has reserved places with shares."""
    notes = {f"gpu-{key}": value for key, value in sharing.items()}
    later = {"subGroupPrefix": "l-replica-", "replicas": 1, "count": 2, "requests": {"cpu": "1"}}
    annotations = {
        "trainer-kai.dev/anticipated": json.dumps({"later": [{**later, "sharing": notes}]}),
        "trainer-kai.dev/reserved": json.dumps({"l-replica-0": {"nodes": places}}),
    }
    return [
        group(name, meta={"annotations": annotations}, subGroups=_SUBGROUPS),
        jobset_pod(f"{name}-n", name, node="z", asks={"cpu": "1"}),
    ]


def _device_rows(found: EncodedSnapshot) -> list[tuple[str, int, int]]:
    devices = found.snapshot.devices
    return list(zip(devices.ids, devices.used.tolist(), devices.releasing.tolist(), strict=True))


def _on(name: str, fraction: str, id_: str = "", **meta: str) -> dict[str, Any]:
    labels = {"runai-gpu-group": id_} if id_ else {}
    notes = {"gpu-fraction": fraction}
    return pod(name, node="a", asks={"cpu": "1"}, annotations=notes, labels=labels, meta=meta)


_GOING: Final = {"deletionTimestamp": "2026-01-05T08:00:00Z"}
# pods beside two reserved places of 0.4 → shared GPUs, and the slots of the places
PLACES: list[
    Case[list[dict[str, Any]], tuple[list[tuple[str, int, int]], list[tuple[int, ...]]]]
] = [
    Case("reserved places share one GPU", [], ([("reserved-0", 800, 0)], [(0,), (0,)])),
    Case(
        "beside the most used that has so much",
        [_on("p", "0.7", "t"), _on("q", "0.5", "u"), _on("r", "0.3")],
        ([("t", 700, 0), ("u", 900, 0), ("unknown-0", 700, 0)], [(1,), (2,)]),
    ),
    Case(
        "beside shares that stay",
        [_on("p", "0.5", "x"), _on("q", "0.4", "x", **_GOING)],
        ([("reserved-0", 400, 0), ("x", 1300, 400)], [(1,), (0,)]),
    ),
    Case(
        "not where all shares terminate",
        [_on("p", "0.5", "x", **_GOING)],
        ([("reserved-0", 800, 0), ("x", 500, 500)], [(0,), (0,)]),
    ),
]


@pytest.mark.parametrize("case", PLACES, ids=ids)
def test_reserved_places_have_gpus(
    case: Case[list[dict[str, Any]], tuple[list[tuple[str, int, int]], list[tuple[int, ...]]]],
) -> None:
    """Like pods without an id, after all pods."""
    found = encode_objects(
        *map(node, "az"),
        *_with_places("g", {"a": 2}, fraction="0.4"),
        *case.given,
        places_gpu_shares=True,
        trusts_gpu_labels=True,
    )

    places = podset_of(found, "g", "l-replica-0").reserved_places
    assert (_device_rows(found), [it.slots for it in places]) == case.want


def test_no_place_is_reserved_beside_pods_of_which_the_gpu_is_not_known() -> None:
    """In a cluster: there is no reservation pod that would hold it."""
    given = _with_places("g", {"a": 1}, fraction="0.4"), [_on("p", "0.3", "x")]

    found = encode_objects(*map(node, "az"), *given[0], *given[1], places_gpu_shares=True)

    assert _device_rows(found) == [("reserved-0", 400, 0), ("unknown-0", 300, 0)]


def test_reserved_places_are_in_the_order_of_their_podgroups() -> None:
    """The first has the fuller GPU; the older PodGroup need not be the first."""
    found = encode_objects(
        *map(node, "az"),
        *_with_places("h", {"a": 1}, fraction="0.5"),
        *_with_places("g", {"a": 1}, fraction="0.6"),
        _on("p", "0.4", "x"),
        places_gpu_shares=True,
        trusts_gpu_labels=True,
    )

    slots = [podset_of(found, it, "l-replica-0").reserved_places[0].slots for it in "gh"]
    assert (_device_rows(found), slots) == ([("reserved-0", 500, 0), ("x", 1000, 0)], [(1,), (0,)])


def test_reserved_places_with_memory_are_charged_by_their_node() -> None:
    """Their signature is that of a pod there."""
    found = encode_objects(
        *_NODES,
        node("z"),
        *_with_places("g", {"big": 1, "small": 1}, memory="20000"),
        places_gpu_shares=True,
        trusts_gpu_labels=True,
    )

    places = podset_of(found, "g", "l-replica-0").reserved_places
    signatures = [found.snapshot.signatures[it.signature] for it in places]
    assert [(it.device_share, it.queue_request[2]) for it in signatures] == [(250, 250), (500, 500)]
    assert _gpus(found)[:2] == (750, 750)
    assert _device_rows(found) == [("reserved-0", 250, 0), ("reserved-0", 500, 0)]


def test_what_is_never_placed_is_not_relocated() -> None:
    """Its pods would wait for ever."""
    pods = {
        "share": _share("share", "big", fraction="0.5"),
        "mig": pod("mig", node="big", annotations={"nvidia.com/mig-1g.5gb": "1"}),
        "whole": pod("whole", node="big"),
    }
    may = []
    for places in (False, True):
        found = encode_objects(*_NODES, *pods.values(), places_gpu_shares=places)
        names = [key.name.split("-")[1] for key in found.podgroup_keys]
        rows = zip(names, found.snapshot.podgroups, strict=True)
        may.append({name: it.may_relocate for name, it in rows})
    assert may == [
        {"share": False, "mig": False, "whole": True},
        {"share": True, "mig": False, "whole": True},
    ]


def test_a_podgroup_with_pods_that_are_never_placed_is_not_relocated() -> None:
    """One pod is enough."""
    mig = {"nvidia.com/mig-1g.5gb": "1"}
    pods = [pod("p", "g", node="big", annotations=mig), pod("q", "g", node="big")]

    found = encode_objects(*_NODES, group("g"), *pods, group("h"), pod("r", "h", node="big"))

    assert [it.may_relocate for it in found.snapshot.podgroups] == [False, True]
