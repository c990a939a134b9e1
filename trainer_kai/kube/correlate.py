"""Many things to say about objects, few Events to write: sums and bounds, no waiting.

1. The same words about the same object are one Event whose count grows.
2. More than `similar_most` different words for one reason, none later than `similar_s` after the
   one before, become one Event, which begins with "(combined …)" and holds the last ones.
3. Each object may cause `object_burst` writes at once and one more each `object_refill_s`. What
   comes on top is counted and shows up with the next write; it is `False` to whoever posts it.
4. What waits to be written is not written twice: it is written with its last count.
5. No more than `remembered` of anything is remembered; the longest unused is forgotten, and what
   still waits to be written is not. When all of it waits, nothing new is taken.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from trainer_kai.api.sentence import shortened

__all__ = [
    "Bucket",
    "Correlator",
    "Entry",
    "EventLimits",
    "EventType",
    "Regarding",
    "Remark",
]

K = TypeVar("K")
V = TypeVar("V")
EventType: TypeAlias = Literal["Normal", "Warning"]

_COMBINED: Final = "(combined from similar events): "
_LONGEST_NAME: Final = 230  # characters of the object's name in that of its Event


@dataclass(frozen=True)
class EventLimits:
    """How much is written and remembered."""

    object_burst: int = 25
    object_refill_s: float = 300.0
    similar_most: int = 10
    similar_s: float = 600.0
    remembered: int = 4096


class Regarding(NamedTuple):
    """The object that something is said about."""

    api_version: str
    kind: str
    namespace: str  # "" for those that have none
    name: str
    uid: str


class Remark(NamedTuple):
    """Something said about an object."""

    regarding: Regarding
    reason: str
    message: str
    type: EventType
    annotations: Mapping[str, str] = {}


_Similar: TypeAlias = tuple[Regarding, str, EventType]
_Key: TypeAlias = tuple[_Similar, str]


@dataclass
class Entry:
    """One Event, as it is to be written."""

    name: str
    remark: Remark
    first: datetime
    last: datetime
    count: int = 0
    is_made: bool = False  # the API server has it, so only the count and the words change

    @property
    def namespace(self) -> str:
        """Return where it is written: beside its object, or in default."""
        return self.remark.regarding.namespace or "default"

    def body(self, component: str, instance: str) -> dict[str, Any]:
        """Return the whole Event."""
        regarding = self.remark.regarding
        metadata: dict[str, Any] = {"namespace": self.namespace, "name": self.name}
        if self.remark.annotations:
            metadata["annotations"] = dict(self.remark.annotations)
        involved = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": {field: text for field, text in involved.items() if text},
            "reason": self.remark.reason,
            "type": self.remark.type,
            "firstTimestamp": _time(self.first),
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": instance,
            **self.change(),
        }

    def change(self) -> dict[str, Any]:
        """Return what differs from one write to the next."""
        message, last = self.remark.message, _time(self.last)
        return {"message": message, "count": self.count, "lastTimestamp": last}


@dataclass
class Bucket:
    """So many at once, and one more each so many seconds."""

    most: int
    refill_s: float
    left: float = -1.0
    at_s: float = 0.0

    def take(self, now_s: float) -> float:
        """Take one and return 0, or return how long to wait for the next one."""
        if self.left < 0:
            self.left, self.at_s = float(self.most), now_s
        self.left = min(self.left + (now_s - self.at_s) / self.refill_s, float(self.most))
        self.at_s = now_s
        if self.left < 1 - 1e-9:
            return (1 - self.left) * self.refill_s
        self.left = max(self.left - 1, 0.0)
        return 0.0


@dataclass
class _Words:
    """The different words that one reason was given in lately."""

    hashes: set[int] = field(default_factory=set)
    at_s: float = 0.0


class _Recent(OrderedDict[K, V], Generic[K, V]):
    """A mapping that forgets what was not used for longest."""

    def use(self, key: K, make: Callable[[], V], most: int) -> V:
        """Return what is there, or make it."""
        if key not in self:
            self[key] = make()
            if len(self) > most:
                self.popitem(last=False)
        self.move_to_end(key)
        return self[key]


class Correlator:
    """What was said lately, and what of it is to be written."""

    def __init__(self, limits: EventLimits, token: Callable[[], str]) -> None:
        """Take the limits and a source of names that nobody else uses."""
        self._limits = limits
        self._token = token
        self._buckets: _Recent[Regarding, Bucket] = _Recent()
        self._words: _Recent[_Similar, _Words] = _Recent()
        self._entries: OrderedDict[_Key, Entry] = OrderedDict()
        self._waiting: OrderedDict[_Key, Entry] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Return how many Events are to be written."""
        return len(self._waiting)

    def post(self, remark: Remark, now_s: float, now: datetime) -> bool:
        """Take a remark; say whether it will be written."""
        key, remark = self._combined(remark, now_s)
        entry = self._waiting.get(key)
        if entry is not None:
            _note(entry, remark, now)
            return True
        entry = self._entry(key, remark, now)
        if entry is None:
            return False
        _note(entry, remark, now)
        return self._queue(key, now_s)

    def first(self) -> Entry | None:
        """Return what waits for longest."""
        return next(iter(self._waiting.values()), None)

    def written(self, entry: Entry, count: int, now_s: float) -> None:
        """Note that the API server has an Event with this count, which may have grown meanwhile."""
        entry.is_made = True
        key = self.settle(entry)
        if entry.count > count:
            self._queue(key, now_s)

    def rename(self, entry: Entry) -> None:
        """Note that the API server has lost an Event: it is made anew, under another name."""
        entry.is_made = False
        entry.name = self._name(entry.remark)

    def settle(self, entry: Entry) -> _Key:
        """Let an Event be, as it is; the next remark goes on from there."""
        key, found = next(iter(self._waiting.items()))
        assert found is entry, "only what waits for longest is being written"
        del self._waiting[key]
        self._entries[key] = entry
        return key

    def _queue(self, key: _Key, now_s: float) -> bool:
        """Have an Event written, if its object may cause another write."""
        entry, limits = self._entries[key], self._limits
        bucket = self._buckets.use(
            entry.remark.regarding,
            lambda: Bucket(limits.object_burst, limits.object_refill_s),
            limits.remembered,
        )
        if bucket.take(now_s) > 0:
            return False
        self._waiting[key] = self._entries.pop(key)
        return True

    def _combined(self, remark: Remark, now_s: float) -> tuple[_Key, Remark]:
        """Return the key of a remark and its words, after looking at those that are like it."""
        similar = (remark.regarding, remark.reason, remark.type)
        words = self._words.use(similar, _Words, self._limits.remembered)
        if now_s - words.at_s > self._limits.similar_s:
            words.hashes.clear()
        words.at_s = now_s
        if len(words.hashes) <= self._limits.similar_most:
            words.hashes.add(hash(remark.message))
        if len(words.hashes) <= self._limits.similar_most:
            message = shortened(remark.message)
            return (similar, message), remark._replace(message=message)
        message = shortened(_COMBINED + remark.message)
        return (similar, _COMBINED), remark._replace(message=message)

    def _entry(self, key: _Key, remark: Remark, now: datetime) -> Entry | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            return entry
        if len(self._entries) + len(self._waiting) >= self._limits.remembered:
            if not self._entries:
                return None
            self._entries.popitem(last=False)
        self._entries[key] = Entry(self._name(remark), remark, now, now)
        return self._entries[key]

    def _name(self, remark: Remark) -> str:
        return f"{remark.regarding.name[:_LONGEST_NAME].rstrip('-.')}.{self._token()}"


def _note(entry: Entry, remark: Remark, now: datetime) -> None:
    entry.remark = remark
    entry.last = now
    entry.count += 1


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
