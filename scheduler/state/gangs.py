"""Which pods belong to which group, and which of them count.

A pod belongs to the group that it names, if that has its sub-group. Into the group of a JobSet only
pods of Jobs count, and of those only the newest attempt; the others just occupy their nodes.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from scheduler.core.model import NONE, Bools, Ints
from scheduler.state.cluster import Cluster
from scheduler.state.foreseen import foresee
from scheduler.state.gang import Gang, Origin, ends_at, moved_leaves
from scheduler.state.kin import Kin
from scheduler.state.kins import grown
from scheduler.state.links import Links
from scheduler.state.reserved import Held, coming_back
from scheduler.state.roll import Roll
from scheduler.state.stays import runs_again, trainjob_key, trainjob_of
from scheduler.state.terms import Terms
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK, GANG, JOBSET_NAME, RESERVED
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.names import group_name

__all__ = ["Gangs"]

_FIRST: Final = 64  # rows of an empty table


class Gangs:
    """The groups that pods name, by key; arrays are [gang], by number."""

    def __init__(self, cluster: Cluster, roll: Roll, terms: Terms) -> None:
        self._cluster: Final = cluster
        self._roll: Final = roll
        self._scheduler_name: Final = terms.scheduler_name
        self._named: Final[dict[Key, dict[Kin, None]]] = {}
        self.by_key: Final[dict[Key, Gang]] = {}
        self._numbers = 0
        self._free: Final[list[int]] = []
        self._owners: Final[Links[Key, str]] = Links()
        self._jobsets: Final[Links[Key, Key]] = Links()
        self._trainjobs: Final[Links[Key, Key]] = Links()
        self._before: Final[Links[Key, Key]] = Links()  # groups that it comes after
        self._ends: Final[
            dict[Key, tuple[list[float], int]]
        ] = {}  # of moves, and how many are past
        self._now = 0
        self._stale: dict[Key, None] = {}  # to be made anew
        self.changed: dict[Key, None] = {}  # to be counted anew; some are no more
        self.strayed: list[int] = []  # slots of pods that lost their place in a group, or got one
        self.is_listed: Bools = np.zeros(_FIRST, dtype=np.bool_)
        self.is_suspended: Bools = np.zeros(_FIRST, dtype=np.bool_)

    def find(self, key: Key) -> Gang | None:
        """Return a gang that has pods."""
        return self.by_key.get(key)

    def begin(self, trainjobs: Iterable[Key], now: int) -> None:
        """Take the time, and the names of TrainJobs of which something has changed."""
        self.changed, self._stale, self._now, self.strayed = {}, {}, now, []
        for trainjob in trainjobs:
            of_trainjob = self._trainjobs.of(trainjob)
            self.touch(of_trainjob)
            self._stale.update((key, None) for key in of_trainjob if self._is_missing(key))
        for key, (ends, past) in self._ends.items():
            if key in self.changed or sum(end <= now for end in ends) != past:
                self._stale[key] = None

    def hear(self, kins: Iterable[Kin], groups: Iterable[Key], jobsets: Iterable[Key]) -> None:
        """Take kin that were touched, and the names of what has changed."""
        for kin in kins:
            self._hear(kin)
        self._stale.update((key, None) for key in groups if self._is_watched(key))
        for jobset in jobsets:
            self._stale.update(dict.fromkeys(self._jobsets.of(jobset)))
        owners: dict[str, None] = {}
        for key in self._stale:
            owners.update(dict.fromkeys(self._make(key)))
        for owner in owners:
            self._choose_newest(self._owners.of(owner) if owner else ())
        for key in tuple(self.changed):  # what is known of one stage tells the next when to begin
            self.touch(self._before.of(key))

    def touch(self, keys: Iterable[Key]) -> None:
        """Let gangs be looked at again."""
        self.changed.update(dict.fromkeys(keys))

    def count(self, heads: Ints) -> None:
        """Count those that have changed; *heads* are the pods of all kin, [kin, state]."""
        for key in self.changed:
            gang = self.by_key.get(key)
            if gang is not None:
                gang.count(self._roll, heads)
                self.is_listed[gang.number] = gang.is_listed
                self.is_suspended[gang.number] = gang.is_suspended

    def _hear(self, kin: Kin) -> None:
        key = Key(kin.namespace, kin.group)
        if not kin.group or kin.spec.scheduler_name != self._scheduler_name:
            return
        self.changed[key] = None
        named = self._named.setdefault(key, {})
        if bool(kin.slots) == (kin in named):
            return
        self._stale[key] = None
        if kin.slots:
            named[kin] = None
        else:
            del named[kin]
            if not named:
                del self._named[key]

    def _make(self, key: Key) -> tuple[str, ...]:
        """Make a gang anew, or give it up; return the owners of whom it was and is."""
        before = self.by_key.pop(key, None)
        named = self._named.get(key, {})
        gang = self._founded(key, before, named)
        self._link(key, gang)
        if before is not None:
            for kin, _ in before.later.values():
                self._roll.kins.let_go(kin)
        self.changed[key] = None
        if gang is None:
            if before is not None:
                self.is_listed[before.number] = False
                self._free.append(before.number)
            return (before.owner,) if before else ()
        return (gang.owner, before.owner) if before else (gang.owner,)

    def _founded(self, key: Key, before: Gang | None, named: dict[Kin, None]) -> Gang | None:
        kins = self._roll.kins
        group = self._cluster.pod_groups.get(key)
        origin = self._origin(group) if group else self._origin_of_none(key, named)
        is_told = origin.runs_again is not None  # whether its TrainJob goes on
        if not named and not (group and is_told and moved_leaves(group, self._now)):
            return None
        number = self._number() if before is None else before.number
        gang = Gang(number, key, group, origin)
        gang.seat(named)
        for kin in gang.refused:
            kin.gang, kins.gang[kin.number], kins.counts[kin.number] = key, NONE, False
            self._stray(kin, is_stray=True)
        for kin in gang.kins:
            kin.gang, kins.gang[kin.number] = key, number
            self._stray(kin, is_stray=False)
            kins.counts[kin.number] = not gang.owner
        gang.later = foresee(gang, kins, self._scheduler_name)
        self.by_key[key] = gang
        return gang

    def _stray(self, kin: Kin, *, is_stray: bool) -> None:
        kins = self._roll.kins
        if kins.is_stray[kin.number] != is_stray:
            kins.is_stray[kin.number] = is_stray
            self.strayed += kin.slots

    def _link(self, key: Key, gang: Gang | None) -> None:
        """Note whose changes concern a gang, or one that may come back."""
        group = self._cluster.pod_groups.get(key)
        ends = [ends_at(held) for held in self._moves(key).values()]
        if ends:
            self._ends[key] = ends, sum(end <= self._now for end in ends)
        else:
            self._ends.pop(key, None)
        is_watched = group is not None and (gang is not None or ends)
        owners = group.metadata.owner_references if group and is_watched else ()
        self._owners.put(key, (gang.owner,) if gang and gang.owner else ())
        jobsets = [Key(key.namespace, owner.name) for owner in owners]
        trainjob = trainjob_key(self._jobset_of(group)) if is_watched else None
        trainjobs = [trainjob] if trainjob else []
        if group is None:
            named = self._named.get(key, ())
            jobsets = [Key(key.namespace, kin.labels.get(JOBSET_NAME, "")) for kin in named]
            trainjobs = jobsets  # they are called alike
        self._jobsets.put(key, jobsets)
        self._trainjobs.put(key, trainjobs)
        after = gang.said.after if gang else ()
        self._before.put(key, (Key(key.namespace, one.group) for one in after))

    def _is_missing(self, key: Key) -> bool:
        """Say whether pods name a group that does not exist."""
        return key in self._named and key not in self._cluster.pod_groups

    def _is_watched(self, key: Key) -> bool:
        """Say whether pods name a group, or some of it is, or was, about to come back."""
        return key in self._named or key in self._ends or bool(self._moves(key))

    def _moves(self, key: Key) -> dict[str, Held]:
        """Return the leaves of a group that are moved, past or not."""
        group = self._cluster.pod_groups.get(key)
        return coming_back(group.metadata.annotations.get(RESERVED, "")) if group else {}

    def _origin(self, group: PodGroup | None) -> Origin:
        jobset = self._jobset_of(group)
        job = trainjob_of(jobset, self._cluster.trainjobs)
        is_over = jobset is not None and bool(jobset.status.terminal_state)
        goes_on = runs_again(job, group) and not is_over if job and group else None
        return Origin(self._now, jobset, goes_on)

    def _origin_of_none(self, key: Key, named: Iterable[Kin]) -> Origin:
        """Return what a gang without a group is made from: it may be about to be made again."""
        names = {kin.labels.get(JOBSET_NAME, "") for kin in named}
        found = (self._cluster.jobsets.get(Key(key.namespace, name)) for name in names)
        is_due = any(key.name in _names_of(it) for it in found if it and self._has_groups(it))
        return Origin(self._now, is_due=is_due)

    def _has_groups(self, jobset: JobSet) -> bool:
        """Say whether the podgrouper makes the groups of a JobSet, if any is missing."""
        meta, spec = jobset.metadata, jobset.spec
        if spec.suspend or meta.deletion_timestamp or jobset.status.terminal_state:
            return False
        is_admitted = meta.annotations.get(ADMITTED) == ADMITTED_MARK
        return is_admitted and trainjob_key(jobset) in self._cluster.trainjobs

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        self._numbers += 1
        if self._numbers == len(self.is_listed):  # the last row is of no gang
            size = 2 * self._numbers
            self.is_listed = grown(self.is_listed, size)
            self.is_suspended = grown(self.is_suspended, size)
        return self._numbers - 1

    def _jobset_of(self, group: PodGroup | None) -> JobSet | None:
        if group is None:
            return None
        for owner in group.metadata.owner_references:
            jobset = self._cluster.jobsets.get(Key(group.metadata.namespace, owner.name))
            if jobset is not None and jobset.metadata.uid == owner.uid:
                return jobset
        return None

    def _choose_newest(self, keys: Iterable[Key]) -> None:
        """Let only the newest attempt count, of a JobSet and then of each of its Jobs."""
        kins = [(kin, *kin.attempt) for key in keys for kin in self.by_key[key].kins]
        newest = max((attempt[0] for _, _, attempt in kins), default=0)
        of_job: dict[str, tuple[int, int]] = {}
        for _, job, attempt in kins:
            of_job[job] = max(of_job.get(job, (newest, 0)), attempt)
        counts = self._roll.kins.counts
        for kin, job, attempt in kins:
            if counts[kin.number] != (attempt == of_job[job]):
                counts[kin.number] = attempt == of_job[job]
                if kin.gang is not None:
                    self.changed[kin.gang] = None


def _names_of(jobset: JobSet) -> set[str]:
    """Return what the groups of a JobSet are called."""
    meta = jobset.metadata
    labels = (job.template.spec.template.metadata.labels for job in jobset.spec.replicated_jobs)
    suffixes = {it[GANG] for it in labels if GANG in it}
    return {group_name(meta.name, meta.uid, suffix) for suffix in suffixes}
