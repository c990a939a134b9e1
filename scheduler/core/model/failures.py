"""Why a PodGroup stays pending: the reason, its details, and why no victim was evicted for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.resources import NONE, Amounts, ResourceKind

__all__ = [
    "FAIR_SHARE_EXCEEDED",
    "NO_EVICTION_FAILURE",
    "ConsolidationFailure",
    "EarlierIneligibility",
    "EarlierPodGroup",
    "EvictionFailure",
    "FitErrorReason",
    "FitErrors",
    "IncompletePodSet",
    "MissingPods",
    "PreFilterDetails",
    "PreFilterFailure",
    "QueueBoundExceeded",
    "QueueOrderConflict",
    "ReclaimShortfall",
    "Rejection",
    "RejectionDetails",
    "UnschedulableReason",
]


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


class PreFilterFailure(NamedTuple):
    """What is known to be in the way before anything is tried."""

    reason: UnschedulableReason
    message: str
    retry_on: frozenset[str] = frozenset()


class FitErrorReason(IntEnum):
    """Why a node does not take a pod; of several the first is counted."""

    CORDONED = 0
    NOT_READY = 1
    PRESSURE = 2
    NO_NETWORK = 3
    TAINT = 4
    SELECTOR = 5  # labels, affinity, or where volumes are
    TOO_SMALL = 6  # even when empty
    CLAIM = 7
    PORT = 8
    AFFINITY = 9
    ANTI_AFFINITY = 10
    SPREAD = 11
    ROOM = 12


class FitErrors(NamedTuple):
    """How the nodes looked to a pod for which there was none."""

    reason: UnschedulableReason
    signature: int
    placed: int  # of the chunk before it
    needed: int  # in the chunk
    counts: Mapping[FitErrorReason, int]  # nodes
    own_counts: Mapping[
        FitErrorReason, int
    ]  # nodes among these that only the chunk's own pods closed to it
    taints: Mapping[int, int]  # taint → nodes that it keeps the pod off
    keys: Mapping[str, int]  # label → nodes of which that label is not what it selects
    too_small: Mapping[int, int]  # resource → nodes that have too little of it even when empty
    largest_allocatable: Mapping[int, int]  # resource → the most of it that one of these has
    insufficient: Mapping[int, int]  # resource → nodes that lack only room, and lack it of this one
    largest_free: Mapping[int, int]  # resource → the most room on a node that lacks only room
    total_free: Mapping[int, int]  # resource → room that those nodes have together
    unplaced: int  # such pods of the chunk without a place, this one included
    fitting: int  # of these, how many those nodes could take if only the chunk's pods were there
    is_resolvable: bool  # by evicting others


class QueueBoundExceeded(NamedTuple):
    """Which bound of which queue is in the way."""

    queue: int
    kind: ResourceKind
    bound: int
    allocated: int
    requested: int
    others: "tuple[QueueBoundExceeded, ...]" = ()  # that are in the way as well
    releasing: int = 0  # what pods that are going have beside what is allocated
    unevictable: tuple[int, ...] = ()  # units by which more is fixed than the quota


class PreFilterDetails(NamedTuple):
    """What was known before."""

    message: str


class IncompletePodSet(NamedTuple):
    """A leaf that lacks members."""

    podset: str
    existing: int
    needed: int
    gated: int = 0  # of those that exist


class MissingPods(NamedTuple):
    """Which leaves lack members."""

    podsets: tuple[IncompletePodSet, ...]


RejectionDetails: TypeAlias = FitErrors | QueueBoundExceeded | PreFilterDetails | MissingPods


class EarlierIneligibility(IntEnum):
    """Why a unit that would get what others give back, were it dealt out anew, takes nothing."""

    QUOTA = 0  # it cannot be preempted, and would pass it
    SHARE = 1  # its queue would have more than is due to it


class EarlierPodGroup(NamedTuple):
    """Who has the turn before a unit, and so what others would give back for it."""

    podgroup: int  # a unit
    requested: Amounts
    ineligibility: EarlierIneligibility | None = None  # where that one cannot have it either


class QueueOrderConflict(NamedTuple):
    """Which queue would have back what it gave, were it dealt out anew, and before which one."""

    queue: int
    before: int
    key_index: int  # of their keys: the first that differs


class ReclaimShortfall(IntEnum):
    """Why there is nothing to take back, where nobody in particular is kept from losing it."""

    NO_QUEUE_OVER_SHARE = 0  # has more than it may count on
    TOO_LITTLE = 1  # is not made by what may be taken of that
    UNFAIR = 2  # forbids what would make it


class ConsolidationFailure(IntEnum):
    """Why nobody is moved to bring together what is in pieces."""

    DISABLED = 0  # it is not done
    NO_CANDIDATES = 1  # nobody may be
    NOT_PREEMPTIBLE = 2  # nor may who waits, were he there
    NO_SOLUTION = 3  # it would not make the room, as far as that was looked at


class EvictionFailure(NamedTuple):
    """Why nobody loses anything for a unit that may claim it."""

    is_delayed: bool = False  # it could take something, and gives others time first
    non_evictable: tuple[tuple[str, int], ...] = ()  # why, and how many units
    protected: int = 0  # units that have not run for long
    first_unprotected: int = NONE  # of these, the one that may go first
    protected_until: int = 0  # before when it may not, in seconds since 1970
    budgets: tuple[int, ...] = ()  # that let too few pods go
    quota_only_queues: tuple[
        int, ...
    ] = ()  # queues below which nothing is taken back beyond quotas
    unlimited_queues: tuple[int, ...] = ()  # queues that owe nothing back, whatever they have
    earlier_podgroup: EarlierPodGroup | None = None
    order_conflict: QueueOrderConflict | None = None
    is_truncated: bool = False  # not everybody was looked at who could lose something
    is_rate_limited: bool = False  # nobody was, because enough was taken for now
    exceeds_fair_share: bool = False  # its queue would have more than is due to it
    shortfall: ReclaimShortfall | None = None  # where nothing above is so
    over_share_queues: tuple[int, ...] = ()  # queues that have more than they may count on, in vain
    consolidation_failure: ConsolidationFailure | None = None

    def without_temporary_reasons(self) -> "EvictionFailure":
        """Return what is so of those who could not give enough, with whatever time or budget."""
        return self._replace(protected=0, first_unprotected=NONE, protected_until=0, budgets=())


NO_EVICTION_FAILURE: Final = EvictionFailure()
FAIR_SHARE_EXCEEDED: Final = EvictionFailure(exceeds_fair_share=True)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a unit waits."""

    podgroup: int
    reason: UnschedulableReason
    details: RejectionDetails
    is_resolvable: bool  # by evicting others
    retry_on: frozenset[str]
    eviction_failure: EvictionFailure = NO_EVICTION_FAILURE
