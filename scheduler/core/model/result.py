"""The result of a plan: allocations, evictions and relocations, and why other PodGroups wait."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from scheduler.core.model.failures import Rejection
from scheduler.core.model.podgroup import ReservationCause
from scheduler.core.model.resources import Ints

__all__ = [
    "Action",
    "Eviction",
    "Plan",
    "PlanStats",
    "PodGroupAllocation",
    "PodPlacement",
    "Relocation",
    "Reservation",
]


class PodPlacement(NamedTuple):
    """A pod and its node."""

    pod: int
    node: int


class Reservation(NamedTuple):
    """Slots for pods of a leaf that do not exist."""

    podset: str
    node: int
    number: int
    cause: ReservationCause


@dataclass(frozen=True, slots=True)
class PodGroupAllocation:
    """A unit, or more of it, gets its room. It cannot be carried out in part."""

    podgroup: int
    binds: tuple[PodPlacement, ...] = ()
    nominations: tuple[PodPlacement, ...] = ()  # they wait for what is being released
    reservations: tuple[Reservation, ...] = ()  # new ones
    is_start: bool = False  # nothing of it was there before


class Action(IntEnum):
    """What takes something from somebody."""

    RECLAIM = 1
    PREEMPT = 2
    CONSOLIDATION = 3
    STALE_GANG_EVICTION = 4

    @property
    def title(self) -> str:
        """Return its name as settings have it."""
        return self.name.lower().replace("_", "")


@dataclass(frozen=True, slots=True)
class Eviction:
    """Units lose some pods, or all they have; mostly for somebody who gets room by it."""

    podgroups: tuple[int, ...]
    pods: tuple[int, ...]
    is_whole: bool
    action: Action
    preemptor: int  # a unit, or NONE: for nobody
    gpus: int = 0  # thousandths that they are charged for less
    work_lost: int = 0  # GPU-seconds
    victim_order: str = ""  # why these and not others, where a site has chosen it
    budgets: tuple[int, ...] = ()  # that let fewer pods go


@dataclass(frozen=True, slots=True)
class Relocation:
    """Where a unit that was evicted to make room gets its place anew: slots for all its pods."""

    podgroup: int
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class PlanStats:
    """What a log would say."""

    admitted: int = 0
    rejected: int = 0
    searches: int = 0  # for somebody to take room from
    trials: int = 0  # placements that were tried for them
    sets: int = 0  # that were looked at one by one
    cut: int = 0  # searches that ended at a limit
    withheld: int = 0  # claims that were not looked at, because enough was taken


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer."""

    allocations: tuple[PodGroupAllocation, ...]
    rejections: tuple[Rejection, ...]
    fair_share: Ints  # [queue, kind]
    stats: PlanStats = field(default_factory=PlanStats)
    evictions: tuple[Eviction, ...] = ()
    relocations: tuple[Relocation, ...] = ()
