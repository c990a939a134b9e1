"""Why pods of a Job could not be made, as the last of its events says it. Pure.

Nobody but the Job controller knows what a quota or a policy said to it, and it tells that by events
only, which stay for an hour. So whether such a word still holds is asked of what is there now:
an old refusal is not the reason of another shortage.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from trainer_kai.api.event import Event
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import JOBS

__all__ = [
    "CANNOT",
    "FIELDS",
    "Made",
    "Unmade",
    "has_made_since",
    "is_recent",
    "is_told_still",
    "owner_of",
    "read_unmade",
    "wanted",
]

FIELDS: Final = "involvedObject.kind=Job,reason=FailedCreate"  # which events are read
CANNOT: Final = "cannot make them"

_MOST: Final = 500  # characters
_SKEW: Final = timedelta(minutes=1)  # of the clock of whoever wrote an Event
# A Job controller tries anew every minute at most, and of that its recorder tells every fifth.
_HOLDS: Final = timedelta(minutes=10)
_LONGEST: Final = 63  # of the name of a Job; who writes an Event may write any
_SECONDS: Final = len("2026-01-01T00:00:00")
_SAID: Final = re.compile(
    r"(\(combined from similar events\): )?(Error creating: )?(pods \"[^\"]*\" is forbidden: )?"
)


class Unmade(NamedTuple):
    """A Job that could not make pods."""

    at: str  # to the second, in UTC
    event: str  # its name: of two in one second the same one is always the last
    job: Key
    reason: str

    def __str__(self) -> str:
        return f"Job {self.job.name} {CANNOT}: {self.reason}"


class Made(NamedTuple):
    """A pod of a Job."""

    job: str
    created: str
    counts: bool  # it neither failed nor is going


def read_unmade(event: Event) -> Unmade | None:
    """Return what an event says, without what is another word for each pod."""
    about = event.involved_object
    if about.kind != JOBS.kind or event.reason != "FailedCreate":
        return None
    if len(about.name) > _LONGEST:  # no Job is called so, whoever wrote that
        return None
    times = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    at = max((it or "")[:_SECONDS] for it in times)
    reason = " ".join(_SAID.sub("", event.message, count=1).split())
    if len(reason) > _MOST:
        reason = f"{reason[: _MOST - 1]}…"
    namespace = about.namespace or event.metadata.namespace
    return Unmade(at, event.metadata.name, Key(namespace, about.name), reason)


def owner_of(job: Key, jobsets: Mapping[Key, JobSet]) -> tuple[JobSet, ReplicatedJob] | None:
    """Return whose Job it is by its name; None if it belongs to nobody who is known."""
    rest, _, index = job.name.rpartition("-")
    cuts = [at for at, sign in enumerate(rest) if sign == "-"] if index.isdecimal() else []
    for at in reversed(cuts):
        jobset = jobsets.get(Key(job.namespace, rest[:at]))
        for one in jobset.spec.replicated_jobs if jobset else ():
            if jobset and one.name == rest[at + 1 :] and int(index) < one.replicas:
                return jobset, one
    return None


def wanted(job: ReplicatedJob) -> int:
    """Return how many pods each Job has when none of them is over."""
    spec = job.template.spec
    parallel = 1 if spec.parallelism is None else spec.parallelism
    return parallel if spec.completions is None else min(parallel, spec.completions)


def is_recent(one: Unmade, now: datetime) -> bool:
    """Say whether a Job that is still refused need not have said more since.

    It is not either if it is of the future: whoever may write Events may write any time.
    """
    first, last = now - _HOLDS, now + _SKEW
    return first.isoformat()[:_SECONDS] <= one.at <= last.isoformat()[:_SECONDS]


def has_made_since(one: Unmade, pods: Iterable[Made]) -> bool:
    """Say whether a Job has made a pod after it could not."""
    return any(pod.job == one.job.name and pod.created[:_SECONDS] > one.at for pod in pods)


def is_told_still(one: Unmade, jobset: JobSet, pods: Iterable[Made], now: datetime) -> bool:
    """Say whether it may still be why pods of a Job are missing.

    It is not if the JobSet began later or is to have no pods, if the Job has made a pod since or
    has all of them, or if nothing was heard for so long that a Job would have tried again.
    """
    spec, meta = jobset.spec, jobset.metadata
    began = max(meta.creation_timestamp[:_SECONDS], _resumed_at(jobset))
    if spec.suspend or meta.deletion_timestamp or jobset.status.terminal_state or one.at < began:
        return False
    if not is_recent(one, now):
        return False
    own = [pod for pod in pods if pod.job == one.job.name]
    if has_made_since(one, own):
        return False
    found = owner_of(one.job, {meta.key: jobset})
    return found is not None and sum(pod.counts for pod in own) < wanted(found[1])


def _resumed_at(jobset: JobSet) -> str:
    times = (it.last_transition_time for it in jobset.status.conditions if it.type == "Suspended")
    return (next(times, None) or "")[:_SECONDS]
