"""Routes a review to the handler of its kind, counts and times it, and reports internal errors.

After an internal error the object is allowed as it is, except a new object that must not pass
unchecked: that is denied with 503. Trainer retries its JobSet; a user retries the TrainJob.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from structlog.typing import FilteringBoundLogger

from trainer_kai.kube.rest.errors import ApiError
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics
from webhook.admission.review import (
    SERVICE_UNAVAILABLE,
    AdmissionDenial,
    AdmissionRequest,
    AdmissionResponse,
    Malformed,
    encode_response,
    read_review,
)
from webhook.cache.admission_cache import AdmissionCache
from webhook.cache.trainjobs import TrainJobSummary
from webhook.reviews.live_lookups import ReadTrainJob
from webhook.rules.jobset_mutate import JobSetContext, JobSetReview, mutate_jobset, read_jobset
from webhook.rules.pods.podgroup import mutate_pod

_INTERNAL_ERROR: Final = "trainer-kai had an internal error"
_INTERNAL_REMEDY: Final = "The log of the webhook shows the error"

Decide: TypeAlias = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]


class HttpReply(NamedTuple):
    """The HTTP reply to a review."""

    status: int
    body: bytes
    content_type: str = "application/json"


class Route(NamedTuple):
    """The handler of the reviews of a kind."""

    kind: str
    decide: Decide
    fails_closed: Callable[[], bool] = lambda: False  # deny creations after an internal error


class ReviewRouter:
    """Answers the reviews of each path."""

    def __init__(
        self,
        cache: AdmissionCache,
        rules: GroupingRules,
        read: ReadTrainJob,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._rules = rules
        self._read_trainjob = read
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._routes: Final[dict[str, Route]] = {
            "/mutate/jobset": Route("jobset", self._review_jobset, lambda: True),
            "/mutate/pod": Route("pod", self._review_pod),
        }

    def add_route(self, path: str, route: Route) -> None:
        """Add the handler of another kind."""
        self._routes[path] = route

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths at which reviews are answered."""
        return tuple(self._routes)

    def has_route(self, path: str) -> bool:
        """Say whether a path has a handler."""
        return path in self._routes

    async def answer(self, path: str, body: bytes) -> HttpReply:
        """Answer a review that was sent to a path with a route."""
        route = self._routes[path]
        began_s = self._clock.monotonic_s()
        reply, outcome = await self._answer(route, body)
        self._metrics.admission_reviews.labels(route.kind, outcome).inc()
        spent_s = self._clock.monotonic_s() - began_s
        self._metrics.admission_review_seconds.labels(route.kind).observe(spent_s)
        return reply

    async def _answer(self, route: Route, body: bytes) -> tuple[HttpReply, str]:
        request, kind = read_review(body), route.kind
        if isinstance(request, Malformed):
            self._log.warning("review malformed", kind=kind, fault=request.message)
            return HttpReply(400, request.message.encode(), "text/plain"), "malformed"
        try:
            answer = await route.decide(request)
            reply = HttpReply(200, encode_response(request.uid, answer))
        except Exception as error:  # noqa: BLE001 - every review gets a response
            self._log.error("review failed", kind=kind, uid=request.uid, exc_info=error)
            return HttpReply(
                200, encode_response(request.uid, _internal_error(route, request))
            ), "failed"
        self._log_denial(kind, request, answer)
        return reply, answer.outcome

    def _log_denial(self, kind: str, request: AdmissionRequest, answer: AdmissionResponse) -> None:
        if answer.denial is not None:
            fields = {"code": answer.denial.code, "reason": answer.denial.message}
            self._log.warning("object denied", kind=kind, namespace=request.namespace, **fields)

    async def _review_pod(self, request: AdmissionRequest) -> AdmissionResponse:
        return mutate_pod(request, self._rules.mode)

    async def _review_jobset(self, request: AdmissionRequest) -> AdmissionResponse:
        review = read_jobset(request, self._rules)
        if isinstance(review, AdmissionResponse):
            return review
        try:
            trainjob = await self._owning_trainjob(review)
        except ApiError as error:
            return self._answer_without_trainjob(review, error)
        runtime_queue = self._cache.runtimes.queue(trainjob.runtime) if trainjob else ""
        namespace = self._cache.namespace_labels(review.trainjob.namespace)
        runtime = self._cache.runtimes.summary(trainjob.runtime) if trainjob else None
        launcher_trains = runtime is None or runtime.launcher_trains
        context = JobSetContext(trainjob, runtime_queue, namespace, launcher_trains)
        answer = mutate_jobset(review, context, self._rules)
        if answer.operations and not request.dry_run:
            fields = {"operation": request.operation, "warnings": list(answer.warnings)}
            self._log.info("jobset patched", trainjob=str(review.trainjob), **fields)
        return answer

    async def _owning_trainjob(self, review: JobSetReview) -> TrainJobSummary | None:
        """Return the owner of a JobSet, read from the API server if it may not be cached yet."""
        trainjob = self._cache.trainjob(review.trainjob)
        if trainjob is None or trainjob.uid != review.owner_reference.uid or not review.is_create:
            reads = self._metrics.admission_live_reads
            try:
                trainjob = await self._read_trainjob(review.trainjob)
            except ApiError:
                reads.labels("failed").inc()
                raise
            reads.labels("found" if trainjob else "gone").inc()
        if trainjob is not None and trainjob.uid != review.owner_reference.uid:
            return None  # the owner was deleted; this is a newer TrainJob with the same name
        return trainjob

    def _answer_without_trainjob(self, review: JobSetReview, error: ApiError) -> AdmissionResponse:
        """Answer without the TrainJob: deny a creation, which is retried; allow an update."""
        key = str(review.trainjob)
        self._log.warning("trainjob not read", trainjob=key, error=str(error))
        message = f"TrainJob {key} cannot be read: {error}"
        if review.is_create:
            return AdmissionResponse(
                denial=AdmissionDenial(SERVICE_UNAVAILABLE, f"{message}. Try again")
            )
        return AdmissionResponse(warnings=(f"the queue of the JobSet is not changed: {message}",))


def _internal_error(route: Route, request: AdmissionRequest) -> AdmissionResponse:
    """Answer a review after an internal error."""
    kind = request.kind.kind
    handled = "changed" if kind in {"JobSet", "Pod"} else "validated"
    message = f"{_INTERNAL_ERROR}: this {kind} was not {handled}. {_INTERNAL_REMEDY}"
    if route.fails_closed() and request.operation == "CREATE":
        return AdmissionResponse(denial=AdmissionDenial(SERVICE_UNAVAILABLE, message))
    return AdmissionResponse(warnings=(message,))
