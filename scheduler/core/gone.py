"""What would be if some tenants were gone: the stake of one claim.

Pods of one shape that only ask for room need so many seats, and those are counted. For all others
seats are what there must be at least; then the pods are placed on trial. What was placed on trial
stands while nobody comes back to the nodes that it needs.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from scheduler.core.chunks import AssignedTasks, Tasks
from scheduler.core.line import EvictionUnit
from scheduler.core.model import NONE
from scheduler.core.place import Placer
from scheduler.core.seating import PodCapacity
from scheduler.core.tenants import Victim, VictimPool
from scheduler.core.usage import Amounts

__all__ = ["CandidateVictims", "EvictionScenario", "PreemptorRequest", "ScenarioValidator"]

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
        victims: VictimPool,
        some: CandidateVictims,
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
        self._pool: Final = victims
        self._allowance: Final = victims.disruptions
        self._respects_budgets: Final = some.respects_budgets and victims.disruptions.has_budgets
        self._disrupted: Final[Counter[int]] = Counter()  # of each budget
        self.refused_by: Final[set[int]] = set()  # budgets
        self._order: Final = some.order
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
        passed = self._allowance.violated(more + self._disrupted) if more else []
        self.refused_by.update(passed)
        return bool(passed)

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
            room = self._free.get(node)
            if room is None:
                room = self._free[node] = self._placer.statement.free[node].tolist()
            for resource, amount in self._placer.statement.requests(signature):
                room[resource] += sign * amount
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
            room = self._free[node]
            if any(room[r] < amount for r, amount in self._placed[node].items()):
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
