"""The server that the API server asks, and the one read that an answer may wait for.

A `Desk` answers bodies; a `Server` carries them over TLS. What is wrong with a request is said with
4xx. A mistake of ours is written down, and then nobody pays for it but the TrainJob that is being
made: Trainer tries its JobSet again, and where a queue is closed its author does. Others go on as
they are, and so do pods, and JobSets that exist.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Self, TypeAlias

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.clock import Clock
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.errors import ApiError, NotFound, Unavailable
from trainer_kai.kube.errors import ErrorDetails as Refused
from trainer_kai.metrics import Metrics
from trainer_kai.policy.groups import GroupingRules
from trainer_kai.settings import WebhookServerSettings as Place
from webhook.cache import TRAINJOBS, AdmissionCache, TrainJobSummary, summarize_trainjob
from webhook.connections import LONGEST_BODY, ClientConnection, Connections, ConnectionState
from webhook.mutate_jobset import JobSetContext, JobSetReview, mutate_jobset, read_jobset
from webhook.mutate_pod import mutate_pod
from webhook.review import (
    AdmissionDenial,
    AdmissionRequest,
    AdmissionResponse,
    Malformed,
    encode_response,
    read_review,
)

__all__ = [
    "Decide",
    "HttpReply",
    "ReadTrainJob",
    "ReviewRouter",
    "Route",
    "WebhookServer",
    "trainjob_reader",
]

Decide: TypeAlias = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]
ReadTrainJob: TypeAlias = Callable[[Key], Awaitable[TrainJobSummary | None]]  # None: there is none

_TRAINJOB_PATIENCE: Final = RetryPolicy(timeout_s=1.5, total_s=2.0)  # the API server waits for 5 s
_TRAINJOB_READ_S: Final = 3.5  # with the wait for its turn
SERVICE_UNAVAILABLE: Final = 503


class HttpReply(NamedTuple):
    """What HTTP carries back."""

    status: int
    body: bytes
    content_type: str = "application/json"


def trainjob_reader(client: Client, read_limit: asyncio.Semaphore) -> ReadTrainJob:
    """Return what reads a TrainJob in bounded time, when it has its turn."""
    patient = client.with_retry_policy(_TRAINJOB_PATIENCE)

    async def read(key: Key) -> TrainJobSummary | None:
        try:
            async with asyncio.timeout(_TRAINJOB_READ_S), read_limit:
                return summarize_trainjob(await patient.get(TRAINJOBS, key))
        except NotFound:
            return None
        except TimeoutError as error:
            message = f"no answer within {_TRAINJOB_READ_S:g} s"
            raise Unavailable(Refused(f"read {key}", 0, "", message)) from error

    return read


class Route(NamedTuple):
    """What answers the reviews of a kind."""

    kind: str
    decide: Decide
    fails_closed: Callable[[], bool] = lambda: (
        False
    )  # nothing of that kind is made without an answer


class ReviewRouter:
    """Answers reviews."""

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
        """Let somebody else answer the reviews of a kind; here they are counted."""
        self._routes[path] = route

    @property
    def paths(self) -> tuple[str, ...]:
        """Return where reviews are answered."""
        return tuple(self._routes)

    def has_route(self, path: str) -> bool:
        """Say whether anything is answered there."""
        return path in self._routes

    async def answer(self, path: str, body: bytes) -> HttpReply:
        """Answer a review that was sent to a path that is known."""
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
        except Exception as error:  # noqa: BLE001 - the promise is an answer, whatever happens
            self._log.error("review failed", kind=kind, uid=request.uid, exc_info=error)
            return HttpReply(
                200, encode_response(request.uid, _internal_error(route, request))
            ), "failed"
        self._log_denial(kind, request, answer)
        return reply, answer.outcome

    def _log_denial(self, kind: str, request: AdmissionRequest, answer: AdmissionResponse) -> None:
        if answer.denial is not None:
            fields = {"code": answer.denial.code, "reason": answer.denial.message}
            self._log.warning("object refused", kind=kind, namespace=request.namespace, **fields)

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
        runtime_queue = self._cache.runtime_queue(trainjob.runtime) if trainjob else ""
        namespace = self._cache.namespace_labels(review.trainjob.namespace)
        answer = mutate_jobset(
            review, JobSetContext(trainjob, runtime_queue, namespace), self._rules
        )
        if answer.operations and not request.dry_run:
            fields = {"operation": request.operation, "warnings": list(answer.warnings)}
            self._log.info("jobset patched", trainjob=str(review.trainjob), **fields)
        return answer

    async def _owning_trainjob(self, review: JobSetReview) -> TrainJobSummary | None:
        """Return the owner of a JobSet, read anew where the cache may not know it yet."""
        found = self._cache.trainjob(review.trainjob)
        if found is None or found.uid != review.owner_reference.uid or not review.is_create:
            reads = self._metrics.admission_live_reads
            try:
                found = await self._read_trainjob(review.trainjob)
            except ApiError:
                reads.labels("failed").inc()
                raise
            reads.labels("found" if found else "gone").inc()
        if found is not None and found.uid != review.owner_reference.uid:
            return None  # a later one of the same name: the owner is no more
        return found

    def _answer_without_trainjob(self, review: JobSetReview, error: ApiError) -> AdmissionResponse:
        """Answer without knowing: a creation is tried again, what exists stays as it is."""
        key = str(review.trainjob)
        self._log.warning("trainjob not read", trainjob=key, error=str(error))
        message = f"the TrainJob {key} cannot be read: {error}"
        if review.is_create:
            return AdmissionResponse(
                denial=AdmissionDenial(SERVICE_UNAVAILABLE, f"{message}; try again")
            )
        return AdmissionResponse(warnings=(f"the queue stays as it is: {message}",))


def _internal_error(route: Route, request: AdmissionRequest) -> AdmissionResponse:
    """Answer what could not be decided by a mistake of ours."""
    if route.fails_closed() and request.operation == "CREATE":
        message = f"trainer-kai failed to decide about this {request.kind.kind}; its log says why"
        return AdmissionResponse(denial=AdmissionDenial(SERVICE_UNAVAILABLE, message))
    return AdmissionResponse(
        warnings=("trainer-kai failed to look at this object; its log says why",)
    )


class WebhookServer:
    """Carries reviews to a desk and answers back, inside its `async with`."""

    def __init__(
        self,
        router: ReviewRouter,
        settings: Place,
        tls: ssl.SSLContext,
        clock: Clock,
        on_stop: Callable[[], None],
    ) -> None:
        """Say *stopping* when it begins to stop: from then on nobody should ask any more."""
        self.port = 0  # where it listens, once started
        self._router = router
        self._settings = settings
        self._clock = clock
        self._on_stop = on_stop
        self._is_draining = False
        self._connections: Final = Connections(self._handle, tls, settings.read_s)

    async def __aenter__(self) -> Self:
        address, port = self._settings.address, self._settings.port
        if not (address or port):  # each family would get a port of its own
            raise ConfigError([FieldError("server.port", "0 needs an address to listen on")])
        try:
            self.port = self._connections.listen(address, port)
        except OSError as error:
            where = f"{address or 'every interface'}, port {port}"
            fault = FieldError("server", f"cannot listen on {where}: {error.strerror or error}")
            raise ConfigError([fault]) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer a while longer, then only who is being answered."""
        self._is_draining = True
        self._on_stop()
        await self._clock.sleep(self._settings.drain_s)
        await self._connections.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        client = request.protocol
        assert isinstance(client, ClientConnection)
        try:
            reply = await self._reply(request, client)
        finally:
            self._connections.body_memory.release(client)
            self._connections.went_idle(client)
        response = web.Response(
            body=reply.body, status=reply.status, content_type=reply.content_type
        )
        if reply.status == SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "1"
        if self._is_draining:
            response.force_close()  # whoever comes again finds somebody else
        return response

    async def _reply(self, request: web.BaseRequest, client: ClientConnection) -> HttpReply:
        if not self._router.has_route(request.path):
            return _text_reply(404, f"reviews are answered at {', '.join(self._router.paths)}")
        if request.method != "POST":
            return _text_reply(405, "a review is sent by POST")
        if (request.content_length or 0) > LONGEST_BODY:
            return _text_reply(413, f"a review has at most {LONGEST_BODY} bytes")
        try:
            body_memory, length = self._connections.body_memory, request.content_length
            await body_memory.acquire(client, length, self._settings.read_s)
        except TimeoutError:
            return _text_reply(SERVICE_UNAVAILABLE, "too many reviews are under way; try again")
        try:
            is_there = request.content.is_eof()
            async with asyncio.timeout(None if is_there else self._settings.read_s):
                body = await request.read()
        except TimeoutError:
            return _text_reply(408, f"the body did not arrive within {self._settings.read_s:g} s")
        except web.HTTPRequestEntityTooLarge:
            return _text_reply(413, f"a review has at most {LONGEST_BODY} bytes")
        except (web.RequestPayloadError, ConnectionError, ValueError):
            return _text_reply(400, "the body cannot be read")
        client.state = ConnectionState.ANSWERING
        return await self._router.answer(request.path, body)


def _text_reply(status: int, message: str) -> HttpReply:
    return HttpReply(status, message.encode(), "text/plain")
