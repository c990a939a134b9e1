"""Memory for the bodies of requests, so that no client keeps the API server out.

Memory for a body is reserved before the body is read, at most half of all memory for one address.
When the memory is full, incomplete bodies of the address that uses most are aborted.
"""

import asyncio
from typing import Any, Final

from aiohttp import web

from trainer_kai.owner_budget import OwnerBudget
from trainer_kai.service.connections import ClientConnection, ConnectionState

MAX_BODY_BYTES: Final = 8 << 20  # an object may have 3 MiB, and an update has the old one as well
_BODY_MEMORY_BYTES: Final = 64 << 20
_MIN_BODY_BYTES: Final = 256 << 10  # that a review reserves: at most 256 are read at a time


class BodyMemory:
    """Memory for request bodies; the address that uses least gets memory next."""

    def __init__(self) -> None:
        self._budget: Final = OwnerBudget[ClientConnection](_BODY_MEMORY_BYTES)
        self._waiting: Final[dict[asyncio.Future[None], tuple[str, int]]] = {}

    async def acquire(self, client: ClientConnection, length: int | None, timeout_s: float) -> None:
        """Wait until there is memory for a body; one of unknown length counts as the longest.

        Raise `TimeoutError` if there is none in time.
        """
        amount = max(MAX_BODY_BYTES if length is None else length, _MIN_BODY_BYTES)
        if not self._make_room(client.peer, amount):
            async with asyncio.timeout(timeout_s):
                await self._wait(client.peer, amount)
        self._budget.put(client.peer, client, amount)
        if self._waiting:
            self._wake()

    def release(self, client: ClientConnection) -> None:
        """Release the memory of a body."""
        self._budget.drop(client.peer, client)
        if self._waiting:
            self._wake()

    async def _wait(self, peer: str, amount: int) -> None:
        while True:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = (peer, amount)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # this waiter was woken: wake another one instead
                raise
            finally:
                del self._waiting[waiter]
            if self._make_room(peer, amount):
                return

    def _make_room(self, peer: str, amount: int) -> bool:
        needed = self._budget.used_by(peer) + amount
        if needed > _BODY_MEMORY_BYTES // 2:
            return False
        while not self._budget.has_room(amount):
            evicted = self._budget.next_to_evict(
                needed, lambda it: it.state is ConnectionState.READING
            )
            if evicted is None:
                return False
            self._budget.drop(*evicted)
            evicted[1].abort()
        return True

    def _wake(self) -> None:
        """Wake the next waiter, which wakes another one when it has its memory."""
        waiting = sorted(self._waiting.items(), key=lambda it: self._budget.used_by(it[1][0]))
        for waiter, (peer, amount) in waiting:
            is_within = self._budget.used_by(peer) + amount <= _BODY_MEMORY_BYTES // 2
            if not waiter.done() and is_within and self._budget.has_room(amount):
                waiter.set_result(None)
                return


def make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    """Make a request with a body of up to MAX_BODY_BYTES."""
    protocol.headers_received()
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
    )
