"""What the core knows of a cluster: rows and codes. No name in here means anything to it.

Nodes are sorted by name, queues and units by age and then uid: where two are equal, the one with
the smaller row comes first. The order of pods, shapes and all other codes means nothing. Whoever
builds a snapshot gives up its arrays.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NONE",
    "NO_BUDGETS",
    "RESOURCE_KINDS",
    "UNBOUND",
    "AffinityTerm",
    "Bools",
    "DisruptionBudgets",
    "Floats",
    "Ints",
    "LabelRequirement",
    "NodeFault",
    "PodGroupInfo",
    "PodRelations",
    "PodSet",
    "PodState",
    "PreFilterFailure",
    "ReleasingAmount",
    "ReservationCause",
    "ReservedPlace",
    "ResourceColumns",
    "ResourceKind",
    "SchedulingSignature",
    "SharedDevices",
    "Snapshot",
    "SnapshotNodes",
    "SnapshotPods",
    "SnapshotQueues",
    "SpreadConstraint",
    "SubGroupSet",
    "SubGroupTree",
    "UnschedulableReason",
    "podsets_of",
]

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

NONE: Final = -1  # no row
UNBOUND: Final = -1  # of quotas and limits


class ResourceKind(IntEnum):
    """What queues share: the columns of their arrays."""

    CPU = 0  # thousandths
    MEMORY = 1  # bytes
    GPU = 2  # thousandths of a device


RESOURCE_KINDS: Final = tuple(ResourceKind)


class UnschedulableReason(IntEnum):
    """Why a unit waits; of several the smallest is told."""

    MISCONFIGURED = 1
    FORBIDDEN_QUEUE = 2
    QUEUE_MISSING = 3
    PODS_MISSING = 4
    WAITING_FOR_STAGE = 5
    EXCEEDS_LIMIT = 7
    NON_PREEMPTIBLE_OVER_QUOTA = 8
    NO_NODE_MATCHES = 9
    TOPOLOGY_UNFIT = 10
    FRAGMENTED = 11
    NO_CAPACITY = 12
    PREEMPTION_DELAY = 13
    WAITING_FOR_VICTIMS = 14

    @property
    def title(self) -> str:
        """Return its name as users read it."""
        return self.name.title().replace("_", "")


class ReservationCause(IntEnum):
    """Why a slot is held."""

    ANTICIPATED = 0
    REPAIR = 1
    MOVE = 2


class NodeFault(IntEnum):
    """Why a node takes no pods at all; of several the largest is told."""

    NONE = 0
    NO_NETWORK = 1
    PRESSURE = 2
    NOT_READY = 3
    CORDONED = 4


class PodState(IntEnum):
    """How far a pod is."""

    PENDING = 0
    GATED = 1
    RUNNING = 2  # on a node, or promised to one
    RELEASING = 3
    STUCK_RELEASING = 4  # going for too long: it holds what it has, and nobody may count on it
    DONE = 5


@dataclass(frozen=True, slots=True)
class ResourceColumns:
    """The columns of resource arrays."""

    names: tuple[str, ...]
    kinds: tuple[int, ...]  # which Kind counts it for queues, or NONE
    weights: tuple[int, ...]  # how many units of that kind one unit is
    cpu: int
    pods: int
    gpus: tuple[int, ...]  # whole devices, in thousandths


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


@dataclass(frozen=True, slots=True)
class SharedDevices:
    """Devices that pods share, and MIG profiles: one row each."""

    ids: tuple[str, ...]
    node: NDArray[np.int32]  # [device]
    used: Ints  # [device] thousandths
    releasing: Ints  # [device] thousandths
    memory: Ints  # [device] MiB of the whole device


class LabelRequirement(NamedTuple):
    """A node's value of a label is one of these; NONE among them means that it may lack it."""

    key: int  # or NONE, where no node has the label: then there are no codes
    codes: frozenset[int]
    label: str = ""  # that no node has
    is_negated: bool = False  # it is none of these


class AffinityTerm(NamedTuple):
    """Pods that a selector matches, within one value of a label."""

    selector: int
    key: int


class SpreadConstraint(NamedTuple):
    """How unevenly the pods of a selector may lie over the values of a label."""

    selector: int
    key: int
    max_skew: int
    min_domains: int
    counts_itself: bool
    honours_affinity: bool  # nodes that the pod may not choose make no domain
    honours_taints: bool


@dataclass(frozen=True, slots=True)
class SchedulingSignature:
    """What of a pod says where it may go; equal pods have one shape."""

    request: tuple[int, ...]  # by resource
    queue_request: tuple[int, int, int]  # by Kind
    has_gpu: bool = False
    tolerated_taints: frozenset[int] = frozenset()  # taints
    node_affinity: tuple[
        tuple[tuple[LabelRequirement, ...], ...], ...
    ] = ()  # of each entry one alternative holds
    nominated_node: int = NONE  # node
    host_ports: tuple[int, ...] = ()  # ports
    conflicting_ports: tuple[int, ...] = ()  # ports
    matched_selectors: tuple[int, ...] = ()  # selectors that match it
    affinity: tuple[AffinityTerm, ...] = ()
    matches_own_affinity: bool = False  # it matches all selectors of `near`: it may be the first
    anti_affinity: tuple[int, ...] = ()  # rows of Neighbours.terms: its own anti-affinity
    existing_anti_affinity: tuple[
        int, ...
    ] = ()  # rows of Neighbours.terms whose selector matches it
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    rwo_claims: tuple[int, ...] = ()  # that only one node may use at a time
    rwop_claims: tuple[int, ...] = ()  # that only one pod may use at a time
    shared_devices: int = 0  # shared ones, and how much of each
    device_share: int = 0  # thousandths of each
    unknown_resources: tuple[
        tuple[str, int], ...
    ] = ()  # resources that it asks for and no node has


@dataclass(frozen=True, slots=True)
class PodRelations:
    """Which pods lie where, as far as somebody asks; and where claims are in use."""

    selector_counts: NDArray[np.int32]  # [selector, node]
    anti_affinity_terms: tuple[AffinityTerm, ...]  # of anti-affinity
    anti_affinity_counts: NDArray[np.int32]  # [term, node] pods that have it
    claim_node: tuple[int, ...]  # [claim] or NONE
    claim_users: tuple[int, ...]  # [claim] pods


class ReleasingAmount(NamedTuple):
    """What pods of one queue have on one node that are being released."""

    queue: int
    node: int
    amounts: tuple[int, int, int]  # by Kind


@dataclass(frozen=True, slots=True)
class SnapshotQueues:
    """The tree of queues; allocated, fixed and requested include what is below."""

    names: tuple[str, ...]
    parent: tuple[int, ...]  # or NONE
    priority: tuple[int, ...]
    quota: Ints  # [queue, kind] or UNBOUND
    limit: Ints  # [queue, kind] or UNBOUND
    weight: Floats  # [queue, kind]
    allocated: Ints  # [queue, kind]
    non_preemptible: Ints  # [queue, kind] the part that cannot be preempted
    requested: Ints  # [queue, kind]
    # How long units keep what they need once they run, in seconds, or NONE where it is not said.
    preempt_min_s: tuple[int, ...] = ()  # [queue]; empty where nobody says anything
    reclaim_min_s: tuple[int, ...] = ()  # [queue]; likewise
    # Whether its children take back no more than their quotas.
    is_quota_only: tuple[bool, ...] = ()  # [queue]; empty where nobody says so
    releasing: tuple[ReleasingAmount, ...] = ()  # what is not in allocated, and still on nodes


@dataclass(frozen=True, slots=True)
class SnapshotPods:
    """Pods of our units, each in its slot; a slot that is nobody's is in no unit, and done."""

    signature: NDArray[np.int32]  # [pod] or NONE
    node: NDArray[np.int32]  # [pod] or NONE
    podgroup: NDArray[np.int32]  # [pod] or NONE
    state: NDArray[np.int8]  # [pod] PodState


class ReservedPlace(NamedTuple):
    """Room that is held for a pod which does not exist; it counts as taken."""

    node: int
    signature: int
    cause: ReservationCause


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that are alike to their unit: so many of them are needed."""

    name: str
    minimum: int
    pending: tuple[int, ...] = ()  # pods, in the order in which they are placed
    running: int = 0
    succeeded: int = 0
    reserved_places: tuple[ReservedPlace, ...] = ()
    expected: int = 0  # pods that do not exist yet, those with slots included
    expected_signature: int = NONE
    gated: int = 0  # pods that may not be placed yet
    running_pods: tuple[
        int, ...
    ] = ()  # that are there, first placed first; where some can be spared, or leaves differ


@dataclass(frozen=True, slots=True)
class SubGroupSet:
    """Leaves and groups: so many of them are needed."""

    name: str
    minimum: int
    children: tuple["PodSet | SubGroupSet", ...]


SubGroupTree: TypeAlias = PodSet | SubGroupSet


class PreFilterFailure(NamedTuple):
    """What is known to be in the way before anything is tried."""

    reason: UnschedulableReason
    message: str
    retry_on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """What starts whole or not at all."""

    name: str
    queue: int  # or NONE, with a bar
    priority: int
    is_preemptible: bool
    tree: SubGroupTree
    prefilter_failure: PreFilterFailure | None = None
    has_running: bool = False  # some of it is there: what of it is missing is held for it
    owning_jobset: str = ""  # units of one bundle leave together, and whole
    non_evictable_reason: str = ""  # why nobody may take anything from it
    is_relocating: bool = False  # it stays only until it has come to another place
    is_partly_succeeded: bool = False  # some of it is there, and other pods of it have succeeded
    stale_at: int | None = None  # when it counts as stale, in seconds since 1970; None is never
    running_since: int = 0  # when it began to run, in seconds since 1970; 0 is not known
    can_reserve: bool = True  # room can be held for it while none of it is there
    may_relocate: bool = True  # its place may become another
    checkpoint_at: int = 0  # when its work was saved last, as it says; 0 is never
    preemption_delay_until: int = 0  # it takes nothing from anybody before, in seconds since 1970
    preemption_delay: str = ""  # how long that is, in its own words
    elastic_failure: PreFilterFailure | None = (
        None  # in the way of what it takes beyond its needs and its slots
    )


class DisruptionBudgets(NamedTuple):
    """How many of some pods may go in one plan."""

    names: tuple[str, ...]
    allowed: tuple[int, ...]  # [budget]
    sets: tuple[tuple[int, ...], ...]  # of budgets that cover the same pods
    set_of_pod: tuple[int, ...]  # [pod] row of its set, or NONE


NO_BUDGETS: Final = DisruptionBudgets((), (), (), ())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it, at one moment."""

    resources: ResourceColumns
    nodes: SnapshotNodes
    devices: SharedDevices
    pod_relations: PodRelations
    queues: SnapshotQueues
    signatures: tuple[SchedulingSignature, ...]
    pods: SnapshotPods
    podgroups: tuple[PodGroupInfo, ...]
    total: tuple[int, int, int]  # by Kind: what the queues at the top share
    now: int  # seconds since 1970
    budgets: DisruptionBudgets = NO_BUDGETS

    def __post_init__(self) -> None:
        """Nobody writes into a snapshot."""
        for table in (self.nodes, self.devices, self.pod_relations, self.queues, self.pods):
            for name in type(table).__slots__:
                column = getattr(table, name)
                if isinstance(column, np.ndarray):
                    column.flags.writeable = False


def podsets_of(tree: SubGroupTree) -> tuple[PodSet, ...]:
    """Return the leaves of a tree."""
    if isinstance(tree, PodSet):
        return (tree,)
    return tuple(podset for child in tree.children for podset in podsets_of(child))
