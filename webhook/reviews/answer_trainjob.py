"""Answers reviews of TrainJobs: looks objects up for the rules.

A review waits for at most one read of a runtime, one of an unknown queue, and the access checks,
each with a time limit, of objects that the cache may not have; other reviews do not wait. If a
lookup fails, a TrainJob is denied only if queues are closed and it could enter one of them
unchecked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.api.names import RUN_AI
from trainer_kai.api.resources import QUEUES
from trainer_kai.kube.client import AccessRequest, Client, RetryPolicy, review_access
from trainer_kai.kube.rest.request import ListTarget, Selection
from trainer_kai.kube.rest.response import ApiError, ErrorDetails, NotFound, Unavailable
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import UnannotatedAccess
from webhook.admission.review import (
    NO_OBJECTIONS,
    AdmissionRequest,
    AdmissionResponse,
    ValidationResult,
)
from webhook.cache.admission_cache import (
    TRAINJOBS,
    AdmissionCache,
    TrainJobSummary,
    summarize_trainjob,
)
from webhook.cache.runtimes import CLUSTER_RUNTIMES, RUNTIMES, RuntimeSummary
from webhook.reviews.queue_access_check import (
    LOOKUP_TIMEOUT_S,
    MayUseQueue,
    QueueAccessChecker,
    error_text,
    retry_later,
)
from webhook.rules.access_requests import VERB, QueueAccessRequest
from webhook.rules.trainjob_queue_sources import RUNTIME_REF_PATH
from webhook.rules.trainjob_validate import (
    LintPolicy,
    TrainJobContext,
    TrainJobReview,
    TrainJobValidation,
    lint_result,
    read_trainjob,
    validate_trainjob,
)

# None: it does not exist
ReadTrainJob: TypeAlias = Callable[[Key], Awaitable[TrainJobSummary | None]]
ReadRuntime: TypeAlias = Callable[[Key], Awaitable[RuntimeSummary | None]]
HasQueue: TypeAlias = Callable[[str], Awaitable[bool]]
_LOOKUP_RETRY_POLICY: Final = RetryPolicy(timeout_s=0.8, total_s=0.8)
# the API server waits 5 s for a review
_TRAINJOB_RETRY_POLICY: Final = RetryPolicy(timeout_s=1.5, total_s=2.0)
_TRAINJOB_READ_S: Final = 3.5  # including the wait for the read limit


class AdmissionPolicy(NamedTuple):
    """The settings of admission: the rules, and which faults are denied instead of warned about."""

    rules: GroupingRules
    unannotated: UnannotatedAccess = "open"  # of queues without an access annotation
    denies_unknown_queues: bool = False
    lint: LintPolicy = LintPolicy()


class LiveLookups(NamedTuple):
    """Questions that only the API server answers for sure; each raises `ApiError`."""

    runtime: ReadRuntime
    may_use_queue: MayUseQueue
    has_queue: HasQueue


class TrainJobHandler:
    def __init__(
        self,
        cache: AdmissionCache,
        admission_policy: AdmissionPolicy,
        live: LiveLookups,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._policy = admission_policy
        self._live = live
        self._metrics = metrics
        self._log = log
        unannotated, may_use = admission_policy.unannotated, live.may_use_queue
        self.queue_access: Final = QueueAccessChecker(
            cache.queues, unannotated, may_use, clock, metrics, log
        )

    def fails_closed(self) -> bool:
        return self.queue_access.fails_closed()

    async def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        review = read_trainjob(request)
        if isinstance(review, AdmissionResponse):
            return review
        runtime, problem = await self._find_runtime(review)
        context = TrainJobContext(
            runtime,
            self._cache.namespace_labels(review.namespace),
            self._cache.queues,
            self._policy.denies_unknown_queues,
        )
        validation = validate_trainjob(review, context, self._policy.rules)
        if validation.missing_queue and await self._queue_exists(validation.missing_queue):
            context = context._replace(queue_found_live=validation.missing_queue)
            validation = validate_trainjob(review, context, self._policy.rules)
        result = validation.result
        if not result.denials:
            access = await self._check_access(request, review, validation, problem)
            result = result.combined_with(access)
        if validation.queue:
            result = result.combined_with(self._lint(request, review, validation.queue))
        return result.response()

    def _lint(
        self, request: AdmissionRequest, review: TrainJobReview, queue: str
    ) -> ValidationResult:
        """Return the findings of lint; an internal error in lint does not affect other results."""
        policies = self._policy.rules, self._policy.lint
        try:
            return lint_result(request, review.runtime, queue, self._cache, policies)
        except Exception as error:  # noqa: BLE001 - the other results still count
            self._log.error("trainjob not linted", namespace=review.namespace, exc_info=error)
            return NO_OBJECTIONS

    async def _find_runtime(self, review: TrainJobReview) -> tuple[RuntimeSummary | None, str]:
        """Return the runtime, or why it is unknown.

        The cached runtime is used, unless the user may just have changed the runtime and it decides
        which queue the user must be allowed to use.
        """
        runtime = self._cache.runtimes.summary(review.runtime)
        if not review.may_change_queue:
            return runtime, "the runtime is not cached yet"
        if runtime is not None and not (self.fails_closed() and review.may_hide_queue):
            return runtime, ""
        reads = self._metrics.admission_live_reads
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                runtime = await self._live.runtime(review.runtime)
        except (ApiError, TimeoutError) as error:
            reads.labels("failed").inc()
            reason = error_text(error)
            self._log.warning("runtime not read", runtime=str(review.runtime), error=reason)
            return None, reason
        reads.labels("gone" if runtime is None else "found").inc()
        return runtime, "" if runtime else f"runtime {review.runtime} does not exist"

    async def _queue_exists(self, queue: str) -> bool:
        reads = self._metrics.admission_live_reads
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                exists = await self._live.has_queue(queue)
        except (ApiError, TimeoutError) as error:
            reads.labels("failed").inc()
            self._log.warning("queue not read", queue=queue, error=error_text(error))
            return False
        reads.labels("found" if exists else "gone").inc()
        return exists

    async def _check_access(
        self,
        request: AdmissionRequest,
        review: TrainJobReview,
        validation: TrainJobValidation,
        problem: str,
    ) -> ValidationResult:
        """Return a denial where the user or the namespace may not use a closed queue."""
        if validation.may_miss_queue and self.fails_closed():
            return retry_later(RUNTIME_REF_PATH, f"the queue of the runtime is unknown: {problem}")
        requested = validation.requested_queues
        return await self.queue_access.check(request.user_info, review.namespace, requested)


def trainjob_reader(client: Client, read_limit: asyncio.Semaphore) -> ReadTrainJob:
    bounded_client = client.with_retry_policy(_TRAINJOB_RETRY_POLICY)

    async def read(key: Key) -> TrainJobSummary | None:
        try:
            async with asyncio.timeout(_TRAINJOB_READ_S), read_limit:
                return summarize_trainjob(await bounded_client.get(TRAINJOBS, key))
        except NotFound:
            return None
        except TimeoutError as error:
            message = f"no answer within {_TRAINJOB_READ_S:g} s"
            raise Unavailable(ErrorDetails(f"read {key}", 0, "", message)) from error

    return read


def live_lookups(client: Client, read_limit: asyncio.Semaphore) -> LiveLookups:
    bounded_client = client.with_retry_policy(_LOOKUP_RETRY_POLICY)

    async def runtime(key: Key) -> RuntimeSummary | None:
        resource = RUNTIMES if key.namespace else CLUSTER_RUNTIMES
        # A list with a selection: our role allows lists, and no single reads.
        named = Selection(fields=f"metadata.name={key.name}")
        async with read_limit:
            target = ListTarget(resource, key.namespace, selection=named)
            runtimes = await bounded_client.list(target)
        return runtimes[0].summary if runtimes else None

    async def has_queue(name: str) -> bool:
        named = Selection(fields=f"metadata.name={name}")
        return bool(await bounded_client.list(ListTarget(QUEUES, selection=named)))

    async def may_use_queue(access_request: QueueAccessRequest) -> bool:
        subject_access = AccessRequest(
            VERB,
            RUN_AI,
            QUEUES.plural,
            access_request.queue,
            access_request.namespace,
            access_request.user,
            access_request.groups,
            uid=access_request.uid,
            extra=access_request.extra,
        )
        return (await review_access(bounded_client, subject_access)).allowed

    return LiveLookups(runtime, may_use_queue, has_queue)
