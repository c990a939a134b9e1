"""The search of one preemptor for victims, which the actions reclaim and preempt have in common.

No pod is evicted without the placement that it makes possible, and none that was not needed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Final, TypeAlias

from scheduler.core.eviction.eviction_scenario import (
    BudgetCheck,
    CandidateVictims,
    EvictionScenario,
    PreemptorRequest,
    QueueHeadroom,
    UnitMembers,
)
from scheduler.core.eviction.failures import Protection
from scheduler.core.eviction.victim_order import by_plugin
from scheduler.core.eviction.victim_set_solver import Scenario, Solution, solve
from scheduler.core.eviction.victims import UnitFilter, Victim, excluding, unrelated_units
from scheduler.core.model.rejections import (
    EvictionFailure,
    FitErrorReason,
    FitErrors,
    QueueBoundExceeded,
    Rejection,
)
from scheduler.core.model.resources import NONE, RESOURCE_KINDS, ResourceKind
from scheduler.core.model.result import Eviction
from scheduler.core.nodes.capacity import free_amount
from scheduler.core.nodes.placement import PlacementRequest
from scheduler.core.nodes.strategies.strategy import RequestKey
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action

OrderedVictims: TypeAlias = Callable[[UnitFilter], tuple[Iterator[int], int]]
Checks: TypeAlias = Callable[[], Sequence[Scenario[UnitMembers]]]
_FailedRequest: TypeAlias = tuple[int, int, RequestKey, bool, int, bool]


class VictimSearch:
    def __init__(self, session: Session, row: int, action: Action) -> None:
        self.request: Final = preemptor_request(session, row)
        self._session: Final = session
        self._row: Final = row
        self._action: Final = action
        self._is_budget_strict: Final = (
            action != Action.RECLAIM or session.policies.is_budget_strict
        )
        self._refused_by: Final[set[int]] = set()  # budgets
        self._is_truncated = False

    def could_be_enough(self, most: Callable[[ResourceKind], int]) -> bool:
        """Say whether the most that may be evicted, with what is free, could be enough."""
        amounts = self._session.attempts[self._row].amounts
        kind = ResourceKind.GPU if amounts[ResourceKind.GPU] else ResourceKind.CPU
        requested, nodes = amounts[kind], self._session.nodes
        if kind == ResourceKind.GPU:
            requested += nodes.devices.uncharged_gpus(self._session.attempts[self._row].signatures)
            # Evicted pods may free more than their queues are charged.
            requested -= nodes.devices.max_uncharged_gpus
        missing = requested - most(kind)
        return missing <= 0 or missing <= free_amount(nodes, kind)

    def lacking_kinds(self) -> list[ResourceKind]:
        """Return of what too little is free: GPUs, and what else lacks where these are free."""
        requested = self._session.attempts[self._row].amounts
        if not requested[ResourceKind.GPU]:
            return [kind for kind in RESOURCE_KINDS if requested[kind]]
        rejection = self._session.rejections.get(self._row)
        details = rejection.details if rejection else None
        if not isinstance(details, FitErrors):
            return [ResourceKind.GPU]
        kinds = self._session.snapshot.resources.kinds
        lacking = {kinds[column]: nodes for column, nodes in details.insufficient.items()}
        nodes_with_room = details.counts.get(FitErrorReason.ROOM, 0)
        if lacking.get(ResourceKind.GPU, 0) >= nodes_with_room:
            return [ResourceKind.GPU]
        return [it for it in RESOURCE_KINDS if it == ResourceKind.GPU or it in lacking]

    def candidate_sets(
        self, queues: Collection[int], ordered_victims: OrderedVictims
    ) -> Iterator[CandidateVictims]:
        """Yield candidates of some queues, first without partly succeeded PodGroups, then with.

        At last, where budgets are best effort, without budgets. A set that could not differ from
        the one before is left out; whether budgets refused a unit is known when that one was tried.
        """
        pool = self._session.victims().pool
        may_evict = self._unit_filter(queues)
        blocked, partly_succeeded = pool.blocked, pool.partly_succeeded
        excluded = blocked.keys() | partly_succeeded if partly_succeeded else blocked
        victim_order, count = ordered_victims(excluding(may_evict, excluded))
        yield CandidateVictims(pool, self._by_plugin(victim_order), count, respects_budgets=True)
        if partly_succeeded:
            before = count
            victim_order, count = ordered_victims(excluding(may_evict, blocked))
            if count > before:
                last = sorted(self._by_plugin(victim_order), key=lambda it: it in partly_succeeded)
                yield CandidateVictims(pool, iter(last), count, respects_budgets=True)
        if self._is_budget_strict or not self._session.allowance.has_budgets:
            return
        before = count
        victim_order, count = ordered_victims(may_evict)
        if count > before or self._refused_by:
            last = sorted(
                self._by_plugin(victim_order),
                key=lambda one: (one in blocked, one in partly_succeeded),
            )
            yield CandidateVictims(pool, iter(last), count, respects_budgets=False)

    def evict_and_place(
        self, candidate_sets: Iterable[CandidateVictims], checks: Checks = tuple
    ) -> bool:
        """Each scenario has *checks* of its own."""
        return any(self._evict_and_place(one, checks) for one in candidate_sets)

    def failure(self, queues: Collection[int]) -> EvictionFailure:
        session, counts = self._session, self._session.reclaimable_totals().non_evictable
        failure = EvictionFailure()
        if counts or session.has_min_runtime or session.snapshot.budgets.names:
            protection = Protection(session.snapshot.podgroups, counts, session.victims())
            failure = protection.failure(
                self._row,
                self._action,
                queues,
                lambda podgroup: podgroup in session.evicted or podgroup in session.placed,
            )
            failure = failure._replace(
                budgets=tuple(sorted({*failure.budgets, *self._refused_by}))
                if self._is_budget_strict
                else ()
            )
        return failure._replace(is_truncated=self._is_truncated)

    def _unit_filter(self, queues: Iterable[int]) -> UnitFilter:
        """Return which units of some queues may be evicted, whatever budgets say.

        Not those with pods that the requested pods want to be near or are spread beside, nor those
        within their minimum runtime.
        """
        session, victims = self._session, self._session.victims()
        unrelated = None
        if not self.request.has_no_relations:
            unrelated = unrelated_units(
                session.snapshot.signatures, self.request.wanted, victims.pool
            )
        own_queue = session.snapshot.podgroups[self._row].queue
        protected = victims.min_runtime.protected(self._action, own_queue, queues)
        return excluding(unrelated, protected)

    def _by_plugin(self, victim_order: Iterator[int]) -> Iterator[int]:
        session, order = self._session, self._session.policies.victim_order
        if order is None:
            return victim_order
        return by_plugin(
            victim_order,
            order,
            session.victims().pool,
            session.lost_work.of_pods,
            session.attempts[self._row].amounts,
        )

    def _evict_and_place(self, candidates: CandidateVictims, checks: Checks) -> bool:
        """Evict no more because of kept room: with fewer victims its place is taken."""
        session, request = self._session, self.request
        for _ in range(2):
            found, candidates = self._solve(request, candidates, checks)
            if found is None:
                return False
            with kept_room_as_free(session, self._row) as is_released:
                if is_released:
                    if place_preemptor(session, self._row):
                        return True
                    fewer, candidates = self._solve(request, candidates, checks)
                    if fewer is not None and self._count(fewer) < self._count(found):
                        found = fewer
                    else:
                        session.kept.restore()
                if self._carry_out(found):
                    return True
            request = request._replace(reuses_placement=False)
        return False

    def _count(self, eviction_units: list[int]) -> int:
        pool = self._session.victims().pool
        return len({victim for unit in eviction_units for victim in pool.victims[unit]})

    def _solve(
        self, request: PreemptorRequest, candidates: CandidateVictims, checks: Checks
    ) -> tuple[list[int] | None, CandidateVictims]:
        """Return the units to evict, if there are any, and all candidates once more."""
        session = self._session
        budgets = BudgetCheck(session.allowance)
        has_budgets = candidates.respects_budgets and session.allowance.has_budgets
        headroom = QueueHeadroom(
            session.usage, lambda usage: session.refusal(usage, self._row) is not None
        )
        scenario = EvictionScenario(
            request,
            session.placer,
            candidates,
            (budgets, *checks()) if has_budgets else checks(),
            headroom,
        )
        solution = solve_scenario(session, candidates.total, scenario)
        self._refused_by.update(budgets.refused_by)
        self._is_truncated = solution.is_truncated
        again = candidates._replace(order=chain(scenario.eviction_units, candidates.order))
        if solution.ranks is None:
            return None, again
        return [scenario.eviction_units[rank] for rank in solution.ranks], again

    def _carry_out(self, eviction_units: list[int]) -> bool:
        session, pool = self._session, self._session.victims().pool
        checkpoint = session.statement.checkpoint
        evicted: dict[int, tuple[Victim, ...]] = {}
        seen: set[Victim] = set()
        for eviction_unit in sorted(eviction_units, key=lambda one: -len(pool.victims[one])):
            members = tuple([it for it in pool.victims[eviction_unit] if it not in seen])
            evicted[eviction_unit] = members
            seen.update(members)
            amounts = pool.amounts(eviction_unit, members)
            session.evict(members)
            session.refund(pool.eviction_units[eviction_unit].queue, amounts)
        pipelined = session.attempts.request(self._row, is_pipelined=True)
        if not place_preemptor(session, self._row, pipelined):
            session.statement.roll_back(checkpoint)
            for eviction_unit, members in evicted.items():
                cpu, memory, gpu = pool.amounts(eviction_unit, members)
                session.refund(pool.eviction_units[eviction_unit].queue, (-cpu, -memory, -gpu))
            return False
        for eviction_unit, members in evicted.items():
            self._record(eviction_unit, members)
        return True

    def _record(self, eviction_unit: int, members: tuple[Victim, ...]) -> None:
        session, victims = self._session, self._session.victims()
        pool, order = victims.pool, session.policies.victim_order
        pods = tuple([member.pod for member in members if member.pod >= 0])
        session.record(
            Eviction(
                pool.podgroups[eviction_unit],
                pods,
                pool.is_whole[eviction_unit],
                self._action,
                self._row,
                pool.amounts(eviction_unit, members)[ResourceKind.GPU],
                session.lost_work.of_pods(pods) // 1000,
                order.reason if order else "",
                session.allowance.use(pods),
            )
        )
        victims.remove_unit(eviction_unit)


def preempt_for_each(
    session: Session,
    preempt_for: Callable[[int], EvictionFailure | None],
    may_preempt: Callable[[int], bool],
    *,
    by_priority: bool,
) -> None:
    """Try each preemptor once; not if an equal request has failed and nothing was placed since.

    Whether priority makes a difference depends on the action. A PodGroup with reserved places
    equals no other. *preempt_for* returns why no victim was evicted.
    """
    failed_requests: dict[_FailedRequest, tuple[int, EvictionFailure]] = {}
    podgroups, attempts = session.snapshot.podgroups, session.attempts
    for row in preemptors_in_order(session, may_preempt):
        podgroup, attempt = podgroups[row], attempts[row]
        request_key = (
            podgroup.queue,
            podgroup.priority if by_priority else 0,
            attempt.request_key,
            podgroup.is_preemptible,
            row if attempts.has_reserved_places(row) else NONE,
            is_delayed(session, row),
        )
        allocation_count = len(session.allocations)
        known = failed_requests.get(request_key)
        if known is None or known[0] != allocation_count:
            with without_kept_room(session, row):
                failure = preempt_for(row)
            if failure is None:
                continue
            known = failed_requests[request_key] = allocation_count, failure
        session.failures.record(row, known[1])


def preemptors_in_order(session: Session, may_preempt: Callable[[int], bool]) -> Iterator[int]:
    """Yield the pending PodGroups that evictions could help, in order.

    A PodGroup that waits for resources its own queues are releasing is left out: that is over soon.
    Once the limit of evictions is reached, the rest that *may_preempt* is noted as rate limited.
    """
    podgroups, attempts = session.snapshot.podgroups, session.attempts
    evictions, releasing = session.evictions, session.releasing
    left = {row for row, one in session.rejections.items() if _is_resolvable(one)}
    left &= {*attempts} - session.evicted
    jobs_order = session.jobs_order(left)
    while (row := jobs_order.pop()) is not None:
        if session.is_limit_reached:
            for one in filter(may_preempt, left):
                session.failures.record(one, EvictionFailure(is_rate_limited=True))
            return
        left.remove(row)
        least = attempts[row].least_amounts
        if releasing.is_any and releasing.refusal(row, least, session.refusal) is not None:
            continue
        eviction_count = len(evictions)
        yield row
        if len(evictions) == eviction_count:
            continue
        evicted = {podgroup for one in evictions[eviction_count:] for podgroup in one.podgroups}
        if left & evicted:  # evicted PodGroups are no preemptors
            left -= evicted
            jobs_order = session.jobs_order(left)
        for queue in {podgroups[podgroup].queue for podgroup in evicted}:
            jobs_order.update_queue(queue)


def preemptor_request(session: Session, row: int) -> PreemptorRequest:
    attempt, nodes = session.attempts[row], session.nodes
    has_reserved_places = session.attempts.has_reserved_places(row)
    wanted: dict[int, int] = {}
    for signature, count in attempt.signatures:
        wanted[signature] = wanted.get(signature, 0) + count
    strategy, ranking = attempt.strategy, session.placer.ranking
    are_unrelated = all(ranking(it, strategy.reach(it)).has_no_relations for it in wanted)
    has_devices = any(nodes.devices.of[it] for it in wanted)
    return PreemptorRequest(
        podgroup=row,
        placement=session.attempts.request(row),
        wanted=wanted,
        capacities={}
        if has_reserved_places
        else {it: session.capacities.of(it, strategy.reach(it)) for it in wanted},
        is_count_enough=are_unrelated
        and len(wanted) == 1
        and not (has_reserved_places or has_devices)
        and strategy.fits_by_count,
        has_no_relations=are_unrelated,
        reuses_placement=are_unrelated and not has_devices,
    )


def use_free_resources(session: Session, request: PreemptorRequest) -> bool:
    """Place a PodGroup on what earlier evictions of this plan left free, if it is enough."""
    if not session.evictions:
        return False
    for signature, capacity in request.capacities.items():
        capacity.refresh()
        if capacity.total < request.wanted[signature]:
            return False
    return place_preemptor(session, request.podgroup)


def place_preemptor(session: Session, row: int, request: PlacementRequest | None = None) -> bool:
    if not session.place(row, is_final=False, request=request):
        return False
    session.place_elastic(row)
    session.preemptors.add(row)
    return True


def without_kept_room(session: Session, row: int) -> AbstractContextManager[None]:
    """Let the search of a PodGroup compare queues without what is kept.

    What is kept for it is free for it. For others it stays in use, but its queue is not charged: no
    pod of that queue is a victim because of it.
    """
    return nullcontext() if session.kept.row == NONE else _without_kept_room(session, row)


@contextmanager
def _without_kept_room(session: Session, row: int) -> Iterator[None]:
    kept = session.kept
    if kept.row != row:
        with kept.uncharged():
            yield
        return
    is_released = kept.release()
    yield
    if is_released and row in session.placed:
        kept.end()
    elif is_released:
        kept.restore()


@contextmanager
def kept_room_as_free(session: Session, row: int) -> Iterator[bool]:
    """Give up what is kept for another PodGroup than *row*, and keep what is left of it afterwards.

    Say whether there is any.
    """
    kept = session.kept
    is_released = kept.row != row and kept.release()
    yield is_released
    if is_released and not kept.is_held:
        kept.restore()


def place_on_kept_room(session: Session, row: int) -> bool:
    """Place a PodGroup where room is kept, if it fits without the victims that were found for it.

    No pod is evicted because of room that is kept.
    """
    with kept_room_as_free(session, row) as is_released:
        return is_released and place_preemptor(session, row)


def solve_scenario(session: Session, count: int, scenario: EvictionScenario) -> Solution:
    """Solve, and count the search.

    There is no solution if not all placements were tried: a victim of the set might be spared.
    """
    solution = solve(count, scenario, scenario.fits)
    is_truncated = solution.is_truncated or scenario.is_truncated
    session.stats.update(
        searches=1, trials=scenario.trials, sets=solution.tried, truncated=int(is_truncated)
    )
    ranks = None if scenario.is_truncated else solution.ranks
    return Solution(ranks, solution.tried, is_truncated)


def evict_podgroups(
    session: Session, podgroups: tuple[int, ...], pods: tuple[int, ...], action: Action, row: int
) -> None:
    """Record that PodGroups are evicted whole, for a preemptor *row* or NONE."""
    signatures, signature_of = session.snapshot.signatures, session.snapshot.pods.signature
    gpus = sum([signatures[signature_of[pod]].queue_request[ResourceKind.GPU] for pod in pods])
    session.allowance.use(pods)
    work_lost = session.lost_work.of_pods(pods) // 1000
    eviction = Eviction(podgroups, pods, True, action, row, gpus, work_lost)  # noqa: FBT003
    if action is Action.NODE_LEAVING:
        departures = (session.snapshot.podgroups[it].departure for it in podgroups)
        now = session.snapshot.now
        certain = any(it is not None and it.is_certain(now) for it in departures)
        eviction = replace(eviction, is_limited=not certain)
    session.record(eviction)


def is_delayed(session: Session, row: int) -> bool:
    return session.snapshot.podgroups[row].preemption_delay_until > session.snapshot.now


def _is_resolvable(rejection: Rejection) -> bool:
    if isinstance(rejection.details, QueueBoundExceeded):
        return (
            rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
            and not rejection.details.releasing
        )
    return isinstance(rejection.details, FitErrors) and rejection.is_resolvable
