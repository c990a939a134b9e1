"""GPUs that pods share: running pods use theirs, pending pods get a failure."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.state.objects import (
    encode_objects,
    node,
    pod,
    podset_of,
    prefilter_failure_of,
    signature_of,
)

_HALF = {"annotations": {"gpu-fraction": "0.5"}, "asks": {"cpu": "1"}}
_TERMINATING = {"deletionTimestamp": "2026-01-05T07:59:30Z"}


def _pod_on(device: str) -> dict[str, Any]:
    return {**_HALF, "node": "a", "labels": {"runai-gpu-group": device}}


def _reserved(device: str) -> dict[str, Any]:
    """Return a reservation pod, which holds a device for the pods that share it."""
    return {
        "node": "a",
        "labels": {"app": "kai-resource-reservation", "runai-gpu-group": device},
        "meta": {"namespace": "kai-resource-reservation"},
        "schedulerName": "x",
        "serviceAccountName": "kai-resource-reservation",
    }


def _going(fields: dict[str, Any], hour: str = "08") -> dict[str, Any]:
    """Return a pod that terminates, in time if it is since eight."""
    deletion = {"deletionTimestamp": f"2026-01-05T{hour}:00:00Z"}
    return {**fields, "meta": {**fields.get("meta", {}), **deletion}}


# pods on a node of 8 devices → ids and used, releasing thousandths; idle and releasing devices
DEVICES = [
    Case(
        "a share uses part of one device",
        [_pod_on("x"), _reserved("x")],
        ([("x", 500, 0)], (7000, 0)),
    ),
    Case("two on one", [_pod_on("x"), _pod_on("x"), _reserved("x")], ([("x", 1000, 0)], (7000, 0))),
    Case(
        "two on two",
        [_pod_on("x"), _pod_on("y"), _reserved("y"), _reserved("x")],
        ([("x", 500, 0), ("y", 500, 0)], (6000, 0)),
    ),
    Case(
        "one of two is going",
        [_pod_on("x"), {**_pod_on("x"), "meta": _TERMINATING}, _reserved("x")],
        ([("x", 1000, 500)], (7000, 0)),
    ),
    Case(
        "all are going",
        [{**_pod_on("x"), "meta": _TERMINATING}, _reserved("x")],
        ([("x", 500, 500)], (7000, 1000)),
    ),
    Case(
        "the share of a pod that is over is released",
        [{**_pod_on("x"), "phase": "Succeeded"}, _reserved("x")],
        ([], (7000, 1000)),
    ),
    Case(
        "no device is named",
        [{**_HALF, "node": "a"}, _reserved("x")],
        ([("unknown-0", 500, 0)], (6000, 1000)),
    ),
    Case("no device is kept", [_pod_on("x")], ([("unknown-0", 500, 0)], (7000, 0))),
    Case(
        "another is kept",
        [_pod_on("x"), _reserved("y")],
        ([("unknown-0", 500, 0)], (6000, 1000)),
    ),
    Case(
        "a pod of whole GPUs takes no shared device",
        [{**_pod_on("x"), "asks": {"nvidia.com/gpu": "2"}}, _reserved("x")],
        ([], (5000, 1000)),
    ),
    Case(
        "a pod of several devices uses each",
        [
            {
                "node": "a",
                "asks": {},
                "annotations": {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"},
                "labels": {"runai-gpu-group/x": "x", "runai-gpu-group/y": "y"},
            },
            _reserved("x"),
            _reserved("y"),
        ],
        ([("x", 250, 0), ("y", 250, 0)], (6000, 0)),
    ),
    Case(
        "so much memory of one of 40000 MiB",
        [
            {
                "node": "a",
                "asks": {},
                "annotations": {"gpu-memory": "10001"},
                "labels": {"runai-gpu-group": "x"},
            },
            _reserved("x"),
        ],
        ([("x", 260, 0)], (7000, 0)),
    ),
    Case("a reservation pod alone", [_reserved("x")], ([], (7000, 1000))),
    Case(
        "two reservations without users are both released",
        [_reserved("x"), _reserved("x")],
        ([], (6000, 2000)),
    ),
    Case("one alone that terminates", [_going(_reserved("x"))], ([], (7000, 1000))),
    Case("one alone that does not end", [_going(_reserved("x"), hour="07")], ([], (7000, 0))),
    Case("one alone that failed", [_reserved("x") | {"phase": "Failed"}], ([], (8000, 0))),
    Case("one alone without an id", [_reserved("")], ([], (7000, 1000))),
    Case("one on an unknown node", [_reserved("x") | {"node": "gone"}], ([], (8000, 0))),
    Case(
        "two for one GPU",
        [_reserved("x"), _pod_on("x"), _reserved("x")],
        ([("x", 500, 0)], (6000, 0)),
    ),
    Case(
        "a second one for one GPU that terminates",
        [_going(_reserved("x")), _pod_on("x"), _reserved("x")],
        ([("x", 500, 0)], (6000, 1000)),
    ),
    Case(
        "one that terminates",
        [_going(_reserved("x")), _pod_on("x")],
        ([("x", 500, 0)], (7000, 0)),
    ),
    Case(
        "one that failed",
        [_reserved("x") | {"phase": "Failed"}, _pod_on("x")],
        ([("unknown-0", 500, 0)], (7000, 0)),
    ),
    Case(
        "a reservation pod in another namespace",
        [_pod_on("x"), {**_reserved("x"), "asks": {}, "meta": {"namespace": "ns"}}],
        ([("unknown-0", 500, 0)], (7000, 0)),
    ),
    Case(
        "a reservation pod of another account",
        [_pod_on("x"), {**_reserved("x"), "serviceAccountName": "default"}],
        ([("unknown-0", 500, 0)], (6000, 0)),
    ),
    Case(
        "a pod with a label of the reservation pods",
        [{"node": "a", "labels": {"app": "kai-resource-reservation"}}],
        ([], (7000, 0)),
    ),
]


@pytest.mark.parametrize("case", DEVICES, ids=ids)
def test_devices(
    case: Case[list[dict[str, Any]], tuple[list[tuple[str, int, int]], tuple[int, int]]],
) -> None:
    """A shared device is one less for all other pods."""
    pods = [pod(f"p{i}", **pod_fields) for i, pod_fields in enumerate(case.given)]

    found = encode_objects(node("a", labels={"nvidia.com/gpu.memory": "40099"}), *pods).snapshot

    devices, gpu = found.devices, found.resources.gpus[0]
    rows = zip(devices.ids, devices.used.tolist(), devices.releasing.tolist(), strict=True)
    idle = int(found.nodes.idle[0, gpu]), int(found.nodes.releasing[0, gpu])
    assert (list(rows), idle) == case.want


def _share(id_: str = "", **annotations: str) -> dict[str, Any]:
    """Return a running pod with shares of GPUs; ids are separated by commas."""
    notes = {f"gpu-{name.replace('_', '-')}": value for name, value in annotations.items()}
    labels = {f"runai-gpu-group/{it}": it for it in id_.split(",")} if "," in id_ else {}
    plain = {"runai-gpu-group": id_} if id_ and not labels else {}
    return {"node": "a", "asks": {"cpu": "1"}, "annotations": notes, "labels": {**plain, **labels}}


_GOING = {"meta": _TERMINATING}
_STUCK = {"meta": {"deletionTimestamp": "2026-01-05T07:00:00Z"}}
# pods on a node of 8 GPUs of 40000 MiB → ids, used and releasing; idle and releasing GPUs
TRUSTED_LABELS = [
    Case(
        "three of 0.3 with one id",
        [_share("x", fraction="0.3")] * 3,
        ([("x", 900, 0)], (7000, 0)),
    ),
    Case("more than a GPU has", [_share("x", fraction="0.7")] * 2, ([("x", 1400, 0)], (7000, 0))),
    Case(
        "without an id: beside the most used that has so much",
        [_share(fraction=it) for it in ("0.5", "0.6", "0.3", "0.4", "0.2")],
        ([("unknown-0", 900, 0), ("unknown-1", 900, 0), ("unknown-2", 200, 0)], (5000, 0)),
    ),
    Case(
        "without an id: not on a GPU with one",
        [_share("x", fraction="0.5"), _share(fraction="0.5")],
        ([("unknown-0", 500, 0), ("x", 500, 0)], (6000, 0)),
    ),
    Case(
        "a label with the id that one without an id would get",
        [_share("unknown-0", fraction="0.5"), _share(fraction="0.5")],
        ([("unknown-0", 500, 0), ("unknown-1", 500, 0)], (6000, 0)),
    ),
    Case(
        "more ids than GPUs: the first",
        [_share("z,y,x", fraction="0.5", fraction_num_devices="2")],
        ([("x", 500, 0), ("y", 500, 0)], (6000, 0)),
    ),
    Case(
        "fewer ids than GPUs",
        [_share("x,y", fraction="0.5", fraction_num_devices="3")],
        ([("unknown-0", 500, 0), ("x", 500, 0), ("y", 500, 0)], (5000, 0)),
    ),
    Case(
        "several GPUs without ids are different ones",
        [_share(fraction="0.3", fraction_num_devices="2"), _share(fraction="0.3")],
        ([("unknown-0", 600, 0), ("unknown-1", 300, 0)], (6000, 0)),
    ),
    Case(
        "one of two terminates",
        [_share("x", fraction="0.3"), _share("x", fraction="0.2") | _GOING],
        ([("x", 500, 200)], (7000, 0)),
    ),
    Case(
        "all of it terminates, and another does not",
        [_share("x", fraction="0.3") | _GOING, _share("y", fraction="0.2")],
        ([("x", 300, 300), ("y", 200, 0)], (6000, 1000)),
    ),
    Case(
        "a pod that is stuck in terminating is not releasing",
        [_share("x", fraction="0.3") | _STUCK],
        ([("x", 300, 0)], (7000, 0)),
    ),
    Case(
        "thousandths are rounded up",
        [_share("x", fraction="0.0001"), _share("y", fraction="0.1234")],
        ([("x", 1, 0), ("y", 124, 0)], (6000, 0)),
    ),
    Case("a whole one", [_share("x", fraction="1")], ([("x", 1000, 0)], (7000, 0))),
    Case(
        "memory is rounded up to thousandths",
        [_share("x", memory="10001")],
        ([("x", 260, 0)], (7000, 0)),
    ),
    Case("more memory than it has", [_share("x", memory="80000")], ([("x", 1000, 0)], (7000, 0))),
    Case(
        "a pod of another scheduler",
        [_share("x", fraction="0.3") | {"schedulerName": "x"}],
        ([], (8000, 0)),
    ),
    Case(
        "an invalid request",
        [_share("x", fraction="0.3", memory="1"), _share("x", fraction="x")],
        ([], (8000, 0)),
    ),
    Case(
        "a pod with a MIG profile",
        [_share("x", fraction="0.3") | {"asks": {"nvidia.com/mig-1g.5gb": "1"}}],
        ([], (8000, 0)),
    ),
    Case("a pod without shares", [{"labels": {"runai-gpu-group": "x"}}], ([], (8000, 0))),
]


@pytest.mark.parametrize("case", TRUSTED_LABELS, ids=ids)
def test_shared_gpus_without_reservation_pods(
    case: Case[list[dict[str, Any]], tuple[list[tuple[str, int, int]], tuple[int, int]]],
) -> None:
    """Labels count as they are where pods are given shares without reservation pods."""
    pods = [pod(f"p{i}", **pod_fields) for i, pod_fields in enumerate(case.given)]
    memory = node("a", labels={"nvidia.com/gpu.memory": "40000"})

    found = encode_objects(memory, *pods, places_gpu_shares=True, trusts_gpu_labels=True).snapshot

    devices, gpu = found.devices, found.resources.gpus[0]
    rows = zip(devices.ids, devices.used.tolist(), devices.releasing.tolist(), strict=True)
    idle = int(found.nodes.idle[0, gpu]), int(found.nodes.releasing[0, gpu])
    assert (list(rows), idle) == case.want


# pods on a node → ids that are made up, ids of closed GPUs, and places for reservation pods
CLOSED = [
    Case("a reservation pod holds it", [_pod_on("x"), _reserved("x")], ([], [], 0)),
    Case("none holds it", [_pod_on("x")], (["unknown-0"], ["unknown-0"], 1)),
    Case(
        "one holds another",
        [_pod_on("x"), _pod_on("y"), _reserved("y")],
        (["unknown-0"], ["unknown-0"], 1),
    ),
    Case("the reservation pod terminates", [_pod_on("x"), _going(_reserved("x"))], ([], ["x"], 0)),
    Case(
        "and another does not",
        [_pod_on("x"), _going(_reserved("x")), _reserved("x")],
        ([], [], 0),
    ),
]


@pytest.mark.parametrize("case", CLOSED, ids=ids)
def test_gpus_that_take_no_further_share(
    case: Case[list[dict[str, Any]], tuple[list[str], list[str], int]],
) -> None:
    """Which GPU it is is not known, or the next reservation pod may get another one."""
    pods = [pod(f"p{i}", **pod_fields) for i, pod_fields in enumerate(case.given)]

    found = encode_objects(node("a"), *pods, places_gpu_shares=True).snapshot

    made_up, closed = (
        [found.devices.ids[row] for row in sorted(rows)]
        for rows in (found.devices.made_up, found.devices.closed)
    )
    places = found.nodes.allocatable - found.nodes.idle
    assert (made_up, closed, places[0, found.resources.pods] - len(pods)) == case.want


def test_where_labels_count_all_gpus_take_shares() -> None:
    """And reservation pods hold nothing."""
    pods = [
        pod("p", node="a", asks={}, annotations={"gpu-fraction": "0.5"}),
        pod("r", **_reserved("x")),
        pod("q", **_pod_on("y")),
    ]

    found = encode_objects(
        node("a"), *pods, places_gpu_shares=True, trusts_gpu_labels=True
    ).snapshot

    assert (sorted(found.devices.made_up), sorted(found.devices.closed)) == ([0], [])
    assert found.nodes.idle[0, found.resources.gpus[0]] == 6000


def test_pods_know_their_slots() -> None:
    """A slot is the position of a GPU among the GPUs of its node; only running pods have slots."""
    pods = [
        pod("p0", **_share("y", fraction="0.3")),
        pod("p1", **_share("x,z", fraction="0.3", fraction_num_devices="2")),
        pod("p2", **_share(fraction="0.3")),
        pod("p3", **{**_share("y", fraction="0.3"), "node": "b"}),
        pod("p4", **_share("y", fraction="0.3") | _GOING),
        pod("p5", **_share("y", fraction="0.3") | _STUCK),
        pod("p6", **{**_share("y", fraction="0.3"), "node": ""}),
    ]

    found = encode_objects(
        node("b"), node("a"), *pods, places_gpu_shares=True, trusts_gpu_labels=True
    )

    devices = found.snapshot.devices
    assert list(zip(devices.node.tolist(), devices.ids, strict=True)) == [
        (0, "unknown-0"),
        (0, "x"),
        (0, "y"),
        (0, "z"),
        (1, "y"),
    ]
    slots = {found.pod_keys[row].name: it for row, it in devices.slots_of_pod.items()}
    assert slots == {"p0": (2,), "p1": (1, 3), "p2": (0,), "p3": (0,)}


def test_a_term_may_select_pods_by_the_gpu_that_they_share() -> None:
    """Otherwise pods that differ only in that are one class."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"runai-gpu-group": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [pod(f"p{n}", **_share(id_, fraction="0.3")) for n, id_ in enumerate("xxy")]
    zone = node("a", labels={"zone": "z"})

    found = encode_objects(
        zone, *pods, pod("q", affinity=near), places_gpu_shares=True, trusts_gpu_labels=True
    ).snapshot

    assert found.pod_relations.selector_counts.tolist() == [[2]]


def test_the_gpus_of_a_node_are_of_its_first_resource() -> None:
    """NVIDIA comes first; a node without GPUs has none to share."""
    nodes = [
        node("amd", gpu=0, has={"amd.com/gpu": "4"}),
        node("both", gpu=2, has={"amd.com/gpu": "4"}),
        node("none", gpu=0),
    ]
    pods = [
        pod(it, **{**_share("x", fraction="0.5"), "node": it}) for it in ("amd", "both", "none")
    ]

    found = encode_objects(*nodes, *pods, places_gpu_shares=True, trusts_gpu_labels=True).snapshot

    columns = [found.resources.names.index(it) for it in ("nvidia.com/gpu", "amd.com/gpu")]
    assert found.nodes.idle[:, columns].tolist() == [[0, 3000], [1000, 4000], [0, 0]]


_PART = (
    "requests a share of a GPU, and the scheduler binds no such pods, because its setting "
    "gpu_sharing.enabled is false. It can start when the setting is true, or when it requests whole"
)
# the requests of a pod → its pre-filter failure
WAITING = [
    Case(
        "a fraction is refused where shares are off",
        _HALF,
        f"The annotation gpu-fraction of pod p {_PART} GPUs",
    ),
    Case(
        "memory is refused where shares are off",
        {"annotations": {"gpu-memory": "100"}, "asks": {}},
        f"The annotation gpu-memory of pod p {_PART} GPUs",
    ),
]


@pytest.mark.parametrize("case", WAITING, ids=ids)
def test_a_pending_pod_with_a_part_of_a_device(case: Case[dict[str, Any], str]) -> None:
    """It has a failure, and is never bound as if it requested nothing."""
    found = encode_objects(node("a"), pod("p", **case.given))

    assert prefilter_failure_of(found, "pg-p-p") == ("NoNodeMatches", case.want)
    assert podset_of(found, "pg-p-p").pending == (0,)


def test_the_signature_of_a_part() -> None:
    """It requests no whole device, and counts for its queue."""
    found = encode_objects(
        node("a"),
        pod("p", asks={}, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}),
    )

    signature = signature_of(found, "p")
    assert (
        signature.shared_devices,
        signature.device_share,
        signature.has_gpu,
        signature.queue_request[2],
    ) == (
        2,
        500,
        True,
        1000,
    )
    assert signature.request[found.snapshot.resources.gpus[0]] == 0


def test_of_several_failures_the_first_reason_is_reported() -> None:
    """Whatever is first in the pod."""
    asked: dict[str, Any] = {"labels": {"kai.scheduler/queue": "x"}, **_HALF}

    found = encode_objects(node("a"), pod("p", **asked))

    assert (prefilter_failure_of(found, "pg-p-p") or ("", ""))[0] == "QueueMissing"
