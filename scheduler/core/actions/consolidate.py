"""The action consolidation: running PodGroups are relocated to bring free resources together.

They are evicted for a pending PodGroup, and get other places in the same plan. No queue has less
by it, so fair shares are not checked. A candidate must be able to hold reserved places, be
complete, and have PodSets with pods of one signature each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from scheduler.core.actions.victim_search import (
    evict_podgroups,
    is_delayed,
    place_on_kept_room,
    preemptor_request,
    preemptors_in_order,
    solve_scenario,
    use_free_resources,
    without_kept_room,
)
from scheduler.core.attempts import podgroup_key
from scheduler.core.eviction.eviction_scenario import (
    BudgetCheck,
    CandidateVictims,
    EvictionScenario,
    PreemptorRequest,
    UnitMembers,
)
from scheduler.core.eviction.failures import has_relocatable
from scheduler.core.eviction.victim_order import Victims
from scheduler.core.eviction.victim_set_solver import Scenario
from scheduler.core.eviction.victims import (
    MinRuntimeGuard,
    Victim,
    VictimPool,
    excluding,
    unrelated_units,
    victims_of,
)
from scheduler.core.gang import PodSetTasks, Tasks, is_satisfied
from scheduler.core.model.podgroup import (
    PodGroupInfo,
    PodSet,
    ReservationCause,
    SchedulingSignature,
    is_evictable,
    podsets_of,
)
from scheduler.core.model.resources import NONE, RESOURCE_KINDS
from scheduler.core.model.result import Relocation, Reservation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.nodes.capacity import free_amount
from scheduler.core.nodes.placement import PlacementRequest
from scheduler.core.nodes.strategies.strategy import EVERYWHERE, Alternative, RequestKey
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.core.session import Session
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import Action

_RESOLVABLE: Final = (
    UnschedulableReason.TOPOLOGY_UNFIT,
    UnschedulableReason.FRAGMENTED,
    UnschedulableReason.NO_CAPACITY,
)


class ConsolidationCandidates:
    def __init__(self, nodes: WorkingNodes) -> None:
        snapshot = nodes.snapshot
        self._nodes: Final = nodes
        self._snapshot: Final = snapshot
        members = victims_of(snapshot)
        tasks = (
            (row, self._tasks(row, podgroup, members))
            for row, podgroup in enumerate(snapshot.podgroups)
        )
        self.tasks: Final[dict[int, Tasks]] = {row: some for row, some in tasks if some}

    def order(self, podgroups: Iterable[int]) -> list[tuple[int, PodSetTasks]]:
        """Order the tasks of PodGroups for placement: the largest pods first."""
        signatures = self._snapshot.signatures

        def size(one: tuple[int, PodSetTasks]) -> tuple[int, int, int]:
            cpu, memory, gpu = signatures[one[1].podset.expected_signature].queue_request
            return -gpu, -cpu, -memory

        return sorted(
            ((row, podset_tasks) for row in podgroups for podset_tasks in self.tasks[row]), key=size
        )

    def of_units(
        self, pool: VictimPool, eviction_units: Iterable[int]
    ) -> list[tuple[int, PodSetTasks]]:
        return self.order(
            row for eviction_unit in eviction_units for row in pool.podgroups[eviction_unit]
        )

    def _tasks(
        self, row: int, podgroup: PodGroupInfo, members: Callable[[int], tuple[Victim, ...]]
    ) -> Tasks:
        """Return what a PodGroup needs elsewhere; empty if it cannot be relocated."""
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
        tasks = tuple(
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
        runs = tuple([(it.podset.expected_signature, it.expected) for it in tasks])
        if self._nodes.strategy_of(row, tasks, runs) is not EVERYWHERE:
            return ()  # those of several PodGroups are placed together, on all nodes
        return tasks

    def _is_placeable_anywhere(self, member: Victim) -> bool:
        signature = self._snapshot.signatures[member.signature]
        return member.node != NONE and signature.may_relocate

    def _has_same_signature(self, podset: PodSet, signature_of: dict[str, int]) -> bool:
        if not podset.pending or not podset.running:
            return True
        signatures, signature_at = self._snapshot.signatures, self._snapshot.pods.signature
        expected = _without_nomination(signatures[signature_of[podset.name]])
        return all(
            _without_nomination(signatures[signature_at[pod]]) == expected for pod in podset.pending
        )


class RelocatedTasks(Scenario[UnitMembers]):
    """The tasks of evicted candidates, which must be placed again."""

    def __init__(
        self, relocatable: ConsolidationCandidates, pool: VictimPool, candidates: Sequence[int]
    ) -> None:
        self._relocatable: Final = relocatable
        self._pool: Final = pool
        self._ranks: Final = {eviction_unit: rank for rank, eviction_unit in enumerate(candidates)}
        self._evicted: Final[set[int]] = set()

    def evict(self, candidate: UnitMembers) -> None:
        self._evicted.add(candidate.row)

    def restore(self, candidate: UnitMembers) -> None:
        self._evicted.discard(candidate.row)

    def request(self) -> PlacementRequest:
        eviction_units = sorted(self._evicted, key=self._ranks.__getitem__)
        relocated = self._relocatable.of_units(self._pool, eviction_units)
        return PlacementRequest(tuple([podset_tasks for _, podset_tasks in relocated]))


def consolidate(session: Session) -> None:
    if session.policies.max_relocated and has_relocatable(session.snapshot.podgroups):
        _Consolidation(session).run()


class _Relocatable(NamedTuple):
    candidates: ConsolidationCandidates
    victims: Victims  # each PodGroup is one eviction unit


class _Consolidation:
    def __init__(self, session: Session) -> None:
        self._session: Final = session
        self._collected: _Relocatable | None = None

    def run(self) -> None:
        session = self._session
        failed_requests: dict[tuple[int, RequestKey, int], int] = {}
        for row in preemptors_in_order(
            session, lambda one: self._may_consolidate(one) and self._is_free_in_total(one)
        ):
            podgroup = session.snapshot.podgroups[row]
            if not self._may_consolidate(row):
                continue
            own = row if podgroup.workload or podgroup.has_running else NONE
            request_key = podgroup.queue, session.attempts[row].request_key, own
            allocation_count = len(session.allocations)
            if failed_requests.get(request_key) == allocation_count:
                continue
            with without_kept_room(session, row):
                is_placed = self._consolidate_for(row)
            if not is_placed:
                failed_requests[request_key] = allocation_count

    def _may_consolidate(self, row: int) -> bool:
        session = self._session
        if not session.snapshot.podgroups[row].is_preemptible or is_delayed(session, row):
            return False
        return session.rejections[row].reason in _RESOLVABLE

    def _is_free_in_total(self, row: int) -> bool:
        """Say whether all nodes together have free what a PodGroup requests."""
        session, attempt = self._session, self._session.attempts[row]
        cpu, memory, gpu = attempt.amounts
        amounts = cpu, memory, gpu + session.nodes.devices.uncharged_gpus(attempt.signatures)
        return all(
            amounts[kind] <= free_amount(session.nodes, kind)
            for kind in RESOURCE_KINDS
            if amounts[kind] > 0
        )

    def _relocatable(self) -> _Relocatable:
        """They are collected at the first call: most plans relocate nothing."""
        if self._collected is None:
            session, snapshot = self._session, self._session.snapshot
            candidates = ConsolidationCandidates(session.nodes)
            protected = {it for it in range(len(snapshot.podgroups)) if it not in candidates.tasks}
            key = partial(podgroup_key, snapshot, session.policies)
            pool = VictimPool(
                snapshot, protected | session.placed, key, session.allowance, shrink=False
            )
            never = MinRuntimeGuard(snapshot, pool, session.usage.paths, None)
            victims = Victims(pool, never, snapshot.queues, session.queue_order)
            self._collected = _Relocatable(candidates, victims)
        return self._collected

    def _consolidate_for(self, row: int) -> bool:
        session = self._session
        if session.refusal(session.usage, row) is not None:
            return False
        request = preemptor_request(session, row)
        if use_free_resources(session, request):
            self._protect(row)
            return True
        if not self._is_free_in_total(row):
            return False
        relocatable, victims = self._relocatable()
        candidates = self._candidates(request)
        relocated = RelocatedTasks(relocatable, victims.pool, candidates)
        scenario = EvictionScenario(
            request._replace(is_count_enough=False, reuses_placement=False),
            session.placer,
            CandidateVictims(victims.pool, iter(candidates), len(candidates), True),  # noqa: FBT003
            (BudgetCheck(session.allowance), relocated),
            beside=relocated.request,
        )
        solution = solve_scenario(session, len(candidates), scenario)
        if solution.ranks is None:
            return False
        if place_on_kept_room(session, row):
            self._protect(row)
            return True
        return self._carry_out(request, [candidates[rank] for rank in solution.ranks])

    def _candidates(self, request: PreemptorRequest) -> list[int]:
        session, pool = self._session, self._relocatable().victims.pool
        podgroups = session.snapshot.podgroups
        workload = podgroups[request.podgroup].workload
        unrelated = None
        if not request.has_no_relations:
            unrelated = unrelated_units(session.snapshot.signatures, request.wanted, pool)
        may_evict = excluding(unrelated, pool.blocked)

        def is_eligible(eviction_unit: int) -> bool:
            first = pool.podgroups[eviction_unit][0]
            is_own = first == request.podgroup or (
                workload and podgroups[first].workload == workload
            )
            return not is_own and (may_evict is None or may_evict(eviction_unit))

        victim_order, count = self._relocatable().victims.order.across_queues(
            session.usage, range(len(session.snapshot.queues.names)), is_eligible
        )
        most = session.policies.max_relocated
        return list(islice(victim_order, count if most < 0 else min(count, most)))

    def _carry_out(self, request: PreemptorRequest, eviction_units: list[int]) -> bool:
        session, (relocatable, victims) = self._session, self._relocatable()
        row, checkpoint = request.podgroup, session.statement.checkpoint
        for eviction_unit in eviction_units:
            session.evict(victims.pool.victims[eviction_unit])
        relocated = relocatable.of_units(victims.pool, eviction_units)
        beside = PlacementRequest(tuple(podset_tasks for _, podset_tasks in relocated))
        alternative = self._fits_with(request.placement, beside)
        fitting = request.placement._replace(is_pipelined=True, pinned=alternative)
        if alternative is None or not session.place(row, is_final=False, request=fitting):
            session.statement.roll_back(checkpoint)
            return False
        reserved = session.placer.reserve(beside)
        assert reserved is not None  # it was placed on trial just now
        reserved_places: Counter[tuple[int, str, int]] = Counter()
        for at, node, count in reserved:
            reserved_places[relocated[at][0], relocated[at][1].podset.name, node] += count
        for eviction_unit in eviction_units:
            self._record(eviction_unit, row, reserved_places)
        session.place_elastic(row)
        session.preemptors.add(row)
        self._protect(row)
        return True

    def _fits_with(
        self, request: PlacementRequest, relocated: PlacementRequest
    ) -> Alternative | None:
        """Return where relocated pods fit beside the preemptor, with devices also before it.

        A reserved place is on a node, and names no device: the next plan chooses one.
        """
        placer, devices = self._session.placer, self._session.nodes.devices
        found = placer.fits(request, relocated)
        if found is None:
            return None
        placed, alternative = found
        if not any(devices.of[it.podset.expected_signature] for it in relocated.tasks):
            return alternative
        count = sum([len(it.pods) + it.expected for it in request.tasks])
        while count > 0:
            count -= placed.pop(0).pod_count
        fits = placer.fits_beside(placed, request._replace(pinned=alternative))
        return alternative if fits else None

    def _record(
        self, eviction_unit: int, row: int, reserved_places: Counter[tuple[int, str, int]]
    ) -> None:
        session, pool = self._session, self._relocatable().victims.pool
        podgroups = pool.podgroups[eviction_unit]
        pods = tuple([member.pod for member in pool.victims[eviction_unit]])
        evict_podgroups(session, podgroups, pods, Action.CONSOLIDATION, row)
        for podgroup in podgroups:
            reserved = [
                Reservation(podset, node, number, ReservationCause.MOVE)
                for (one, podset, node), number in reserved_places.items()
                if one == podgroup
            ]
            session.relocations.append(Relocation(podgroup, tuple(reserved)))
            session.preemptors.add(podgroup)
            session.protect(podgroup)
            self._protect(podgroup)

    def _protect(self, row: int) -> None:
        if self._collected is not None:
            self._collected.victims.remove_podgroup(row)


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
