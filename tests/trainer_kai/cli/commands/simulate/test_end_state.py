"""The GPUs of nodes after a plan: whole ones, shared ones and MIG profiles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from scheduler.core.model.podgroup import (
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
)
from scheduler.core.model.resources import ResourceColumns, ResourceKind
from scheduler.core.model.snapshot import SharedDevices, Snapshot
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.snapshot.builder import Builder, SnapshotNode, share_signature, signature
from trainer_kai.api.meta import Key
from trainer_kai.cli.commands.simulate.end_state import NominatedPods, end_state
from trainer_kai.cli.output.node_bars import GpuShare, MigProfile, NodeGpus, SharedGpu

RUNS, WAITS = Key("default", "runs"), Key("default", "waits")
THIRD: Final = share_signature(0.3)
Device = tuple[str, int, int]  # id, used and releasing


def snapshot(
    node: SnapshotNode, devices: Sequence[Device], waiting: SchedulingSignature = THIRD
) -> Snapshot:
    """Return a node with shared GPUs, a pod on the first of them, and a pod that waits."""
    build = Builder(nodes=[node])
    build.running_podgroup([0], share_signature(0.5))
    build.uniform_podgroup(1, waiting)
    here = build.snapshot()
    table = SharedDevices(
        ids=tuple(name for name, _, _ in devices),
        node=np.zeros(len(devices), dtype=np.int32),
        used=np.array([used for _, used, _ in devices], dtype=np.int64),
        releasing=np.array([releasing for _, _, releasing in devices], dtype=np.int64),
        slots_of_pod={0: (0,)} if devices else {},
    )
    idle, releasing = here.nodes.idle.copy(), here.nodes.releasing.copy()
    idle[0, 3] -= 1000 * len(devices)
    releasing[0, 3] += 1000 * sum(used == gone for _, used, gone in devices)
    return replace(here, devices=table, nodes=replace(here.nodes, idle=idle, releasing=releasing))


def gpus(here: Snapshot, groups: Mapping[Key, Sequence[str]]) -> NodeGpus:
    """Return the GPUs of the only node; *groups* are shared GPUs of the nominated pod."""
    podgroups = tuple(Key("default", it.name) for it in here.podgroups)
    encoded = EncodedSnapshot(here, (RUNS, WAITS), podgroups, ())
    nominated = NominatedPods(dict.fromkeys(groups, "node-0"), groups)
    (node,) = end_state(encoded, nominated, np.zeros((1, 3), dtype=np.int64), ["team"]).nodes
    return node


OWN: Final = GpuShare("default/runs", 500)
NEXT: Final = GpuShare("default/waits", 300, is_nominated=True)
NOMINATED: list[Case[tuple[int, list[Device], list[str]], tuple[int, int, list[SharedGpu]]]] = [
    Case("nothing is shared", (0, [], []), (2000, 0, [])),
    Case(
        "on a GPU with idle and releasing parts",
        (0, [("x", 800, 100)], ["x"]),
        (1000, 0, [SharedGpu((OWN, NEXT), 0, 0, 0, 200)]),
    ),
    Case(
        "on a GPU that is nominated first, and was whole",
        (1, [("x", 500, 0)], ["new"]),
        (0, 0, [SharedGpu((OWN,), 500), SharedGpu((NEXT,), 0, 700)]),
    ),
    Case(
        "on a GPU of which all shares are terminating",
        (0, [("x", 500, 0), ("y", 900, 900)], ["new"]),
        (0, 0, [SharedGpu((OWN,), 500), SharedGpu((NEXT,), 0, 700)]),
    ),
    Case(
        "on an idle GPU",
        (0, [("x", 500, 0)], ["new"]),
        (0, 0, [SharedGpu((OWN,), 500), SharedGpu((NEXT,), 700)]),
    ),
    Case(
        "no pod is nominated",
        (1, [("x", 700, 100), ("y", 900, 900)], []),
        (0, 1000, [SharedGpu((OWN,), 300, 100, 0, 100), SharedGpu((), 0, 1000)]),
    ),
]


@pytest.mark.parametrize("case", NOMINATED, ids=ids)
def test_shared_gpus(
    case: Case[tuple[int, list[Device], list[str]], tuple[int, int, list[SharedGpu]]],
) -> None:
    """Nominated pods get what is being released first; what is left is idle or releasing."""
    whole_releasing, devices, named = case.given
    size = max(len(devices) + whole_releasing, 2)
    here = snapshot(SnapshotNode(gpu=size, releasing_gpu=whole_releasing), devices)

    node = gpus(here, {WAITS: named} if named else {})

    assert (node.idle, node.releasing, [*node.shared]) == case.want
    assert node.total == 1000 * (size - len(node.shared))


def test_a_gpu_is_whole_again_for_a_nominated_pod() -> None:
    """All its shares are terminating, and a pod with a whole GPU gets it."""
    devices = [("x", 500, 0), ("y", 600, 600), ("z", 900, 900)]
    here = snapshot(SnapshotNode(gpu=3), devices, signature(gpu=1))

    node = gpus(here, {WAITS: ()})

    assert (node.total, node.idle, node.releasing) == (1000, 0, 0)
    assert node.shared == (SharedGpu((OWN,), 500), SharedGpu((), 0, 1000))


def test_memory_of_a_nominated_pod_is_its_share_on_that_node() -> None:
    """Rounded up to hundredths, of each of its GPUs."""
    pod = replace(share_signature(0, 2), device_memory=10001)
    here = snapshot(SnapshotNode(gpu=2, gpu_memory=40000), [("x", 500, 0), ("y", 100, 0)], pod)

    node = gpus(here, {WAITS: ["x", "y"]})

    assert [it.shares[-1].amount for it in node.shared] == [260, 260]
    assert node.all_idle == (500 - 260) + (900 - 260)


def test_reserved_places_have_shares() -> None:
    """They are drawn beside those of pods."""
    here = snapshot(SnapshotNode(gpu=1), [("x", 800, 0)])
    places = (ReservedPlace(0, 1, ReservationCause.ANTICIPATED, ((0,),)),)
    podset = PodSet("default", 1, reserved_places=places)
    podgroups = (here.podgroups[0], replace(here.podgroups[1], tree=podset))

    node = gpus(replace(here, podgroups=podgroups), {})

    assert node.shared == (SharedGpu((OWN,), 200, 0, 300, 0),)


def test_mig_profiles_count_what_a_queue_is_charged() -> None:
    """Those of nodes that offer them; some profiles are charged nothing."""
    here = snapshot(SnapshotNode(gpu=0), [])
    names = (*here.resources.names, "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me")
    kinds = (*here.resources.kinds, ResourceKind.GPU, -1)
    weights = (*here.resources.weights, 3000, 0)
    columns = ResourceColumns(names, kinds, weights, 0, 2, (3,))
    allocatable, idle, releasing = (
        np.hstack([has, np.array([more])])
        for has, more in (
            (here.nodes.allocatable, [4, 0]),
            (here.nodes.idle, [1, 0]),
            (here.nodes.releasing, [2, 0]),
        )
    )
    nodes = replace(here.nodes, allocatable=allocatable, idle=idle, releasing=releasing)
    signatures = tuple(replace(it, request=(*it.request, 0, 0)) for it in here.signatures)

    node = gpus(replace(here, resources=columns, nodes=nodes, signatures=signatures), {})

    assert node.profiles == (MigProfile("3g.20gb", 3000, 4, 1, 2, 0),)
    assert (node.all_idle, node.all_releasing) == (3000, 6000)
