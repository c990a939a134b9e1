"""Requests to the API server: thin, for what is sent and what comes back are `request`, `answer`.

Repeating is done here and nowhere else, by these rules:

1. An answer that says "later" (429) is waited for, unless the caller wants to know it.
2. A request that never reached the API server is sent again.
3. Any other failure is tried again only if the request is repeatable.
4. After a 401 the credentials are read anew, once; then the process has to end.
5. All of it within the patience of the client. The last error is the one that is raised.
6. An answer that cannot be read is `Garbled`, and is not asked for again: a write was done.
"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from trainer_kai.api.decode import Page, decode, decode_page
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource
from trainer_kai.clock import Clock
from trainer_kai.kube import request as build
from trainer_kai.kube.access import Access
from trainer_kai.kube.answer import check, readable
from trainer_kai.kube.backoff import Backoff
from trainer_kai.kube.errors import (
    ApiError,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    is_retryable,
)
from trainer_kai.kube.request import AS_IS, Body, Deletion, Patch, PatchKind, Request, Write
from trainer_kai.kube.transport import Transport

if TYPE_CHECKING:
    from trainer_kai.kube.lease import Fence

__all__ = ["Client", "Observer", "Patience", "Unobserved"]

S = TypeVar("S")
T = TypeVar("T", bound=Object)

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
_PAGE: Final = 500
ANY_OF_THAT_NAME: Final = Deletion()


class Patience(msgspec.Struct, frozen=True):
    """How long to wait for one answer, and how long to go on asking."""

    timeout_s: float = 30.0
    total_s: float = 30.0
    waits_when_throttled: bool = True  # False: who sends adapts to a 429 himself


USUAL: Final = Patience()


class Observer(Protocol):
    """Whoever counts requests."""

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Take note of one answer; status 0 means that there was none."""
        ...

    def repeated(self, request: Request) -> None:
        """Take note that a request is sent again."""
        ...


class Unobserved:
    """Nobody counts."""

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Take no note."""

    def repeated(self, request: Request) -> None:
        """Take no note."""


class Client:
    """One connection to one API server, shared by all tasks of a process."""

    def __init__(
        self,
        access: Access,
        transport: Transport,
        clock: Clock,
        observer: Observer,
        *,
        patience: Patience = USUAL,
    ) -> None:
        self.access = access
        self.clock = clock
        self._transport = transport
        self._observer = observer
        self._patience = patience

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()

    def behind(self, fence: "Fence") -> "Client":
        """Return this client with a leader's fence before each write; closing it closes nothing."""
        from trainer_kai.kube.fenced import FencedTransport  # noqa: PLC0415 - no command leads

        fenced = FencedTransport(self._transport, fence, self.clock)
        return Client(self.access, fenced, self.clock, self._observer, patience=self._patience)

    def with_patience(self, patience: Patience) -> "Client":
        """Return this client with another patience; only one of them has to be closed."""
        return Client(self.access, self._transport, self.clock, self._observer, patience=patience)

    # Reading

    async def get(self, resource: Resource[T], key: Key, *, only_metadata: bool = False) -> T:
        """Read one object; of metadata alone into a resource of `PartialObject`."""
        asked = build.get(resource, key, only_metadata=only_metadata)
        return await self.ask(resource.struct, asked)

    async def pages(self, target: build.Target[T], *, limit: int = _PAGE) -> AsyncIterator[Page[T]]:
        """Read a list page by page; every page is of the moment that the first one was read."""
        token = ""
        while True:
            page = await self.page(target, limit, token)
            yield page
            token = page.metadata.continue_token
            if not token:
                return

    async def page(self, target: build.Target[T], limit: int, token: str = "") -> Page[T]:
        """Read one page of a list, of fewer objects where so many are too large."""
        asked = build.list_page(target, limit, token)
        try:
            data = await self.send(asked)
        except TooLarge:
            if limit == 1:
                raise
            return await self.page(target, max(limit // 10, 1), token)
        with readable(asked):
            return decode_page(target.resource.struct, data)

    async def list(self, target: build.Target[T]) -> list[T]:
        """Read a list whole, where it is known to be short."""
        return [item async for page in self.pages(target) for item in page.items]

    # Writing

    async def create(
        self, resource: Resource[T], namespace: str, body: Body, write: Write = AS_IS
    ) -> T:
        """Make an object."""
        return await self.ask(resource.struct, build.create(resource, namespace, body, write))

    async def replace(self, resource: Resource[T], key: Key, body: Body, write: Write = AS_IS) -> T:
        """Write an object whole; a `Conflict` says that it was changed since it was read."""
        return await self.ask(resource.struct, build.replace(resource, key, body, write))

    async def merge(self, resource: Resource[T], key: Key, fields: Body, write: Write = AS_IS) -> T:
        """Set some fields of an object; null removes one, a list replaces a list."""
        return await self._patch(resource, key, Patch(PatchKind.MERGE, fields), write)

    async def run_operations(
        self, resource: Resource[T], key: Key, operations: Sequence[Body], write: Write = AS_IS
    ) -> T:
        """Change an object by JSON Patch operations, all or none; `test` makes it conditional."""
        return await self._patch(resource, key, Patch(PatchKind.JSON, operations), write)

    async def apply(self, resource: Resource[T], key: Key, fields: Body, write: Write) -> T:
        """Say which fields we own and what they are: those left out are given up (or removed)."""
        if not write.field_manager:
            message = "server-side apply needs a field manager: Write(field_manager=…)"
            raise ValueError(message)
        named = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **fields,
            "metadata": {**fields.get("metadata", {}), "name": key.name},
        }
        return await self._patch(resource, key, Patch(PatchKind.APPLY, named), write)

    async def delete(
        self, resource: Resource[Any], key: Key, deletion: Deletion = ANY_OF_THAT_NAME
    ) -> None:
        """Delete an object, if it still is the one that is described."""
        await self.send(build.delete(resource, key, deletion))

    async def _patch(self, resource: Resource[T], key: Key, change: Patch, write: Write) -> T:
        return await self.ask(resource.struct, build.patch(resource, key, change, write))

    # Sending

    async def ask(self, struct: type[S], request: Request) -> S:
        """Send any request and read what its answer holds."""
        data = await self.send(request)
        with readable(request):
            return decode(struct, data)

    async def send(self, request: Request, *, patience: Patience | None = None) -> bytes:
        """Send any request and return the body of its answer."""
        patience = patience or self._patience
        until_s = self.clock.monotonic_s() + patience.total_s
        backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S, random.random)
        renewed = False
        while True:
            try:
                return await self._once(request, patience.timeout_s)
            except Unauthorized as error:
                if renewed or not await self.access.credentials.renew():
                    raise self._unknown(error) from error
                renewed = True
            except ApiError as error:
                if not _may_repeat(request, error, patience):
                    raise
                wait_s = backoff.next_s(error.retry_after_s)
                if self.clock.monotonic_s() + wait_s > until_s:
                    raise
                await self.clock.sleep(wait_s)
                self._observer.repeated(request)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request whose answer goes on; it is tried once, and again only after a 401."""
        async with AsyncExitStack() as stack:
            yield await self._opened(stack, request, silence_s)

    async def _opened(
        self, stack: AsyncExitStack, request: Request, silence_s: float
    ) -> AsyncIterator[bytes]:
        renewed = False
        while True:
            opening = self._transport.stream(request, silence_s)
            try:
                return await stack.enter_async_context(opening)
            except Unauthorized as error:
                if renewed or not await self.access.credentials.renew():
                    raise self._unknown(error) from error
                renewed = True

    def _unknown(self, error: Unauthorized) -> Unauthorized:
        """Say which credentials it was that nobody knows."""
        refusal = error.refusal
        message = f"{refusal.message} to {self.access.origin}"
        return Unauthorized(refusal._replace(message=message))

    async def _once(self, request: Request, timeout_s: float) -> bytes:
        began_s = self.clock.monotonic_s()
        status = 0
        try:
            answer = await self._transport.send(request, timeout_s)
            status = answer.status
        finally:
            self._observer.answered(request, status, self.clock.monotonic_s() - began_s)
        return check(request, answer)


def _may_repeat(request: Request, error: ApiError, patience: Patience) -> bool:
    if isinstance(error, Throttled):
        return patience.waits_when_throttled
    if isinstance(error, Unavailable) and not error.was_sent:
        return True
    return is_retryable(error) and request.repeatable
