"""What PodGroups record of evictions: one that is in progress, and the last one.

`trainer-kai.dev/evicted-by`: a TrainJob, JobSet or Job is suspended while its pods terminate, and
meanwhile they are charged to no queue. So the record stands where no user may write: on the
PodGroups. It names the suspended object and its PodGroup by their uids, which the API server
chooses: an object that was created with a record, from a backup or forged, counts for nothing. The
suspended object's annotation of the same name is a copy for people. Where the API server refuses
the copy (annotations have a size limit), the record says that there is none, so that a missing copy
is not taken for a change by the user.

`trainer-kai.dev/last-eviction` stays on a PodGroup after its Events have expired and after it runs
again, until the next eviction or until the PodGroup is deleted. Users read it; the scheduler reads
only the number of evictions.
"""

from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Object
from trainer_kai.api.names import EVICTED_BY, LAST_EVICTION_RECORD
from trainer_kai.api.scheduler_names import Action
from trainer_kai.api.text import truncated_message

# The rule of docs/rules.md that decides which pods an action may evict.
_RULES: Final = MappingProxyType(
    {
        Action.RECLAIM: "30",
        Action.PREEMPT: "38",
        Action.CONSOLIDATION: "40a",
        Action.STALE_GANG_EVICTION: "40f",
        Action.QUEUE_DRAIN: "20c",
        Action.NODE_LEAVING: "40h",
        "gpureservationlost": "27j",
        "noderefusedpod": "22b",
    }
)


class EvictionRecord(NamedTuple):
    reason: str
    at: str  # RFC 3339
    is_copied: bool  # the suspended object has a copy of the record, unless its user took it away
    was_suspend_requested: bool  # by the manifest applied last, although it ran


class _Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    # The uid of the suspended object of any kind; the first kind gave the field its name.
    suspended: str = msgspec.field(name="trainJob", default="")
    pod_group: str = ""  # uid
    why: str = ""
    at: str = ""  # RFC 3339
    copied: bool = True  # an older version wrote no record without a copy
    asked: bool = False


def encode_eviction_record(suspended: Object, podgroup: PodGroup, eviction: EvictionRecord) -> str:
    record = _Record(
        suspended=suspended.metadata.uid,
        pod_group=podgroup.metadata.uid,
        why=eviction.reason,
        at=eviction.at,
        copied=eviction.is_copied,
        asked=eviction.was_suspend_requested,
    )
    return msgspec.json.encode(record).decode()


def is_evicted(suspended: Object, podgroup: PodGroup) -> bool:
    return _record(suspended, podgroup) is not None


def read_eviction_record(suspended: Object, podgroup: PodGroup) -> EvictionRecord | None:
    found = _record(suspended, podgroup)
    return EvictionRecord(found.why, found.at, found.copied, found.asked) if found else None


def eviction_reason(suspended: Object, podgroup: PodGroup) -> str:
    found = _record(suspended, podgroup)
    return found.why if found else ""


def _record(suspended: Object, podgroup: PodGroup) -> _Record | None:
    text = podgroup.metadata.annotations.get(EVICTED_BY)
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=_Record)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    named = found.suspended, found.pod_group
    meant = suspended.metadata.uid, podgroup.metadata.uid
    return found if named == meant and all(meant) else None


class NodeMoves(msgspec.Struct, frozen=True, kw_only=True):
    """How often a PodGroup was moved off nodes that leave, each time within a day."""

    count: int = 0
    at: str = ""  # the last time, RFC 3339

    def and_one_more(self, at: str) -> "NodeMoves":
        is_in_a_row = _is_within_a_day(self.at, at)
        return NodeMoves(count=self.count + 1 if is_in_a_row else 1, at=at)


NEVER_MOVED: Final = NodeMoves()


class LastEviction(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The JSON of the annotation: which eviction, for which PodGroup, by which rule, at what cost.

    The cost is that of the whole workload, on each of its PodGroups.
    """

    at: str = ""  # RFC 3339
    action: str = ""  # an action of a plan, gpureservationlost or noderefusedpod
    rule: str = ""  # its number in docs/rules.md
    queue: str = ""
    preemptor: str = msgspec.field(name="for", default="")  # the PodGroup, or the pod without one
    preemptor_queue: str = msgspec.field(name="forQueue", default="")
    gpus: float = 0
    lost_gpu_seconds: int = 0
    evictions: int = 0  # of this PodGroup so far, this one included: it began anew as often
    message: str = ""
    moved: NodeMoves | msgspec.UnsetType = msgspec.UNSET


def encode_last_eviction(podgroup: PodGroup, eviction: LastEviction) -> str:
    """At most about 2 KiB."""
    before = last_eviction_of(podgroup) or LastEviction()
    moved = before.moved
    if eviction.action == Action.NODE_LEAVING:
        moved = (moved or NEVER_MOVED).and_one_more(eviction.at)
    written = msgspec.structs.replace(
        eviction,
        rule=_RULES.get(eviction.action, ""),
        evictions=before.evictions + 1,
        message=truncated_message(eviction.message),
        moved=moved,
    )
    return msgspec.json.encode(written).decode()


def _is_within_a_day(before: str, now: str) -> bool:
    try:
        return datetime.fromisoformat(now) - datetime.fromisoformat(before) < timedelta(days=1)
    except (ValueError, TypeError):
        return False


def last_eviction_of(podgroup: PodGroup) -> LastEviction | None:
    text = podgroup.metadata.annotations.get(LAST_EVICTION_RECORD)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=LastEviction)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
