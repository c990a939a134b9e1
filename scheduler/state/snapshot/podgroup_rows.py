"""The rows of the snapshot for PodGroups and for their pods."""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.podgroup import (
    Departure,
    PodGroupInfo,
    PodSet,
    ReservedPlace,
    SubGroupTree,
)
from scheduler.core.model.rejections import PreFilterFailure
from scheduler.core.model.resources import NONE, held_shares
from scheduler.core.model.snapshot import PodState, SnapshotPods
from scheduler.state.constraints.domains import with_domains
from scheduler.state.inputs import StateOptions, epoch_s
from scheduler.state.podgroups.attributes import (
    PodGroupAttributes,
    is_partly_succeeded,
    preemption_delay_until,
    running_since,
    scheduled_at,
    stale_at,
)
from scheduler.state.podgroups.departures import departure_of, leaving_pods
from scheduler.state.podgroups.podgroup import (
    DEFAULT_PODSET,
    MakePodSet,
    PodGroupRecord,
    podgroup_tree,
)
from scheduler.state.podgroups.reservations import PodSetReservation
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import (
    DONE,
    GATED,
    PENDING,
    RELEASING,
    RUNNING,
    STATES,
    STUCK_RELEASING,
    SUCCEEDED,
    PodTable,
)
from scheduler.state.snapshot.prefilter import BuildContext
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import PREEMPTION_DELAY
from trainer_kai.policy.podgroups.grouping import workload_name

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATES: Final = {
    PENDING: PodState.PENDING,
    GATED: PodState.GATED,
    RUNNING: PodState.RUNNING,
    RELEASING: PodState.RELEASING,
    STUCK_RELEASING: PodState.STUCK_RELEASING,
    DONE: PodState.DONE,
    SUCCEEDED: PodState.DONE,
}
_MAX_RELOCATED_PODSETS: Final = 16  # of a PodGroup that is relocated
_FEW_CHANGES: Final = 32  # changes that are cheaper one by one than in one sort
_Age: TypeAlias = tuple[int, str, Key, int]  # a standalone pod may have the name of a PodGroup
_PodGroupOrPod: TypeAlias = Key | int  # a PodGroup, or the row of a standalone pod


class _Entry:
    __slots__ = ("age", "number", "pod_row", "podgroup")

    def __init__(self, age: _Age, podgroup: PodGroupInfo, number: int, pod_row: int) -> None:
        self.age: Final = age
        self.podgroup = podgroup
        self.number: Final = number  # of its record, or NONE
        self.pod_row: Final = pod_row  # of a standalone pod, or NONE


class PodGroupTable:
    """The PodGroups, the oldest first; each is built again only when its inputs have changed."""

    def __init__(self, options: StateOptions) -> None:
        self._options: Final = options
        self._entries: Final[dict[_PodGroupOrPod, _Entry]] = {}
        self._sorted: list[_Entry] = []
        self._removed: Final[list[_Entry]] = []
        self._new: Final[list[_Entry]] = []
        self._departing: Final[set[_PodGroupOrPod]] = set()

    def known_rows(self, pod_rows: NDArray[np.int64]) -> list[int]:
        return [pod_row for pod_row in pod_rows.tolist() if pod_row in self._entries]

    def departing(self) -> tuple[int, ...]:
        """Return the rows of the PodGroups with a departure: mostly none."""
        rows = enumerate(self._sorted) if self._departing else ()
        return tuple([row for row, it in rows if it.podgroup.departure is not None])

    def remove(self, podgroup_or_pod: _PodGroupOrPod) -> None:
        self._departing.discard(podgroup_or_pod)
        entry = self._entries.pop(podgroup_or_pod, None)
        if entry is not None:
            self._removed.append(entry)

    def read_record(
        self,
        context: BuildContext,
        record: PodGroupRecord,
        attributes: PodGroupAttributes,
        prefilter_failure: PreFilterFailure | None,
        elastic_failure: PreFilterFailure | None,
    ) -> PodGroupInfo | None:
        """Build a PodGroup; *elastic_failure* is about its pods above the minimum only."""
        if not record.is_active:
            self.remove(record.key)
            return None
        domains = context.constraints_of(record).domains

        def make_podset(name: str, minimum: int) -> PodSet:
            return _podset(context, record, name, minimum, has_domains=bool(domains))

        group = record.group
        delay = group.spec.preemption_delay if group else ""
        podgroup = PodGroupInfo(
            name=workload_name(record.key),
            queue=_queue_row(context, attributes),
            priority=attributes.priority,
            is_preemptible=attributes.is_preemptible,
            tree=with_domains(_tree(group if record.is_valid else None, make_podset), domains),
            prefilter_failure=prefilter_failure,
            elastic_failure=elastic_failure,
            has_running=record.has_started and (record.is_returning or not record.is_suspended),
            workload=record.workload_uid,
            non_evictable_reason=context.evictability.non_evictable_reason(record),
            is_relocating=record.is_relocating,
            is_partly_succeeded=is_partly_succeeded(record),
            stale_at=stale_at(record, self._options, context.stale_since),
            running_since=running_since(record, context.pod_table),
            ends_at=context.evictability.ends_at(record),
            checkpoint_at=context.evictability.checkpoint_at(record),
            preemption_delay_until=preemption_delay_until(group.metadata, delay) if group else 0,
            preemption_delay=delay,
            may_relocate=self._may_relocate(context, record, attributes.queue),
            can_reserve=group is not None,
            departure=self._departure(context, record, attributes),
        )
        age = _record_age(record, context.pod_table)
        self._put(record.key, _Entry((*age, record.key, 0), podgroup, record.number, NONE))
        return podgroup

    def read_standalone_pod(
        self, context: BuildContext, pod_row: int, prefilter_failure: PreFilterFailure | None
    ) -> None:
        pod_table, state = context.pod_table, int(context.pod_table.state[pod_row])
        meta, key = pod_table.pod(pod_row).metadata, pod_table.keys[pod_row]
        pod_class = pod_table.class_table[int(pod_table.class_number[pod_row])]
        is_misplaced = bool(pod_table.class_table.is_misplaced[pod_class.number])
        resolver = context.attribute_resolver
        attributes = (resolver.of_misplaced if is_misplaced else resolver.of_standalone)(pod_class)
        podgroup_key = Key(key.namespace, f"pg-{key.name}-{meta.uid}")
        pending = (pod_row,) if state == PENDING else ()
        delay = meta.annotations.get(PREEMPTION_DELAY, "")  # not part of the pod class
        podset = PodSet(
            DEFAULT_PODSET, 1, pending, running=int(state == RUNNING), gated=int(state == GATED)
        )
        podgroup = PodGroupInfo(
            name=workload_name(podgroup_key),
            queue=_queue_row(context, attributes),
            priority=attributes.priority,
            is_preemptible=attributes.is_preemptible,
            tree=podset,
            prefilter_failure=prefilter_failure,
            has_running=state == RUNNING,
            running_since=scheduled_at(pod_table.pod(pod_row)) if state == RUNNING else 0,
            preemption_delay_until=preemption_delay_until(meta, delay),
            preemption_delay=delay,
            may_relocate=not _is_never_placed(context, pod_class),
            can_reserve=False,  # there is no PodGroup to annotate
        )
        self._put(pod_row, _Entry((*_age(meta), podgroup_key, 1), podgroup, NONE, pod_row))

    def _may_relocate(self, context: BuildContext, record: PodGroupRecord, queue: str) -> bool:
        """Say whether a PodGroup may be relocated; live its queue must allow it.

        Its pods are placed again elsewhere, so they must request nothing that is never placed.
        """
        if any(_is_never_placed(context, pod_class) for pod_class in record.pod_classes):
            return False
        consolidation = context.queues.allows_consolidation(queue)
        if self._options.relocates_by_default:
            return consolidation is not False
        is_small = len(record.min_members) <= _MAX_RELOCATED_PODSETS  # each is written down
        return consolidation is True and is_small and context.evictability.can_be_suspended(record)

    def _departure(
        self, context: BuildContext, record: PodGroupRecord, attributes: PodGroupAttributes
    ) -> Departure | None:
        """Return why pods of a PodGroup leave; None also if it is to stay with them."""
        if self._options.keeps_non_preemptible and not attributes.is_preemptible:
            return None
        return departure_of(record, context.pod_table, context.api_evictions)

    def table(self) -> tuple[tuple[PodGroupInfo, ...], tuple[Key, ...]]:
        self._apply_changes()
        return tuple([it.podgroup for it in self._sorted]), tuple(
            [it.age[2] for it in self._sorted]
        )

    def pods(self, context: BuildContext) -> SnapshotPods:
        """Return the pods of the snapshot: by pod row."""
        pod_table = context.pod_table
        podgroup = self._podgroup_rows(context)[pod_table.class_number * STATES + pod_table.state]
        pod_rows = np.array([entry.pod_row for entry in self._sorted], dtype=np.int64)
        is_standalone = pod_rows != NONE
        podgroup[pod_rows[is_standalone]] = np.flatnonzero(is_standalone)
        is_row = podgroup != NONE
        states = np.array([_STATES[state] for state in range(STATES)], dtype=np.int8)
        rows = context.encoding.signatures.row_by_class
        for number in np.flatnonzero(
            np.bincount(pod_table.class_number[is_row], minlength=len(rows)).astype(np.bool_)
            & (rows == NONE)
        ).tolist():
            context.encoding.signatures.row(pod_table.class_table[number])
        signature = np.where(is_row, rows[pod_table.class_number], NONE).astype(np.int32)
        on_node = np.where(is_row, pod_table.node, NONE)
        for number, node, at in context.encoding.requests.memory_pods(
            pod_table.class_number, on_node
        ):
            pod_class = pod_table.class_table[number]
            signature[at] = context.encoding.signatures.row_on(pod_class, node)
        for pod_row in pod_table.nominated:
            node = pod_table.nominated_node(pod_row)
            if node != NONE and is_row[pod_row]:
                signature[pod_row] = context.encoding.signatures.nominated_row(
                    pod_table.class_table[int(pod_table.class_number[pod_row])], node
                )
        for pod_row, pod_class, claims, less in context.claim_state.special_claims():
            if is_row[pod_row]:
                row = int(signature[pod_row])
                row = context.encoding.signatures.row(pod_class) if row == NONE else row
                signature[pod_row] = context.encoding.signatures.row_with_claims(row, claims, less)
        for key, pod_row in _avoiding_pods(context):
            if is_row[pod_row]:
                signature[pod_row] = _row_avoiding(context, key, int(signature[pod_row]))
        return SnapshotPods(
            signature=signature,
            node=on_node.astype(np.int32),
            podgroup=podgroup,
            state=np.where(is_row, states[pod_table.state], PodState.DONE).astype(np.int8),
        )

    def _put(self, podgroup_or_pod: _PodGroupOrPod, entry: _Entry) -> None:
        known = self._entries.get(podgroup_or_pod)
        if known is not None and (known.age, known.number) == (entry.age, entry.number):
            known.podgroup = entry.podgroup
        else:
            self.remove(podgroup_or_pod)
            self._entries[podgroup_or_pod] = entry
            self._new.append(entry)
        if entry.podgroup.departure is None:
            self._departing.discard(podgroup_or_pod)
        else:
            self._departing.add(podgroup_or_pod)

    def _apply_changes(self) -> None:
        if len(self._removed) + len(self._new) > _FEW_CHANGES:
            removed = set(map(id, self._removed))
            remaining = [entry for entry in (*self._sorted, *self._new) if id(entry) not in removed]
            self._sorted = sorted(remaining, key=_entry_age)
        else:
            for entry in self._new:
                insort(self._sorted, entry, key=_entry_age)
            for entry in self._removed:
                at = bisect_left(self._sorted, entry.age, key=_entry_age)
                while self._sorted[at] is not entry:
                    at += 1
                del self._sorted[at]
        self._removed.clear()
        self._new.clear()

    def _podgroup_rows(self, context: BuildContext) -> NDArray[np.int32]:
        """Return the PodGroup row by pod class and state: of pods that count, or are on a node."""
        podgroup_index, class_table = context.podgroup_index, context.pod_table.class_table
        size = len(context.pod_counts)
        # The last row is that of pods without a record.
        podgroup_row = np.full(len(podgroup_index.is_listed), NONE, dtype=np.int32)
        numbers = np.array([entry.number for entry in self._sorted], dtype=np.int64)
        is_record = numbers != NONE
        podgroup_row[numbers[is_record]] = np.flatnonzero(is_record)
        record, state = class_table.record_number[:size, None], np.arange(STATES)
        is_placed = (state >= RUNNING) & (state < DONE)
        may_wait = class_table.is_counted[:size, None] & ~(
            podgroup_index.is_suspended[record] & (state < RUNNING)
        )
        rows: NDArray[np.int32] = np.where(is_placed | may_wait, podgroup_row[record], NONE)
        return rows.ravel()


def _tree(group: PodGroup | None, make_podset: MakePodSet) -> SubGroupTree:
    return podgroup_tree(group, make_podset) if group else make_podset(DEFAULT_PODSET, 1)


def _podset(
    context: BuildContext, record: PodGroupRecord, name: str, minimum: int, *, has_domains: bool
) -> PodSet:
    """With *has_domains* it matters which pods are near each other: neighbours by their indexes."""
    pending = record.pending_pods(name, context.pod_table)
    if has_domains:
        pending = context.pod_table.by_index(pending)
    expected = record.expected_count(name)
    reserved = context.reservations.of_podgroup(record).get(name)
    signatures = context.encoding.signatures
    return PodSet(
        name=name,
        minimum=minimum,
        pending=pending,
        running=record.count_of(name, RUNNING),
        succeeded=record.count_of(name, SUCCEEDED),
        reserved_places=_reserved_places(context, (record.key, name), reserved) if reserved else (),
        expected=expected,
        expected_signature=_row_avoiding(
            context, record.key, signatures.row(record.expected[name][0])
        )
        if expected
        else NONE,
        gated=record.count_of(name, GATED),
        leaving=len(leaving_pods(record, name, context.pod_table)),
        running_pods=record.running_pods(name, context.pod_table)
        if has_domains or _needs_pod_rows(record, name, minimum)
        else (),
    )


def _avoiding_pods(context: BuildContext) -> "Iterator[tuple[Key, int]]":
    for key in context.avoided_nodes:
        record = context.podgroup_index.find(key)
        for pod_class in record.pod_classes if record else ():
            yield from ((key, pod_row) for pod_row in pod_class.pod_rows)


def _row_avoiding(context: BuildContext, key: Key, row: int) -> int:
    avoided = context.avoided_nodes.get(key)
    return context.encoding.signatures.row_avoiding(row, avoided) if avoided else row


def _reserved_places(
    context: BuildContext, podset: tuple[Key, str], reserved: PodSetReservation
) -> tuple[ReservedPlace, ...]:
    signatures, pod_class = context.encoding.signatures, reserved.pod_class
    slots: dict[int, Iterator[tuple[int, ...]]] = {}  # by node, of the places that are left
    places = []
    for node, cause in reserved.places:
        if node not in slots:
            slots[node] = iter(context.shared_gpus.slots_of_places(*podset, node))
        row = signatures.row_on(pod_class, node)
        places.append(ReservedPlace(node, row, cause, held_shares(next(slots[node], ()))))
    return tuple(places)


def _needs_pod_rows(record: PodGroupRecord, name: str, minimum: int) -> bool:
    """Say whether an eviction may take some pods and leave others, or PodSets may differ."""
    if len(record.min_members) > 1:
        return True
    is_flat = record.group is None or not record.group.spec.sub_groups
    members = record.count_of(name, RUNNING) + record.count_of(name, SUCCEEDED)
    return members > minimum or not (record.workload_uid or is_flat)


def _is_never_placed(context: BuildContext, pod_class: PodClass) -> bool:
    """Say whether pods of a class have GPUs in a way in which no pending pod gets them."""
    shares = pod_class.gpu_sharing is not None
    claims = context.claim_state.claims.of_class(pod_class)
    has_faulty_claims = bool(pod_class.spec.resource_claims) and not claims.claims
    is_unplaced_share = shares and not context.places_gpu_shares
    return bool(pod_class.mig_annotations) or is_unplaced_share or has_faulty_claims


def _queue_row(context: BuildContext, attributes: PodGroupAttributes) -> int:
    return context.queues.first_usable_row(attributes.queue, attributes.fallback_queue)


def _record_age(record: PodGroupRecord, pod_table: PodTable) -> tuple[int, str]:
    if record.group is not None:
        return _age(record.group.metadata)
    oldest = min(
        (pod_table.oldest(pod_class) for pod_class in record.pod_classes), key=pod_table.age
    )
    return _age(pod_table.pod(oldest).metadata)


def _age(meta: Meta) -> tuple[int, str]:
    return epoch_s(meta.creation_timestamp) or 0, meta.uid


def _entry_age(entry: _Entry) -> _Age:
    return entry.age
