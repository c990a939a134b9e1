"""The places of PodGroups in the line: the annotation `trainer-kai.dev/line`, read and written.

An annotation that cannot be read counts as none: the PodGroup waits as if it had just come.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from scheduler.core.model.line import LineRecord
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

    @property
    def outdated(self) -> tuple[Key, ...]:
        """Return the PodGroups that wait for nothing now, and have an annotation."""
        return tuple(sorted(self._inactive))

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
    """Return the record; None if it cannot be read, or if it begins in the future."""
    try:
        it = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    numbers = it.since, it.next_since, it.gpus, it.at, it.used, it.tries, it.again_at
    if not all(0 <= number <= SUM_MOST for number in numbers) or it.since > now:
        return None
    nodes = tuple([node_rows[node] for node in it.nodes if node in node_rows])
    return LineRecord(
        it.since,
        it.request,
        it.next_since,
        nodes,
        it.gpus,
        min(it.at, now),
        it.used,
        min(it.tries, _MOST_TRIES),
        it.again_at,
    )


def write_line(record: LineRecord | None, node_names: Sequence[str]) -> str:
    """Return the annotation; empty without a record."""
    if record is None:
        return ""
    fields = record._asdict()
    fields["nodes"] = tuple([node_names[row] for row in record.nodes])
    return msgspec.json.encode(_Annotation(**fields)).decode()
