"""The session: the working state of one plan, and the operations that keep it consistent.

Every action takes it: it holds the snapshot and the policies, what is allocated and evicted so
far, what each pending PodGroup takes next, and why PodGroups were rejected.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.eviction.failures import EvictionFailures
from scheduler.core.eviction.victim_order import LostWork, Victims
from scheduler.core.eviction.victims import (
    DisruptionAllowance,
    MinRuntimeGuard,
    ReclaimableTotals,
    Victim,
    VictimPool,
    has_min_runtime,
)
from scheduler.core.gang import (
    NONE_ASSIGNED,
    AssignedTasks,
    ElasticTasks,
    SignatureRuns,
    Tasks,
    can_be_satisfied,
    is_elastic,
    min_available_state,
)
from scheduler.core.model.podgroup import PodGroupInfo, PodSet, podsets_of
from scheduler.core.model.rejections import (
    ClusterEvent,
    FitErrors,
    IncompletePodSet,
    MissingPods,
    PreFilterFailure,
    QueueBoundExceeded,
    Rejection,
    prefilter_rejection,
)
from scheduler.core.model.resources import NONE, Amounts
from scheduler.core.model.result import (
    Eviction,
    PodGroupAllocation,
    Policies,
    QuotaRefusal,
    Relocation,
)
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage, charged
from scheduler.core.nodes.capacity import EmptyClusterFit, PodCapacities
from scheduler.core.nodes.devices import memory_pods, most_saved
from scheduler.core.nodes.fit_errors import collect_fit_errors
from scheduler.core.nodes.nominated import NominatedCapacity, NominatedPodGroups, NominationAccess
from scheduler.core.nodes.placement import PlacementFailure, Placer
from scheduler.core.nodes.ranking import MemorySubsets
from scheduler.core.nodes.statement import Statement
from scheduler.core.queues.fair_share import fair_share
from scheduler.core.queues.order import JobsOrderByQueues, PodGroupKey, QueueOrder, keys_by_queue
from scheduler.core.queues.reclaimable import unevictable_usage
from scheduler.core.queues.releasing import ReleasingPods
from trainer_kai.api.reasons import UnschedulableReason

_ON_FREE_RESOURCES: Final = ClusterEvent.RESOURCES_FREED | ClusterEvent.FOREIGN_POD_ASSIGNED

_FailedSignatures: TypeAlias = dict[tuple[NominationAccess, SignatureRuns], FitErrors | None]


class PlacementAttempt(NamedTuple):
    tasks: Tasks
    amounts: Amounts
    signatures: SignatureRuns
    key: PodGroupKey
    least_amounts: Amounts  # on the GPUs with the most memory, if it requests memory of GPUs

    @property
    def depends_on_nodes(self) -> bool:
        return self.least_amounts != self.amounts

    @property
    def fits_empty_cluster(self) -> bool:
        """Say whether it is within all limits and fits if no pods are on the nodes."""
        return not self.key[0]


class Attempts:
    """The next attempt of each pending PodGroup, and what was placed of it before."""

    def __init__(
        self, policies: Policies, placer: Placer, usage: Usage, nominated: NominatedPodGroups
    ) -> None:
        self._snapshot: Final = placer.statement.snapshot
        self._policies: Final = policies
        self._placer: Final = placer
        self._empty_cluster_fit: Final = EmptyClusterFit(placer, usage)
        self._nominated: Final = nominated
        self._has_memory_requests: Final = any(
            it.least_queue_request is not None for it in self._snapshot.signatures
        )
        self._attempts: Final[dict[int, PlacementAttempt]] = {}
        self._assigned: Final[dict[int, AssignedTasks]] = {}
        self._elastic: Final[dict[int, ElasticTasks]] = {}
        self._pending: Final[dict[int, int]] = {}  # by PodGroup, pods that are not placed

    def __getitem__(self, row: int) -> PlacementAttempt:
        return self._attempts[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._attempts)

    def requested(self, row: int) -> Amounts:
        return self._attempts[row].amounts

    def assigned(self, row: int) -> AssignedTasks:
        return self._assigned.get(row, NONE_ASSIGNED)

    def is_first(self, row: int) -> bool:
        return row not in self._assigned

    def has_reserved_places(self, row: int) -> bool:
        """Say whether a PodGroup would use reserved places, which no other has."""
        for podset_tasks in self._attempts[row].tasks:
            if podset_tasks.podset.reserved_places and self.assigned(row).unused_places(
                podset_tasks.podset
            ):
                return True
        return False

    def add(self, row: int, tasks: Tasks) -> None:
        tree = self._snapshot.podgroups[row].tree
        self._attempts[row] = self._attempt(row, tasks, NONE_ASSIGNED, min_available_state(tree))
        self._pending[row] = sum([len(podset.pending) for podset in podsets_of(tree)])

    def count_pending(self, row: int) -> int:
        tasks = self._attempts[row].tasks
        self._pending[row] -= sum([len(podset_tasks.pods) for podset_tasks in tasks])
        return self._pending[row]

    def advance(self, row: int) -> Rejection | None:
        """Prepare the attempt after one that was placed; return why there is none."""
        podgroup = self._snapshot.podgroups[row]
        assigned = self._assigned.setdefault(row, AssignedTasks())
        was_elastic = row in self._elastic
        assigned.add(self._attempts[row].tasks)
        elastic_tasks = self._elastic.setdefault(row, ElasticTasks(podgroup.tree))
        more = elastic_tasks.next(assigned)
        if not more:
            return missing_pods(row, podgroup)
        failure = elastic_failure(podgroup, more, assigned)
        if failure is not None:
            return prefilter_rejection(row, failure)
        # Elastic pods can be spared.
        available_state = 1 if was_elastic else min_available_state(podgroup.tree, assigned)
        self._attempts[row] = self._attempt(row, more, assigned, available_state)
        return None

    def _attempt(
        self, row: int, tasks: Tasks, assigned: AssignedTasks, available_state: int
    ) -> PlacementAttempt:
        signatures = self._placer.signature_runs(tasks)
        amounts = self._amounts(tasks, signatures, assigned)
        least = amounts
        if self._has_memory_requests:
            cpu, memory, gpu = amounts
            least = cpu, memory, gpu - most_saved(self._snapshot, signatures)
        key = podgroup_key(self._snapshot, self._policies, row, available_state)
        if self._nominated:  # before others, but not before a larger priority
            first = min(1, len(key) - 1)
            key = (*key[:first], not self._nominated.all_nominated(tasks), *key[first:])
        fits_empty_cluster = self._empty_cluster_fit.fits_empty_cluster(
            self._snapshot.podgroups[row].queue, least, signatures
        )
        return PlacementAttempt(tasks, amounts, signatures, (not fits_empty_cluster, *key), least)

    def _amounts(self, tasks: Tasks, requested: SignatureRuns, assigned: AssignedTasks) -> Amounts:
        """Return what tasks add to the usage of their queue: used reserved places come off."""
        signatures = self._snapshot.signatures
        cpu, memory, gpu = charged(signatures, requested)
        for podset, pods, _ in tasks:
            if podset.reserved_places:
                for reserved_place in assigned.unused_places(podset)[: len(pods)]:
                    counted = signatures[reserved_place.signature].queue_request
                    cpu, memory, gpu = cpu - counted[0], memory - counted[1], gpu - counted[2]
        return cpu, memory, gpu


class Session:
    def __init__(
        self, snapshot: Snapshot, policies: Policies, evictable_gpus: int | None = None
    ) -> None:
        """Evictions end after *evictable_gpus*, in thousandths."""
        self.snapshot: Final = snapshot
        self.policies: Final = policies
        # What is decided.
        self.allocations: Final[list[PodGroupAllocation]] = []
        self.evictions: Final[list[Eviction]] = []
        self.relocations: Final[list[Relocation]] = []
        self.rejections: Final[dict[int, Rejection]] = {}
        self.failures: Final = EvictionFailures()
        self.stats: Final = Counter[str]()  # of searches for victims
        # PodGroups: placed or relocated in this plan, these by evictions, and those evicted.
        self.placed: Final[set[int]] = set()
        self.preemptors: Final[set[int]] = set()
        self.evicted: Final[set[int]] = set()
        # Queues.
        queues, total = snapshot.queues, snapshot.total
        self.fair_shares: Final = fair_share(queues, total)
        self.usage: Final = Usage(queues)
        self.usage.add_unevictable(unevictable_usage(snapshot))
        self.queue_order: Final = QueueOrder(queues, self.usage, self.fair_shares, total)
        # Nodes.
        self.statement: Final = Statement(snapshot, spreads_shares=policies.spreads_shares)
        charge_on = self.statement.devices.charge_on
        self.releasing: Final = ReleasingPods(snapshot, self.usage, charge_on)
        self.placer: Final = Placer(self.statement, policies)
        self.capacities: Final = PodCapacities(self.placer)
        self.nominated_podgroups: Final = NominatedPodGroups(snapshot, self.usage)
        self.nominated_capacity: Final = NominatedCapacity(snapshot, self.statement, self.usage)
        self.attempts: Final = Attempts(policies, self.placer, self.usage, self.nominated_podgroups)
        # Victims.
        self.has_min_runtime: Final = has_min_runtime(policies.min_runtime, snapshot.queues)
        self.allowance: Final = DisruptionAllowance(snapshot.budgets)
        self.lost_work: Final = LostWork(snapshot)
        self._evictable_gpus = evictable_gpus
        self._totals: ReclaimableTotals | None = None
        self._victims: Victims | None = None
        # Signatures that did not fit since the last allocation, by what is reserved that
        # the PodGroup may use; with fit errors if they are final.
        self._failed_signatures: Final[_FailedSignatures] = {}
        # By signatures: the fit errors if one of them fits on no empty node.
        self._unplaceable: Final[dict[SignatureRuns, FitErrors | None]] = {}

    def jobs_order(
        self, rows: Iterable[int], nomination_rank: Callable[[int, int], int] | None = None
    ) -> JobsOrderByQueues:
        """*nomination_rank* comes before the order of queues."""
        attempts = self.attempts
        keys = keys_by_queue(
            (self.snapshot.podgroups[row].queue, attempts[row].key) for row in rows
        )
        return JobsOrderByQueues(
            self.snapshot.queues, self.queue_order.key, attempts.requested, keys, nomination_rank
        )

    def place(
        self, row: int, *, is_final: bool, is_pipelined: bool = False, is_relocating: bool = False
    ) -> bool:
        """Place the next attempt of a PodGroup, if it fits and its queue may use so much.

        If not, the reason is recorded if it *is_final*. With *is_pipelined* the pods wait for
        evicted pods, even if there are idle resources. With *is_relocating* other pods have been
        placed beside it on trial, and no other nodes are tried.
        """
        placed = self._place(
            row, is_final=is_final, is_pipelined=is_pipelined, is_relocating=is_relocating
        )
        if isinstance(placed, PodGroupAllocation):
            self._record(row, placed)
            return True
        if is_final and placed is not None:
            self.rejections[row] = self._with_node_reason_first(placed)
        return False

    def place_elastic(self, row: int) -> None:
        while self.next_attempt(row) and self.place(row, is_final=True):
            pass

    def next_attempt(self, row: int) -> bool:
        """Prepare the next attempt of a PodGroup that was placed; say whether there is one."""
        if not self.attempts.count_pending(row):
            return False
        rejection = self.attempts.advance(row)
        if rejection is None:
            return True
        self.rejections[row] = rejection
        return False

    def evict(self, members: Iterable[Victim]) -> None:
        """Evict pods and reserved places in the statement; the caller may roll it back."""
        for member in members:
            if member.node != NONE:
                self.statement.evict(member.node, member.signature, member.slots)
        self._failed_signatures.clear()

    def refund(self, queue: int, amounts: Amounts) -> None:
        """Refund a queue for evicted pods, which are releasing; or charge it with less than zero.

        A signature that failed may be within its bounds now.
        """
        self.usage.refund(queue, amounts, is_non_preemptible=False)
        self.releasing.evict(queue, amounts)
        self._failed_signatures.clear()

    def record(self, eviction: Eviction) -> None:
        self.evictions.append(eviction)
        self.evicted.update(eviction.podgroups)
        if self._evictable_gpus is not None:
            self._evictable_gpus -= eviction.gpus

    @property
    def is_limit_reached(self) -> bool:
        return self._evictable_gpus is not None and self._evictable_gpus <= 0

    def protect(self, row: int) -> None:
        self.placed.add(row)
        self.failures.forget(row)
        if self._victims is not None:
            self._victims.remove_podgroup(row)

    def reclaimable_totals(self) -> ReclaimableTotals:
        if self._totals is None:
            self._totals = ReclaimableTotals(self.snapshot, self.placed)
        return self._totals

    def victims(self) -> Victims:
        if self._victims is None:
            snapshot, configured = self.snapshot, self.policies.min_runtime
            key = partial(podgroup_key, snapshot, self.policies)
            pool = VictimPool(snapshot, self.placed, key, self.allowance)
            guard = MinRuntimeGuard(snapshot, pool, self.usage.paths, configured)
            self._victims = Victims(pool, guard, snapshot.queues, self.queue_order)
        return self._victims

    def refusal(
        self, usage: Usage, row: int, amounts: Amounts | None = None
    ) -> QuotaRefusal | None:
        """Return the bound of a queue that a PodGroup would exceed with a usage.

        With its next tasks, unless other *amounts* are given.
        """
        more = self.attempts[row].least_amounts if amounts is None else amounts
        for quota in self.policies.quotas:
            refusal = quota(usage, self.snapshot.podgroups[row], more)
            if refusal is not None:
                return refusal
        return None

    def _place(
        self, row: int, *, is_final: bool, is_pipelined: bool, is_relocating: bool
    ) -> PodGroupAllocation | Rejection | None:
        """Place the next tasks of a PodGroup, or return the rejection, if that is known."""
        attempt = self.attempts[row]
        amounts, signatures = attempt.least_amounts, attempt.signatures
        if self.nominated_capacity.release(row):
            self._failed_signatures.clear()
        refusal = self.refusal(self.usage, row)
        if refusal is None and self.nominated_capacity:
            refusal = self.nominated_capacity.refusal(row, lambda: self.refusal(self.usage, row))
        if refusal is not None:
            return _quota_rejection(row, refusal)
        has_reserved_places = self.attempts.has_reserved_places(row)
        failed_key = self.nominated_capacity.access(row), signatures
        releasing_refusal = self.releasing.refusal(row, amounts, self.refusal)
        if not has_reserved_places and self._is_known_failure(failed_key, is_final=is_final):
            return _node_rejection(row, self._failed_signatures[failed_key], releasing_refusal)
        is_pipelined = is_pipelined or self.releasing.must_pipeline(row, amounts, self.refusal)
        placed = self._place_tasks(row, is_pipelined=is_pipelined, is_relocating=is_relocating)
        if isinstance(placed, PlacementFailure):
            details = self._fit_errors(placed, signatures, is_final=is_final)
            if not has_reserved_places:
                self._failed_signatures[failed_key] = details
            self.nominated_capacity.restore()
            return _node_rejection(row, details, releasing_refusal)
        self.nominated_capacity.restore()
        return _quota_rejection(row, placed) if isinstance(placed, QuotaRefusal) else placed

    def _with_node_reason_first(self, rejection: Rejection) -> Rejection:
        """Put the nodes before the bound of a queue if a pod fits on no empty node.

        No resources that the queue releases would let it start, nor a higher limit alone.
        """
        attempt = self.attempts[rejection.podgroup]
        is_bound = isinstance(rejection.details, QueueBoundExceeded)
        if not is_bound or attempt.fits_empty_cluster:
            return rejection
        if attempt.signatures not in self._unplaceable:
            self._unplaceable[attempt.signatures] = self._errors_of_empty_nodes(attempt.signatures)
        details = self._unplaceable[attempt.signatures]
        if details is None:
            return rejection
        return replace(
            _fit_rejection(rejection.podgroup, details),
            retry_on=_ON_FREE_RESOURCES | rejection.retry_on,
            queue_rejection=rejection,
        )

    def _errors_of_empty_nodes(self, signatures: SignatureRuns) -> FitErrors | None:
        for signature, _ in signatures:
            ranking = self.placer.ranking(signature)
            if not ranking.fits_empty.any():
                failure = PlacementFailure(signature, 0, self.statement.checkpoint)
                return collect_fit_errors(self.statement, ranking, failure, signatures)
        return None

    def _place_tasks(
        self, row: int, *, is_pipelined: bool, is_relocating: bool
    ) -> PodGroupAllocation | PlacementFailure | QuotaRefusal:
        """Place tasks; if need be on what is reserved for lower priorities of the queue."""
        place = self._place_within_bounds
        placed = place(row, is_pipelined=is_pipelined, is_relocating=is_relocating)
        if isinstance(placed, PlacementFailure) and self.nominated_capacity.may_use_lower_priority(
            row
        ):
            self.statement.roll_back(placed.checkpoint)
            self.nominated_capacity.release_lower_priority(row)
            placed = place(row, is_pipelined=is_pipelined, is_relocating=is_relocating)
        return placed

    def _place_within_bounds(
        self, row: int, *, is_pipelined: bool, is_relocating: bool
    ) -> PodGroupAllocation | PlacementFailure | QuotaRefusal:
        """Place tasks where their queue may have so much, beside what it is releasing.

        That depends on the nodes if they request memory of GPUs: then those with larger GPUs are
        tried until they are charged little enough.
        """
        attempt, checkpoint = self.attempts[row], self.statement.checkpoint
        if not (attempt.depends_on_nodes or self.releasing.is_any):  # true of most
            assigned = self.attempts.assigned(row)
            return self.placer.place(row, attempt.tasks, assigned, is_pipelined=is_pipelined)
        subsets, waits = MemorySubsets(self.snapshot), is_pipelined
        refusals: list[QuotaRefusal] = []
        while True:
            allocated_now = self.placer.allocated_now.get(row)
            placed = self.placer.place(
                row,
                attempt.tasks,
                self.attempts.assigned(row),
                is_pipelined=waits,
                subset_of=subsets.subset_of,
            )
            if isinstance(placed, PlacementFailure):
                if not refusals:
                    return placed
                self.statement.roll_back(checkpoint)
                return refusals[0]
            must_wait, refusal = self._check_charge(row, placed, is_pipelined=waits)
            if not must_wait and refusal is None:
                return placed
            self.statement.roll_back(checkpoint)
            self.placer.restore_allocated_now(row, allocated_now)
            waits = must_wait or is_pipelined
            if refusal is None:
                continue
            refusals.append(refusal)
            if is_relocating or not attempt.depends_on_nodes:
                return refusals[0]
            pods = memory_pods(self.snapshot, attempt.tasks, placed)
            subsets.exclude_smallest(node for _, node, _ in pods)

    def _check_charge(
        self, row: int, placed: PodGroupAllocation, *, is_pipelined: bool
    ) -> tuple[bool, QuotaRefusal | None]:
        """Say whether an allocation must wait for what its queues are releasing, or why it fails.

        If it may stay as it is, what it waits for is noted.
        """
        amounts, refusal = self._charged_amounts(row, placed), None
        if self.attempts[row].depends_on_nodes:

            def check_quota() -> QuotaRefusal | None:
                return self.refusal(self.usage, row, amounts)

            refusal = check_quota() or self.nominated_capacity.refusal(row, check_quota)
            if refusal is not None:
                return False, refusal
            if not is_pipelined and self.releasing.must_pipeline(row, amounts, self.refusal):
                return True, None
        refusal = self.releasing.refusal(row, amounts, self.refusal)
        if refusal is None:
            self.releasing.cover(row, placed, with_reserved_places=is_pipelined)
            return False, None
        may_wait = self.releasing.try_cover(row, placed, amounts, self.refusal)
        return False, None if may_wait else refusal

    def _charged_amounts(self, row: int, placed: PodGroupAllocation) -> Amounts:
        cpu, memory, gpu = self.attempts[row].amounts
        if self.attempts[row].depends_on_nodes:
            pods = memory_pods(self.snapshot, self.attempts[row].tasks, placed)
            gpu += self.statement.devices.charge_difference(pods)
        return cpu, memory, gpu

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

    def _record(self, row: int, placed: PodGroupAllocation) -> None:
        podgroup = self.snapshot.podgroups[row]
        self.usage.charge(
            podgroup.queue,
            self._charged_amounts(row, placed),
            is_non_preemptible=not podgroup.is_preemptible,
        )
        is_first = self.attempts.is_first(row) and not placed.nominations and placed.binds
        if is_first and not any(podset.running for podset in podsets_of(podgroup.tree)):
            placed = PodGroupAllocation(row, placed.binds, (), placed.reservations, is_start=True)
        self.allocations.append(placed)
        self.rejections.pop(row, None)
        self.protect(row)
        self._failed_signatures.clear()


def podgroup_key(
    snapshot: Snapshot, policies: Policies, row: int, available_state: int
) -> PodGroupKey:
    podgroup = snapshot.podgroups[row]
    return (*[of(podgroup, available_state) for of in policies.podgroup_order], row)


def elastic_failure(
    podgroup: PodGroupInfo, tasks: Tasks, assigned: AssignedTasks = NONE_ASSIGNED
) -> PreFilterFailure | None:
    return podgroup.elastic_failure if is_elastic(podgroup.tree, tasks, assigned) else None


def missing_pods(row: int, podgroup: PodGroupInfo) -> Rejection:
    missing = tuple(
        IncompletePodSet(podset.name, _existing_pods(podset), podset.minimum, podset.gated)
        for podset in podsets_of(podgroup.tree)
        if not can_be_satisfied(podset)
    )
    return Rejection(
        row,
        UnschedulableReason.PODS_MISSING,
        MissingPods(missing),
        is_resolvable=False,
        # A new pod of it is retried on `ANY`; a pod that ends may be of an older attempt.
        retry_on=ClusterEvent.RESOURCES_FREED,
    )


def _quota_rejection(row: int, refusal: QuotaRefusal) -> Rejection:
    return Rejection(
        row,
        refusal.reason,
        refusal.details,
        is_resolvable=False,
        retry_on=ClusterEvent.RESOURCES_FREED,
    )


def _node_rejection(
    row: int, details: FitErrors | None, releasing_refusal: QuotaRefusal | None
) -> Rejection | None:
    """Reject for want of nodes, or first for what its own queues are releasing."""
    if releasing_refusal is not None:
        return _quota_rejection(row, releasing_refusal)
    return None if details is None else _fit_rejection(row, details)


def _fit_rejection(row: int, details: FitErrors) -> Rejection:
    return Rejection(row, details.reason, details, details.is_resolvable, _ON_FREE_RESOURCES)


def _existing_pods(podset: PodSet) -> int:
    return podset.running + podset.succeeded + len(podset.pending) + podset.gated
