"""Which pods belong to which PodGroup, which of them count, and which changes concern it.

A pod belongs to the PodGroup that it names, if that has its SubGroup. In the PodGroup of a JobSet
only pods of Jobs count, and of those only the newest attempt; the others only occupy their nodes.
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import numpy as np

from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.podgroups.attributes import (
    controlling_trainjob,
    controlling_trainjob_key,
    will_run_again,
)
from scheduler.state.podgroups.missing_pods import expected_pods
from scheduler.state.podgroups.podgroup import (
    PodGroupRecord,
    RecordInputs,
    relocating_podsets,
    wait_ends_at,
)
from scheduler.state.podgroups.reserved_annotation import ReservedPodSet, read_relocations
from scheduler.state.pods.class_table import grown
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import PodTable
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK, GANG, JOBSET_NAME, RESERVED
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.policy.podgroups.names import podgroup_name

__all__ = [
    "PodGroupIndex",
    "ReverseIndex",
]

A = TypeVar("A")
B = TypeVar("B")


class ReverseIndex(Generic[A, B]):
    """From each of the former to any number of the latter."""

    def __init__(self) -> None:
        self._targets: Final[dict[A, tuple[B, ...]]] = {}
        self._sources: Final[dict[B, dict[A, None]]] = {}

    def put(self, source: A, targets: Iterable[B]) -> None:
        """Let one lead to these, and to nobody else."""
        for previous in self._targets.pop(source, ()):
            sources = self._sources[previous]
            del sources[source]
            if not sources:
                del self._sources[previous]
        to = tuple(dict.fromkeys(targets))
        if to:
            self._targets[source] = to
        for target in to:
            self._sources.setdefault(target, {})[source] = None

    def sources_of(self, target: B) -> tuple[A, ...]:
        """Return who leads here."""
        return tuple(self._sources.get(target, ()))


_INITIAL_ROWS: Final = 64  # rows of an empty table


class PodGroupIndex:
    """The groups that pods name, by key; arrays are [gang], by number."""

    def __init__(self, cluster: Cluster, pod_table: PodTable, options: StateOptions) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._scheduler_name: Final = options.scheduler_name
        self._classes_by_key: Final[dict[Key, dict[PodClass, None]]] = {}
        self.by_key: Final[dict[Key, PodGroupRecord]] = {}
        self._number_count = 0
        self._free: Final[list[int]] = []
        self._owners: Final[ReverseIndex[Key, str]] = ReverseIndex()
        self._jobsets: Final[ReverseIndex[Key, Key]] = ReverseIndex()
        self._trainjobs: Final[ReverseIndex[Key, Key]] = ReverseIndex()
        self._earlier_stages: Final[ReverseIndex[Key, Key]] = (
            ReverseIndex()
        )  # groups that it comes after
        self._relocation_ends: Final[
            dict[Key, tuple[list[float], int]]
        ] = {}  # of moves, and how many are past
        self._now = 0
        self._to_rebuild: dict[Key, None] = {}  # to be made anew
        self.changed: dict[Key, None] = {}  # to be counted anew; some are no more
        self.misplaced_rows: list[
            int
        ] = []  # slots of pods that lost their place in a group, or got one
        self.is_listed: Bools = np.zeros(_INITIAL_ROWS, dtype=np.bool_)
        self.is_suspended: Bools = np.zeros(_INITIAL_ROWS, dtype=np.bool_)

    def find(self, key: Key) -> PodGroupRecord | None:
        """Return a gang that has pods."""
        return self.by_key.get(key)

    def begin(self, trainjobs: Iterable[Key], now: int) -> None:
        """Take the time, and the names of TrainJobs of which something has changed."""
        self.changed, self._to_rebuild, self._now, self.misplaced_rows = {}, {}, now, []
        for trainjob in trainjobs:
            trainjob_keys = self._trainjobs.sources_of(trainjob)
            self.mark_changed(trainjob_keys)
            self._to_rebuild.update((key, None) for key in trainjob_keys if self._is_missing(key))
        for key, (ends, ended) in self._relocation_ends.items():
            if key in self.changed or sum(end <= now for end in ends) != ended:
                self._to_rebuild[key] = None

    def update(
        self, classes: Iterable[PodClass], groups: Iterable[Key], jobsets: Iterable[Key]
    ) -> None:
        """Take kin that were touched, and the names of what has changed."""
        for pod_class in classes:
            self._update_class(pod_class)
        self._to_rebuild.update((key, None) for key in groups if self._is_watched(key))
        for jobset in jobsets:
            self._to_rebuild.update(dict.fromkeys(self._jobsets.sources_of(jobset)))
        owners: dict[str, None] = {}
        for key in self._to_rebuild:
            owners.update(dict.fromkeys(self._rebuild(key)))
        for owner in owners:
            self._choose_newest(self._owners.sources_of(owner) if owner else ())
        for key in tuple(self.changed):  # what is known of one stage tells the next when to begin
            self.mark_changed(self._earlier_stages.sources_of(key))

    def mark_changed(self, keys: Iterable[Key]) -> None:
        """Let gangs be looked at again."""
        self.changed.update(dict.fromkeys(keys))

    def count(self, pod_counts: Ints) -> None:
        """Count those that have changed; *heads* are the pods of all kin, [kin, state]."""
        for key in self.changed:
            record = self.by_key.get(key)
            if record is not None:
                record.count(self._pod_table, pod_counts)
                self.is_listed[record.number] = record.is_active
                self.is_suspended[record.number] = record.is_suspended

    def _update_class(self, pod_class: PodClass) -> None:
        key = Key(pod_class.namespace, pod_class.podgroup_name)
        if not pod_class.podgroup_name or pod_class.spec.scheduler_name != self._scheduler_name:
            return
        self.changed[key] = None
        named = self._classes_by_key.setdefault(key, {})
        if bool(pod_class.pod_rows) == (pod_class in named):
            return
        self._to_rebuild[key] = None
        if pod_class.pod_rows:
            named[pod_class] = None
        else:
            del named[pod_class]
            if not named:
                del self._classes_by_key[key]

    def _rebuild(self, key: Key) -> tuple[str, ...]:
        """Make a gang anew, or give it up; return the owners of whom it was and is."""
        before = self.by_key.pop(key, None)
        named = self._classes_by_key.get(key, {})
        record = self._build(key, before, named)
        self._link(key, record)
        if before is not None:
            for pod_class, _ in before.expected.values():
                self._pod_table.class_table.stop_expecting(pod_class)
        self.changed[key] = None
        if record is None:
            if before is not None:
                self.is_listed[before.number] = False
                self._free.append(before.number)
            return (before.jobset_uid,) if before else ()
        return (record.jobset_uid, before.jobset_uid) if before else (record.jobset_uid,)

    def _build(
        self, key: Key, before: PodGroupRecord | None, named: dict[PodClass, None]
    ) -> PodGroupRecord | None:
        classes = self._pod_table.class_table
        group = self._cluster.pod_groups.get(key)
        origin = self._inputs(group) if group else self._inputs_without_group(key, named)
        is_known = origin.will_run_again is not None  # whether its TrainJob goes on
        if not named and not (group and is_known and relocating_podsets(group, self._now)):
            return None
        number = self._next_number() if before is None else before.number
        record = PodGroupRecord(number, key, group, origin)
        record.assign_podsets(named)
        for pod_class in record.refusals:
            (
                pod_class.podgroup_key,
                classes.record_number[pod_class.number],
                classes.is_counted[pod_class.number],
            ) = (
                key,
                NONE,
                False,
            )
            self._mark_misplaced(pod_class, is_misplaced=True)
        for pod_class in record.pod_classes:
            pod_class.podgroup_key, classes.record_number[pod_class.number] = key, number
            self._mark_misplaced(pod_class, is_misplaced=False)
            classes.is_counted[pod_class.number] = not record.jobset_uid
        record.expected = expected_pods(record, classes, self._scheduler_name)
        self.by_key[key] = record
        return record

    def _mark_misplaced(self, pod_class: PodClass, *, is_misplaced: bool) -> None:
        classes = self._pod_table.class_table
        if classes.is_misplaced[pod_class.number] != is_misplaced:
            classes.is_misplaced[pod_class.number] = is_misplaced
            self.misplaced_rows += pod_class.pod_rows

    def _link(self, key: Key, record: PodGroupRecord | None) -> None:
        """Note whose changes concern a gang, or one that may come back."""
        group = self._cluster.pod_groups.get(key)
        ends = [wait_ends_at(reserved) for reserved in self._relocations(key).values()]
        if ends:
            self._relocation_ends[key] = ends, sum(end <= self._now for end in ends)
        else:
            self._relocation_ends.pop(key, None)
        is_watched = group is not None and (record is not None or ends)
        owners = group.metadata.owner_references if group and is_watched else ()
        self._owners.put(key, (record.jobset_uid,) if record and record.jobset_uid else ())
        jobsets = [Key(key.namespace, owner.name) for owner in owners]
        trainjob = controlling_trainjob_key(self._jobset_of(group)) if is_watched else None
        trainjobs = [trainjob] if trainjob else []
        if group is None:
            named = self._classes_by_key.get(key, ())
            jobsets = [
                Key(key.namespace, pod_class.labels.get(JOBSET_NAME, "")) for pod_class in named
            ]
            trainjobs = jobsets  # they are called alike
        self._jobsets.put(key, jobsets)
        self._trainjobs.put(key, trainjobs)
        after = record.anticipated.after if record else ()
        self._earlier_stages.put(key, (Key(key.namespace, one.group) for one in after))

    def _is_missing(self, key: Key) -> bool:
        """Say whether pods name a group that does not exist."""
        return key in self._classes_by_key and key not in self._cluster.pod_groups

    def _is_watched(self, key: Key) -> bool:
        """Say whether pods name a group, or some of it is, or was, about to come back."""
        return (
            key in self._classes_by_key
            or key in self._relocation_ends
            or bool(self._relocations(key))
        )

    def _relocations(self, key: Key) -> dict[str, ReservedPodSet]:
        """Return the leaves of a group that are moved, past or not."""
        group = self._cluster.pod_groups.get(key)
        return read_relocations(group.metadata.annotations.get(RESERVED, "")) if group else {}

    def _inputs(self, group: PodGroup | None) -> RecordInputs:
        jobset = self._jobset_of(group)
        job = controlling_trainjob(jobset, self._cluster.trainjobs)
        is_over = jobset is not None and bool(jobset.status.terminal_state)
        will_run = will_run_again(job, group) and not is_over if job and group else None
        return RecordInputs(self._now, jobset, will_run)

    def _inputs_without_group(self, key: Key, named: Iterable[PodClass]) -> RecordInputs:
        """Return what a gang without a group is made from: it may be about to be made again."""
        names = {pod_class.labels.get(JOBSET_NAME, "") for pod_class in named}
        found = (self._cluster.jobsets.get(Key(key.namespace, name)) for name in names)
        is_pending_creation = any(
            key.name in _podgroup_names(it) for it in found if it and self._gets_podgroups(it)
        )
        return RecordInputs(self._now, is_pending_creation=is_pending_creation)

    def _gets_podgroups(self, jobset: JobSet) -> bool:
        """Say whether the podgrouper makes the groups of a JobSet, if any is missing."""
        meta, spec = jobset.metadata, jobset.spec
        if spec.suspend or meta.deletion_timestamp or jobset.status.terminal_state:
            return False
        is_admitted = meta.annotations.get(ADMITTED) == ADMITTED_MARK
        return is_admitted and controlling_trainjob_key(jobset) in self._cluster.trainjobs

    def _next_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._number_count += 1
        if self._number_count == len(self.is_listed):  # the last row is of no gang
            size = 2 * self._number_count
            self.is_listed = grown(self.is_listed, size)
            self.is_suspended = grown(self.is_suspended, size)
        return self._number_count - 1

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
        classes = [
            (pod_class, *pod_class.attempt)
            for key in keys
            for pod_class in self.by_key[key].pod_classes
        ]
        newest = max((attempt[0] for _, _, attempt in classes), default=0)
        newest_of_job: dict[str, tuple[int, int]] = {}
        for _, job, attempt in classes:
            newest_of_job[job] = max(newest_of_job.get(job, (newest, 0)), attempt)
        is_counted = self._pod_table.class_table.is_counted
        for pod_class, job, attempt in classes:
            if is_counted[pod_class.number] != (attempt == newest_of_job[job]):
                is_counted[pod_class.number] = attempt == newest_of_job[job]
                if pod_class.podgroup_key is not None:
                    self.changed[pod_class.podgroup_key] = None


def _podgroup_names(jobset: JobSet) -> set[str]:
    """Return what the groups of a JobSet are called."""
    meta = jobset.metadata
    labels = (job.template.spec.template.metadata.labels for job in jobset.spec.replicated_jobs)
    suffixes = {it[GANG] for it in labels if GANG in it}
    return {podgroup_name(meta.name, meta.uid, suffix) for suffix in suffixes}
