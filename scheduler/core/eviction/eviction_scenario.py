"""The scenario of some victims: whether a preemptor could be placed, and what checks say to it.

Pods of one signature that only need resources are counted against the capacity of nodes. For all
others that count is a lower bound; then the pods are placed on trial. A trial placement stands
until a victim is restored on one of its nodes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.core.eviction.victim_set_solver import Scenario
from scheduler.core.eviction.victims import DisruptionAllowance, EvictionUnit, Victim, VictimPool
from scheduler.core.model.resources import NONE, Amounts
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.capacity import PodCapacity
from scheduler.core.nodes.devices import DeviceTrial, release_on_trial
from scheduler.core.nodes.placement import PlacementRequest, Placer
from scheduler.core.nodes.statement import Change

_MAX_TRIALS: Final = 2**9  # for one preemptor


class PreemptorRequest(NamedTuple):
    podgroup: int
    placement: PlacementRequest
    wanted: dict[int, int]  # pods by signature
    capacities: dict[int, PodCapacity]  # by signature
    is_count_enough: bool  # enough capacity for their number is enough
    has_no_relations: bool  # other pods matter only by their resources
    # A trial placement stands while it fits, though another one might be made now.
    reuses_placement: bool


class CandidateVictims(NamedTuple):
    """Eviction units of a pool that may be evicted, in order."""

    pool: VictimPool
    order: Iterator[int]  # eviction units
    total: int  # how many there are
    respects_budgets: bool  # no budget may be violated


class UnitMembers(NamedTuple):
    """Members of an eviction unit that are evicted or restored together."""

    row: int  # of the unit
    unit: EvictionUnit
    members: Collection[Victim]
    amounts: Amounts  # what the members are charged for


class EvictionScenario(Scenario[int]):
    """The evicted units, by their ranks.

    Checks are asked of whole units, and told of those members that no other evicted unit has.
    """

    def __init__(
        self,
        request: PreemptorRequest,
        placer: Placer,
        candidates: CandidateVictims,
        checks: Sequence[Scenario[UnitMembers]],
        headroom: "QueueHeadroom | None" = None,
        beside: Callable[[], PlacementRequest | None] = lambda: None,
    ) -> None:
        """Nothing fits unless *headroom* is valid, and tasks *beside* must be placed as well."""
        self.trials = 0
        self.is_truncated = False
        self.eviction_units: Final[list[int]] = []  # by rank, as far as needed so far
        self._request: Final = request
        self._placer: Final = placer
        self._pool: Final = candidates.pool
        self._order: Final = candidates.order
        self._checks: Final = checks
        self._headroom: Final = headroom
        self._informed: Final = checks if headroom is None else (*checks, headroom)
        self._beside: Final = beside
        self._free: Final[dict[int, list[int]]] = {}  # of nodes, as it would be
        # Likewise the devices of each sort, from the first victim on that holds any.
        self._trial_devices: tuple[DeviceTrial, ...] = ()
        self._evicted: Final[dict[Victim, int]] = {}  # in how many evicted units it is
        self._placed: Final[dict[int, Counter[int]]] = {}  # on trial, by node: amounts by resource
        self._changed_nodes: Final[set[int]] = set()  # of these nodes, those that changed since
        for capacity in request.capacities.values():
            capacity.refresh()

    def may_evict(self, candidate: int) -> bool:
        row, pool = self._eviction_unit(candidate), self._pool
        members = pool.victims[row]
        whole = UnitMembers(row, pool.eviction_units[row], members, pool.amounts(row, members))
        return all(check.may_evict(whole) for check in self._checks)

    def evict(self, candidate: int) -> None:
        row = self._eviction_unit(candidate)
        changed: list[Victim] = []
        for member in self._pool.victims[row]:
            count = self._evicted.get(member, 0)
            self._evicted[member] = count + 1
            if not count:
                changed.append(member)
        self._change_free(changed, 1)
        members = self._members(row, changed)
        for check in self._informed:
            check.evict(members)

    def restore(self, candidate: int) -> None:
        row = self._eviction_unit(candidate)
        changed: list[Victim] = []
        for member in self._pool.victims[row]:
            self._evicted[member] -= 1
            if not self._evicted[member]:
                del self._evicted[member]
                changed.append(member)
        self._change_free(changed, -1)
        members = self._members(row, changed)
        for check in self._informed:
            check.restore(members)

    def is_valid(self) -> bool:
        return all(check.is_valid() for check in self._checks)

    def fits(self) -> bool:
        request = self._request
        for signature, capacity in request.capacities.items():
            if capacity.total < request.wanted[signature]:
                return False
        if self._headroom is not None and not self._headroom.is_valid():
            return False
        return request.is_count_enough or self._placement_stands() or self._fits_on_trial()

    def _eviction_unit(self, rank: int) -> int:
        while len(self.eviction_units) <= rank:
            self.eviction_units.append(next(self._order))
        return self.eviction_units[rank]

    def _members(self, row: int, changed: list[Victim]) -> UnitMembers:
        pool = self._pool
        return UnitMembers(row, pool.eviction_units[row], changed, pool.amounts(row, changed))

    def _change_free(self, members: list[Victim], sign: int) -> None:
        resources = self._placer.nodes.resources
        nodes = set()
        for _, node, signature, held in members:
            if node == NONE:
                continue
            free = self._free.get(node)
            if free is None:
                free = self._free[node] = resources.free[node].tolist()
            for resource, amount in resources.requests(signature):
                free[resource] += sign * amount
            if held:
                self._release(Change(node, signature, -sign, on_idle=False, held=held))
            nodes.add(node)
        for node in nodes:
            self._refresh_capacities(node)
            if node in self._placed:
                self._changed_nodes.add(node)

    def _refresh_capacities(self, node: int) -> None:
        for capacity in self._request.capacities.values():
            if capacity.is_open[node]:
                capacity.set_free(node, self._free[node], self._trial_devices)

    def _release(self, change: Change) -> None:
        self._trial_devices = self._trial_devices or self._placer.nodes.devices.trials()
        release_on_trial(self._trial_devices, change, self._free[change.node])

    def _placement_stands(self) -> bool:
        for node in [*self._changed_nodes]:
            free = self._free[node]
            if any(free[r] < amount for r, amount in self._placed[node].items()):
                return False
            self._changed_nodes.discard(node)
        return bool(self._placed) and self._request.reuses_placement

    def _fits_on_trial(self) -> bool:
        if self.trials == _MAX_TRIALS:
            self.is_truncated = True
            return False
        self.trials += 1
        nodes, statement = self._placer.nodes, self._placer.nodes.statement
        checkpoint = statement.checkpoint
        for member in self._evicted:
            if member.node == NONE:
                continue
            statement.evict(member.node, member.signature, member.held)
        found = self._placer.fits(self._request.placement, self._beside())
        statement.roll_back(checkpoint)
        if found is None:
            return False
        self._placed.clear()
        self._changed_nodes.clear()
        for node, signature, count in found.pods:
            placed = self._placed.setdefault(node, Counter())
            for resource, amount in nodes.resources.requests(signature):
                placed[resource] += count * amount
        return True


class BudgetCheck(Scenario[UnitMembers]):
    def __init__(self, allowance: DisruptionAllowance) -> None:
        self.refused_by: Final[set[int]] = set()  # budgets
        self._allowance: Final = allowance
        self._evicted: Final[set[Victim]] = set()
        self._disrupted: Final[Counter[int]] = Counter()  # by budget

    def may_evict(self, candidate: UnitMembers) -> bool:
        """Note which budgets a unit would violate, too."""
        counts = self._allowance.counts(
            it.pod for it in candidate.members if it not in self._evicted
        )
        violated = self._allowance.violated(counts + self._disrupted) if counts else []
        self.refused_by.update(violated)
        return not violated

    def evict(self, candidate: UnitMembers) -> None:
        self._evicted.update(candidate.members)
        self._disrupted.update(self._allowance.counts(it.pod for it in candidate.members))

    def restore(self, candidate: UnitMembers) -> None:
        self._evicted.difference_update(candidate.members)
        self._disrupted.subtract(self._allowance.counts(it.pod for it in candidate.members))


class QueueHeadroom(Scenario[UnitMembers]):
    """A preemptor is within the limits and quotas of its queues when they are refunded."""

    def __init__(self, usage: Usage, exceeds: Callable[[Usage], bool]) -> None:
        """*exceeds* says whether the preemptor exceeds a bound with a usage."""
        self._exceeds: Final = exceeds
        self._usage: Final = usage.copy() if exceeds(usage) else None

    def evict(self, candidate: UnitMembers) -> None:
        if self._usage is not None:
            self._usage.refund(candidate.unit.queue, candidate.amounts, is_non_preemptible=False)

    def restore(self, candidate: UnitMembers) -> None:
        if self._usage is not None:
            self._usage.charge(candidate.unit.queue, candidate.amounts, is_non_preemptible=False)

    def is_valid(self) -> bool:
        return self._usage is None or not self._exceeds(self._usage)
