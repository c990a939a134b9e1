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
from scheduler.core.model.rejections import (
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
    "ConsolidationValidator",
    "EvictionScenario",
    "PreemptValidator",
    "PreemptorRequest",
    "QueueHeadroom",
    "ReclaimValidator",
    "ScenarioValidator",
]

_MAX_TRIALS: Final = 2**9  # for one preemptor


class PreemptorRequest(NamedTuple):
    """What a preemptor requests."""

    podgroup: int
    tasks: Tasks
    assigned: AssignedTasks
    wanted: dict[int, int]  # pods by signature
    capacities: dict[int, PodCapacity]  # by signature
    is_count_enough: bool  # enough capacity for their number is enough
    has_no_relations: bool  # other pods matter only by their resources


class CandidateVictims(NamedTuple):
    """Eviction units that may be evicted, in order."""

    order: Iterator[int]  # eviction units
    total: int  # how many there are
    respects_budgets: bool  # no budget may be violated


class ScenarioValidator(Protocol):
    """What an action may evict, and what that leaves to queues."""

    def may_evict(self, queue: int, /) -> bool:
        """Say whether a unit of a queue may be evicted."""
        ...

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts, /) -> None:
        """Evict a unit; *amounts* are those of its pods that were not evicted before."""
        ...

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts, /) -> None:
        """Restore a unit; *amounts* are those of its pods that are not evicted any more."""
        ...

    def is_within_bounds(self) -> bool:
        """Say whether the preemptor is within all bounds of its queues."""
        ...

    def is_valid(self) -> bool:
        """Say whether the evictions are fair to the queues that lose something."""
        ...


class EvictionScenario:
    """The evicted units, by their ranks."""

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
        """Rank candidates by their order.

        With *reuses_placement* a trial placement stands while there is room for it, though another
        one might be made now; else each is made anew.
        """
        self._reuses_placement: Final = reuses_placement and request.has_no_relations
        self.trials = 0
        self.is_truncated = False
        self.eviction_units: Final[list[int]] = []  # by rank, as far as needed so far
        self._request: Final = request
        self._placer: Final = placer
        self._pool: Final = pool
        self._allowance: Final = pool.disruptions
        self._respects_budgets: Final = candidates.respects_budgets and pool.disruptions.has_budgets
        self._disrupted: Final[Counter[int]] = Counter()  # by budget
        self.refused_by: Final[set[int]] = set()  # budgets
        self._order: Final = candidates.order
        self._validator: Final = validator
        signatures = placer.statement.snapshot.signatures
        self._signatures: Final = signatures
        self._free: Final[dict[int, list[int]]] = {}  # of nodes, as it would be
        self._evicted: Final[dict[Victim, int]] = {}  # in how many evicted units it is
        self._placed: dict[int, Counter[int]] = {}  # on trial, by node: amounts by resource
        self._changed_nodes: Final[set[int]] = set()  # of these nodes, those that changed since
        for capacity in request.capacities.values():
            capacity.refresh()

    def may_evict(self, candidate: int) -> bool:
        """Say whether one more candidate may be evicted."""
        eviction_unit = self._eviction_unit(candidate)
        if self._respects_budgets and self._violates_budget(eviction_unit):
            return False
        return self._validator.may_evict(self._pool.eviction_units[eviction_unit].queue)

    def evict(self, candidate: int) -> None:
        """Evict a candidate."""
        eviction_unit = self._eviction_unit(candidate)
        changed: list[Victim] = []
        for member in self._pool.victims[eviction_unit]:
            count = self._evicted.get(member, 0)
            self._evicted[member] = count + 1
            if not count:
                changed.append(member)
        if self._respects_budgets:
            self._disrupted.update(self._allowance.counts(it.pod for it in changed))
        self._change_free(changed, 1)
        self._validator.evict(
            self._pool.eviction_units[eviction_unit], self._pool.amounts(eviction_unit, changed)
        )

    def restore(self, candidate: int) -> None:
        """Restore a candidate."""
        eviction_unit = self._eviction_unit(candidate)
        changed: list[Victim] = []
        for member in self._pool.victims[eviction_unit]:
            self._evicted[member] -= 1
            if not self._evicted[member]:
                del self._evicted[member]
                changed.append(member)
        if self._respects_budgets:
            self._disrupted.subtract(self._allowance.counts(it.pod for it in changed))
        self._change_free(changed, -1)
        self._validator.restore(
            self._pool.eviction_units[eviction_unit], self._pool.amounts(eviction_unit, changed)
        )

    def has_room(self) -> bool:
        """Say whether all that is requested fits."""
        request = self._request
        for signature, capacity in request.capacities.items():
            if capacity.total < request.wanted[signature]:
                return False
        return self._validator.is_within_bounds() and (
            request.is_count_enough or self._placement_stands() or self._fits()
        )

    def is_valid(self) -> bool:
        """Say whether the evictions are fair."""
        return self._validator.is_valid()

    def _violates_budget(self, eviction_unit: int) -> bool:
        """Say whether a unit would violate a budget, and note which one."""
        members = (it.pod for it in self._pool.victims[eviction_unit] if it not in self._evicted)
        more = self._allowance.counts(members)
        violated = self._allowance.violated(more + self._disrupted) if more else []
        self.refused_by.update(violated)
        return bool(violated)

    def relocated_tasks(self) -> Tasks:
        """Return what must be placed as well: nothing."""
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
        """Say whether the last trial placement still fits."""
        for node in [*self._changed_nodes]:
            free = self._free[node]
            if any(free[r] < amount for r, amount in self._placed[node].items()):
                return False
            self._changed_nodes.discard(node)
        return bool(self._placed) and self._reuses_placement

    def _fits(self) -> bool:
        """Place all that is requested on trial."""
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
        placements = self._placer.fits(
            self._request.tasks, self._request.assigned, self.relocated_tasks()
        )
        statement.roll_back(checkpoint)
        if placements is None:
            return False
        self._placed.clear()
        self._changed_nodes.clear()
        for node, signature, count in placements:
            placed = self._placed.setdefault(node, Counter())
            for resource, amount in statement.requests(signature):
                placed[resource] += count * amount
        return True


class QueueHeadroom:
    """Whether a preemptor is within the bounds of its queues when these lose something."""

    def __init__(self, session: Session, row: int) -> None:
        self._session: Final = session
        self._row: Final = row
        is_refused = session.refusal(session.usage, row) is not None
        self._usage: Final = session.usage.copy() if is_refused else None

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Refund the queue of a unit."""
        if self._usage is not None:
            self._usage.refund(eviction_unit.queue, amounts, is_non_preemptible=False)

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Charge it again."""
        if self._usage is not None:
            self._usage.charge(eviction_unit.queue, amounts, is_non_preemptible=False)

    def is_within_bounds(self) -> bool:
        """Say whether no bound would be exceeded."""
        return self._usage is None or self._session.refusal(self._usage, self._row) is None


class ReclaimValidator:
    """What may be evicted for one reclaimer."""

    def __init__(
        self,
        reclaimable: Reclaimable,
        queue_order: QueueOrder,
        earlier_requests: dict[Amounts, int],
        headroom: QueueHeadroom,
    ) -> None:
        self.earlier_podgroup: EarlierPodGroup | None = None
        self.order_conflict: QueueOrderConflict | None = None
        self._is_unfair = False
        self._reclaimable: Final = reclaimable
        self._state: Final = ReclaimState(reclaimable)
        self._queue_order: Final = queue_order.with_allocated(self._state)
        self._earlier_requests: Final = earlier_requests
        self._headroom: Final = headroom
        # What evicted PodGroups would request, whether as a JobSet; and how often.
        self._evicted_requests: Final[dict[tuple[int, Amounts, bool], int]] = {}
        self.may_evict: Final = self._state.may_evict
        self.is_within_bounds: Final = headroom.is_within_bounds

    def evict(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Evict a unit."""
        self._state.evict(eviction_unit.queue, amounts)
        self._headroom.evict(eviction_unit, amounts)
        for request in eviction_unit.first_requests:
            evicted_request = eviction_unit.queue, request, eviction_unit.is_jobset
            self._evicted_requests[evicted_request] = (
                self._evicted_requests.get(evicted_request, 0) + 1
            )

    def restore(self, eviction_unit: EvictionUnit, amounts: Amounts) -> None:
        """Restore a unit."""
        self._state.restore(eviction_unit.queue, amounts)
        self._headroom.restore(eviction_unit, amounts)
        for request in eviction_unit.first_requests:
            self._evicted_requests[eviction_unit.queue, request, eviction_unit.is_jobset] -= 1

    @property
    def shortfall(self) -> ReclaimShortfall | None:
        """Return why the victims were not enough, unless a queue or PodGroup comes before."""
        if self.earlier_podgroup or self.order_conflict:
            return None
        return ReclaimShortfall.UNFAIR if self._is_unfair else ReclaimShortfall.TOO_LITTLE

    def is_valid(self) -> bool:
        """Say whether shares stay fair, and no victim would come before the reclaimer."""
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
        """Return the queue that lost resources and would come before the one that requests them.

        A JobSet does not count where the reclaimer stays within its quota: the room is reserved for
        the reclaimer (rule 10b), and afterwards nothing is reclaimed
        from it. Otherwise a queue could keep all that it borrowed in a TrainJob, which cannot
        shrink, that first requests little.
        """
        is_own_request = requested == self._reclaimable.reclaimer.amounts
        for (queue, amounts, is_jobset), count in self._evicted_requests.items():
            reclaimer_queue, victim_queue = self._reclaimable.compared_queues(queue)
            if is_own_request and is_jobset and self._reclaimable.is_within_quota(reclaimer_queue):
                continue
            if count and self._state.could_allocate(queue, amounts):
                key, victim_key = (
                    self._queue_order.key(reclaimer_queue, requested),
                    self._queue_order.key(victim_queue, amounts),
                )
                if key >= victim_key:
                    key_index = next(i for i, it in enumerate(key) if it != victim_key[i])
                    return QueueOrderConflict(victim_queue, reclaimer_queue, key_index)
        return None


class PreemptValidator:
    """Every candidate may be evicted."""

    def __init__(self, headroom: QueueHeadroom) -> None:
        self.evict: Final = headroom.evict
        self.restore: Final = headroom.restore
        self.is_within_bounds: Final = headroom.is_within_bounds

    def may_evict(self, _queue: int) -> bool:
        """Return true."""
        return True

    def is_valid(self) -> bool:
        """Return true."""
        return True


class ConsolidationValidator:
    """No queue has less by a relocation, so nothing is checked."""

    def may_evict(self, _queue: int) -> bool:
        """Return true."""
        return True

    def evict(self, _eviction_unit: EvictionUnit, _amounts: Amounts) -> None:
        """Leave the usage of the queue as it is."""

    def restore(self, _eviction_unit: EvictionUnit, _amounts: Amounts) -> None:
        """Leave the usage of the queue as it is."""

    def is_within_bounds(self) -> bool:
        """Return true: it was checked before."""
        return True

    def is_valid(self) -> bool:
        """Return true."""
        return True
