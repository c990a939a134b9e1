"""One group that pods name: what it says of itself, and how far its pods are."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model import NONE, Ints, PreFilterFailure, UnschedulableReason
from scheduler.state.kin import PodClass
from scheduler.state.reserved import ReservedPodSet, read_relocations
from scheduler.state.roll import (
    GATED,
    PENDING,
    RELEASING,
    RUNNING,
    STATES,
    STUCK_RELEASING,
    SUCCEEDED,
    PodTable,
)
from scheduler.state.terms import ObjectWarning, epoch_s
from scheduler.state.trees import DEFAULT_PODSET, min_members, spec_failure, topology_failure
from trainer_kai.api.counted import podgroup_warnings
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import ANTICIPATED, RESERVED, SUBGROUP
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resources import JOBSETS
from trainer_kai.policy.anticipated import AnticipatedAnnotation, read_anticipated

__all__ = ["PodGroupRecord", "RecordInputs", "relocating_podsets", "wait_ends_at"]

_MAX_NAMES: Final = 8  # names in a message
_RETRY_ON: Final = frozenset({"groups"})
_NO_PODS: Final = (0,) * STATES
_NOTHING_ANTICIPATED: Final = AnticipatedAnnotation()


class RecordInputs(NamedTuple):
    """What a gang is made from besides its group and its pods."""

    now: int
    jobset: JobSet | None = None
    will_run_again: bool | None = None  # its TrainJob; None if there is none
    is_pending_creation: bool = False  # a group that does not exist, and that a JobSet is to have


class PodGroupRecord:
    """It is made anew when its group changes, and counted anew when its pods do."""

    __slots__ = (
        "anticipated",
        "classes_by_podset",
        "expected",
        "group",
        "is_abandoned",
        "is_active",
        "is_nominated",
        "is_pending_creation",
        "is_relocating",
        "is_returning",
        "is_suspended",
        "is_valid",
        "jobset",
        "jobset_uid",
        "key",
        "min_members",
        "number",
        "pod_counts",
        "prefilter_failure",
        "refusals",
        "relocating",
        "topology_failure",
        "warnings",
    )

    def __init__(self, number: int, key: Key, group: PodGroup | None, origin: RecordInputs) -> None:
        jobset = origin.jobset
        self.number: Final = number
        self.key: Final = key
        self.group: Final = group
        self.jobset: Final = jobset
        self.jobset_uid: Final = _jobset_uid(group.metadata) if group else ""
        self.is_pending_creation: Final = origin.is_pending_creation
        self.is_suspended: Final = jobset is not None and jobset.spec.suspend
        self.classes_by_podset: Final[
            dict[str, list[PodClass]]
        ] = {}  # those that have a place in it
        self.refusals: Final[dict[PodClass, str]] = {}
        self.expected: dict[str, tuple[PodClass, int]] = {}  # by leaf: kin, and how many in all
        self.pod_counts: Final[
            dict[str, tuple[int, ...]]
        ] = {}  # by leaf: those that count, by state
        self.relocating: Final = relocating_podsets(group, origin.now) if group else {}
        self.is_relocating: Final = bool(self.relocating) and origin.will_run_again is True
        # If nobody says whether its TrainJob goes on, its pods tell whether it is moved.
        self.is_returning: Final = self.is_relocating or (
            bool(self.relocating) and origin.will_run_again is None and not self.is_suspended
        )
        # Somebody else has suspended it, or it is over: what it holds is let go, for good.
        self.is_abandoned: Final = bool(self.relocating) and origin.will_run_again is False
        self.is_nominated = False  # a node, to one that waits, or that is moved
        self.is_active = False  # it wants or has anything
        self.anticipated = _NOTHING_ANTICIPATED
        # What of the group counts otherwise than it is written.
        self.warnings: Final = tuple(podgroup_warnings(group.spec)) if group else ()
        if group is None:
            message = f"its pods name the group {key}, which does not exist"
            self.prefilter_failure: PreFilterFailure | None = PreFilterFailure(
                UnschedulableReason.MISCONFIGURED, message, _RETRY_ON
            )
        else:
            self.prefilter_failure = spec_failure(group)
        self.topology_failure: Final = topology_failure(group) if group else None
        self.is_valid: Final = group is not None and self.prefilter_failure is None
        self.min_members: Final = (
            min_members(group) if group and self.is_valid else {DEFAULT_PODSET: 1}
        )
        if group and self.is_valid:
            self._read_anticipated(group.metadata.annotations.get(ANTICIPATED, ""))

    @property
    def pod_classes(self) -> list[PodClass]:
        """Return those that have a place in it."""
        return [
            pod_class
            for pod_classes in self.classes_by_podset.values()
            for pod_class in pod_classes
        ]

    @property
    def has_started(self) -> bool:
        """Say whether some of it has its place, or the promise of one."""
        return self.is_nominated or any(
            pod_counts[RUNNING] for pod_counts in self.pod_counts.values()
        )

    @property
    def has_started_or_pending(self) -> bool:
        """Say whether it has begun, or some of it waits to."""
        return self.has_started or any(
            pod_counts[PENDING] for pod_counts in self.pod_counts.values()
        )

    def assign_podsets(self, pod_classes: Iterable[PodClass]) -> None:
        """Give all that name it their places."""
        for pod_class in pod_classes:
            refusal = self._refusal(pod_class)
            if refusal is None:
                self.classes_by_podset.setdefault(
                    self.podset_of(pod_class) or DEFAULT_PODSET, []
                ).append(pod_class)
            else:
                self.refusals[pod_class] = f"the group {self.key} {refusal}"

    def count(self, pod_table: PodTable, pod_counts: Ints) -> None:
        """Count the pods; *heads*, [kin, state], are those of all kin."""
        is_counted = pod_table.class_table.is_counted
        self.pod_counts.clear()
        self.is_nominated = self.is_returning
        for podset, pod_classes in self.classes_by_podset.items():
            numbers = [
                pod_class.number for pod_class in pod_classes if is_counted[pod_class.number]
            ]
            if numbers:
                row = (
                    pod_counts[numbers[0]] if len(numbers) == 1 else pod_counts[numbers].sum(axis=0)
                )
                self.pod_counts[podset] = tuple(row.tolist())
        if pod_table.nominated:
            self.is_nominated = self.is_nominated or any(
                is_counted[pod_class.number]
                and any(pod_table.nominated_node(pod_row) != NONE for pod_row in pod_class.pod_rows)
                for pod_class in self.pod_classes
            )
        states = (RUNNING,) if self.is_suspended else (PENDING, GATED, RUNNING)
        if self.is_returning:
            states = (*states, RELEASING, STUCK_RELEASING)
        self.is_active = (
            self.is_relocating
            or self.is_abandoned
            or any(row[state] for row in self.pod_counts.values() for state in states)
        )

    def count_of(self, podset: str, state: int) -> int:
        """Return how many pods of a leaf count and are so far."""
        return self.pod_counts.get(podset, _NO_PODS)[state]

    def pending_pods(self, podset: str, pod_table: PodTable) -> tuple[int, ...]:
        """Return the pods of a leaf that wait, in the order of their placement."""
        if self.is_suspended or not self.is_active or not self.count_of(podset, PENDING):
            return ()
        return self._pods(podset, PENDING, pod_table)

    def running_pods(self, podset: str, pod_table: PodTable) -> tuple[int, ...]:
        """Return the pods of a leaf that have their places, in the order of their placement."""
        return self._pods(podset, RUNNING, pod_table)

    def _pods(self, podset: str, wanted: int, pod_table: PodTable) -> tuple[int, ...]:
        state, is_counted = pod_table.state, pod_table.class_table.is_counted
        found = [
            (pod_class.rank, pod_table.age(pod_row), pod_row)
            for pod_class in self.classes_by_podset.get(podset, ())
            if is_counted[pod_class.number]
            for pod_row in pod_class.pod_rows
            if state[pod_row] == wanted
        ]
        return tuple(pod_row for _, _, pod_row in sorted(found))

    def expected_count(self, podset: str) -> int:
        """Return how many pods of a leaf do not exist yet."""
        if podset not in self.expected or (self.is_suspended and not self.is_returning):
            return 0
        pod_counts = self.pod_counts.get(podset, _NO_PODS)
        existing = (
            pod_counts[PENDING] + pod_counts[GATED] + pod_counts[RUNNING] + pod_counts[SUCCEEDED]
        )
        return max(self.expected[podset][1] - existing, 0)

    def object_warnings(self, is_waiting: Callable[[PodClass], bool]) -> Iterator[ObjectWarning]:
        """Yield the pods that do not count, and what of the group counts otherwise than written."""
        for it in self.warnings:
            yield ObjectWarning(self.key, f"PodGroup {self.key}: {it}", still_counts=True)
        for pod_class, message in self.refusals.items():
            yield ObjectWarning(self.key, message, is_pod_pending=is_waiting(pod_class))

    def podset_of(self, pod_class: PodClass) -> str | None:
        """Return the leaf of pods; None if the group has none for them."""
        name = pod_class.labels.get(SUBGROUP, "")
        if not self.is_valid:
            return DEFAULT_PODSET
        name = name or (DEFAULT_PODSET if len(self.min_members) == 1 else "")
        return name if name in self.min_members else None

    def _refusal(self, pod_class: PodClass) -> str | None:
        """Say why pods that name the group do not count."""
        if self.jobset_uid and not pod_class.is_from_job:
            return "is of a JobSet, and pods that no Job made name it"
        if self.podset_of(pod_class) is not None:
            return None
        valid_names = ", ".join([*self.min_members][:_MAX_NAMES]) + (
            ", …" if len(self.min_members) > _MAX_NAMES else ""
        )
        name = pod_class.labels.get(SUBGROUP, "")
        named = f"the sub-group {name}, which it does not have" if name else "no sub-group"
        return f"has pods that name {named}; it has {valid_names}"

    def _read_anticipated(self, text: str) -> None:
        try:
            self.anticipated = read_anticipated(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            message = f"metadata.annotations[{ANTICIPATED}]: {error}"
            self.prefilter_failure = PreFilterFailure(
                UnschedulableReason.MISCONFIGURED, message, _RETRY_ON
            )


def relocating_podsets(group: PodGroup, now: int) -> dict[str, ReservedPodSet]:
    """Return the leaves whose pods were evicted to be made anew elsewhere, and are waited for."""
    found = read_relocations(group.metadata.annotations.get(RESERVED, ""))
    return {podset: reserved for podset, reserved in found.items() if wait_ends_at(reserved) > now}


def wait_ends_at(reserved: ReservedPodSet) -> float:
    """Return until when pods that come back are waited for, in seconds since 1970."""
    return (epoch_s(reserved.until) or 0) if reserved.until else math.inf


def _jobset_uid(meta: Meta) -> str:
    """Return the uid of the JobSet that owns a group."""
    for owner in meta.owner_references:
        if owner.kind == JOBSETS.kind and owner.api_version.partition("/")[0] == JOBSETS.group:
            return owner.uid or owner.name
    return ""
