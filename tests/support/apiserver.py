"""A transport that gives the answers it is told, one for each request: no wire, no waiting."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from trainer_kai.kube.answer import Answer, check
from trainer_kai.kube.request import Request

__all__ = ["Told", "Transcript", "told"]

Told: TypeAlias = Answer | BaseException


class Transcript:
    """Answers in turn, the last one for ever, and remembers what it was asked."""

    def __init__(self, *answers: Told) -> None:
        self.asked: list[Request] = []
        self.timeouts_s: list[float] = []
        self.is_closed = False
        self._answers = list(answers)

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """Give the next answer."""
        self.timeouts_s.append(timeout_s)
        return self._next(request)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give the next answer as a stream of its bytes."""
        self.timeouts_s.append(silence_s)
        body = check(request, self._next(request))

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
        return [json.loads(request.body or b"null") for request in self.asked]

    def _next(self, request: Request) -> Answer:
        self.asked.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def told(body: object, status: int = 200, retry_after: str | None = None) -> Answer:
    """Answer with an object."""
    return Answer(status, json.dumps(body).encode(), retry_after)
