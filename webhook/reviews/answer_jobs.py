"""Answers reviews of Jobs and JobSets, which admission changes.

For the JobSet of a TrainJob the TrainJob is read where the cache may not have it. For a Job or
JobSet that a user creates nothing is read; only the access to a closed queue is checked, as for a
TrainJob. The TrainJob's own review has checked that of its JobSet.

A new Job that is marked is validated here as well, as it is after the patch: a second review of
each Job would cost the API server more than its storage.
"""

import msgspec
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import OwnerReference
from trainer_kai.errors import FieldError
from trainer_kai.kube.rest.response import ApiError
from trainer_kai.service.metrics import Metrics
from webhook.admission.review import (
    NO_OBJECTIONS,
    SERVICE_UNAVAILABLE,
    AdmissionDenial,
    AdmissionRequest,
    AdmissionResponse,
    ValidationResult,
    warned,
)
from webhook.cache.admission_cache import AdmissionCache, TrainJobSummary
from webhook.reviews.answer_trainjob import AdmissionPolicy, ReadTrainJob
from webhook.reviews.queue_access_check import QueueAccessChecker
from webhook.rules.job_mutate import mutate_job, read_job
from webhook.rules.jobset_mutate import (
    JobSetContext,
    JobSetReview,
    entered_queues,
    mutate_jobset,
    read_jobset,
)
from webhook.rules.trainjob_queue_sources import QUEUE_LABEL_PATH, RequestedQueue
from webhook.rules.workload_validate import WorkloadContext, validate_workload


def workload_context(cache: AdmissionCache, policy: AdmissionPolicy) -> WorkloadContext:
    cluster = cache.cluster
    return WorkloadContext(
        cache.queues,
        cluster.known_cluster(autoscales=False, shares_gpus=policy.lint.shares_gpus),
        cluster.non_preemptible_usage,
        policy.unannotated,
    )


class JobsHandler:
    def __init__(
        self,
        cache: AdmissionCache,
        policy: AdmissionPolicy,
        read: ReadTrainJob,
        queue_access: QueueAccessChecker,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._policy = policy
        self._rules = policy.rules
        self._read_trainjob = read
        self._queue_access = queue_access
        self._metrics = metrics
        self._log = log

    async def answer_job(self, request: AdmissionRequest) -> AdmissionResponse:
        review = read_job(request, self._rules)
        if isinstance(review, AdmissionResponse):
            return review
        namespace_labels = self._cache.namespace_labels(review.namespace)
        response, queues = mutate_job(review, namespace_labels, self._rules)
        response = await self._with_access(request, response, review.namespace, queues)
        if review.old is None:
            patched = replace(request, object=msgspec.Raw(msgspec.json.encode(review.tree)))
            context = workload_context(self._cache, self._policy)
            response = _with_warnings(response, validate_workload(patched, context, self._rules))
        self._log_patch(request, response, "job", f"{review.namespace}/{review.name}")
        return response

    async def answer_jobset(self, request: AdmissionRequest) -> AdmissionResponse:
        review = read_jobset(request, self._rules)
        if isinstance(review, AdmissionResponse):
            return review
        owner = review.owner_reference
        try:
            trainjob = await self._owning_trainjob(review, owner) if owner is not None else None
        except ApiError as error:
            return self._answer_without_trainjob(review, error)
        runtime_queue = self._cache.runtimes.queue(trainjob.runtime) if trainjob else ""
        namespace = self._cache.namespace_labels(review.key.namespace)
        runtime = self._cache.runtimes.summary(trainjob.runtime) if trainjob else None
        launcher_trains = runtime is None or runtime.launcher_trains
        context = JobSetContext(trainjob, runtime_queue, namespace, launcher_trains)
        response = mutate_jobset(review, context, self._rules)
        if owner is None and response.denial is None:
            queues = entered_queues(review, context, self._rules)
            response = await self._with_access(request, response, review.key.namespace, queues)
            if review.is_create:
                response = _with_warnings(response, self._unusable(queues))
        self._log_patch(request, response, "jobset", str(review.key))
        return response

    async def _with_access(
        self,
        request: AdmissionRequest,
        response: AdmissionResponse,
        namespace: str,
        queues: tuple[RequestedQueue, ...],
    ) -> AdmissionResponse:
        """Return the response, or a denial where a queue is closed to the user or the namespace."""
        if response.denial is not None:
            return response
        access = await self._queue_access.check(request.user_info, namespace, queues)
        return response if access == NO_OBJECTIONS else access.response()

    def _unusable(self, queues: tuple[RequestedQueue, ...]) -> ValidationResult:
        reasons = ((it, self._cache.queues.unusable_reason(it.queue)) for it in queues)
        return warned(
            *(
                FieldError(it.path or QUEUE_LABEL_PATH, f"queue {it.queue!r} {reason}")
                for it, reason in reasons
                if reason is not None
            )
        )

    def _log_patch(
        self, request: AdmissionRequest, response: AdmissionResponse, kind: str, name: str
    ) -> None:
        if response.operations and not request.dry_run:
            fields = {"operation": request.operation, "warnings": list(response.warnings)}
            self._log.info("workload patched", kind=kind, name=name, **fields)

    async def _owning_trainjob(
        self, review: JobSetReview, owner: OwnerReference
    ) -> TrainJobSummary | None:
        """Return the owner of a JobSet, read from the API server if it may not be cached yet."""
        trainjob = self._cache.trainjob(review.key)
        if trainjob is None or trainjob.uid != owner.uid or not review.is_create:
            reads = self._metrics.admission_live_reads
            try:
                trainjob = await self._read_trainjob(review.key)
            except ApiError:
                reads.labels("failed").inc()
                raise
            reads.labels("found" if trainjob else "gone").inc()
        if trainjob is not None and trainjob.uid != owner.uid:
            return None  # the owner was deleted; this is a newer TrainJob with the same name
        return trainjob

    def _answer_without_trainjob(self, review: JobSetReview, error: ApiError) -> AdmissionResponse:
        """Answer without the TrainJob: deny a creation, which is retried; allow an update."""
        key = str(review.key)
        self._log.warning("trainjob not read", trainjob=key, error=str(error))
        message = f"TrainJob {key} cannot be read: {error}"
        if review.is_create:
            denial = AdmissionDenial(SERVICE_UNAVAILABLE, f"{message}. Try again")
            return AdmissionResponse(denial=denial)
        return AdmissionResponse(warnings=(f"the queue of the JobSet is not changed: {message}",))


def _with_warnings(response: AdmissionResponse, more: ValidationResult) -> AdmissionResponse:
    if response.denial is not None:
        return response
    return response._replace(warnings=(*response.warnings, *more.warnings))
