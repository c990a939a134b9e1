"""The action consolidation: running PodGroups are relocated to bring free resources together.

They are evicted for a pending PodGroup, and get other places in the same plan. No queue has less
by it, so fair shares are not checked. A candidate must be able to hold reserved places, be
complete, and have PodSets with pods of one signature each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final

from scheduler.core.eviction.execute import EvictionSession, excluding
from scheduler.core.eviction.scenario import (
    CandidateVictims,
    ConsolidationValidator,
    EvictionScenario,
    PreemptorRequest,
)
from scheduler.core.eviction.solver import solve
from scheduler.core.eviction.victim_order import VictimOrder
from scheduler.core.eviction.victims import Victim, VictimPool, victims_of
from scheduler.core.gang.tasks_to_allocate import PodSetTasks, SignatureRuns, Tasks, is_satisfied
from scheduler.core.model.podgroup import (
    PodGroupInfo,
    PodSet,
    ReservationCause,
    SchedulingSignature,
    is_evictable,
    podsets_of,
)
from scheduler.core.model.rejections import UnschedulableReason
from scheduler.core.model.resources import NONE, RESOURCE_KINDS
from scheduler.core.model.result import Action, Relocation, Reservation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.placement import Placer

__all__ = [
    "ConsolidateAction",
    "ConsolidationCandidates",
    "relocated_signatures",
]


_RESOLVABLE: Final = (UnschedulableReason.FRAGMENTED, UnschedulableReason.NO_CAPACITY)


class ConsolidationCandidates:
    """The tasks that relocated PodGroups need elsewhere, by PodGroup."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot: Final = snapshot
        members = victims_of(snapshot)
        tasks = (
            (row, self._tasks(row, podgroup, members))
            for row, podgroup in enumerate(snapshot.podgroups)
        )
        self.tasks: Final[dict[int, Tasks]] = {row: some for row, some in tasks if some}

    def order(self, podgroups: Iterable[int]) -> list[tuple[int, PodSetTasks]]:
        """Return the tasks of PodGroups in the order of placement: the largest pods first."""
        signatures = self._snapshot.signatures

        def size(one: tuple[int, PodSetTasks]) -> tuple[int, int, int]:
            cpu, memory, gpu = signatures[one[1].podset.expected_signature].queue_request
            return -gpu, -cpu, -memory

        return sorted(
            ((row, podset_tasks) for row in podgroups for podset_tasks in self.tasks[row]), key=size
        )

    def _tasks(
        self, row: int, podgroup: PodGroupInfo, members: Callable[[int], tuple[Victim, ...]]
    ) -> Tasks:
        """Return the tasks of a PodGroup elsewhere; empty if it cannot be relocated."""
        if not (
            podgroup.may_relocate
            and podgroup.has_running
            and podgroup.can_reserve
            and podgroup.prefilter_failure is None
        ):
            return ()
        if not is_evictable(podgroup) or podgroup.is_partly_succeeded:
            return ()
        podsets = podsets_of(podgroup.tree)
        if not is_satisfied(podgroup.tree):
            return ()
        running = members(row)  # with reserved places these are more than its pods
        signature_of = relocated_signatures(self._snapshot, row, [it.signature for it in running])
        if signature_of is None or not all(self._is_placeable_anywhere(it) for it in running):
            return ()
        if not all(self._has_same_signature(podset, signature_of) for podset in podsets):
            return ()
        return tuple(
            PodSetTasks(
                PodSet(
                    podset.name,
                    0,
                    expected=podset.running,
                    expected_signature=signature_of[podset.name],
                ),
                (),
                podset.running,
            )
            for podset in podsets
            if podset.running
        )

    def _is_placeable_anywhere(self, member: Victim) -> bool:
        """Say whether no other pod restricts where a pod can be."""
        signature = self._snapshot.signatures[member.signature]
        return member.node != NONE and not (
            signature.affinity or signature.spread_constraints or signature.shared_devices
        )

    def _has_same_signature(self, podset: PodSet, signature_of: dict[str, int]) -> bool:
        """Say whether pending pods have the signature of running ones."""
        if not podset.pending or not podset.running:
            return True
        signatures, signature_at = self._snapshot.signatures, self._snapshot.pods.signature
        expected = _without_nomination(signatures[signature_of[podset.name]])
        return all(
            _without_nomination(signatures[signature_at[pod]]) == expected for pod in podset.pending
        )


class ConsolidateAction:
    """Consolidation for preemptible PodGroups that wait for room."""

    def __init__(self, eviction_session: EvictionSession) -> None:
        self._eviction_session: Final = eviction_session
        self._session: Final = eviction_session.session
        self._max_candidates: Final = eviction_session.session.policies.max_relocated

    def run(self) -> None:
        """Try each pending PodGroup once, in order."""
        session = self._session
        failed_requests: dict[tuple[int, SignatureRuns, int], int] = {}
        if not (self._max_candidates and self._eviction_session.failures.has_relocatable):
            return
        for row in self._eviction_session.preemptors_in_order(
            lambda one: self._may_consolidate(one) and self._is_free_in_total(one)
        ):
            podgroup = session.snapshot.podgroups[row]
            if not self._may_consolidate(row):
                continue
            own = row if podgroup.owning_jobset or podgroup.has_running else NONE
            request_key = podgroup.queue, session.attempts[row].signatures, own
            allocation_count = len(session.allocations)
            if failed_requests.get(request_key) == allocation_count:
                continue
            if not self._consolidate_for(row):
                failed_requests[request_key] = allocation_count

    def _may_consolidate(self, row: int) -> bool:
        if not self._session.snapshot.podgroups[
            row
        ].is_preemptible or self._eviction_session.is_delayed(row):
            return False
        return self._session.rejections[row].reason in _RESOLVABLE

    def _is_free_in_total(self, row: int) -> bool:
        """Say whether what a PodGroup requests is free on all nodes together."""
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
        """Return the placer of the session."""
        return self._session.placer

    @cached_property
    def pool(self) -> VictimPool:
        """Return the relocatable PodGroups, each as one eviction unit."""
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
        eviction_session, session = self._eviction_session, self._session
        if session.refusal(session.usage, row) is not None:
            return False
        request = eviction_session.request(row)
        if eviction_session.use_free_resources(request):
            self._protect(row)
            return True
        if not self._is_free_in_total(row):
            return False
        candidates = self._candidates(request)
        scenario = RelocationScenario(request, self, candidates)
        solution = solve(len(candidates), scenario)
        eviction_session.stats["searches"] += 1
        eviction_session.stats["trials"] += scenario.trials
        eviction_session.stats["sets"] += solution.tried
        eviction_session.stats["cut"] += solution.is_cut or scenario.is_truncated
        if solution.ranks is None or scenario.is_truncated:
            return False
        return self._carry_out(row, request, [candidates[rank] for rank in solution.ranks])

    def _candidates(self, request: PreemptorRequest) -> list[int]:
        pool, podgroups = self.pool, self._session.snapshot.podgroups
        may_evict = excluding(
            self._eviction_session.unit_filter(request, Action.CONSOLIDATION, (), pool),
            pool.blocked,
        )
        owning_jobset = podgroups[request.podgroup].owning_jobset

        def is_eligible(eviction_unit: int) -> bool:
            first = pool.podgroups[eviction_unit][0]
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
        """Evict units, place the preemptor, and reserve places for the relocated PodGroups."""
        session, pool = self._session, self.pool
        placer, checkpoint = session.placer, session.statement.checkpoint
        for eviction_unit in eviction_units:
            for member in pool.victims[eviction_unit]:
                session.statement.evict(member.node, member.signature)
        session.forget_failures()
        relocated = self.relocated_tasks(eviction_units)
        tasks = tuple(podset_tasks for _, podset_tasks in relocated)
        if placer.fits(request.tasks, request.assigned, tasks) is None or not session.place(
            row, is_pipelined=True
        ):
            session.statement.roll_back(checkpoint)
            return False
        reserved = placer.reserve(tasks)
        assert reserved is not None  # it was placed on trial just now
        reserved_places: Counter[tuple[int, str, int]] = Counter()
        for at, node, count in reserved:
            reserved_places[relocated[at][0], relocated[at][1].podset.name, node] += count
        for eviction_unit in eviction_units:
            self._record(eviction_unit, row, reserved_places)
        session.place_elastic(row)
        self._protect(row)
        return True

    def relocated_tasks(self, eviction_units: list[int]) -> list[tuple[int, PodSetTasks]]:
        """Return the tasks that must be placed again if units are evicted."""
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
                for (one, podset, node), number in reserved_places.items()
                if one == podgroup
            ]
            self._eviction_session.relocations.append(Relocation(podgroup, tuple(reserved)))
            self._protect(podgroup)

    def _protect(self, row: int) -> None:
        """Keep a PodGroup where it is from now on."""
        self._eviction_session.protect(row)
        for eviction_unit in self.pool.protect(row):
            self._victim_order.drop(eviction_unit)


def relocated_signatures(
    snapshot: Snapshot, row: int, running: Sequence[int]
) -> dict[str, int] | None:
    """Return the signature of the pods of each PodSet, if each has one, and no others run.

    *running* are the signatures of all its pods that are on nodes.
    """
    podsets = [podset for podset in podsets_of(snapshot.podgroups[row].tree) if podset.running]
    if not running or sum([podset.running for podset in podsets]) != len(running):
        return None
    signature_of: dict[str, int] = {}
    for podset in podsets:
        signatures = running
        if len(podsets) > 1:
            signatures = [int(snapshot.pods.signature[pod]) for pod in podset.running_pods]
        if len(signatures) != podset.running or len({*signatures}) > 1:
            return None
        signature_of[podset.name] = signatures[0]
    return signature_of


def _without_nomination(signature: SchedulingSignature) -> SchedulingSignature:
    return replace(signature, nominated_node=NONE)


class RelocationScenario(EvictionScenario):
    """Relocated candidates, by rank: there is room if they can be placed again as well."""

    def __init__(
        self, request: PreemptorRequest, action: ConsolidateAction, candidates: list[int]
    ) -> None:
        placer, pool = action.placer, action.pool
        requested = request._replace(is_count_enough=False)
        candidate_victims = CandidateVictims(
            iter(candidates), len(candidates), respects_budgets=True
        )
        super().__init__(
            requested,
            placer,
            pool,
            candidate_victims,
            ConsolidationValidator(),
            reuses_placement=False,
        )
        self._action: Final = action
        self._candidates: Final = candidates
        self._evicted_ranks: Final[set[int]] = set()

    def evict(self, candidate: int) -> None:
        """Relocate a candidate."""
        super().evict(candidate)
        self._evicted_ranks.add(candidate)

    def restore(self, candidate: int) -> None:
        """Keep a candidate where it is."""
        super().restore(candidate)
        self._evicted_ranks.discard(candidate)

    def relocated_tasks(self) -> Tasks:
        """Return the tasks of the relocated candidates."""
        eviction_units = [self._candidates[rank] for rank in sorted(self._evicted_ranks)]
        return tuple(
            [podset_tasks for _, podset_tasks in self._action.relocated_tasks(eviction_units)]
        )
