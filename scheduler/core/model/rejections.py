"""Why a PodGroup stays pending: the reason, its details, and why no victim was evicted for it.

A `Rejection` is the result of a plan for one PodGroup. Its details are one of: a
`PreFilterFailure` (kube-scheduler's word), which is known before nodes are looked at;
`MissingPods`; a `QueueBoundExceeded`, which a quota plugin returns as a `QuotaRefusal`; and
`FitErrors` (KAI's word), by node. An `EvictionFailure` comes on top: why no victim was evicted. The
`ClusterEvent`s of a rejection say which changes of the cluster may help. All are data;
`scheduler.core.messages` has the sentences.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.line import LineNote
from scheduler.core.model.resources import NONE, Amounts, ResourceKind
from trainer_kai.api.reasons import UnschedulableReason


class ClusterEvent(Flag):
    """What has happened. A rejection names the events on which its PodGroup is retried.

    `ANY` and `TIME_PASSED` retry every PodGroup that waits; another event retries only
    PodGroups that await it, so that a busy cluster is not planned anew for each of its events.
    """

    RESOURCES_FREED = auto()  # a pod on a node terminates, has ended or was deleted
    FOREIGN_POD_ASSIGNED = auto()  # a pod of another scheduler got a node: it may satisfy affinity
    STAGE_PROGRESS = auto()  # a pod became Ready or no longer is, or a workload has a new status
    BUDGET_CHANGED = auto()  # of a PodDisruptionBudget: pods may become evictable
    PODGROUP_INCOMPLETE = auto()  # a pod came to a PodGroup that lacks others: new numbers only
    TIME_PASSED = auto()  # every few seconds
    ANY = auto()  # any other change


NO_EVENT: Final = ClusterEvent(0)


class PreFilterCause(Enum):
    """What a PreFilterFailure found; each cause has one reason, and a template for its message."""

    # Misconfigured; the numbers only tell the causes of one reason apart.
    INVALID_PODGROUP = UnschedulableReason.MISCONFIGURED, 1
    PODGROUP_MISSING = UnschedulableReason.MISCONFIGURED, 2
    IGNORED_PODS = UnschedulableReason.MISCONFIGURED, 3
    PRIORITY_CLASS_REFUSED = UnschedulableReason.MISCONFIGURED, 4
    INVALID_REQUESTS = UnschedulableReason.MISCONFIGURED, 5
    POD_SPEC_LIMIT = UnschedulableReason.MISCONFIGURED, 6
    PODGROUP_CONSTRAINT_LIMIT = UnschedulableReason.MISCONFIGURED, 7
    NAMESPACE_CONSTRAINT_LIMIT = UnschedulableReason.MISCONFIGURED, 8
    VOLUME_CLAIM_MISSING = UnschedulableReason.MISCONFIGURED, 9
    VOLUME_CLAIM_TERMINATING = UnschedulableReason.MISCONFIGURED, 10
    VOLUME_CLAIM_LOST = UnschedulableReason.MISCONFIGURED, 11
    VOLUME_MISSING = UnschedulableReason.MISCONFIGURED, 12
    QUEUE_NOT_NAMED = UnschedulableReason.MISCONFIGURED, 13
    QUEUE_HAS_CHILDREN = UnschedulableReason.MISCONFIGURED, 14
    QUEUE_CYCLE = UnschedulableReason.MISCONFIGURED, 15
    INVALID_GPU_SHARE = UnschedulableReason.MISCONFIGURED, 16
    GPU_SHARE_NOT_ADMITTED = UnschedulableReason.MISCONFIGURED, 17
    QUEUE_CLOSED = UnschedulableReason.FORBIDDEN_QUEUE, 1
    QUEUE_ACCESS_PENDING = UnschedulableReason.FORBIDDEN_QUEUE, 2
    QUEUE_ACCESS_UNKNOWN = UnschedulableReason.FORBIDDEN_QUEUE, 3
    QUEUE_HELD = UnschedulableReason.QUEUE_HELD, 1
    QUEUE_MISSING = UnschedulableReason.QUEUE_MISSING, 1
    PARENT_QUEUE_MISSING = UnschedulableReason.QUEUE_MISSING, 2
    NOT_GROUPED = UnschedulableReason.GROUP_MISSING, 1
    EARLIER_STAGE = UnschedulableReason.WAITING_FOR_STAGE, 1
    SHARED_GPU = UnschedulableReason.NO_NODE_MATCHES, 1
    CLAIM_INVALID = UnschedulableReason.MISCONFIGURED, 18
    CLAIM_UNSUPPORTED = UnschedulableReason.NO_NODE_MATCHES, 2
    VOLUME_CLAIM_NOT_CREATED = UnschedulableReason.NO_NODE_MATCHES, 3
    VOLUME_CLAIM_UNBOUND = UnschedulableReason.NO_NODE_MATCHES, 4
    NO_VOLUME_LEFT = UnschedulableReason.NO_NODE_MATCHES, 5
    LEGACY_MIG = UnschedulableReason.NO_NODE_MATCHES, 6
    CLAIM_NOT_READY = UnschedulableReason.NO_NODE_MATCHES, 7
    EXTENDED_RESOURCE = UnschedulableReason.NO_NODE_MATCHES, 8
    TOPOLOGY_MISSING = UnschedulableReason.TOPOLOGY_UNFIT, 1
    TOPOLOGY_LEVEL_MISSING = UnschedulableReason.TOPOLOGY_UNFIT, 2

    def __init__(self, reason: UnschedulableReason, _number: int) -> None:
        self.reason: Final = reason


class StageProgress(NamedTuple):
    """How far an earlier stage is that has to be complete, or ready."""

    replicated_job: str
    is_complete: bool  # else ready is enough
    done: int  # pods that have succeeded or, if that is enough, are ready
    needed: int


class QueueLabel(NamedTuple):
    label: str
    queue: str
    podgroup_queue: str


class PreFilterFailure(NamedTuple):
    """A reason that is known before a placement is attempted, whatever the nodes have free."""

    cause: PreFilterCause
    values: tuple[str | int | StageProgress, ...] = ()  # what the template of the cause names
    retry_on: ClusterEvent = ClusterEvent.ANY
    pod: str = ""  # the pod that it is about, as messages name it; empty if it is the PodGroup
    queue_label: QueueLabel | None = None  # why another queue than that of the PodGroup counts
    is_only: bool = True  # no other cause is in the way as well

    @property
    def reason(self) -> UnschedulableReason:
        return self.cause.reason


class FitErrorReason(IntEnum):
    """Why a pod does not fit on a node; of several reasons the first is counted."""

    DOMAIN = -2  # it is in no domain of the topology that the pods may use
    LEAVING = -1  # the node leaves the cluster
    CORDONED = 0
    NOT_READY = 1
    PRESSURE = 2
    NO_NETWORK = 3
    TAINT = 4
    SELECTOR = 5  # labels, affinity, or where volumes are
    GPU_MODE = 6  # no whole GPUs, no shares of GPUs, or no MIG profiles
    GPU_MEMORY = 7  # of its GPUs is not known
    TOO_SMALL = 8  # even when empty
    DEVICES = 9  # too few devices for its ResourceClaims, even when all are free
    AVOIDED = 10  # it refused a pod of the PodGroup
    CLAIM = 11
    PORT = 12
    AFFINITY = 13
    ANTI_AFFINITY = 14
    SPREAD = 15
    ROOM = 16


class MigRefusal(IntEnum):
    """Why a node takes no MIG profiles; of several causes the first is counted."""

    NO_MIG_NODE = 0
    SINGLE_STRATEGY = 1  # its label nvidia.com/mig.strategy
    LEGACY_PODS = 2  # pods on it request MIG profiles by annotation


class ReservationPodPlaces(NamedTuple):
    """Nodes that have the GPUs of a pod, but too few places for the reservation pods of these."""

    nodes: int
    needed: int  # places, on the node that lacks the fewest
    free: int  # of these


class ShareShortage(NamedTuple):
    """Shares of GPUs that are free on nodes of which only free resources are too small."""

    insufficient: int  # nodes that have too few GPUs with so much free
    requested: int  # thousandths of each GPU that the pod requests; the least of any such node
    largest_free: int  # thousandths of each GPU that a pod could get, where most of it fits
    largest_node: int  # where that is, or NONE
    total_free: int  # thousandths
    places: ReservationPodPlaces | None = None  # where only these are missing of what shares need


class ClaimShortage(NamedTuple):
    """The first request of a claim for which some nodes lack devices; why devices fall out."""

    claim: str  # in the spec of the pod
    request: str
    class_name: str
    needed: int  # devices on one node; 0 is all that match
    insufficient: int  # nodes with too few
    devices: int  # that these nodes have
    not_selected: int = 0  # of these, each by its first reason
    tainted: int = 0
    taken: int = 0
    largest_free: int = 0  # the most that one node has free, counters aside
    total_free: int = 0
    # Why a node may have enough and still not fit: what claims combine, and shared counters.
    is_combination: bool = False
    allocated_on: int = NONE  # the only node that has the devices of a claim that is allocated
    is_search_limited: bool = False  # the search ended on a node before it had tried all
    error: str = ""  # why a selector of the request has no answer for some device
    left_out: tuple[tuple[str, int], ...] = ()  # devices that are not allocated, by why


# What is missing of devices, of one sort each.
DeviceShortage: TypeAlias = ShareShortage | ClaimShortage


class DomainShortage(NamedTuple):
    """Pods that must be in one domain, and the domain in which most of them fit."""

    topology: int
    level: int
    subgroup: str  # that requires it; empty is the PodGroup
    needed: int  # pods
    domain: int  # or NONE, where no node is in any
    fitting: int  # pods that fit there
    domains: tuple[int, ...]  # in which they may be
    is_bound: bool  # pods that have nodes decide in which domains the others must be
    podsets: tuple[str, ...]  # of which the pods are
    largest: int = 0  # pods that fit in the largest domain, if no other pods ran
    is_default: bool = False  # the queue requires it


class FitErrors(NamedTuple):
    """Why a pod fits on no node: the nodes by reason, and the resources that are missing."""

    reason: UnschedulableReason
    signature: int
    placed: int  # pods of the attempt before it
    needed: int  # pods of the attempt
    counts: Mapping[FitErrorReason, int]  # nodes
    own_counts: Mapping[FitErrorReason, int]  # of these, nodes that only the attempt itself closed
    taints: Mapping[int, int]  # taint → nodes that it closes to the pod
    keys: Mapping[str, int]  # label → nodes on which it does not match what the pod selects
    too_small: Mapping[int, int]  # resource → nodes that have too little of it even when empty
    largest_allocatable: Mapping[int, int]  # resource → the most of it that one of these has
    insufficient: Mapping[int, int]  # resource → nodes of which only the free amount is too small
    largest_free: Mapping[int, int]  # resource → the most that is free on one such node
    total_free: Mapping[int, int]  # resource → what is free on those nodes together
    unplaced: int  # such pods of the attempt without a node, this one included
    fitting: int  # of these, how many fit on those nodes beside pods of the attempt alone
    is_resolvable: bool  # by evicting other pods
    device_shortages: tuple[DeviceShortage, ...] = ()
    # Of a pod that requests MIG profiles: the nodes that GPU_MODE counts.
    mig_refusals: Mapping[MigRefusal, int] = MappingProxyType({})
    # Where they would fit if they could be in several domains: then nothing else is counted.
    domain_shortage: DomainShortage | None = None
    placed_before: tuple[tuple[int, int], ...] = ()  # the placed pods: signature, and how many

    @property
    def share_shortage(self) -> ShareShortage | None:
        """What is missing of shares of GPUs, of a pod that requests them."""
        return next((it for it in self.device_shortages if isinstance(it, ShareShortage)), None)

    @property
    def claim_shortage(self) -> ClaimShortage | None:
        """What is missing of devices, of a pod that has ResourceClaims."""
        return next((it for it in self.device_shortages if isinstance(it, ClaimShortage)), None)


class RoomShortage(NamedTuple):
    """What pods of one signature lack that fit on no node, and only for want of room."""

    signature: int
    resources: tuple[int, ...] = ()  # of which nodes have too little free
    pods: int = 0  # none where all fit


class QueueBoundExceeded(NamedTuple):
    queue: int
    kind: ResourceKind
    bound: int
    allocated: int
    requested: int
    others: "tuple[QueueBoundExceeded, ...]" = ()  # bounds that would be exceeded as well
    releasing: int = 0  # what terminating pods have beside what is allocated
    unevictable: tuple[int, ...] = ()  # PodGroups that cannot be evicted and exceed the quota


class IncompletePodSet(NamedTuple):
    podset: str
    existing: int
    needed: int
    gated: int = 0  # of those that exist


class MissingPods(NamedTuple):
    podsets: tuple[IncompletePodSet, ...]


class BehindHead(NamedTuple):
    """A PodGroup of a queue in strict order, and the one before it that waits."""

    queue: int
    head: int
    head_reason: UnschedulableReason


RejectionDetails: TypeAlias = (
    FitErrors | QueueBoundExceeded | PreFilterFailure | MissingPods | BehindHead
)


class EarlierIneligibility(IntEnum):
    """Why the PodGroup that comes first for reclaimed resources cannot reclaim them itself."""

    QUOTA = 0  # it is non-preemptible, and would exceed a quota
    SHARE = 1  # its queue would exceed its fair share


class EarlierPodGroup(NamedTuple):
    """A PodGroup of the same queue that comes first for what is reclaimed for a later one."""

    podgroup: int
    requested: Amounts
    ineligibility: EarlierIneligibility | None = None  # where it cannot reclaim either


class QueueOrderConflict(NamedTuple):
    """The queue that lost resources would come before the one that reclaimed them."""

    queue: int
    before: int
    key_index: int  # the first part of their keys that differs


class ReclaimShortfall(IntEnum):
    NO_QUEUE_OVER_SHARE = 0  # no queue is above its allocatable share
    TOO_LITTLE = 1  # what is above the shares does not make the room
    UNFAIR = 2  # what would make the room may not be reclaimed


class ConsolidationFailure(IntEnum):
    DISABLED = 0  # the action is off
    NO_CANDIDATES = 1  # no PodGroup may be relocated
    NOT_PREEMPTIBLE = 2  # the pending PodGroup is non-preemptible
    NO_SOLUTION = 3  # no set of candidates that was tried makes the room


class EvictionFailure(NamedTuple):
    is_delayed: bool = False  # there are victims, and its preemption delay is not over
    non_evictable: tuple[tuple[str, int], ...] = ()  # the reason, and how many PodGroups
    protected: int = 0  # PodGroups within their minimum runtime
    first_unprotected: int = NONE  # of these, the one with the minimum runtime that ends first
    protected_until: int = 0  # the end of it, in seconds since 1970
    budgets: tuple[int, ...] = ()  # that allow too few disruptions
    quota_only_queues: tuple[int, ...] = ()  # queues below which nothing is reclaimed beyond quotas
    # queues that have a resource that is lacking, and no bound on its quota
    unlimited_queues: tuple[tuple[int, ResourceKind], ...] = ()
    earlier_podgroup: EarlierPodGroup | None = None
    order_conflict: QueueOrderConflict | None = None
    is_truncated: bool = False  # not all victims were tried
    is_rate_limited: bool = False  # none was, because enough was evicted for now
    exceeds_fair_share: bool = False  # its queue would exceed its fair share
    shortfall: ReclaimShortfall | None = None  # where no reason above holds
    over_share_queues: tuple[int, ...] = ()  # queues above their allocatable share
    consolidation_failure: ConsolidationFailure | None = None

    def without_temporary_reasons(self) -> "EvictionFailure":
        """Return the reasons that hold whatever time passes and whatever budgets allow."""
        return self._replace(protected=0, first_unprotected=NONE, protected_until=0, budgets=())


NO_EVICTION_FAILURE: Final = EvictionFailure()
FAIR_SHARE_EXCEEDED: Final = EvictionFailure(exceeds_fair_share=True)


@dataclass(frozen=True, slots=True)
class Rejection:
    podgroup: int
    reason: UnschedulableReason
    details: RejectionDetails
    is_resolvable: bool  # by evicting other pods
    retry_on: ClusterEvent
    eviction_failure: EvictionFailure = NO_EVICTION_FAILURE
    # That of the queue, where a pod fits no node and a limit or quota is exceeded as well: another
    # node alone would not help.
    queue_rejection: "Rejection | None" = None
    # What else it needs once the bound that its details name is lifted, "" for nothing: found by
    # an attempt at the end of the plan. None: that was not checked.
    also_needed: str | None = None
    line: LineNote | None = None  # what is kept for it, or, of another PodGroup, in its way


class CheckedRemedy(NamedTuple):
    """What a check found; it is kept from plan to plan, so it has names instead of rows."""

    bound: tuple[object, ...]  # what was lifted, with its numbers
    also_needed: str


def prefilter_rejection(row: int, failure: PreFilterFailure) -> Rejection:
    return Rejection(row, failure.reason, failure, is_resolvable=False, retry_on=failure.retry_on)
