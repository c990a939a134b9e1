"""A scenario: what would be placed if some victims were evicted, and the validators of actions.

Pods of one signature that only need resources are counted against the capacity of nodes. For all
others that count is a lower bound; then the pods are placed on trial. A trial placement stands
until a victim is restored on one of its nodes.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from scheduler.core.eviction.victims import EvictionUnit, Victim, VictimPool
from scheduler.core.gang.tasks_to_allocate import AssignedTasks, Tasks
from scheduler.core.model.failures import (
    EarlierPodGroup,
    QueueOrderConflict,
    ReclaimShortfall,
)
from scheduler.core.model.resources import NONE, Amounts
from scheduler.core.nodes.capacity import PodCapacity
from scheduler.core.nodes.placement import Placer
from scheduler.core.queues.order import QueueOrder
from scheduler.core.queues.reclaimable import Reclaimable, ReclaimState
from scheduler.core.session import Session

__all__ = [
    "CandidateVictims",
    "EvictionScenario",
    "PreemptorRequest",
    "QueueHeadroom",
    "ScenarioValidator",
]

_MAX_TRIALS: Final = 2**9  # of one claim


class PreemptorRequest(NamedTuple):
    """What room is wanted for."""

    podgroup: int
    tasks: Tasks
    assigned: AssignedTasks
    wanted: dict[int, int]  # pods by shape
    capacities: dict[int, PodCapacity]  # by shape
    is_count_enough: bool  # enough seats are enough
    has_no_relations: bool  # nobody else matters to the pods, but for the room


class CandidateVictims(NamedTuple):
    """Who may be gone, as they stand in line."""

    order: Iterator[int]  # blocks
    total: int  # of them
    respects_budgets: bool  # no budget lets more go than it may


class ScenarioValidator(Protocol):
    """Who may be taken from, and what that leaves of what queues have."""

    def may_evict(self, queue: int, /) -> bool:
        """Say whether a block may be taken from a queue."""
        ...

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts, /) -> None:
        """Take a block; *amounts* of it nobody had taken before."""
        ...

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts, /) -> None:
        """Give a block back; *amounts* of it nobody else takes."""
        ...

    def is_within_bounds(self) -> bool:
        """Say whether no bound of a queue is in the way any more."""
        ...

    def is_valid(self) -> bool:
        """Say whether it is fair to those who lost something."""
        ...


class EvictionScenario:
    """Those who are gone, by their ranks."""

    def __init__(
        self,
        request: PreemptorRequest,
        placer: Placer,
        pool: VictimPool,
        candidates: CandidateVictims,
        validator: ScenarioValidator,
        *,
        reuses_placement: bool,
    ) -> None:
        """Rank *some* who may be gone as they stand in line.

        With *trusts* a placement stands while there is room for it, though another one might be
        made now; else each is made anew.
        """
        self._reuses_placement: Final = reuses_placement and request.has_no_relations
        self.trials = 0
        self.is_truncated = False
        self.eviction_units: Final[list[int]] = []  # by rank, as far as anybody asked
        self._request: Final = request
        self._placer: Final = placer
        self._pool: Final = pool
        self._allowance: Final = pool.disruptions
        self._respects_budgets: Final = candidates.respects_budgets and pool.disruptions.has_budgets
        self._disrupted: Final[Counter[int]] = Counter()  # of each budget
        self.refused_by: Final[set[int]] = set()  # budgets
        self._order: Final = candidates.order
        self._validator: Final = validator
        signatures = placer.statement.snapshot.signatures
        self._signatures: Final = signatures
        self._free: Final[dict[int, list[int]]] = {}  # of nodes, as it would be
        self._evicted: Final[dict[Victim, int]] = {}  # how many blocks took it
        self._placed: dict[int, Counter[int]] = {}  # on trial, by node: how much of what
        self._changed_nodes: Final[set[int]] = set()  # nodes of these where somebody came or went
        for capacity in request.capacities.values():
            capacity.refresh()

    def may_evict(self, candidate: int) -> bool:
        """Say whether one more may go."""
        eviction_unit = self._eviction_unit(candidate)
        if self._respects_budgets and self._violates_budget(eviction_unit):
            return False
        return self._validator.may_evict(self._pool.eviction_units[eviction_unit].queue)

    def evict(self, candidate: int) -> None:
        """Have it gone."""
        eviction_unit = self._eviction_unit(candidate)
        found: list[Victim] = []
        for member in self._pool.victims[eviction_unit]:
            count = self._evicted.get(member, 0)
            self._evicted[member] = count + 1
            if not count:
                found.append(member)
        if self._respects_budgets:
            self._disrupted.update(self._allowance.counts(it.pod for it in found))
        self._change_free(found, 1)
        self._validator.evict(
            self._pool.eviction_units[eviction_unit], self._pool.amounts(eviction_unit, found)
        )

    def restore(self, candidate: int) -> None:
        """Have it back."""
        eviction_unit = self._eviction_unit(candidate)
        found: list[Victim] = []
        for member in self._pool.victims[eviction_unit]:
            self._evicted[member] -= 1
            if not self._evicted[member]:
                del self._evicted[member]
                found.append(member)
        if self._respects_budgets:
            self._disrupted.subtract(self._allowance.counts(it.pod for it in found))
        self._change_free(found, -1)
        self._validator.restore(
            self._pool.eviction_units[eviction_unit], self._pool.amounts(eviction_unit, found)
        )

    def has_room(self) -> bool:
        """Say whether there would be room for all that is asked."""
        request = self._request
        for signature, capacity in request.capacities.items():
            if capacity.total < request.wanted[signature]:
                return False
        return self._validator.is_within_bounds() and (
            request.is_count_enough or self._placement_stands() or self._fits()
        )

    def is_valid(self) -> bool:
        """Say whether it would be fair to those who lost something."""
        return self._validator.is_valid()

    def _violates_budget(self, eviction_unit: int) -> bool:
        """Say whether more would go with a block than a budget lets, and note which one."""
        members = (it.pod for it in self._pool.victims[eviction_unit] if it not in self._evicted)
        more = self._allowance.counts(members)
        violated = self._allowance.violated(more + self._disrupted) if more else []
        self.refused_by.update(violated)
        return bool(violated)

    def relocated_tasks(self) -> Tasks:
        """Return what has to find room as well: nothing."""
        return ()

    def _eviction_unit(self, rank: int) -> int:
        while len(self.eviction_units) <= rank:
            self.eviction_units.append(next(self._order))
        return self.eviction_units[rank]

    def _change_free(self, members: list[Victim], sign: int) -> None:
        nodes = set()
        for _, node, signature in members:
            if node == NONE:
                continue
            free = self._free.get(node)
            if free is None:
                free = self._free[node] = self._placer.statement.free[node].tolist()
            for resource, amount in self._placer.statement.requests(signature):
                free[resource] += sign * amount
            nodes.add(node)
        for node in nodes:
            for capacity in self._request.capacities.values():
                if capacity.is_open[node]:
                    capacity.set_free(node, self._free[node])
            if node in self._placed:
                self._changed_nodes.add(node)

    def _placement_stands(self) -> bool:
        """Say whether what was placed on trial would still have its room."""
        for node in [*self._changed_nodes]:
            free = self._free[node]
            if any(free[r] < amount for r, amount in self._placed[node].items()):
                return False
            self._changed_nodes.discard(node)
        return bool(self._placed) and self._reuses_placement

    def _fits(self) -> bool:
        """Place all that is asked on trial."""
        if self.trials == _MAX_TRIALS:
            self.is_truncated = True
            return False
        self.trials += 1
        statement = self._placer.statement
        checkpoint = statement.checkpoint
        for member in self._evicted:
            if member.node == NONE:
                continue
            statement.evict(member.node, member.signature)
        found = self._placer.fits(
            self._request.tasks, self._request.assigned, self.relocated_tasks()
        )
        statement.roll_back(checkpoint)
        if found is None:
            return False
        self._placed.clear()
        self._changed_nodes.clear()
        for node, signature, count in found:
            placed = self._placed.setdefault(node, Counter())
            for resource, amount in statement.requests(signature):
                placed[resource] += count * amount
        return True


class QueueHeadroom:
    """Whether the bounds of queues leave a unit enough when others have less."""

    def __init__(self, session: Session, row: int) -> None:
        self._session: Final = session
        self._row: Final = row
        is_refused = session.refusal(session.usage, row) is not None
        self._usage: Final = session.usage.copy() if is_refused else None

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Let a queue have less."""
        if self._usage is not None:
            self._usage.refund(eviction_unit.queue, amounts, is_non_preemptible=False)

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Let it have that again."""
        if self._usage is not None:
            self._usage.charge(eviction_unit.queue, amounts, is_non_preemptible=False)

    def is_within_bounds(self) -> bool:
        """Say whether nothing is in the way."""
        return self._usage is None or self._session.refusal(self._usage, self._row) is None


class ReclaimValidator:
    """What one claim may take."""

    def __init__(
        self,
        reclaimable: Reclaimable,
        queue_order: QueueOrder,
        before: dict[Amounts, int],
        headroom: QueueHeadroom,
    ) -> None:
        self.earlier_podgroup: EarlierPodGroup | None = None
        self.order_conflict: QueueOrderConflict | None = None
        self._is_unfair = False
        self._reclaimable: Final = reclaimable
        self._state: Final = ReclaimState(reclaimable)
        self._queue_order: Final = queue_order.with_allocated(self._state)
        self._earlier_requests: Final = before
        self._headroom: Final = headroom
        # What would be asked for, also if of a bundle; and how often.
        self._evicted_requests: Final[dict[tuple[int, Amounts, bool], int]] = {}
        self.may_evict: Final = self._state.may_evict
        self.is_within_bounds: Final = headroom.is_within_bounds

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Take a block."""
        self._state.evict(eviction_unit.queue, amounts)
        self._headroom.evict(eviction_unit, amounts)
        for request in eviction_unit.first_requests:
            evicted_request = eviction_unit.queue, request, eviction_unit.is_jobset
            self._evicted_requests[evicted_request] = (
                self._evicted_requests.get(evicted_request, 0) + 1
            )

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Give a block back."""
        self._state.restore(eviction_unit.queue, amounts)
        self._headroom.restore(eviction_unit, amounts)
        for request in eviction_unit.first_requests:
            self._evicted_requests[eviction_unit.queue, request, eviction_unit.is_jobset] -= 1

    @property
    def shortfall(self) -> ReclaimShortfall | None:
        """Return what those lacked who could go, if it is not that somebody has the turn before."""
        if self.earlier_podgroup or self.order_conflict:
            return None
        return ReclaimShortfall.UNFAIR if self._is_unfair else ReclaimShortfall.TOO_LITTLE

    def is_valid(self) -> bool:
        """Say whether nobody who lost is worse off, and nobody would have the next turn."""
        if not self._state.is_valid():
            self._is_unfair = True
            return False
        order_conflict = self._order_conflict(self._reclaimable.reclaimer.amounts)
        if order_conflict is not None:
            self.order_conflict = self.order_conflict or order_conflict
            return False
        for requested, podgroup in self._earlier_requests.items():
            if self._order_conflict(requested) is not None:
                self.earlier_podgroup = self.earlier_podgroup or EarlierPodGroup(
                    podgroup, requested
                )
                return False
        return True

    def _order_conflict(self, requested: Amounts) -> QueueOrderConflict | None:
        """Return who lost room and would have its turn again before who asks for it.

        That is no matter of a bundle where the claim stays within a quota: its room is held for it
        (10b), and afterwards nothing is taken from it. Else a queue could keep all that it borrowed
        in a TrainJob, which cannot shrink, that first asks for little, which it may always have.
        """
        is_own_request = requested == self._reclaimable.reclaimer.amounts
        for (queue, amounts, is_jobset), count in self._evicted_requests.items():
            reclaimer_queue, victim_queue = self._reclaimable.compared_queues(queue)
            if is_own_request and is_jobset and self._reclaimable.is_within_quota(reclaimer_queue):
                continue
            if count and self._state.could_allocate(queue, amounts):
                key, before = (
                    self._queue_order.key(reclaimer_queue, requested),
                    self._queue_order.key(victim_queue, amounts),
                )
                if key >= before:
                    key_index = next(i for i, it in enumerate(key) if it != before[i])
                    return QueueOrderConflict(victim_queue, reclaimer_queue, key_index)
        return None


class PreemptValidator:
    """Whoever comes into question may be taken."""

    def __init__(self, headroom: QueueHeadroom) -> None:
        self.evict: Final = headroom.evict
        self.restore: Final = headroom.restore
        self.is_within_bounds: Final = headroom.is_within_bounds

    def may_evict(self, _queue: int) -> bool:
        """Say yes."""
        return True

    def is_valid(self) -> bool:
        """Say yes."""
        return True


class ConsolidationValidator:
    """Nobody has less of his queue by it, and so nobody is asked."""

    def may_evict(self, _queue: int) -> bool:
        """Say yes."""
        return True

    def evict(self, _eviction_unit: EvictionUnit, _amounts: Amounts) -> None:
        """Let what the queue has be as it is."""

    def restore(self, _eviction_unit: EvictionUnit, _amounts: Amounts) -> None:
        """Let what the queue has be as it is."""

    def is_within_bounds(self) -> bool:
        """Say yes: it was asked before."""
        return True

    def is_valid(self) -> bool:
        """Say yes."""
        return True
