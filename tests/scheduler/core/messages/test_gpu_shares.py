"""Why a pod that requests shares of GPUs or MIG profiles waits, in sentences with numbers."""

from dataclasses import replace
from typing import Any, Final

import pytest

from scheduler.core.messages.node_messages import fit_errors_message, kai_fit_errors_message
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import (
    FitErrorReason,
    FitErrors,
    MigRefusal,
    ReservationPodPlaces,
    ShareShortage,
)
from scheduler.core.model.resources import NONE
from scheduler.core.model.snapshot import GpuMode, Snapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, share_signature, signature
from tests.support.snapshot.fit_errors import fit_errors
from trainer_kai.api.reasons import UnschedulableReason

CPU: Final = 0
GPU: Final = 3
ROOM: Final = FitErrorReason.ROOM
MODE: Final = FitErrorReason.GPU_MODE


def snapshot(pod: SchedulingSignature, *nodes: SnapshotNode) -> Snapshot:
    build = Builder(nodes=nodes)
    build.signature_row(pod)
    here = build.snapshot()
    names = tuple(f"n{i}" for i in range(len(nodes)))
    return replace(here, nodes=replace(here.nodes, names=names))


def errors(counts: dict[FitErrorReason, int], **more: Any) -> FitErrors:
    reason = more.pop("reason", UnschedulableReason.NO_CAPACITY)
    return fit_errors(reason, counts, **more)


def short(nodes: int, *numbers: *tuple[int, int, int, int, int], **more: Any) -> FitErrors:
    """Return that nodes have too little free.

    The numbers are, of ShareShortage: insufficient, requested, largest_free, largest_node,
    total_free.
    """
    return errors({ROOM: nodes}, device_shortages=(ShareShortage(*numbers),), **more)


def placeless(
    nodes: int, insufficient: int, places: ReservationPodPlaces, **more: Any
) -> FitErrors:
    """Return that places for reservation pods are missing, where whole GPUs are free."""
    shortage = ShareShortage(insufficient, 200, 1000, 0, 1000, places)
    return errors({ROOM: nodes}, device_shortages=(shortage,), **more)


def memory(mib: int, devices: int = 1) -> SchedulingSignature:
    return replace(share_signature(0, devices), device_memory=mib)


ONE: Final = SnapshotNode(gpu_memory=40000)
MIG, MIXED = (SnapshotNode(gpu_mode=mode) for mode in (GpuMode.MIG, GpuMode.MIG_MIXED))
NO_MIG_NODE, SINGLE, LEGACY = MigRefusal
Given = tuple[SchedulingSignature, tuple[SnapshotNode, ...], FitErrors]

SENTENCES: list[Case[Given, str]] = [
    Case(
        "one node is told in the singular",
        (share_signature(0.2), (ONE,), short(1, 1, 200, 100, 0, 100)),
        "A pod requests 1 CPU, 1 GiB memory, 0.2 of a GPU, and the only node does not have 0.2 of "
        "a GPU free: 1 node has too little free (0.1 of a GPU free on n0). It can start when that "
        "node has 0.2 of a GPU free",
    ),
    Case(
        "several nodes, and shares in thousandths",
        (share_signature(0.125), (ONE,) * 3, short(3, 3, 125, 4, 0, 4)),
        "A pod requests 1 CPU, 1 GiB memory, 0.125 of a GPU, and none of the 3 nodes has 0.125 of "
        "a GPU free: 3 nodes have too little free (at most 0.004 of a GPU free, on n0). It can "
        "start when one of the nodes has 0.125 of a GPU free",
    ),
    Case(
        "all nodes together have less",
        (share_signature(0.5), (ONE,) * 2, short(2, 2, 500, 200, 0, 300)),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of a GPU, and none of the 2 nodes has 0.5 of a "
        "GPU free: 2 nodes have too little free (at most 0.2 of a GPU free, on n0). Together the "
        "nodes have 0.3 GPU free. It can start when one of the nodes has 0.5 of a GPU free",
    ),
    Case(
        "it would be enough in total",
        (
            share_signature(0.5),
            (ONE,) * 2,
            short(2, 2, 500, 300, 0, 600, reason=UnschedulableReason.FRAGMENTED),
        ),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of a GPU, and none of the 2 nodes has 0.5 of a "
        "GPU free: 2 nodes have too little free (at most 0.3 of a GPU free, on n0). Enough is free "
        "in total, but too little on each node. It can start when one of the nodes has 0.5 of a "
        "GPU free",
    ),
    Case(
        "all GPUs are used whole",
        (share_signature(1), (ONE,), short(1, 1, 1000, 0, 0, 0)),
        "A pod requests 1 CPU, 1 GiB memory, all of a GPU, and the only node does not have all of "
        "a GPU free: 1 node has too little free (no share of a GPU). It can start when that node "
        "has all of a GPU free",
    ),
    Case(
        "a whole GPU is free, but not the place of a second pod",
        (
            share_signature(0.2),
            (ONE,),
            placeless(1, 0, ReservationPodPlaces(1, 1, 0), reason=UnschedulableReason.FRAGMENTED),
        ),
        "A pod requests 1 CPU, 1 GiB memory, 0.2 of a GPU, and the only node does not have 1 place "
        "for a reservation pod free: 1 node has too little free (0 of 1 place for a reservation "
        "pod). It can start when that node has 1 place for a reservation pod free",
    ),
    Case(
        "two GPUs, and a place for one reservation pod",
        (share_signature(0.2, 2), (ONE,) * 2, placeless(2, 0, ReservationPodPlaces(2, 2, 1))),
        "A pod requests 1 CPU, 1 GiB memory, 0.2 of each of 2 GPUs, and none of the 2 nodes has 2 "
        "places for reservation pods free: 2 nodes have too little free (at most 1 of 2 places for "
        "reservation pods on one node). It can start when one of the nodes has 2 places for "
        "reservation pods free",
    ),
    Case(
        "one node lacks GPUs, another places",
        (share_signature(0.2), (ONE,) * 2, placeless(2, 1, ReservationPodPlaces(1, 1, 0))),
        "A pod requests 1 CPU, 1 GiB memory, 0.2 of a GPU, and none of the 2 nodes has 0.2 of a "
        "GPU, 1 place for a reservation pod free: 2 nodes have too little free (at most all of a "
        "GPU free, on n0, at most 0 of 1 place for a reservation pod on a node with such GPUs). It "
        "can start when one of the nodes has 0.2 of a GPU, 1 place for a reservation pod free",
    ),
    Case(
        "places for several pods",
        (
            share_signature(0.2),
            (ONE,),
            placeless(1, 0, ReservationPodPlaces(1, 1, 0), needed=2, unplaced=2, fitting=2),
        ),
        "0 of 2 pods fit; the next pod requests 1 CPU, 1 GiB memory, 0.2 of a GPU, and the only "
        "node does not have 1 place for a reservation pod free: 1 node has too little free (0 of 1 "
        "place for a reservation pod). It can start when that node has enough free for 2 such pods "
        "(places for reservation pods)",
    ),
    Case(
        "a share of several GPUs needs as many",
        (share_signature(0.5, 2), (ONE,), short(1, 1, 500, 200, 0, 900)),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of each of 2 GPUs, and the only node does not "
        "have 0.5 of each of 2 GPUs free: 1 node has too little free (0.2 of each of 2 GPUs free "
        "on n0). It can start when that node has 0.5 of each of 2 GPUs free",
    ),
    Case(
        "several GPUs, of which one is free",
        (share_signature(0.5, 2), (ONE,), short(1, 1, 500, 0, NONE, 900)),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of each of 2 GPUs, and the only node does not "
        "have 0.5 of each of 2 GPUs free: 1 node has too little free (a share of fewer than 2 "
        "GPUs). It can start when that node has 0.5 of each of 2 GPUs free",
    ),
    Case(
        "several GPUs of one node are not all nodes together",
        (share_signature(0.5, 2), (ONE,) * 2, short(2, 2, 500, 300, 0, 600)),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of each of 2 GPUs, and none of the 2 nodes has "
        "0.5 of each of 2 GPUs free: 2 nodes have too little free (at most 0.3 of each of 2 GPUs "
        "free, on n0). It can start when one of the nodes has 0.5 of each of 2 GPUs free",
    ),
    Case(
        "a share of memory is told in MiB",
        (memory(10001), (ONE,), short(1, 1, 260, 100, 0, 100)),
        "A pod requests 1 CPU, 1 GiB memory, 10001 MiB of a GPU, and the only node does not have "
        "10001 MiB of a GPU free: 1 node has too little free (0.1 of a GPU free on n0, where the "
        "pod needs 0.26). It can start when that node has 10001 MiB of a GPU free",
    ),
    Case(
        "memory, where another node may have more free",
        (memory(10001), (ONE,) * 2, short(2, 2, 260, 100, 1, 200)),
        "A pod requests 1 CPU, 1 GiB memory, 10001 MiB of a GPU, and none of the 2 nodes has 10001 "
        "MiB of a GPU free: 2 nodes have too little free (at best 0.1 of a GPU free, on n1, where "
        "the pod needs 0.26). Together the nodes have 0.2 GPU free. It can start when one of the "
        "nodes has 10001 MiB of a GPU free",
    ),
    Case(
        "a gang, and CPU is short as well",
        (
            share_signature(0.5),
            (ONE,) * 2,
            short(
                2,
                1,
                500,
                400,
                0,
                400,
                needed=4,
                placed=2,
                unplaced=2,
                fitting=2,
                insufficient={CPU: 2},
                largest_free={CPU: 500},
                total_free={CPU: 500},
            ),
        ),
        "2 of 4 pods fit; the next pod requests 1 CPU, 1 GiB memory, 0.5 of a GPU, and none of the "
        "2 nodes then has 1 CPU, 0.5 of a GPU free: 2 nodes have too little free (at most 0.5 CPU "
        "on one node, at most 0.4 of a GPU free, on n0). It can start when the nodes then have "
        "enough free for 2 such pods (2 CPU, 0.5 of a GPU for each)",
    ),
    Case(
        "only CPU is short",
        (
            share_signature(0.5),
            (ONE,),
            short(
                1,
                0,
                0,
                900,
                0,
                900,
                insufficient={CPU: 1},
                largest_free={CPU: 0},
                total_free={CPU: 0},
            ),
        ),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of a GPU, and the only node does not have 1 CPU "
        "free: 1 node has too little free (0 CPU). It can start when that node has 1 CPU free",
    ),
    Case(
        "the node with the most of a GPU is short of CPU",
        (
            share_signature(0.5),
            (ONE,) * 2,
            short(
                2,
                1,
                500,
                900,
                1,
                900,
                insufficient={CPU: 1},
                largest_free={CPU: 4000},
                total_free={CPU: 4000},
            ),
        ),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of a GPU, and none of the 2 nodes has 1 CPU, 0.5 "
        "of a GPU free: 2 nodes have too little free (at most 4 CPU on one node, at most 0.9 of a "
        "GPU free, on n1). It can start when one of the nodes has 1 CPU, 0.5 of a GPU free",
    ),
    Case(
        "only CPU is short, for two pods",
        (
            share_signature(0.5),
            (ONE,) * 2,
            short(
                2,
                0,
                500,
                600,
                1,
                900,
                needed=2,
                unplaced=2,
                fitting=2,
                insufficient={CPU: 2},
                largest_free={CPU: 500},
                total_free={CPU: 500},
            ),
        ),
        "0 of 2 pods fit; the next pod requests 1 CPU, 1 GiB memory, 0.5 of a GPU, and none of the "
        "2 nodes has 1 CPU free: 2 nodes have too little free (at most 0.5 CPU on one node). It "
        "can start when the nodes have enough free for 2 such pods (2 CPU)",
    ),
    Case(
        "too few GPUs",
        (
            share_signature(0.5, 9),
            (SnapshotNode(),),
            errors(
                {FitErrorReason.TOO_SMALL: 1}, too_small={GPU: 1}, largest_allocatable={GPU: 8000}
            ),
        ),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of each of 9 GPUs, and the only node does not "
        "fit it: 1 node is too small even when empty (it has 8 GPU). It can start when the pod "
        "requests less, or a node that matches is added, if enough is then free there",
    ),
    Case(
        "GPUs with too little memory",
        (memory(50000), (ONE,), errors({FitErrorReason.TOO_SMALL: 1})),
        "A pod requests 1 CPU, 1 GiB memory, 50000 MiB of a GPU, and the only node does not fit "
        "it: 1 node is too small even when empty (no GPU has more than 40000 MiB). It can start "
        "when the pod requests less, or a node that matches is added, if enough is then free there",
    ),
    Case(
        "memory that is not known",
        (memory(50000), (SnapshotNode(),), errors({FitErrorReason.GPU_MEMORY: 1})),
        "A pod requests 1 CPU, 1 GiB memory, 50000 MiB of a GPU, and the only node does not fit "
        "it: 1 node does not state the memory of its GPUs in the label nvidia.com/gpu.memory. It "
        "can start when a node states the memory of its GPUs (label nvidia.com/gpu.memory), or a "
        "node that matches is added, if enough is then free there",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Given, str]) -> None:
    """A share is a part of one GPU, and a request for memory is in MiB."""
    pod, nodes, details = case.given

    assert fit_errors_message(snapshot(pod, *nodes), details) == case.want


def test_a_cluster_without_gpus() -> None:
    here = snapshot(share_signature(0.5), ONE)
    here = replace(here, resources=replace(here.resources, gpus=()))

    message = fit_errors_message(here, errors({FitErrorReason.TOO_SMALL: 1}))

    assert "1 node is too small even when empty (no node has a GPU). It can start" in message


CHANGE: Final = "the pod requests GPUs in the form that a node offers"
END: Final = "all pods of a node that request MIG profiles by annotation have terminated"
STRATEGY: Final = "label nvidia.com/mig.strategy"
BY_ANNOTATION: Final = "pods there request MIG profiles by annotation"
PROFILES: Final = signature(requests_mig=True)
Form = tuple[SchedulingSignature, tuple[SnapshotNode, ...], dict[MigRefusal, int]]

# The pod, the nodes, and why these take no MIG profiles -> which nodes they are, and the remedies.
FORMS: list[Case[Form, tuple[str, str]]] = [
    Case(
        "shares on MIG nodes",
        (share_signature(0.5), (MIG, MIXED), {}),
        ("2 nodes are MIG nodes, which take no shares of GPUs", CHANGE),
    ),
    Case(
        "a pod of whole GPUs fits no MIG node",
        (signature(gpu=1), (MIXED,), {}),
        (
            f"1 node is a MIG node ({STRATEGY}: mixed), which takes no whole GPUs",
            CHANGE,
        ),
    ),
    Case(
        "no MIG node",
        (PROFILES, (ONE,), {NO_MIG_NODE: 1}),
        ("1 node takes no MIG profiles (no MIG node)", CHANGE),
    ),
    Case(
        "MIG profiles, for three causes, the most frequent first",
        (PROFILES, (ONE,) * 5, {NO_MIG_NODE: 1, SINGLE: 1, LEGACY: 3}),
        (
            f"5 nodes take no MIG profiles ({BY_ANNOTATION}, no MIG node, {STRATEGY}: single)",
            f"{END}, {CHANGE}",
        ),
    ),
    Case(
        "pods that request MIG profiles by annotation",
        (PROFILES, (MIG,), {LEGACY: 1}),
        (f"1 node takes no MIG profiles ({BY_ANNOTATION})", END),
    ),
]


@pytest.mark.parametrize("case", FORMS, ids=ids)
def test_forms(case: Case[Form, tuple[str, str]]) -> None:
    """Nodes that offer GPUs in another form say which form they take, as far as it is known."""
    pod, nodes, refusals = case.given
    reason, remedy = case.want

    message = fit_errors_message(
        snapshot(pod, *nodes), errors({MODE: len(nodes)}, mig_refusals=refusals)
    )

    assert f": {reason}. It can start when {remedy}, or a node that matches is added" in message


@pytest.mark.parametrize(
    ("pod", "resource"), [(share_signature(0.2), "GPUs"), (memory(3000), "GPU memory")]
)
def test_shares_as_kai_names_them(pod: SchedulingSignature, resource: str) -> None:
    """Tools that read the conditions know these names."""
    message = kai_fit_errors_message(snapshot(pod, ONE), short(1, 1, 200, 100, 0, 100))

    assert message == (
        "no nodes with enough resources were found: 1 node(s) didn't have enough resources: "
        f"{resource}."
    )


def test_a_node_without_a_reservation_pod_place_as_kai_names_it() -> None:
    """KAI has no name for it: the pod gets no GPU there."""
    details = placeless(2, 1, ReservationPodPlaces(1, 1, 0))

    message = kai_fit_errors_message(snapshot(share_signature(0.2), ONE, ONE), details)

    assert message.endswith(": 2 node(s) didn't have enough resources: GPUs.")
