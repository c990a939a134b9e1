"""What queues use and request: pods, reserved places and expected pods."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.rejections import PreFilterFailure
from scheduler.core.model.resources import NONE, Ints, ResourceKind, exact, sums
from scheduler.core.model.snapshot import ReleasingAmount
from scheduler.state.podgroups.attributes import PodGroupAttributes
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import PENDING, RELEASING, RUNNING, STUCK_RELEASING, PodTable
from scheduler.state.pods.requests import PodRequests
from scheduler.state.snapshot.prefilter import BuildContext, has_started, requests_nothing
from trainer_kai.api.meta import Key


class QueueTotals:
    """What each queue itself uses and requests, [queue][kind], without its descendants.

    Integers of any size: they are cut when the descendants are added up, and not before.
    """

    def __init__(
        self, queue_count: int, pod_table: PodTable, pod_counts: Ints, requests: PodRequests
    ) -> None:
        """Charge running and pending pods, and terminating pods that are stuck.

        *pod_counts* are [pod class, state]; there are *queue_count* queues.
        """
        queue_requests = requests.queue_request
        class_table, size = pod_table.class_table, len(pod_counts)
        stuck_rows = _rows_in_state(pod_table, STUCK_RELEASING)
        stuck = pod_table.class_number[stuck_rows]
        queue = class_table.queue_row[:size]
        running = pod_counts[:, RUNNING] + np.bincount(stuck, minlength=size)
        wanted = running + np.where(class_table.is_requested[:size], pod_counts[:, PENDING], 0)
        non_preemptible = np.where(class_table.is_non_preemptible[:size], running, 0)
        self.allocated: Final = _sum_by_queue(queue, queue_requests, running, queue_count)
        self.non_preemptible: Final = _sum_by_queue(
            queue, queue_requests, non_preemptible, queue_count
        )
        self.requested: Final = _sum_by_queue(queue, queue_requests, wanted, queue_count)
        charged = np.concatenate((np.flatnonzero(pod_table.state == RUNNING), stuck_rows))
        self._charge_memory(pod_table, charged, requests)

    def _charge_memory(self, pod_table: PodTable, pod_rows: Ints, requests: PodRequests) -> None:
        """Charge what pods that request memory of GPUs use beyond what they did while pending."""
        class_table, numbers = pod_table.class_table, pod_table.class_number[pod_rows]
        for number, node, at in requests.memory_pods(numbers, pod_table.node[pod_rows]):
            queue = int(class_table.queue_row[number])
            if queue != NONE:
                amounts = [0] * len(ResourceKind)
                amounts[ResourceKind.GPU] = requests.beyond_pending(number, node) * len(at)
                is_fixed = bool(class_table.is_non_preemptible[number])
                self.add_reserved(queue, amounts, is_non_preemptible=is_fixed)

    def add_reserved(self, queue: int, amounts: Sequence[int], *, is_non_preemptible: bool) -> None:
        for table in (self.allocated, self.requested, *[self.non_preemptible] * is_non_preemptible):
            _add(table[queue], amounts)

    def add_requested(self, queue: int, amounts: Sequence[int]) -> None:
        """Request expected pods without a place; below zero where pods were counted twice."""
        _add(self.requested[queue], amounts)


def releasing_by_queue(pod_table: PodTable, requests: PodRequests) -> tuple[ReleasingAmount, ...]:
    pod_rows = _rows_in_state(pod_table, RELEASING)
    queue = pod_table.class_table.queue_row[pod_table.class_number[pod_rows]]
    pod_rows, queue = pod_rows[queue != NONE], queue[queue != NONE]
    places, at = np.unique(np.stack((queue, pod_table.node[pod_rows])), axis=1, return_inverse=True)
    each = np.ones(len(pod_rows), dtype=np.int64)
    charged = requests.queue_requests_on(pod_table.class_number[pod_rows], pod_table.node[pod_rows])
    amounts = sums(at.reshape(-1), charged, each, places.shape[1])
    return tuple(
        ReleasingAmount(queue_row, node, (cpu, memory, gpu))
        for (queue_row, node), (cpu, memory, gpu) in zip(
            places.T.tolist(), amounts.tolist(), strict=True
        )
    )


def _rows_in_state(pod_table: PodTable, state: int) -> Ints:
    """Return the rows of pods in a state, on nodes that are there and ready.

    No kubelet confirms that pods of other nodes have ended. Such a node cannot be used, and a
    PodGroup that lost pods there gets others elsewhere.
    """
    pod_rows = np.flatnonzero(pod_table.state == state)
    rows = np.unique(pod_table.node[pod_rows]).tolist()
    return pod_rows[
        np.isin(pod_table.node[pod_rows], [row for row in rows if pod_table.nodes.is_ready(row)])
    ]


def _sum_by_queue(
    queue: Ints, queue_requests: Ints, pod_counts: Ints, size: int
) -> list[list[int]]:
    chosen = np.flatnonzero((queue != NONE) & (pod_counts > 0))
    return exact(queue[chosen], queue_requests[chosen], pod_counts[chosen], size)


def _add(row: list[int], amounts: Sequence[int]) -> None:
    for kind, amount in enumerate(amounts):
        row[kind] += amount


class _PodGroupUsage(NamedTuple):
    """Of one PodGroup: what its reserved places use, and what it requests beside its pods."""

    queue: int
    is_non_preemptible: bool
    reserved: list[int]  # integers of any size
    expected: list[int]


class QueueUsageTable:
    """The queue usage of PodGroups beside that of their pods, where it is not zero."""

    def __init__(self) -> None:
        self._by_podgroup: Final[dict[Key, _PodGroupUsage]] = {}

    def remove(self, key: Key) -> None:
        self._by_podgroup.pop(key, None)

    def read_standalone(
        self, context: BuildContext, pod_class: PodClass, prefilter_failure: PreFilterFailure | None
    ) -> None:
        """Read what standalone pods charge; *prefilter_failure* is that of the pending ones."""
        class_table = context.pod_table.class_table
        attributes = context.attribute_resolver.of_standalone(pod_class)
        class_table.queue_row[pod_class.number] = context.queues.row_of(attributes.queue)
        class_table.is_non_preemptible[pod_class.number] = not attributes.is_preemptible
        class_table.is_requested[pod_class.number] = not requests_nothing(prefilter_failure)

    def read_misplaced(self, context: BuildContext, pod_class: PodClass) -> None:
        """Read what pods charge that run and have no place in the PodGroup that they name."""
        class_table, number = context.pod_table.class_table, pod_class.number
        attributes = context.attribute_resolver.of_misplaced(pod_class)
        class_table.queue_row[number] = context.queues.row_of(attributes.queue)
        class_table.is_non_preemptible[number] = class_table.is_requested[number] = False

    def read(
        self,
        context: BuildContext,
        record: PodGroupRecord,
        attributes: PodGroupAttributes,
        prefilter_failure: PreFilterFailure | None,
    ) -> None:
        class_table = context.pod_table.class_table
        queue = _charged_queue(context, record, attributes)
        is_non_preemptible = not attributes.is_preemptible
        is_requested = not record.is_suspended and not requests_nothing(prefilter_failure)
        for pod_class in record.refusals:
            self.read_misplaced(context, pod_class)
        for pod_class in record.pod_classes:
            number = pod_class.number
            class_table.queue_row[number] = queue
            class_table.is_non_preemptible[number] = is_non_preemptible
            class_table.is_requested[number] = is_requested and class_table.is_counted[number]
        self._by_podgroup.pop(record.key, None)
        if (
            queue != NONE
            and record.is_active
            and (record.expected or context.reservations.of_podgroup(record))
        ):
            reserved, expected = _pods_beyond_existing(context, record, is_requested=is_requested)
            if any(reserved) or any(expected):
                self._by_podgroup[record.key] = _PodGroupUsage(
                    queue, is_non_preemptible, reserved, expected
                )

    def add_to(self, totals: QueueTotals) -> None:
        for usage in self._by_podgroup.values():
            totals.add_reserved(
                usage.queue, usage.reserved, is_non_preemptible=usage.is_non_preemptible
            )
            totals.add_requested(usage.queue, usage.expected)


def _pods_beyond_existing(
    context: BuildContext, record: PodGroupRecord, *, is_requested: bool
) -> tuple[list[int], list[int]]:
    """Return the amounts that reserved places use, and those requested beside existing pods."""
    pod_table, reservations = context.pod_table, context.reservations.of_podgroup(record)
    reserved, expected = Counter[int](), Counter[int]()  # pods by pod class
    beyond_pending = 0  # of what reserved places with memory of GPUs use
    requests = context.encoding.requests
    unclaimed: dict[str, int] = {}
    for podset, reservation in reservations.items():
        places = len(reservation.places)
        number = reservation.pod_class.number
        reserved[number] += places
        if number in requests.sharing:
            beyond_pending += sum(
                requests.beyond_pending(number, it) for it, _ in reservation.places
            )
        claiming = record.pending_pods(podset, pod_table)[:places]
        unclaimed[podset] = places - len(claiming)
        if is_requested:  # a pending pod that claims a reserved place is already requested by it
            for pod_row in claiming:
                expected[int(pod_table.class_number[pod_row])] -= 1
    if is_requested and record.has_started_or_pending:
        for podset, (pod_class, _) in record.expected.items():
            to_come = record.expected_count(podset) - unclaimed.get(podset, 0)
            expected[pod_class.number] += max(to_come, 0)
    used = _amounts(reserved, requests.queue_request)
    used[ResourceKind.GPU] += beyond_pending
    return used, _amounts(expected, requests.queue_request)


def _charged_queue(
    context: BuildContext, record: PodGroupRecord, attributes: PodGroupAttributes
) -> int:
    """Return the row of the queue to charge; NONE if the PodGroup was refused the queue.

    Pods on nodes of a PodGroup that has not started are terminating, and ran in another queue.
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


def _amounts(pods: Counter[int], queue_requests: Ints) -> list[int]:
    rows = [(queue_requests[pod_class].tolist(), count) for pod_class, count in pods.items()]
    return [sum(row[kind] * count for row, count in rows) for kind in ResourceKind]
