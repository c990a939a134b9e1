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


# pods on a node of 8 devices → ids and used, releasing thousandths; idle and releasing devices
DEVICES = [
    Case("one", [_pod_on("x"), _reserved("x")], ([("x", 500, 0)], (7000, 0))),
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
    Case("over", [{**_pod_on("x"), "phase": "Succeeded"}, _reserved("x")], ([], (8000, 0))),
    Case(
        "no device is named",
        [{**_HALF, "node": "a"}, _reserved("x")],
        ([("unknown-0", 500, 0)], (7000, 0)),
    ),
    Case("no device is kept", [_pod_on("x")], ([("unknown-0", 500, 0)], (7000, 0))),
    Case("another is kept", [_pod_on("x"), _reserved("y")], ([("unknown-0", 500, 0)], (7000, 0))),
    Case(
        "whole ones",
        [{**_pod_on("x"), "asks": {"nvidia.com/gpu": "2"}}, _reserved("x")],
        ([], (6000, 0)),
    ),
    Case(
        "several devices",
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
    Case("a reservation pod alone", [_reserved("x")], ([], (8000, 0))),
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


_PART = "requests a part of a GPU, which is not supported yet. It can start when it requests whole"
# the requests of a pod → its pre-filter failure
WAITING = [
    Case("a part", _HALF, f"The annotation gpu-fraction of pod p {_PART} GPUs"),
    Case(
        "memory",
        {"annotations": {"gpu-memory": "100"}, "asks": {}},
        f"The annotation gpu-memory of pod p {_PART} GPUs",
    ),
    Case(
        "a claim",
        {"resourceClaims": [{"name": "gpus"}]},
        "spec.resourceClaims (gpus) of pod p requests devices by ResourceClaim, which is not "
        "supported yet. It can start when it requests them as resources",
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
