"""Queues as rows, and why a queue cannot take a PodGroup.

Queues with a complete path to the top are rows. Of the others, one with a missing
parent is missing, and one that is its own ancestor is misconfigured. An invalid value excludes no
queue: `effective_queue` says what is used instead.

A non-preemptible PodGroup gets no more than the quotas of its queues have, and keeps it. A resize
in place happens on the node and asks no queue. So where non-preemptible PodGroups have more CPU or
memory than a quota, those with a resized pod count as preemptible, the newest first, until the rest
is within the quota (`with_reclaimable_resizes`); first those of the queue itself, then those of the
queues beside it below the same parent. The record of a resize is the generation of the pod, which
no client can lower; every other change of a spec raises it as well.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from itertools import product
from operator import add
from typing import Final

import numpy as np

from scheduler.core.messages.rejection_messages import prefilter_problem
from scheduler.core.model.podgroup import PodGroupInfo
from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.core.model.resources import (
    NONE,
    RESOURCE_KINDS,
    SUM_MOST,
    UNBOUND,
    Ints,
    ResourceKind,
    cut,
)
from scheduler.core.model.snapshot import Snapshot, SnapshotQueues
from scheduler.core.model.usage import Usage, allocated_by_podgroup
from scheduler.state.inputs import ObjectWarning, epoch_s
from scheduler.state.podgroups.attributes import duration_s
from trainer_kai.api.kai_kinds import (
    ABSENT_RESOURCE,
    Queue,
    QueueResource,
    QueueResources,
    TopologyConstraint,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ACCESS,
    CONSOLIDATION,
    QUEUE_ORDER,
    RECLAIM_GOAL,
    STOP_POLICY,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.requested_values import effective_queue
from trainer_kai.api.text import listed_names
from trainer_kai.errors import FieldError
from trainer_kai.policy.misspelled_keys import QUEUE_KEYS, misspelled_keys, similar_name
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    effective_queue_access,
)
from trainer_kai.policy.queueing.queue_discipline import QueueDiscipline, effective_discipline
from trainer_kai.policy.queueing.stop_policy import (
    EffectiveStopPolicy,
    StopPolicy,
    effective_stop_policy,
    release_command,
)
from trainer_kai.policy.queueing.topology_default import (
    TOPOLOGY_ANNOTATIONS,
    own_topology_default,
    topology_default,
)

_DEFAULT_PRIORITY: Final = 100
_SCALES: Final = ((ResourceKind.CPU, 1), (ResourceKind.MEMORY, 10**6), (ResourceKind.GPU, 1000))
_MAX_BOUND: Final = SUM_MOST  # a larger quota or limit counts as this: no queue has more
_MAX_WEIGHT: Final = 10**9
_MAX_NAMES: Final = 8  # names in a message
_RESIZABLE: Final = (ResourceKind.CPU, ResourceKind.MEMORY)
_ALLOWED_VALUES: Final = {  # of annotations; an invalid value counts as the first
    RECLAIM_GOAL: ("fair-share", "quota-only"),  # for the children of a queue
    CONSOLIDATION: ("off", "on"),  # for a queue and its descendants
    STOP_POLICY: (StopPolicy.HOLD, StopPolicy.NONE, StopPolicy.HOLD_AND_DRAIN),  # likewise
    QUEUE_ORDER: (*QueueDiscipline,),  # likewise
    ACCESS: ("closed", "open"),  # to namespaces without a grant; for a queue and its descendants
}
_INHERITED: Final = (CONSOLIDATION, QUEUE_ORDER, ACCESS)  # from the nearest queue that has it
_AND_BELOW: Final = ", also by the queues below that have no such annotation"


class QueueTable:
    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues: Final = dict(queues)
        self._effective_specs: Final = {
            name: effective_queue(it.spec) for name, it in queues.items()
        }
        self._faults: Final[dict[str, PreFilterFailure]] = {}
        self._valid: Final[set[str]] = set()
        valid = [name for name in sorted(queues) if self._is_valid(name)]
        self.names: Final = tuple(sorted(valid, key=lambda name: _age(queues[name])))
        self.row_by_name: Final = {name: row for row, name in enumerate(self.names)}
        parents = (queues[name].spec.parent_queue for name in self.names)
        self.parent: Final = tuple(self.row_by_name.get(name, NONE) for name in parents)
        self._children: Final[dict[str, list[str]]] = {}
        for row, name in zip(self.parent, self.names, strict=True):
            if row != NONE:
                self._children.setdefault(self.names[row], []).append(name)
        self._bottom_up: Final = self._bottom_up_rows()
        self._parent_names: Final = {queue.spec.parent_queue for queue in queues.values()}
        self._prefilter_failures: Final[dict[str, PreFilterFailure | None]] = {}
        self._access: Final[dict[str, EffectiveQueueAccess]] = {}
        self._stop_policies: Final[dict[str, EffectiveStopPolicy]] = {}

    @cached_property
    def warnings(self) -> list[ObjectWarning]:
        """Return which queues were left out and which values do not count, with the reasons."""
        warnings = [
            ObjectWarning(Key("", name), prefilter_problem(it)) for name, it in self._faults.items()
        ]
        for (name, queue), (annotation, allowed) in product(
            self._queues.items(), _ALLOWED_VALUES.items()
        ):
            value = _annotation(queue, annotation)
            if value is not None and value not in allowed:
                choice = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
                below = _AND_BELOW if annotation in _INHERITED else ""
                fault = (
                    f"queue {name}: annotation {annotation} is {value!r}, but must be {choice}; "
                    f"{allowed[0]} is used{below}"
                )
                warnings.append(ObjectWarning(Key("", name), fault, still_counts=True))
        for name, queue in self._queues.items():
            notes = (
                *_misspelled(queue),
                *self._effective_specs[name][1],
                *_numbers_too_large(self._shares(name)),
            )
            warnings += (
                ObjectWarning(Key("", name), f"queue {name}: {it}", still_counts=True)
                for it in notes
            )
        return sorted(warnings)

    def is_same(self, queues: Mapping[str, Queue]) -> bool:
        """Say whether other queues are the same in all that the table reads."""
        return self._queues.keys() == queues.keys() and all(
            one is queues[name] or _relevant_parts(one) == _relevant_parts(queues[name])
            for name, one in self._queues.items()
        )

    def row_and_failure(self, name: str) -> tuple[int, PreFilterFailure | None]:
        return self.row_of(name), self.prefilter_failure(name)

    def rules_for_podgroups(self, name: str) -> tuple[object, ...]:
        """Return what PodGroups of a queue are built from: they are built again if it changes."""
        return (
            self.row_and_failure(name),
            self.allows_consolidation(name),
            self.access(name),
            self.stop_policy(name),
            self.topology_default(name),
        )

    def row_of(self, name: str) -> int:
        return self.row_by_name.get(name, NONE)

    def first_usable_row(self, *names: str) -> int:
        return next(
            (self.row_of(name) for name in names if self.prefilter_failure(name) is None), NONE
        )

    def prefilter_failure(self, name: str) -> PreFilterFailure | None:
        if name not in self._prefilter_failures:
            self._prefilter_failures[name] = self._find_failure(name)
        return self._prefilter_failures[name]

    def allows_consolidation(self, name: str) -> bool | None:
        """Say whether PodGroups of a queue may be relocated; None if no annotation says it."""
        while name in self.row_by_name:
            value = _annotation(self._queues[name], CONSOLIDATION)
            if value is not None:
                return value == "on"
            name = self._queues[name].spec.parent_queue
        return None

    @cached_property
    def topologies(self) -> dict[str, TopologyConstraint]:
        """Return what queues say themselves about the topology of their PodGroups."""
        return {name: _constraint(own) for name, own in self._own_topologies.items()}

    @cached_property
    def _own_topologies(self) -> dict[str, Mapping[str, str]]:
        queues = self._queues.items()
        own = ((name, own_topology_default(it.metadata.annotations)) for name, it in queues)
        return {name: said for name, said in own if said}

    def topology_default(self, name: str) -> TopologyConstraint | None:
        """Return the topology of the PodGroups of a queue that have no constraint of their own."""
        if not self._own_topologies:
            return None
        found = topology_default(name, self._parent_of, self._own_topologies)
        return None if found is None else self.topologies[found.decided_by]

    def access(self, name: str) -> EffectiveQueueAccess:
        """Return the access to a queue that its annotation or that of an ancestor states."""
        if name not in self._access:
            self._access[name] = effective_queue_access(
                name, self._parent_of, self._access_annotation
            )
        return self._access[name]

    def stop_policy(self, name: str) -> EffectiveStopPolicy:
        """Return whether a queue is held, by its annotation or that of an ancestor."""
        if name not in self._stop_policies:
            self._stop_policies[name] = effective_stop_policy(
                name, self._parent_of, self._stop_annotation
            )
        return self._stop_policies[name]

    def held_failure(self, name: str) -> PreFilterFailure | None:
        """Return that nothing starts in a queue; None if it is not held."""
        stopped = self.stop_policy(name)
        if not stopped.is_held:
            return None
        values = name, str(stopped), release_command(stopped.decided_by)
        return PreFilterFailure(PreFilterCause.QUEUE_HELD, values)

    def table(
        self,
        allocated: list[list[int]],
        non_preemptible: list[list[int]],
        requested: list[list[int]],
    ) -> SnapshotQueues:
        """Return the rows; the amounts of each queue are increased by those of its descendants."""
        return replace(
            self._static,
            allocated=self._with_descendants(allocated),
            non_preemptible=self._with_descendants(non_preemptible),
            requested=self._with_descendants(requested),
        )

    @cached_property
    def _static(self) -> SnapshotQueues:
        """Return the rows without the amounts that queues use and request."""
        size = (len(self.names), len(ResourceKind))
        none = np.zeros(size, dtype=np.int64)
        quota, limit = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        weight = np.zeros(size, dtype=np.float64)
        for row, name in enumerate(self.names):
            for (kind, scale), share in zip(_SCALES, self._shares(name), strict=True):
                quota[row, kind] = _bound(share.quota, scale)
                limit[row, kind] = _bound(share.limit, scale)
                weight[row, kind] = float(min(share.over_quota_weight, Decimal(_MAX_WEIGHT)))
        priorities = (self._queues[name].spec.priority for name in self.names)
        return SnapshotQueues(
            names=self.names,
            parent=self.parent,
            priority=tuple(_DEFAULT_PRIORITY if p is None else p for p in priorities),
            quota=quota,
            limit=limit,
            weight=weight,
            allocated=none,
            non_preemptible=none,
            requested=none,
            preempt_min_s=self._min_s("preempt_min_runtime"),
            reclaim_min_s=self._min_s("reclaim_min_runtime"),
            is_quota_only=self._quota_only(),
            absent=frozenset(
                (row, kind)
                for row, name in enumerate(self.names)
                for kind in _absent_kinds(self._queues[name])
            ),
            drained=self._drained(),
            strict=self._rows_with(QueueDiscipline.STRICT),
            reserving=self._rows_with(QueueDiscipline.RESERVE),
        )

    def _parent_of(self, name: str) -> str:
        return self._queues[name].spec.parent_queue if name in self._queues else ""

    def _access_annotation(self, name: str) -> str | None:
        return _annotation(self._queues[name], ACCESS) if name in self._queues else None

    def _order_annotation(self, name: str) -> str | None:
        return _annotation(self._queues[name], QUEUE_ORDER) if name in self._queues else None

    def _stop_annotation(self, name: str) -> str | None:
        return _annotation(self._queues[name], STOP_POLICY) if name in self._queues else None

    def _rows_with(self, order: QueueDiscipline) -> frozenset[int]:
        if not any(QUEUE_ORDER in it.metadata.annotations for it in self._queues.values()):
            return frozenset()
        return frozenset(
            row
            for row, name in enumerate(self.names)
            if effective_discipline(name, self._parent_of, self._order_annotation) is order
        )

    def _drained(self) -> frozenset[int]:
        """Walk down from the top, because a parent drains all queues below it."""
        drained: set[int] = set()
        for row in reversed(self._bottom_up):
            is_asked = self._stop_annotation(self.names[row]) == StopPolicy.HOLD_AND_DRAIN
            if is_asked or self.parent[row] in drained:
                drained.add(row)
        return frozenset(drained)

    def _quota_only(self) -> tuple[bool, ...]:
        """Return the queues with children that reclaim only up to their quotas."""
        flags = tuple(
            _annotation(self._queues[it], RECLAIM_GOAL) == "quota-only" for it in self.names
        )
        return flags if any(flags) else ()

    def _min_s(self, field: str) -> tuple[int, ...]:
        """Return the minimum runtime in seconds that each queue sets, NONE where it is not set."""
        seconds = [
            duration_s(getattr(self._effective_specs[name][0], field)) for name in self.names
        ]
        return tuple(seconds) if any(it != NONE for it in seconds) else ()

    def _shares(self, name: str) -> tuple[QueueResource, QueueResource, QueueResource]:
        resources = self._effective_specs[name][0].resources or QueueResources()
        return resources.cpu, resources.memory, resources.gpu

    def _with_descendants(self, amounts: list[list[int]]) -> Ints:
        for row in self._bottom_up:
            above = self.parent[row]
            if above != NONE:
                amounts[above] = [*map(add, amounts[above], amounts[row])]
        return cut(amounts, len(ResourceKind))

    def _bottom_up_rows(self) -> tuple[int, ...]:
        below = [0] * len(self.names)  # how many children are still to come
        for above in self.parent:
            if above != NONE:
                below[above] += 1
        rows = [row for row, count in enumerate(below) if not count]
        for row in rows:
            above = self.parent[row]
            if above != NONE:
                below[above] -= 1
                if not below[above]:
                    rows.append(above)
        return tuple(rows)

    def _is_valid(self, name: str) -> bool:
        """Walk up from a queue; note the valid queues, and the faults of the others."""
        seen: dict[str, None] = {}
        one, fault = name, None
        while fault is None and one and one not in self._valid:
            seen[one] = None
            parent = self._queues[one].spec.parent_queue
            fault = self._faults.get(one)
            if fault is None and parent in seen:
                circle = " → ".join(_cycle(list(seen), parent))
                fault = PreFilterFailure(PreFilterCause.QUEUE_CYCLE, (parent, circle))
            if fault is None and parent and parent not in self._queues:
                fault = PreFilterFailure(PreFilterCause.PARENT_QUEUE_MISSING, (one, parent))
            one = parent
        if fault is None:
            self._valid.update(seen)
        else:
            self._faults.update((below, fault) for below in seen if below not in self._faults)
        return fault is None

    def _find_failure(self, name: str) -> PreFilterFailure | None:
        if not name:
            values: tuple[str, ...] = (self._usable_queues(),)
            return PreFilterFailure(PreFilterCause.QUEUE_NOT_NAMED, values)
        if name not in self._queues:
            values = name, self._usable_queues(similar_to=name)
            return PreFilterFailure(PreFilterCause.QUEUE_MISSING, values)
        fault = self._faults.get(name)
        is_inner = name in self._parent_names and (
            fault is None or fault.reason != UnschedulableReason.MISCONFIGURED
        )
        if is_inner:
            values = name, listed_names(self._leaf_queues_below(name), _MAX_NAMES)
            return PreFilterFailure(PreFilterCause.QUEUE_HAS_CHILDREN, values)
        return fault

    def _usable_queues(self, similar_to: str = "") -> str:
        """Return the queues that take PodGroups; not closed ones, where there are others.

        The one that was probably meant comes first, also if it is closed.
        """
        leaves = sorted(name for name in self.names if name not in self._parent_names)
        not_closed = [it for it in leaves if self.access(it).mode is not QueueAccessMode.CLOSED]
        names = not_closed or leaves
        meant = similar_name(similar_to, leaves)
        if meant:
            others = [it for it in names if it != meant]
            names = [f"{meant} (did you mean this one?)", *others]
        return listed_names(names, _MAX_NAMES)

    def _leaf_queues_below(self, name: str) -> list[str]:
        """Return the leaf queues below a queue; none below an invalid one."""
        names = [name] if name in self.row_by_name else []
        for one in names:
            names += self._children.get(one, ())
        return sorted(one for one in names if one not in self._parent_names)


def _cycle(path: list[str], back: str) -> Iterator[str]:
    names = path[path.index(back) :]
    yield from names[:_MAX_NAMES]
    if len(names) > _MAX_NAMES:
        yield "…"
    yield back


def _age(queue: Queue) -> tuple[int, str]:
    return epoch_s(queue.metadata.creation_timestamp) or 0, queue.metadata.uid


def _annotation(queue: Queue, annotation: str) -> str | None:
    return queue.metadata.annotations.get(annotation)


def _constraint(annotations: Mapping[str, str]) -> TopologyConstraint:
    return TopologyConstraint(
        topology=annotations[TOPOLOGY],
        required_topology_level=annotations.get(TOPOLOGY_REQUIRED, ""),
        preferred_topology_level=annotations.get(TOPOLOGY_PREFERRED, ""),
    )


def _absent_kinds(queue: Queue) -> Iterator[int]:
    resources = queue.spec.resources or QueueResources()
    for kind, _ in _SCALES:
        if getattr(resources, kind.name.lower()) is ABSENT_RESOURCE:
            yield kind


def _relevant_parts(queue: Queue) -> tuple[object, ...]:
    goal = _annotation(queue, RECLAIM_GOAL) or _ALLOWED_VALUES[RECLAIM_GOAL][0]
    notes = tuple(
        _annotation(queue, it) for it in (CONSOLIDATION, ACCESS, STOP_POLICY, QUEUE_ORDER)
    )
    absent = tuple(_absent_kinds(queue))  # equal to a resource whose numbers are 0
    topology = [_annotation(queue, it) for it in TOPOLOGY_ANNOTATIONS]
    return queue.spec, absent, _age(queue), goal, notes, _misspelled(queue), topology


def _misspelled(queue: Queue) -> tuple[FieldError, ...]:
    meta = queue.metadata
    return tuple(misspelled_keys(meta.labels, meta.annotations, QUEUE_KEYS))


def _numbers_too_large(shares: Iterable[QueueResource]) -> Iterator[str]:
    """Yield the numbers that are so large that another one counts in their place."""
    for (kind, scale), share in zip(_SCALES, shares, strict=True):
        for field, number, limit in (
            ("quota", share.quota, _MAX_BOUND // scale),
            ("limit", share.limit, _MAX_BOUND // scale),
            ("overQuotaWeight", share.over_quota_weight, _MAX_WEIGHT),
        ):
            if number > limit:
                path = f"spec.resources.{kind.name.lower()}.{field}"
                yield f"{path} is {float(number):g}; the largest value, {limit}, is used"


def _bound(number: Decimal, scale: int) -> int:
    if number < 0:
        return UNBOUND
    return _MAX_BOUND if number > _MAX_BOUND // scale else int(number * scale)


def with_reclaimable_resizes(snapshot: Snapshot, resized: Collection[int]) -> Snapshot:
    """Return a snapshot in which no PodGroup of resized pods exceeds a quota for ever."""
    rows = {int(snapshot.pods.podgroup[pod]) for pod in resized} - {NONE}
    fixed = [row for row in sorted(rows, reverse=True) if _is_fixed(snapshot.podgroups[row])]
    if not fixed:
        return snapshot
    usage = Usage(snapshot.queues)
    if not any(_exceeding(usage, snapshot.podgroups[row].queue) for row in fixed):
        return snapshot
    podgroups = [*snapshot.podgroups]
    allocated, _ = allocated_by_podgroup(snapshot)

    def release(row: int) -> None:
        for each in _evicted_together(podgroups, row):
            queue, (cpu, memory, gpu) = podgroups[each].queue, allocated[each]
            podgroups[each] = replace(podgroups[each], is_preemptible=True)
            usage.refund(queue, (cpu, memory, gpu), is_non_preemptible=True)
            usage.charge(queue, (cpu, memory, gpu), is_non_preemptible=False)

    # First the queues whose own quota is exceeded: their siblings do not pay for them.
    for is_own in (True, False):
        for row in fixed:
            queue = podgroups[row].queue
            exceeding = _exceeding(usage, queue)
            if _is_fixed(podgroups[row]) and (queue in exceeding if is_own else exceeding):
                release(row)
    non_preemptible = cut(usage.non_preemptible, len(RESOURCE_KINDS))
    queues = replace(snapshot.queues, non_preemptible=non_preemptible)
    return replace(snapshot, podgroups=tuple(podgroups), queues=queues)


def _is_fixed(podgroup: PodGroupInfo) -> bool:
    return not podgroup.is_preemptible and podgroup.queue != NONE


def _exceeding(usage: Usage, queue: int) -> list[int]:
    """Return which of a queue and those above it have more than their quota."""
    return [
        q
        for q in usage.paths[queue]
        if any(
            usage.non_preemptible[q][kind] > usage.quota[q][kind] != UNBOUND for kind in _RESIZABLE
        )
    ]


def _evicted_together(podgroups: Sequence[PodGroupInfo], row: int) -> list[int]:
    workload = podgroups[row].workload
    rows = [row] if not workload else range(len(podgroups))
    return [it for it in rows if podgroups[it].workload == workload and _is_fixed(podgroups[it])]
