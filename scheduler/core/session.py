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
from scheduler.core.model.cluster_events import ClusterEvent
from scheduler.core.model.plugins import Policies, QuotaRefusal
from scheduler.core.model.podgroup import PodGroupInfo, PodSet, podsets_of
from scheduler.core.model.rejections import (
    FitErrors,
    IncompletePodSet,
    MissingPods,
    PreFilterFailure,
    Rejection,
    RejectionDetails,
    UnschedulableReason,
)
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
_ON_FREE_RESOURCES: Final = ClusterEvent.RESOURCES_FREED | ClusterEvent.FOREIGN_POD_ASSIGNED


class PlacementAttempt(NamedTuple):
    """What a PodGroup takes when it is attempted next."""

    tasks: Tasks
    amounts: Amounts
    signatures: SignatureRuns
    key: PodGroupKey


class Session:
    """What a plan has decided so far, and what is next of each PodGroup."""

    def __init__(self, snapshot: Snapshot, policies: Policies, fair_shares: Ints) -> None:
        self.allocations: Final[list[PodGroupAllocation]] = []
        self._unbound_count = 0  # of the allocations, the first so many are not carried out
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
        attempts: Final[dict[int, PlacementAttempt]] = {}
        self.attempts: Final = attempts
        # No method: that would be a reference cycle.
        self._requested: Final = lambda row: attempts[row].amounts
        self._nominated_podgroups: Final = NominatedPodGroups(snapshot, self.usage)
        self._nominated_capacity: Final = NominatedCapacity(snapshot, self.statement, self.usage)
        self._releasing: Final = ReleasingPods(snapshot, self.usage)
        self._assigned: dict[int, AssignedTasks] = {}
        self._elastic: dict[int, ElasticTasks] = {}
        self._pending: dict[int, int] = {}  # by PodGroup, pods that are not placed
        # Signatures for which there was no room since the last allocation, by what is reserved that
        # the PodGroup may use; with fit errors if they are final.
        self._failed_signatures: dict[tuple[NominationAccess, SignatureRuns], FitErrors | None] = {}

    def allocate(self) -> None:
        """Attempt all pending PodGroups, round after round.

        In the first round what is nominated is reserved; after it there may be more room.
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
        """Place PodGroups as `allocate` does, and bind none: for a plan without that action.

        A PodGroup that fits keeps its room from others, is not bound, and evicts no pods.
        """
        self.allocate()
        self._unbound_count = len(self.allocations)
        for one in self.allocations:
            self.rejections.pop(one.podgroup, None)

    @property
    def bindable(self) -> Sequence[PodGroupAllocation]:
        """Return the allocations that are to be carried out."""
        return self.allocations[self._unbound_count :]

    def jobs_order(
        self, rows: Iterable[int], nomination_rank: Callable[[int, int], int] | None = None
    ) -> JobsOrderByQueues:
        """Return the order in which PodGroups are attempted; *nomination_rank* comes first."""
        keys = keys_by_queue(
            (self.snapshot.podgroups[row].queue, self.attempts[row].key) for row in rows
        )
        return JobsOrderByQueues(
            self.snapshot.queues,
            self.queue_order.key,
            self._requested,
            keys,
            nomination_rank,
        )

    def podgroup_key(self, row: int, available_state: int) -> PodGroupKey:
        """Return the key of a PodGroup in its queue, for a min_available_state."""
        podgroup = self.snapshot.podgroups[row]
        return (*[of(podgroup, available_state) for of in self.policies.podgroup_order], row)

    def assigned(self, row: int) -> AssignedTasks:
        """Return what was placed of a PodGroup so far."""
        return self._assigned.get(row, _NONE_ASSIGNED)

    def has_reserved_places(self, row: int) -> bool:
        """Say whether a PodGroup would use reserved places, which no other has."""
        for podset_tasks in self.attempts[row].tasks:
            if podset_tasks.podset.reserved_places and self.assigned(row).unused_places(
                podset_tasks.podset
            ):
                return True
        return False

    def attempt(self, row: int, *, is_pipelined: bool) -> bool:
        """Place the next tasks of a PodGroup, and its elastic ones, if there is room.

        With *is_pipelined* it waits for evicted pods, even if there are idle resources.
        """
        if not self.place(row, is_pipelined=is_pipelined):
            return False
        self.place_elastic(row)
        return True

    def place(self, row: int, *, is_pipelined: bool) -> bool:
        """Place the next tasks of a PodGroup; its rejection stays as it is if they do not fit."""
        rejection = self.rejections.get(row)
        if self._try(row, is_final=False, is_pipelined=is_pipelined):
            return True
        if rejection is not None:
            self.rejections[row] = rejection
        return False

    def awaits_own_releasing(self, row: int) -> bool:
        """Say whether what its own queues are releasing is in the way of a PodGroup."""
        return self._releasing.refusal(row, self.attempts[row].amounts, self.refusal) is not None

    def place_elastic(self, row: int) -> None:
        """Place more pods of a PodGroup as long as they fit."""
        while self._has_next_attempt(row) and self._try(row, is_final=True):
            pass

    def forget_failures(self) -> None:
        """Let all signatures be tried again: more is free."""
        self._failed_signatures.clear()

    def release(self, queue: int, amounts: Amounts) -> None:
        """Refund a queue for pods that were evicted in the statement, and are releasing."""
        self.usage.refund(queue, amounts, is_non_preemptible=False)
        self._releasing.evict(queue, amounts)
        self.forget_failures()

    def refusal(
        self, usage: Usage, row: int, amounts: Amounts | None = None
    ) -> QuotaRefusal | None:
        """Return the bound of a queue that a PodGroup would exceed with a usage.

        With its next tasks, unless other *amounts* are given.
        """
        more = self.attempts[row].amounts if amounts is None else amounts
        for quota in self.policies.quotas:
            refusal = quota(usage, self.snapshot.podgroups[row], more)
            if refusal is not None:
                return refusal
        return None

    def stats(self) -> PlanStats:
        """Return the counts of the plan."""
        return PlanStats(len(self.bindable), len(self.rejections))

    def _attemptable(self) -> Iterator[int]:
        """Yield the pending PodGroups that can be attempted; reject the others."""
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
                    prefilter_failure,
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
        """Attempt each PodGroup, and again while it is placed; return those that failed."""
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
        """Reserve what is nominated for PodGroups without reserved places."""
        if self._nominated_podgroups:
            self._nominated_capacity.reserve(
                (row, [self.attempts[row].signatures, *self._later_nominations(row)])
                for row in rows
                if self._nominated_podgroups.all_nominated(self.attempts[row].tasks)
                and not self.has_reserved_places(row)
            )

    def _later_nominations(self, row: int) -> Iterator[SignatureRuns]:
        """Yield the signatures of nominated pods of a PodGroup beyond its next tasks."""
        tree, tasks = self.snapshot.podgroups[row].tree, self.attempts[row].tasks
        for pod in pending_after(tree, tasks, self.assigned(row)):
            signature = int(self.snapshot.pods.signature[pod])
            if self._nominated_podgroups.is_nominated(signature):
                yield ((signature, 1),)

    def _add_nominated(self, rows: list[int]) -> bool:
        """Add the PodGroups that are nominated; say whether there are any."""
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
        """Place the next tasks of a PodGroup; None, and a rejection, if they do not fit."""
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
        releasing_refusal = self._releasing.refusal(row, amounts, self.refusal)
        if not has_reserved_places and self._is_known_failure(failed_key, is_final=is_final):
            self._reject_for_nodes(row, self._failed_signatures[failed_key], releasing_refusal)
            return None
        is_pipelined = is_pipelined or self._releasing.must_pipeline(row, amounts, self.refusal)
        checkpoint = self.statement.checkpoint
        placed = self._place_tasks(row, tasks, is_pipelined=is_pipelined)
        if isinstance(placed, PlacementFailure):
            details = self._fit_errors(placed, signatures, is_final=is_final)
            if not has_reserved_places:
                self._failed_signatures[failed_key] = details
            self._reject_for_nodes(row, details, releasing_refusal)
        elif releasing_refusal is None:
            self._releasing.cover(row, placed, with_reserved_places=is_pipelined)
        elif not self._releasing.try_cover(row, placed, amounts, self.refusal):
            self.statement.roll_back(checkpoint)
            self._nominated_capacity.restore()
            self._reject_for_bounds(row, releasing_refusal)
            return None
        self._nominated_capacity.restore()
        return None if isinstance(placed, PlacementFailure) else placed

    def _place_tasks(
        self, row: int, tasks: Tasks, *, is_pipelined: bool
    ) -> PodGroupAllocation | PlacementFailure:
        """Place tasks; if need be on what is reserved for lower priorities of the queue."""
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
        """Say whether these did not fit and nothing has changed since; with the reason if final."""
        return failed_key in self._failed_signatures and not (
            is_final and self._failed_signatures[failed_key] is None
        )

    def _fit_errors(
        self, failure: PlacementFailure, signatures: SignatureRuns, *, is_final: bool
    ) -> FitErrors | None:
        """Return the fit errors of a failure if it may be the last; roll the statement back."""
        if is_final:
            ranking = self.placer.ranking(failure.signature)
            return collect_fit_errors(self.statement, ranking, failure, signatures)
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
        """Prepare the next attempt of a PodGroup that was placed; say whether there is one."""
        tasks = self.attempts[row].tasks
        self._pending[row] -= sum([len(podset_tasks.pods) for podset_tasks in tasks])
        if not self._pending[row]:
            return False
        podgroup = self.snapshot.podgroups[row]
        assigned = self._assigned.setdefault(row, AssignedTasks())
        was_elastic = row in self._elastic
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
                prefilter_failure,
                prefilter_failure.retry_on,
            )
            return False
        available_state = (
            1 if was_elastic else min_available_state(podgroup.tree, assigned)
        )  # elastic pods can be spared
        self.attempts[row] = self._attempt(row, more, assigned, available_state)
        return True

    def _attempt(
        self, row: int, tasks: Tasks, assigned: AssignedTasks, available_state: int
    ) -> PlacementAttempt:
        signatures = self.placer.signature_runs(tasks)
        amounts = self._amounts(tasks, signatures, assigned)
        key = self.podgroup_key(row, available_state)
        if self._nominated_podgroups:  # before others, but not before a larger priority
            first = min(1, len(key) - 1)
            key = (*key[:first], not self._nominated_podgroups.all_nominated(tasks), *key[first:])
        fits_empty_cluster = self._empty_cluster_fit.fits_empty_cluster(
            self.snapshot.podgroups[row].queue, amounts, signatures
        )
        return PlacementAttempt(tasks, amounts, signatures, (not fits_empty_cluster, *key))

    def _amounts(self, tasks: Tasks, requested: SignatureRuns, assigned: AssignedTasks) -> Amounts:
        """Return what tasks add to the usage of their queue: used reserved places come off."""
        signatures = self.snapshot.signatures
        cpu, memory, gpu = charged(signatures, requested)
        for podset, pods, _ in tasks:
            if podset.reserved_places:
                for reserved_place in assigned.unused_places(podset)[: len(pods)]:
                    counted = signatures[reserved_place.signature].queue_request
                    cpu, memory, gpu = cpu - counted[0], memory - counted[1], gpu - counted[2]
        return cpu, memory, gpu

    def _reject_for_bounds(self, row: int, refusal: QuotaRefusal) -> None:
        self._reject(row, refusal.reason, refusal.details, ClusterEvent.RESOURCES_FREED)

    def _reject_for_nodes(
        self, row: int, details: FitErrors | None, releasing_refusal: QuotaRefusal | None
    ) -> None:
        """Reject for want of nodes, or first for what its own queues are releasing."""
        if releasing_refusal is not None:
            self._reject_for_bounds(row, releasing_refusal)
        elif details is not None:
            self._reject(row, details.reason, details, _ON_FREE_RESOURCES)

    def _reject_for_members(self, row: int, podgroup: PodGroupInfo) -> None:
        missing = tuple(
            IncompletePodSet(podset.name, _existing_pods(podset), podset.minimum, podset.gated)
            for podset in podsets_of(podgroup.tree)
            if not can_be_satisfied(podset)
        )
        # A new pod of it is retried on `ANY`; a pod that ends may be of an older attempt.
        retry_on = ClusterEvent.RESOURCES_FREED
        self._reject(row, UnschedulableReason.PODS_MISSING, MissingPods(missing), retry_on)

    def _reject(
        self,
        row: int,
        reason: UnschedulableReason,
        details: RejectionDetails,
        retry_on: ClusterEvent,
    ) -> None:
        is_resolvable = isinstance(details, FitErrors) and details.is_resolvable
        self.rejections[row] = Rejection(row, reason, details, is_resolvable, retry_on)


def _elastic_failure(
    podgroup: PodGroupInfo, tasks: Tasks, assigned: AssignedTasks
) -> PreFilterFailure | None:
    return podgroup.elastic_failure if is_elastic(podgroup.tree, tasks, assigned) else None


def _existing_pods(podset: PodSet) -> int:
    return podset.running + podset.succeeded + len(podset.pending) + podset.gated


def _is_only_reserving(podgroup: PodGroupInfo, tasks: Tasks) -> bool:
    """Say whether tasks would only reserve places while no pod of the PodGroup runs."""
    return not podgroup.has_running and not any(podset_tasks.pods for podset_tasks in tasks)


def _is_pending(podgroup: PodGroupInfo) -> bool:
    """Say whether a PodGroup has pending pods, or runs and lacks reserved places."""
    tree = podgroup.tree
    if isinstance(tree, PodSet) and not tree.pending and not tree.expected:
        return False  # true of most, in some clusters of all
    if has_pending(tree):
        return True
    if (
        not podgroup.has_running
        or podgroup.prefilter_failure is not None
        or not has_expected(podgroup.tree)
    ):
        return False  # without pending or expected pods no place is missing
    return bool(tasks_to_allocate(podgroup.tree)) and not is_satisfied(podgroup.tree)
