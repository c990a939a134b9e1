"""Why a pod that requests shares of GPUs or MIG profiles waits, in sentences with numbers."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from scheduler.core.messages.fit_errors import fit_errors_message, kai_fit_errors_message
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import (
    FitErrorReason,
    FitErrors,
    ShareShortage,
    UnschedulableReason,
)
from scheduler.core.model.snapshot import GpuMode, Snapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, share_signature, signature

CPU: Final = 0
GPU: Final = 3
ROOM: Final = FitErrorReason.ROOM
MODE: Final = FitErrorReason.GPU_MODE


def snapshot(pod: SchedulingSignature, *nodes: SnapshotNode) -> Snapshot:
    """Return nodes, and one signature."""
    build = Builder(nodes=nodes)
    build.signature_row(pod)
    here = build.snapshot()
    names = tuple(f"n{i}" for i in range(len(nodes)))
    return replace(here, nodes=replace(here.nodes, names=names))


def errors(counts: dict[FitErrorReason, int], **more: Any) -> FitErrors:
    """Return why one pod fits on no node."""
    table: dict[str, Any] = {
        "reason": UnschedulableReason.NO_CAPACITY,
        "signature": 0,
        "placed": 0,
        "needed": 1,
        "counts": counts,
        "own_counts": {},
        "taints": {},
        "keys": {},
        "too_small": {},
        "largest_allocatable": {},
        "insufficient": {},
        "largest_free": {},
        "total_free": {},
        "unplaced": 1,
        "fitting": 1,
        "is_resolvable": False,
    }
    return FitErrors(**{**table, **more})


def short(nodes: int, *numbers: int, **more: Any) -> FitErrors:
    """Return that nodes have too little free, with the numbers of the shortage of shares."""
    return errors({ROOM: nodes}, share_shortage=ShareShortage(*numbers), **more)


def memory(mib: int, devices: int = 1) -> SchedulingSignature:
    """Return the signature of a pod that requests memory of GPUs."""
    return replace(share_signature(0, devices), device_memory=mib)


ONE: Final = SnapshotNode(gpu_memory=40000)
MIG, SINGLE, MIXED = (
    SnapshotNode(gpu_mode=mode) for mode in (GpuMode.MIG, GpuMode.MIG_SINGLE, GpuMode.MIG_MIXED)
)
Given = tuple[SchedulingSignature, tuple[SnapshotNode, ...], FitErrors]

SENTENCES: list[Case[Given, str]] = [
    Case(
        "one node",
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
        (share_signature(0.2), (ONE,), short(1, 1, 200, 1000, 0, 1000)),
        "A pod requests 1 CPU, 1 GiB memory, 0.2 of a GPU, and the only node does not have 0.2 of "
        "a GPU free: 1 node has too little free (all of a GPU free on n0, but no place for the "
        "reservation pod of the GPU). It can start when that node has 0.2 of a GPU free",
    ),
    Case(
        "several GPUs",
        (share_signature(0.5, 2), (ONE,), short(1, 1, 500, 700, 0, 900)),
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of each of 2 GPUs, and the only node does not "
        "have 0.5 of each of 2 GPUs free: 1 node has too little free (0.7 of one GPU free on n0). "
        "It can start when that node has 0.5 of each of 2 GPUs free",
    ),
    Case(
        "memory",
        (memory(10001), (ONE,), short(1, 1, 260, 100, 0, 100)),
        "A pod requests 1 CPU, 1 GiB memory, 10001 MiB of a GPU, and the only node does not have "
        "10001 MiB of a GPU free: 1 node has too little free (0.1 of a GPU free on n0, where the "
        "pod needs 0.26). It can start when that node has 10001 MiB of a GPU free",
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
        "A pod requests 1 CPU, 1 GiB memory, 0.5 of each of 9 GPUs, and the only node does not fit "
        "it: 1 node is too small even when empty (it has 8 GPU). It can start when the pod "
        "requests less, or a node that matches is added",
    ),
    Case(
        "GPUs with too little memory",
        (memory(50000), (ONE,), errors({FitErrorReason.TOO_SMALL: 1})),
        "A pod requests 1 CPU, 1 GiB memory, 50000 MiB of a GPU, and the only node does not fit "
        "it: 1 node is too small even when empty (no GPU has more than 40000 MiB). It can start "
        "when the pod requests less, or a node that matches is added",
    ),
    Case(
        "memory that is not known",
        (memory(50000), (SnapshotNode(),), errors({FitErrorReason.GPU_MEMORY: 1})),
        "A pod requests 1 CPU, 1 GiB memory, 50000 MiB of a GPU, and the only node does not fit "
        "it: 1 node does not state the memory of its GPUs in the label nvidia.com/gpu.memory. It "
        "can start when a node states the memory of its GPUs (label nvidia.com/gpu.memory), or a "
        "node that matches is added",
    ),
]


@pytest.mark.parametrize("case", SENTENCES, ids=ids)
def test_sentences(case: Case[Given, str]) -> None:
    """A share is a part of one GPU, and a request for memory is in MiB."""
    pod, nodes, details = case.given

    assert fit_errors_message(snapshot(pod, *nodes), details) == case.want


def test_a_cluster_without_gpus() -> None:
    """No number says it, because there is no such resource."""
    here = snapshot(share_signature(0.5), ONE)
    here = replace(here, resources=replace(here.resources, gpus=()))

    message = fit_errors_message(here, errors({FitErrorReason.TOO_SMALL: 1}))

    assert "1 node is too small even when empty (no node has a GPU). It can start" in message


FORMS: list[Case[tuple[SchedulingSignature, tuple[SnapshotNode, ...], int], str]] = [
    Case(
        "shares on MIG nodes",
        (share_signature(0.5), (MIG, MIXED), 2),
        "2 nodes are MIG nodes, which take no shares of GPUs",
    ),
    Case(
        "whole GPUs",
        (signature(gpu=1), (MIXED,), 1),
        "1 node is a MIG node (label nvidia.com/mig.strategy: mixed), which takes no whole GPUs",
    ),
    Case(
        "no MIG node",
        (signature(requests_mig=True), (ONE,), 1),
        "1 node takes no MIG profiles (no MIG node)",
    ),
    Case(
        "MIG profiles, for three causes",
        (signature(requests_mig=True), (ONE, ONE, SINGLE, MIXED), 4),
        "4 nodes take no MIG profiles (no MIG node, label nvidia.com/mig.strategy: single, pods "
        "there request MIG profiles by annotation)",
    ),
]


@pytest.mark.parametrize("case", FORMS, ids=ids)
def test_forms(case: Case[tuple[SchedulingSignature, tuple[SnapshotNode, ...], int], str]) -> None:
    """Nodes that offer GPUs in another form say which form they take, as far as it is known."""
    pod, nodes, count = case.given
    here = snapshot(pod, *nodes)
    closed = np.array([node is MIXED for node in nodes])
    here = replace(here, nodes=replace(here.nodes, closed_to_mig=closed))

    message = fit_errors_message(here, errors({MODE: count}))

    assert f": {case.want}. It can start when the pod requests GPUs in the form" in message


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
