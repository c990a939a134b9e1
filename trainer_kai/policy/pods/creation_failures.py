"""Why a Job could not create pods, read from the last of its FailedCreate events. Pure.

Only the Job controller knows what a quota or a policy answered, and it reports that by events only,
which are kept for an hour. So whether an event still applies is decided from the current objects:
an old refusal is not the reason of another shortage.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from trainer_kai.api.cluster_kinds import Event
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBS
from trainer_kai.policy.start_order import pods_at_once
from trainer_kai.policy.workloads.kinds import workload_of_job
from trainer_kai.policy.workloads.workload import Workload

FIELD_SELECTOR: Final = "involvedObject.kind=Job,reason=FailedCreate"  # which events are read
CANNOT_CREATE: Final = "cannot create its pods"

_MAX_REASON_LENGTH: Final = 500  # characters
_CLOCK_SKEW: Final = timedelta(minutes=1)  # of the clock of an Event's writer
# A Job controller retries every minute at least, and its recorder posts every fifth failure.
_VALID_FOR: Final = timedelta(minutes=10)
_MAX_NAME_LENGTH: Final = 63  # of the name of a Job; an Event may name anything
_SECONDS: Final = len("2026-01-01T00:00:00")
_EVENT_PREFIX: Final = re.compile(
    r"(\(combined from similar events\): )?(Error creating: )?(pods \"[^\"]*\" is forbidden: )?"
)


class PodCreationFailure(NamedTuple):
    at: str  # to the second, in UTC
    event: str  # its name, which orders two Events of one second
    job: Key
    reason: str

    def __str__(self) -> str:
        return f"Job {self.job.name} {CANNOT_CREATE}: {self.reason}"


class CreatedPod(NamedTuple):
    job: str
    created: str
    counts: bool  # it neither failed nor is terminating


def read_creation_failure(event: Event) -> PodCreationFailure | None:
    """Return the failure that an Event reports, without the names of single pods."""
    involved = event.involved_object
    if involved.kind != JOBS.kind or event.reason != "FailedCreate":
        return None
    if len(involved.name) > _MAX_NAME_LENGTH:
        return None
    times = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    at = max((it or "")[:_SECONDS] for it in times)
    reason = " ".join(_EVENT_PREFIX.sub("", event.message, count=1).split())
    if len(reason) > _MAX_REASON_LENGTH:
        reason = f"{reason[: _MAX_REASON_LENGTH - 1]}…"
    namespace = involved.namespace or event.metadata.namespace
    return PodCreationFailure(at, event.metadata.name, Key(namespace, involved.name), reason)


def is_recent(failure: PodCreationFailure, now: datetime) -> bool:
    """Say whether a failure is so recent that a Job that still fails need not have reported anew.

    A failure in the future is not: an Event may name any time.
    """
    first, last = now - _VALID_FOR, now + _CLOCK_SKEW
    return first.isoformat()[:_SECONDS] <= failure.at <= last.isoformat()[:_SECONDS]


def has_created_since(failure: PodCreationFailure, pods: Iterable[CreatedPod]) -> bool:
    return any(pod.job == failure.job.name and pod.created[:_SECONDS] > failure.at for pod in pods)


def still_applies(
    failure: PodCreationFailure, workload: Workload, pods: Iterable[CreatedPod], now: datetime
) -> bool:
    """Say whether a failure may still be the reason that pods of a Job are missing.

    It is not if the workload began later or is to have no pods, if the Job has created a pod since
    or has all of them, or if it is so old that the Job would have reported again.
    """
    created_at, changed_at = workload.metadata.creation_timestamp, workload.suspension_changed_at
    began = max(created_at[:_SECONDS], changed_at[:_SECONDS])
    has_no_pods = workload.is_suspended or workload.is_over
    if has_no_pods or failure.at < began or not is_recent(failure, now):
        return False
    own = [pod for pod in pods if pod.job == failure.job.name]
    if has_created_since(failure, own):
        return False
    found = workload_of_job(failure.job, {workload.key: workload})
    return found is not None and sum(pod.counts for pod in own) < pods_at_once(found[1])
