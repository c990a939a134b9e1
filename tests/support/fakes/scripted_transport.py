"""A transport that gives each answer of a list once, in order."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse


class ScriptedTransport:
    """A `Transport` that answers in order, and remembers what it was asked."""

    def __init__(self, *answers: ApiResponse | dict[str, Any]) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:  # noqa: ARG002
        """Take the next answer."""
        self.requests.append(request)
        answer = self._answers.pop(0)
        return (
            answer
            if isinstance(answer, ApiResponse)
            else ApiResponse(200, json.dumps(answer).encode())
        )

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Refuse: no answer here goes on."""
        raise NotImplementedError

    async def close(self) -> None:
        """Have nothing to close."""

    @property
    def sent(self) -> list[tuple[str, Any]]:
        """Return each question, and the body that went with it."""
        return [(str(it), json.loads(it.body) if it.body else None) for it in self.requests]


def error_answer(status: int, message: str = "no", reason: str = "") -> ApiResponse:
    """Return a refusal as the API server writes it."""
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return ApiResponse(status, json.dumps(body).encode())
