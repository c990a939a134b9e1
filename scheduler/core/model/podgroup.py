"""PodGroups with their trees of sub-groups, and the scheduling signatures of their pods."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.claims import PodClaim
from scheduler.core.model.rejections import PreFilterFailure
from scheduler.core.model.resources import NONE, DeviceSort, HeldDevices, devices_of
from scheduler.core.model.topology import DomainConstraint


class LabelRequirement(NamedTuple):
    """A node's value of a label is one of these; NONE among them means that it may lack it."""

    key: int  # or NONE, where no node has the label: then there are no codes
    codes: frozenset[int]
    label: str = ""  # that no node has: the name alone, or with the values that no node has
    is_negated: bool = False  # it is none of these


class AffinityTerm(NamedTuple):
    """Pods that a selector matches, within one value of a label."""

    selector: int
    key: int


class SpreadConstraint(NamedTuple):
    """How unevenly the pods of a selector may be spread over the values of a label."""

    selector: int
    key: int
    max_skew: int
    min_domains: int
    counts_itself: bool
    honours_affinity: bool  # nodes that its node affinity excludes are no domain
    honours_taints: bool


class AvoidedNode(NamedTuple):
    """A node that refused a pod of the same PodGroup, which is not placed there for a while."""

    node: int  # or NONE: all nodes are avoided
    until: int  # seconds since 1970


@dataclass(frozen=True, slots=True)
class SchedulingSignature:
    """All of a pod that decides on which nodes it fits; equal pods share one signature."""

    request: tuple[int, ...]  # by resource
    queue_request: tuple[int, int, int]  # by ResourceKind
    has_gpu: bool = False
    tolerated_taints: frozenset[int] = frozenset()  # taints
    # Of each entry one alternative holds.
    node_affinity: tuple[tuple[tuple[LabelRequirement, ...], ...], ...] = ()
    nominated_node: int = NONE  # node
    host_ports: tuple[int, ...] = ()  # ports
    conflicting_ports: tuple[int, ...] = ()  # ports
    matched_selectors: tuple[int, ...] = ()  # selectors that match it
    affinity: tuple[AffinityTerm, ...] = ()
    # It matches all selectors of `affinity`: it may be the first.
    matches_own_affinity: bool = False
    # Rows of PodRelations.anti_affinity_terms: its own, and those with a selector that matches it.
    anti_affinity: tuple[int, ...] = ()
    existing_anti_affinity: tuple[int, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    rwo_claims: tuple[int, ...] = ()  # that only one node may use at a time
    rwop_claims: tuple[int, ...] = ()  # that only one pod may use at a time
    shared_devices: int = 0  # of how many GPUs it requests a share
    device_share: int = 0  # thousandths of each; 0 where it requests memory
    device_memory: int = 0  # MiB of each
    # Where it requests memory: what its queue is charged on the largest GPU of any node.
    # `queue_request` is on the smallest one. None is the same.
    least_queue_request: tuple[int, int, int] | None = None
    requests_mig: bool = False
    unknown_resources: tuple[tuple[str, int], ...] = ()  # that it requests and no node has
    avoided_nodes: tuple[AvoidedNode, ...] = ()  # by its PodGroup
    claims: tuple[PodClaim, ...] = ()  # for devices

    @property
    def is_charged_by_node(self) -> bool:
        """Say whether it depends on its node what its queue is charged."""
        return self.least_queue_request is not None

    @property
    def may_relocate(self) -> bool:
        """Say whether a place for it can be reserved before its own is free.

        Where it depends on other pods, or on the GPUs of its node, that is not known.
        """
        return not (self.affinity or self.spread_constraints or self.device_memory)


class ReservationCause(IntEnum):
    ANTICIPATED = 0
    REPAIR = 1
    MOVE = 2


class ReservedPlace(NamedTuple):
    """Resources that are reserved for a pod that does not exist yet; they count as allocated."""

    node: int
    signature: int
    cause: ReservationCause
    held: HeldDevices = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """The shared GPUs of its node of which it has a share."""
        return devices_of(self.held, DeviceSort.GPU_SHARE)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods that count alike for their PodGroup, and how many of them are needed."""

    name: str
    minimum: int
    pending: tuple[int, ...] = ()  # pods, in the order in which they are placed
    running: int = 0
    succeeded: int = 0
    reserved_places: tuple[ReservedPlace, ...] = ()
    expected: int = 0  # pods that do not exist yet, those with reserved places included
    expected_signature: int = NONE
    gated: int = 0  # pods that may not be placed yet
    leaving: int = 0  # of the running pods: those on nodes that leave
    # On nodes, first placed first; where some can be spared, or PodSets differ, or where it matters
    # in which domains they are.
    running_pods: tuple[int, ...] = ()
    domains: DomainConstraint | None = None


@dataclass(frozen=True, slots=True)
class SubGroupSet:
    """PodSets and SubGroupSets, and how many of them are needed."""

    name: str
    minimum: int
    children: tuple["PodSet | SubGroupSet", ...]
    domains: DomainConstraint | None = None  # of all pods below; that of the top is the PodGroup's


SubGroupTree: TypeAlias = PodSet | SubGroupSet


class Departure(NamedTuple):
    """Why pods of a PodGroup leave with their node."""

    reason: str  # a clause that names the node
    # So long a pod of it that was evicted through the API shows that its node is being emptied; in
    # seconds since 1970.
    begun_until: int = 0
    not_before: int = 0  # it was moved lately, and is not moved again before; likewise
    is_notice: bool = True  # the node will go; False: a condition says that it is ill

    def has_begun(self, now: int) -> bool:
        return now < self.begun_until

    def is_certain(self, now: int) -> bool:
        return self.is_notice or self.has_begun(now)


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """A PodGroup: pods that start together or not at all."""

    name: str
    queue: int  # or NONE, with a prefilter_failure
    priority: int
    is_preemptible: bool
    tree: SubGroupTree
    prefilter_failure: PreFilterFailure | None = None
    has_running: bool = False  # pods of it run: places are reserved for those that are missing
    workload: str = ""  # PodGroups of one workload are evicted together, and whole
    non_evictable_reason: str = ""  # why no pod of it may be evicted
    is_relocating: bool = False  # it is non-evictable only until it is relocated
    is_partly_succeeded: bool = False  # some pods of it run, and others have succeeded
    stale_at: int | None = None  # when it counts as stale, in seconds since 1970; None is never
    running_since: int = 0  # when it began to run, in seconds since 1970; 0 is not known
    can_reserve: bool = True  # places can be reserved for it while no pod of it runs
    may_relocate: bool = True  # it may be evicted to get other nodes
    checkpoint_at: int = 0  # when it saved a checkpoint last; 0 is never
    preemption_delay_until: int = 0  # it evicts no pods before, in seconds since 1970
    preemption_delay: str = ""  # how long that is, as its author wrote it
    # When it will have ended by force, whether it runs or waits, in seconds since 1970; 0 is never.
    ends_at: int = 0
    # In the way of pods beyond its minimum and its reserved places.
    elastic_failure: PreFilterFailure | None = None
    departure: Departure | None = None  # of some of its pods


# Why a PodGroup that is not preemptible is non-evictable.
NON_PREEMPTIBLE: Final = "non-preemptible pods are not evicted"


def podsets_of(tree: SubGroupTree) -> tuple[PodSet, ...]:
    if isinstance(tree, PodSet):
        return (tree,)
    return tuple(podset for child in tree.children for podset in podsets_of(child))


def domain_constraints(tree: SubGroupTree) -> Iterator[DomainConstraint]:
    """Yield the constraints of a PodGroup and of all its sub-groups."""
    if tree.domains is not None:
        yield tree.domains
    if isinstance(tree, SubGroupSet):
        for child in tree.children:
            yield from domain_constraints(child)


def is_evictable(podgroup: PodGroupInfo) -> bool:
    return podgroup.is_preemptible and podgroup.queue != NONE and not podgroup.non_evictable_reason
