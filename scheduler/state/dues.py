"""Which queue each kin charges, and what gangs owe beyond the pods that they have."""

from collections import Counter
from typing import Final, NamedTuple

from scheduler.core.model import NONE, Ints, PreFilterFailure, ResourceKind
from scheduler.state.bars import has_started, requests_nothing
from scheduler.state.charges import QueueTotals
from scheduler.state.gang import PodGroupRecord
from scheduler.state.kin import PodClass
from scheduler.state.standing import PodGroupAttributes
from scheduler.state.view import BuildContext
from trainer_kai.api.meta import Key

__all__ = ["QueueUsageTable"]


class _PodGroupUsage(NamedTuple):
    """Of one gang: what its slots have, and what it asks for besides its pods."""

    queue: int
    is_non_preemptible: bool
    reserved: list[int]  # numbers of any size
    expected: list[int]


class QueueUsageTable:
    """By gang, of those that owe anything."""

    def __init__(self) -> None:
        self._by_podgroup: Final[dict[Key, _PodGroupUsage]] = {}

    def remove(self, key: Key) -> None:
        """Forget a gang."""
        self._by_podgroup.pop(key, None)

    def read_standalone(
        self, context: BuildContext, pod_class: PodClass, prefilter_failure: PreFilterFailure | None
    ) -> None:
        """Say what pods on their own charge; *bar* is in the way of those that wait."""
        class_table, attributes = (
            context.pod_table.class_table,
            context.attribute_resolver.of_standalone(pod_class),
        )
        class_table.queue_row[pod_class.number] = context.queues.row_of(attributes.queue)
        class_table.is_non_preemptible[pod_class.number] = not attributes.is_preemptible
        class_table.is_requested[pod_class.number] = not requests_nothing(prefilter_failure)

    def read_misplaced(self, context: BuildContext, pod_class: PodClass) -> None:
        """Say what pods charge that run without a place in the group that they name."""
        class_table, attributes = (
            context.pod_table.class_table,
            context.attribute_resolver.of_misplaced(pod_class),
        )
        class_table.queue_row[pod_class.number] = context.queues.row_of(attributes.queue)
        class_table.is_non_preemptible[pod_class.number] = class_table.is_requested[
            pod_class.number
        ] = False

    def read(
        self,
        context: BuildContext,
        record: PodGroupRecord,
        prefilter_failure: PreFilterFailure | None,
    ) -> None:
        """Say what the pods of a gang charge, and what it owes; *bar* is in its way."""
        class_table, attributes = (
            context.pod_table.class_table,
            context.attribute_resolver.of_podgroup(record),
        )
        queue, is_non_preemptible = (
            _charged_queue(context, record, attributes),
            not attributes.is_preemptible,
        )
        is_requested = not record.is_suspended and not requests_nothing(prefilter_failure)
        for pod_class in record.refusals:
            self.read_misplaced(context, pod_class)
        for pod_class in record.pod_classes:
            (
                class_table.queue_row[pod_class.number],
                class_table.is_non_preemptible[pod_class.number],
            ) = queue, is_non_preemptible
            class_table.is_requested[pod_class.number] = (
                is_requested and class_table.is_counted[pod_class.number]
            )
        self._by_podgroup.pop(record.key, None)
        if (
            queue != NONE
            and record.is_active
            and (record.expected or context.reservations.of_podgroup(record))
        ):
            reserved, expected = Counter[int](), Counter[int]()  # pods by kin
            unclaimed: dict[str, int] = {}
            for podset, reservation in context.reservations.of_podgroup(record).items():
                reserved[reservation.pod_class.number] += len(reservation.places)
                claiming = record.pending_pods(podset, context.pod_table)[: len(reservation.places)]
                unclaimed[podset] = len(reservation.places) - len(claiming)
                for pod_row in (
                    claiming if is_requested else ()
                ):  # what it waits for is its own slot
                    expected[int(context.pod_table.class_number[pod_row])] -= 1
            for podset, (pod_class, _) in (
                record.expected.items() if is_requested and record.has_started_or_pending else ()
            ):
                to_come = record.expected_count(podset) - unclaimed.get(podset, 0)
                expected[pod_class.number] += max(to_come, 0)
            queue_requests = context.encoding.requests.queue_request
            usage = _PodGroupUsage(
                queue,
                is_non_preemptible,
                _sum(reserved, queue_requests),
                _sum(expected, queue_requests),
            )
            if any(usage.reserved) or any(usage.expected):
                self._by_podgroup[record.key] = usage

    def add_to(self, charges: QueueTotals) -> None:
        """Charge what is owed."""
        for usage in self._by_podgroup.values():
            charges.add_reserved(
                usage.queue, usage.reserved, is_non_preemptible=usage.is_non_preemptible
            )
            charges.add_requested(usage.queue, usage.expected)


def _charged_queue(
    context: BuildContext, record: PodGroupRecord, attributes: PodGroupAttributes
) -> int:
    """Return the queue that pods charge; none that they may not start in.

    What is on nodes of a gang that has not begun there is ending, and ran in another queue.
    """
    queue = attributes.queue
    pair = Key(record.key.namespace, queue)
    if not has_started(record) and context.access_rule.is_refused(
        pair, context.queues.access(queue)
    ):
        return NONE
    if record.group is None:
        return context.queues.first_usable_row(queue, attributes.fallback_queue)
    return context.queues.row_of(queue)


def _sum(pods: Counter[int], queue_requests: Ints) -> list[int]:
    """Return what so many pods of each kin are charged."""
    rows = [(queue_requests[pod_class].tolist(), count) for pod_class, count in pods.items()]
    return [sum(row[kind] * count for row, count in rows) for kind in ResourceKind]
