"""The transport of a leader's writes: the fence is checked before each write is sent.

The client repeats failed requests, waits after a 429 and reads new credentials after a 401, so a
fence that is checked before the client is called may have fallen long before the request is sent.
Here it is checked each time that a request is handed to the transport.

The transport may then still have to fetch credentials (a plugin is a process) and to connect. All
of this and the response share one time limit of at most `write_s`, so a write is finished before
another process leads. Not covered is a process that is stopped within that time: its request is
sent when it wakes up, if the connection is ready before the time limit is noticed. Writes that must
not happen twice carry a uid or a version.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final

from trainer_kai.kube.leader.lease import Fence
from trainer_kai.kube.process.tasks import within
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.kube.rest.transport import Transport, unavailable
from trainer_kai.service.clock import Clock

_FAILED: Final = 500


class FencedTransport:
    """A transport behind a fence: reads pass, and writes raise `LeaseLost` once it has fallen.

    Access reviews pass as well, because they change nothing. No write takes longer than the fence
    allows. Closing it does nothing: the inner transport belongs to the client.
    """

    def __init__(self, transport: Transport, fence: Fence, clock: Clock) -> None:
        self._transport = transport
        self._fence = fence
        self._clock = clock

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Send a request if the fence holds, and read the whole response."""
        if request.method == "GET" or _changes_nothing(request):
            return await self._transport.send(request, timeout_s)
        limit_s = min(timeout_s, self._fence.write_s)
        with self._fence.write() as write:
            try:
                sending = self._transport.send(request, limit_s)
                response = await within(self._clock, limit_s, sending)
            except TimeoutError as error:
                message = f"no response within {limit_s:g} s"
                raise unavailable(request, message, was_sent=True) from error
            # after a 504 the write may still be in progress
            write.may_still_apply = response.status >= _FAILED
            return response

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a request and read the response while it arrives."""
        return self._transport.stream(request, silence_s)

    async def close(self) -> None:
        """Leave the inner transport open."""


def _changes_nothing(request: Request) -> bool:
    """Say whether a POST changes nothing; other POSTs create an object each time."""
    return request.method == "POST" and request.repeatable
