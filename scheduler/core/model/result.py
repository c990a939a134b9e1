"""The result of a plan: allocations, evictions and relocations, and why other PodGroups wait."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from scheduler.core.model.podgroup import ReservationCause
from scheduler.core.model.rejections import Rejection
from scheduler.core.model.resources import Ints


class PodPlacement(NamedTuple):
    """A pod and its node."""

    pod: int
    node: int
    # The shared GPUs of which it has a share, by slot; slots of the node that the snapshot does not
    # have are new: two pods of a plan with the same one share that GPU.
    slots: tuple[int, ...] = ()


class Reservation(NamedTuple):
    """Reserved places for pods of a PodSet that do not exist yet."""

    podset: str
    node: int
    number: int
    cause: ReservationCause


@dataclass(frozen=True, slots=True)
class PodGroupAllocation:
    """Places for a PodGroup, or for more of it. It cannot be carried out in part."""

    podgroup: int
    binds: tuple[PodPlacement, ...] = ()
    nominations: tuple[PodPlacement, ...] = ()  # pods that wait for what is being released
    reservations: tuple[Reservation, ...] = ()  # new ones
    is_start: bool = False  # no pod of it ran before


class Action(IntEnum):
    """An action that evicts pods."""

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
    """PodGroups lose some pods, or all of them; mostly for a preemptor."""

    podgroups: tuple[int, ...]
    pods: tuple[int, ...]
    is_whole: bool
    action: Action
    preemptor: int  # a PodGroup, or NONE
    gpus: int = 0  # thousandths by which their queue is charged less
    work_lost: int = 0  # GPU-seconds
    victim_order: str = ""  # why these pods and not others, where a site has chosen it
    budgets: tuple[int, ...] = ()  # that allow fewer disruptions


@dataclass(frozen=True, slots=True)
class Relocation:
    """Where a PodGroup that consolidation evicts starts again: reserved places for its pods."""

    podgroup: int
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class PlanStats:
    """What a log would say."""

    admitted: int = 0
    rejected: int = 0
    searches: int = 0  # for victims
    trials: int = 0  # placements that were tried for them
    sets: int = 0  # that were looked at one by one
    truncated: int = 0  # searches that ended at a limit
    withheld: int = 0  # preemptors that were not tried, because enough was evicted


@dataclass(frozen=True, slots=True)
class Plan:
    """What one cycle decides."""

    allocations: tuple[PodGroupAllocation, ...]
    rejections: tuple[Rejection, ...]
    fair_share: Ints  # [queue, kind]
    stats: PlanStats = field(default_factory=PlanStats)
    evictions: tuple[Eviction, ...] = ()
    relocations: tuple[Relocation, ...] = ()
