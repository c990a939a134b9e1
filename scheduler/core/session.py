"""The session of one plan, and the action allocate: placing pending PodGroups on free resources.

PodGroups are attempted in rounds. One that fails is attempted again after the others, until a
round passes without an allocation: then nothing has changed since any attempt, and all reasons
are true of the end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.core.gang.tasks_to_allocate import (
    AssignedTasks,
    ElasticTasks,
    SignatureRuns,
    Tasks,
    can_be_satisfied,
    has_expected,
    has_pending,
    is_elastic,
    is_satisfied,
    min_available_state,
    pending_after,
    tasks_to_allocate,
)
from scheduler.core.model.failures import (
    FitErrors,
    IncompletePodSet,
    MissingPods,
    PreFilterDetails,
    PreFilterFailure,
    Rejection,
    RejectionDetails,
    UnschedulableReason,
)
from scheduler.core.model.plugins import Policies, QuotaRefusal
from scheduler.core.model.podgroup import PodGroupInfo, PodSet, podsets_of
from scheduler.core.model.resources import Amounts, Ints
from scheduler.core.model.result import PlanStats, PodGroupAllocation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage, charged
from scheduler.core.nodes.capacity import EmptyClusterFit
from scheduler.core.nodes.fit_errors import collect_fit_errors
from scheduler.core.nodes.nominated import NominatedCapacity, NominatedPodGroups, NominationAccess
from scheduler.core.nodes.placement import PlacementFailure, Placer
from scheduler.core.nodes.statement import Statement
from scheduler.core.queues.order import JobsOrderByQueues, PodGroupKey, QueueOrder, keys_by_queue
from scheduler.core.queues.reclaimable import unevictable_usage
from scheduler.core.queues.releasing import ReleasingPods

__all__ = ["Session"]

_NONE_ASSIGNED: Final = AssignedTasks()
_ON_FREE_RESOURCES: Final = frozenset({"room", "nodes"})


class PlacementAttempt(NamedTuple):
    """What a unit takes at its turn."""

    tasks: Tasks
    amounts: Amounts
    signatures: SignatureRuns
    key: PodGroupKey


class Session:
    """What was decided so far, and how far each unit is."""

    def __init__(self, snapshot: Snapshot, policies: Policies, fair_shares: Ints) -> None:
        self.allocations: Final[list[PodGroupAllocation]] = []
        self._unbound = 0  # of them, the first so many are not carried out
        self.rejections: Final[dict[int, Rejection]] = {}
        self.snapshot: Final = snapshot
        self.policies: Final = policies
        self.fair_shares: Final = fair_shares
        self.usage: Final = Usage(snapshot.queues)
        self.usage.add_unevictable(unevictable_usage(snapshot))
        self.queue_order: Final = QueueOrder(
            snapshot.queues, self.usage, fair_shares, snapshot.total
        )
        self.statement: Final = Statement(snapshot)
        self.placer: Final = Placer(self.statement, policies)
        self._empty_cluster_fit: Final = EmptyClusterFit(self.placer, self.usage)
        evicted_steps: Final[dict[int, PlacementAttempt]] = {}
        self.attempts: Final = evicted_steps
        self._requested: Final = lambda row: (
            evicted_steps[row].amounts
        )  # no method: that would be a circle
        self._nominated_podgroups: Final = NominatedPodGroups(snapshot, self.usage)
        self._nominated_capacity: Final = NominatedCapacity(snapshot, self.statement, self.usage)
        self._releasing: Final = ReleasingPods(snapshot, self.usage)
        self._assigned: dict[int, AssignedTasks] = {}
        self._elastic: dict[int, ElasticTasks] = {}
        self._pending: dict[int, int] = {}  # pods of units that are not placed
        # Shapes for which there was no room, since the last admission; numbers if they are final.
        # For those who may have something that is set aside by what it is.
        self._failed_signatures: dict[tuple[NominationAccess, SignatureRuns], FitErrors | None] = {}

    def allocate(self) -> None:
        """Give turns, round after round.

        In the first round is set aside what was promised; after it there may be more room.
        """
        rows = list(self._attemptable())
        self._reserve_nominated(rows)
        is_last = not self._nominated_capacity
        while rows:
            before = len(self.allocations)
            rows = self._round(rows)
            if is_last and len(self.allocations) == before:
                return
            is_last = True

    def allocate_without_binding(self) -> None:
        """Give room as `run` does, and carry none of it out: for a plan that does not allocate.

        A unit that there is room for keeps it from others, is not bound, and takes nothing.
        """
        self.allocate()
        self._unbound = len(self.allocations)
        for one in self.allocations:
            self.rejections.pop(one.podgroup, None)

    @property
    def bindable(self) -> Sequence[PodGroupAllocation]:
        """Return the admissions that are to be carried out."""
        return self.allocations[self._unbound :]

    def jobs_order(
        self, rows: Iterable[int], nomination_rank: Callable[[int, int], int] | None = None
    ) -> JobsOrderByQueues:
        """Return the order in which some units have their turns, by the *lateness* of queues."""
        victim_order = keys_by_queue(
            (self.snapshot.podgroups[row].queue, self.attempts[row].key) for row in rows
        )
        return JobsOrderByQueues(
            self.snapshot.queues,
            self.queue_order.key,
            self._requested,
            victim_order,
            nomination_rank,
        )

    def podgroup_key(self, row: int, at: int) -> PodGroupKey:
        """Return the place in its queue of a unit that stands so."""
        podgroup = self.snapshot.podgroups[row]
        return (*[of(podgroup, at) for of in self.policies.podgroup_order], row)

    def assigned(self, row: int) -> AssignedTasks:
        """Return what was placed of a unit so far."""
        return self._assigned.get(row, _NONE_ASSIGNED)

    def has_reserved_places(self, row: int) -> bool:
        """Say whether a unit would give up slots, which no other has."""
        for podset_tasks in self.attempts[row].tasks:
            if podset_tasks.podset.reserved_places and self.assigned(row).unused_places(
                podset_tasks.podset
            ):
                return True
        return False

    def attempt(self, row: int, *, is_pipelined: bool) -> bool:
        """Give a unit what it takes next, and what it can have beyond, if there is room.

        If it *waits*, then for others to go, though there be room at once.
        """
        if not self.place(row, is_pipelined=is_pipelined):
            return False
        self.place_elastic(row)
        return True

    def place(self, row: int, *, is_pipelined: bool) -> bool:
        """Give a unit what it takes next; what was told of it stands if there is no room."""
        report = self.rejections.get(row)
        if self._try(row, is_final=False, is_pipelined=is_pipelined):
            return True
        if report is not None:
            self.rejections[row] = report
        return False

    def awaits_own_releasing(self, row: int) -> bool:
        """Say whether what goes of its own queues is in the way of a unit."""
        return self._releasing.refusal(row, self.attempts[row].amounts, self.refusal) is not None

    def place_elastic(self, row: int) -> None:
        """Give a unit that was given something what it can have beyond."""
        while self._has_next_attempt(row) and self._try(row, is_final=True):
            pass

    def forget_failures(self) -> None:
        """Let everything be tried again: there is room that was not there."""
        self._failed_signatures.clear()

    def release(self, queue: int, amounts: Amounts) -> None:
        """Let a queue have less, whose pods were taken out of the ledger, and are going."""
        self.usage.refund(queue, amounts, is_non_preemptible=False)
        self._releasing.evict(queue, amounts)
        self.forget_failures()

    def refusal(
        self, usage: Usage, row: int, amounts: Amounts | None = None
    ) -> QuotaRefusal | None:
        """Say which bound of a queue is in the way of a unit, if its queues have so much.

        Of what it takes next, unless other *amounts* are given.
        """
        more = self.attempts[row].amounts if amounts is None else amounts
        for quota in self.policies.quotas:
            refusal = quota(usage, self.snapshot.podgroups[row], more)
            if refusal is not None:
                return refusal
        return None

    def stats(self) -> PlanStats:
        """Return what was done."""
        return PlanStats(len(self.bindable), len(self.rejections))

    def _attemptable(self) -> Iterator[int]:
        """Yield every unit that can be tried; say why others cannot."""
        for row, podgroup in enumerate(self.snapshot.podgroups):
            if not _is_pending(podgroup):
                continue
            tasks = tasks_to_allocate(podgroup.tree)
            prefilter_failure = podgroup.prefilter_failure or _elastic_failure(
                podgroup, tasks, _NONE_ASSIGNED
            )
            if prefilter_failure is not None and (
                tasks or prefilter_failure.reason < UnschedulableReason.PODS_MISSING
            ):
                self._reject(
                    row,
                    prefilter_failure.reason,
                    PreFilterDetails(prefilter_failure.message),
                    prefilter_failure.retry_on,
                )
                continue
            if not tasks or _is_only_reserving(podgroup, tasks):
                self._reject_for_members(row, podgroup)
                continue
            self.attempts[row] = self._attempt(
                row, tasks, _NONE_ASSIGNED, min_available_state(podgroup.tree)
            )
            self._pending[row] = sum([len(podset.pending) for podset in podsets_of(podgroup.tree)])
            yield row

    def _round(self, rows: list[int]) -> list[int]:
        """Give each unit a turn, and more to those that grow; return who failed."""
        failed = []
        first = len(self.allocations)
        jobs_order = self.jobs_order(
            rows, self._nominated_podgroups.rank if self._add_nominated(rows) else None
        )
        while (row := jobs_order.pop()) is not None:
            self._nominated_podgroups.attempted(row)
            if not self._try(row, is_final=len(self.allocations) == first):
                failed.append(row)
            elif self._has_next_attempt(row):
                self._add_nominated([row])
                self._reserve_nominated([row])
                jobs_order.push(self.attempts[row].key)
        return failed

    def _reserve_nominated(self, rows: list[int]) -> None:
        """Set aside what was promised to units that have no slots to go to."""
        if self._nominated_podgroups:
            self._nominated_capacity.reserve(
                (row, [self.attempts[row].signatures, *self._later_nominations(row)])
                for row in rows
                if self._nominated_podgroups.all_nominated(self.attempts[row].tasks)
                and not self.has_reserved_places(row)
            )

    def _later_nominations(self, row: int) -> Iterator[SignatureRuns]:
        """Yield the shapes of pods of a unit that were promised something beyond its next chunk."""
        tree, tasks = self.snapshot.podgroups[row].tree, self.attempts[row].tasks
        for pod in pending_after(tree, tasks, self.assigned(row)):
            signature = int(self.snapshot.pods.signature[pod])
            if self._nominated_podgroups.is_nominated(signature):
                yield ((signature, 1),)

    def _add_nominated(self, rows: list[int]) -> bool:
        """Take note of those who were promised something; say whether there are any."""
        nominated = self._nominated_podgroups
        return bool(nominated) and nominated.add_pending(
            row for row in rows if nominated.all_nominated(self.attempts[row].tasks)
        )

    def _try(self, row: int, *, is_final: bool, is_pipelined: bool = False) -> bool:
        placed = self._place(row, is_final=is_final, is_pipelined=is_pipelined)
        if placed is None:
            return False
        podgroup = self.snapshot.podgroups[row]
        self.usage.charge(
            podgroup.queue,
            self.attempts[row].amounts,
            is_non_preemptible=not podgroup.is_preemptible,
        )
        self._record(row, podgroup, placed)
        return True

    def _place(
        self, row: int, *, is_final: bool, is_pipelined: bool = False
    ) -> PodGroupAllocation | None:
        """Place what a unit takes next; None, and why is noted, if there is no room."""
        tasks, amounts, signatures, _ = self.attempts[row]
        if self._nominated_capacity.release(row):
            self.forget_failures()
        refusal = self.refusal(self.usage, row)
        if refusal is None and self._nominated_capacity:
            refusal = self._nominated_capacity.refusal(row, lambda: self.refusal(self.usage, row))
        if refusal is not None:
            self._reject_for_bounds(row, refusal)
            return None
        has_reserved_places = self.has_reserved_places(row)
        failed_key = self._nominated_capacity.access(row), signatures
        own = self._releasing.refusal(row, amounts, self.refusal)
        if not has_reserved_places and self._is_known_failure(failed_key, is_final=is_final):
            self._reject_for_nodes(row, self._failed_signatures[failed_key], own)
            return None
        is_pipelined = is_pipelined or self._releasing.must_pipeline(row, amounts, self.refusal)
        checkpoint = self.statement.checkpoint
        placed = self._place_tasks(row, tasks, is_pipelined=is_pipelined)
        if isinstance(placed, PlacementFailure):
            details = self._fit_errors(placed, signatures, is_final=is_final)
            if not has_reserved_places:
                self._failed_signatures[failed_key] = details
            self._reject_for_nodes(row, details, own)
        elif own is None:
            self._releasing.cover(row, placed, with_reserved_places=is_pipelined)
        elif not self._releasing.try_cover(row, placed, amounts, self.refusal):
            self.statement.roll_back(checkpoint)
            self._nominated_capacity.restore()
            self._reject_for_bounds(row, own)
            return None
        self._nominated_capacity.restore()
        return None if isinstance(placed, PlacementFailure) else placed

    def _place_tasks(
        self, row: int, tasks: Tasks, *, is_pipelined: bool
    ) -> PodGroupAllocation | PlacementFailure:
        """Place a unit; if need be where others of its queue were promised room."""
        assigned = self.assigned(row)
        placed = self.placer.place(row, tasks, assigned, is_pipelined=is_pipelined)
        if isinstance(placed, PlacementFailure) and self._nominated_capacity.may_use_lower_priority(
            row
        ):
            self.statement.roll_back(placed.checkpoint)
            self._nominated_capacity.release_lower_priority(row)
            placed = self.placer.place(row, tasks, assigned, is_pipelined=is_pipelined)
        return placed

    def _is_known_failure(
        self, failed_key: tuple[NominationAccess, SignatureRuns], *, is_final: bool
    ) -> bool:
        """Say whether these found no room, nothing has changed since, and why is known if asked."""
        return failed_key in self._failed_signatures and not (
            is_final and self._failed_signatures[failed_key] is None
        )

    def _fit_errors(
        self, failure: PlacementFailure, signatures: SignatureRuns, *, is_final: bool
    ) -> FitErrors | None:
        """Return the numbers of a failure that may be the last; undo what was placed before it."""
        if is_final:
            field = self.placer.ranking(failure.signature)
            return collect_fit_errors(self.statement, field, failure, signatures)
        self.statement.roll_back(failure.checkpoint)
        return None

    def _record(self, row: int, podgroup: PodGroupInfo, placed: PodGroupAllocation) -> None:
        is_first = row not in self._assigned and not placed.nominations and placed.binds
        if is_first and not any(podset.running for podset in podsets_of(podgroup.tree)):
            placed = PodGroupAllocation(row, placed.binds, (), placed.reservations, is_start=True)
        self.allocations.append(placed)
        self.rejections.pop(row, None)
        self._failed_signatures.clear()

    def _has_next_attempt(self, row: int) -> bool:
        """Say whether a unit that got some room wants more, and work out what."""
        tasks = self.attempts[row].tasks
        self._pending[row] -= sum([len(podset_tasks.pods) for podset_tasks in tasks])
        if not self._pending[row]:
            return False
        podgroup = self.snapshot.podgroups[row]
        assigned = self._assigned.setdefault(row, AssignedTasks())
        had_enough = row in self._elastic
        assigned.add(tasks)
        elastic_tasks = self._elastic.setdefault(row, ElasticTasks(podgroup.tree))
        more = elastic_tasks.next(assigned)
        if not more:
            self._reject_for_members(row, podgroup)
            return False
        prefilter_failure = _elastic_failure(podgroup, more, assigned)
        if prefilter_failure is not None:
            self._reject(
                row,
                prefilter_failure.reason,
                PreFilterDetails(prefilter_failure.message),
                prefilter_failure.retry_on,
            )
            return False
        at = (
            1 if had_enough else min_available_state(podgroup.tree, assigned)
        )  # what comes on top can be spared
        self.attempts[row] = self._attempt(row, more, assigned, at)
        return True

    def _attempt(
        self, row: int, tasks: Tasks, assigned: AssignedTasks, at: int
    ) -> PlacementAttempt:
        signatures = self.placer.signature_runs(tasks)
        amounts = self._amounts(tasks, signatures, assigned)
        key = self.podgroup_key(row, at)
        if self._nominated_podgroups:  # before others, but not before a larger priority
            first = min(1, len(key) - 1)
            key = (*key[:first], not self._nominated_podgroups.all_nominated(tasks), *key[first:])
        could = self._empty_cluster_fit.fits_empty_cluster(
            self.snapshot.podgroups[row].queue, amounts, signatures
        )
        return PlacementAttempt(tasks, amounts, signatures, (not could, *key))

    def _amounts(self, tasks: Tasks, requested: SignatureRuns, assigned: AssignedTasks) -> Amounts:
        """Return what a chunk adds to what its queue has: slots that are given up come off."""
        signatures = self.snapshot.signatures
        cpu, memory, gpu = charged(signatures, requested)
        for podset, pods, _ in tasks:
            if podset.reserved_places:
                for reserved_place in assigned.unused_places(podset)[: len(pods)]:
                    counted = signatures[reserved_place.signature].queue_request
                    cpu, memory, gpu = cpu - counted[0], memory - counted[1], gpu - counted[2]
        return cpu, memory, gpu

    def _reject_for_bounds(self, row: int, refusal: QuotaRefusal) -> None:
        retry_on = frozenset({f"queue:{refusal.details.queue}"})
        self._reject(row, refusal.reason, refusal.details, retry_on)

    def _reject_for_nodes(
        self, row: int, details: FitErrors | None, own: QuotaRefusal | None
    ) -> None:
        """Say that there was no room, or before that that it waits for what goes of its queues."""
        if own is not None:
            self._reject_for_bounds(row, own)
        elif details is not None:
            self._reject(row, details.reason, details, _ON_FREE_RESOURCES)

    def _reject_for_members(self, row: int, podgroup: PodGroupInfo) -> None:
        missing = tuple(
            IncompletePodSet(podset.name, _existing_pods(podset), podset.minimum, podset.gated)
            for podset in podsets_of(podgroup.tree)
            if not can_be_satisfied(podset)
        )
        self._reject(
            row, UnschedulableReason.PODS_MISSING, MissingPods(missing), frozenset({f"unit:{row}"})
        )

    def _reject(
        self,
        row: int,
        reason: UnschedulableReason,
        details: RejectionDetails,
        retry_on: frozenset[str],
    ) -> None:
        is_curable = isinstance(details, FitErrors) and details.is_resolvable
        self.rejections[row] = Rejection(row, reason, details, is_curable, retry_on)


def _elastic_failure(
    podgroup: PodGroupInfo, tasks: Tasks, assigned: AssignedTasks
) -> PreFilterFailure | None:
    return podgroup.elastic_failure if is_elastic(podgroup.tree, tasks, assigned) else None


def _existing_pods(podset: PodSet) -> int:
    return podset.running + podset.succeeded + len(podset.pending) + podset.gated


def _is_only_reserving(podgroup: PodGroupInfo, tasks: Tasks) -> bool:
    """Say whether a unit of which nothing is there would take slots that nothing holds."""
    return not podgroup.has_running and not any(podset_tasks.pods for podset_tasks in tasks)


def _is_pending(podgroup: PodGroupInfo) -> bool:
    """Say whether a unit wants anything: pods wait, or it runs and slots of it are missing."""
    tree = podgroup.tree
    if isinstance(tree, PodSet) and not tree.pending and not tree.expected:
        return False  # it is so for most: there are whole clusters of them
    if has_pending(tree):
        return True
    if (
        not podgroup.has_running
        or podgroup.prefilter_failure is not None
        or not has_expected(podgroup.tree)
    ):
        return False  # of pods that neither wait nor come no slot is missing
    return bool(tasks_to_allocate(podgroup.tree)) and not is_satisfied(podgroup.tree)
