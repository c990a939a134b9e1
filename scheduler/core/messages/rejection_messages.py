"""Messages: why a PodGroup waits, with numbers, and what would help. The entrance of this folder.

`eviction_messages`, `queue_messages` and `node_messages` have the sentences for their details. The
templates for pre-filter failures are here, one a cause: a template names its values by number, and
`{pod}` is the pod that the failure is about.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from scheduler.core.messages.eviction_messages import (
    earlier_podgroup_message,
    eviction_failure_sentences,
)
from scheduler.core.messages.line_messages import line_sentence
from scheduler.core.messages.node_messages import (
    fit_errors_message,
    kai_fit_errors_message,
    missing_room,
)
from scheduler.core.messages.queue_messages import (
    behind_head_message,
    exceeded_bounds,
    queue_bound_message,
)
from scheduler.core.model.rejections import (
    BehindHead,
    FitErrors,
    IncompletePodSet,
    MissingPods,
    PreFilterCause,
    PreFilterFailure,
    QueueBoundExceeded,
    Rejection,
    RejectionDetails,
    StageProgress,
)
from scheduler.core.model.snapshot import Snapshot
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.text import capitalized, verb_form

_PROMISE: Final = "can start when "
_CONDITION: Final = "cannot start before "
_NEVER: Final = "can never start unless "
_FLAT: Final = "default"  # the PodSet of a PodGroup without sub-groups


def rejection_message(snapshot: Snapshot, rejection: Rejection) -> str:
    sentences = [_with_check(rejection, _details(snapshot, rejection.reason, rejection.details))]
    if rejection.queue_rejection is not None:
        bound, reason = rejection.queue_rejection.details, rejection.queue_rejection.reason
        if isinstance(bound, QueueBoundExceeded):
            sentences.append(f"Also: {exceeded_bounds(snapshot, reason, bound)}")
    sentences += eviction_failure_sentences(snapshot, rejection)
    earlier_podgroup = rejection.eviction_failure.earlier_podgroup
    if earlier_podgroup is not None:
        sentences.append(earlier_podgroup_message(snapshot, earlier_podgroup))
    if rejection.line is not None:
        sentences.append(line_sentence(snapshot, rejection.podgroup, rejection.line))
    return ". ".join(sentences)


def kai_condition(snapshot: Snapshot, rejection: Rejection) -> tuple[str, str]:
    """Return reason and message as KAI writes them into conditions, for tools that read those."""
    details = rejection.details
    if rejection.reason == UnschedulableReason.PREEMPTION_DELAY:
        return "PreemptionDelayNotElapsed", rejection_message(snapshot, rejection)
    if isinstance(details, QueueBoundExceeded):
        is_limit = rejection.reason == UnschedulableReason.EXCEEDS_LIMIT
        return ("OverLimit" if is_limit else "NonPreemptibleOverQuota"), rejection_message(
            snapshot, rejection
        )
    if rejection.reason == UnschedulableReason.QUEUE_MISSING:
        return "QueueDoesNotExist", rejection_message(snapshot, rejection)
    if isinstance(details, FitErrors):
        return "PodSchedulingErrors", kai_fit_errors_message(snapshot, details)
    return rejection.reason.value, rejection_message(snapshot, rejection)


def no_pods_message(needed: int) -> str:
    return _missing_pods(MissingPods((IncompletePodSet(_FLAT, 0, needed),)))


def what_would_help(
    snapshot: Snapshot, reason: UnschedulableReason, details: RejectionDetails
) -> str:
    """Return what follows "It can start when"."""
    if isinstance(details, FitErrors) and (room := missing_room(snapshot, details)):
        return room
    text = _details(snapshot, reason, details)
    for promise in (_PROMISE, _NEVER):
        _, found, change = text.rpartition(promise)
        if found:
            return change
    return "its pods do not exclude each other"


def _with_check(rejection: Rejection, text: str) -> str:
    """Promise only what an attempt has shown: what is missing on nodes, or what was checked."""
    needed = rejection.also_needed
    if not needed and (needed is not None or isinstance(rejection.details, FitErrors)):
        return text
    text = text.replace(_PROMISE, _CONDITION).replace(", or when ", ", or before ")
    return f"{text}. After that it can start when {needed}" if needed else text


def _details(snapshot: Snapshot, reason: UnschedulableReason, details: RejectionDetails) -> str:
    if isinstance(details, QueueBoundExceeded):
        return queue_bound_message(snapshot, reason, details)
    if isinstance(details, FitErrors):
        return fit_errors_message(snapshot, details)
    if isinstance(details, MissingPods):
        return _missing_pods(details)
    if isinstance(details, BehindHead):
        return behind_head_message(snapshot, details)
    return prefilter_message(details)


def _missing_pods(details: MissingPods) -> str:
    missing = details.podsets
    if not missing:
        return "Pods are missing: no sub-group that is incomplete can reach its minimum"
    until = []
    if any(it.existing < it.needed for it in missing):
        until.append("the missing pods exist")
    if any(it.gated for it in missing):
        until.append("the scheduling gates are removed")
    is_flat = [it.podset for it in missing] == [_FLAT]
    listed = "; ".join(_incomplete_podset(it, is_flat=is_flat) for it in missing)
    return f"Pods are missing: {listed}. It cannot start before {' and '.join(until)}"


def _incomplete_podset(it: IncompletePodSet, *, is_flat: bool) -> str:
    exist = f"{it.existing} of {it.needed} exist{'' if is_flat else f' in sub-group {it.podset}'}"
    gated = f", {it.gated} of which {verb_form(it.gated, 'have')} scheduling gates"
    return f"{exist}{gated}" if it.gated else exist


_TEMPLATES: Final[Mapping[PreFilterCause, str]] = MappingProxyType(
    {
        # faults, each with the path of its field
        PreFilterCause.INVALID_PODGROUP: (
            "The PodGroup is invalid: {0}. It can start when this is corrected"
        ),
        # PodGroup
        PreFilterCause.PODGROUP_MISSING: (
            "The pods name PodGroup {0}, which does not exist. They can start when it is created"
        ),
        # its owner, and when it waits no longer
        PreFilterCause.NOT_GROUPED: (
            "The scheduler waits until {pod} has a PodGroup, which the podgrouper makes for its "
            "owner ({0}). Without one it is scheduled alone from {1} on"
        ),
        # a whole sentence
        PreFilterCause.IGNORED_PODS: "{0}",
        # path of the field and remedy, and why
        PreFilterCause.PRIORITY_CLASS_REFUSED: "{0}",
        PreFilterCause.INVALID_REQUESTS: (
            "The requests of {pod} are invalid: {0}. It can start when they are corrected"
        ),
        # field, and number and limit
        PreFilterCause.POD_SPEC_LIMIT: "The spec of {pod} exceeds a limit: {0}",
        # namespace, limit, terms, host ports, fields
        PreFilterCause.PODGROUP_CONSTRAINT_LIMIT: (
            "The pods of the PodGroup have {2} different terms about other pods and {3} host "
            "ports, but at most {1} are supported in a namespace ({0}). It can never start "
            "unless its pods have at most {1} in {4} (equal pods count once), or are in several "
            "PodGroups that start one after another"
        ),
        PreFilterCause.NAMESPACE_CONSTRAINT_LIMIT: (
            "The pods of namespace {0} have more than {1} different terms about other pods and "
            "host ports together; the PodGroup has {2} terms and {3} host ports, and older ones "
            "are ahead of it. It can start when older ones are deleted, or when pods of the "
            "namespace have fewer in {4} (equal pods count once)"
        ),
        # PersistentVolumeClaim
        PreFilterCause.VOLUME_CLAIM_MISSING: (
            "PersistentVolumeClaim {0} of {pod} does not exist. It can start when the claim exists"
        ),
        PreFilterCause.VOLUME_CLAIM_TERMINATING: (
            "PersistentVolumeClaim {0} of {pod} is being deleted. It can start when a new claim "
            "exists"
        ),
        PreFilterCause.VOLUME_CLAIM_LOST: (
            "PersistentVolumeClaim {0} of {pod} has lost its volume. It can start when a new claim "
            "exists"
        ),
        # PersistentVolumeClaim, PersistentVolume
        PreFilterCause.VOLUME_MISSING: (
            "PersistentVolumeClaim {0} of {pod} is bound to PersistentVolume {1}, which does not "
            "exist. It can start when the volume exists"
        ),
        # which queues take PodGroups
        PreFilterCause.QUEUE_NOT_NAMED: (
            "The PodGroup names no queue. It can start when it names one: {0}"
        ),
        # queue, which of its descendants take PodGroups
        PreFilterCause.QUEUE_HAS_CHILDREN: (
            "Queue {0} has child queues, so it takes no PodGroups. It can start when it names a "
            "descendant of queue {0}: {1}"
        ),
        # queue, the circle
        PreFilterCause.QUEUE_CYCLE: (
            "Queue {0} is its own ancestor: {1}. It can start when spec.parentQueue of one of "
            "these queues is corrected"
        ),
        # namespace, queue, why it is closed, group, verb, resource, command
        PreFilterCause.QUEUE_CLOSED: (
            "Namespace {0} may not use queue {1}, which is closed ({2}). It can start when group "
            "{3} is granted the verb {4} on {5} in that namespace: {6}"
        ),
        # namespace, queue
        PreFilterCause.QUEUE_ACCESS_PENDING: (
            "The access review whether namespace {0} may use queue {1} is in progress. It can "
            "start when the access is granted"
        ),
        PreFilterCause.QUEUE_ACCESS_UNKNOWN: (
            "The access review whether namespace {0} may use queue {1} has no answer yet: the API "
            "server cannot be reached. It can start when the access is granted"
        ),
        # queue, which annotation holds it, command
        PreFilterCause.QUEUE_HELD: (
            "Queue {0} is held, so nothing starts in it ({1}). It can start when the queue is "
            "released: {2}"
        ),
        # queue, which queues take PodGroups
        PreFilterCause.QUEUE_MISSING: (
            "Queue {0} does not exist. It can start when queue {0} is created, or when it names "
            "another queue (suspend its workload, change the label kai.scheduler/queue, and resume "
            "it): {1}"
        ),
        # queue, parent
        PreFilterCause.PARENT_QUEUE_MISSING: (
            "Queue {0} has the parent queue {1}, which does not exist. It can start when the "
            "parent queue is created, or when spec.parentQueue of queue {0} is corrected"
        ),
        # annotation, and what is wrong
        PreFilterCause.INVALID_GPU_SHARE: (
            "The annotation {0} of {pod} is invalid: {1}. It can start when the annotation is "
            "corrected or removed"
        ),
        # annotation
        PreFilterCause.LEGACY_MIG: (
            "The annotation {0} of {pod} requests MIG profiles by annotation, which is not "
            "supported. It can start when it requests them as resources"
        ),
        # annotation, annotation that is missing
        PreFilterCause.GPU_SHARE_NOT_ADMITTED: (
            "The annotation {0} of {pod} requests a share of a GPU, but the pod has no valid "
            "annotation {1}: it was created while the webhook of trainer-kai did not change it. "
            "Delete the pod, so that it is created again"
        ),
        # annotation
        PreFilterCause.SHARED_GPU: (
            "The annotation {0} of {pod} requests a share of a GPU, and the scheduler binds no "
            "such pods, because its setting gpu_sharing.enabled is false. It can start when the "
            "setting is true, or when it requests whole GPUs"
        ),
        # claim of the pod, what is wrong with it, and what is to change
        PreFilterCause.CLAIM_INVALID: (
            "spec.resourceClaims[{0}] of {pod}: {1}. It can start when {2}"
        ),
        # claim of the pod, what it asks for, and what is to change
        PreFilterCause.CLAIM_UNSUPPORTED: (
            "spec.resourceClaims[{0}] of {pod}: {1}, which is not supported. It can start when {2}"
        ),
        # claim of the pod, what it waits for, and what is to happen
        PreFilterCause.CLAIM_NOT_READY: (
            "spec.resourceClaims[{0}] of {pod}: {1}. It can start when {2}"
        ),
        # resource, DeviceClass
        PreFilterCause.EXTENDED_RESOURCE: (
            "{pod} requests {0}, which no node has and DeviceClass {1} stands for; the scheduler "
            "allocates devices only by ResourceClaims. It can start when it has a ResourceClaim of "
            "that class instead, or when nodes have the resource"
        ),
        # PersistentVolumeClaim
        PreFilterCause.VOLUME_CLAIM_NOT_CREATED: (
            "PersistentVolumeClaim {0} of {pod} is not created yet. It can start when the claim "
            "exists"
        ),
        PreFilterCause.VOLUME_CLAIM_UNBOUND: (
            "PersistentVolumeClaim {0} of {pod} is not bound to a volume yet. It can start when "
            "it is bound"
        ),
        # PersistentVolumeClaim, StorageClass
        # PodGroup or sub-group, Topology, those that exist
        PreFilterCause.TOPOLOGY_MISSING: (
            "The topologyConstraint of {0} names Topology {1}, which does not exist. It can start "
            "when it is created, or when {0} names an existing Topology: {2}"
        ),
        # PodGroup or sub-group, level, Topology, its levels
        PreFilterCause.TOPOLOGY_LEVEL_MISSING: (
            "The topologyConstraint of {0} requires level {1}, which Topology {2} does not have. "
            "It can start when {0} names one of its levels: {3}"
        ),
        PreFilterCause.NO_VOLUME_LEFT: (
            "No free PersistentVolume of StorageClass {1} fits PersistentVolumeClaim {0} of "
            "{pod}. It can start when one is created or released"
        ),
    }
)
# Where no queue takes PodGroups, or no Topology exists: the last value is empty.
_WITHOUT_OTHERS: Final[Mapping[PreFilterCause, str]] = MappingProxyType(
    {
        PreFilterCause.QUEUE_NOT_NAMED: (
            "The PodGroup names no queue, and no queue takes PodGroups. It can start when a queue "
            "is created and the PodGroup names it"
        ),
        PreFilterCause.QUEUE_HAS_CHILDREN: (
            "Queue {0} has child queues, so it takes no PodGroups, and none of its descendants is "
            "valid. It can start when one of these is corrected and the PodGroup names it"
        ),
        PreFilterCause.QUEUE_MISSING: (
            "Queue {0} does not exist, and no other queue takes PodGroups. It can start when queue "
            "{0} is created"
        ),
        PreFilterCause.TOPOLOGY_MISSING: (
            "The topologyConstraint of {0} names Topology {1}, which does not exist. It can start "
            "when it is created"
        ),
    }
)


def prefilter_message(failure: PreFilterFailure) -> str:
    if failure.cause is PreFilterCause.EARLIER_STAGE:
        return _stages_message(failure)
    templates = _TEMPLATES
    if failure.cause in _WITHOUT_OTHERS and not failure.values[-1]:
        templates = _WITHOUT_OTHERS
    message = templates[failure.cause].format(*failure.values, pod=failure.pod)
    if failure.queue_label is None:
        return message
    label, queue, podgroup_queue = failure.queue_label
    named = f"{failure.pod} has the label {label}: {queue}, but its PodGroup is in queue"
    return f"{capitalized(named)} {podgroup_queue}. {message}"


def prefilter_problem(failure: PreFilterFailure) -> str:
    """Leave out what would let the PodGroup start."""
    return prefilter_message(failure).partition(". ")[0]


def _stages_message(failure: PreFilterFailure) -> str:
    stages = [it for it in failure.values if isinstance(it, StageProgress)]
    until = " and ".join(dict.fromkeys("complete" if it.is_complete else "ready" for it in stages))
    is_one = len(stages) == 1
    subject = "that earlier stage is" if is_one else "these earlier stages are"
    return f"{'; '.join(_stages(stages))}. It can start when {subject} {until}"


def _stages(stages: list[StageProgress]) -> Iterator[str]:
    for it in stages:
        verb = "have succeeded" if it.is_complete else "are ready"
        running = ", but some still run" if it.done >= it.needed else ""
        yield f"{it.done} of {it.needed} pods of replicatedJob {it.replicated_job} {verb}{running}"
