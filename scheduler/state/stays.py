"""What TrainJobs say of eviction: why they stay where they are, and when they saved their work.

That one is evicted it does not say itself: its PodGroups do, which its user may not write. Trainer
builds no JobSet for a TrainJob of another controller: the JobSet that names it was made by hand,
nothing that is done to the TrainJob stops it, and it is evicted as one of no TrainJob.
"""

from collections.abc import Mapping
from typing import Final

from scheduler.state.gang import PodGroupRecord
from scheduler.state.roll import SUCCEEDED
from scheduler.state.terms import epoch_s
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import EVICTED_BY, KUEUE_QUEUE, LAST_CHECKPOINT, TRAINJOB_CONTROLLER
from trainer_kai.api.owners import same_name_trainjob_owner
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.evicted import is_evicted

__all__ = [
    "Evictability",
    "controlling_trainjob",
    "controlling_trainjob_key",
    "has_eviction_copy",
    "is_partly_succeeded",
    "is_suspended_by_eviction",
    "suspend_refusal",
    "will_run_again",
]

_RELOCATING: Final = "it is on its way to another place"


class Evictability:
    """A TrainJob is suspended and resumed, or let alone."""

    def __init__(
        self, trainjobs: Mapping[Key, TrainJob], suspend_refusals: Mapping[Key, str], *, kueue: bool
    ) -> None:
        self._trainjobs: Final = trainjobs
        self._suspend_refusals: Final = (
            suspend_refusals  # why it cannot be suspended, where that was tried
        )
        self._kueue: Final = kueue

    def has_trainjob(self, record: PodGroupRecord) -> bool:
        """Say whether a gang is of a TrainJob that is there."""
        return controlling_trainjob(record.jobset, self._trainjobs) is not None

    def checkpoint_at(self, record: PodGroupRecord) -> int:
        """Return when a gang says it saved its work last, in seconds since 1970; 0 is never."""
        job = controlling_trainjob(record.jobset, self._trainjobs)
        text = job.metadata.annotations.get(LAST_CHECKPOINT, "") if job else ""
        return max(epoch_s(text) or 0, 0)

    def non_evictable_reason(self, record: PodGroupRecord) -> str:
        """Return why nobody may take anything from a gang; nothing if somebody may."""
        if record.is_relocating:
            return _RELOCATING
        job = controlling_trainjob(record.jobset, self._trainjobs)
        if job is None:
            return ""
        return suspend_refusal(job, kueue=self._kueue) or self._suspend_refusals.get(
            job.metadata.key, ""
        )


def is_partly_succeeded(record: PodGroupRecord) -> bool:
    """Say whether some pods of a JobSet's gang are there, and others have succeeded."""
    is_any_done = any(record.count_of(name, SUCCEEDED) for name in record.min_members)
    return bool(record.jobset_uid) and record.has_started and is_any_done


def suspend_refusal(job: TrainJob, *, kueue: bool) -> str | None:
    """Say why a TrainJob is not evicted; its label counts where the site says that *kueue* runs."""
    return "Kueue suspends and resumes it" if kueue and KUEUE_QUEUE in job.metadata.labels else None


def will_run_again(job: TrainJob, group: PodGroup) -> bool:
    """Say whether a TrainJob runs, or was suspended for a moment only, by one of its PodGroups."""
    return not job.spec.suspend or is_suspended_by_eviction(job, group)


def is_suspended_by_eviction(job: TrainJob, group: PodGroup) -> bool:
    """Say whether a TrainJob is suspended, and one of its PodGroups says that it was evicted."""
    return job.spec.suspend and is_evicted(job, group)


def has_eviction_copy(job: TrainJob) -> bool:
    """Say whether a suspended TrainJob carries a copy of a record: our own, or its user's words."""
    return job.spec.suspend and bool(job.metadata.annotations.get(EVICTED_BY))


def controlling_trainjob(
    jobset: JobSet | None, trainjobs: Mapping[Key, TrainJob]
) -> TrainJob | None:
    """Return the very TrainJob that controls a JobSet, if Trainer builds JobSets for it."""
    owner = same_name_trainjob_owner(jobset.metadata) if jobset else None
    job = trainjobs.get(jobset.metadata.key) if jobset and owner else None
    if job is None or owner is None or job.metadata.uid != owner.uid:
        return None
    return job if job.spec.managed_by in {"", TRAINJOB_CONTROLLER} else None


def controlling_trainjob_key(jobset: JobSet | None) -> Key | None:
    """Return which TrainJob a JobSet is of: it has the same name."""
    if jobset is None or same_name_trainjob_owner(jobset.metadata) is None:
        return None
    return jobset.metadata.key
