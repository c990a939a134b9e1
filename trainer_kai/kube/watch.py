"""List a kind and watch it: a consumer gets every net change exactly once.

The contract with the consumer:

1. `on_change` is called for one change at a time, in the order of the store. It must not wait.
   What it raises ends the watch.
2. `on_synced` is called when a list was reported to its end: at the start, and after each gap.
3. After a gap (the version we would continue from is gone) the kind is listed again. What changed
   meanwhile is reported once, in its last state; a deletion meanwhile is reported without a state.
4. Of an object only key, version and uid are kept here. Lists are read in pages: of 50 objects,
   then of as many as fit into 8 MiB, for a user may make any number of objects of 1.5 MB.
5. An object that cannot be read is reported, and to the consumer it is not there.
6. Failures are waited out, longer each time. Only credentials that are refused, and a server that
   is not the one we trust, end the watch.
7. The API server sends no bookmarks for Events: without events such a watch is silent, and its
   version expires. Its requests end before the silence limit, and the first expiry in a row is the
   normal course. A dead connection sends no end either, so the silence limit still finds it.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from trainer_kai.api.decode import DecodeError, PageMeta, decode, decode_page, decode_watch_event
from trainer_kai.api.meta import Key, Meta, Object, PartialObject
from trainer_kai.kube.client import Client, RetryPolicy
from trainer_kai.kube.rest import request as build
from trainer_kai.kube.rest.request import ListTarget, Request
from trainer_kai.kube.rest.response import (
    ApiError,
    Forbidden,
    NotFound,
    TooLarge,
    Unauthorized,
    WatchExpired,
    error_of_watch_event,
    garbled_if_unreadable,
)
from trainer_kai.kube.workqueue import Backoff

T = TypeVar("T", bound=Object)
_NO_METADATA: Final = Meta()
_LONGEST_PAGE: Final = 2_000  # reading it whole takes as long as a task can wait
_FIRST_PAGE: Final = 50  # any object may be as large as the API server takes: 1.5 MB
_PAGE_BYTES: Final = 8 * 2**20  # of the pages that follow, as far as that can be known
_YIELD_EVERY: Final = 50
_NO_RETRY: Final = RetryPolicy(total_s=0)
_NOT_SERVED_S: Final = 30.0  # until an optional kind is tried again, and at most twice that
_SHORTEST_STREAM_S: Final = 1.0  # a stream that ends sooner and brings no event is no success


class DeltaType(Enum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


class Delta(NamedTuple, Generic[T]):
    """One net change of one object.

    A deletion has the last state of the object, or None if it happened in a gap of the watch.
    """

    type: DeltaType
    key: Key
    uid: str
    object: T | None


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object of which only the metadata can be read."""

    metadata: Meta
    error: DecodeError


@dataclass(frozen=True)
class WatchTiming:
    page_items: int = 500
    first_wait_s: float = 0.1
    longest_wait_s: float = 10.0  # so long may a change be late once the API server is back
    silence_s: float = 150.0  # the API server sends a bookmark about every minute
    stream_s: int = 300  # one request follows for so long, or for up to twice that
    has_bookmarks: bool = True  # without them `silence_s` must be longer than twice `stream_s`


NO_BOOKMARKS: Final = WatchTiming(stream_s=60, has_bookmarks=False)


class WatchObserver(Protocol):
    def watch_read(self, resource: str, event: str) -> None:
        """Take note of an event by its type, or of a page (PAGE)."""
        ...

    def watch_ended(self, resource: str, trouble: str, error: ApiError | None) -> None:
        """Take note of the end of a list or a stream; without *trouble* the end is a normal one.

        Without an error the stream had its time.
        """
        ...

    def watch_skipped(self, resource: str, unreadable: UnreadableObject) -> None: ...


class Watch(Generic[T]):
    def __init__(
        self,
        client: Client,
        target: ListTarget[T],
        observer: WatchObserver,
        *,
        timing: WatchTiming = WatchTiming(),
        jitter: Callable[[], float] = random.random,
        optional: bool = False,
    ) -> None:
        self.synced = False  # a list was reported to its end, once at least
        self.trouble = ""  # why nothing can come at the moment, and what helps
        self._client = client
        self._target = target
        self._observer = observer
        self._timing = timing
        self._jitter = jitter
        self._is_optional = optional
        self._name = _watch_name(target)
        self._known_objects: KnownObjects[T] = KnownObjects()
        self._version = ""  # the last one reported; "" asks for a list
        self._page_items = timing.page_items
        self._events_read = 0

    def not_synced_reason(self) -> str:
        """Return why the consumer may not know all objects, or ""; for `Health.add_condition`."""
        return self.trouble or ("" if self.synced else "not listed yet")

    async def run(
        self, on_change: Callable[[Delta[T]], None], on_synced: Callable[[], None]
    ) -> None:
        backoff = Backoff(self._timing.first_wait_s, self._timing.longest_wait_s, self._jitter)
        expired = False
        while True:
            read, began_s = self._events_read, self._client.clock.monotonic_s()
            error = await self._list_and_follow(on_change, on_synced)
            if self._is_optional and isinstance(error, NotFound):
                self._report_not_served(error, on_change, on_synced)
                await self._client.clock.sleep(_NOT_SERVED_S * (1 + self._jitter()))
                continue
            progress = self._events_read > read
            lasted_s = self._client.clock.monotonic_s() - began_s
            is_first_expiry = isinstance(error, WatchExpired) and not expired
            expired = isinstance(error, WatchExpired)
            if progress or is_first_expiry or lasted_s > self._timing.longest_wait_s:
                backoff.reset()  # an answer is good news, unless it is the same one again
            is_normal = is_first_expiry and not self._timing.has_bookmarks
            self.trouble = "" if error is None or is_normal else _trouble_text(self._name, error)
            self._observer.watch_ended(self._name, self.trouble, error)
            if error is not None or not (progress or lasted_s > _SHORTEST_STREAM_S):
                wait_s = backoff.next_s(error.retry_after_s if error else None)
                await self._client.clock.sleep(wait_s)

    def _report_not_served(
        self,
        error: NotFound,
        on_change: Callable[[Delta[T]], None],
        on_synced: Callable[[], None],
    ) -> None:
        self._version, self.trouble = "", ""
        self._known_objects.begin()
        _deliver(on_change, self._known_objects.end())
        on_synced()
        self.synced = True
        self._observer.watch_ended(self._name, "", error)

    async def _list_and_follow(
        self, on_change: Callable[[Delta[T]], None], on_synced: Callable[[], None]
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

    async def _list(self, on_change: Callable[[Delta[T]], None]) -> str:
        """Report what a list shows; return the version that it shows."""
        self._known_objects.begin()
        token, items = "", min(_FIRST_PAGE, self._page_items)
        while True:
            request = build.list_page(self._target, items, token)
            try:
                # To fail at the first page loses nothing, and says at once that there is trouble.
                data = await self._client.send(request, retry_policy=None if token else _NO_RETRY)
            except WatchExpired:  # it took too long: fewer pages are faster
                self._page_items = min(self._page_items * 4, _LONGEST_PAGE)
                raise
            except TooLarge:
                if items == 1:
                    raise
                items = max(items // 10, 1)
                continue
            self._observer.watch_read(self._name, "PAGE")
            with garbled_if_unreadable(request):
                page = read_page(self._target.resource.struct, data)
            for number, item in enumerate(page.items, start=1):
                _deliver(on_change, self._deltas_of_item(item))
                if number % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)  # a long list does not block the event loop
            items = self._next_page_items(len(data) // max(len(page.items), 1))
            token = page.metadata.continue_token
            if not token:
                _deliver(on_change, self._known_objects.end())
                return page.metadata.resource_version

    def _next_page_items(self, item_bytes: int) -> int:
        return max(min(_PAGE_BYTES // max(item_bytes, 1), self._page_items), 1)

    async def _follow(self, on_change: Callable[[Delta[T]], None]) -> None:
        """Report what happens after the last reported version, until the API server ends it."""
        stream_s = int(self._timing.stream_s * (1 + self._jitter()))
        request = build.watch(self._target, self._version, stream_s)
        lines = LineSplitter()
        async with self._client.stream(request, self._timing.silence_s) as pieces:
            self.trouble = ""
            async for piece in pieces:
                for event in lines.feed(piece):
                    self._process_event(request, event, on_change)

    def _process_event(
        self, request: Request, data: bytes, on_change: Callable[[Delta[T]], None]
    ) -> None:
        with garbled_if_unreadable(request):
            event = decode_watch_event(data)
            if event.type == "ERROR":
                raise error_of_watch_event(request, event.object)
            struct = PartialObject if event.type == "BOOKMARK" else self._target.resource.struct
            current = read_object(struct, event.object)
        if event.type != "BOOKMARK":
            changed = cast("T | UnreadableObject", current)
            _deliver(on_change, self._deltas_of_event(event.type, changed))
        self._version = current.metadata.resource_version
        self._observer.watch_read(self._name, event.type)
        self._events_read += 1

    def _deltas_of_item(self, item: T | UnreadableObject) -> Iterable[Delta[T]]:
        if isinstance(item, UnreadableObject):
            self._observer.watch_skipped(self._name, item)
            return ()  # the end of the list says that it is gone, if it was ever there
        return self._known_objects.listed(item)

    def _deltas_of_event(self, event: str, current: T | UnreadableObject) -> Iterable[Delta[T]]:
        if isinstance(current, UnreadableObject):
            self._observer.watch_skipped(self._name, current)
            return self._known_objects.deleted(current.metadata, None)
        if event == "DELETED":
            return self._known_objects.deleted(current.metadata, current)
        return self._known_objects.updated(current)


def _deliver(on_change: Callable[[Delta[T]], None], changes: Iterable[Delta[T]]) -> None:
    for change in changes:
        on_change(change)


def _watch_name(target: ListTarget[Any]) -> str:
    """Tell two watches of one kind apart, in as few words as there are watches."""
    selected = (target.selection.labels, target.selection.fields)
    where = f" in {target.namespace}" if target.namespace else ""
    which = "".join(f" with {text}" for text in selected if text)
    return f"{target.resource}{where}{which}"


def _trouble_text(resource: str, error: ApiError) -> str:
    if isinstance(error, Forbidden):
        return f"{error}; the verbs needed are list and watch on {resource}"
    if isinstance(error, NotFound) and "." in resource:
        return f"{error}; {resource} are not served: is their CRD installed?"
    return str(error)


class _KnownVersion(NamedTuple):
    version: str
    uid: str


class KnownObjects(Generic[T]):
    """Which version of which object was reported last: enough to find the net changes after a gap.

    The uid is stored as well: a successor of the same name is a deletion and an addition.

        empty ──begin──▶ listing ──listed…──▶ listing ──end──▶ following ──updated…──▶ following
                            ▲                                      │
                            └──────────────begin (after a gap)─────┘
    """

    def __init__(self) -> None:
        self._known: dict[Key, _KnownVersion] = {}
        self._unlisted: dict[Key, _KnownVersion] = {}

    def __len__(self) -> int:
        return len(self._known)

    def begin(self) -> None:
        """Begin a list: an object that it does not show is deleted. A list may be begun anew."""
        self._unlisted.update(self._known)
        self._known = {}

    def listed(self, current: T) -> Iterator[Delta[T]]:
        previous = self._unlisted.pop(current.metadata.key, None)
        yield from self._deltas(current, previous)

    def end(self) -> Iterator[Delta[T]]:
        """End the list; yield the deletions it shows by silence."""
        unlisted, self._unlisted = self._unlisted, {}
        for key, known in unlisted.items():
            yield Delta(DeltaType.DELETED, key, known.uid, None)

    def updated(self, current: T) -> Iterator[Delta[T]]:
        yield from self._deltas(current, self._known.get(current.metadata.key))

    def deleted(self, meta: Meta, last: T | None) -> Iterator[Delta[T]]:
        """Take an object that is no more, with its last state if that can be read."""
        known = self._known.pop(meta.key, None) or self._unlisted.pop(meta.key, None)
        if known is not None:
            yield Delta(DeltaType.DELETED, meta.key, known.uid, last)

    def _deltas(self, current: T, previous: _KnownVersion | None) -> Iterator[Delta[T]]:
        meta = current.metadata
        key = meta.key
        self._known[key] = _KnownVersion(meta.resource_version, meta.uid)
        if previous is None:
            yield Delta(DeltaType.ADDED, key, meta.uid, current)
        elif previous.uid != meta.uid:
            yield Delta(DeltaType.DELETED, key, previous.uid, None)
            yield Delta(DeltaType.ADDED, key, meta.uid, current)
        elif previous.version != meta.resource_version:
            yield Delta(DeltaType.MODIFIED, key, meta.uid, current)


class LineSplitter:
    """Give it pieces, take whole lines. A line that is never finished is never given out.

    A line may come in thousands of pieces (an object of some MiB does): they are joined once.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without their ends."""
        if b"\n" not in piece:
            self._unfinished.append(piece)
            return []
        *lines, rest = piece.split(b"\n")
        if self._unfinished:
            lines[0] = b"".join((*self._unfinished, lines[0]))
        self._unfinished = [rest] if rest else []
        return [line for line in lines if line]


@dataclass(frozen=True, slots=True)
class DecodedPage(Generic[T]):
    metadata: PageMeta
    items: Sequence[T | UnreadableObject]


class _RawPage(msgspec.Struct, frozen=True):
    metadata: PageMeta
    items: tuple[msgspec.Raw, ...] = ()


def read_page(struct: type[T], data: bytes) -> DecodedPage[T]:
    """Read a page; an object that cannot be read does not spoil the others."""
    try:
        page = decode_page(struct, data)
    except DecodeError:
        raw = decode(_RawPage, data)
        return DecodedPage(raw.metadata, tuple(read_object(struct, item) for item in raw.items))
    return DecodedPage(page.metadata, page.items)


def read_object(struct: type[T], data: bytes | msgspec.Raw) -> T | UnreadableObject:
    """Read one object, or at least its metadata; raise `DecodeError` if not even that."""
    try:
        return decode(struct, data)
    except DecodeError as error:
        meta = decode(PartialObject, data).metadata
        if meta == _NO_METADATA:
            raise
        return UnreadableObject(meta, error)
