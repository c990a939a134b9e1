"""That a TrainJob is evicted: `trainer-kai.dev/evicted-by`, written on its PodGroups and read.

A TrainJob is suspended while its pods leave, and meanwhile they are charged to no queue. So the
record of that is where no tenant may write: on the PodGroups. It names its TrainJob and its
PodGroup by their uids, which the API server chooses: an object that was made with a record, out of
a backup or forged, says nothing. The TrainJob's annotation of the same name is a
copy for people.
"""

import msgspec

from trainer_kai.api.names import EVICTED_BY
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob

__all__ = ["eviction_record", "is_evicted", "why_evicted"]


class _Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What is written."""

    train_job: str = ""  # uid
    pod_group: str = ""  # uid
    why: str = ""
    at: str = ""  # RFC 3339


def eviction_record(job: TrainJob, group: PodGroup, why: str, at: str) -> str:
    """Write that a TrainJob is evicted, for one of its PodGroups."""
    uids = {"train_job": job.metadata.uid, "pod_group": group.metadata.uid}
    return msgspec.json.encode(_Record(**uids, why=why, at=at)).decode()


def is_evicted(job: TrainJob, group: PodGroup) -> bool:
    """Say whether a PodGroup says that this very TrainJob is evicted."""
    return _record(job, group) is not None


def why_evicted(job: TrainJob, group: PodGroup) -> str:
    """Return why a TrainJob is evicted, by one of its PodGroups; nothing if it is not."""
    found = _record(job, group)
    return found.why if found else ""


def _record(job: TrainJob, group: PodGroup) -> _Record | None:
    text = group.metadata.annotations.get(EVICTED_BY)
    if not text:  # of nearly all
        return None
    try:
        found = msgspec.json.decode(text, type=_Record)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    named, meant = (found.train_job, found.pod_group), (job.metadata.uid, group.metadata.uid)
    return found if named == meant and all(meant) else None
