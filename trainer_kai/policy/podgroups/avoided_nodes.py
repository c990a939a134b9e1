"""The nodes that a PodGroup avoids for a while, because they refused pods of it.

`trainer-kai.dev/avoided-nodes` stands on the PodGroup: no user may write there, another leader
finds it there, and it can do no other PodGroup any harm. It names each node with its uid, so that
one that was made anew is used at once. An entry is kept for a while after its time is over: a node
that refuses again is avoided for longer.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

MOST_AVOIDED_NODES: Final = 128  # of one PodGroup: those that are avoided for longest
# If so many nodes refused its pods, its pods may be the cause: no other one is tried for a while.
MOST_TRIED_NODES: Final = 32
_MOST_BYTES: Final = 2**16
_MOST_REASON: Final = 80
_MOST_DOUBLINGS: Final = 20


class AvoidedNodeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    uid: str = ""  # of the node
    at: str = ""  # RFC 3339: when it refused a pod last
    until: str = ""  # RFC 3339
    times: int = 1
    reason: str = ""


class AvoidTimes(NamedTuple):
    """For how many seconds a node is avoided: at first (0 is not at all), and at most."""

    first_s: int
    most_s: int

    def length_s(self, times: int) -> int:
        return min(self.first_s << min(times - 1, _MOST_DOUBLINGS), max(self.most_s, self.first_s))


DEFAULT_AVOID_TIMES: Final = AvoidTimes(300, 14_400)
_decoder: Final = msgspec.json.Decoder(dict[str, AvoidedNodeRecord])


def read_avoided_nodes(text: str) -> dict[str, AvoidedNodeRecord]:
    """Return the records by node; none if the text is not ours."""
    if not text or len(text) > _MOST_BYTES:
        return {}
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def write_avoided_nodes(records: Mapping[str, AvoidedNodeRecord]) -> str:
    """Return the annotation; empty without records."""
    return msgspec.json.encode(records, order="sorted").decode() if records else ""


def with_refusal(
    before: AvoidedNodeRecord | None, uid: str, reason: str, now_s: int, times: AvoidTimes
) -> AvoidedNodeRecord:
    """Return the record of a node that refused a pod, once more or for the first time."""
    count = before.times + 1 if before is not None and before.uid == uid else 1
    until_s = now_s + times.length_s(count)
    return AvoidedNodeRecord(
        uid=uid, at=_text(now_s), until=_text(until_s), times=count, reason=reason[:_MOST_REASON]
    )


def kept_records(
    records: Mapping[str, AvoidedNodeRecord], now_s: int, times: AvoidTimes
) -> dict[str, AvoidedNodeRecord]:
    """Return the records that are not forgotten: of too many those that end last."""
    known = [(ends_at(it), name, it) for name, it in records.items()]
    known = [it for it in known if it[0] + times.most_s > now_s]
    return {name: it for _, name, it in sorted(known, key=_by_end)[-MOST_AVOIDED_NODES:]}


def ends_at(record: AvoidedNodeRecord) -> int:
    return _seconds(record.until)


def refused_at(record: AvoidedNodeRecord) -> int:
    return _seconds(record.at)


def _seconds(text: str) -> int:
    """Return a time in seconds since 1970; 0 if it is none."""
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return 0


def _by_end(known: tuple[int, str, AvoidedNodeRecord]) -> tuple[int, str]:
    return known[:2]


def _text(now_s: int) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
