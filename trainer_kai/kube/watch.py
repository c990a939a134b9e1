"""List a kind and follow it: a consumer is told every net change exactly once.

The contract with the consumer:

1. `on_change` is called for one change at a time, in the order of the store. It must not wait.
   What it raises ends the watch.
2. `on_synced` is called when a list has been told to its end: at the start, and after each gap.
3. After a gap (the version we would continue from is gone) the kind is listed again. What changed
   meanwhile is told once, in its last state; what was deleted meanwhile is told without a state.
4. Of an object only key, version and uid are kept here. Lists are read in pages: of 50 objects,
   then of as many as fit into 8 MiB, for a user may make any number of objects of 1.5 MB.
5. An object that cannot be read is reported, and to the consumer it is not there.
6. Failures are waited out, longer each time. Only credentials that are refused, and a server that
   is not the one we trust, end the watch.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from trainer_kai.api.decode import decode_line
from trainer_kai.api.meta import Object, PartialObject
from trainer_kai.kube import request as build
from trainer_kai.kube.answer import error_of_line, readable
from trainer_kai.kube.backoff import Backoff
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import (
    ApiError,
    Forbidden,
    NotFound,
    TooLarge,
    Unauthorized,
    WatchExpired,
)
from trainer_kai.kube.known import Change, Known
from trainer_kai.kube.lines import Lines
from trainer_kai.kube.reading import Unreadable, read_object, read_page
from trainer_kai.kube.request import Request, Target

__all__ = ["Pace", "Watch", "WatchObserver"]

T = TypeVar("T", bound=Object)

_LONGEST_PAGE: Final = 2_000  # reading it whole takes as long as anybody can wait
_FIRST_PAGE: Final = 50  # any object may be as large as the API server takes: 1.5 MB
_PAGE_BYTES: Final = 8 * 2**20  # of the pages that follow, as far as that can be known
_AT_ONCE: Final = 50
_NONE: Final = Patience(total_s=0)
_SHORT_S: Final = 1.0  # a request that follows for less and tells nothing is no success


@dataclass(frozen=True)
class Pace:
    """How a watch takes its time."""

    page_items: int = 500
    first_wait_s: float = 0.1
    longest_wait_s: float = 10.0  # so long may a change be late once the API server is back
    silence_s: float = 150.0  # the API server sends a bookmark about every minute
    stream_s: int = 300  # one request follows for so long, or for up to twice that


class WatchObserver(Protocol):
    """Whoever counts, or tells people, what becomes of a watch."""

    def watch_read(self, resource: str, event: str) -> None:
        """Take note of an event by its type, or of a page (PAGE)."""
        ...

    def watch_ended(self, resource: str, trouble: str, error: ApiError | None) -> None:
        """Take note of the end of a list or of a stream; without an error it had its time."""
        ...

    def watch_skipped(self, resource: str, unreadable: Unreadable) -> None:
        """Take note of an object that cannot be read."""
        ...


class Watch(Generic[T]):
    """One kind, followed for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        target: Target[T],
        observer: WatchObserver,
        *,
        pace: Pace = Pace(),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.synced = False  # a list has been told to its end, once at least
        self.trouble = ""  # why nothing can come at the moment, and what helps
        self._client = client
        self._target = target
        self._observer = observer
        self._pace = pace
        self._jitter = jitter
        self._name = _name(target)
        self._known: Known[T] = Known()
        self._version = ""  # the last one told; "" asks for a list
        self._page_items = pace.page_items
        self._read = 0

    def missing(self) -> str:
        """Say why the consumer may not know all there is; "" when it does. For `Health.needs`."""
        return self.trouble or ("" if self.synced else "not listed yet")

    async def run(
        self, on_change: Callable[[Change[T]], None], on_synced: Callable[[], None]
    ) -> None:
        """Tell every change, until cancelled."""
        backoff = Backoff(self._pace.first_wait_s, self._pace.longest_wait_s, self._jitter)
        expired = False
        while True:
            read, began_s = self._read, self._client.clock.monotonic_s()
            error = await self._try(on_change, on_synced)
            progress = self._read > read
            lasted_s = self._client.clock.monotonic_s() - began_s
            is_first_expiry = isinstance(error, WatchExpired) and not expired
            expired = isinstance(error, WatchExpired)
            if progress or is_first_expiry or lasted_s > self._pace.longest_wait_s:
                backoff.reset()  # an answer is good news, unless it is the same one again
            self.trouble = "" if error is None else _explain(self._name, error)
            self._observer.watch_ended(self._name, self.trouble, error)
            if error is not None or not (progress or lasted_s > _SHORT_S):
                wait_s = backoff.next_s(error.retry_after_s if error else None)
                await self._client.clock.sleep(wait_s)

    async def _try(
        self, on_change: Callable[[Change[T]], None], on_synced: Callable[[], None]
    ) -> ApiError | None:
        """List if need be, and follow until that ends; return why it ended early."""
        try:
            if not self._version:
                version = await self._list(on_change)
                on_synced()
                self._version = version
                self.synced = True
            await self._follow(on_change)
        except Unauthorized:
            raise
        except WatchExpired as expired:
            self._version = ""
            return expired
        except ApiError as error:
            return error
        return None

    async def _list(self, on_change: Callable[[Change[T]], None]) -> str:
        """Tell what a list shows; return the version that it shows."""
        self._known.begin()
        token, items = "", min(_FIRST_PAGE, self._page_items)
        while True:
            asked = build.list_page(self._target, items, token)
            try:
                # To fail at the first page loses nothing, and says at once that there is trouble.
                data = await self._client.send(asked, patience=None if token else _NONE)
            except WatchExpired:  # it took too long: fewer pages are faster
                self._page_items = min(self._page_items * 4, _LONGEST_PAGE)
                raise
            except TooLarge:
                if items == 1:
                    raise
                items = max(items // 10, 1)
                continue
            self._observer.watch_read(self._name, "PAGE")
            with readable(asked):
                page = read_page(self._target.resource.struct, data)
            for number, item in enumerate(page.items, start=1):
                _tell(on_change, self._listed(item))
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)  # a long list holds up nobody
            items = self._fitting(len(data) // max(len(page.items), 1))
            token = page.metadata.continue_token
            if not token:
                _tell(on_change, self._known.end())
                return page.metadata.resource_version

    def _fitting(self, item_bytes: int) -> int:
        """Return how many items the next page has, if they are as large as those of the last."""
        return max(min(_PAGE_BYTES // max(item_bytes, 1), self._page_items), 1)

    async def _follow(self, on_change: Callable[[Change[T]], None]) -> None:
        """Tell what happens after the last version told, until the API server ends it."""
        stream_s = int(self._pace.stream_s * (1 + self._jitter()))
        asked = build.watch(self._target, self._version, stream_s)
        lines = Lines()
        async with self._client.stream(asked, self._pace.silence_s) as pieces:
            self.trouble = ""
            async for piece in pieces:
                for line in lines.feed(piece):
                    self._line(asked, line, on_change)

    def _line(self, asked: Request, data: bytes, on_change: Callable[[Change[T]], None]) -> None:
        with readable(asked):
            line = decode_line(data)
            if line.type == "ERROR":
                raise error_of_line(asked, line.object)
            struct = PartialObject if line.type == "BOOKMARK" else self._target.resource.struct
            current = read_object(struct, line.object)
        if line.type != "BOOKMARK":
            _tell(on_change, self._happened(line.type, cast("T | Unreadable", current)))
        self._version = current.metadata.resource_version
        self._observer.watch_read(self._name, line.type)
        self._read += 1

    def _listed(self, item: T | Unreadable) -> Iterable[Change[T]]:
        if isinstance(item, Unreadable):
            self._observer.watch_skipped(self._name, item)
            return ()  # the end of the list says that it is gone, if it was ever there
        return self._known.listed(item)

    def _happened(self, event: str, current: T | Unreadable) -> Iterable[Change[T]]:
        if isinstance(current, Unreadable):
            self._observer.watch_skipped(self._name, current)
            return self._known.vanished(current.metadata, None)
        if event == "DELETED":
            return self._known.vanished(current.metadata, current)
        return self._known.happened(current)


def _tell(on_change: Callable[[Change[T]], None], changes: Iterable[Change[T]]) -> None:
    for change in changes:
        on_change(change)


def _name(target: Target[Any]) -> str:
    """Tell two watches of one kind apart, in as few words as there are watches."""
    selected = (target.selection.labels, target.selection.fields)
    where = f" in {target.namespace}" if target.namespace else ""
    which = "".join(f" with {text}" for text in selected if text)
    return f"{target.resource}{where}{which}"


def _explain(resource: str, error: ApiError) -> str:
    """Say what is wrong, and what would help where we know it."""
    if isinstance(error, Forbidden):
        return f"{error}; the verbs needed are list and watch on {resource}"
    if isinstance(error, NotFound) and "." in resource:
        return f"{error}; {resource} are not served: is their CRD installed?"
    return str(error)
