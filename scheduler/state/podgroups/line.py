"""The places of PodGroups in the line: the annotation `trainer-kai.dev/line`, read and written.

An annotation that cannot be read counts as none: the PodGroup waits as if it had just come.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from scheduler.core.model.line import MOST_BACK_OFF_S, LineRecord
from scheduler.core.model.resources import SUM_MOST
from scheduler.state.podgroups.podgroup import PodGroupRecord
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import LINE

_MOST_TRIES: Final = 64


class _Annotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times in seconds since 1970, GPUs in thousandths; 0 is never."""

    since: int
    request: str
    next_since: int = msgspec.field(default=0, name="nextSince")
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    at: int = 0
    used: int = 0
    tries: int = 0
    again_at: int = msgspec.field(default=0, name="againAt")
    paused_s: int = msgspec.field(default=0, name="pausedSeconds")
    paused_at: int = msgspec.field(default=0, name="pausedAt")
    nodes_since: tuple[int, ...] = msgspec.field(default=(), name="nodesSince")


_decoder: Final = msgspec.json.Decoder(_Annotation)


class Lines:
    """The annotations that are not empty, by PodGroup."""

    def __init__(self, groups: Mapping[Key, PodGroup]) -> None:
        self._groups: Final = groups
        self._annotations: Final[dict[Key, str]] = {}
        self._inactive: Final[set[Key]] = set()  # of these: no place is waited for

    def read(self, key: Key, record: PodGroupRecord | None) -> None:
        self._annotations.pop(key, None)
        self._inactive.discard(key)
        group = self._groups.get(key)
        text = group.metadata.annotations.get(LINE, "") if group else ""
        if text:
            self._annotations[key] = text
            if record is None or not record.is_active:
                self._inactive.add(key)

    def outdated(self, now: int) -> dict[Key, str]:
        """Return the annotations of PodGroups without pods, as they should be.

        One that gave up before waits as long again when its pods come back.
        """
        found = {}
        for key in sorted(self._inactive):
            record = _read(self._annotations[key], {}, now)
            if record is None or not record.tries:
                found[key] = ""
            elif not record.paused_at:
                found[key] = write_line(record.paused(now), ())
        return found

    def records(
        self, podgroups: Sequence[Key], node_rows: Mapping[str, int], now: int
    ) -> dict[int, LineRecord]:
        if not self._annotations:
            return {}
        texts = self._annotations
        found = {
            row: _read(texts[key], node_rows, now)
            for row, key in enumerate(podgroups)
            if key in texts
        }
        return {row: it for row, it in found.items() if it is not None}


def _read(text: str, node_rows: Mapping[str, int], now: int) -> LineRecord | None:
    """Return the record; None if it cannot be read. What is later than it can be is cut."""
    try:
        it = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    numbers = [it.since, it.next_since, it.gpus, it.at, it.used, it.tries, it.again_at]
    numbers += [it.paused_s, it.paused_at, *it.nodes_since]
    if not all(0 <= number <= SUM_MOST for number in numbers):
        return None
    times = it.nodes_since if len(it.nodes_since) == len(it.nodes) else (it.at,) * len(it.nodes)
    known = [
        (node_rows[node], min(since, now))
        for node, since in zip(it.nodes, times, strict=True)
        if node in node_rows
    ]
    return LineRecord(
        min(it.since, now),
        it.request,
        min(it.next_since, now),
        tuple([node for node, _ in known]),
        it.gpus,
        min(it.at, now),
        it.used,
        min(it.tries, _MOST_TRIES),
        min(it.again_at, now + MOST_BACK_OFF_S),
        it.paused_s,
        min(it.paused_at, now),
        tuple([since for _, since in known]),
    )


def write_line(record: LineRecord | None, node_names: Sequence[str]) -> str:
    """Return the annotation; empty without a record."""
    if record is None:
        return ""
    fields = record._asdict()
    fields["nodes"] = tuple([node_names[row] for row in record.nodes])
    return msgspec.json.encode(_Annotation(**fields)).decode()
