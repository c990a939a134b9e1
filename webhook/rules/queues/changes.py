"""Validates a Queue at its creation and at changes of its spec: its parent and its numbers.

Almost everything is a warning, because KAI admits it and the scheduler copes with it. Only a queue
that would be below itself is denied. Of an update only the changes are reported.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Meta
from trainer_kai.api.queue import QueueSpec, QueueStatus
from trainer_kai.api.resources import QUEUES
from trainer_kai.errors import FieldError
from trainer_kai.policy.misspelled_keys import QUEUE_KEYS, misspelled_keys, similar_name
from trainer_kai.policy.queueing.queue_findings import queue_findings, queue_relatives
from webhook.admission.review import AdmissionRequest, size_fault
from webhook.admission.validation_result import NO_OBJECTIONS, ValidationResult, denied, warned
from webhook.rules.queues.deletion import positive_amounts

_PARENT: Final = "spec.parentQueue"
_MAX_NAMED: Final = 5  # queues of a cycle
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE"})


class _Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue as it is written; its metadata may lack a name (generateName)."""

    metadata: Meta = Meta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class QueueReview(NamedTuple):
    """A queue, and for an update the queue as it was."""

    operation: str
    queue: _Queue
    old: _Queue | None = None

    @property
    def name(self) -> str:
        """Return the name of the queue; "" if the API server generates it."""
        return self.queue.metadata.name


class KnownQueues(NamedTuple):
    """All queues of the cluster."""

    specs: Mapping[str, QueueSpec]
    statuses: Mapping[str, QueueStatus] = MappingProxyType({})
    is_current: bool = True  # read for this review; False: as last watched, which may be outdated


def read_queue(request: AdmissionRequest) -> QueueReview | None:
    """Read the queue of a review; None if there is nothing to validate, or it cannot be read."""
    kind, operation = request.kind, request.operation
    is_queue = (kind.group, kind.kind) == (QUEUES.group, QUEUES.kind)
    if not is_queue or operation not in _OPERATIONS or request.sub_resource:
        return None
    if size_fault(request.object) or size_fault(request.old_object):
        return None
    try:
        old = None if operation == "CREATE" else decode(_Queue, request.old_object)
        queue = old if operation == "DELETE" else decode(_Queue, request.object)
    except DecodeError:
        return None  # the schema reports it, and a queue that was stored is not our concern
    if queue is None or queue.metadata.deletion_timestamp:
        return None
    return QueueReview(operation, queue, old)


def validate_queue(review: QueueReview, known: KnownQueues) -> ValidationResult:
    """Report what is wrong with the parent and the numbers of a queue, as far as it is new."""
    name, spec, old = review.name, review.queue.spec, review.old
    result = NO_OBJECTIONS
    if spec.parent_queue and (old is None or old.spec.parent_queue != spec.parent_queue):
        result = _parent_result(name, spec.parent_queue, known)
    found = queue_findings(spec, queue_relatives(name, spec, known.specs))
    before = queue_findings(old.spec, queue_relatives(name, old.spec, known.specs)) if old else ()
    numbers = (FieldError(it.path, it.message) for it in found if it not in before)
    return result.combined_with(warned(*numbers, *_misspelled(review)))


def _misspelled(review: QueueReview) -> Iterator[FieldError]:
    if review.old is None:
        meta = review.queue.metadata
        yield from misspelled_keys(meta.labels, meta.annotations, QUEUE_KEYS)


def _parent_result(name: str, parent: str, known: KnownQueues) -> ValidationResult:
    cycle = _cycle(name, parent, known.specs)
    if cycle:
        fault = FieldError(
            _PARENT,
            f"queue {name} would be below itself ({' → '.join(cycle)}), and queues of a cycle "
            "take no pods. Name a parent that is not below this queue",
        )
        return denied(fault) if known.is_current else warned(fault)
    if parent not in known.specs:
        return warned(_missing(parent, known)) if known.is_current else NO_OBJECTIONS
    status = known.statuses.get(parent)
    has_children = any(
        spec.parent_queue == parent for other, spec in known.specs.items() if other != name
    )
    if status is not None and not has_children and _has_pods(status):
        message = (
            f"pods use queue {parent}, which has no child queues yet. With this one it takes no "
            "more pods: pods that name it wait. Let these workloads name a child queue"
        )
        return warned(FieldError(_PARENT, message))
    return NO_OBJECTIONS


def _has_pods(status: QueueStatus) -> bool:
    """Say whether pods use or request resources; the scheduler also reports amounts of zero."""
    return bool(positive_amounts(status.allocated) or positive_amounts(status.requested))


def _cycle(name: str, parent: str, specs: Mapping[str, QueueSpec]) -> tuple[str, ...]:
    """Return the queues from a queue up to itself; none if the parents end elsewhere."""
    above = [name]
    while parent and parent not in above:
        above.append(parent)
        spec = specs.get(parent)
        parent = spec.parent_queue if spec else ""
    if not name or parent != name:
        return ()
    few = above[:_MAX_NAMED]
    return *few, *(["…"] if len(above) > _MAX_NAMED else []), name


def _missing(parent: str, known: KnownQueues) -> FieldError:
    meant = similar_name(parent, known.specs)
    hint = f"Did you mean {meant}? Otherwise create" if meant else "Create"
    message = (
        f"queue {parent} does not exist, and this queue takes no pods until it does. {hint} it"
    )
    return FieldError(_PARENT, message)
