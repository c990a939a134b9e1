"""Pre-filter failures: why a PodGroup cannot be placed, whatever room the nodes have."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from scheduler.core.model.podgroup import AvoidedNode
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure, QueueLabel
from scheduler.core.model.resources import NONE, Ints
from scheduler.state.claims.claim_state import ClaimState
from scheduler.state.constraints.domains import (
    NO_CONSTRAINTS,
    ConstraintResolver,
    ResolvedConstraints,
)
from scheduler.state.constraints.namespace_bounds import bound_failure
from scheduler.state.inputs import ApiEviction
from scheduler.state.podgroups.attributes import (
    AttributeResolver,
    Evictability,
    PodGroupAttributes,
)
from scheduler.state.podgroups.index import PodGroupIndex
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.podgroups.reservations import Reservations
from scheduler.state.podgroups.stages import StageDependencies
from scheduler.state.pods.gpu_share_metadata import GpuShareFault
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import (
    PENDING,
    PodTable,
)
from scheduler.state.queues.access import QueueAccessRule
from scheduler.state.queues.queue_table import QueueTable
from scheduler.state.snapshot.occupancy import SharedGpuTable
from scheduler.state.snapshot.signatures import Encoding
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GPU_CONFIG_MAP, QUEUE
from trainer_kai.api.reasons import UnschedulableReason

_REQUESTS_NOTHING: Final = (
    UnschedulableReason.MISCONFIGURED,
    UnschedulableReason.FORBIDDEN_QUEUE,
    UnschedulableReason.QUEUE_HELD,
    UnschedulableReason.WAITING_FOR_STAGE,
)


class BuildContext(NamedTuple):
    """What PodGroups, their pre-filter failures and their queue usage are built from."""

    pod_table: PodTable
    pod_counts: Ints  # [pod class, state]
    podgroup_index: PodGroupIndex
    reservations: Reservations
    attribute_resolver: AttributeResolver
    queues: QueueTable
    encoding: Encoding
    evictability: Evictability
    access_rule: QueueAccessRule
    shared_gpus: SharedGpuTable
    claim_state: ClaimState
    places_gpu_shares: bool
    trusts_gpu_labels: bool
    stale_since: Mapping[Key, int]  # as observed, by PodGroup
    api_evictions: Mapping[Key, ApiEviction]  # by PodGroup
    topologies: ConstraintResolver
    avoided_nodes: Mapping[Key, tuple[AvoidedNode, ...]]  # by PodGroup

    def constraints_of(self, record: PodGroupRecord) -> ResolvedConstraints:
        """Return in which domains the pods of a PodGroup must or should be.

        The default of a queue is for PodGroups of several pods.
        """
        has_defaults = bool(self.queues.topologies)
        if not (record.has_topology or has_defaults) or record.group is None or not record.is_valid:
            return NO_CONSTRAINTS
        default = None
        if has_defaults:
            pods = sum([sum(row) for row in record.pod_counts.values()])
            if pods > 1 or sum(record.min_members.values()) > 1:
                default = self.queues.topology_default(record.group.spec.queue)
        return self.topologies.resolve(record.group, default)


class PreFilter:
    """Of several failures the smallest reason counts, of equal ones that of the oldest pods."""

    def __init__(self, context: BuildContext) -> None:
        self._context: Final = context
        self._stage_dependencies: Final = StageDependencies(
            context.pod_table, context.podgroup_index
        )
        self._bound_failures: Final[dict[Key, PreFilterFailure]] = {}  # by PodGroup

    def of_record(
        self, record: PodGroupRecord, attributes: PodGroupAttributes
    ) -> PreFilterFailure | None:
        return _first_reason(self._failures(record, attributes))

    def of_standalone(
        self, pod_class: PodClass, title: str, *, is_pending: bool, pod_row: int = NONE
    ) -> PreFilterFailure | None:
        """Return why a pod waits, or all pods of a class."""
        attributes = self._context.attribute_resolver.of_standalone(pod_class)
        queue_failure = self._context.queues.prefilter_failure(attributes.queue)
        failures: list[PreFilterFailure] = []
        if is_pending:
            if queue_failure is None:
                queue_failure = self._access_failure(pod_class.namespace, attributes.queue)
                queue_failure = queue_failure or self._context.queues.held_failure(attributes.queue)
            pod_rows = pod_class.pod_rows if pod_row == NONE else (pod_row,)
            failures += self._class_failures(pod_class, title, None, pod_rows)
            failures += _priority_class_failures(attributes)
        return _first_reason((*failures, *((queue_failure,) if queue_failure else ())))

    def of_elastic(
        self, record: PodGroupRecord, attributes: PodGroupAttributes
    ) -> PreFilterFailure | None:
        """Return why a PodGroup that has started gets no pods above its minimum.

        It keeps its pods and may replace lost ones, whatever becomes of the permission, the
        required topology or the priority class.
        """
        if record.group is None or not has_started(record):
            return None
        return _first_reason(self._start_failures(record, attributes))

    def _start_failures(
        self, record: PodGroupRecord, attributes: PodGroupAttributes
    ) -> Iterator[PreFilterFailure]:
        """Yield what keeps a PodGroup from its start, and later from pods above its minimum."""
        if self._context.queues.prefilter_failure(attributes.queue) is None:
            access_failure = self._access_failure(record.key.namespace, attributes.queue)
            if access_failure is not None:
                yield access_failure
            held_failure = self._context.queues.held_failure(attributes.queue)
            if held_failure is not None:
                yield held_failure
        constraints = self._context.constraints_of(record)
        if constraints.failure is not None:
            yield constraints.failure
        yield from _priority_class_failures(attributes)

    def _access_failure(self, namespace: str, queue: str) -> PreFilterFailure | None:
        return self._context.access_rule.prefilter_failure(
            Key(namespace, queue), self._context.queues.access(queue)
        )

    def _failures(
        self, record: PodGroupRecord, attributes: PodGroupAttributes
    ) -> Iterator[PreFilterFailure]:
        context = self._context
        if record.prefilter_failure is not None:
            yield record.prefilter_failure
        if record.group is None:
            return
        queue_failure = context.queues.prefilter_failure(attributes.queue)
        if queue_failure is not None:
            yield queue_failure
        if not has_started(record):
            yield from self._start_failures(record, attributes)
        yield from self._stage_dependencies(record)
        class_table, pod_table = context.pod_table.class_table, context.pod_table
        pending = [
            pod_class
            for pod_class in record.pod_classes
            if class_table.is_counted[pod_class.number]
            and (context.pod_counts[pod_class.number, PENDING] or pod_class.expected_by)
            and self._class_failures(pod_class, "", record)
        ]
        for pod_class in sorted(
            pending, key=lambda pod_class: pod_table.age(pod_table.oldest(pod_class))
        ):
            yield from self._class_failures(pod_class, pod_table.title(pod_class), record)
        for pod_class, _ in record.expected.values():
            yield from self._class_failures(pod_class, pod_table.title(pod_class), record)

    def _class_failures(
        self,
        pod_class: PodClass,
        title: str,
        record: PodGroupRecord | None,
        pod_rows: Iterable[int] | None = None,
    ) -> list[PreFilterFailure]:
        encoding = self._context.encoding
        excess = pod_class.shared_spec.limit_fault
        if excess is not None:
            return [PreFilterFailure(PreFilterCause.POD_SPEC_LIMIT, (excess,), pod=title)]
        if self._context.pod_table.class_table.exceeds_namespace_bound[pod_class.number]:
            return [self._bound_failure(pod_class, record)]
        failures = [
            *self._pod_failures(pod_class),
            *encoding.claims.failures(pod_class),
            *self._queue_label_failures(pod_class, record),
            *self._claim_failures(pod_class, record, pod_rows),
        ]
        return [it if it.pod and title else it._replace(pod=title) for it in failures]

    def _claim_failures(
        self,
        pod_class: PodClass,
        record: PodGroupRecord | None,
        pod_rows: Iterable[int] | None,
    ) -> Iterator[PreFilterFailure]:
        claims, requests = self._context.claim_state.claims, self._context.encoding.requests
        unknown = requests.unknown_resources.get(pod_class.number, ())
        yield from claims.extended_resource_failures(unknown)
        if not pod_class.spec.resource_claims:
            return
        resolver = self._context.attribute_resolver
        attributes = (
            resolver.of_standalone(pod_class) if record is None else resolver.of_podgroup(record)
        )
        rows = pod_class.pod_rows if pod_rows is None else pod_rows
        yield from claims.failures(pod_class, attributes.queue, rows)

    def _pod_failures(self, pod_class: PodClass) -> Iterator[PreFilterFailure]:
        fault = pod_class.shared_spec.requests_fault()
        if fault:
            yield PreFilterFailure(PreFilterCause.INVALID_REQUESTS, (fault,))
        sharing = pod_class.gpu_sharing
        if isinstance(sharing, GpuShareFault):
            yield PreFilterFailure(PreFilterCause.INVALID_GPU_SHARE, sharing)
        elif sharing is not None and not self._context.places_gpu_shares:
            yield PreFilterFailure(PreFilterCause.SHARED_GPU, (sharing.annotation,))
        elif sharing is not None and self._lacks_config_map(pod_class):
            yield PreFilterFailure(
                PreFilterCause.GPU_SHARE_NOT_ADMITTED, (sharing.annotation, GPU_CONFIG_MAP)
            )
        if pod_class.mig_annotations:
            name = pod_class.mig_annotations[0][0]
            yield PreFilterFailure(PreFilterCause.LEGACY_MIG, (name,))

    def _lacks_config_map(self, pod_class: PodClass) -> bool:
        """Say whether pods have no ConfigMap that would tell them their GPUs; expected ones may."""
        context = self._context
        is_pending = bool(context.pod_counts[pod_class.number, PENDING])
        return is_pending and not (context.trusts_gpu_labels or pod_class.has_config_map)

    def _queue_label_failures(
        self, pod_class: PodClass, record: PodGroupRecord | None
    ) -> Iterator[PreFilterFailure]:
        """Yield why pods may not be in the queue that they would be in without their PodGroup.

        A user can delete the PodGroup while they run.
        """
        named_queue, group = pod_class.labels.get(QUEUE, ""), record.group if record else None
        if group is None or named_queue in {"", group.spec.queue}:
            return
        failure = self._context.queues.prefilter_failure(named_queue)
        failure = failure or self._access_failure(pod_class.namespace, named_queue)
        if failure is not None:
            label = QueueLabel(QUEUE, named_queue, group.spec.queue)
            yield failure._replace(queue_label=label)

    def _bound_failure(
        self, pod_class: PodClass, record: PodGroupRecord | None
    ) -> PreFilterFailure:
        """Return that pods exceed a namespace bound: one failure for all of a PodGroup."""
        if record is None:
            return bound_failure(pod_class.namespace, (pod_class,))
        failure = self._bound_failures.get(record.key)
        if failure is None:
            is_counted = self._context.pod_table.class_table.is_counted
            own = [it for it in record.pod_classes if is_counted[it.number]]
            expected_classes = [it for it, _ in record.expected.values()]
            failure = self._bound_failures[record.key] = bound_failure(
                pod_class.namespace, dict.fromkeys((*own, *expected_classes))
            )
        return failure


def _priority_class_failures(attributes: PodGroupAttributes) -> Iterator[PreFilterFailure]:
    if attributes.refusal:
        yield PreFilterFailure(PreFilterCause.PRIORITY_CLASS_REFUSED, (attributes.refusal,))


def has_started(record: PodGroupRecord) -> bool:
    """Say whether pods of a PodGroup run or are being relocated; a nomination is no start."""
    return record.is_returning or any(map(record.has_running_pods, record.min_members))


def _first_reason(failures: Iterable[PreFilterFailure]) -> PreFilterFailure | None:
    found = [*failures]
    if not found:
        return None
    first = min(found, key=lambda failure: failure.reason.rank)
    if all(it.cause is first.cause for it in found):
        return first
    return first._replace(is_only=False)


def requests_nothing(prefilter_failure: PreFilterFailure | None) -> bool:
    """Say whether a PodGroup with this failure counts as requesting nothing from its queue."""
    return prefilter_failure is not None and prefilter_failure.reason in _REQUESTS_NOTHING
