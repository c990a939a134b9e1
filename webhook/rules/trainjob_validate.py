"""Validates a TrainJob at `kubectl apply`, while its author can still correct it.

`read_trainjob` decides whether a TrainJob is ours; `validate_trainjob` validates it against its
runtime, its namespace and the queues. Of an update only the changes are validated: an update that
suspends, resumes or annotates a TrainJob is not denied for older faults. The caller checks access
to the queues in `TrainJobValidation.requested_queues`.

`lint_result` returns the findings of lint, as warnings or, with `admission.lint: deny`, as denials.
Only creations are denied for them. An existing TrainJob runs or waits already; an update of it is
not denied because a node was removed.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    EXCLUSIVE_TOPOLOGY,
    KUEUE_QUEUE,
    NODE_POOL,
    QUEUE,
    SKIP_PODGROUPER,
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.requested_values import requested_annotation_faults, requested_label_faults
from trainer_kai.api.resources import TRAINJOBS
from trainer_kai.api.syntax import dns_subdomain_fault, label_value_fault
from trainer_kai.api.trainjob import PresenceOnly, RuntimeRef, TrainJob
from trainer_kai.errors import FieldError
from trainer_kai.policy.expand.jobset import CARRIED_TO_PODS
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.trainjob import is_refusable, lint_trainjob
from trainer_kai.policy.misspelled_keys import TRAINJOB_KEYS, misspelled_keys
from trainer_kai.policy.podgroups.grouping import too_many_jobs
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.queue_resolution import QueueSource
from webhook.admission.review import (
    NO_OBJECTIONS,
    UNCHANGED,
    AdmissionRequest,
    AdmissionResponse,
    ValidationResult,
    all_denied,
    denied,
    oversized_object,
    size_fault,
    unreadable_object,
    warned,
)
from webhook.cache.admission_cache import AdmissionCache, QueueTree
from webhook.cache.runtimes import MAX_TEXT_BYTES, RuntimeSummary, runtime_key
from webhook.rules.jobset_deny import (
    deny_exclusive_placement,
    deny_two_schedulers,
    other_schedulers,
    requests_our_scheduler,
)
from webhook.rules.trainjob_queue_sources import (
    PATCHES,
    RUNTIME_REF_PATH,
    RequestedQueue,
    SlimRuntimePatch,
    TrainJobQueues,
    patched_jobset_queue,
    patched_pod_queues,
    patches_annotation,
    resolve_trainjob_queues,
    unusable_queue_message,
)

_CREATE: Final = "CREATE"
_UPDATE: Final = "UPDATE"
_COUNTS_AT_CREATION: Final = (
    "counts when the JobSet is created: if that exists, the change has no effect. To use it, "
    "delete the TrainJob and create it again"
)
_NO_KUEUE: Final = (
    "the label has no effect: Kueue is not enabled (setting kueue). Remove the label, and name the "
    f"queue by the label {QUEUE}"
)


class _TrainJobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    runtime_ref: RuntimeRef = RuntimeRef()
    trainer: PresenceOnly | None = None
    initializer: PresenceOnly | None = None
    runtime_patches: tuple[SlimRuntimePatch, ...] = ()
    suspend: bool = False
    managed_by: str = ""


class _TrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: _TrainJobSpec = _TrainJobSpec()


class _ManagedBySpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    managed_by: str = ""


class _ManagedByTrainJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    spec: _ManagedBySpec = _ManagedBySpec()


class TrainJobReview(NamedTuple):
    job: _TrainJob
    old: _TrainJob | None  # None at its creation
    namespace: str

    @property
    def runtime(self) -> Key:
        """An update cannot change it."""
        return runtime_key(self.job.spec.runtime_ref, self.namespace)

    @property
    def may_change_queue(self) -> bool:
        if self.old is None:
            return True
        return _named_queues(self.job) != _named_queues(self.old)

    @property
    def may_hide_queue(self) -> bool:
        """Say whether its runtime could name a queue without an access check.

        Administrators write cluster runtimes, so only a runtime of the namespace counts. If a label
        names the queue, it counts only at creation, when pod templates may name another queue.
        """
        is_hidden = self.old is None or not self.job.metadata.labels.get(QUEUE)
        return bool(self.runtime.namespace) and self.may_change_queue and is_hidden


class TrainJobContext(NamedTuple):
    """The runtime, unless it cannot be read, and the labels of the namespace and the queues."""

    runtime: RuntimeSummary | None
    namespace_labels: Mapping[str, str]
    queues: QueueTree
    denies_unknown_queues: bool = False  # deny a queue that does not exist
    queue_found_live: str = ""  # a queue that exists, though it is not cached


class TrainJobValidation(NamedTuple):
    """The result, and the new queues that the namespace must be allowed to use.

    If a queue is the choice of the user, the user must be allowed to use it as well.
    """

    result: ValidationResult
    requested_queues: tuple[RequestedQueue, ...] = ()
    may_miss_queue: bool = False  # the runtime is unknown and may name a queue
    queue: str = ""  # the queue of the TrainJob, if it is new
    missing_queue: str = ""  # the TrainJob is denied because this queue is not cached


_NOT_VALIDATED: Final = TrainJobValidation(NO_OBJECTIONS)


def read_trainjob(request: AdmissionRequest) -> TrainJobReview | AdmissionResponse:
    """Read the TrainJob of a review; return a response where there is nothing to validate."""
    kind = request.kind
    is_trainjob = (kind.group, kind.kind) == (TRAINJOBS.group, TRAINJOBS.kind)
    if not is_trainjob or request.operation not in {_CREATE, _UPDATE} or request.sub_resource:
        return UNCHANGED
    too_large = size_fault(request.object)
    if too_large:  # a TrainJob that was too large before stays as it is
        if request.operation == _UPDATE and size_fault(request.old_object):
            return UNCHANGED
        return oversized_object("TrainJob", too_large)
    old = _old_trainjob(request)
    try:
        job = decode(_TrainJob, request.object)
    except DecodeError as error:
        is_new = request.operation == _CREATE or old is not None
        return unreadable_object(error) if is_new and not _is_foreign(request) else UNCHANGED
    if not _is_managed_here(job.spec.managed_by) or job.metadata.deletion_timestamp:
        return UNCHANGED
    return TrainJobReview(job, old, request.namespace or job.metadata.namespace)


def validate_trainjob(
    review: TrainJobReview, context: TrainJobContext, rules: GroupingRules
) -> TrainJobValidation:
    """Validate the changes of a TrainJob; one of another scheduler is not validated."""
    now = _resolve_queues(review.job, context, rules)
    if context.runtime is not None and not _is_ours(now, rules):
        return _NOT_VALIDATED
    before = _resolve_queues(review.old, context, rules) if review.old else None
    result = _new_contradictions(review, now, before, rules).combined_with(_late_changes(review))
    result = result.combined_with(_new_warnings(review, rules))
    if not review.may_change_queue:
        return TrainJobValidation(result)
    is_unsure = context.runtime is None and review.may_hide_queue
    requested = _new_queues(review, now, before, is_known=context.runtime is not None)
    if before is not None and before.choice.queue == now.choice.queue and not is_unsure:
        return TrainJobValidation(result, requested)
    result = result.combined_with(_validate_queue(review, now, context))
    queue = now.choice.queue
    is_missing = context.denies_unknown_queues and context.queues.is_unknown(queue)
    missing = queue if is_missing and not dns_subdomain_fault(queue) else ""
    return TrainJobValidation(result, requested, is_unsure, queue, missing)


def _old_trainjob(request: AdmissionRequest) -> _TrainJob | None:
    """Return the TrainJob before an update; None if it cannot be read."""
    if request.operation == _CREATE:
        return None
    try:
        return decode(_TrainJob, request.old_object)
    except DecodeError:
        return None


def _named_queues(job: _TrainJob) -> tuple[str | None, str | None, dict[str, str]]:
    patches = job.spec.runtime_patches
    return (
        job.metadata.labels.get(QUEUE),
        patched_jobset_queue(patches),
        patched_pod_queues(patches),
    )


def _is_foreign(request: AdmissionRequest) -> bool:
    try:
        trainjob = decode(_ManagedByTrainJob, request.object)
    except DecodeError:
        return False
    return not _is_managed_here(trainjob.spec.managed_by)


def _is_managed_here(managed_by: str) -> bool:
    return managed_by in {"", TRAINJOB_CONTROLLER}


def _resolve_queues(
    job: _TrainJob, context: TrainJobContext, rules: GroupingRules
) -> TrainJobQueues:
    labels, patches = job.metadata.labels, job.spec.runtime_patches
    namespace = context.namespace_labels
    return resolve_trainjob_queues(labels, patches, context.runtime, namespace, rules.default_queue)


def _is_ours(queues: TrainJobQueues, rules: GroupingRules) -> bool:
    """Say whether the JobSet will be ours, or will be denied for requesting two schedulers."""
    if other_schedulers(queues.jobset):
        return bool(requests_our_scheduler(queues.jobset, queues.sources, rules.scheduler_name))
    names = {
        it.template.spec.template.spec.scheduler_name for it in queues.jobset.spec.replicated_jobs
    }
    return not names or bool(names & {"", rules.scheduler_name})


def _new_contradictions(
    review: TrainJobReview, now: TrainJobQueues, before: TrainJobQueues | None, rules: GroupingRules
) -> ValidationResult:
    """Deny contradictions, unless the TrainJob had them before."""
    old_faults = dict(_contradictions(review.old, before, rules)) if review.old and before else {}
    faults = dict(_contradictions(review.job, now, rules))
    return all_denied(fault for what, fault in faults.items() if what not in old_faults)


def _contradictions(
    job: _TrainJob, queues: TrainJobQueues, rules: GroupingRules
) -> Iterator[tuple[str, FieldError]]:
    """Yield why the JobSet would be denied, as faults of the TrainJob."""
    others = other_schedulers(queues.jobset)
    reasons = requests_our_scheduler(queues.jobset, queues.sources, rules.scheduler_name)
    if others and reasons:
        yield "both", FieldError(RUNTIME_REF_PATH, deny_two_schedulers(others, reasons).message)
    ours = {
        number: it
        for number, it in enumerate(queues.jobset.spec.replicated_jobs)
        if it.template.spec.template.spec.scheduler_name in {"", rules.scheduler_name}
    }
    if queues.runtime.left_out_jobs:
        jobs = len(queues.jobset.spec.replicated_jobs) + queues.runtime.left_out_jobs
        yield "size", FieldError(RUNTIME_REF_PATH, f"the runtime {too_many_jobs(jobs)}")
    exclusive = deny_exclusive_placement(queues.jobset, ours)
    if exclusive:
        is_patched = patches_annotation(job.spec.runtime_patches, EXCLUSIVE_TOPOLOGY)
        path = PATCHES if is_patched else RUNTIME_REF_PATH
        yield "exclusive", FieldError(path, f"in the JobSet, {exclusive.message}")


def _late_changes(review: TrainJobReview) -> ValidationResult:
    """Deny a trainer or initializer added or removed later, which the API server allows."""
    return all_denied(_late_faults(review.old.spec, review.job.spec) if review.old else ())


def _late_faults(old: _TrainJobSpec, new: _TrainJobSpec) -> Iterator[FieldError]:
    for name, before, after in (
        ("trainer", old.trainer, new.trainer),
        ("initializer", old.initializer, new.initializer),
    ):
        if (before is None) != (after is None):
            done = "added to" if before is None else "removed from"
            message = (
                f"cannot be {done} an existing TrainJob. Create a new TrainJob. The pod templates "
                "of its JobSet are immutable, so after the next suspension Trainer could not apply "
                "the JobSet any more"
            )
            yield FieldError(f"spec.{name}", message)


def _new_warnings(review: TrainJobReview, rules: GroupingRules) -> ValidationResult:
    """Warn of labels and annotations that are invalid, misspelled or without effect."""
    old_faults = set(_annotation_faults(review.old.metadata, rules)) if review.old else set()
    faults = [*_annotation_faults(review.job.metadata, rules)]
    if review.old is not None:
        faults += _late_requests(review.old.metadata, review.job.metadata)
    return warned(*(it for it in faults if it not in old_faults))


def _late_requests(old: Meta, new: Meta) -> Iterator[FieldError]:
    """Yield changes that the JobSet does not follow: pods and their grouping are made with it."""
    for where, before, after, names in (
        ("labels", old.labels, new.labels, (NODE_POOL,)),
        ("annotations", old.annotations, new.annotations, (SKIP_PODGROUPER, *CARRIED_TO_PODS)),
    ):
        for name in names:
            if before.get(name) != after.get(name):
                yield FieldError(f"metadata.{where}[{name}]", _COUNTS_AT_CREATION)


def _annotation_faults(meta: Meta, rules: GroupingRules) -> Iterator[FieldError]:
    if KUEUE_QUEUE in meta.labels and not rules.kueue:
        yield FieldError(f"metadata.labels[{KUEUE_QUEUE}]", _NO_KUEUE)
    labels = {name: meta.labels[name] for name in TRAINJOB_KEYS.labels if name in meta.labels}
    labels.pop(QUEUE, None)  # `_validate_queue` checks it
    annotation_names = (name for name in TRAINJOB_KEYS.annotations if name in meta.annotations)
    annotations = {name: meta.annotations[name] for name in annotation_names}
    yield from requested_label_faults(labels, "metadata.labels")
    yield from requested_annotation_faults(annotations, "metadata.annotations")
    yield from misspelled_keys(meta.labels, meta.annotations)


def _validate_queue(
    review: TrainJobReview, now: TrainJobQueues, context: TrainJobContext
) -> ValidationResult:
    """Validate a new queue: its name, that it may change now, that it exists."""
    queue, source = now.choice.queue, now.choice.source
    result = NO_OBJECTIONS
    old = review.old
    if old is not None and not (old.spec.suspend or review.job.spec.suspend):
        running = (
            "the queue can change only while the TrainJob is suspended. Set spec.suspend to true "
            "before, or in the same update"
        )
        result = denied(FieldError(now.path, running))
    fault = (label_value_fault(queue) or dns_subdomain_fault(queue)) if now.is_named else None
    if fault:
        what = "" if source is QueueSource.TRAINJOB else f"the queue name from {source.value}: "
        return result.combined_with(denied(FieldError(now.path, f"{what}{fault}")))
    message = unusable_queue_message(now.choice, context.queues)
    if message is None or queue == context.queue_found_live:
        return result
    missing = FieldError(now.path, message)
    objection = denied(missing) if context.denies_unknown_queues else warned(missing)
    return result.combined_with(objection)


def _new_queues(
    review: TrainJobReview, now: TrainJobQueues, before: TrainJobQueues | None, *, is_known: bool
) -> tuple[RequestedQueue, ...]:
    """Return the new queues; while the runtime is unknown, only those of the TrainJob itself."""
    old_queues = {before.choice.queue, *before.choice.others} if before else set()
    is_namespaced = bool(review.runtime.namespace)
    return tuple(
        it._replace(is_user_choice=bool(it.path) and (is_namespaced or it.path != RUNTIME_REF_PATH))
        for it in now.queues
        if it.queue not in old_queues and (is_known or it.path)
    )


class LintPolicy(NamedTuple):
    is_enabled: bool = True
    denies: bool = False
    autoscales: bool = False  # the cluster adds nodes when capacity is missing
    shares_gpus: bool = True  # our scheduler binds pods with shares of GPUs


def lint_result(
    request: AdmissionRequest,
    runtime_key: Key,
    queue: str,
    cache: AdmissionCache,
    policies: tuple[GroupingRules, LintPolicy],
) -> ValidationResult:
    """Lint a TrainJob for its queue; another rule reports one that cannot be decoded."""
    rules, lint_policy = policies
    runtime = cache.runtimes.whole(runtime_key)
    if not lint_policy.is_enabled or runtime is None or len(bytes(request.object)) > MAX_TEXT_BYTES:
        return NO_OBJECTIONS
    try:
        job = decode(TrainJob, request.object)
    except DecodeError:
        return NO_OBJECTIONS
    known_cluster = cache.cluster.known_cluster(
        autoscales=lint_policy.autoscales, shares_gpus=lint_policy.shares_gpus
    )
    linted = lint_trainjob(job, runtime, queue, rules, known_cluster)
    findings = [it for it in linted if not _is_reported_elsewhere(it)]
    denies = lint_policy.denies and request.operation == _CREATE
    denied = [it for it in findings if denies and is_refusable(it)]
    warnings = warned(*(_fault(it) for it in findings if it not in denied))
    return all_denied(map(_fault, denied)).combined_with(warnings)


def _is_reported_elsewhere(finding: Finding) -> bool:
    """Say whether another rule reports a finding: an invalid value in the TrainJob's metadata."""
    return finding.code == FindingCode.INVALID_VALUE and finding.path.startswith("metadata.")


def _fault(finding: Finding) -> FieldError:
    return FieldError(finding.path, finding.message)
