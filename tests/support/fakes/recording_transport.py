"""A transport that gives its answers in order, the last one again, and records requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.support.clock import VirtualClock
from trainer_kai.kube.auth.rest_config import RestConfig
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse, body_or_error

GivenAnswer: TypeAlias = ApiResponse | BaseException


class RecordingTransport:
    """Answers in turn, the last one for ever, and remembers what it was asked."""

    def __init__(self, *answers: GivenAnswer) -> None:
        self.requests: list[Request] = []
        self.timeouts_s: list[float] = []
        self.is_closed = False
        self._answers = list(answers)

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Give the next answer."""
        self.timeouts_s.append(timeout_s)
        return self._next(request)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give the next answer as a stream of its bytes."""
        self.timeouts_s.append(silence_s)
        body = body_or_error(request, self._next(request))

        async def pieces() -> AsyncIterator[bytes]:
            for byte in body:
                yield bytes([byte])

        yield pieces()

    async def close(self) -> None:
        """Take note."""
        self.is_closed = True

    @property
    def bodies(self) -> Sequence[Any]:
        """Return what was sent, as objects."""
        return [json.loads(request.body or b"null") for request in self.requests]

    def _next(self, request: Request) -> ApiResponse:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def json_answer(body: object, status: int = 200, retry_after: str | None = None) -> ApiResponse:
    """Answer with an object."""
    return ApiResponse(status, json.dumps(body).encode(), retry_after)


class RenewableCredentials:
    """As many new tokens as it is told."""

    def __init__(self, renewals: int) -> None:
        self.renewals_left = renewals
        self.renewals_requested = 0

    async def authorization(self) -> str:
        """Return what no transport of these tests asks for."""
        raise NotImplementedError

    async def renew(self) -> bool:
        """Have one more, or none."""
        self.renewals_requested += 1
        self.renewals_left -= 1
        return self.renewals_left >= 0


class RecordingObserver:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, float]] = []
        self.repeats = 0

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Write down an answer."""
        assert request.path
        self.answers.append((status, seconds))

    def repeated(self, request: Request) -> None:
        """Count."""
        assert request.path
        self.repeats += 1


class ClientRun:
    """A client on a transcript, a clock, and everything around it."""

    def __init__(self, *answers: GivenAnswer, renewals: int = 0) -> None:
        self.transport = RecordingTransport(*answers)
        self.clock = VirtualClock()
        self.observer = RecordingObserver()
        self.credentials = RenewableCredentials(renewals)
        access = RestConfig("https://h", self.credentials, origin="the test")
        self.client = Client(access, self.transport, self.clock, self.observer)

    async def run_to_end(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let time pass until the work is done; return what it gives, or its error."""
        task = asyncio.create_task(work)
        while not task.done():
            await self.clock.advance(min(self.clock.waits_s, default=0))
        return task.exception() or task.result()

    @property
    def request_lines(self) -> list[str]:
        """Return the requests' first lines."""
        return [f"{request.method} {request.target}" for request in self.transport.requests]
