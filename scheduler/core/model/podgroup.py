"""PodGroups with their trees of sub-groups, and the scheduling signatures of their pods."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from scheduler.core.model.failures import PreFilterFailure
from scheduler.core.model.resources import NONE

__all__ = [
    "AffinityTerm",
    "LabelRequirement",
    "PodGroupInfo",
    "PodSet",
    "ReservationCause",
    "ReservedPlace",
    "SchedulingSignature",
    "SpreadConstraint",
    "SubGroupSet",
    "SubGroupTree",
    "is_evictable",
    "podsets_of",
]


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


class ReservationCause(IntEnum):
    """Why a slot is held."""

    ANTICIPATED = 0
    REPAIR = 1
    MOVE = 2


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


def podsets_of(tree: SubGroupTree) -> tuple[PodSet, ...]:
    """Return the leaves of a tree."""
    if isinstance(tree, PodSet):
        return (tree,)
    return tuple(podset for child in tree.children for podset in podsets_of(child))


def is_evictable(podgroup: PodGroupInfo) -> bool:
    """Say whether anything may be taken from a unit."""
    return podgroup.is_preemptible and podgroup.queue != NONE and not podgroup.non_evictable_reason
