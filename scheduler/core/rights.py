"""Who may take something back from whom: what reclaim asks of queues.

Two queues are compared where their ways up part: just below the queue that they have in common, or
at the top. All numbers of a claim are those from before anything is taken, but for what is left of
the queues that lose something.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model import KINDS, NONE, UNBOUND, Ints, Kind, Queues
from scheduler.core.share import allocatable_share, bounds_of
from scheduler.core.usage import Amounts, Usage, parting

__all__ = ["Bounds", "Claim", "Rights", "Taking"]

Row: TypeAlias = list[float]


class Bounds:
    """What queues may count on; without bound is infinite."""

    def __init__(self, queues: Queues, due: Ints) -> None:
        share = allocatable_share(queues, due)
        self.quota: Final[list[Row]] = bounds_of(queues.quota)
        self.share: Final[list[Row]] = bounds_of(share)
        self.due: Final[list[Row]] = due.tolist()
        self.parent: Final = queues.parent
        self._is_quota_only: Final = queues.is_quota_only
        self.has_goals: Final = any(queues.is_quota_only)

    def is_quota_only(self, queue: int) -> bool:
        """Say whether a queue takes nothing back from those beside it beyond its quota."""
        above = self.parent[queue]
        return above != NONE and bool(self._is_quota_only) and self._is_quota_only[above]


class Claim(NamedTuple):
    """Who wants something, and how much."""

    queue: int
    amounts: Amounts
    is_fixed: bool  # it could not be taken back again


class Rights:
    """What may be taken for one claim."""

    def __init__(self, bounds: Bounds, usage: Usage, claim: Claim) -> None:
        """Compare with *usage*, which must not change meanwhile."""
        self.bounds: Final = bounds
        self.usage: Final = usage
        self.claim: Final = claim
        self._wanted: Final = {
            q: self._with_claim(usage.allocated[q]) for q in usage.paths[claim.queue]
        }
        self._owed: Final = {q: _within(it, bounds.quota[q]) for q, it in self._wanted.items()}
        self._pairs: Final[dict[int, tuple[int, int]]] = {}

    @property
    def has_claim(self) -> bool:
        """Say whether anything may be taken at all: it would still be within what is due to it."""
        queue, bounds = self.claim.queue, self.bounds
        if not _within(self._wanted[queue], bounds.due[queue]):
            return False
        return not self.claim.is_fixed or all(
            _within(self._with_claim(self.usage.fixed[q]), bounds.quota[q])
            for q in self.usage.paths[queue]
        )

    def is_owed(self, mine: int) -> bool:
        """Say whether a queue on the claimant's way up would stay within its quota."""
        return self._owed[mine]

    def concerns(self, queue: int) -> bool:
        """Say whether another queue than the claimant's comes into question.

        If the claimant is owed it, by being above its quota in something that is asked for, or at
        least not below it in anything; else only by being above what it may fill, and not at all
        where those beside each other take back no more than their quotas.
        """
        mine, theirs = self.pair(queue)
        has, bounds = self.usage.allocated[theirs], self.bounds
        if not self.is_owed(mine):
            return not bounds.is_quota_only(mine) and not _within(has, bounds.share[theirs])
        quota, asked = bounds.quota[theirs], self.claim.amounts
        kinds = zip(has, quota, asked, strict=True)
        over = [one - most for one, most, more in kinds if more > 0 and most != math.inf]
        return not over or max(over) > 0 or min(over) == 0

    def surplus(self, theirs: int) -> list[float]:
        """Return by how much a queue that is compared has more than it may keep, by kind."""
        has, keeps = self.usage.allocated[theirs], self.bounds.share[theirs]
        if self.is_owed(self.pair(theirs)[0]):
            keeps = [*map(min, keeps, self.bounds.quota[theirs])]
        return [max(one - most, 0) for one, most in zip(has, keeps, strict=True)]

    def lenders(self, queues: Iterable[int]) -> list[int]:
        """Return which queues are compared by one that has more than it may keep, in anything."""
        pairs = [(queue, self.pair(queue)[1]) for queue in queues]
        over = {theirs: any(self.surplus(theirs)) for theirs in {it for _, it in pairs}}
        return [queue for queue, theirs in pairs if over[theirs]]

    def goals(self, queues: Iterable[int]) -> set[int]:
        """Return the queues whose goals alone keep others of some out of question."""
        others = [q for q in queues if q != self.claim.queue] if self.bounds.has_goals else []
        return {self.bounds.parent[self.pair(q)[0]] for q in others if self._is_barred(q)}

    def unbounded(self, queues: Iterable[int]) -> set[int]:
        """Return the queues that have GPUs, or else what is asked for, and owe none of it back."""
        asked = self.claim.amounts
        kinds = [Kind.GPU] if asked[Kind.GPU] else [kind for kind in KINDS if asked[kind]]
        compared = {self.pair(q)[1] for q in queues if q != self.claim.queue}
        has, share = self.usage.allocated, self.bounds.share
        return {q for q in compared if any(has[q][k] and share[q][k] == math.inf for k in kinds)}

    def pair(self, queue: int) -> tuple[int, int]:
        """Return the claimant's and another queue just below the one they have in common."""
        if queue not in self._pairs:
            self._pairs[queue] = parting(self.usage.paths, self.claim.queue, queue)
        return self._pairs[queue]

    def _is_barred(self, queue: int) -> bool:
        mine, theirs = self.pair(queue)
        is_beyond = self.bounds.is_quota_only(mine) and not self.is_owed(mine)
        return is_beyond and not _within(self.usage.allocated[theirs], self.bounds.share[theirs])

    def _with_claim(self, has: list[int]) -> Amounts:
        cpu, memory, gpu = self.claim.amounts
        return has[0] + cpu, has[1] + memory, has[2] + gpu


class Taking:
    """What was taken for one claim so far, whether more may be, and whether all of it is fair."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._bounds = rights.bounds
        self._before = rights.usage.allocated
        self._left: dict[int, list[int]] = {}  # of queues that something was taken from

    def may_lose(self, queue: int) -> bool:
        """Say whether a block may be taken from a queue, however large it is.

        It may if the queue that is compared still has more than it may fill, in anything; or if the
        claimant is owed it, and that queue still has more than its own quota.
        """
        mine, theirs = self._rights.pair(queue)
        has, bounds = self[theirs], self._bounds
        if not _within(has, bounds.share[theirs]):
            return True
        return self._rights.is_owed(mine) and not _within(has, bounds.quota[theirs])

    def take(self, queue: int, amounts: Amounts) -> None:
        """Take a block from a queue, and so from those above it."""
        cpu, memory, gpu = amounts
        for q in self._rights.usage.paths[queue]:
            left = self._left.get(q)
            if left is None:
                left = self._left[q] = self._before[q].copy()
            left[0] -= cpu
            left[1] -= memory
            left[2] -= gpu

    def spare(self, queue: int, amounts: Amounts) -> None:
        """Give a block back."""
        cpu, memory, gpu = amounts
        self.take(queue, (-cpu, -memory, -gpu))

    def could_regain(self, queue: int, amounts: Amounts) -> bool:
        """Say whether a queue could have so much once more: no limit on its way up forbids it."""
        usage = self._rights.usage
        return not any(
            bound != UNBOUND and more > 0 and has + more > bound
            for q in usage.paths[queue]
            for bound, has, more in zip(usage.limit[q], self[q], amounts, strict=True)
        )

    def is_fair(self, patience: float = 1.0) -> bool:
        """Say whether nobody who lost is worse off for it than the claimant, on any level.

        A queue above its fair share may not get there at the cost of one that has, of its own,
        no more. With a larger *patience* that must have so much more.
        """
        for mine in self._rights.usage.paths[self._rights.claim.queue]:
            above = self._bounds.parent[mine]
            for theirs in self._left:
                is_beside = theirs != mine and self._bounds.parent[theirs] == above
                if is_beside and not self._is_fair_to(theirs, mine, patience):
                    return False
        return True

    def _is_fair_to(self, theirs: int, mine: int, patience: float) -> bool:
        now, before, due = self[theirs], self._before[theirs], self._bounds.due
        if now == before:
            return True
        asked = self._rights.claim.amounts
        columns = zip(now, before, due[theirs], asked, self[mine], due[mine], strict=True)
        for has, had, defends, more, would_have, is_due in columns:
            if defends <= 0 or (more <= 0 and has == had):
                continue
            part = _part(would_have + more, is_due)
            if part > 1 and part * patience >= has / defends:
                return False
        return True

    def __getitem__(self, queue: int) -> list[int]:
        """Return what a queue has left."""
        return self._left.get(queue, self._before[queue])


def _within(amounts: Sequence[float], bounds: Sequence[float]) -> bool:
    (cpu, memory, gpu), (most_cpu, most_memory, most_gpu) = amounts, bounds
    return cpu <= most_cpu and memory <= most_memory and gpu <= most_gpu


def _part(amount: float, due: float) -> float:
    """Return what part of what is due somebody has."""
    if due > 0:
        return amount / due
    return math.inf if amount > 0 else 0.0
