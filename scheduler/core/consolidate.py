"""The action consolidation: room that is there, but not in one place, is brought together.

Others are moved: they lose their places for somebody who waits, and get others in the same plan.
Nobody has less by it than before, so whom it belongs to is not asked.
"""

from collections import Counter
from functools import cached_property
from itertools import islice
from typing import Final

from scheduler.core.chunks import PodSetTasks, SignatureRuns, Tasks
from scheduler.core.decision import Action, Relocation, Reservation
from scheduler.core.displace import EvictionSession, excluding
from scheduler.core.gone import CandidateVictims, EvictionScenario, PreemptorRequest
from scheduler.core.line import EvictionUnit, VictimOrder
from scheduler.core.model import NONE, RESOURCE_KINDS, ReservationCause, UnschedulableReason
from scheduler.core.moving import ConsolidationCandidates
from scheduler.core.place import Placer
from scheduler.core.search import solve
from scheduler.core.tenants import VictimPool
from scheduler.core.usage import Amounts

__all__ = ["ConsolidateAction"]

_RESOLVABLE: Final = (UnschedulableReason.FRAGMENTED, UnschedulableReason.NO_CAPACITY)


class ConsolidateAction:
    """Whoever waits for room, and may be moved himself."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        self._eviction_session: Final = eviction_session
        self._session: Final = eviction_session.session
        self._max_candidates: Final = eviction_session.session.policies.max_relocated

    def run(self) -> None:
        """Let everybody take his turn, one chunk each."""
        session = self._session
        failed_signatures: dict[tuple[int, SignatureRuns, int], int] = {}
        if not (self._max_candidates and self._eviction_session.failures.has_relocatable):
            return
        for row in self._eviction_session.preemptors_in_order(
            lambda one: self._may_consolidate(one) and self._is_free_in_total(one)
        ):
            podgroup = session.snapshot.podgroups[row]
            if not self._may_consolidate(row):
                continue
            own = row if podgroup.owning_jobset or podgroup.has_running else NONE
            ground = podgroup.queue, session.attempts[row].signatures, own
            plan_result = len(session.allocations)
            if failed_signatures.get(ground) == plan_result:
                continue
            if not self._consolidate_for(row):
                failed_signatures[ground] = plan_result

    def _may_consolidate(self, row: int) -> bool:
        if not self._session.snapshot.podgroups[
            row
        ].is_preemptible or self._eviction_session.is_delayed(row):
            return False
        return self._session.rejections[row].reason in _RESOLVABLE

    def _is_free_in_total(self, row: int) -> bool:
        """Say whether all nodes together have what a unit asks for."""
        amounts = self._session.attempts[row].amounts
        return all(
            amounts[kind] <= self._eviction_session.free_amount(kind)
            for kind in RESOURCE_KINDS
            if amounts[kind] > 0
        )

    @cached_property
    def _relocatable(self) -> ConsolidationCandidates:
        return ConsolidationCandidates(self._session.snapshot)

    @property
    def placer(self) -> Placer:
        """Return what places pods, on trial or not."""
        return self._session.placer

    @cached_property
    def pool(self) -> VictimPool:
        """Return those who could be moved, each in one block."""
        snapshot, candidates = self._session.snapshot, self._relocatable
        protected = {row for row in range(len(snapshot.podgroups)) if row not in candidates.tasks}
        key, budgets = self._session.podgroup_key, self._eviction_session.allowance
        return VictimPool(
            snapshot, protected | self._eviction_session.allocated, key, budgets, shrink=False
        )

    @cached_property
    def _victim_order(self) -> VictimOrder:
        session = self._session
        return VictimOrder(session.snapshot.queues, session.queue_order, self.pool.eviction_units)

    def _consolidate_for(self, row: int) -> bool:
        plan_result, session = self._eviction_session, self._session
        if session.refusal(session.usage, row) is not None:
            return False
        request = plan_result.request(row)
        if plan_result.use_free_resources(request):
            self._protect(row)
            return True
        if not self._is_free_in_total(row):
            return False
        candidates = self._candidates(request)
        scenario = RelocationScenario(request, self, candidates)
        choice = solve(len(candidates), scenario)
        plan_result.stats["searches"] += 1
        plan_result.stats["trials"] += scenario.trials
        plan_result.stats["sets"] += choice.tried
        plan_result.stats["cut"] += choice.is_cut or scenario.is_truncated
        if choice.ranks is None or scenario.is_truncated:
            return False
        return self._carry_out(row, request, [candidates[rank] for rank in choice.ranks])

    def _candidates(self, request: PreemptorRequest) -> list[int]:
        victims, podgroups = self.pool, self._session.snapshot.podgroups
        may_evict = excluding(
            self._eviction_session.unit_filter(request, Action.CONSOLIDATION, (), victims),
            victims.blocked,
        )
        owning_jobset = podgroups[request.podgroup].owning_jobset

        def is_eligible(eviction_unit: int) -> bool:
            first = victims.podgroups[eviction_unit][0]
            is_own = first == request.podgroup or (
                owning_jobset and podgroups[first].owning_jobset == owning_jobset
            )
            return not is_own and (may_evict is None or may_evict(eviction_unit))

        queues = range(len(self._session.snapshot.queues.names))
        victim_order, count = self._victim_order.across_queues(
            self._session.usage, queues, is_eligible
        )
        return list(
            islice(
                victim_order,
                count if self._max_candidates < 0 else min(count, self._max_candidates),
            )
        )

    def _carry_out(self, row: int, request: PreemptorRequest, eviction_units: list[int]) -> bool:
        """Evict, place who it is for, and hold room for those who move."""
        session, victims = self._session, self.pool
        placer, checkpoint = session.placer, session.statement.checkpoint
        for eviction_unit in eviction_units:
            for member in victims.victims[eviction_unit]:
                session.statement.evict(member.node, member.signature)
        session.forget_failures()
        beside = self.relocated_tasks(eviction_units)
        tasks = tuple(podset_tasks for _, podset_tasks in beside)
        if placer.fits(request.tasks, request.assigned, tasks) is None or not session.place(
            row, is_pipelined=True
        ):
            session.statement.roll_back(checkpoint)
            return False
        reserved = placer.reserve(tasks)
        assert reserved is not None  # it was tried just now
        reserved_places: Counter[tuple[int, str, int]] = Counter()
        for at, node, count in reserved:
            reserved_places[beside[at][0], beside[at][1].podset.name, node] += count
        for eviction_unit in eviction_units:
            self._record(eviction_unit, row, reserved_places)
        session.place_elastic(row)
        self._protect(row)
        return True

    def relocated_tasks(self, eviction_units: list[int]) -> list[tuple[int, PodSetTasks]]:
        """Return what has to find room anew if blocks are gone."""
        return self._relocatable.order(
            row for eviction_unit in eviction_units for row in self.pool.podgroups[eviction_unit]
        )

    def _record(
        self, eviction_unit: int, row: int, reserved_places: Counter[tuple[int, str, int]]
    ) -> None:
        podgroups = self.pool.podgroups[eviction_unit]
        pods = tuple([member.pod for member in self.pool.victims[eviction_unit]])
        self._eviction_session.record_whole(podgroups, pods, Action.CONSOLIDATION, row)
        for podgroup in podgroups:
            reserved = [
                Reservation(podset, node, number, ReservationCause.MOVE)
                for (of, podset, node), number in reserved_places.items()
                if of == podgroup
            ]
            self._eviction_session.relocations.append(Relocation(podgroup, tuple(reserved)))
            self._protect(podgroup)

    def _protect(self, row: int) -> None:
        """Let a unit stay where it is from now on."""
        self._eviction_session.protect(row)
        for eviction_unit in self.pool.protect(row):
            self._victim_order.drop(eviction_unit)


class RelocationScenario(EvictionScenario):
    """Those who are moved, by their ranks: there is room if there is for them as well."""

    def __init__(
        self, request: PreemptorRequest, action: ConsolidateAction, candidates: list[int]
    ) -> None:
        placer, victims = action.placer, action.pool
        requested = request._replace(is_count_enough=False)
        some = CandidateVictims(iter(candidates), len(candidates), respects_budgets=True)
        super().__init__(
            requested, placer, victims, some, ConsolidationValidator(), reuses_placement=False
        )
        self._action: Final = action
        self._candidates: Final = candidates
        self._evicted_ranks: Final[set[int]] = set()

    def evict(self, candidate: int) -> None:
        """Have it moved."""
        super().evict(candidate)
        self._evicted_ranks.add(candidate)

    def restore(self, candidate: int) -> None:
        """Let it stay."""
        super().restore(candidate)
        self._evicted_ranks.discard(candidate)

    def relocated_tasks(self) -> Tasks:
        """Return what those who are moved need anew."""
        eviction_units = [self._candidates[rank] for rank in sorted(self._evicted_ranks)]
        return tuple(
            [podset_tasks for _, podset_tasks in self._action.relocated_tasks(eviction_units)]
        )


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
