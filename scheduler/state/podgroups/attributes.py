"""Queue, priority, evictability and times of a PodGroup, read from its objects.

That a workload is evicted is read from its PodGroup, not from the object that is
suspended, which its user may write. If another controller manages that, its PodGroups are evicted
like those without a workload.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from scheduler.core.model.resources import NONE
from scheduler.state.inputs import StateOptions, epoch_s
from scheduler.state.podgroups.missing_pods import is_short, replaces_lost_pods, staleness_grace_s
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import (
    GATED,
    PENDING,
    RELEASING,
    RUNNING,
    STUCK_RELEASING,
    SUCCEEDED,
    PodTable,
)
from trainer_kai.api.cluster_kinds import PriorityClass, ResourceQuota, ScopeRequirement
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    EVICTED_BY,
    KUEUE_QUEUE,
    LAST_CHECKPOINT,
    LAST_EVICTION,
    LAST_START,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    STALE_SINCE,
)
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import DurationError, nanoseconds
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.policy.podgroups.eviction_record import is_evicted
from trainer_kai.policy.queueing.priority_classes import (
    PREEMPTIBLE_BELOW,
    PriorityQuotas,
    SelectablePriorityClasses,
    priority_class_scopes,
)
from trainer_kai.policy.workloads.kinds import named_suspendable
from trainer_kai.policy.workloads.workload import ObjectKey, Suspendable, Workload, Workloads

_GRACE_S: Final = 30  # of the pods of a workload that is ended, by default
_LONGEST_S: Final = 10 * 365 * 24 * 3600  # a longer deadline is none
_LAST_END: Final = 2**34  # as is a later end, in seconds since 1970
_RELOCATING: Final = "the PodGroup is being relocated"
_NANOSECONDS: Final = 10**9  # in a second
_ON_NODE: Final = (RUNNING, RELEASING, STUCK_RELEASING)  # a terminating pod still counts
_EXISTING: Final = (PENDING, GATED, *_ON_NODE)
_ALIVE: Final = (PENDING, GATED, RUNNING)


class PodGroupAttributes(NamedTuple):
    """Queue, priority and preemptibility of one PodGroup or pod; an empty queue is none."""

    queue: str
    priority: int
    is_preemptible: bool
    refusal: str = ""  # why the requested priority class does not count
    fallback_queue: str = ""  # the queue if *queue* takes no PodGroups


class QuotaScopes:
    def __init__(self) -> None:
        self._by_namespace: Final[dict[str, dict[str, tuple[ScopeRequirement, ...]]]] = {}

    def of_namespace(self, namespace: str) -> PriorityQuotas:
        return self._by_namespace.get(namespace, {})

    def read(self, changes: Mapping[Key, ResourceQuota | None]) -> set[str]:
        """Apply changed quotas; return the namespaces with changed scopes."""
        changed = set()
        for key, quota in changes.items():
            scopes_by_name = self._by_namespace.setdefault(key.namespace, {})
            scopes = priority_class_scopes(quota) if quota else ()
            if scopes != scopes_by_name.get(key.name, ()):
                scopes_by_name[key.name] = scopes
                changed.add(key.namespace)
        for namespace in changed:  # sorted, so that messages do not depend on the order of events
            scopes_by_name = self._by_namespace[namespace]
            self._by_namespace[namespace] = {
                name: scopes_by_name[name]
                for name in sorted(scopes_by_name)
                if scopes_by_name[name]
            }
        return changed


class AttributeResolver:
    def __init__(
        self,
        classes: Mapping[str, PriorityClass],
        quotas: QuotaScopes,
        groups: Mapping[Key, PodGroup],
        options: StateOptions,
    ) -> None:
        self._quotas: Final = quotas
        self._groups: Final = groups
        self._default_queue: Final = options.default_queue
        self._classes: Final = SelectablePriorityClasses(classes, options.priority_classes)
        self._refusals: Final[dict[tuple[str, str], str | None]] = {}  # by namespace and class

    def of_podgroup(self, record: PodGroupRecord) -> PodGroupAttributes:
        """Return the attributes of a PodGroup; if it does not exist, those of its pods."""
        if record.group is None:
            candidates = map(self.of_misplaced, record.pod_classes)
            attributes = min(candidates, default=self._attributes("", "", "", None))
            # Without a fallback queue no queue could reclaim from it.
            return attributes._replace(
                is_preemptible=not record.is_pending_creation, fallback_queue=self._default_queue
            )
        spec, name = record.group.spec, record.group.spec.priority_class_name
        refusal = self._refusal(record.key.namespace, name)
        if refusal is None or _is_admitted(record, name):
            return self._attributes(spec.queue, name, spec.preemptibility, None)
        is_named = _is_class_named(record, name)
        message = None if is_named else f"spec.priorityClassName: {refusal}"
        return self._attributes(spec.queue, "", spec.preemptibility, message)

    def of_standalone(self, pod_class: PodClass) -> PodGroupAttributes:
        """Return the attributes of pods without a PodSet, from their own labels.

        If they name a PodGroup, they got their nodes in its queue, and a queue label of their own
        does not move them to another.
        """
        labels, own = pod_class.labels, pod_class.spec.priority_class_name
        name, refusal = labels.get(PRIORITY_CLASS_NAME) or own, None
        if name != own:
            refusal = self._refusal(pod_class.namespace, name)
            refusal = refusal and f"metadata.labels[{PRIORITY_CLASS_NAME}]: {refusal}"
        group_name = pod_class.podgroup_name
        group = self._groups.get(Key(pod_class.namespace, group_name)) if group_name else None
        queue = group.spec.queue if group else labels.get(QUEUE) or self._default_queue
        return self._attributes(queue, name, labels.get(PREEMPTIBILITY, ""), refusal)

    def of_misplaced(self, pod_class: PodClass) -> PodGroupAttributes:
        """Return the attributes of pods that have no PodSet in their PodGroup.

        They are preemptible, whatever their labels say: else a pod could avoid eviction by naming
        another PodGroup.
        """
        return self.of_standalone(pod_class)._replace(is_preemptible=True, refusal="")

    def _refusal(self, namespace: str, name: str) -> str | None:
        """Say why a priority class counts only if the specs of the pods name it; cached."""
        key = namespace, name
        if key not in self._refusals:
            quotas = self._quotas.of_namespace(namespace)
            self._refusals[key] = self._classes.refusal(name, quotas)
        return self._refusals[key]

    def _attributes(
        self, queue: str, name: str, preemptibility: str, refusal: str | None
    ) -> PodGroupAttributes:
        """Return the attributes; a refused priority class does not count, also for running pods."""
        priority = self._classes.default if refusal else self._classes.value(name)
        is_preemptible = priority < PREEMPTIBLE_BELOW
        if preemptibility in PREEMPTIBILITIES:
            is_preemptible = preemptibility == PREEMPTIBILITIES[0]
        return PodGroupAttributes(queue, priority, is_preemptible, refusal or "")


def _is_admitted(record: PodGroupRecord, name: str) -> bool:
    """Say whether the API server admitted all pods with a priority class, and expects no more."""
    return _priority_classes_of(record.pod_classes) == {name} and not any(
        map(record.expected_count, record.expected)
    )


def _is_class_named(record: PodGroupRecord, name: str) -> bool:
    """Say whether a pod of a PodGroup, existing or expected, names a priority class."""
    return name in _priority_classes_of(
        [*record.pod_classes, *(pod_class for pod_class, _ in record.expected.values())]
    )


def _priority_classes_of(pod_classes: Iterable[PodClass]) -> set[str]:
    return {pod_class.spec.priority_class_name for pod_class in pod_classes}


class Evictability:
    """Which PodGroups may be evicted: a workload is suspended and resumed, or left alone."""

    def __init__(
        self,
        owners: Mapping[ObjectKey, Suspendable],
        suspend_refusals: Mapping[ObjectKey, str],
        reverted: Mapping[ObjectKey, str],
        *,
        kueue: bool,
        max_grace_s: int,
    ) -> None:
        self._max_grace_s: Final = max_grace_s
        self._owners: Final = owners
        self._reverted: Final = reverted
        self._suspend_refusals: Final = suspend_refusals  # of those that could not be suspended
        self._kueue: Final = kueue

    def can_be_suspended(self, record: PodGroupRecord) -> bool:
        found = controlling_suspendable(record.workload, self._owners)
        return found is not None and not is_reverted(found, self._reverted)

    def checkpoint_at(self, record: PodGroupRecord) -> int:
        """Return when a PodGroup saved its last checkpoint, in seconds since 1970; 0 is never."""
        found = controlling_suspendable(record.workload, self._owners)
        text = found.metadata.annotations.get(LAST_CHECKPOINT, "") if found else ""
        return max(epoch_s(text) or 0, 0)

    def ends_at(self, record: PodGroupRecord) -> int:
        """Return when the controller of a PodGroup will have ended it; 0 if no deadline says it.

        Its pods have their grace periods from then on.
        """
        found = controlling_suspendable(record.workload, self._owners)
        if found is None or not 0 < found.deadline_s < _LONGEST_S:
            return 0
        begin = epoch_s(found.deadline_from)
        classes = [*record.pod_classes, *(it for it, _ in record.expected.values())]
        graces = [it.spec.termination_grace_period_seconds for it in classes]
        grace_s = max([_GRACE_S if it is None else it for it in graces], default=_GRACE_S)
        end = (begin or 0) + found.deadline_s + min(grace_s, self._max_grace_s)
        return end if begin and end < _LAST_END else 0

    def non_evictable_reason(self, record: PodGroupRecord) -> str:
        if record.is_relocating:
            return _RELOCATING
        found = controlling_suspendable(record.workload, self._owners)
        if found is None:
            return ""
        return suspend_refusal(found, kueue=self._kueue) or self._suspend_refusals.get(
            found.key, ""
        )


def is_partly_succeeded(record: PodGroupRecord) -> bool:
    """Say whether some pods of a workload's PodGroup have started, and others have succeeded."""
    is_any_done = any(record.count_of(name, SUCCEEDED) for name in record.min_members)
    return bool(record.workload_uid) and record.has_started and is_any_done


def suspend_refusal(found: Suspendable, *, kueue: bool) -> str | None:
    """Say why it is not evicted; a label of Kueue counts if *kueue* says that Kueue runs."""
    return (
        f"Kueue suspends and resumes the {found.key.kind}"
        if kueue and KUEUE_QUEUE in found.metadata.labels
        else None
    )


def is_reverted(found: Suspendable, reverted: Mapping[ObjectKey, str]) -> bool:
    """Say whether another client resumed it during an eviction: its pods are evicted."""
    return reverted.get(found.key) == found.metadata.uid


def will_run_again(found: Suspendable, group: PodGroup) -> bool:
    """Say whether it is not suspended, or only because one of its PodGroups was evicted."""
    return not found.is_suspended or is_suspended_by_eviction(found, group)


def is_suspended_by_eviction(found: Suspendable, group: PodGroup) -> bool:
    return found.is_suspended and is_evicted(found, group)


def has_eviction_copy(found: Suspendable) -> bool:
    """Say whether it is suspended and has an eviction record: the scheduler's or a user's copy."""
    return found.is_suspended and bool(found.metadata.annotations.get(EVICTED_BY))


def owning_workload(group: PodGroup | None, workloads: Workloads) -> Workload | None:
    meta = group.metadata if group else Meta()
    for owner in meta.owner_references:
        workload = workloads.get(ObjectKey(owner.kind, meta.namespace, owner.name))
        if workload is not None and workload.metadata.uid == owner.uid:
            return workload
    return None


def controlling_suspendable(
    workload: Workload | None, owners: Mapping[ObjectKey, Suspendable]
) -> Suspendable | None:
    """Return what suspends a workload; None if another controller manages that, or if unknown."""
    found = named_suspendable(workload, owners)
    return found if found is not None and found.is_managed_here else None


def preemption_delay_until(meta: Meta, delay: str) -> int:
    """Return until when a PodGroup may evict no others, in seconds since 1970; 0 without a delay.

    The delay counts from the creation or the last eviction of the PodGroup.
    """
    delay_s = duration_s(delay)
    if delay_s <= 0:
        return 0
    created_at = epoch_s(meta.creation_timestamp) or 0
    evicted_at = epoch_s(meta.annotations.get(LAST_EVICTION, "")) or 0
    return max(created_at, evicted_at) + delay_s


def running_since(record: PodGroupRecord, pod_table: PodTable) -> int:
    """Return when a PodGroup began to run, in seconds since 1970; 0 if not, or if unknown.

    Without an annotation on the PodGroup it is when the first of its running pods was scheduled:
    pods that join later or come back do not change it.
    """
    if not any(record.count_of(podset, RUNNING) for podset in record.min_members):
        return 0
    written = (
        epoch_s(record.group.metadata.annotations.get(LAST_START, "")) if record.group else None
    )
    if written:
        return written
    is_counted, state = pod_table.class_table.is_counted, pod_table.state
    return min(
        (
            scheduled
            for pod_class in record.pod_classes
            if is_counted[pod_class.number]
            for pod_row in pod_class.pod_rows
            if state[pod_row] == RUNNING and (scheduled := scheduled_at(pod_table.pod(pod_row)))
        ),
        default=0,
    )


def scheduled_at(pod: Pod) -> int:
    """Return when a pod was scheduled, in seconds since 1970; 0 if unknown."""
    for one in pod.status.conditions:
        if one.type == "PodScheduled":
            return (epoch_s(one.last_transition_time or "") or 0) if one.status == "True" else 0
    return 0


def duration_s(duration: str) -> int:
    """Return a duration in whole seconds, rounded up; NONE if it is empty or invalid."""
    try:
        return max(-(-nanoseconds(duration) // _NANOSECONDS), 0) if duration else NONE
    except DurationError:
        return NONE


def stale_at(
    record: PodGroupRecord, options: StateOptions, observed_since: Mapping[Key, int]
) -> int | None:
    """Return when a PodGroup becomes stale, in seconds since 1970; None for never."""
    group = record.group
    if group is None or not _may_be_short(record) or not replaces_lost_pods(group, record.workload):
        return None
    grace_s = staleness_grace_s(group, options.staleness_grace_s)
    if grace_s < 0:
        return None
    if not options.observes_staleness:
        since = _annotated_since(group, record, has_grace=grace_s > 0)
    elif _waits_for_nodes(group, record):
        since = observed_since.get(record.key)
    else:  # the observation is a moment old
        since = None
    return None if since is None else since + math.ceil(grace_s)


def _annotated_since(group: PodGroup, record: PodGroupRecord, *, has_grace: bool) -> int | None:
    """Return since when a PodGroup lacks pods by its annotation; terminating pods still count."""
    if not is_short(group, _counts(record, _ON_NODE), _counts(record, _EXISTING)):
        return None
    since = epoch_s(group.metadata.annotations.get(STALE_SINCE, ""))
    return 0 if since is None and not has_grace else since


def _waits_for_nodes(group: PodGroup, record: PodGroupRecord) -> bool:
    """Say whether a PodGroup lacks pods on nodes, and all the missing pods exist."""
    existing = _counts(record, _ALIVE)
    return is_short(group, _counts(record, (RUNNING,)), existing) and not is_short(
        group, existing, existing
    )


def _may_be_short(record: PodGroupRecord) -> bool:
    """Say whether a PodGroup may lack pods: a quick test that most PodGroups fail."""
    min_members = record.min_members
    return (
        record.is_valid
        and any(
            record.count_of(podset, RUNNING) < minimum for podset, minimum in min_members.items()
        )
        and any(record.count_of(podset, RUNNING) for podset in min_members)
        and not any(record.count_of(podset, SUCCEEDED) for podset in min_members)
    )


def _counts(record: PodGroupRecord, states: tuple[int, ...]) -> Counter[str]:
    return Counter(
        {
            podset: sum(record.count_of(podset, one) for one in states)
            for podset in record.min_members
        }
    )
