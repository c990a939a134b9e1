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
    "KINDS",
    "NONE",
    "NO_BUDGETS",
    "UNBOUND",
    "Axes",
    "Bar",
    "Bools",
    "Budgets",
    "Cause",
    "Devices",
    "Floats",
    "Going",
    "Group",
    "Ints",
    "Kind",
    "Leaf",
    "Neighbours",
    "NodeFault",
    "Nodes",
    "PodState",
    "Pods",
    "Queues",
    "Require",
    "Shape",
    "Slot",
    "Snapshot",
    "Spread",
    "Term",
    "Tree",
    "Unit",
    "Verdict",
    "leaves_of",
]

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

NONE: Final = -1  # no row
UNBOUND: Final = -1  # of quotas and limits


class Kind(IntEnum):
    """What queues share: the columns of their arrays."""

    CPU = 0  # thousandths
    MEMORY = 1  # bytes
    GPU = 2  # thousandths of a device


KINDS: Final = tuple(Kind)


class Verdict(IntEnum):
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


class Cause(IntEnum):
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

    WAITING = 0
    GATED = 1
    THERE = 2  # on a node, or promised to one
    RELEASING = 3
    STUCK = 4  # going for too long: it holds what it has, and nobody may count on it
    DONE = 5


@dataclass(frozen=True, slots=True)
class Axes:
    """The columns of resource arrays."""

    names: tuple[str, ...]
    kinds: tuple[int, ...]  # which Kind counts it for queues, or NONE
    weights: tuple[int, ...]  # how many units of that kind one unit is
    cpu: int
    pods: int
    gpus: tuple[int, ...]  # whole devices, in thousandths


@dataclass(frozen=True, slots=True)
class Nodes:
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
class Devices:
    """Devices that pods share, and MIG profiles: one row each."""

    ids: tuple[str, ...]
    node: NDArray[np.int32]  # [device]
    used: Ints  # [device] thousandths
    releasing: Ints  # [device] thousandths
    memory: Ints  # [device] MiB of the whole device


class Require(NamedTuple):
    """A node's value of a label is one of these; NONE among them means that it may lack it."""

    key: int  # or NONE, where no node has the label: then there are no codes
    codes: frozenset[int]
    label: str = ""  # that no node has
    is_not: bool = False  # it is none of these


class Term(NamedTuple):
    """Pods that a selector matches, within one value of a label."""

    selector: int
    key: int


class Spread(NamedTuple):
    """How unevenly the pods of a selector may lie over the values of a label."""

    selector: int
    key: int
    max_skew: int
    min_domains: int
    counts_itself: bool
    honours_affinity: bool  # nodes that the pod may not choose make no domain
    honours_taints: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a pod says where it may go; equal pods have one shape."""

    request: tuple[int, ...]  # by resource
    counted: tuple[int, int, int]  # by Kind
    has_gpu: bool = False
    tolerates: frozenset[int] = frozenset()  # taints
    any_of: tuple[tuple[tuple[Require, ...], ...], ...] = ()  # of each entry one alternative holds
    nominated: int = NONE  # node
    takes: tuple[int, ...] = ()  # ports
    avoids: tuple[int, ...] = ()  # ports
    matches: tuple[int, ...] = ()  # selectors that match it
    near: tuple[Term, ...] = ()
    is_own_neighbour: bool = False  # it matches all selectors of `near`: it may be the first
    apart: tuple[int, ...] = ()  # rows of Neighbours.terms: its own anti-affinity
    shunned: tuple[int, ...] = ()  # rows of Neighbours.terms whose selector matches it
    spread: tuple[Spread, ...] = ()
    claims: tuple[int, ...] = ()  # that only one node may use at a time
    own_claims: tuple[int, ...] = ()  # that only one pod may use at a time
    devices: int = 0  # shared ones, and how much of each
    share: int = 0  # thousandths of each
    lacking: tuple[tuple[str, int], ...] = ()  # resources that it asks for and no node has


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Which pods lie where, as far as somebody asks; and where claims are in use."""

    counts: NDArray[np.int32]  # [selector, node]
    terms: tuple[Term, ...]  # of anti-affinity
    holders: NDArray[np.int32]  # [term, node] pods that have it
    claim_node: tuple[int, ...]  # [claim] or NONE
    claim_users: tuple[int, ...]  # [claim] pods


class Going(NamedTuple):
    """What pods of one queue have on one node that are being released."""

    queue: int
    node: int
    amounts: tuple[int, int, int]  # by Kind


@dataclass(frozen=True, slots=True)
class Queues:
    """The tree of queues; allocated, fixed and requested include what is below."""

    names: tuple[str, ...]
    parent: tuple[int, ...]  # or NONE
    priority: tuple[int, ...]
    quota: Ints  # [queue, kind] or UNBOUND
    limit: Ints  # [queue, kind] or UNBOUND
    weight: Floats  # [queue, kind]
    allocated: Ints  # [queue, kind]
    fixed: Ints  # [queue, kind] the part that cannot be preempted
    requested: Ints  # [queue, kind]
    # How long units keep what they need once they run, in seconds, or NONE where it is not said.
    preempt_min_s: tuple[int, ...] = ()  # [queue]; empty where nobody says anything
    reclaim_min_s: tuple[int, ...] = ()  # [queue]; likewise
    # Whether its children take back no more than their quotas.
    is_quota_only: tuple[bool, ...] = ()  # [queue]; empty where nobody says so
    going: tuple[Going, ...] = ()  # what is not in allocated, and still on nodes


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of our units, each in its slot; a slot that is nobody's is in no unit, and done."""

    shape: NDArray[np.int32]  # [pod] or NONE
    node: NDArray[np.int32]  # [pod] or NONE
    unit: NDArray[np.int32]  # [pod] or NONE
    state: NDArray[np.int8]  # [pod] PodState


class Slot(NamedTuple):
    """Room that is held for a pod which does not exist; it counts as taken."""

    node: int
    shape: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Leaf:
    """Pods that are alike to their unit: so many of them are needed."""

    name: str
    minimum: int
    waiting: tuple[int, ...] = ()  # pods, in the order in which they are placed
    there: int = 0
    succeeded: int = 0
    slots: tuple[Slot, ...] = ()
    later: int = 0  # pods that do not exist yet, those with slots included
    later_shape: int = NONE
    gated: int = 0  # pods that may not be placed yet
    pods: tuple[
        int, ...
    ] = ()  # that are there, first placed first; where some can be spared, or leaves differ


@dataclass(frozen=True, slots=True)
class Group:
    """Leaves and groups: so many of them are needed."""

    name: str
    minimum: int
    children: tuple["Leaf | Group", ...]


Tree: TypeAlias = Leaf | Group


class Bar(NamedTuple):
    """What is known to be in the way before anything is tried."""

    verdict: Verdict
    message: str
    wakes_on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Unit:
    """What starts whole or not at all."""

    name: str
    queue: int  # or NONE, with a bar
    priority: int
    is_preemptible: bool
    tree: Tree
    bar: Bar | None = None
    is_kept: bool = False  # some of it is there: what of it is missing is held for it
    bundle: str = ""  # units of one bundle leave together, and whole
    stays: str = ""  # why nobody may take anything from it
    is_moving: bool = False  # it stays only until it has come to another place
    is_partly_done: bool = False  # some of it is there, and other pods of it have succeeded
    stale_at: int | None = None  # when it counts as stale, in seconds since 1970; None is never
    since: int = 0  # when it began to run, in seconds since 1970; 0 is not known
    can_hold: bool = True  # room can be held for it while none of it is there
    may_move: bool = True  # its place may become another
    saved: int = 0  # when its work was saved last, as it says; 0 is never
    patient_until: int = 0  # it takes nothing from anybody before, in seconds since 1970
    patience: str = ""  # how long that is, in its own words
    growth_bar: Bar | None = None  # in the way of what it takes beyond its needs and its slots


class Budgets(NamedTuple):
    """How many of some pods may go in one plan."""

    names: tuple[str, ...]
    allowed: tuple[int, ...]  # [budget]
    sets: tuple[tuple[int, ...], ...]  # of budgets that cover the same pods
    of: tuple[int, ...]  # [pod] row of its set, or NONE


NO_BUDGETS: Final = Budgets((), (), (), ())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it, at one moment."""

    axes: Axes
    nodes: Nodes
    devices: Devices
    neighbours: Neighbours
    queues: Queues
    shapes: tuple[Shape, ...]
    pods: Pods
    units: tuple[Unit, ...]
    total: tuple[int, int, int]  # by Kind: what the queues at the top share
    now: int  # seconds since 1970
    budgets: Budgets = NO_BUDGETS

    def __post_init__(self) -> None:
        """Nobody writes into a snapshot."""
        for table in (self.nodes, self.devices, self.neighbours, self.queues, self.pods):
            for name in type(table).__slots__:
                column = getattr(table, name)
                if isinstance(column, np.ndarray):
                    column.flags.writeable = False


def leaves_of(tree: Tree) -> tuple[Leaf, ...]:
    """Return the leaves of a tree."""
    if isinstance(tree, Leaf):
        return (tree,)
    return tuple(leaf for child in tree.children for leaf in leaves_of(child))
