"""What a plan says: for each unit what becomes of it, or why nothing does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model import NONE, Cause, Ints, Kind, Verdict
from scheduler.core.usage import Amounts

__all__ = [
    "NOTHING",
    "UNDUE",
    "Action",
    "Admission",
    "BarNumbers",
    "Eviction",
    "Futile",
    "HeldUp",
    "Kept",
    "Lack",
    "MemberNumbers",
    "Missing",
    "Move",
    "NodeNumbers",
    "Numbers",
    "Obstacle",
    "Placing",
    "Plan",
    "QuotaNumbers",
    "Regain",
    "Rejection",
    "Reservation",
    "Stats",
    "Unmoved",
]


class Placing(NamedTuple):
    """A pod and its node."""

    pod: int
    node: int


class Reservation(NamedTuple):
    """Slots for pods of a leaf that do not exist."""

    leaf: str
    node: int
    number: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Admission:
    """A unit, or more of it, gets its room. It cannot be carried out in part."""

    unit: int
    binds: tuple[Placing, ...] = ()
    nominations: tuple[Placing, ...] = ()  # they wait for what is being released
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

    units: tuple[int, ...]
    pods: tuple[int, ...]
    is_whole: bool
    action: Action
    claimant: int  # a unit, or NONE: for nobody
    gpus: int = 0  # thousandths that they are charged for less
    work_lost: int = 0  # GPU-seconds
    order: str = ""  # why these and not others, where a site has chosen it
    budgets: tuple[int, ...] = ()  # that let fewer pods go


@dataclass(frozen=True, slots=True)
class Move:
    """Where a unit that was evicted to make room gets its place anew: slots for all its pods."""

    unit: int
    slots: tuple[Reservation, ...]


class Obstacle(IntEnum):
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


class NodeNumbers(NamedTuple):
    """How the nodes looked to a pod for which there was none."""

    verdict: Verdict
    shape: int
    placed: int  # of the chunk before it
    needed: int  # in the chunk
    counts: Mapping[Obstacle, int]  # nodes
    own: Mapping[Obstacle, int]  # nodes among these that only the chunk's own pods closed to it
    taints: Mapping[int, int]  # taint → nodes that it keeps the pod off
    keys: Mapping[str, int]  # label → nodes of which that label is not what it selects
    small: Mapping[int, int]  # resource → nodes that have too little of it even when empty
    biggest: Mapping[int, int]  # resource → the most of it that one of these has
    lacking: Mapping[int, int]  # resource → nodes that lack only room, and lack it of this one
    largest: Mapping[int, int]  # resource → the most room on a node that lacks only room
    room: Mapping[int, int]  # resource → room that those nodes have together
    left: int  # such pods of the chunk without a place, this one included
    seats: int  # of these, how many those nodes could take if only the chunk's pods were there
    is_curable: bool  # by evicting others


class QuotaNumbers(NamedTuple):
    """Which bound of which queue is in the way."""

    queue: int
    kind: Kind
    bound: int
    allocated: int
    asked: int
    others: "tuple[QuotaNumbers, ...]" = ()  # that are in the way as well
    ending: int = 0  # what pods that are going have beside what is allocated
    unevictable: tuple[int, ...] = ()  # units by which more is fixed than the quota


class BarNumbers(NamedTuple):
    """What was known before."""

    message: str


class Missing(NamedTuple):
    """A leaf that lacks members."""

    leaf: str
    existing: int
    needed: int
    gated: int = 0  # of those that exist


class MemberNumbers(NamedTuple):
    """Which leaves lack members."""

    missing: tuple[Missing, ...]


Numbers: TypeAlias = NodeNumbers | QuotaNumbers | BarNumbers | MemberNumbers


class Futile(IntEnum):
    """Why a unit that would get what others give back, were it dealt out anew, takes nothing."""

    QUOTA = 0  # it cannot be preempted, and would pass it
    SHARE = 1  # its queue would have more than is due to it


class HeldUp(NamedTuple):
    """Who has the turn before a unit, and so what others would give back for it."""

    by: int  # a unit
    asked: Amounts
    in_vain: Futile | None = None  # where that one cannot have it either


class Regain(NamedTuple):
    """Which queue would have back what it gave, were it dealt out anew, and before which one."""

    queue: int
    before: int
    place: int  # of their keys: the first that differs


class Lack(IntEnum):
    """Why there is nothing to take back, where nobody in particular is kept from losing it."""

    NOBODY = 0  # has more than it may count on
    ROOM = 1  # is not made by what may be taken of that
    FAIRNESS = 2  # forbids what would make it


class Unmoved(IntEnum):
    """Why nobody is moved to bring together what is in pieces."""

    ACTION = 0  # it is not done
    OFFER = 1  # nobody may be
    CLAIM = 2  # nor may who waits, were he there
    WAY = 3  # it would not make the room, as far as that was looked at


class Kept(NamedTuple):
    """Why nobody loses anything for a unit that may claim it."""

    is_patient: bool = False  # it could take something, and gives others time first
    staying: tuple[tuple[str, int], ...] = ()  # why, and how many units
    protected: int = 0  # units that have not run for long
    first: int = NONE  # of these, the one that may go first
    until: int = 0  # before when it may not, in seconds since 1970
    budgets: tuple[int, ...] = ()  # that let too few pods go
    goals: tuple[int, ...] = ()  # queues below which nothing is taken back beyond quotas
    unbounded: tuple[int, ...] = ()  # queues that owe nothing back, whatever they have
    held_up: HeldUp | None = None
    regain: Regain | None = None
    is_cut: bool = False  # not everybody was looked at who could lose something
    is_withheld: bool = False  # nobody was, because enough was taken for now
    is_undue: bool = False  # its queue would have more than is due to it
    lack: Lack | None = None  # where nothing above is so
    over: tuple[int, ...] = ()  # queues that have more than they may count on, in vain
    unmoved: Unmoved | None = None

    def at_any_time(self) -> "Kept":
        """Return what is so of those who could not give enough, with whatever time or budget."""
        return self._replace(protected=0, first=NONE, until=0, budgets=())


NOTHING: Final = Kept()
UNDUE: Final = Kept(is_undue=True)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a unit waits."""

    unit: int
    verdict: Verdict
    numbers: Numbers
    is_curable: bool  # by evicting others
    wakes_on: frozenset[str]
    kept: Kept = NOTHING


@dataclass(frozen=True, slots=True)
class Stats:
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

    decisions: tuple[Admission, ...]
    rejections: tuple[Rejection, ...]
    fair_share: Ints  # [queue, kind]
    stats: Stats = field(default_factory=Stats)
    evictions: tuple[Eviction, ...] = ()
    moves: tuple[Move, ...] = ()
