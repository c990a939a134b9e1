"""A way to the API server that a leader's writes take: the fence is asked before each is sent.

The client repeats what failed, waits out a 429 and looks for new credentials after a 401, so a
fence that is asked before the client is called may have fallen long since. Here it is asked anew
each time that something is handed to the transport.

The transport may then still have to fetch credentials (a plugin is a process) and to connect. All
that and the answer share one time-out of at most `write_s`, so a write is over before another
process leads, however long each took. Not covered is a process that is stopped within that time:
what it was about to send goes out when it wakes up, if the connection is ready before the time-out
is noticed. Writes that must not happen twice carry a uid or a version.
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

__all__ = ["FencedTransport"]

_FAILED: Final = 500


class FencedTransport:
    """Another transport behind a fence: reads are free, all else raises `LeaseLost` once it fell.

    Reads are also questions that have to be posted: may this user do that.
    No write is under way for longer than the fence allows for. Closing it closes nothing: the
    other transport is the client's.
    """

    def __init__(self, transport: Transport, fence: Fence, clock: Clock) -> None:
        self._transport = transport
        self._fence = fence
        self._clock = clock

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Send a request if the fence holds, and read the whole answer."""
        if request.method == "GET" or _changes_nothing(request):
            return await self._transport.send(request, timeout_s)
        limit_s = min(timeout_s, self._fence.write_s)
        with self._fence.write() as write:
            try:
                sending = self._transport.send(request, limit_s)
                response = await within(self._clock, limit_s, sending)
            except TimeoutError as error:
                message = f"no answer within {limit_s:g} s"
                raise unavailable(request, message, was_sent=True) from error
            # a 504 is given while the write still goes on
            write.may_still_apply = response.status >= _FAILED
            return response

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a request and read the answer while it is being written."""
        return self._transport.stream(request, silence_s)

    async def close(self) -> None:
        """Leave the other transport open."""


def _changes_nothing(request: Request) -> bool:
    """Say whether a POST changes nothing: to make something twice is never to make it once."""
    return request.method == "POST" and request.repeatable
