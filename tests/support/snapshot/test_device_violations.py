"""Shared GPUs in snapshots, and what plans break of their rules, broken by hand."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from scheduler.core.model.resources import held_shares
from scheduler.core.model.result import Eviction, Plan, PodGroupAllocation, PodPlacement
from scheduler.core.model.snapshot import GpuMode, Snapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import (
    MIG_AXES,
    Builder,
    SnapshotNode,
    SnapshotQueue,
    mig_signature,
    share_signature,
    signature,
)
from tests.support.snapshot.plan_violations import plan_violations
from trainer_kai.api.scheduler_names import Action

GPU: Final = 3  # the column
SHARED, NO_GPU, MIG, FULL = range(4)
NODES: Final = [
    SnapshotNode(gpu=3, shares=((0, 300), (400, 300)), gpu_memory=40_000),
    SnapshotNode(gpu=0),
    SnapshotNode(gpu=2, gpu_mode=GpuMode.MIG_MIXED, mig=(7, 0, 2)),
    SnapshotNode(gpu=1, used_gpu=1, pods=3),
]
HALF, TWO, WHOLE, PROFILE, MEMORY, RUNNING = range(6)  # PodGroups, with pods of the same numbers


def snapshot() -> Snapshot:
    """Return pending PodGroups of one pod, and one that runs on the GPU of slot 1."""
    build = Builder(nodes=NODES, queues=[SnapshotQueue("all", quota=-1)])
    memory = replace(share_signature(0), device_memory=20_000, queue_request=(1000, 2**30, 250))
    for one in (share_signature(0.5), share_signature(0.3, 2), signature(gpu=1)):
        build.uniform_podgroup(1, one)
    build.uniform_podgroup(1, mig_signature("3g.20gb"))
    build.uniform_podgroup(1, memory)
    build.running_podgroup([SHARED], share_signature(0.2), slots=[(1,)])
    return build.snapshot()


def test_shared_gpus_are_not_idle() -> None:
    """Each is one whole GPU less, and releasing when all that is used of it is."""
    devices, nodes = snapshot().devices, snapshot().nodes
    assert devices.ids == ("gpu-000", "gpu-001")
    assert devices.node.tolist() == [SHARED, SHARED]
    assert (devices.used.tolist(), devices.releasing.tolist()) == ([300, 900], [300, 300])
    assert devices.slots_of_pod == {RUNNING: (1,)}
    assert (nodes.idle[SHARED, GPU], nodes.releasing[SHARED, GPU]) == (1000, 1000)


def test_mig_profiles_are_resources_of_their_own() -> None:
    """With the GPUs that one of each is counted as."""
    given = snapshot()
    assert given.resources == MIG_AXES
    assert given.nodes.allocatable[MIG].tolist()[GPU:] == [2000, 7, 0, 2]
    assert given.signatures[PROFILE].request[GPU:] == (0, 0, 0, 1)
    assert given.signatures[PROFILE].queue_request[2] == 3000
    assert given.signatures[HALF].request[GPU:] == (0, 0, 0, 0)
    assert given.total[2] == 6000 + 7000 + 6000


def binds(pod: int, node: int, *slots: int) -> PodGroupAllocation:
    """Bind the pod of a PodGroup."""
    return PodGroupAllocation(pod, (PodPlacement(pod, node, held_shares(slots)),))


def nominates(pod: int, node: int, *slots: int) -> PodGroupAllocation:
    """Nominate a node for the pod of a PodGroup."""
    return PodGroupAllocation(pod, nominations=(PodPlacement(pod, node, held_shares(slots)),))


def evicts(pod: int) -> Eviction:
    """Evict a PodGroup of one pod, for the first one."""
    return Eviction((pod,), (pod,), is_whole=True, action=Action.RECLAIM, preemptor=HALF)


CAPACITY: Final = "node node-{} has no room for all that is placed there"
IDLE: Final = "more is bound to node node-{} than is idle there"

# allocations and evictions -> what they break
BROKEN: list[Case[tuple[PodGroupAllocation | Eviction, ...], list[str]]] = [
    Case("a new GPU is shared", (binds(HALF, SHARED, 2),), []),
    Case(
        "a new GPU is shared by two",
        (binds(HALF, SHARED, 2), binds(TWO, SHARED, 1, 2)),
        [
            "1200 thousandths of GPU 1 of node node-0 are used now",
        ],
    ),
    Case("beside what stays", (nominates(TWO, SHARED, 1, 2),), []),
    Case(
        "more than the GPU has",
        (nominates(HALF, SHARED, 1),),
        ["1100 thousandths of GPU 1 of node node-0 are used"],
    ),
    Case(
        "a GPU of which nothing stays",
        (nominates(HALF, SHARED, 0),),
        ["pod 0 joins a GPU of node node-0 that is being released"],
    ),
    Case("on what a victim has", (nominates(HALF, SHARED, 1), evicts(RUNNING)), []),
    Case(
        "bound to it",
        (binds(HALF, SHARED, 1), evicts(RUNNING)),
        [
            "1400 thousandths of GPU 1 of node node-0 are used now",
            "unit-5 is evicted for no PodGroup",
        ],
    ),
    Case(
        "a GPU more than there are",
        (binds(HALF, SHARED, 2), binds(WHOLE, SHARED)),
        [IDLE.format(0)],
    ),
    Case(
        "two more",
        (nominates(HALF, SHARED, 2), nominates(TWO, SHARED, 3, 4)),
        [CAPACITY.format(0)],
    ),
    Case(
        "on a full node",
        (nominates(HALF, FULL, 0),),
        [CAPACITY.format(3)],
    ),
    Case(
        "one GPU of two", (binds(TWO, SHARED, 2),), ["pod 1 requests shares of 2 GPUs and has [2]"]
    ),
    Case(
        "the same one twice",
        (binds(TWO, SHARED, 2, 2),),
        ["pod 1 requests shares of 2 GPUs and has [2, 2]"],
    ),
    Case(
        "shares for a whole GPU",
        (binds(WHOLE, SHARED, 1),),
        ["pod 2 requests shares of 0 GPUs and has [1]"],
    ),
    Case(
        "no GPU",
        (binds(HALF, NO_GPU, 0),),
        ["pod 0 has shares of GPUs of node node-1, which has none"],
    ),
    Case(
        "shares of MIG", (binds(HALF, MIG, 0),), ["pod 0 has shares of GPUs of the MIG node node-2"]
    ),
    Case("a MIG profile", (binds(PROFILE, MIG),), []),
    Case(
        "a MIG profile elsewhere",
        (binds(PROFILE, SHARED),),
        ["pod 3 requests MIG profiles, and is on node node-0", CAPACITY.format(0), IDLE.format(0)],
    ),
    Case(
        "whole GPUs on MIG",
        (binds(WHOLE, MIG),),
        ["pod 2 requests whole GPUs, and is on node node-2"],
    ),
    Case("half of the memory", (binds(MEMORY, SHARED, 2),), []),
    Case(
        "memory that is not known",
        (binds(MEMORY, FULL, 0),),
        [
            "pod 4 requests more than a GPU of node node-3 has",
            "1001 thousandths of GPU 0 of node node-3 are used now",
            "1001 thousandths of GPU 0 of node node-3 are used",
            CAPACITY.format(3),
            IDLE.format(3),
        ],
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_a_broken_plan_is_reported(
    case: Case[tuple[PodGroupAllocation | Eviction, ...], list[str]],
) -> None:
    """GPUs in other forms or numbers than requested, and more shares than a GPU has."""
    made = Plan(
        tuple(it for it in case.given if isinstance(it, PodGroupAllocation)),
        (),
        np.zeros((1, 3), dtype=np.int64),
        evictions=tuple(it for it in case.given if isinstance(it, Eviction)),
    )
    assert sorted(plan_violations(snapshot(), made)) == sorted(case.want)


@pytest.mark.parametrize(
    ("limit", "want"), [(0.5, []), (0.4, ["queue all has more GPU than its limit"])]
)
def test_memory_is_charged_by_node(limit: float, want: list[str]) -> None:
    """The share of the GPU that the pod gets, not of the one that is the smallest."""
    given = snapshot()
    queues = replace(given.queues, limit=np.array([[-1, -1, round(limit * 1000) + 200]]))
    made = Plan((binds(MEMORY, SHARED, 2),), (), np.zeros((1, 3), dtype=np.int64))
    assert list(plan_violations(replace(given, queues=queues), made)) == want


def test_nodes_closed_to_mig() -> None:
    """Pods with profiles by annotation are there."""
    nodes = [replace(NODES[MIG], is_closed_to_mig=True)]
    build = Builder(nodes=nodes)
    build.uniform_podgroup(1, mig_signature("1g.5gb"))
    made = Plan((binds(0, 0),), (), np.zeros((1, 3), dtype=np.int64))
    report = ["pod 0 requests MIG profiles, and node node-0 is closed to it"]
    assert list(plan_violations(build.snapshot(), made)) == report
