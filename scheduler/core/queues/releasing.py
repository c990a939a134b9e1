"""What terminating pods of a queue still have on nodes, and which pods of the queue wait for it.

A queue is not charged for terminating pods, and they are on their nodes until they are gone.
Without this a queue would have more on nodes than its limit while its pods terminate.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.failures import QueueBoundExceeded
from scheduler.core.model.plugins import QuotaRefusal
from scheduler.core.model.podgroup import podsets_of
from scheduler.core.model.resources import RESOURCE_KINDS, UNBOUND, Amounts
from scheduler.core.model.result import PodGroupAllocation
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.model.usage import Usage

__all__ = ["ReleasingPods"]

QuotaCheck: TypeAlias = Callable[
    [Usage, int, Amounts], QuotaRefusal | None
]  # of a unit, for so much
_CoveredAmount: TypeAlias = tuple[list[int], int, int]  # of what, which kind, and how much


class _PipelinedPlace(NamedTuple):
    """Where something waits for room."""

    node: int
    amounts: Amounts
    is_nominated: bool = False  # it was promised that node before


class ReleasingPods:
    """By queue, on all levels, and by node."""

    def __init__(self, snapshot: Snapshot, usage: Usage) -> None:
        self._snapshot: Final = snapshot
        self._usage: Final = usage
        self._is_bounded: Final = bool((snapshot.queues.limit != UNBOUND).any())
        self._uncovered: Final = usage.emptied()  # of what goes, that nobody of the queue waits for
        self._uncovered_by_node: Final[
            dict[tuple[int, int], list[int]]
        ] = {}  # of that, by queue and node
        self._evicted: Final = usage.emptied()  # what was taken in this plan
        releasing = snapshot.queues.releasing if self._is_bounded else ()
        self._is_any = bool(releasing)
        for queue, node, amounts in releasing:
            self._uncovered.charge(queue, amounts, is_non_preemptible=False)
            for q in usage.paths[queue]:
                here = self._uncovered_by_node.setdefault((q, node), [0, 0, 0])
                here[:] = [has + more for has, more in zip(here, amounts, strict=True)]

    def evict(self, queue: int, amounts: Amounts) -> None:
        """Take note that pods of a queue go in this plan; below zero that they stay."""
        if self._is_bounded:
            self._evicted.charge(queue, amounts, is_non_preemptible=False)
            self._is_any = True

    def refusal(self, row: int, amounts: Amounts, request: QuotaCheck) -> QuotaRefusal | None:
        """Ask for bounds as if a unit had so much beside what goes of its queues already.

        That must be in the way, and not only what is there.
        """
        refusal = self._is_any and self._refusal_with(row, amounts, request, self._uncovered)
        if not refusal:
            return None  # it is asked for every unit, and mostly nothing goes
        details = [self._with_releasing(it) for it in (refusal.details, *refusal.details.others)]
        details = [it for it in details if it.releasing]
        if not details:
            return None
        return refusal._replace(details=details[0]._replace(others=tuple(details[1:])))

    def must_pipeline(self, row: int, amounts: Amounts, request: QuotaCheck) -> bool:
        """Say whether bounds would be passed if a unit were there before all that goes is gone."""
        return self._is_any and bool(
            self._refusal_with(row, amounts, request, self._uncovered, self._evicted)
        )

    def try_cover(
        self, row: int, placed: PodGroupAllocation, amounts: Amounts, request: QuotaCheck
    ) -> bool:
        """Say whether a unit may wait for so much where it was placed; if so take note of it.

        It is asked beside what nobody waits for then. A resource of which all that it takes is
        what goes of its own queues is not looked at.
        """
        taken: list[_CoveredAmount] = []
        is_pipelined = self._cover(
            row, self._pipelined_places(row, placed, with_reserved_places=True), taken
        )
        more = [
            0 if most >= amount else amount
            for amount, most in zip(amounts, is_pipelined, strict=True)
        ]
        if self._refusal_with(row, (more[0], more[1], more[2]), request, self._uncovered) is None:
            return True
        for of, kind, amount in taken:
            of[kind] += amount
        return False

    def cover(self, row: int, placed: PodGroupAllocation, *, with_reserved_places: bool) -> None:
        """Take note of what of a unit waits for room, its slots as well if all of it does."""
        if self._is_any:
            self._cover(
                row,
                self._pipelined_places(row, placed, with_reserved_places=with_reserved_places),
                [],
            )

    def _refusal_with(
        self, row: int, amounts: Amounts, request: QuotaCheck, *beside: Usage
    ) -> QuotaRefusal | None:
        """Ask for bounds as if queues had so much beside; None if there is nothing."""
        path = self._usage.paths[self._snapshot.podgroups[row].queue]
        some = [one for one in beside if any(any(one.allocated[q]) for q in path)]
        for one in some:
            self._usage.add(path, one, 1)
        refusal = request(self._usage, row, amounts) if some else None
        for one in some:
            self._usage.add(path, one, -1)
        return refusal

    def _with_releasing(self, details: QueueBoundExceeded) -> QueueBoundExceeded:
        """Tell what is going apart from what is there."""
        releasing = self._uncovered.allocated[details.queue][details.kind]
        return details._replace(allocated=details.allocated - releasing, releasing=releasing)

    def _pipelined_places(
        self, row: int, placed: PodGroupAllocation, *, with_reserved_places: bool
    ) -> list[_PipelinedPlace]:
        """Return the pods of a unit that are nominated, and then its new slots."""
        snapshot = self._snapshot
        seats = []
        for pod, node in placed.nominations:
            signature = snapshot.signatures[snapshot.pods.signature[pod]]
            seats.append(
                _PipelinedPlace(node, signature.queue_request, signature.nominated_node == node)
            )
        if with_reserved_places and placed.reservations:
            later = {
                podset.name: podset.expected_signature
                for podset in podsets_of(snapshot.podgroups[row].tree)
            }
            for podset, node, number, _ in placed.reservations:
                seats += [
                    _PipelinedPlace(node, snapshot.signatures[later[podset]].queue_request)
                ] * number
        return seats

    def _cover(
        self, row: int, seats: list[_PipelinedPlace], taken: list[_CoveredAmount]
    ) -> list[int]:
        """Let seats wait for what goes, and note what that takes; return the least of any queue."""
        least: list[list[int]] = []
        for q in self._usage.paths[self._snapshot.podgroups[row].queue]:
            left, found = self._uncovered.allocated[q], [0, 0, 0]
            for node, amounts, is_nominated in seats:
                here = self._uncovered_by_node.get((q, node), [0, 0, 0])
                for kind in RESOURCE_KINDS:
                    most = left[kind] if is_nominated else min(left[kind], here[kind])
                    amount = min(amounts[kind], most)
                    found[kind] += amount
                    for of, less in ((left, amount), (here, min(amount, here[kind]))):
                        of[kind] -= less
                        taken.append((of, kind, less))
            least.append(found)
        return [min(of) for of in zip(*least, strict=True)]
