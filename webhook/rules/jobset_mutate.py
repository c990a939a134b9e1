"""What is written into a JobSet of ours, at its creation, while it is suspended, and later.

`read_jobset` decides whether a JobSet is ours: it has a TrainJob, or a user created it with our
scheduler in a pod template. `mutate_jobset` returns the patch. At creation that is the scheduler
name, the queue and our marks; later only the queue, and marks that were lost: JobSet would reject a
changed scheduler name. A value of a user stays, with two exceptions: a queue with higher precedence
overwrites another one, and the annotation `trainer-kai.dev/admitted` is set on our JobSets and
removed from all others.

Of an existing JobSet fields are restored. Trainer may apply a JobSet a second time right after its
creation, before its cache has it. That replaces our labels by its own: the JobSet would have
another queue than its pods, and JobSet would reject the changed template. The queue is not resolved
again, since a running JobSet keeps its queue. JobSet defaults the retention of volume claims at
creation, and makes the field immutable; when a TrainJob is suspended or resumed, Trainer applies
the JobSet without the field and would always be rejected. So the field is restored too.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.meta import Key, Meta, OwnerReference, PartialObject
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    FOLLOWS_TRAINJOB,
    GANG,
    JOBSET_CONTROLLER,
    QUEUE,
    SKIP_PODGROUPER,
)
from trainer_kai.api.requested_values import requested_annotation_faults, requested_label_faults
from trainer_kai.api.resources import JOBSETS, trainjob_owner
from trainer_kai.api.syntax import dns_subdomain_fault
from trainer_kai.api.text import listed_names
from trainer_kai.policy.expand.jobset import (
    CARRIED_ANNOTATIONS,
    CARRIED_LABELS,
    carried_to_pods,
    requested_of_pods,
)
from trainer_kai.policy.podgroups.followed_values import followed_names
from trainer_kai.policy.podgroups.grouping import PodGroupPlan, plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)
from webhook.admission.patch import FieldManagers, FieldPath, PatchBuilder
from webhook.admission.review import (
    UNCHANGED,
    AdmissionRequest,
    AdmissionResponse,
    oversized_object,
    size_fault,
    unreadable_object,
)
from webhook.cache.admission_cache import TrainJobSummary
from webhook.rules.jobset_deny import (
    deny_exclusive_placement,
    deny_oversized_podgroup,
    deny_queue_name,
    deny_size,
    deny_two_schedulers,
    other_schedulers,
    requests_our_scheduler,
)
from webhook.rules.trainjob_queue_sources import RequestedQueue

_LABELS: Final[FieldPath] = ("metadata", "labels")


def pod_template_path(number: int) -> FieldPath:
    return ("spec", "replicatedJobs", number, "template", "spec", "template")


def needs_restore(jobset: JobSet, old: JobSet) -> bool:
    """Say whether an update changed a field that we may have written."""
    is_moved = jobset.metadata.labels.get(QUEUE) != old.metadata.labels.get(QUEUE)
    return (
        is_moved
        or any(_changed_template_labels(jobset, old))
        or any(_lost_claim_policies(jobset, old))
    )


def restored_response(jobset: JobSet, old: JobSet, tree: Any) -> AdmissionResponse:
    patch = PatchBuilder(tree)
    queue = old.metadata.labels.get(QUEUE)
    if queue:
        patch.set((*_LABELS, QUEUE), queue)
    for number, name, value in _changed_template_labels(jobset, old):
        field_path = (*pod_template_path(number), *_LABELS, name)
        if value is None:
            patch.remove(field_path)
        else:
            patch.set(field_path, value)
    restore_claim_policies(patch, jobset, old)
    return AdmissionResponse(patch.operations)


def restore_claim_policies(patch: PatchBuilder, jobset: JobSet, old: JobSet) -> None:
    """Write the retention of volume claims as JobSet defaulted it."""
    for number, value in _lost_claim_policies(jobset, old):
        patch.set(("spec", "volumeClaimPolicies", number, "retentionPolicy"), value)


def _lost_claim_policies(jobset: JobSet, old: JobSet) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the index of each policy that lost its retention, and the old value."""
    pairs = zip(jobset.spec.volume_claim_policies, old.spec.volume_claim_policies, strict=False)
    for number, (now, before) in enumerate(pairs):
        if now.retention_policy is None and before.retention_policy is not None:
            yield number, before.retention_policy


def _changed_template_labels(jobset: JobSet, old: JobSet) -> Iterator[tuple[int, str, str | None]]:
    """Yield the labels of pod templates that differ: replicatedJob, name and old value."""
    before = {job.name: job.template.spec.template.metadata for job in old.spec.replicated_jobs}
    for number, job in enumerate(jobset.spec.replicated_jobs):
        if job.name not in before:
            continue
        labels = job.template.spec.template.metadata.labels
        for name in (QUEUE, GANG):
            value = before[job.name].labels.get(name)
            if labels.get(name) != value:
                yield number, name, value


_CREATE: Final = "CREATE"
_UPDATE: Final = "UPDATE"
_ANNOTATIONS: Final[FieldPath] = ("metadata", "annotations")
_TRUE: Final = "true"
_QUEUE_PATH: Final = f"metadata.labels[{QUEUE}]"
_MAX_NAMED_QUEUES: Final = 3
_OUTRANK_TEMPLATES: Final = frozenset({QueueSource.OWN, QueueSource.TRAINJOB, QueueSource.RUNTIME})


class JobSetContext(NamedTuple):
    """The TrainJob, unless it is deleted, and the queues that its runtime and namespace name."""

    trainjob: TrainJobSummary | None
    runtime_queue: str = ""
    namespace_labels: Mapping[str, str] = {}
    launcher_trains: bool = True  # with MPI: it is one of the nodes


class JobSetReview(NamedTuple):
    is_create: bool
    jobset: JobSet
    old: JobSet | None
    tree: Any
    key: Key  # its TrainJob has the same name
    owner_reference: OwnerReference | None  # to its TrainJob; None: a user created it
    our_jobs: Mapping[int, ReplicatedJob]  # by their index in the list


def read_jobset(
    request: AdmissionRequest, rules: GroupingRules
) -> JobSetReview | AdmissionResponse:
    """Read the JobSet of a review; return a response where there is nothing to decide."""
    if not request.is_of(JOBSETS, _CREATE, _UPDATE):
        return UNCHANGED
    try:
        too_large = size_fault(request.object) or size_fault(request.old_object)
        if too_large:
            return _too_large_response(request, too_large)
        jobset = decode(JobSet, request.object)
        tree = decode(dict, request.object)
    except DecodeError as error:
        return UNCHANGED if _is_foreign_jobset(request) else unreadable_object(error)
    is_create = request.operation == _CREATE
    owner = _trainjob_reference(jobset.metadata)
    managed_here = jobset.spec.managed_by in {"", JOBSET_CONTROLLER}
    is_ours = managed_here and (owner is not None or _is_bare(jobset, rules))
    if not is_ours or jobset.metadata.deletion_timestamp:
        return foreign_response(tree, JOBSETS.kind) if is_create else UNCHANGED
    old = None if is_create else _admitted_before(request)
    if old is None and not is_create:
        return UNCHANGED
    if old is not None and not (_is_suspended(jobset, old) or needs_restore(jobset, old)):
        return UNCHANGED
    our_jobs = {
        number: job
        for number, job in enumerate(jobset.spec.replicated_jobs)
        if job.template.spec.template.spec.scheduler_name in {"", rules.scheduler_name}
    }
    if not our_jobs and not (is_create and other_schedulers(jobset)):
        return foreign_response(tree, JOBSETS.kind) if is_create else UNCHANGED
    name = owner.name if owner is not None else jobset.metadata.name
    key = Key(request.namespace or jobset.metadata.namespace, name)
    return JobSetReview(is_create, jobset, old, tree, key, owner, our_jobs)


def mutate_jobset(
    review: JobSetReview, context: JobSetContext, rules: GroupingRules
) -> AdmissionResponse:
    too_many = deny_size(review.jobset)
    if too_many and review.is_create:
        return AdmissionResponse(denial=too_many)
    if too_many:
        return AdmissionResponse(warnings=(too_many.message,))
    if review.old is not None and not _is_suspended(review.jobset, review.old):
        return restored_response(review.jobset, review.old, review.tree)
    managed_fields = FieldManagers(review.tree["metadata"])
    sources = _queue_sources(review, context, managed_fields)
    choice = resolve_queue(sources, rules.default_queue)
    if review.is_create:
        denied = _denied_response(review, sources, choice, rules)
        if denied is not None:
            return denied
    return _patched_response(review, context, rules, managed_fields, choice)


def entered_queues(
    review: JobSetReview, context: JobSetContext, rules: GroupingRules
) -> tuple[RequestedQueue, ...]:
    """Return the queues that the pods of a user's JobSet enter by this review.

    An update may be that of a controller, so that only a queue that its author names counts.
    """
    if review.old is not None and not _is_suspended(review.jobset, review.old):
        return ()
    sources = _queue_sources(review, context, FieldManagers(review.tree["metadata"]))
    choice = resolve_queue(sources, rules.default_queue)
    is_named = choice.source in {QueueSource.OWN, QueueSource.POD_TEMPLATE}
    chosen = RequestedQueue(choice.queue, "", is_user_choice=is_named)
    if review.old is not None:
        is_new = review.old.metadata.labels.get(QUEUE) != choice.queue
        return (chosen,) if is_named and is_new else ()
    return (chosen, *(RequestedQueue(it, "", is_user_choice=True) for it in choice.others))


def _patched_response(
    review: JobSetReview,
    context: JobSetContext,
    rules: GroupingRules,
    managed_fields: FieldManagers,
    choice: QueueChoice,
) -> AdmissionResponse:
    """Write all our fields into a JobSet that is created, or suspended."""
    patch = PatchBuilder(review.tree)
    if review.old is not None:
        restore_claim_policies(patch, review.jobset, review.old)
    warnings = list(_write_queue(patch, review, choice, managed_fields))
    if review.is_create:
        _copy_carried_metadata(patch, review, context)
    is_grouped_by_user = _is_grouped_by_user(review, context, rules, managed_fields)
    if rules.mode == "external" and not is_grouped_by_user:
        _set_if_empty(patch, (*_ANNOTATIONS, SKIP_PODGROUPER), _TRUE)
    patch.set((*_ANNOTATIONS, ADMITTED), ADMITTED_MARK)
    plan = _plan(review, patch, rules)
    if review.is_create:
        too_large = deny_oversized_podgroup(plan)
        if too_large and not is_grouped_by_user:
            return AdmissionResponse(denial=too_large)
        for number in review.our_jobs:
            field_path = (*pod_template_path(number), "spec", "schedulerName")
            _set_if_empty(patch, field_path, rules.scheduler_name)
    for number, job in enumerate(review.jobset.spec.replicated_jobs):
        field_path = (*pod_template_path(number), *_LABELS, GANG)
        is_ours = number in review.our_jobs and not is_grouped_by_user
        podgroup = plan.podgroup_of(job.name) if is_ours else None
        if podgroup is None:
            patch.remove(field_path)  # only templates of our PodGroups have it
        else:
            patch.set(field_path, podgroup.suffix)
    return AdmissionResponse(patch.operations, (*warnings, *_warnings(patch, review, plan)))


def _is_bare(jobset: JobSet, rules: GroupingRules) -> bool:
    """Say whether a user created the JobSet, and names our scheduler in a pod template."""
    return jobset.metadata.controller is None and any(
        job.template.spec.template.spec.scheduler_name == rules.scheduler_name
        for job in jobset.spec.replicated_jobs
    )


def _is_foreign_jobset(request: AdmissionRequest) -> bool:
    """Say whether an unreadable JobSet is not ours: it has no TrainJob, and no mark."""
    try:
        meta = decode(PartialObject, request.object).metadata
    except DecodeError:
        return False
    return _trainjob_reference(meta) is None and ADMITTED not in meta.annotations


def _too_large_response(request: AdmissionRequest, fault: str) -> AdmissionResponse:
    """Answer for a JobSet that is too large to be read: an existing one stays as it is."""
    if request.operation != _CREATE:
        return UNCHANGED
    meta = decode(PartialObject, request.object).metadata
    if _trainjob_reference(meta) is None:
        tree = {"metadata": {"annotations": dict(meta.annotations)}}
        return foreign_response(tree, JOBSETS.kind)
    return oversized_object("JobSet", fault)


def foreign_response(tree: Any, kind: str) -> AdmissionResponse:
    """Answer for a new workload that is not ours: remove the mark that only admission sets."""
    patch = PatchBuilder(tree)
    patch.remove((*_ANNOTATIONS, ADMITTED))
    if not patch.operations:
        return UNCHANGED
    message = f"removed: only trainer-kai sets this annotation, on {kind}s that it schedules"
    return AdmissionResponse(patch.operations, (f"metadata.annotations[{ADMITTED}]: {message}",))


def _trainjob_reference(meta: Meta) -> OwnerReference | None:
    owner = trainjob_owner(meta)
    if owner is None or dns_subdomain_fault(owner.name):
        return None  # the API server validates names after admission: no TrainJob has this name
    return owner


def _admitted_before(request: AdmissionRequest) -> JobSet | None:
    """Return the JobSet before an update, if it was admitted by us."""
    try:
        old = decode(JobSet, request.old_object)
    except DecodeError:
        return None
    return old if old.metadata.annotations.get(ADMITTED) == ADMITTED_MARK else None


def _is_suspended(jobset: JobSet, old: JobSet) -> bool:
    """Say whether a JobSet is suspended before or after an update: then its queue may change."""
    return jobset.spec.suspend or old.spec.suspend


def _queue_sources(
    review: JobSetReview, context: JobSetContext, managed_fields: FieldManagers
) -> RequestedQueues:
    """Return the queue that each object names, without labels that admission wrote."""
    jobs = review.jobset.spec.replicated_jobs
    labels = review.jobset.metadata.labels if managed_fields.sets_label(QUEUE) else {}
    return RequestedQueues(
        trainjob=context.trainjob.labels if context.trainjob else {},
        runtime_queue=context.runtime_queue,
        jobset=labels if review.owner_reference is not None else {},
        own=labels if review.owner_reference is None else {},
        templates=tuple(
            job.template.spec.template.metadata.labels
            if managed_fields.sets_template_label(job.name, QUEUE)
            else {}
            for job in jobs
        ),
        namespace=context.namespace_labels,
    )


def _denied_response(
    review: JobSetReview, sources: RequestedQueues, choice: QueueChoice, rules: GroupingRules
) -> AdmissionResponse | None:
    """None for a JobSet that is ours, and not denied."""
    others = other_schedulers(review.jobset) if review.owner_reference is not None else ()
    if others:
        reasons = requests_our_scheduler(review.jobset, sources, rules.scheduler_name)
        if not reasons:
            return foreign_response(review.tree, JOBSETS.kind)
        return AdmissionResponse(denial=deny_two_schedulers(others, reasons))
    denial = deny_exclusive_placement(review.jobset, review.our_jobs) or deny_queue_name(choice)
    return AdmissionResponse(denial=denial) if denial else None


def _write_queue(
    patch: PatchBuilder, review: JobSetReview, choice: QueueChoice, managed_fields: FieldManagers
) -> Iterator[str]:
    """Write the queue; yield warnings about it."""
    denial = deny_queue_name(choice)
    if denial:  # only while suspended: a creation is denied
        yield f"{_QUEUE_PATH}: the queue is not changed: {denial.message}"
        return
    patch.set((*_LABELS, QUEUE), choice.queue)
    for number, job in review.our_jobs.items():
        given = job.template.spec.template.metadata.labels.get(QUEUE)
        has_higher_source = choice.source in _OUTRANK_TEMPLATES
        is_outranked = has_higher_source or not managed_fields.sets_template_label(job.name, QUEUE)
        if not given or is_outranked:
            patch.set((*pod_template_path(number), *_LABELS, QUEUE), choice.queue)
    if choice.others:
        names = listed_names(choice.others, _MAX_NAMED_QUEUES)
        yield (
            f"{_QUEUE_PATH}: the PodGroups use queue {choice.queue}, from {choice.source.value}; "
            f"labels of pod templates name other queues: {names}. Remove those labels"
        )


def _copy_carried_metadata(
    patch: PatchBuilder, review: JobSetReview, context: JobSetContext
) -> None:
    """Copy labels and annotations from the TrainJob that the JobSet, or its pods, do not have."""
    if context.trainjob is None:
        return
    followed = followed_names(patch.labels(_LABELS), patch.labels(_ANNOTATIONS))
    if followed:  # a second review sees what the first one has copied
        _set_if_empty(patch, (*_ANNOTATIONS, FOLLOWS_TRAINJOB), followed)
    for parent, names, given in (
        (_LABELS, CARRIED_LABELS, context.trainjob.labels),
        (_ANNOTATIONS, CARRIED_ANNOTATIONS, context.trainjob.annotations),
    ):
        for name in names:
            if name in given and patch.get((*parent, name)) is None:
                patch.set((*parent, name), given[name])
    for number, added in carried_to_pods(
        review.jobset.spec.replicated_jobs,
        requested_of_pods(context.trainjob.annotations, review.jobset.metadata.annotations),
        with_launcher=context.launcher_trains,
    ):
        for name, text in added.items() if number in review.our_jobs else ():
            patch.set((*pod_template_path(number), *_ANNOTATIONS, name), text)


def _set_if_empty(patch: PatchBuilder, field_path: FieldPath, value: str) -> None:
    if not patch.get(field_path):
        patch.set(field_path, value)


def _is_grouped_by_user(
    review: JobSetReview,
    context: JobSetContext,
    rules: GroupingRules,
    managed_fields: FieldManagers,
) -> bool:
    """Say whether the user groups the pods instead of us; this is decided at creation.

    With an external KAI the annotation may be ours, and "false" requests KAI's own grouping.
    """
    if review.old is not None:
        given = review.old.metadata.annotations.get(SKIP_PODGROUPER)
        requested = None if _has_gang_labels(review.old) else given
    else:
        requested = context.trainjob.annotations.get(SKIP_PODGROUPER) if context.trainjob else None
        given = review.jobset.metadata.annotations.get(SKIP_PODGROUPER)
        is_of_user = rules.mode == "bundled" or _is_set_by_user(review, managed_fields)
        if given is not None and is_of_user:
            requested = given
    return requested is not None and (requested == _TRUE or rules.mode == "external")


def _is_set_by_user(review: JobSetReview, managed_fields: FieldManagers) -> bool:
    """Say whether the user set the annotation, and not we in an earlier review."""
    if managed_fields.is_recorded:
        return managed_fields.sets_annotation(SKIP_PODGROUPER)
    is_marked = review.jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    return not (is_marked and _has_gang_labels(review.jobset))


def _has_gang_labels(jobset: JobSet) -> bool:
    jobs = jobset.spec.replicated_jobs
    return any(GANG in job.template.spec.template.metadata.labels for job in jobs)


def _plan(review: JobSetReview, patch: PatchBuilder, rules: GroupingRules) -> PodGroupPlan:
    """Plan the JobSet as it will be stored; our scheduler name does not change PodGroups."""
    meta = replace(review.jobset.metadata, annotations=patch.labels(_ANNOTATIONS))
    jobset = replace(review.jobset, metadata=meta)
    return plan_podgroups(jobset, rules.scheduler_name, staged=rules.mode == "external")


def _warnings(patch: PatchBuilder, review: JobSetReview, plan: PodGroupPlan) -> Iterator[str]:
    """Yield warnings, one for each path."""
    messages = {finding.path: str(finding) for finding in plan.findings}
    faults = [
        *requested_label_faults(patch.labels(_LABELS), "metadata.labels"),
        *requested_annotation_faults(patch.labels(_ANNOTATIONS), "metadata.annotations"),
    ]
    for number, job in review.our_jobs.items():
        path = f"spec.replicatedJobs[{number}].template.metadata.annotations"
        faults += requested_annotation_faults(job.template.metadata.annotations, path)
    for fault in faults:
        messages.setdefault(fault.path, str(fault))
    yield from messages.values()
