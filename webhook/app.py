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
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import ApiError, NotFound, Unavailable
from trainer_kai.kube.errors import Refusal as Refused
from trainer_kai.metrics import Metrics
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import Server as Place
from webhook.cache import TRAINJOBS, Cache, TrainJob, kept
from webhook.connections import LONGEST_BODY, Connections, Line, Step
from webhook.mutate_jobset import Facts, Reviewed, mutate_jobset, read_jobset
from webhook.mutate_pod import mutate_pod
from webhook.review import Answer, Malformed, Refusal, Request, answer_bytes, read_review

__all__ = ["Decide", "Desk", "ReadTrainJob", "Reply", "Server", "Way", "reader"]

Decide: TypeAlias = Callable[[Request], Awaitable[Answer]]
ReadTrainJob: TypeAlias = Callable[[Key], Awaitable[TrainJob | None]]  # None: there is none

_READING: Final = Patience(timeout_s=1.5, total_s=2.0)  # the API server waits for 5 s
_LONGEST_S: Final = 3.5  # with the wait for its turn
_LATER: Final = 503


class Reply(NamedTuple):
    """What HTTP carries back."""

    status: int
    body: bytes
    content_type: str = "application/json"


def reader(client: Client, turns: asyncio.Semaphore) -> ReadTrainJob:
    """Return what reads a TrainJob in bounded time, when it has its turn."""
    patient = client.with_patience(_READING)

    async def read(key: Key) -> TrainJob | None:
        try:
            async with asyncio.timeout(_LONGEST_S), turns:
                return kept(await patient.get(TRAINJOBS, key))
        except NotFound:
            return None
        except TimeoutError as error:
            message = f"no answer within {_LONGEST_S:g} s"
            raise Unavailable(Refused(f"read {key}", 0, "", message)) from error

    return read


class Way(NamedTuple):
    """What answers the reviews of a kind."""

    kind: str
    decide: Decide
    is_needed: Callable[[], bool] = lambda: False  # nothing of that kind is made without an answer


class Desk:
    """Answers reviews."""

    def __init__(
        self,
        cache: Cache,
        rules: Rules,
        read: ReadTrainJob,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._cache = cache
        self._rules = rules
        self._read = read
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._ways: Final[dict[str, Way]] = {
            "/mutate/jobset": Way("jobset", self._jobset, lambda: True),
            "/mutate/pod": Way("pod", self._pod),
        }

    def add(self, path: str, way: Way) -> None:
        """Let somebody else answer the reviews of a kind; here they are counted."""
        self._ways[path] = way

    @property
    def paths(self) -> tuple[str, ...]:
        """Return where reviews are answered."""
        return tuple(self._ways)

    def knows(self, path: str) -> bool:
        """Say whether anything is answered there."""
        return path in self._ways

    async def answer(self, path: str, body: bytes) -> Reply:
        """Answer a review that was sent to a path that is known."""
        way = self._ways[path]
        began_s = self._clock.monotonic_s()
        reply, outcome = await self._answer(way, body)
        self._metrics.admission_reviews.labels(way.kind, outcome).inc()
        spent_s = self._clock.monotonic_s() - began_s
        self._metrics.admission_review_seconds.labels(way.kind).observe(spent_s)
        return reply

    async def _answer(self, way: Way, body: bytes) -> tuple[Reply, str]:
        asked, kind = read_review(body), way.kind
        if isinstance(asked, Malformed):
            self._log.warning("review malformed", kind=kind, fault=asked.message)
            return Reply(400, asked.message.encode(), "text/plain"), "malformed"
        try:
            answer = await way.decide(asked)
            reply = Reply(200, answer_bytes(asked.uid, answer))
        except Exception as error:  # noqa: BLE001 - the promise is an answer, whatever happens
            self._log.error("review failed", kind=kind, uid=asked.uid, exc_info=error)
            return Reply(200, answer_bytes(asked.uid, _mistake(way, asked))), "failed"
        self._tell(kind, asked, answer)
        return reply, answer.outcome

    def _tell(self, kind: str, asked: Request, answer: Answer) -> None:
        if answer.refusal is not None:
            said = {"code": answer.refusal.code, "reason": answer.refusal.message}
            self._log.warning("object refused", kind=kind, namespace=asked.namespace, **said)

    async def _pod(self, asked: Request) -> Answer:
        return mutate_pod(asked, self._rules.mode)

    async def _jobset(self, asked: Request) -> Answer:
        case = read_jobset(asked, self._rules)
        if isinstance(case, Answer):
            return case
        try:
            trainjob = await self._trainjob(case)
        except ApiError as error:
            return self._unread(case, error)
        runtime_queue = self._cache.runtime_queue(trainjob.runtime) if trainjob else ""
        namespace = self._cache.namespace_labels(case.trainjob.namespace)
        answer = mutate_jobset(case, Facts(trainjob, runtime_queue, namespace), self._rules)
        if answer.operations and not asked.dry_run:
            said = {"operation": asked.operation, "warnings": list(answer.warnings)}
            self._log.info("jobset patched", trainjob=str(case.trainjob), **said)
        return answer

    async def _trainjob(self, case: Reviewed) -> TrainJob | None:
        """Return the owner of a JobSet, read anew where the cache may not know it yet."""
        found = self._cache.trainjob(case.trainjob)
        if found is None or found.uid != case.owner.uid or not case.is_create:
            reads = self._metrics.admission_live_reads
            try:
                found = await self._read(case.trainjob)
            except ApiError:
                reads.labels("failed").inc()
                raise
            reads.labels("found" if found else "gone").inc()
        if found is not None and found.uid != case.owner.uid:
            return None  # a later one of the same name: the owner is no more
        return found

    def _unread(self, case: Reviewed, error: ApiError) -> Answer:
        """Answer without knowing: a creation is tried again, what exists stays as it is."""
        key = str(case.trainjob)
        self._log.warning("trainjob not read", trainjob=key, error=str(error))
        message = f"the TrainJob {key} cannot be read: {error}"
        if case.is_create:
            return Answer(refusal=Refusal(_LATER, f"{message}; try again"))
        return Answer(warnings=(f"the queue stays as it is: {message}",))


def _mistake(way: Way, asked: Request) -> Answer:
    """Answer what could not be decided by a mistake of ours."""
    if way.is_needed() and asked.operation == "CREATE":
        message = f"trainer-kai failed to decide about this {asked.kind.kind}; its log says why"
        return Answer(refusal=Refusal(_LATER, message))
    return Answer(warnings=("trainer-kai failed to look at this object; its log says why",))


class Server:
    """Carries reviews to a desk and answers back, inside its `async with`."""

    def __init__(
        self,
        desk: Desk,
        place: Place,
        tls: ssl.SSLContext,
        clock: Clock,
        stopping: Callable[[], None],
    ) -> None:
        """Say *stopping* when it begins to stop: from then on nobody should ask any more."""
        self.port = 0  # where it listens, once started
        self._desk = desk
        self._place = place
        self._clock = clock
        self._stopping = stopping
        self._is_draining = False
        self._connections: Final = Connections(self._handle, tls, place.read_s)

    async def __aenter__(self) -> Self:
        address, port = self._place.address, self._place.port
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
        self._stopping()
        await self._clock.sleep(self._place.drain_s)
        await self._connections.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        line = request.protocol
        assert isinstance(line, Line)
        try:
            reply = await self._reply(request, line)
        finally:
            self._connections.room.give_back(line)
            self._connections.rest(line)
        response = web.Response(
            body=reply.body, status=reply.status, content_type=reply.content_type
        )
        if reply.status == _LATER:
            response.headers["Retry-After"] = "1"
        if self._is_draining:
            response.force_close()  # whoever comes again finds somebody else
        return response

    async def _reply(self, request: web.BaseRequest, line: Line) -> Reply:
        if not self._desk.knows(request.path):
            return _said(404, f"reviews are answered at {', '.join(self._desk.paths)}")
        if request.method != "POST":
            return _said(405, "a review is sent by POST")
        if (request.content_length or 0) > LONGEST_BODY:
            return _said(413, f"a review has at most {LONGEST_BODY} bytes")
        try:
            room, length = self._connections.room, request.content_length
            await room.take(line, length, self._place.read_s)
        except TimeoutError:
            return _said(_LATER, "too many reviews are under way; try again")
        try:
            is_there = request.content.is_eof()
            async with asyncio.timeout(None if is_there else self._place.read_s):
                body = await request.read()
        except TimeoutError:
            return _said(408, f"the body did not arrive within {self._place.read_s:g} s")
        except web.HTTPRequestEntityTooLarge:
            return _said(413, f"a review has at most {LONGEST_BODY} bytes")
        except (web.RequestPayloadError, ConnectionError, ValueError):
            return _said(400, "the body cannot be read")
        line.step = Step.ANSWERING
        return await self._desk.answer(request.path, body)


def _said(status: int, message: str) -> Reply:
    return Reply(status, message.encode(), "text/plain")
