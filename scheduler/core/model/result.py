"""What a plan takes beside the snapshot, and what it returns: policies and the plan as values.

The plan has allocations, evictions and relocations, and why other PodGroups wait. Policies are
plugins of these kinds:

| kind   | combined by |
|--------|-------------|
| score  | weighted sum |
| PodGroup order | key by key; ties by age, then uid |
| quota check | one refusal is enough; the first is reported |
| victim order | there is one; ties by the reverse of the queue order |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from scheduler.core.model.line import DEFAULT_LINE, LineChange, LineNote, LineSettings
from scheduler.core.model.podgroup import PodGroupInfo, ReservationCause, SchedulingSignature
from scheduler.core.model.rejections import CheckedRemedy, QueueBoundExceeded, Rejection
from scheduler.core.model.resources import NONE, Amounts, DeviceSort, HeldDevices, Ints, devices_of
from scheduler.core.model.usage import Usage
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action


class PodPlacement(NamedTuple):
    pod: int
    node: int
    # Slots of the node that the snapshot does not have are new: two pods of a plan with the same
    # one share that GPU.
    held: HeldDevices = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """The shared GPUs of which it has a share."""
        return devices_of(self.held, DeviceSort.GPU_SHARE)


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
    is_limited: bool = False  # for no preemptor, and the limit of evicted GPUs counts it as well

    @property
    def limited_gpus(self) -> int:
        """Return the GPUs that count for that limit, in thousandths."""
        return self.gpus if self.preemptor != NONE or self.is_limited else 0


@dataclass(frozen=True, slots=True)
class Relocation:
    """Where a PodGroup that consolidation evicts starts again: reserved places for its pods."""

    podgroup: int
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class PlanStats:
    admitted: int = 0
    rejected: int = 0
    searches: int = 0  # for victims
    trials: int = 0  # placements that were tried for them
    sets: int = 0  # that were looked at one by one
    truncated: int = 0  # searches that ended at a limit
    withheld: int = 0  # preemptors that were not tried, because enough was evicted


@dataclass(frozen=True, slots=True)
class Plan:
    allocations: tuple[PodGroupAllocation, ...]
    rejections: tuple[Rejection, ...]
    fair_share: Ints  # [queue, kind]
    stats: PlanStats = field(default_factory=PlanStats)
    evictions: tuple[Eviction, ...] = ()
    relocations: tuple[Relocation, ...] = ()
    line: tuple[LineChange, ...] = ()  # records of PodGroups that differ from those of the snapshot
    line_note: LineNote | None = None  # what is kept when the plan is over
    line_at: int | None = None  # when time alone changes the line, in seconds since 1970
    # By PodGroup, the longest known first: for the next plan.
    remedies: Mapping[int, CheckedRemedy] = field(default_factory=dict)


MOST_FRAGMENT_RANK: Final = 2**20  # it is between this and as much below zero
ScoreValue: TypeAlias = Any  # a number, or an array: what the arithmetic makes of NodeFeatures


class NodeFeatures(NamedTuple):
    """What a score is computed from: arrays for all nodes, or plain numbers for one node.

    A score is arithmetic and nothing else, so that both have the same result.
    """

    free: ScoreValue  # idle and releasing of the scored resource: GPUs, or else CPU
    allocatable: ScoreValue  # of the scored resource
    max_allocatable: int  # the largest of any node
    fits_idle: ScoreValue  # whether the pod fits into what is idle
    has_gpu: ScoreValue
    is_nominated: ScoreValue
    # Whether it gets an idle part of a device there that other pods have a part of.
    shares_device: ScoreValue = 0
    # The less the better: how much what typical pods cannot use of its GPUs grows, then how many
    # whole GPUs are free. It is 0 where no score asks for it.
    fragment_rank: ScoreValue = 0


class ScorePlugin(Protocol):
    def __call__(self, signature: SchedulingSignature, features: NodeFeatures, /) -> ScoreValue:
        """Return a number from 0 to 1: how well the node suits the pod."""
        ...


class PodGroupOrderPlugin(Protocol):
    def __call__(self, podgroup: PodGroupInfo, min_available_state: int, /) -> int:
        """Return a number, smaller first; the state is -1 below the minimum, 0 at it, 1 above."""
        ...


class QuotaRefusal(NamedTuple):
    reason: UnschedulableReason
    details: QueueBoundExceeded


class QuotaPlugin(Protocol):
    def __call__(
        self, usage: Usage, podgroup: PodGroupInfo, requested: tuple[int, int, int], /
    ) -> QuotaRefusal | None:
        """Return why a PodGroup may not have *requested* on top of what is allocated."""
        ...


class VictimOrderPlugin(NamedTuple):
    # From the amounts of a victim, the work that is lost with it (in thousandths of a GPU times
    # seconds) and the requested amounts to a number, smaller first.
    rank: Callable[[Amounts, int, Amounts], int]
    reason: str  # as the eviction reports it


class MinRuntime(NamedTuple):
    """How long running PodGroups keep what they need."""

    preempt_s: int = 0  # where no queue sets it
    reclaim_s: int = 0  # likewise
    # In reclaim the nearest one set counts, from the victim's queue up; or from the compared queue.
    from_victim_queue: bool = False


@dataclass(frozen=True, slots=True)
class Policies:
    """All that a site has chosen, combined by kind."""

    scores: tuple[tuple[float, ScorePlugin], ...]
    podgroup_order: tuple[PodGroupOrderPlugin, ...] = ()
    quotas: tuple[QuotaPlugin, ...] = ()
    actions: tuple[Action, ...] = (Action.ALLOCATE,)
    min_runtime: MinRuntime | None = None  # None protects no PodGroup
    max_relocated: int = 16  # candidates that consolidation tries; below zero: all
    victim_order: VictimOrderPlugin | None = None  # None is the queue order, backwards
    is_budget_strict: bool = False  # budgets hold in reclaim as well
    places_by_topology: bool = True  # False: the constraints of PodGroups are ignored
    # Whether a score asks for `fragment_rank`: of pods without GPUs, and of pods with GPUs.
    minds_fragments: tuple[bool, bool] = (False, False)
    line: LineSettings = DEFAULT_LINE
    # For pods with whole GPUs that are placed together with others, if other ones are.
    of_gangs: "Policies | None" = None
    spreads_shares: bool = False  # shares of GPUs go to GPUs with the least used, not the most
