"""Which Jobs cannot make their pods, and why: the last word of each that may still hold.

What it is worth is asked anew for every plan, of what is there then. One word is kept of each Job
that said something of late, and of no more than a few hundred Jobs: to forget one makes no plan
wrong, and a Job that is refused again says so again.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from scheduler.state.cluster import Cluster
from scheduler.state.members import Members
from scheduler.state.news import ANY, NOTHING, OVER, Topics
from trainer_kai.api.event import Event
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GANG, JOB_NAME
from trainer_kai.api.pod import Pod
from trainer_kai.policy.names import group_name
from trainer_kai.policy.unmade import (
    Made,
    Unmade,
    is_recent,
    is_told_still,
    owner_of,
    read_unmade,
)

__all__ = ["MOST", "Lack", "Refusals"]

MOST: Final = 500

_ByJob: TypeAlias = Mapping[str, Sequence[Made]]


class Lack(NamedTuple):
    """Why pods of a group are missing."""

    why: str
    exist: int
    least: int  # without so many it cannot be placed


class Refusals:
    """The last word of each Job, and what it comes to for groups."""

    def __init__(self, cluster: Cluster, members: Members, least: Mapping[Key, int]) -> None:
        self._cluster: Final = cluster
        self._members: Final = members
        self._least: Final = least
        self._of: dict[Key, Unmade] = {}
        self.lacks: Mapping[Key, Lack] = {}  # by group, as of the last look

    def __len__(self) -> int:
        return len(self._of)

    def tell(self, key: Key, event: Event | None) -> Topics:
        """Take note of an event, or that it is gone; return whom that concerns."""
        if event is None:
            gone = [job for job, it in self._of.items() if _is_of(it, key)]
            for job in gone:
                del self._of[job]
            return ANY if gone else NOTHING
        one = read_unmade(event)
        before = self._of.get(one.job) if one else None
        if one is None or (before is not None and before[:2] > one[:2]):
            return NOTHING
        is_known = owner_of(one.job, self._cluster.jobsets) is not None
        if len(self._of) >= MOST and before is None:
            if not is_known:
                return NOTHING  # of others there may be any number
            del self._of[min(self._of.values()).job]
        self._of[one.job] = one
        is_new = before is None or before.reason != one.reason
        return ANY if is_new and is_known else NOTHING

    def look(self, now: int) -> None:
        """Forget what does not hold any more, and work out what the rest comes to."""
        last: dict[Key, Unmade] = {}
        made: dict[Key, _ByJob] = {}  # by group; each is looked at once, whatever its Jobs say
        at = datetime.fromtimestamp(now, UTC)
        for one in sorted(self._of.values()):
            found = owner_of(one.job, self._cluster.jobsets)
            if found is None and is_recent(one, at):
                continue  # a JobSet may be told later than the events of its Jobs
            group = _group_of(one, *found) if found else None
            if found and group and group not in made:
                made[group] = self._made_of(group)
            if not found or not group or not _holds(one, found[0], made[group], at):
                del self._of[one.job]
            elif group in self._least:
                last[group] = one
        self.lacks = {
            group: Lack(str(one), _exist(made[group]), self._least[group])
            for group, one in last.items()
        }

    def _made_of(self, group: Key) -> _ByJob:
        found: dict[str, list[Made]] = {}
        for key in self._members.of(group):
            one = _made(self._cluster.pods[key])
            found.setdefault(one.job, []).append(one)
        return found


def _group_of(one: Unmade, jobset: JobSet, job: ReplicatedJob) -> Key | None:
    """Return the group whose pods are missing; None if it is none of ours."""
    suffix = job.template.spec.template.metadata.labels.get(GANG)
    if suffix is None:
        return None
    return Key(one.job.namespace, group_name(jobset.metadata.name, jobset.metadata.uid, suffix))


def _holds(one: Unmade, jobset: JobSet, made: _ByJob, now: datetime) -> bool:
    """Say whether it may still be why pods are missing."""
    return is_told_still(one, jobset, made.get(one.job.name, ()), now)


def _exist(made: _ByJob) -> int:
    return sum(one.counts for some in made.values() for one in some)


def _is_of(one: Unmade, event: Key) -> bool:
    return Key(one.job.namespace, one.event) == event


def _made(pod: Pod) -> Made:
    meta = pod.metadata
    counts = not meta.deletion_timestamp and pod.status.phase not in OVER[1:]
    return Made(meta.labels.get(JOB_NAME, ""), meta.creation_timestamp, counts)
