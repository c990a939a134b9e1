"""Which pods belong to which PodGroup, which of them count, and which changes concern it.

A pod belongs to the PodGroup that it names, if that has its SubGroup. In a workload's PodGroup
only pods of Jobs count, and of these only the newest attempt; other pods only occupy their nodes.
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import numpy as np

from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.podgroups.attributes import (
    controlling_suspendable,
    owning_workload,
    will_run_again,
)
from scheduler.state.podgroups.missing_pods import expected_pods
from scheduler.state.podgroups.podgroup import (
    PodGroupRecord,
    RecordInputs,
    ReservedPodSet,
    read_relocations,
    relocating_podsets,
    wait_ends_at,
)
from scheduler.state.pods.class_table import grown
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import PodTable
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GANG, RESERVED
from trainer_kai.policy.podgroups.grouping import newest_attempts, podgroup_name
from trainer_kai.policy.workloads.kinds import kind_of_pod, suspendable_keys
from trainer_kai.policy.workloads.workload import ObjectKey, Workload

A = TypeVar("A")
B = TypeVar("B")

_INITIAL_ROWS: Final = 64  # rows of an empty table


class ReverseIndex(Generic[A, B]):
    """Maps each source to its targets, and each target back to its sources."""

    def __init__(self) -> None:
        self._targets: Final[dict[A, tuple[B, ...]]] = {}
        self._sources: Final[dict[B, dict[A, None]]] = {}

    def put(self, source: A, targets: Iterable[B]) -> None:
        for previous in self._targets.pop(source, ()):
            sources = self._sources[previous]
            del sources[source]
            if not sources:
                del self._sources[previous]
        unique = tuple(dict.fromkeys(targets))
        if unique:
            self._targets[source] = unique
        for target in unique:
            self._sources.setdefault(target, {})[source] = None

    def sources_of(self, target: B) -> tuple[A, ...]:
        return tuple(self._sources.get(target, ()))


class PodGroupIndex:
    """The PodGroups that pods name, by key; arrays are [record number]."""

    def __init__(self, cluster: Cluster, pod_table: PodTable, options: StateOptions) -> None:
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._scheduler_name: Final = options.scheduler_name
        self._classes_by_key: Final[dict[Key, dict[PodClass, None]]] = {}
        self.by_key: Final[dict[Key, PodGroupRecord]] = {}
        self._number_count = 0
        self._free: Final[list[int]] = []
        # From the key of a PodGroup: to the objects that affect it when they change.
        self._workload_uids: Final[ReverseIndex[Key, str]] = ReverseIndex()
        self._workloads: Final[ReverseIndex[Key, ObjectKey]] = ReverseIndex()
        self._suspendables: Final[ReverseIndex[Key, ObjectKey]] = ReverseIndex()
        self._earlier_stages: Final[ReverseIndex[Key, Key]] = ReverseIndex()
        # When its reservations for relocated pods end, and how many have ended.
        self._relocation_ends: Final[dict[Key, tuple[list[float], int]]] = {}
        self._now = 0
        self._to_rebuild: dict[Key, None] = {}
        self.changed: dict[Key, None] = {}  # to be counted again; some are removed by now
        # Pod rows of pods that have lost or got a PodSet in their PodGroup.
        self.misplaced_rows: list[int] = []
        self.is_listed: Bools = np.zeros(_INITIAL_ROWS, dtype=np.bool_)
        self.is_suspended: Bools = np.zeros(_INITIAL_ROWS, dtype=np.bool_)

    def find(self, key: Key) -> PodGroupRecord | None:
        return self.by_key.get(key)

    def begin(self, suspendables: Iterable[ObjectKey], now: int) -> None:
        """Begin an update with the time, and what suspends workloads and has changed."""
        self.changed, self._to_rebuild, self._now, self.misplaced_rows = {}, {}, now, []
        for suspendable in suspendables:
            keys = self._suspendables.sources_of(suspendable)
            self.mark_changed(keys)
            self._to_rebuild.update((key, None) for key in keys if self._is_missing(key))
        for key, (ends, ended) in self._relocation_ends.items():
            if key in self.changed or sum(end <= now for end in ends) != ended:
                self._to_rebuild[key] = None

    def update(
        self, classes: Iterable[PodClass], groups: Iterable[Key], workloads: Iterable[ObjectKey]
    ) -> None:
        """Apply changes: classes with changed pods, keys of changed PodGroups and workloads."""
        for pod_class in classes:
            self._update_class(pod_class)
        self._to_rebuild.update((key, None) for key in groups if self._is_watched(key))
        for workload in workloads:
            self._to_rebuild.update(dict.fromkeys(self._workloads.sources_of(workload)))
        workload_uids: dict[str, None] = {}
        for key in self._to_rebuild:
            workload_uids.update(dict.fromkeys(self._rebuild(key)))
        for uid in workload_uids:
            self._choose_newest(self._workload_uids.sources_of(uid) if uid else ())
        for key in tuple(self.changed):  # a change of one stage may let the next one start
            self.mark_changed(self._earlier_stages.sources_of(key))

    def mark_changed(self, keys: Iterable[Key]) -> None:
        self.changed.update(dict.fromkeys(keys))

    def count(self, pod_counts: Ints) -> None:
        """Count the changed PodGroups; *pod_counts* are of all classes, [class, state]."""
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
        classes = self._classes_by_key.setdefault(key, {})
        if bool(pod_class.pod_rows) == (pod_class in classes):
            return
        self._to_rebuild[key] = None
        if pod_class.pod_rows:
            classes[pod_class] = None
        else:
            del classes[pod_class]
            if not classes:
                del self._classes_by_key[key]

    def _rebuild(self, key: Key) -> tuple[str, ...]:
        """Build a record again, or remove it; return the uids of its workload now and before."""
        before = self.by_key.pop(key, None)
        record = self._build(key, before)
        self._link(key, record)
        if before is not None:
            for pod_class, _ in before.expected.values():
                self._pod_table.class_table.stop_expecting(pod_class)
        self.changed[key] = None
        if record is None:
            if before is not None:
                self.is_listed[before.number] = False
                self._free.append(before.number)
            return (before.workload_uid,) if before else ()
        uid = record.workload_uid
        return (uid, before.workload_uid) if before else (uid,)

    def _build(self, key: Key, before: PodGroupRecord | None) -> PodGroupRecord | None:
        class_table, classes = self._pod_table.class_table, self._classes_by_key.get(key, {})
        group = self._cluster.pod_groups.get(key)
        inputs = self._inputs(group) if group else self._inputs_without_group(key)
        is_known = inputs.will_run_again is not None  # whether its workload runs again
        if not classes and not (group and is_known and relocating_podsets(group, self._now)):
            return None
        number = self._next_number() if before is None else before.number
        record = PodGroupRecord(number, key, group, inputs)
        record.assign_podsets(classes)
        for pod_class in record.refusals:
            pod_class.podgroup_key, class_table.record_number[pod_class.number] = key, NONE
            class_table.is_counted[pod_class.number] = False
            self._mark_misplaced(pod_class, is_misplaced=True)
        for pod_class in record.pod_classes:
            pod_class.podgroup_key, class_table.record_number[pod_class.number] = key, number
            self._mark_misplaced(pod_class, is_misplaced=False)
            class_table.is_counted[pod_class.number] = not record.workload_uid
        record.expected = expected_pods(record, class_table, self._scheduler_name)
        self.by_key[key] = record
        return record

    def _mark_misplaced(self, pod_class: PodClass, *, is_misplaced: bool) -> None:
        class_table = self._pod_table.class_table
        if class_table.is_misplaced[pod_class.number] != is_misplaced:
            class_table.is_misplaced[pod_class.number] = is_misplaced
            self.misplaced_rows += pod_class.pod_rows

    def _link(self, key: Key, record: PodGroupRecord | None) -> None:
        """Store the objects that affect a PodGroup when they change, or one that may come back."""
        group = self._cluster.pod_groups.get(key)
        ends = [wait_ends_at(reserved) for reserved in self._relocations(key).values()]
        if ends:
            self._relocation_ends[key] = ends, sum(end <= self._now for end in ends)
        else:
            self._relocation_ends.pop(key, None)
        is_watched = group is not None and (record is not None or ends)
        uids = (record.workload_uid,) if record and record.workload_uid else ()
        self._workload_uids.put(key, uids)
        workloads = self._workload_keys(key, group if is_watched else None)
        self._workloads.put(key, workloads)
        if group is None:
            self._suspendables.put(key, (it for one in workloads for it in suspendable_keys(one)))
        else:
            workload = owning_workload(group, self._cluster.workloads) if is_watched else None
            suspendable = workload.suspendable_key if workload else None
            self._suspendables.put(key, (suspendable,) if suspendable else ())
        after = record.anticipated.after if record else ()
        self._earlier_stages.put(key, (Key(key.namespace, one.group) for one in after))

    def _is_missing(self, key: Key) -> bool:
        return key in self._classes_by_key and key not in self._cluster.pod_groups

    def _is_watched(self, key: Key) -> bool:
        """Say whether pods name a PodGroup, or it has or had reservations for relocated pods."""
        is_named = key in self._classes_by_key
        return is_named or key in self._relocation_ends or bool(self._relocations(key))

    def _relocations(self, key: Key) -> dict[str, ReservedPodSet]:
        group = self._cluster.pod_groups.get(key)
        return read_relocations(group.metadata.annotations.get(RESERVED, "")) if group else {}

    def _workload_keys(self, key: Key, group: PodGroup | None) -> list[ObjectKey]:
        """Return what may be the workload of a PodGroup; if it does not exist, its pods name it."""
        if group is not None:
            owners = group.metadata.owner_references
            return [ObjectKey(it.kind, key.namespace, it.name) for it in owners]
        if key in self._cluster.pod_groups:
            return []
        every_labels = (pod_class.labels for pod_class in self._classes_by_key.get(key, ()))
        return [
            ObjectKey(kind.resource.kind, key.namespace, labels[kind.name_label])
            for labels in every_labels
            if (kind := kind_of_pod(labels)) is not None
        ]

    def _inputs(self, group: PodGroup | None) -> RecordInputs:
        workload = owning_workload(group, self._cluster.workloads)
        found = controlling_suspendable(workload, self._cluster.owners)
        is_finished = workload is not None and workload.is_finished
        will_run = will_run_again(found, group) and not is_finished if found and group else None
        return RecordInputs(self._now, workload, will_run)

    def _inputs_without_group(self, key: Key) -> RecordInputs:
        """Return the inputs for pods of a PodGroup that does not exist: it may be created soon."""
        workloads = map(self._cluster.workloads.get, self._workload_keys(key, None))
        is_pending_creation = any(
            key.name in _podgroup_names(it) for it in workloads if it and self._gets_podgroups(it)
        )
        return RecordInputs(self._now, is_pending_creation=is_pending_creation)

    def _gets_podgroups(self, workload: Workload) -> bool:
        """Say whether the podgrouper creates the PodGroups of a workload that are missing."""
        if workload.is_suspended or workload.is_over or not workload.is_admitted_here:
            return False
        return not workload.needs_owner or workload.owner_key in self._cluster.owners

    def _next_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._number_count += 1
        if self._number_count == len(self.is_listed):  # the last row is of no PodGroup
            size = 2 * self._number_count
            self.is_listed = grown(self.is_listed, size)
            self.is_suspended = grown(self.is_suspended, size)
        return self._number_count - 1

    def _choose_newest(self, keys: Iterable[Key]) -> None:
        """Count only the newest attempt of a workload and then of each of its Jobs."""
        classes = [
            (pod_class, record.attempt_of(pod_class))
            for record in map(self.by_key.__getitem__, keys)
            for pod_class in record.pod_classes
        ]
        newest_of = newest_attempts([attempt for _, attempt in classes])
        is_counted = self._pod_table.class_table.is_counted
        for pod_class, (podset, attempt) in classes:
            if is_counted[pod_class.number] != (attempt == newest_of[podset]):
                is_counted[pod_class.number] = attempt == newest_of[podset]
                if pod_class.podgroup_key is not None:
                    self.changed[pod_class.podgroup_key] = None


def _podgroup_names(workload: Workload) -> set[str]:
    meta = workload.metadata
    labels = (job.template.spec.template.metadata.labels for job in workload.spec.replicated_jobs)
    suffixes = {it[GANG] for it in labels if GANG in it}
    return {podgroup_name(meta.name, meta.uid, suffix) for suffix in suffixes}
