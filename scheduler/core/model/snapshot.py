"""The snapshot: nodes, queues, pods and PodGroups of a cluster as rows and codes.

The core knows no names. Nodes are sorted by name, queues and PodGroups by age and then uid: of two
equal ones, the one with the smaller row comes first. The order of pods, signatures and all other
codes means nothing. The builder of a snapshot gives up its arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.claims import NO_CLAIM_DEVICES, ClaimDevices
from scheduler.core.model.line import LineRecord
from scheduler.core.model.podgroup import AffinityTerm, PodGroupInfo, SchedulingSignature
from scheduler.core.model.resources import (
    Bools,
    DeviceSort,
    Floats,
    HeldDevices,
    Ints,
    ResourceColumns,
    held_shares,
    with_devices,
)
from scheduler.core.model.topology import SnapshotTopology


class NodeFault(IntEnum):
    """Why a node takes no pods at all; of several reasons the largest is reported."""

    NONE = 0
    NO_NETWORK = 1
    PRESSURE = 2
    NOT_READY = 3
    CORDONED = 4
    LEAVING = 5  # a taint or a condition says so


# Nodes that lose their pods: by intent, and not by a fault that may pass.
EMPTIED: Final = (NodeFault.CORDONED, NodeFault.LEAVING)


class GpuMode(IntEnum):
    WHOLE = 0  # whole GPUs, and shares of them
    MIG = 1  # whole GPUs and MIG profiles
    MIG_SINGLE = 2  # whole GPUs only, each of which is a MIG profile
    MIG_MIXED = 3  # MIG profiles only


class PodState(IntEnum):
    PENDING = 0
    GATED = 1
    RUNNING = 2  # on a node, or bound to one
    RELEASING = 3
    STUCK_RELEASING = 4  # terminating for too long: its resources are not expected back
    DONE = 5


@dataclass(frozen=True, slots=True)
class SnapshotNodes:
    """Nodes by row, in the order of their names."""

    names: tuple[str, ...]
    allocatable: Ints  # [node, resource]
    idle: Ints  # [node, resource]; below zero where a node is overcommitted
    releasing: Ints  # [node, resource]
    fault: NDArray[np.int8]  # [node] NodeFault
    labels: NDArray[np.int32]  # [node, key] code of the value, or NONE
    taints: Bools  # [node, taint]; only those that keep pods out
    ports: NDArray[np.int32]  # [node, port] how many pods there have it
    key_names: tuple[str, ...]
    taint_names: tuple[str, ...]
    gpu_mode: NDArray[np.int8]  # [node] GpuMode
    gpu_memory: Ints  # [node] MiB of one GPU, or 0: not known
    closed_to_mig: Bools  # [node] pods there request MIG profiles by annotation
    key_values: tuple[Mapping[str, int], ...] = ()  # [key] codes by value, for messages


@dataclass(frozen=True, slots=True)
class SharedDevices:
    """GPUs that pods share: one row each, in the order of their nodes, then of their ids.

    The position of a device among the devices of its node is its slot. In `SnapshotNodes` each is
    one GPU less idle, and one more releasing if all that is used of it is releasing.
    """

    ids: tuple[str, ...]
    node: NDArray[np.int32]  # [device]
    used: Ints  # [device] thousandths, of pods and reserved places
    releasing: Ints  # [device] thousandths of it that are being released
    slots_of_pod: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # of running pods
    made_up: frozenset[int] = frozenset()  # devices with an id that only names their slot
    # Devices of which no pod gets a share as long as any of it is used: which one it is, or whether
    # it can be reserved any longer, is not known.
    closed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PodRelations:
    """How many pods that a selector or term matches are on each node; where claims are in use."""

    selector_counts: NDArray[np.int32]  # [selector, node]
    anti_affinity_terms: tuple[AffinityTerm, ...]
    anti_affinity_counts: NDArray[np.int32]  # [term, node] pods that have it
    claim_node: tuple[int, ...]  # [claim] or NONE
    claim_users: tuple[int, ...]  # [claim] pods


class ReleasingAmount(NamedTuple):
    """What pods of one queue have on one node that are being released."""

    queue: int
    node: int
    amounts: tuple[int, int, int]  # by ResourceKind


@dataclass(frozen=True, slots=True)
class SnapshotQueues:
    """The tree of queues; allocated, non-preemptible and requested include what is below."""

    names: tuple[str, ...]
    parent: tuple[int, ...]  # or NONE
    priority: tuple[int, ...]
    quota: Ints  # [queue, kind] or UNBOUND
    limit: Ints  # [queue, kind] or UNBOUND
    weight: Floats  # [queue, kind]
    allocated: Ints  # [queue, kind]
    non_preemptible: Ints  # [queue, kind] the part that cannot be preempted
    requested: Ints  # [queue, kind]
    # How long running PodGroups keep what they need, in seconds, or NONE where it is not set.
    preempt_min_s: tuple[int, ...] = ()  # [queue]; empty where no queue sets it
    reclaim_min_s: tuple[int, ...] = ()  # [queue]; likewise
    # Whether its children reclaim no more than their quotas.
    is_quota_only: tuple[bool, ...] = ()  # [queue]; empty where no queue sets it
    releasing: tuple[ReleasingAmount, ...] = ()  # what is not in allocated, and still on nodes
    # The kinds that a queue does not name at all: its quota and limit of them are 0.
    absent: frozenset[tuple[int, int]] = frozenset()  # (queue, kind)
    drained: frozenset[int] = frozenset()  # queues from which all pods are evicted
    strict: frozenset[int] = frozenset()  # queues in which no start passes the head
    reserving: frozenset[int] = frozenset()  # queues in which room is kept for large PodGroups


@dataclass(frozen=True, slots=True)
class SnapshotPods:
    """Pods of our PodGroups by row; a row without a pod has no PodGroup, and is DONE."""

    signature: NDArray[np.int32]  # [pod] or NONE
    node: NDArray[np.int32]  # [pod] or NONE
    podgroup: NDArray[np.int32]  # [pod] or NONE
    state: NDArray[np.int8]  # [pod] PodState


class DisruptionBudgets(NamedTuple):
    """How many of some pods may be evicted in one plan."""

    names: tuple[str, ...]
    allowed: tuple[int, ...]  # [budget]
    sets: tuple[tuple[int, ...], ...]  # of budgets that cover the same pods
    set_of_pod: tuple[int, ...]  # [pod] row of its set, or NONE


NO_BUDGETS: Final = DisruptionBudgets((), (), (), ())


POD_WEIGHT: Final = 16  # of a pod, where one that has ended weighs less


@dataclass(frozen=True, slots=True)
class Snapshot:
    resources: ResourceColumns
    nodes: SnapshotNodes
    devices: SharedDevices
    pod_relations: PodRelations
    queues: SnapshotQueues
    signatures: tuple[SchedulingSignature, ...]
    pods: SnapshotPods
    podgroups: tuple[PodGroupInfo, ...]
    total: tuple[int, int, int]  # by ResourceKind: what the queues at the top share
    now: int  # seconds since 1970
    budgets: DisruptionBudgets = NO_BUDGETS
    topologies: tuple[SnapshotTopology, ...] = ()  # in the order of their names
    claim_devices: ClaimDevices = NO_CLAIM_DEVICES
    lines: Mapping[int, LineRecord] = field(default_factory=dict)  # by PodGroup
    # By signature: what pods that ended lately weigh, where a pod weighs POD_WEIGHT.
    ended: Mapping[int, int] = field(default_factory=dict)
    departing: tuple[int, ...] = ()  # PodGroups with a departure

    @property
    def held_devices(self) -> dict[int, HeldDevices]:
        """The devices of each running pod that holds any, by pod."""
        held = {pod: held_shares(slots) for pod, slots in self.devices.slots_of_pod.items()}
        for pod, devices in self.claim_devices.held.items():
            held[pod] = with_devices(held.get(pod, ()), DeviceSort.CLAIM, devices)
        return held

    def __post_init__(self) -> None:
        for table in (self.nodes, self.devices, self.pod_relations, self.queues, self.pods):
            for name in type(table).__slots__:
                column = getattr(table, name)
                if isinstance(column, np.ndarray):
                    column.flags.writeable = False
