"""The kinds of plugins, and how those of one kind are combined.

| kind   | combined by |
|--------|-------------|
| score  | weighted sum |
| PodGroup order | key after key; ties by age, then uid |
| quota check | one refusal is enough; the first is reported |
| victim order | there is one; ties by the reverse of the queue order |
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from scheduler.core.model.failures import QueueBoundExceeded, UnschedulableReason
from scheduler.core.model.podgroup import PodGroupInfo, SchedulingSignature
from scheduler.core.model.resources import Amounts
from scheduler.core.model.usage import Usage

__all__ = [
    "MinRuntime",
    "NodeFeatures",
    "PodGroupOrderPlugin",
    "Policies",
    "QuotaPlugin",
    "QuotaRefusal",
    "ScorePlugin",
    "ScoreValue",
    "VictimOrderPlugin",
]

ScoreValue: TypeAlias = Any  # a number, or an array of them: what the arithmetic makes of Seats


class NodeFeatures(NamedTuple):
    """What scores look at: of all nodes arrays, or of one node plain numbers.

    A score is arithmetic and nothing else, so that it says the same of both.
    """

    free: ScoreValue  # idle and releasing of the resource that counts: GPUs, or else CPU
    allocatable: ScoreValue  # how much of it the node has in all
    max_allocatable: int  # the most that any node has in all
    fits_idle: ScoreValue  # whether the pod fits into what is idle
    has_gpu: ScoreValue
    is_nominated: ScoreValue


class ScorePlugin(Protocol):
    """How much a pod likes nodes."""

    def __call__(self, signature: SchedulingSignature, seats: NodeFeatures, /) -> ScoreValue:
        """Return the liking, from 0 to 1."""
        ...


class PodGroupOrderPlugin(Protocol):
    """Which of two units of a queue comes first."""

    def __call__(self, podgroup: PodGroupInfo, min_available_state: int, /) -> int:
        """Return a number, smaller first; *standing* is -1 below the minimum, 0 at it, 1 above."""
        ...


class QuotaRefusal(NamedTuple):
    """A bound that would be passed."""

    reason: UnschedulableReason
    details: QueueBoundExceeded


class QuotaPlugin(Protocol):
    """What a unit may have of its queue."""

    def __call__(
        self, usage: Usage, podgroup: PodGroupInfo, requested: tuple[int, int, int], /
    ) -> QuotaRefusal | None:
        """Return why it may not have *asked* on top of what is allocated."""
        ...


class VictimOrderPlugin(NamedTuple):
    """Who of those that may lose something would lose it first."""

    # What is lost, the work that is lost with it (in thousandths of a GPU times seconds), and what
    # is claimed, to a number, smaller first.
    rank: Callable[[Amounts, int, Amounts], int]
    reason: str  # as whoever loses it is told


class MinRuntime(NamedTuple):
    """How long units keep what they need once they run."""

    preempt_s: int = 0  # where no queue says it
    reclaim_s: int = 0  # likewise
    resolves_at_leaf: bool = False  # in reclaim the queue that loses; else the one that is compared


@dataclass(frozen=True, slots=True)
class Policies:
    """All that a site has chosen."""

    scores: tuple[tuple[float, ScorePlugin], ...]
    podgroup_order: tuple[PodGroupOrderPlugin, ...] = ()
    quotas: tuple[QuotaPlugin, ...] = ()
    actions: tuple[str, ...] = ("allocate",)
    min_runtime: MinRuntime | None = None  # nobody is protected
    max_relocated: int = 16  # candidates that consolidation looks at; below zero: all
    victim_order: VictimOrderPlugin | None = None  # in the order of turns, backwards
    is_budget_strict: bool = False  # in reclaim as well, always
