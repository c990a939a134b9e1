"""Validates a Queue: its parent and its numbers when it is written, and whether it may be deleted.

Of a queue that is written almost everything is a warning, because KAI admits it and the scheduler
copes with it. Only a queue that would be below itself is denied. Of an update only the changes are
reported.

A queue is not deleted while it is in use: a PodGroup of a workload that has not finished names it
or a queue below it, or its status has allocated resources (pods without a PodGroup, or pods that
are terminating). Only a TrainJob is known to be finished: a finished Job that keeps its PodGroup,
as beside KAI, uses its queue until the Job is deleted. If nothing in its tree is used, a queue is
deleted, with a warning about the queues below: a tree is deleted queue by queue, in any order. The
annotation `trainer-kai.dev/allow-delete: "true"` allows every deletion.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api import resources
from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.kai_kinds import QueueSpec, QueueStatus, TopologySpec
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import ALLOW_DELETE, QUEUE
from trainer_kai.api.quantity import Quantity, QuantityError, milli
from trainer_kai.api.requested_values import requested_annotation_faults
from trainer_kai.api.resources import QUEUES, Resource
from trainer_kai.api.text import counted, listed_names, verb_form
from trainer_kai.errors import FieldError
from trainer_kai.policy.lint.field_values import topology_faults
from trainer_kai.policy.misspelled_keys import QUEUE_KEYS, misspelled_keys, similar_name
from trainer_kai.policy.queueing.queue_findings import queue_findings, queue_relatives
from trainer_kai.policy.queueing.topology_default import TOPOLOGY_ANNOTATIONS
from webhook.admission.review import (
    FORBIDDEN,
    NO_OBJECTIONS,
    AdmissionRequest,
    ValidationResult,
    denied,
    size_fault,
    warned,
)

_NAME: Final = "metadata.name"
_REMEDY: Final = f"Delete these workloads or let them use another queue (label {QUEUE}) first"
_PARENT: Final = "spec.parentQueue"
_ANNOTATIONS: Final = "metadata.annotations"
_MAX_NAMED: Final = 5  # queues of a cycle
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE"})


class _Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A queue as it is written; its metadata may lack a name (generateName)."""

    metadata: Meta = Meta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class QueueReview(NamedTuple):
    operation: str
    queue: _Queue
    old: _Queue | None = None

    @property
    def name(self) -> str:
        """Return "" if the API server generates it."""
        return self.queue.metadata.name


class KnownQueues(NamedTuple):
    specs: Mapping[str, QueueSpec]
    statuses: Mapping[str, QueueStatus] = MappingProxyType({})
    topologies: Mapping[str, TopologySpec] | None = None  # None if they are not known
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
    topology = _topology_faults(review.queue, known)
    before_that = [*_topology_faults(old, known)] if old else []
    places = (it for it in topology if it not in before_that)
    return result.combined_with(warned(*numbers, *places, *_misspelled(review)))


def _topology_faults(queue: _Queue, known: KnownQueues) -> Iterator[FieldError]:
    """Yield what the scheduler ignores of the default topology of a queue's PodGroups."""
    annotations = {
        name: value
        for name, value in queue.metadata.annotations.items()
        if name in TOPOLOGY_ANNOTATIONS
    }
    yield from requested_annotation_faults(annotations, _ANNOTATIONS)
    if known.topologies is None:
        return
    for it in topology_faults(annotations, _ANNOTATIONS, known.topologies, of_queue=True):
        yield FieldError(it.path, it.message)


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
    more = ["…"] if len(above) > _MAX_NAMED else []
    return *above[:_MAX_NAMED], *more, name


def _missing(parent: str, known: KnownQueues) -> FieldError:
    meant = similar_name(parent, known.specs)
    hint = f"Did you mean {meant}? Otherwise create" if meant else "Create"
    message = (
        f"queue {parent} does not exist, and this queue takes no pods until it does. {hint} it"
    )
    return FieldError(_PARENT, message)


class SlimPodGroupSpec(msgspec.Struct, frozen=True, gc=False):
    queue: str = ""


class SlimPodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: SlimPodGroupSpec = SlimPodGroupSpec()

    @property
    def workload(self) -> Key:
        """Return the name of its owner, or its own."""
        meta = self.metadata
        return Key(meta.namespace, next((it.name for it in meta.owner_references), meta.name))

    @property
    def may_be_of_trainjob(self) -> bool:
        """Say whether a JobSet owns it: then a TrainJob of that name owns the JobSet, if any."""
        return any(it.kind == resources.JOBSETS.kind for it in self.metadata.owner_references)


PODGROUPS: Final = Resource(
    resources.PODGROUPS.group,
    resources.PODGROUPS.version,
    resources.PODGROUPS.plural,
    resources.PODGROUPS.kind,
    namespaced=True,
    struct=SlimPodGroup,
)


@dataclass
class QueueUse:
    """The PodGroups that use a queue or a queue below it, counted page by page."""

    queues: frozenset[str]
    podgroups: int = 0
    workloads: set[Key] = field(default_factory=set)
    problem: str = ""  # why not all PodGroups were read

    def add(self, groups: Iterable[SlimPodGroup], is_finished: Callable[[Key], bool]) -> None:
        """Count PodGroups; those of finished workloads and terminating ones do not count."""
        for group in groups:
            if group.spec.queue not in self.queues or group.metadata.deletion_timestamp:
                continue
            if not (group.may_be_of_trainjob and is_finished(group.workload)):
                self.podgroups += 1
                self.workloads.add(group.workload)


class DeletedQueue(NamedTuple):
    name: str
    status: QueueStatus
    below: Sequence[str]  # all queues below it
    namespaces: Sequence[str] = ()  # with a label that names it
    is_default: bool = False  # the queue of TrainJobs that name none


def is_deletion_allowed(meta: Meta) -> bool:
    return meta.annotations.get(ALLOW_DELETE) == "true"


def queues_below(name: str, specs: Mapping[str, QueueSpec]) -> tuple[str, ...]:
    """Return all queues below a queue, level by level, each level sorted."""
    children: dict[str, list[str]] = {}
    for child in sorted(specs):
        children.setdefault(specs[child].parent_queue, []).append(child)
    found: dict[str, None] = {}
    level = [name]
    while level:
        level = [it for above in level for it in children.get(above, ()) if it not in found]
        level = [it for it in level if it != name]
        found.update(dict.fromkeys(level))
    return tuple(found)


def validate_deletion(queue: DeletedQueue, use: QueueUse) -> ValidationResult:
    """Deny the deletion of a queue in use; warn of what a deletion leaves behind."""
    users = _users(queue, use)
    if users:
        # The remedy and the command come before the queues below: a long message is cut.
        below = f" (queues below it: {_few(queue.below)})" if queue.below else ""
        message = (
            f"queue {queue.name} is in use: {users}. To delete the queue all the same, run: "
            f"kubectl annotate queue {queue.name} {ALLOW_DELETE}=true{below}"
        )
        return denied(FieldError(_NAME, message), FORBIDDEN)
    return warned(*_warnings(queue, use)) if use.problem or _is_named(queue) else NO_OBJECTIONS


def _users(queue: DeletedQueue, use: QueueUse) -> str:
    """Return what uses a queue, and how that ends; "" if nothing does."""
    if use.podgroups:
        where = f"queue {queue.name} or a queue below it" if queue.below else "it"
        many = f"{counted(use.podgroups, 'PodGroup')} {verb_form(use.podgroups, 'name')}"
        least = "at least " if use.problem else ""
        return (
            f"{least}{many} {where} (of {_few(sorted(map(str, use.workloads)))}). {_REMEDY}. If "
            "you just did, try again in a few seconds"
        )
    allocated = positive_amounts(queue.status.allocated)
    if not allocated:
        return ""
    return (
        f"status.allocated still has {allocated} (pods without a PodGroup, or pods that are "
        f"terminating). {_REMEDY}. If you just did, try again in a few seconds; if the amount "
        "stays, check that the scheduler runs (trainer-kai doctor)"
    )


def _is_named(queue: DeletedQueue) -> bool:
    return bool(queue.below or queue.namespaces or queue.is_default)


def _warnings(queue: DeletedQueue, use: QueueUse) -> Iterable[FieldError]:
    if use.problem:
        yield FieldError(
            _NAME,
            f"queue {queue.name} is deleted without a complete check of the PodGroups that name it "
            f"({use.problem}). If some do, their pods wait until the queue exists again",
        )
    if queue.below:
        yield FieldError(
            _NAME,
            f"the queues below {queue.name} take no pods until it exists again: delete them too, "
            f"or give them another parent ({_few(queue.below)})",
        )
    if queue.namespaces:
        yield FieldError(
            _NAME,
            f"the label {QUEUE} of namespaces names queue {queue.name}, and TrainJobs that name no "
            f"queue wait there: change the label ({_few(queue.namespaces)})",
        )
    if queue.is_default:
        yield FieldError(
            _NAME,
            f"{queue.name} is the default queue: workloads that name no queue wait until it exists "
            "again",
        )


def positive_amounts(amounts: Mapping[str, Quantity]) -> str:
    """Return the amounts of a status above zero as text; "" if there are none."""
    return ", ".join(f"{amounts[it]} {it}" for it in sorted(amounts) if _is_positive(amounts[it]))


def _is_positive(quantity: Quantity) -> bool:
    try:
        return milli(quantity) > 0
    except QuantityError:
        return False


def _few(names: Sequence[str]) -> str:
    return listed_names(names, _MAX_NAMED)
