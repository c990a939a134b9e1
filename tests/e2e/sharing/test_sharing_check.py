"""The sharing check reports the histories in which a bind was not prepared as it has to be."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import pytest

from e2e.cluster.gpu_devices import GPU_GROUP, RESERVATIONS, RESERVED_DEVICE
from e2e.cluster.nodes import NodeShape, make_nodes
from e2e.cluster.resources import CONFIG_MAPS, NODES, PODS, Obj, Resource
from e2e.cluster.timeline import Key, Moment
from e2e.sharing.sharing_check import (
    DEVICES,
    FRACTION,
    MEMORY,
    NUMBER,
    leftovers,
    sharing_faults,
)
from tests.support.case import Case, ids

Change: TypeAlias = tuple[Resource, Obj]

_PREFIX = "x1y2z3a-shared-gpu"


def node() -> Change:
    """Return the one node of these tests."""
    (made,) = make_nodes(1, NodeShape(gpus=2, gpu_memory_mib=1000))
    return NODES, made


def reservation(group: str = "g", device: str = "GPU-0", phase: str = "Running") -> Change:
    """Return a reservation pod on the node."""
    labels = {"app": RESERVATIONS, GPU_GROUP: group}
    metadata: Obj = {"namespace": RESERVATIONS, "name": group, "uid": group, "labels": labels}
    metadata["annotations"] = {RESERVED_DEVICE: device} if device else {}
    return PODS, {
        "metadata": metadata,
        "spec": {"nodeName": "node-0", "containers": []},
        "status": {"phase": phase},
    }


def config_map(name: str, devices: str = "GPU-0", owner: str = "a") -> Change:
    """Return one of the two ConfigMaps of a pod."""
    metadata: Obj = {"namespace": "ns", "name": f"{owner}-{_PREFIX}-{name}"}
    metadata |= {"ownerReferences": [{"uid": owner}]}
    return CONFIG_MAPS, {"metadata": metadata, "data": {"NVIDIA_VISIBLE_DEVICES": devices}}


def pod(
    name: str = "a",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Change:
    """Return a pod on the node, with half of a GPU."""
    notes = {FRACTION: "0.5", DEVICES: "GPU-0"}
    notes |= {"runai/shared-gpu-configmap": f"{name}-{_PREFIX}"}
    notes |= annotations
    metadata: Obj = {"namespace": "ns", "name": name, "uid": name, "annotations": notes}
    metadata["labels"] = {GPU_GROUP: "g"} if labels is None else labels
    spec = {"schedulerName": "kai-scheduler", "nodeName": "node-0", "containers": []}
    return PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def history(*changes: Change) -> list[Moment]:
    """Return the record of changes, the first of which was there before."""
    moments = []
    for at, (resource, obj) in enumerate(changes):
        meta = obj["metadata"]
        key = Key(resource, meta.get("namespace", ""), meta["name"])
        moments.append(Moment(float(at), at, "ADDED" if at else "LISTED", key, obj))
    return moments


def maps(owner: str = "a", devices: str = "GPU-0") -> tuple[Change, Change]:
    """Return both ConfigMaps of a pod."""
    return config_map("0", devices, owner), config_map("0-evar", devices, owner)


_PAIR = {f"{GPU_GROUP}/g": "g", f"{GPU_GROUP}/h": "h"}
_BOTH = "GPU-0,GPU-1"
_TWO = {NUMBER: "2", DEVICES: _BOTH}
_MEMORY = pod("b", annotations={MEMORY: "600"})
del _MEMORY[1]["metadata"]["annotations"][FRACTION]

CASES: list[Case[tuple[Change, ...], list[str]]] = [
    Case("all is there", (reservation(), *maps(), pod()), []),
    Case(
        "of two GPUs",
        (reservation(), reservation("h", "GPU-1"), *maps("a", _BOTH), pod("a", _PAIR, _TWO)),
        [],
    ),
    Case(
        "a pod without labels is a fault",
        (reservation(), *maps(), pod("a", {})),
        ["it has 1 shares, and the labels {}", "it says it has ['GPU-0']"],
    ),
    Case(
        "the label of one GPU for two",
        (reservation(), *maps("a", _BOTH), pod(annotations=_TWO)),
        ["it has 2 shares, and the labels", "it says it has"],
    ),
    Case(
        "no reservation pod", (*maps(), pod()), ["g has 0 reservation pods", "its reservation pods"]
    ),
    Case(
        "one that has failed",
        (reservation(phase="Failed"), *maps(), pod()),
        ["g has 0 reservation pods", "its reservation pods []"],
    ),
    Case(
        "no device is a fault",
        (reservation(device=""), *maps(), pod()),
        ["its reservation pods ['']"],
    ),
    Case(
        "another device than the reserved one is a fault",
        (reservation(device="GPU-1"), *maps(), pod()),
        ["it says it has ['GPU-0'], and its reservation pods ['GPU-1']"],
    ),
    Case(
        "a missing ConfigMap is a fault",
        (reservation(), config_map("0"), pod()),
        [f"there is no ConfigMap a-{_PREFIX}-0-evar"],
    ),
    Case(
        "a ConfigMap for another device",
        (reservation(), config_map("0", "GPU-1"), config_map("0-evar"), pod()),
        [f"a-{_PREFIX}-0 has GPU-1, and not ['GPU-0']"],
    ),
    Case(
        "more than the GPU",
        (reservation(), *maps(), pod(), *maps("b"), _MEMORY),
        ["1.100 of g are used"],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_faults(case: Case[tuple[Change, ...], list[str]]) -> None:
    """Each is named with the pod, in their order."""
    found = sharing_faults(history(node(), *case.given))

    assert len(found) == len(case.want), found
    assert all(want in one for want, one in zip(case.want, found, strict=True)), found


def test_a_gpu_that_is_released_too_early() -> None:
    """Its reservation pod is gone while a pod uses it, and not afterwards."""
    (resource, held), (_, user) = reservation(), pod()
    moments = history(node(), (resource, held), *maps(), (resource, user))
    gone = moments[1]._replace(version=9, type="DELETED")
    user_gone = moments[-1]._replace(version=8, type="DELETED")

    (fault,) = sharing_faults([*moments, gone])

    assert fault == "g at 1.00 s: it is gone while a use its GPU"
    assert sharing_faults([*moments, user_gone, gone]) == []


def test_what_is_left() -> None:
    """Reservation pods, labels and ConfigMaps, and nothing else."""
    changes = [node(), reservation(), config_map("0"), pod(), pod("other", {})]
    state = {it.key: it.obj for it in history(*changes)}

    assert leftovers(state) == [
        f"ConfigMap a-{_PREFIX}-0",
        "labels of a",
        "reservation pod g",
    ]
    assert leftovers({it.key: it.obj for it in history(node(), pod("other", {}))}) == []
