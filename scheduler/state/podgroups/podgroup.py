"""A PodGroup as the scheduler keeps it: its tree of sub-groups, its pods, counts and reservations.

The reservations survive a restart of the scheduler in the annotation `trainer-kai.dev/reserved`: it
is written before the first decision that relies on it, and read at the start. Its schema is in the
README of scheduler/state.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.core.model.podgroup import PodSet, ReservationCause, SubGroupSet, SubGroupTree
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import NONE, Ints
from scheduler.state.inputs import ObjectWarning, epoch_s
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import (
    GATED,
    PENDING,
    RELEASING,
    RUNNING,
    STATES,
    STUCK_RELEASING,
    SUCCEEDED,
    PodTable,
)
from trainer_kai.api.kai_kinds import PodGroup, SubGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ANTICIPATED, RESERVED, SUBGROUP
from trainer_kai.api.requested_values import podgroup_warnings
from trainer_kai.api.text import first_listed
from trainer_kai.api.validate import podgroup_faults
from trainer_kai.policy.podgroups.anticipated import (
    AnticipatedAnnotation,
    AnticipatedPods,
    read_anticipated,
)
from trainer_kai.policy.podgroups.grouping import podset_and_attempt
from trainer_kai.policy.workloads.kinds import kind_of_owner, pod_place
from trainer_kai.policy.workloads.workload import RestartAttempt, Workload, WorkloadKind

_MAX_PLACES: Final = 100_000  # of one PodSet


class ReservedPodSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reserved places of one PodSet; if it is relocated, also what its pods will be like."""

    nodes: Mapping[str, int] = {}
    cause: str = ""
    until: str = ""  # the reservation ends then, if the pods have not come back
    like: AnticipatedPods | None = None


class NamedPlace(NamedTuple):
    """One reserved place, by names."""

    podset: str
    node: str
    cause: ReservationCause


_NO_PLACES: Final = ReservedPodSet()
_NO_PODSETS: Final[Mapping[str, ReservedPodSet]] = MappingProxyType({})
_MOVE_CAUSE: Final = ReservationCause.MOVE.name.lower()
_decoder: Final = msgspec.json.Decoder(dict[str, ReservedPodSet])


def read_reserved(text: str) -> dict[str, tuple[NamedPlace, ...]] | str:
    """Return the places by PodSet, in order of their nodes; or why the text is invalid."""
    try:
        found = _decoder.decode(text) if text else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)
    return {podset: tuple(_places(podset, reserved)) for podset, reserved in found.items()}


def read_relocations(text: str) -> dict[str, ReservedPodSet]:
    """Return the PodSets that are relocated; none if the text is invalid."""
    if _MOVE_CAUSE not in text:  # as in nearly all annotations
        return {}
    try:
        found = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return {
        podset: reserved
        for podset, reserved in found.items()
        if reserved.nodes and reserved.cause == _MOVE_CAUSE
    }


def write_reserved(
    places: Iterable[NamedPlace], relocating: Mapping[str, ReservedPodSet] = _NO_PODSETS
) -> str:
    """Return the annotation of a PodGroup with these places; empty without places.

    For a PodSet in *relocating*, `like` and `until` are kept, also if one of its places has changed
    meanwhile.
    """
    nodes: dict[str, dict[str, int]] = {}
    causes: dict[str, ReservationCause] = {}
    for podset, node, cause in places:
        counts_by_node = nodes.setdefault(podset, {})
        counts_by_node[node] = counts_by_node.get(node, 0) + 1
        causes[podset] = min(cause, causes.get(podset, cause))  # one cause for the whole PodSet
    if not nodes:
        return ""
    reserved = {}
    for podset in sorted(nodes):
        cause_text = _MOVE_CAUSE if podset in relocating else causes[podset].name.lower()
        reserved[podset] = msgspec.structs.replace(
            relocating.get(podset, _NO_PLACES), nodes=nodes[podset], cause=cause_text
        )
    return msgspec.json.encode(reserved, order="deterministic").decode()


def _places(podset: str, reserved: ReservedPodSet) -> list[NamedPlace]:
    known = {cause.name.lower(): cause for cause in ReservationCause}
    cause = known.get(reserved.cause, ReservationCause.ANTICIPATED)
    places: list[NamedPlace] = []
    for node in sorted(reserved.nodes):
        count = min(max(reserved.nodes[node], 0), _MAX_PLACES - len(places))
        places += [NamedPlace(podset, node, cause)] * count
    return places


MakePodSet: TypeAlias = Callable[[str, int], PodSet]  # from a name and a minimum
DEFAULT_PODSET: Final = "default"  # the PodSet of a PodGroup without sub-groups
_MAX_DEPTH: Final = 16  # levels; more would be a mistake or an attack
_MAX_INT32: Final = 2**31 - 1  # of the counts in Kubernetes objects
_MAX_NAMES: Final = 8  # names in a message
_NO_PODS: Final = (0,) * STATES
_NOTHING_ANTICIPATED: Final = AnticipatedAnnotation()


def spec_failure(group: PodGroup) -> PreFilterFailure | None:
    faults = [str(fault) for fault in podgroup_faults(group)]
    if not faults:
        faults = [*_unsatisfiable(group)]
    if not faults:
        return None
    return PreFilterFailure(PreFilterCause.INVALID_PODGROUP, ("; ".join(faults),))


def has_topology(group: PodGroup) -> bool:
    spec = group.spec
    return spec.topology_constraint is not None or any(
        sub.topology_constraint is not None for sub in spec.sub_groups
    )


def min_members(group: PodGroup) -> dict[str, int]:
    """Return the PodSets of a valid PodGroup, and how many pods each needs."""
    spec = group.spec
    if not spec.sub_groups:
        return {DEFAULT_PODSET: _capped(1 if spec.min_member is None else spec.min_member)}
    inner = {sub.parent for sub in spec.sub_groups}
    return {
        sub.name: _capped(sub.min_member or 0) for sub in spec.sub_groups if sub.name not in inner
    }


def podgroup_tree(group: PodGroup, make_podset: MakePodSet) -> SubGroupTree:
    spec = group.spec
    minimums = min_members(group)
    if not spec.sub_groups:
        return make_podset(DEFAULT_PODSET, minimums[DEFAULT_PODSET])
    below: dict[str, list[SubGroup]] = {}
    for sub in spec.sub_groups:
        below.setdefault(sub.parent, []).append(sub)
    return _subgroup_set(
        ("", spec.min_sub_group), below, lambda name: make_podset(name, minimums[name])
    )


def _subgroup_set(
    top: tuple[str, int | None],
    below: dict[str, list[SubGroup]],
    make_podset: Callable[[str], PodSet],
) -> SubGroupSet:
    name, minimum = top
    children = tuple(
        _subgroup_set((sub.name, sub.min_sub_group), below, make_podset)
        if sub.name in below
        else make_podset(sub.name)
        for sub in below[name]
    )
    return SubGroupSet(name, len(children) if minimum is None else _capped(minimum), children)


def _unsatisfiable(group: PodGroup) -> Iterator[str]:
    if _depth(group) > _MAX_DEPTH:
        yield f"spec.subGroups: more than {_MAX_DEPTH} levels are not supported"
    below = Counter(sub.parent for sub in group.spec.sub_groups)
    minimums = [("spec", "", group.spec.min_sub_group)] if below else []
    for i, sub in enumerate(group.spec.sub_groups):
        minimums.append((f"spec.subGroups[{i}]", sub.name, sub.min_sub_group))
    for path, name, minimum in minimums:
        if minimum is not None and minimum > below[name]:
            yield f"{path}.minSubGroup: {minimum} is more than the {below[name]} sub-groups below"


def _capped(number: int) -> int:
    return min(number, _MAX_INT32)


def _depth(group: PodGroup) -> int:
    parents = {sub.name: sub.parent for sub in group.spec.sub_groups}
    depths = {"": 0}
    for name in parents:
        path = [name]
        while path[-1] not in depths:
            path.append(parents[path[-1]])
        known_depth = depths[path[-1]]
        for step, passed in enumerate(reversed(path[:-1]), start=1):
            depths[passed] = known_depth + step
    return max(depths.values())


class RecordInputs(NamedTuple):
    """What a record is built from besides its PodGroup and its pods."""

    now: int
    workload: Workload | None = None
    will_run_again: bool | None = None  # the workload; None if nothing suspends and resumes it
    is_pending_creation: bool = False  # the PodGroup does not exist, but its workload will get it


class PodGroupRecord:
    """A PodGroup and its pods: built again when the PodGroup changes, counted when its pods do."""

    __slots__ = (
        "anticipated",
        "classes_by_podset",
        "expected",
        "group",
        "has_topology",
        "is_abandoned",
        "is_active",
        "is_nominated",
        "is_pending_creation",
        "is_relocating",
        "is_returning",
        "is_suspended",
        "is_valid",
        "key",
        "kind",
        "min_members",
        "number",
        "pod_counts",
        "prefilter_failure",
        "refusals",
        "relocating",
        "warnings",
        "workload",
        "workload_uid",
    )

    def __init__(self, number: int, key: Key, group: PodGroup | None, inputs: RecordInputs) -> None:
        workload, will_run_again = inputs.workload, inputs.will_run_again
        self.number: Final = number
        self.key: Final = key
        self.group: Final = group
        self.workload: Final = workload
        # The kind and the uid of the workload that owns it, known or not.
        self.kind, self.workload_uid = _owning_kind_and_uid(group, workload)
        self.is_pending_creation: Final = inputs.is_pending_creation
        self.is_suspended: Final = workload is not None and workload.is_suspended
        self.classes_by_podset: Final[dict[str, list[PodClass]]] = {}
        self.refusals: Final[dict[PodClass, str]] = {}  # classes that no PodSet is for
        self.expected: dict[str, tuple[PodClass, int]] = {}  # by PodSet: class, and its full size
        # By PodSet and state: the pods that count.
        self.pod_counts: Final[dict[str, tuple[int, ...]]] = {}
        self.relocating: Final = relocating_podsets(group, inputs.now) if group else {}
        self.is_relocating: Final = bool(self.relocating) and will_run_again is True
        # If what suspends it is unknown, its pods come back unless its workload is suspended.
        self.is_returning: Final = self.is_relocating or (
            bool(self.relocating) and will_run_again is None and not self.is_suspended
        )
        # Its workload is over or was suspended by a user: its reservations are released for good.
        self.is_abandoned: Final = bool(self.relocating) and will_run_again is False
        self.is_nominated = False  # a pending pod has a nominated node, or the PodGroup returns
        self.is_active = False  # it has or requests anything
        self.anticipated = _NOTHING_ANTICIPATED
        # Invalid values of the spec, and what is used instead.
        self.warnings: Final = tuple(podgroup_warnings(group.spec)) if group else ()
        self.prefilter_failure = (
            PreFilterFailure(PreFilterCause.PODGROUP_MISSING, (str(key),))
            if group is None
            else spec_failure(group)
        )
        self.has_topology: Final = group is not None and has_topology(group)
        self.is_valid: Final = group is not None and self.prefilter_failure is None
        self.min_members: Final = (
            min_members(group) if group and self.is_valid else {DEFAULT_PODSET: 1}
        )
        if group and self.is_valid:
            self._read_anticipated(group.metadata.annotations.get(ANTICIPATED, ""))

    @property
    def pod_classes(self) -> list[PodClass]:
        return [one for classes in self.classes_by_podset.values() for one in classes]

    @property
    def has_started(self) -> bool:
        return self.is_nominated or any(
            pod_counts[RUNNING] for pod_counts in self.pod_counts.values()
        )

    @property
    def has_started_or_pending(self) -> bool:
        return self.has_started or any(
            pod_counts[PENDING] for pod_counts in self.pod_counts.values()
        )

    def assign_podsets(self, pod_classes: Iterable[PodClass]) -> None:
        for pod_class in pod_classes:
            refusal = self._refusal(pod_class)
            if refusal is None:
                podset = self.podset_of(pod_class) or DEFAULT_PODSET
                self.classes_by_podset.setdefault(podset, []).append(pod_class)
            else:
                self.refusals[pod_class] = refusal

    def count(self, pod_table: PodTable, pod_counts: Ints) -> None:
        """Count the pods by PodSet; *pod_counts*, [class, state], are those of all classes."""
        is_counted = pod_table.class_table.is_counted
        self.pod_counts.clear()
        self.is_nominated = self.is_returning
        for podset, pod_classes in self.classes_by_podset.items():
            numbers = [one.number for one in pod_classes if is_counted[one.number]]
            if numbers:
                is_one = len(numbers) == 1
                row = pod_counts[numbers[0]] if is_one else pod_counts[numbers].sum(axis=0)
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
        return self.pod_counts.get(podset, _NO_PODS)[state]

    def has_running_pods(self, podset: str) -> bool:
        return self.pod_counts.get(podset, _NO_PODS)[RUNNING] > 0

    def pending_pods(self, podset: str, pod_table: PodTable) -> tuple[int, ...]:
        """Return the rows of the pending pods of a PodSet, in the order of their placement."""
        if self.is_suspended or not self.is_active or not self.count_of(podset, PENDING):
            return ()
        return self._pods(podset, PENDING, pod_table)

    def running_pods(self, podset: str, pod_table: PodTable) -> tuple[int, ...]:
        return self._pods(podset, RUNNING, pod_table)

    def _pods(self, podset: str, wanted: int, pod_table: PodTable) -> tuple[int, ...]:
        state, is_counted = pod_table.state, pod_table.class_table.is_counted
        ordered = sorted(
            (pod_class.rank, pod_table.age(pod_row), pod_row)
            for pod_class in self.classes_by_podset.get(podset, ())
            if is_counted[pod_class.number]
            for pod_row in pod_class.pod_rows
            if state[pod_row] == wanted
        )
        return tuple(pod_row for _, _, pod_row in ordered)

    def expected_count(self, podset: str) -> int:
        if podset not in self.expected or (self.is_suspended and not self.is_returning):
            return 0
        pod_counts = self.pod_counts.get(podset, _NO_PODS)
        existing = (
            pod_counts[PENDING] + pod_counts[GATED] + pod_counts[RUNNING] + pod_counts[SUCCEEDED]
        )
        return max(self.expected[podset][1] - existing, 0)

    def object_warnings(self, is_waiting: Callable[[PodClass], bool]) -> Iterator[ObjectWarning]:
        """Yield the pods that do not count, and invalid values with what is used instead."""
        for it in self.warnings:
            yield ObjectWarning(self.key, f"PodGroup {self.key}: {it}", still_counts=True)
        for pod_class, message in self.refusals.items():
            yield ObjectWarning(self.key, message, is_pod_pending=is_waiting(pod_class))

    def attempt_of(self, pod_class: PodClass) -> tuple[str, RestartAttempt]:
        """Return the Job of some pods, as a PodSet, and their attempt."""
        place = self.kind.pod_place if self.kind is not None else pod_place
        return podset_and_attempt(place(pod_class.labels))

    def podset_of(self, pod_class: PodClass) -> str | None:
        name = pod_class.labels.get(SUBGROUP, "")
        if not self.is_valid:
            return DEFAULT_PODSET
        name = name or (DEFAULT_PODSET if len(self.min_members) == 1 else "")
        return name if name in self.min_members else None

    def _refusal(self, pod_class: PodClass) -> str | None:
        if self.kind is not None and self.kind.has_jobs and not pod_class.is_from_job:
            return (
                f"Pods that no Job created name PodGroup {self.key}, which belongs to a "
                f"{self.kind.resource.kind}. They do not count"
            )
        if self.podset_of(pod_class) is not None:
            return None
        valid_names = first_listed(self.min_members, _MAX_NAMES)
        name = pod_class.labels.get(SUBGROUP, "")
        named = f"sub-group {name}, which does not exist" if name else "no sub-group"
        return (
            f"Pods of PodGroup {self.key} name {named}, so they do not count. Set their label "
            f"{SUBGROUP} to one of: {valid_names}"
        )

    def _read_anticipated(self, text: str) -> None:
        try:
            self.anticipated = read_anticipated(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            fault = f"metadata.annotations[{ANTICIPATED}]: {error}"
            self.prefilter_failure = PreFilterFailure(PreFilterCause.INVALID_PODGROUP, (fault,))


def relocating_podsets(group: PodGroup, now: int) -> dict[str, ReservedPodSet]:
    """Return the PodSets with pods that were evicted to run elsewhere and are still expected."""
    relocations = read_relocations(group.metadata.annotations.get(RESERVED, ""))
    return {podset: it for podset, it in relocations.items() if wait_ends_at(it) > now}


def wait_ends_at(reserved: ReservedPodSet) -> float:
    """Return until when relocated pods are waited for, in seconds since 1970."""
    return (epoch_s(reserved.until) or 0) if reserved.until else math.inf


def _owning_kind_and_uid(
    group: PodGroup | None, workload: Workload | None
) -> tuple[WorkloadKind | None, str]:
    """Return None and "" for an owner that is unknown and not always a workload."""
    for owner in group.metadata.owner_references if group else ():
        kind = kind_of_owner(owner)
        if kind is not None and (kind.covers_all or (workload and workload.is_managed_here)):
            return kind, owner.uid or owner.name
    return None, ""
