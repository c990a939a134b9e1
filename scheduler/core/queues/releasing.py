"""What terminating pods of a queue still have on nodes, and which pods of the queue wait for it.

A queue is not charged for terminating pods, and they use their nodes until they are deleted.
Without this a queue would have more on nodes than its limit while its pods terminate.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.podgroup import podsets_of
from scheduler.core.model.rejections import QueueBoundExceeded
from scheduler.core.model.resources import RESOURCE_KINDS, UNBOUND, Amounts
from scheduler.core.model.result import PodGroupAllocation, QuotaRefusal
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage

# Of a PodGroup, for so much.
QuotaCheck: TypeAlias = Callable[[Usage, int, Amounts], QuotaRefusal | None]
_CoveredAmount: TypeAlias = tuple[list[int], int, int]  # a row, a kind, and how much of it


class _PipelinedCharge(NamedTuple):
    """What a pod that waits for what is being released is charged, and on which node."""

    node: int
    amounts: Amounts
    is_nominated: bool = False  # the node was nominated for it before


class ReleasingPods:
    def __init__(
        self, snapshot: Snapshot, usage: Usage, charge_on: Callable[[int, int], Amounts]
    ) -> None:
        """*charge_on* returns what a queue is charged for a pod of a signature on a node."""
        self._snapshot: Final = snapshot
        self._charge_on: Final = charge_on
        self._usage: Final = usage
        self._is_bounded: Final = bool((snapshot.queues.limit != UNBOUND).any())
        self._uncovered: Final = usage.emptied()  # releasing, and no pod of the queue waits for it
        self._uncovered_by_node: Final[dict[tuple[int, int], list[int]]] = {}  # by queue and node
        self._evicted: Final = usage.emptied()  # what was evicted in this plan
        releasing = snapshot.queues.releasing if self._is_bounded else ()
        self.is_any = bool(releasing)
        for queue, node, amounts in releasing:
            self._uncovered.charge(queue, amounts, is_non_preemptible=False)
            for q in usage.paths[queue]:
                here = self._uncovered_by_node.setdefault((q, node), [0, 0, 0])
                here[:] = [has + more for has, more in zip(here, amounts, strict=True)]

    def evict(self, queue: int, amounts: Amounts) -> None:
        """Note that pods of a queue are evicted in this plan; below zero that they are not."""
        if self._is_bounded:
            self._evicted.charge(queue, amounts, is_non_preemptible=False)
            self.is_any = True

    def refusal(self, row: int, amounts: Amounts, check_quota: QuotaCheck) -> QuotaRefusal | None:
        """Check bounds as if a PodGroup had so much beside what its queues are releasing already.

        Only bounds that what is being released exceeds are returned.
        """
        refusal = self.is_any and self._refusal_with(row, amounts, check_quota, self._uncovered)
        if not refusal:
            return None  # checked for every PodGroup, and mostly nothing is releasing
        details = [self._with_releasing(it) for it in (refusal.details, *refusal.details.others)]
        details = [it for it in details if it.releasing]
        if not details:
            return None
        return refusal._replace(details=details[0]._replace(others=tuple(details[1:])))

    def must_pipeline(self, row: int, amounts: Amounts, check_quota: QuotaCheck) -> bool:
        """Say whether bounds would be exceeded if a PodGroup started before all is released."""
        return self.is_any and bool(
            self._refusal_with(row, amounts, check_quota, self._uncovered, self._evicted)
        )

    def try_cover(
        self, row: int, placed: PodGroupAllocation, amounts: Amounts, check_quota: QuotaCheck
    ) -> bool:
        """Say whether a PodGroup may wait for so much where it was placed; if so note it.

        Bounds are checked beside what is not covered then. A resource of which it takes only what
        its own queues are releasing is not checked.
        """
        taken: list[_CoveredAmount] = []
        covered = self._cover(
            row, self._pipelined_places(row, placed, with_reserved_places=True), taken
        )
        more = [
            0 if most >= amount else amount for amount, most in zip(amounts, covered, strict=True)
        ]
        if (
            self._refusal_with(row, (more[0], more[1], more[2]), check_quota, self._uncovered)
            is None
        ):
            return True
        for uncovered, kind, amount in taken:
            uncovered[kind] += amount
        return False

    def cover(self, row: int, placed: PodGroupAllocation, *, with_reserved_places: bool) -> None:
        """Note what a PodGroup waits for, its reserved places as well if all of it waits."""
        if self.is_any:
            self._cover(
                row,
                self._pipelined_places(row, placed, with_reserved_places=with_reserved_places),
                [],
            )

    def _refusal_with(
        self, row: int, amounts: Amounts, check_quota: QuotaCheck, *others: Usage
    ) -> QuotaRefusal | None:
        """Check bounds as if queues had other usages as well; None if those are empty."""
        path = self._usage.paths[self._snapshot.podgroups[row].queue]
        some = [one for one in others if any(any(one.allocated[q]) for q in path)]
        for one in some:
            self._usage.add(path, one, 1)
        refusal = check_quota(self._usage, row, amounts) if some else None
        for one in some:
            self._usage.add(path, one, -1)
        return refusal

    def _with_releasing(self, details: QueueBoundExceeded) -> QueueBoundExceeded:
        releasing = self._uncovered.allocated[details.queue][details.kind]
        return details._replace(allocated=details.allocated - releasing, releasing=releasing)

    def _pipelined_places(
        self, row: int, placed: PodGroupAllocation, *, with_reserved_places: bool
    ) -> list[_PipelinedCharge]:
        """Return the nominated pods of a PodGroup, and then its new reserved places."""
        snapshot = self._snapshot
        places = []
        for pod, node, _ in placed.nominations:
            signature = int(snapshot.pods.signature[pod])
            is_nominated = snapshot.signatures[signature].nominated_node == node
            places.append(_PipelinedCharge(node, self._charge_on(signature, node), is_nominated))
        if with_reserved_places and placed.reservations:
            expected_signatures = {
                podset.name: podset.expected_signature
                for podset in podsets_of(snapshot.podgroups[row].tree)
            }
            for podset, node, number, _ in placed.reservations:
                charge = self._charge_on(expected_signatures[podset], node)
                places += [_PipelinedCharge(node, charge)] * number
        return places

    def _cover(
        self, row: int, places: list[_PipelinedCharge], taken: list[_CoveredAmount]
    ) -> list[int]:
        """Let places wait for what is releasing, noting it; return the least of any queue."""
        least: list[list[int]] = []
        for q in self._usage.paths[self._snapshot.podgroups[row].queue]:
            left, covered = self._uncovered.allocated[q], [0, 0, 0]
            for node, amounts, is_nominated in places:
                here = self._uncovered_by_node.get((q, node), [0, 0, 0])
                for kind in RESOURCE_KINDS:
                    most = left[kind] if is_nominated else min(left[kind], here[kind])
                    amount = min(amounts[kind], most)
                    covered[kind] += amount
                    for uncovered, less in ((left, amount), (here, min(amount, here[kind]))):
                        uncovered[kind] -= less
                        taken.append((uncovered, kind, less))
            least.append(covered)
        return [min(amounts) for amounts in zip(*least, strict=True)]
