"""What is written into a Job of ours, at its creation, and while it is suspended.

Ours is a Job with our scheduler in its pod template that a user or a CronJob created. In mode
`external` KAI groups it, and only the number of pods that start together is written.

The API server lets the pod template of a Job change in few fields, its labels among them, and only
while the Job is suspended and has not started yet. From Kubernetes 1.36 on a suspension undoes the
start, once no pod is left; before, a Job that starts again in another queue has pods with the label
of the first one. Their PodGroup counts.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.jobset import Job, JobSpec
from trainer_kai.api.meta import PartialObject
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    BATCH_MIN_MEMBER,
    GANG,
    QUEUE,
    SKIP_PODGROUPER,
)
from trainer_kai.api.resources import JOBS
from trainer_kai.policy.podgroups.grouping import MAIN
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.workload import Workload
from webhook.admission.patch import FieldManagers, FieldPath, PatchBuilder
from webhook.admission.review import (
    UNCHANGED,
    AdmissionRequest,
    AdmissionResponse,
    size_fault,
    unreadable_object,
)
from webhook.rules.jobset_deny import deny_queue_name
from webhook.rules.jobset_mutate import foreign_response
from webhook.rules.trainjob_queue_sources import QUEUE_LABEL_PATH, RequestedQueue

_CREATE: Final = "CREATE"
_UPDATE: Final = "UPDATE"
_LABELS: Final[FieldPath] = ("metadata", "labels")
_ANNOTATIONS: Final[FieldPath] = ("metadata", "annotations")
_TEMPLATE_LABELS: Final[FieldPath] = ("spec", "template", "metadata", "labels")
_INDEXED: Final = "Indexed"


class JobReview(NamedTuple):
    job: Job
    old: Job | None  # None: it is created
    tree: Any
    namespace: str
    name: str  # "" where the API server will choose it

    @property
    def may_change_template(self) -> bool:
        """Say whether the API server lets labels of the pod template change."""
        old = self.old
        if old is None:
            return True
        return old.spec.suspend and not (old.status.start_time or old.status.active)

    @property
    def may_change_queue(self) -> bool:
        return self.old is None or self.job.spec.suspend or self.old.spec.suspend


class JobAnswer(NamedTuple):
    response: AdmissionResponse
    queues: tuple[RequestedQueue, ...] = ()  # that the Job enters, to be checked


def read_job(request: AdmissionRequest, rules: GroupingRules) -> JobReview | AdmissionResponse:
    """Read the Job of a review; return a response where there is nothing to decide."""
    if not request.is_of(JOBS, _CREATE, _UPDATE):
        return UNCHANGED
    is_create = request.operation == _CREATE
    try:
        if size_fault(request.object) or size_fault(request.old_object):
            return _too_large_response(request) if is_create else UNCHANGED
        job, tree = decode(Job, request.object), decode(dict, request.object)
        old = None if is_create else decode(Job, request.old_object)
    except DecodeError as error:
        return unreadable_object(error)
    workload = _our_workload(job, rules)
    if old is None and (workload is None or rules.mode == "external"):
        response = foreign_response(tree, JOBS.kind)
        return response if workload is None else _external_response(job, tree, response, rules)
    was_admitted = old is None or old.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    if workload is None or not was_admitted:
        return UNCHANGED
    meta = job.metadata
    return JobReview(job, old, tree, request.namespace or meta.namespace, meta.name)


def mutate_job(
    review: JobReview, namespace_labels: Mapping[str, str], rules: GroupingRules
) -> JobAnswer:
    if not review.may_change_queue:
        return JobAnswer(_kept_response(review))
    choice = _choice(review, namespace_labels, rules)
    denial = deny_queue_name(choice)
    if denial is not None and review.old is None:
        return JobAnswer(AdmissionResponse(denial=denial))
    if denial is not None:  # only while suspended
        message = f"{QUEUE_LABEL_PATH}: the queue is not changed: {denial.message}"
        return JobAnswer(AdmissionResponse(warnings=(message,)))
    patch = PatchBuilder(review.tree)
    patch.set((*_LABELS, QUEUE), choice.queue)
    patch.set((*_ANNOTATIONS, ADMITTED), ADMITTED_MARK)
    if review.old is None and rules.indexed_jobs:
        _write_minimum(patch, review.job)
    if review.may_change_template:
        patch.set((*_TEMPLATE_LABELS, QUEUE), choice.queue)
        if patch.get((*_ANNOTATIONS, SKIP_PODGROUPER)) == "true":
            patch.remove((*_TEMPLATE_LABELS, GANG))
        else:
            patch.set((*_TEMPLATE_LABELS, GANG), MAIN)
    response = AdmissionResponse(patch.operations, _warnings(choice))
    return JobAnswer(response, _entered_queues(review, choice))


def _our_workload(job: Job, rules: GroupingRules) -> Workload | None:
    workload = job_workload(job)
    is_ours = job.spec.template.spec.scheduler_name == rules.scheduler_name
    if workload is None or not is_ours or job.metadata.deletion_timestamp:
        return None
    return workload if workload.is_managed_here else None


def _too_large_response(request: AdmissionRequest) -> AdmissionResponse:
    """Answer for a Job that is too large to be read: its pods are placed one by one."""
    meta = decode(PartialObject, request.object).metadata
    return foreign_response({"metadata": {"annotations": dict(meta.annotations)}}, JOBS.kind)


def _external_response(
    job: Job, tree: Any, unmarked: AdmissionResponse, rules: GroupingRules
) -> AdmissionResponse:
    """Write only what KAI reads as well; *unmarked* removes a mark of ours."""
    patch = PatchBuilder(tree)
    if rules.indexed_jobs:
        _write_minimum(patch, job)
    return AdmissionResponse((*unmarked.operations, *patch.operations), unmarked.warnings)


def _write_minimum(patch: PatchBuilder, job: Job) -> None:
    """Let all pods of an Indexed Job start together, if all of them run at the same time."""
    count = full_parallelism(job.spec)
    if count and patch.get((*_ANNOTATIONS, BATCH_MIN_MEMBER)) is None:
        patch.set((*_ANNOTATIONS, BATCH_MIN_MEMBER), str(count))


def full_parallelism(spec: JobSpec) -> int:
    """Return the number of pods of an Indexed Job that all run at the same time; 0 for others."""
    is_full = spec.completion_mode == _INDEXED and spec.completions == spec.parallelism
    return max(spec.parallelism or 0, 0) if is_full else 0


def _kept_response(review: JobReview) -> AdmissionResponse:
    """Restore the queue and the mark of a Job that runs."""
    old, patch = review.old, PatchBuilder(review.tree)
    assert old is not None
    queue = old.metadata.labels.get(QUEUE)
    warnings: tuple[str, ...] = ()
    if queue and review.job.metadata.labels.get(QUEUE) != queue:
        patch.set((*_LABELS, QUEUE), queue)
        message = f"remains {queue!r} while the Job runs. To change the queue, suspend the Job"
        warnings = (f"{QUEUE_LABEL_PATH}: {message} (spec.suspend: true)",)
    patch.set((*_ANNOTATIONS, ADMITTED), ADMITTED_MARK)
    return AdmissionResponse(patch.operations, warnings)


def _choice(
    review: JobReview, namespace_labels: Mapping[str, str], rules: GroupingRules
) -> QueueChoice:
    """Resolve the queue, without labels that admission wrote."""
    managed_fields, job = FieldManagers(review.tree["metadata"]), review.job
    is_of_user = managed_fields.sets_job_template_label(QUEUE)
    template = job.spec.template.metadata.labels if is_of_user else {}
    sources = RequestedQueues(
        own=job.metadata.labels if managed_fields.sets_label(QUEUE) else {},
        templates=(template,),
        namespace=namespace_labels,
    )
    return resolve_queue(sources, rules.default_queue)


def _entered_queues(review: JobReview, choice: QueueChoice) -> tuple[RequestedQueue, ...]:
    """Return the queue that the Job enters by this review.

    The author of the CronJob of a run is unknown. An update may be that of a controller, so that
    only a queue that its author names counts.
    """
    is_named = choice.source in {QueueSource.OWN, QueueSource.POD_TEMPLATE}
    is_run = review.job.metadata.controller is not None
    chosen = RequestedQueue(choice.queue, "", is_user_choice=is_named and not is_run)
    if review.old is not None:
        is_new = review.old.metadata.labels.get(QUEUE) != choice.queue
        return (chosen,) if is_named and is_new else ()
    return (chosen,)


def _warnings(choice: QueueChoice) -> tuple[str, ...]:
    if not choice.others:
        return ()
    message = f"the pods use queue {choice.queue}, from {choice.source.value}. Remove this label"
    return (f"spec.template.metadata.labels[{QUEUE}]: {message}",)
