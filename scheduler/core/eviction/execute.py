"""Evictions for a preemptor: victims are searched, and evicted together with its placement.

No pod is evicted without the placement that it makes possible, and none that was not needed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

from scheduler.core.eviction.failures import EvictionFailures, NonEvictable
from scheduler.core.eviction.scenario import (
    CandidateVictims,
    EvictionScenario,
    PreemptorRequest,
    ScenarioValidator,
)
from scheduler.core.eviction.solver import solve
from scheduler.core.eviction.victim_order import LostWork, VictimOrder, by_plugin
from scheduler.core.eviction.victims import (
    DisruptionAllowance,
    MinRuntimeGuard,
    ReclaimableTotals,
    Victim,
    VictimPool,
)
from scheduler.core.gang.tasks_to_allocate import SignatureRuns
from scheduler.core.model.podgroup import SchedulingSignature
from scheduler.core.model.rejections import (
    EvictionFailure,
    FitErrors,
    QueueBoundExceeded,
    Rejection,
    UnschedulableReason,
)
from scheduler.core.model.resources import NONE, Amounts, ResourceKind, total
from scheduler.core.model.result import Action, Eviction, Relocation
from scheduler.core.nodes.capacity import PodCapacity
from scheduler.core.session import Session

__all__ = [
    "EvictionSession",
    "UnitFilter",
    "excluding",
]

_MAX_CAPACITIES: Final = 64  # each is as large as there are nodes
UnitFilter: TypeAlias = (
    Callable[[int], bool] | None
)  # which eviction units are candidates; None is all
_OrderedVictims: TypeAlias = Callable[[UnitFilter], tuple[Iterator[int], int]]
_FailedRequest: TypeAlias = tuple[int, int, SignatureRuns, bool, int, bool]


class EvictionSession:
    """What was evicted in a plan so far, and for which preemptors."""

    def __init__(self, session: Session, evictable_gpus: int | None) -> None:
        self.session: Final = session
        self._evictable_gpus = evictable_gpus
        self.evictions: Final[list[Eviction]] = []
        self.relocations: Final[list[Relocation]] = []
        self.stats: Final = {"searches": 0, "trials": 0, "sets": 0, "cut": 0, "withheld": 0}
        self.preemptors: Final[set[int]] = set()  # PodGroups that were placed
        self.failures: Final = EvictionFailures(session)
        self.allowance: Final = DisruptionAllowance(session.snapshot.budgets)
        self._evicted: Final[set[int]] = set()
        self._rate_limited: Final[set[int]] = set()  # PodGroups that were not tried
        # By tasks: pods by signature, and whether none of them has relations to other pods.
        self._wanted: Final[dict[SignatureRuns, tuple[dict[int, int], bool]]] = {}
        self._capacities: Final[dict[int, PodCapacity]] = {}

    @cached_property
    def allocated(self) -> set[int]:
        """Return the PodGroups that were placed in this plan; it is added to."""
        return {one.podgroup for one in self.session.allocations}

    @cached_property
    def reclaimable_totals(self) -> ReclaimableTotals:
        """Return what can be reclaimed from queues at most."""
        return ReclaimableTotals(self.session.snapshot, self.allocated)

    def free_amount(self, kind: ResourceKind) -> int:
        """Return what is free of a kind on all nodes."""
        resources, room = self.session.snapshot.resources, self.session.statement.free
        columns = [r for r, kind_of_r in enumerate(resources.kinds) if kind_of_r == kind]
        return sum([total(room[:, r].clip(min=0)) * resources.weights[r] for r in columns])

    def could_be_enough(self, amounts: Amounts, most: Callable[[ResourceKind], int]) -> bool:
        """Say whether the most that may be evicted, with what is free, could be enough."""
        kind = ResourceKind.GPU if amounts[ResourceKind.GPU] else ResourceKind.CPU
        missing = amounts[kind] - most(kind)
        return missing <= 0 or missing <= self.free_amount(kind)

    @cached_property
    def pool(self) -> VictimPool:
        """Return the possible victims: no pods of PodGroups that were placed in this plan."""
        snapshot, key = self.session.snapshot, self.session.podgroup_key
        return VictimPool(snapshot, self.allocated, key, self.allowance)

    @cached_property
    def min_runtime_guard(self) -> MinRuntimeGuard:
        """Return which of them are within their minimum runtime."""
        session = self.session
        configured = session.policies.min_runtime
        return MinRuntimeGuard(session.snapshot, self.pool, session.usage.paths, configured)

    @cached_property
    def _non_evictable(self) -> NonEvictable:
        podgroups = self.session.snapshot.podgroups
        return NonEvictable(
            podgroups, self.failures.non_evictable, self.pool, self.min_runtime_guard
        )

    @cached_property
    def victim_order(self) -> VictimOrder:
        """Return the order in which they are evicted."""
        session = self.session
        return VictimOrder(session.snapshot.queues, session.queue_order, self.pool.eviction_units)

    @cached_property
    def lost_work(self) -> LostWork:
        """Return what work is lost with them."""
        return LostWork(self.session.snapshot)

    def by_plugin(self, row: int, victim_order: Iterator[int]) -> Iterator[int]:
        """Return a victim order rearranged by what the site has chosen, for a preemptor."""
        order, requested = self.session.policies.victim_order, self.session.attempts[row].amounts
        if order is None:
            return victim_order
        return by_plugin(victim_order, order, self.pool, self.lost_work.of_pods, requested)

    def preempt_for_each(
        self,
        preempt_for: Callable[[int], EvictionFailure | None],
        may_preempt: Callable[[int], bool],
        *,
        by_priority: bool,
    ) -> None:
        """Try each preemptor once; not one whose request has just failed for an equal one.

        Whether priority makes a difference depends on the action. A PodGroup with reserved places
        equals no other. *preempt_for* returns why no victim was evicted.
        """
        failed_requests: dict[_FailedRequest, tuple[int, EvictionFailure]] = {}
        allocations, podgroups = self.session.allocations, self.session.snapshot.podgroups
        attempts = self.session.attempts
        for row in self.preemptors_in_order(may_preempt):
            podgroup, attempt = podgroups[row], attempts[row]
            priority = podgroup.priority if by_priority else 0
            own = row if self.session.has_reserved_places(row) else NONE
            is_delayed = self.is_delayed(row)
            request_key = (
                podgroup.queue,
                priority,
                attempt.signatures,
                podgroup.is_preemptible,
                own,
                is_delayed,
            )
            allocation_count = len(allocations)
            known = failed_requests.get(request_key)
            if known is None or known[0] != allocation_count:
                failure = preempt_for(row)
                if failure is None:
                    continue
                known = failed_requests[request_key] = allocation_count, failure
            self.failures.record(row, known[1])

    def preemptors_in_order(
        self, may_preempt: Callable[[int], bool] = lambda _: True
    ) -> Iterator[int]:
        """Yield the pending PodGroups that evictions could help, in order.

        Not those that wait for what their own queues are releasing: that is over soon. Once the
        limit of evictions is reached, the rest that *may_preempt* is noted as rate limited.
        """
        session, podgroups = self.session, self.session.snapshot.podgroups
        left = {row for row, one in session.rejections.items() if _is_resolvable(one)}
        left &= session.attempts.keys() - self._evicted
        jobs_order = session.jobs_order(left)
        while (row := jobs_order.pop()) is not None:
            if self._is_limit_reached():
                self._rate_limit([*filter(may_preempt, left)])
                return
            left.remove(row)
            if session.awaits_own_releasing(row):
                continue
            eviction_count = len(self.evictions)
            self.failures.begin_search()
            yield row
            if len(self.evictions) == eviction_count:
                continue
            evicted = {
                podgroup for one in self.evictions[eviction_count:] for podgroup in one.podgroups
            }
            if left & evicted:  # evicted PodGroups are no preemptors
                left -= evicted
                jobs_order = session.jobs_order(left)
            for queue in {podgroups[podgroup].queue for podgroup in evicted}:
                jobs_order.update_queue(queue)

    def _rate_limit(self, preemptors: Collection[int]) -> None:
        self._rate_limited.update(preemptors)
        self.stats["withheld"] = len(self._rate_limited)
        for row in preemptors:
            self.failures.record(row, EvictionFailure(is_rate_limited=True))

    def _is_limit_reached(self) -> bool:
        return self._evictable_gpus is not None and self._evictable_gpus <= 0

    def is_delayed(self, row: int) -> bool:
        """Say whether the preemption delay of a PodGroup is not over."""
        return (
            self.session.snapshot.podgroups[row].preemption_delay_until > self.session.snapshot.now
        )

    def failure(self, row: int, action: Action, queues: Collection[int]) -> EvictionFailure:
        """Return why no victim of some queues was found for a PodGroup."""
        failure = self.failures.failure(
            lambda: self._non_evictable.failure(row, action, queues, self._is_settled)
        )
        return failure if self._is_budget_strict(action) else failure._replace(budgets=())

    def _is_budget_strict(self, action: Action) -> bool:
        """Say whether an action always respects budgets."""
        return action != Action.RECLAIM or self.session.policies.is_budget_strict

    def _is_settled(self, podgroup: int) -> bool:
        return podgroup in self._evicted or podgroup in self.allocated

    def unit_filter(
        self,
        request: PreemptorRequest,
        action: Action,
        queues: Iterable[int],
        other_pool: VictimPool | None = None,
    ) -> UnitFilter:
        """Return which eviction units of some queues may be evicted, apart from budgets.

        Not those with pods that the requested pods want to be near or are spread beside, nor those
        within their minimum runtime.
        """
        if request.has_no_relations and not self.failures.has_min_runtime:
            return None
        signatures, pool = self.session.snapshot.signatures, other_pool or self.pool
        protected: Collection[int] = ()
        if self.failures.has_min_runtime and pool is self.pool:
            reclaimer_queue = self.session.snapshot.podgroups[request.podgroup].queue
            protected = self.min_runtime_guard.protected(action, reclaimer_queue, queues)
        selectors = _related_selectors([signatures[signature] for signature in request.wanted])
        if not selectors and not protected:
            return None

        def may_evict(eviction_unit: int) -> bool:
            if eviction_unit in protected:
                return False
            members = pool.victims[eviction_unit]
            return all(
                selectors.isdisjoint(signatures[it.signature].matched_selectors) for it in members
            )

        return may_evict

    def candidate_sets(
        self,
        request: PreemptorRequest,
        action: Action,
        queues: Collection[int],
        ordered_victims: _OrderedVictims,
    ) -> Iterator[CandidateVictims]:
        """Yield candidates for a preemptor, first without partly succeeded PodGroups, then with.

        At last, where budgets are best effort, without budgets. A set that could not differ from
        the one before is left out; whether budgets refused a unit is known when that one was tried.
        """
        may_evict = self.unit_filter(request, action, queues)
        blocked, partly_succeeded = self.pool.blocked, self.pool.partly_succeeded
        excluded = blocked.keys() | partly_succeeded if partly_succeeded else blocked
        victim_order, count = ordered_victims(excluding(may_evict, excluded))
        yield CandidateVictims(
            self.by_plugin(request.podgroup, victim_order), count, respects_budgets=True
        )
        if partly_succeeded:
            before = count
            victim_order, count = ordered_victims(excluding(may_evict, blocked))
            if count > before:
                configured = self.by_plugin(request.podgroup, victim_order)
                last = sorted(configured, key=lambda one: one in partly_succeeded)
                yield CandidateVictims(iter(last), count, respects_budgets=True)
        if self._is_budget_strict(action) or not self.allowance.has_budgets:
            return
        before = count
        victim_order, count = ordered_victims(may_evict)
        if count > before or self.failures.refused_by:
            configured = self.by_plugin(request.podgroup, victim_order)
            last = sorted(configured, key=lambda one: (one in blocked, one in partly_succeeded))
            yield CandidateVictims(iter(last), count, respects_budgets=False)

    def use_free_resources(self, request: PreemptorRequest) -> bool:
        """Place a PodGroup on what earlier evictions of this plan left free, if it is enough."""
        if not self.evictions:
            return False
        for signature, capacity in request.capacities.items():
            capacity.refresh()
            if capacity.total < request.wanted[signature]:
                return False
        return self._attempt(request.podgroup, is_pipelined=False)

    def make_room(
        self,
        request: PreemptorRequest,
        action: Action,
        candidate_sets: Iterable[CandidateVictims],
        new_validator: Callable[[], ScenarioValidator],
    ) -> bool:
        """Evict the first valid victims and place the PodGroup; say whether it was placed.

        Each set of candidates is tried with a new validator.
        """
        return any(self._make_room(request, action, one, new_validator()) for one in candidate_sets)

    def _make_room(
        self,
        request: PreemptorRequest,
        action: Action,
        candidates: CandidateVictims,
        validator: ScenarioValidator,
    ) -> bool:
        for reuses_placement in (True, False):
            placer = self.session.placer
            scenario = EvictionScenario(
                request, placer, self.pool, candidates, validator, reuses_placement=reuses_placement
            )
            solution = solve(candidates.total, scenario)
            self.failures.refused_by.update(scenario.refused_by)
            self.stats["searches"] += 1
            self.stats["trials"] += scenario.trials
            self.stats["sets"] += solution.tried
            self.failures.is_truncated = solution.is_cut or scenario.is_truncated
            self.stats["cut"] += self.failures.is_truncated
            if solution.ranks is None or scenario.is_truncated:  # cut: a victim might be spared
                return False
            eviction_units = [scenario.eviction_units[rank] for rank in solution.ranks]
            if self._carry_out(request.podgroup, action, eviction_units):
                return True
            candidates = candidates._replace(order=chain(scenario.eviction_units, candidates.order))
        return False

    def evict_podgroups(
        self, podgroups: tuple[int, ...], pods: tuple[int, ...], action: Action
    ) -> None:
        """Evict PodGroups whole, for no preemptor; unless one of them has lost pods before.

        The limit of GPUs does not hold them: it is about reclaiming and preempting too much.
        """
        if not self._evicted.isdisjoint(podgroups):
            return
        self.record_whole(podgroups, pods, action, NONE)

    def request(self, row: int) -> PreemptorRequest:
        """Return what a PodGroup requests next."""
        session = self.session
        tasks, _, signatures, _ = session.attempts[row]
        has_reserved_places = session.has_reserved_places(row)
        if signatures not in self._wanted:
            wanted = _count_by_signature(signatures)
            has_no_relations = all(
                session.placer.ranking(signature).has_no_relations for signature in wanted
            )
            self._wanted[signatures] = wanted, has_no_relations
        wanted, has_no_relations = self._wanted[signatures]
        return PreemptorRequest(
            podgroup=row,
            tasks=tasks,
            assigned=session.assigned(row),
            wanted=wanted,
            capacities={}
            if has_reserved_places
            else {signature: self._capacity(signature) for signature in wanted},
            is_count_enough=has_no_relations and len(wanted) == 1 and not has_reserved_places,
            has_no_relations=has_no_relations,
        )

    def _capacity(self, signature: int) -> PodCapacity:
        capacity = self._capacities.get(signature)
        if capacity is None:
            if len(self._capacities) >= _MAX_CAPACITIES:  # the one that was made first goes
                del self._capacities[next(iter(self._capacities))]
            placer = self.session.placer
            capacity = self._capacities[signature] = PodCapacity(
                placer.statement, placer.ranking(signature)
            )
        return capacity

    def _carry_out(self, row: int, action: Action, eviction_units: list[int]) -> bool:
        """Evict units, and place the preemptor; if that fails, roll everything back."""
        session, pool = self.session, self.pool
        checkpoint = session.statement.checkpoint
        evicted: dict[int, tuple[Victim, ...]] = {}
        seen: set[Victim] = set()
        for eviction_unit in sorted(eviction_units, key=lambda one: -len(pool.victims[one])):
            members = tuple([it for it in pool.victims[eviction_unit] if it not in seen])
            evicted[eviction_unit] = members
            seen.update(members)
            for member in members:
                if member.node != NONE:
                    session.statement.evict(member.node, member.signature)
            amounts = pool.amounts(eviction_unit, members)
            session.release(pool.eviction_units[eviction_unit].queue, amounts)
        if not self._attempt(row, is_pipelined=True):
            session.statement.roll_back(checkpoint)
            for eviction_unit, members in evicted.items():
                cpu, memory, gpu = pool.amounts(eviction_unit, members)
                session.release(pool.eviction_units[eviction_unit].queue, (-cpu, -memory, -gpu))
            return False
        for eviction_unit, members in evicted.items():
            self._record_unit(eviction_unit, members, action, row)
        return True

    def _attempt(self, row: int, *, is_pipelined: bool) -> bool:
        """Place a PodGroup, and protect it if that succeeds."""
        if not self.session.attempt(row, is_pipelined=is_pipelined):
            return False
        self.protect(row)
        return True

    def protect(self, row: int) -> None:
        """Exclude a PodGroup that was placed from the victims."""
        self.allocated.add(row)
        self.preemptors.add(row)
        self.failures.forget(row)
        if "pool" in self.__dict__:
            for eviction_unit in self.pool.protect(row):
                self.victim_order.drop(eviction_unit)

    def record_whole(
        self, podgroups: tuple[int, ...], pods: tuple[int, ...], action: Action, row: int
    ) -> None:
        """Record that PodGroups are evicted whole, for a preemptor *row* or NONE."""
        signatures, signature_of = (
            self.session.snapshot.signatures,
            self.session.snapshot.pods.signature,
        )
        gpus = sum([signatures[signature_of[pod]].queue_request[ResourceKind.GPU] for pod in pods])
        self.allowance.evict(pods)
        work_lost = self.lost_work.of_pods(pods) // 1000
        self._record(Eviction(podgroups, pods, True, action, row, gpus, work_lost))  # noqa: FBT003

    def _record_unit(
        self, eviction_unit: int, members: tuple[Victim, ...], action: Action, row: int
    ) -> None:
        pods = tuple([member.pod for member in members if member.pod >= 0])
        gpus = self.pool.amounts(eviction_unit, members)[ResourceKind.GPU]
        podgroups, is_whole = self.pool.podgroups[eviction_unit], self.pool.is_whole[eviction_unit]
        order = self.session.policies.victim_order
        work_lost, reason = self.lost_work.of_pods(pods) // 1000, order.reason if order else ""
        budgets = self.allowance.evict(pods)
        self._record(
            Eviction(podgroups, pods, is_whole, action, row, gpus, work_lost, reason, budgets)
        )
        for removed in self.pool.evict(eviction_unit):
            self.victim_order.drop(removed)

    def _record(self, one: Eviction) -> None:
        if self._evictable_gpus is not None:
            self._evictable_gpus -= one.gpus
        self.evictions.append(one)
        self._evicted.update(one.podgroups)


def excluding(may_evict: UnitFilter, excluded: Collection[int]) -> UnitFilter:
    """Return a filter without some eviction units."""
    if not excluded:
        return may_evict
    return lambda eviction_unit: (
        eviction_unit not in excluded and (may_evict is None or may_evict(eviction_unit))
    )


def _count_by_signature(signatures: SignatureRuns) -> dict[int, int]:
    """Return how many pods there are of each signature."""
    counts: dict[int, int] = {}
    for signature, count in signatures:
        counts[signature] = counts.get(signature, 0) + count
    return counts


def _related_selectors(requested: Sequence[SchedulingSignature]) -> set[int]:
    """Return the selectors of pods that requested pods want to be near, or are spread beside."""
    near = {term.selector for one in requested for term in one.affinity}
    return near | {spread.selector for one in requested for spread in one.spread_constraints}


def _is_resolvable(rejection: Rejection) -> bool:
    if isinstance(rejection.details, QueueBoundExceeded):
        return (
            rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
            and not rejection.details.releasing
        )
    return isinstance(rejection.details, FitErrors) and rejection.is_resolvable
