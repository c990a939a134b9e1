"""All pods as rows: the class, state and node of each, and how many pods are on each node.

A pod keeps its row as long as it exists. What does not depend on the pod is computed once for its
class.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.core.model.snapshot import POD_WEIGHT
from scheduler.state.inputs import StateOptions, epoch_s
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.pods.class_table import NO_CLASS, PodClassTable, grown
from scheduler.state.pods.pod_class import PodClass
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import COMPLETION_INDEX, JOB_INDEX, REPLICATED_JOB
from trainer_kai.api.pod import TERMINAL_PHASES, Pod
from trainer_kai.api.resized_pod import may_be_resized

PENDING, GATED, RUNNING, RELEASING, STUCK_RELEASING, DONE, SUCCEEDED = range(7)
STATES: Final = 7  # DONE: it failed or is gone, and needs nothing any more
_INITIAL_ROWS: Final = 64  # rows of an empty table
_NEVER: Final = 2**62
_HOUR_S: Final = 3600
_INDEX: Final = re.compile("[0-9]{1,9}", re.ASCII)
_NO_POD: Final = Key("", "")


class PodTable:
    """Pods by row; arrays are [pod row]. A free row is of `NO_CLASS`, and `DONE`."""

    def __init__(self, classes: PodClassTable, nodes: NodeTable, options: StateOptions) -> None:
        self.class_table: Final = classes
        self.nodes: Final = nodes
        self._options: Final = options
        self.keys: Final[list[Key]] = []
        self.pods: Final[list[Pod | None]] = []
        self.row_by_key: Final[dict[Key, int]] = {}
        self.nominated: Final[dict[int, str]] = {}  # by pod row: the nominated node
        self.resized: Final[set[int]] = set()  # running pods of which the spec was changed
        self._class_of: Final[list[PodClass | None]] = []
        self._free: Final[list[int]] = []
        self._class_number: Ints = np.full(_INITIAL_ROWS, NO_CLASS, dtype=np.int64)
        self._state: Ints = np.full(_INITIAL_ROWS, DONE, dtype=np.int64)
        self._node: Ints = np.full(_INITIAL_ROWS, NONE, dtype=np.int64)
        # The termination deadline of a pod that terminates, the end of one that has ended.
        self._until: Ints = np.zeros(_INITIAL_ROWS, dtype=np.int64)
        self.changed_classes: dict[PodClass, None] = {}  # classes with pods that have changed
        self.changed_rows: list[int] = []
        self.changed_nodes: set[int] = set()

    @property
    def class_number(self) -> Ints:
        return self._class_number[: len(self.keys)]

    @property
    def state(self) -> Ints:
        return self._state[: len(self.keys)]

    @property
    def node(self) -> Ints:
        """Return the node on which each pod uses resources, or NONE."""
        return self._node[: len(self.keys)]

    @property
    def terminating_pods(self) -> list[Pod]:
        """Return the terminating pods of this scheduler, also after their deadline."""
        is_terminating = np.isin(self.state, (RELEASING, STUCK_RELEASING))
        is_ours = self.class_table.is_ours[self.class_number]
        pods = (self.pods[pod_row] for pod_row in np.flatnonzero(is_ours & is_terminating).tolist())
        return [pod for pod in pods if pod is not None]

    @property
    def pod_counts(self) -> Ints:
        """Count the pods of each class, [class, state]."""
        size = len(self.class_table.rows)
        codes = self.class_number * STATES + self.state
        return np.bincount(codes, minlength=size * STATES).reshape(size, STATES)

    @property
    def is_sparse(self) -> bool:
        return len(self._free) > max(len(self.keys) // 2, _INITIAL_ROWS)

    def ended_pods(self, now: int) -> Ints:
        """Return what pods that have run and ended weigh by their classes, [class].

        One that ended in the last hour weighs half of a pod, and each hour earlier half of that.
        """
        is_ended = (self.state >= DONE) & (self._until[: len(self.keys)] > 0)
        rows = np.flatnonzero(is_ended & self.class_table.is_ours[self.class_number])
        hours = np.maximum(now - self._until[rows], 0) // _HOUR_S
        weights = (POD_WEIGHT // 2) >> np.minimum(hours, POD_WEIGHT)
        found = np.bincount(self.class_number[rows], weights, len(self.class_table.rows))
        return found.astype(np.int64)

    def reset_changes(self) -> None:
        self.changed_classes, self.changed_rows, self.changed_nodes = {}, [], set()

    def read(self, changes: Mapping[Key, Pod | None]) -> None:
        new_rows: list[int] = []  # five columns: row, class, state, node, termination deadline
        node_row, class_of = self.nodes.row_of, self.class_table.class_of
        for key, pod in changes.items():
            pod_row = self.row_by_key.get(key)
            if pod is not None:
                pod_row = self._add(key) if pod_row is None else pod_row
                pod_class = class_of(key, pod)
                self._set_class(pod_row, pod_class)
                self.pods[pod_row] = pod
                state, until = _pod_state(pod, self._options)
                name = pod.spec.node_name
                node = node_row(name) if name and state < DONE else NONE
                new_rows += (pod_row, pod_class.number, state, node, until)
                if state == PENDING and pod.status.nominated_node_name:
                    self.nominated[pod_row] = pod.status.nominated_node_name
                elif self.nominated:
                    self.nominated.pop(pod_row, None)
                if state == RUNNING and may_be_resized(pod):
                    self.resized.add(pod_row)
                elif self.resized:
                    self.resized.discard(pod_row)
            elif pod_row is not None:
                self._remove(key, pod_row)
                new_rows += (pod_row, NO_CLASS, DONE, NONE, 0)
        self._write(np.array(new_rows, dtype=np.int64).reshape(-1, 5))
        for pod_class in self.changed_classes:
            self.class_table.remove_if_empty(pod_class)
        self.class_table.forget_identities()

    def update_stuck(self, now: int) -> None:
        """Find the terminating pods after their deadline, and those before it."""
        terminating = np.flatnonzero((self.state == RELEASING) | (self.state == STUCK_RELEASING))
        is_stuck = self._until[terminating] < now
        state = np.where(is_stuck, STUCK_RELEASING, RELEASING)
        changed = terminating[self._state[terminating] != state]
        self._state[terminating] = state
        for pod_row in changed.tolist():
            self._set_class(pod_row, self._class_of[pod_row])
            self.changed_rows.append(pod_row)
            self.changed_nodes.add(int(self._node[pod_row]))

    def renumber_nodes(self, row_of_old: Ints) -> None:
        """Apply new rows of nodes; *row_of_old* ends with the row of no node."""
        self._node = row_of_old[self._node]
        lost = (self.node == NONE) & (self.state >= RUNNING) & (self.state < DONE)
        for pod_row in np.flatnonzero(lost).tolist():
            pod = self.pods[pod_row]
            self._node[pod_row] = self.nodes.row_of(pod.spec.node_name) if pod else NONE

    def nominated_node(self, pod_row: int) -> int:
        return self.nodes.row_of(self.nominated.get(pod_row, ""))

    def pod(self, pod_row: int) -> Pod:
        pod = self.pods[pod_row]
        assert pod is not None
        return pod

    def age(self, pod_row: int) -> tuple[int, str, Key]:
        """Return the sort key of a pod: the oldest first, then by uid, then by name."""
        meta = self.pod(pod_row).metadata
        return epoch_s(meta.creation_timestamp) or 0, meta.uid, self.keys[pod_row]

    def by_index(self, pod_rows: Iterable[int]) -> tuple[int, ...]:
        """Order pods of equal rank by their Jobs and completion indexes, as their processes are."""
        return tuple(sorted(pod_rows, key=self._index))

    def _index(self, pod_row: int) -> tuple[int, str, int, int]:
        pod_class, meta = self._class_of[pod_row], self.pod(pod_row).metadata
        labels = meta.labels
        index = labels.get(COMPLETION_INDEX) or meta.annotations.get(COMPLETION_INDEX, "")
        return (
            pod_class.rank if pod_class else 0,
            labels.get(REPLICATED_JOB, ""),
            _number(labels.get(JOB_INDEX, "")),
            _number(index),
        )

    def oldest(self, pod_class: PodClass) -> int:
        rows = pod_class.pod_rows
        return min(rows, key=self.age) if len(rows) > 1 else next(iter(rows))

    def title(self, pod_class: PodClass) -> str:
        """Return how messages name a class: by its oldest pod."""
        if not pod_class.pod_rows:
            return "an expected pod"
        return f"pod {self.keys[self.oldest(pod_class)].name}"

    def _add(self, key: Key) -> int:
        if self._free:
            pod_row = self._free.pop()
            self.keys[pod_row] = key
        else:
            pod_row = len(self.keys)
            self.keys.append(key)
            self.pods.append(None)
            self._class_of.append(None)
            if pod_row == len(self._class_number):
                self._grow(2 * pod_row)
        self.row_by_key[key] = pod_row
        return pod_row

    def _remove(self, key: Key, pod_row: int) -> None:
        self._set_class(pod_row, None)
        self.pods[pod_row], self.keys[pod_row] = None, _NO_POD
        self.nominated.pop(pod_row, None)
        self.resized.discard(pod_row)
        del self.row_by_key[key]
        self._free.append(pod_row)

    def _set_class(self, pod_row: int, pod_class: PodClass | None) -> None:
        before = self._class_of[pod_row]
        if before is not pod_class:
            if before is not None:
                del before.pod_rows[pod_row]
                self.changed_classes[before] = None
            self._class_of[pod_row] = pod_class
            if pod_class is not None:
                pod_class.pod_rows[pod_row] = None
        if pod_class is not None:
            self.changed_classes[pod_class] = None

    def _write(self, new_rows: Ints) -> None:
        """Write columns; of two entries for one row the last counts."""
        pod_rows, classes, states, nodes, until = new_rows.T
        self.changed_rows += pod_rows.tolist()
        self.changed_nodes.update(np.unique(np.concatenate((self._node[pod_rows], nodes))).tolist())
        self._class_number[pod_rows], self._state[pod_rows] = classes, states
        self._node[pod_rows], self._until[pod_rows] = nodes, until

    def _grow(self, size: int) -> None:
        self._class_number, self._state = grown(self._class_number, size), grown(self._state, size)
        self._node, self._until = grown(self._node, size, NONE), grown(self._until, size)


def _number(text: str) -> int:
    return int(text) if _INDEX.fullmatch(text) else -1


def termination_deadline(meta: Meta, options: StateOptions) -> int:
    """Return by when a terminating pod is expected to be gone, in seconds since 1970.

    The API server writes the deletion time plus the grace period, which a user may set to 68 years.
    Of the grace period at most `max_termination_grace_s` counts.
    """
    deletion_time = epoch_s(meta.deletion_timestamp)
    if deletion_time is None:
        return _NEVER
    excess_s = max(meta.deletion_grace_period_seconds - options.max_termination_grace_s, 0)
    # A grace period may be of any size.
    return max(deletion_time - excess_s + options.stuck_in_releasing_s, 0)


def _pod_state(pod: Pod, options: StateOptions) -> tuple[int, int]:
    """Return the state of a pod, and its termination deadline, which may have passed."""
    phase = pod.status.phase
    if phase in TERMINAL_PHASES:
        ended_at = _ended_at(pod) if options.counts_ended_pods and pod.spec.node_name else 0
        return (SUCCEEDED if phase == "Succeeded" else DONE), ended_at
    if pod.metadata.deletion_timestamp:
        if not pod.spec.node_name:
            return DONE, 0  # it uses nothing, and requests nothing any more
        return RELEASING, termination_deadline(pod.metadata, options)
    if pod.spec.node_name:
        return RUNNING, 0
    if phase not in {"", "Pending"}:
        return DONE, 0  # it runs nowhere
    return (GATED if pod.spec.scheduling_gates else PENDING), 0


def _ended_at(pod: Pod) -> int:
    """Return the last transition of a pod that has ended, in seconds since 1970; 0 if unknown."""
    times = [epoch_s(it.last_transition_time or "") or 0 for it in pod.status.conditions]
    return max(times, default=0)


class PodsPerNode(NamedTuple):
    """The number of pods of each class on each node: one row for each pair, sorted."""

    class_number: Ints
    node: Ints
    pod_counts: Ints
    releasing: Ints  # of them: pods that are terminating in time
    terminating: Ints  # of them: all terminating pods, including stuck ones


def pods_per_node(pod_table: PodTable, is_selected: Bools) -> PodsPerNode:
    """Count the pods on the selected nodes, [node]; the last entry, for no node, must be False."""
    count = len(is_selected)
    pod_rows = np.flatnonzero(is_selected[pod_table.node])  # pending and done pods have no node
    pair_of_pod = pod_table.class_number[pod_rows] * count + pod_table.node[pod_rows]
    pairs, at, pod_counts = np.unique(pair_of_pod, return_inverse=True, return_counts=True)
    states = pod_table.state[pod_rows]
    releasing = np.bincount(at[states == RELEASING], minlength=len(pairs)).astype(np.int64)
    stuck = np.bincount(at[states == STUCK_RELEASING], minlength=len(pairs)).astype(np.int64)
    return PodsPerNode(pairs // count, pairs % count, pod_counts, releasing, releasing + stuck)


def with_reserved(
    on: PodsPerNode, reserved: Mapping[tuple[int, int], int], node_count: int
) -> PodsPerNode:
    """Add reserved places, by class and node, as if their pods were there already."""
    if not reserved:
        return on
    class_number = np.concatenate((on.class_number, [number for number, _ in reserved]))
    node = np.concatenate((on.node, [node for _, node in reserved]))
    none = np.zeros(len(reserved), dtype=np.int64)
    pod_counts = np.concatenate((on.pod_counts, [*reserved.values()]))
    releasing, terminating = (
        np.concatenate((some, none)) for some in (on.releasing, on.terminating)
    )
    pairs, at = np.unique(class_number * node_count + node, return_inverse=True)

    def summed(amounts: Ints) -> Ints:
        sums = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(sums, at, amounts)
        return sums

    return PodsPerNode(
        pairs // node_count,
        pairs % node_count,
        summed(pod_counts),
        summed(releasing),
        summed(terminating),
    )
