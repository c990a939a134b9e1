"""The session: the working state of one plan, and the operations that keep it consistent.

Every action takes it: it holds the snapshot and the policies, what is allocated and evicted so
far, what each pending PodGroup takes next, and why PodGroups were rejected.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, TypeAlias

from scheduler.core.attempts import Attempts, PlacementAttempt, podgroup_key
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
from scheduler.core.gang import SignatureRuns, is_satisfied
from scheduler.core.model.rejections import (
    ClusterEvent,
    FitErrors,
    QueueBoundExceeded,
    Rejection,
    RoomShortage,
)
from scheduler.core.model.resources import NONE, UNBOUND, Amounts
from scheduler.core.model.result import (
    Eviction,
    PodGroupAllocation,
    Policies,
    QuotaRefusal,
    Relocation,
)
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.nodes.capacity import PodCapacities
from scheduler.core.nodes.fit_errors import collect_fit_errors, domain_errors, room_shortage
from scheduler.core.nodes.nominated import NominatedCapacity, NominatedPodGroups, NominationAccess
from scheduler.core.nodes.placement import (
    MUST_WAIT,
    MustWait,
    PlacementFailure,
    PlacementRequest,
    Placer,
)
from scheduler.core.nodes.reserved_places import KeptRoom
from scheduler.core.nodes.strategies.strategy import EVERYWHERE, RequestKey
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.core.queues.fair_share import fair_share
from scheduler.core.queues.order import JobsOrderByQueues, QueueOrder, keys_by_queue
from scheduler.core.queues.reclaimable import unevictable_usage
from scheduler.core.queues.releasing import ReleasingPods
from trainer_kai.api.reasons import UnschedulableReason

_ON_FREE_RESOURCES: Final = ClusterEvent.RESOURCES_FREED | ClusterEvent.FOREIGN_POD_ASSIGNED

_FailedKey: TypeAlias = tuple[NominationAccess, bool, RequestKey]
# Requests that did not fit since the last allocation, by what is reserved that the PodGroup may
# use, and whether room is kept; with fit errors if they are final.
_FailedRequests: TypeAlias = dict[_FailedKey, FitErrors | None]


class Session:
    def __init__(
        self, snapshot: Snapshot, policies: Policies, evictable_gpus: int | None = None
    ) -> None:
        """Evictions end after *evictable_gpus*, in thousandths."""
        self.snapshot: Final = snapshot
        self.policies: Final = policies
        # What is decided.
        self.nodes: Final = WorkingNodes(snapshot, policies)
        self.allocations: Final = self.nodes.allocations
        self.evictions: Final[list[Eviction]] = []
        self.relocations: Final[list[Relocation]] = []
        self.rejections: Final[dict[int, Rejection]] = {}
        self.heads: Final[dict[int, int]] = {}  # by strict queue, of the last round
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
        self.statement: Final = self.nodes.statement
        self.releasing: Final = ReleasingPods(snapshot, self.usage, self.nodes.charges.on)
        self.placer: Final = Placer(self.nodes, policies)
        self.capacities: Final = PodCapacities(self.placer)
        self.nominated_podgroups: Final = NominatedPodGroups(snapshot, self.usage)
        self.nominated_capacity: Final = NominatedCapacity(self.nodes, self.usage)
        self.kept: Final = KeptRoom(snapshot, self.nodes.reserved, self.usage)
        self.attempts: Final = Attempts(policies, self.placer, self.usage, self.nominated_podgroups)
        # Victims.
        self.has_min_runtime: Final = has_min_runtime(policies.min_runtime, snapshot.queues)
        self.allowance: Final = DisruptionAllowance(snapshot.budgets)
        self.lost_work: Final = LostWork(snapshot)
        self._evictable_gpus = evictable_gpus
        self._totals: ReclaimableTotals | None = None
        self._victims: Victims | None = None
        self._failed_requests: Final[_FailedRequests] = {}
        # The fit errors if a pod fits on no empty node.
        self._unplaceable: Final[dict[RequestKey, FitErrors | None]] = {}

    @cached_property
    def running_workloads(self) -> frozenset[str]:
        """Return the workloads of which a PodGroup runs: what they still lack is no new start."""
        podgroups = self.snapshot.podgroups
        return frozenset(it.workload for it in podgroups if it.has_running and it.workload)

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
        self,
        row: int,
        *,
        is_final: bool,
        request: PlacementRequest | None = None,
    ) -> bool:
        """Place the next attempt of a PodGroup, if it fits and its queue may use so much.

        If not, the reason is recorded if it *is_final*. Unless there is a *request* for it, its
        tasks start at once where they can.
        """
        place = self._place_beside_kept if self.kept.is_held else self._place
        placed = place(row, request, is_final=is_final)
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
                self.statement.evict(member.node, member.signature, member.held)
        self._failed_requests.clear()

    def refund(self, queue: int, amounts: Amounts) -> None:
        """Refund a queue for evicted pods, which are releasing; or charge it with less than zero.

        A request that failed may be within its bounds now.
        """
        self.usage.refund(queue, amounts, is_non_preemptible=False)
        self.releasing.evict(queue, amounts)
        self._failed_requests.clear()

    def record(self, eviction: Eviction) -> None:
        self.evictions.append(eviction)
        self.evicted.update(eviction.podgroups)
        if self._evictable_gpus is not None:
            self._evictable_gpus -= eviction.limited_gpus

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

    def _place_beside_kept(
        self, row: int, request: PlacementRequest | None, *, is_final: bool
    ) -> PodGroupAllocation | Rejection | None:
        """Place the next tasks of a PodGroup, on room that is kept only if it may take that."""
        kept = self.kept
        if row != kept.row:
            placed = self._place(row, request, is_final=is_final)
            if isinstance(placed, PodGroupAllocation) or not self.may_take_kept(row):
                return placed
        kept.release()
        placed = self._place(row, request, is_final=is_final)
        if row == kept.row and isinstance(placed, PodGroupAllocation):
            kept.end()
        else:
            kept.restore()
        return placed

    def may_take_kept(self, row: int) -> bool:
        """Say whether a PodGroup may take the room that is kept, for itself or for another one.

        Replacements of PodGroups that run may, larger priorities of its queue, queues within their
        quota, and what ends by force before the planned start; never what only grows.
        """
        kept, snapshot, attempts = self.kept, self.snapshot, self.attempts
        podgroup, owner = snapshot.podgroups[row], snapshot.podgroups[kept.row]
        if row == kept.row:
            return True
        if is_satisfied(podgroup.tree, attempts.assigned(row)):
            return False
        if podgroup.has_running or attempts.has_reserved_places(row):
            return True
        if snapshot.now < podgroup.ends_at <= kept.plan.planned_at:
            return True
        if podgroup.queue == owner.queue:
            return podgroup.priority > owner.priority
        shared = self.usage.paths[owner.queue]
        return all(
            most == UNBOUND or has + amount <= most
            for q in self.usage.paths[podgroup.queue]
            if q not in shared
            for amount, has, most in zip(
                attempts[row].amounts, self.usage.allocated[q], self.usage.quota[q], strict=True
            )
        )

    def next_refusal(self, row: int) -> QuotaRefusal | None:
        """Return the first bound in the way of the next attempt, also by what is reserved."""
        return (
            self.refusal(self.usage, row)
            or self.nominated_capacity.refusal(row, lambda: self.refusal(self.usage, row))
            or self.releasing.refusal(row, self.attempts[row].least_amounts, self.refusal)
        )

    def missing_room(self, row: int) -> RoomShortage | None:
        """Return what the next attempt lacks, if that is known without an attempt."""
        attempt = self.attempts[row]
        if attempt.strategy is not EVERYWHERE:
            return None
        ranking = self.placer.ranking(attempt.signatures[0][0])
        return room_shortage(self.nodes, ranking, attempt.signatures)

    def failed_placement(self, row: int) -> FitErrors | None:
        """Return why the next attempt fits on no nodes, whatever its queues allow.

        Nothing is placed.
        """
        request, placer = self.attempts.request(row), self.placer
        checkpoint, before = self.statement.checkpoint, placer.allocated_now.get(row)
        placed = placer.place(request)
        if not isinstance(placed, PlacementFailure):
            placer.undo(row, checkpoint, before)
            return None
        details = self._fit_errors(placed, request, self.attempts[row].signatures)
        self.statement.roll_back(placed.checkpoint)
        return details

    def _place(
        self, row: int, request: PlacementRequest | None, *, is_final: bool
    ) -> PodGroupAllocation | Rejection | None:
        """Place the next tasks of a PodGroup, or return the rejection, if that is known."""
        attempt = self.attempts[row]
        amounts = attempt.least_amounts
        if self.nominated_capacity.release(row):
            self._failed_requests.clear()
        refusal = self.refusal(self.usage, row)
        if refusal is None and self.nominated_capacity:
            refusal = self.nominated_capacity.refusal(row, lambda: self.refusal(self.usage, row))
        if refusal is not None:
            return _quota_rejection(row, refusal)
        has_reserved_places = self.attempts.has_reserved_places(row)
        access = self.nominated_capacity.access(row)
        failed_key = access, self.kept.is_held, attempt.request_key
        releasing_refusal = self.releasing.refusal(row, amounts, self.refusal)
        if not has_reserved_places and failed_key in self._failed_requests:
            details = self._failed_requests[failed_key]
            if not (is_final and details is None):
                return _node_rejection(row, details, releasing_refusal)
        if request is None:
            must_pipeline = self.releasing.must_pipeline(row, amounts, self.refusal)
            request = self.attempts.request(row, is_pipelined=must_pipeline)
        placed = self._place_tasks(row, request)
        if isinstance(placed, PlacementFailure):
            details = self._fit_errors(placed, request, attempt.signatures) if is_final else None
            self.statement.roll_back(placed.checkpoint)
            if not has_reserved_places and request.pinned is None:
                self._failed_requests[failed_key] = details
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
        if attempt.request_key not in self._unplaceable:
            self._unplaceable[attempt.request_key] = self._errors_of_empty_nodes(
                rejection.podgroup, attempt
            )
        details = self._unplaceable[attempt.request_key]
        if details is None:
            return rejection
        return replace(
            _fit_rejection(rejection.podgroup, details),
            retry_on=_ON_FREE_RESOURCES | rejection.retry_on,
            queue_rejection=rejection,
        )

    def _errors_of_empty_nodes(self, row: int, attempt: PlacementAttempt) -> FitErrors | None:
        for signature, _ in attempt.signatures:
            ranking = self.placer.ranking(signature, attempt.strategy.reach(signature))
            if not ranking.fits_empty.any():
                failure = PlacementFailure(signature, 0, self.statement.checkpoint)
                return collect_fit_errors(self.nodes, ranking, failure, attempt.signatures)
        errors = domain_errors(self.nodes, self.attempts.request(row))
        return errors if errors is not None and not errors.is_resolvable else None

    def _place_tasks(
        self, row: int, request: PlacementRequest
    ) -> PodGroupAllocation | PlacementFailure | QuotaRefusal:
        """Place tasks; if need be on what is reserved for lower priorities of the queue."""
        check = None
        # Of most it is known before they are placed what they are charged, and nothing is released.
        if self.attempts[row].depends_on_nodes or self.releasing.is_any:
            check = partial(self._check_charge, row)
        placed = self.placer.place(request, check)
        if isinstance(placed, PlacementFailure) and self.nominated_capacity.may_use_lower_priority(
            row
        ):
            self.statement.roll_back(placed.checkpoint)
            self.nominated_capacity.release_lower_priority(row)
            placed = self.placer.place(request, check)
        return placed

    def _check_charge(
        self,
        row: int,
        placed: PodGroupAllocation,
        is_pipelined: bool,
    ) -> QuotaRefusal | MustWait | None:
        """Check that the queues of a PodGroup may have it there, beside what they are releasing.

        If it may stay as it is, what it waits for is noted.
        """
        amounts = self._charged_amounts(row, placed)
        if self.attempts[row].depends_on_nodes:
            refusal = self._check_quota(row, amounts, is_pipelined=is_pipelined)
            if refusal is not None:
                return refusal
        releasing = self.releasing.refusal(row, amounts, self.refusal)
        if releasing is None:
            self.releasing.cover(row, placed, with_reserved_places=is_pipelined)
            return None
        may_wait = self.releasing.try_cover(row, placed, amounts, self.refusal)
        return None if may_wait else releasing

    def _check_quota(
        self, row: int, amounts: Amounts, *, is_pipelined: bool
    ) -> QuotaRefusal | MustWait | None:
        """Check the bounds again, since it was not known before what it is charged."""

        def check_quota() -> QuotaRefusal | None:
            return self.refusal(self.usage, row, amounts)

        refusal = check_quota() or self.nominated_capacity.refusal(row, check_quota)
        if refusal is not None:
            return refusal
        must_wait = not is_pipelined and self.releasing.must_pipeline(row, amounts, self.refusal)
        return MUST_WAIT if must_wait else None

    def _charged_amounts(self, row: int, placed: PodGroupAllocation) -> Amounts:
        attempt = self.attempts[row]
        if not attempt.depends_on_nodes:
            return attempt.amounts
        return self.nodes.charges.of(attempt.amounts, attempt.tasks, placed)

    def _fit_errors(
        self, failure: PlacementFailure, request: PlacementRequest, signatures: SignatureRuns
    ) -> FitErrors:
        """Return the fit errors of a failure, and roll the statement back.

        Where pods must be together, what would be in the way otherwise is reported first, unless no
        domain is large enough even when empty.
        """
        unrestricted = request.strategy.unrestricted
        if unrestricted is None:
            ranking = self.placer.ranking(failure.signature, failure.subset)
            return collect_fit_errors(self.nodes, ranking, failure, signatures)
        self.statement.roll_back(failure.checkpoint)
        errors = domain_errors(self.nodes, request)
        found = self.placer.failure_in(request, unrestricted)
        if errors is not None and (found is None or not errors.counts):
            self.statement.roll_back(failure.checkpoint)
            return errors
        found = found or failure  # too many alternatives were left
        ranking = self.placer.ranking(found.signature, found.subset)
        details = collect_fit_errors(self.nodes, ranking, found, signatures)
        if errors is None or errors.is_resolvable:
            return details
        return details if details.reason == UnschedulableReason.NO_NODE_MATCHES else errors

    def _record(self, row: int, placed: PodGroupAllocation) -> None:
        podgroup = self.snapshot.podgroups[row]
        self.usage.charge(
            podgroup.queue,
            self._charged_amounts(row, placed),
            is_non_preemptible=not podgroup.is_preemptible,
        )
        self.allocations.append(placed)
        self.rejections.pop(row, None)
        self.protect(row)
        self._failed_requests.clear()


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
