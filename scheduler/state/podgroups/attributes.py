"""Queue, priority, evictability and times of a PodGroup, as its objects say them.

A PodGroup says that its TrainJob is evicted; the TrainJob itself, which its user may write, does
not. A TrainJob of another controller has no JobSets built by Trainer: its PodGroups are evicted as
those of no TrainJob.
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
from trainer_kai.api.duration import DurationError, nanoseconds
from trainer_kai.api.jobset import JobSet
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
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.owners import same_name_trainjob_owner
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.quota import ResourceQuota, ScopeRequirement
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.podgroups.eviction_record import is_evicted
from trainer_kai.policy.queueing.priority_classes import (
    PREEMPTIBLE_BELOW,
    PriorityQuotas,
    SelectablePriorityClasses,
    priority_class_scopes,
)

__all__ = [
    "AttributeResolver",
    "Evictability",
    "PodGroupAttributes",
    "QuotaScopes",
    "controlling_trainjob",
    "controlling_trainjob_key",
    "duration_s",
    "has_eviction_copy",
    "is_partly_succeeded",
    "is_suspended_by_eviction",
    "preemption_delay_until",
    "running_since",
    "scheduled_at",
    "stale_at",
    "suspend_refusal",
    "will_run_again",
]


class PodGroupAttributes(NamedTuple):
    """Of one unit; no queue is the queue of nobody."""

    queue: str
    priority: int
    is_preemptible: bool
    refusal: str = ""  # why the class that was chosen does not count
    fallback_queue: str = ""  # whose it is if that queue takes no units


class QuotaScopes:
    """What the quotas of each namespace say of the priority of pods."""

    def __init__(self) -> None:
        self._by_namespace: Final[dict[str, dict[str, tuple[ScopeRequirement, ...]]]] = {}

    def of_namespace(self, namespace: str) -> PriorityQuotas:
        """Return it of one namespace, by the names of its quotas."""
        return self._by_namespace.get(namespace, {})

    def read(self, reported: Mapping[Key, ResourceQuota | None]) -> set[str]:
        """Take quotas as they are now; return the namespaces for which that makes a difference."""
        changed = set()
        for key, quota in reported.items():
            scopes_by_name = self._by_namespace.setdefault(key.namespace, {})
            scopes = priority_class_scopes(quota) if quota else ()
            if scopes != scopes_by_name.get(key.name, ()):
                scopes_by_name[key.name] = scopes
                changed.add(key.namespace)
        for namespace in changed:  # by name, so that what is told does not depend on the past
            scopes_by_name = self._by_namespace[namespace]
            self._by_namespace[namespace] = {
                name: scopes_by_name[name]
                for name in sorted(scopes_by_name)
                if scopes_by_name[name]
            }
        return changed


class AttributeResolver:
    """Of gangs, and of pods on their own."""

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
        """Return what a group says; of one that does not exist what its pods say."""
        if record.group is None:
            candidates = map(self.of_misplaced, record.pod_classes)
            attributes = min(candidates, default=self._attributes("", "", "", None))
            fallback_queue = self._default_queue  # else nobody could take anything back from it
            return attributes._replace(
                is_preemptible=not record.is_pending_creation, fallback_queue=fallback_queue
            )
        spec, name = record.group.spec, record.group.spec.priority_class_name
        refusal = self._refusal(record.key.namespace, name)
        if refusal is None or _is_admitted(record, name):
            return self._attributes(spec.queue, name, spec.preemptibility, None)
        reported = None if _is_class_named(record, name) else f"spec.priorityClassName: {refusal}"
        return self._attributes(spec.queue, "", spec.preemptibility, reported)

    def of_standalone(self, pod_class: PodClass) -> PodGroupAttributes:
        """Return what pods without a place in a group say themselves.

        In the queue of a group that they name they got their nodes: a label that no longer is, or
        never was, that of the group takes them to no other.
        """
        labels, own = pod_class.labels, pod_class.spec.priority_class_name
        name, refusal = labels.get(PRIORITY_CLASS_NAME) or own, None
        if name != own:
            refusal = self._refusal(pod_class.namespace, name)
            refusal = refusal and f"metadata.labels[{PRIORITY_CLASS_NAME}]: {refusal}"
        group = (
            self._groups.get(Key(pod_class.namespace, pod_class.podgroup_name))
            if pod_class.podgroup_name
            else None
        )
        queue = group.spec.queue if group else labels.get(QUEUE) or self._default_queue
        return self._attributes(queue, name, labels.get(PREEMPTIBILITY, ""), refusal)

    def of_misplaced(self, pod_class: PodClass) -> PodGroupAttributes:
        """Return what pods say that run without a place in the group that they name.

        They can be preempted, whatever they say: else to name another group would be a way to stay.
        """
        return self.of_standalone(pod_class)._replace(is_preemptible=True, refusal="")

    def _refusal(self, namespace: str, name: str) -> str | None:
        """Say why a class counts only if the pods' own specs name it; many ask for the same."""
        namespace_and_class = namespace, name
        if namespace_and_class not in self._refusals:
            quotas = self._quotas.of_namespace(namespace)
            self._refusals[namespace_and_class] = self._classes.refusal(name, quotas)
        return self._refusals[namespace_and_class]

    def _attributes(
        self, queue: str, name: str, preemptibility: str, refusal: str | None
    ) -> PodGroupAttributes:
        """Let a class that was refused count for nothing: what runs with it gains nothing."""
        priority = self._classes.default if refusal else self._classes.value(name)
        is_preemptible = priority < PREEMPTIBLE_BELOW
        if preemptibility in PREEMPTIBILITIES:
            is_preemptible = preemptibility == PREEMPTIBILITIES[0]
        return PodGroupAttributes(queue, priority, is_preemptible, refusal or "")


def _is_admitted(record: PodGroupRecord, name: str) -> bool:
    """Say whether the API server admitted all pods of a gang with a class, and none is to come."""
    return _priority_classes_of(record.pod_classes) == {name} and not any(
        map(record.expected_count, record.expected)
    )


def _is_class_named(record: PodGroupRecord, name: str) -> bool:
    """Say whether a pod of a gang names a class, be it one that is to come."""
    return name in _priority_classes_of(
        [*record.pod_classes, *(pod_class for pod_class, _ in record.expected.values())]
    )


def _priority_classes_of(class_table: Iterable[PodClass]) -> set[str]:
    return {pod_class.spec.priority_class_name for pod_class in class_table}


_RELOCATING: Final = "it is on its way to another place"


class Evictability:
    """A TrainJob is suspended and resumed, or let alone."""

    def __init__(
        self, trainjobs: Mapping[Key, TrainJob], suspend_refusals: Mapping[Key, str], *, kueue: bool
    ) -> None:
        self._trainjobs: Final = trainjobs
        self._suspend_refusals: Final = (
            suspend_refusals  # why it cannot be suspended, where that was tried
        )
        self._kueue: Final = kueue

    def has_trainjob(self, record: PodGroupRecord) -> bool:
        """Say whether a gang is of a TrainJob that is there."""
        return controlling_trainjob(record.jobset, self._trainjobs) is not None

    def checkpoint_at(self, record: PodGroupRecord) -> int:
        """Return when a gang says it saved its work last, in seconds since 1970; 0 is never."""
        job = controlling_trainjob(record.jobset, self._trainjobs)
        text = job.metadata.annotations.get(LAST_CHECKPOINT, "") if job else ""
        return max(epoch_s(text) or 0, 0)

    def non_evictable_reason(self, record: PodGroupRecord) -> str:
        """Return why nobody may take anything from a gang; nothing if somebody may."""
        if record.is_relocating:
            return _RELOCATING
        job = controlling_trainjob(record.jobset, self._trainjobs)
        if job is None:
            return ""
        return suspend_refusal(job, kueue=self._kueue) or self._suspend_refusals.get(
            job.metadata.key, ""
        )


def is_partly_succeeded(record: PodGroupRecord) -> bool:
    """Say whether some pods of a JobSet's gang are there, and others have succeeded."""
    is_any_done = any(record.count_of(name, SUCCEEDED) for name in record.min_members)
    return bool(record.jobset_uid) and record.has_started and is_any_done


def suspend_refusal(job: TrainJob, *, kueue: bool) -> str | None:
    """Say why a TrainJob is not evicted; its label counts where the site says that *kueue* runs."""
    return "Kueue suspends and resumes it" if kueue and KUEUE_QUEUE in job.metadata.labels else None


def will_run_again(job: TrainJob, group: PodGroup) -> bool:
    """Say whether a TrainJob runs, or was suspended for a moment only, by one of its PodGroups."""
    return not job.spec.suspend or is_suspended_by_eviction(job, group)


def is_suspended_by_eviction(job: TrainJob, group: PodGroup) -> bool:
    """Say whether a TrainJob is suspended, and one of its PodGroups says that it was evicted."""
    return job.spec.suspend and is_evicted(job, group)


def has_eviction_copy(job: TrainJob) -> bool:
    """Say whether a suspended TrainJob carries a copy of a record: our own, or its user's words."""
    return job.spec.suspend and bool(job.metadata.annotations.get(EVICTED_BY))


def controlling_trainjob(
    jobset: JobSet | None, trainjobs: Mapping[Key, TrainJob]
) -> TrainJob | None:
    """Return the very TrainJob that controls a JobSet, if Trainer builds JobSets for it."""
    owner = same_name_trainjob_owner(jobset.metadata) if jobset else None
    job = trainjobs.get(jobset.metadata.key) if jobset and owner else None
    if job is None or owner is None or job.metadata.uid != owner.uid:
        return None
    return job if job.spec.managed_by in {"", TRAINJOB_CONTROLLER} else None


def controlling_trainjob_key(jobset: JobSet | None) -> Key | None:
    """Return which TrainJob a JobSet is of: it has the same name."""
    if jobset is None or same_name_trainjob_owner(jobset.metadata) is None:
        return None
    return jobset.metadata.key


_NANOSECONDS: Final = 10**9  # nanoseconds


def preemption_delay_until(meta: Meta, delay: str) -> int:
    """Return before when a group takes nothing from others, in seconds since 1970; 0 is never.

    It counts from when it was made, or lost its place last.
    """
    delay_s = duration_s(delay)
    if delay_s <= 0:
        return 0
    made_s = epoch_s(meta.creation_timestamp) or 0
    evicted_s = epoch_s(meta.annotations.get(LAST_EVICTION, "")) or 0
    return max(made_s, evicted_s) + delay_s


def running_since(record: PodGroupRecord, pod_table: PodTable) -> int:
    """Return when a gang began to run, in seconds since 1970; 0 if it does not, or nobody says.

    Where that is not written on its group, the pod that has its place for longest tells it: those
    that join later, or come back, do not make it begin anew.
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
    """Return when a pod got its node, in seconds since 1970; 0 if nobody says."""
    for one in pod.status.conditions:
        if one.type == "PodScheduled":
            return (epoch_s(one.last_transition_time or "") or 0) if one.status == "True" else 0
    return 0


def duration_s(duration: str) -> int:
    """Return a duration in whole seconds, rounded up; NONE where it is not said, or is none."""
    try:
        return max(-(-nanoseconds(duration) // _NANOSECONDS), 0) if duration else NONE
    except DurationError:
        return NONE


_ON_NODE = (RUNNING, RELEASING, STUCK_RELEASING)  # who is going is judged when it is gone
_EXISTING = (PENDING, GATED, *_ON_NODE)


def stale_at(record: PodGroupRecord, usual_grace_s: float) -> int | None:
    """Return from when on a unit counts as stale, in seconds since 1970; None for never."""
    group = record.group
    if group is None or not _may_be_short(record) or not replaces_lost_pods(group, record.jobset):
        return None
    running, existing = _counts_by_podset(record, _ON_NODE), _counts_by_podset(record, _EXISTING)
    grace_s = math.ceil(staleness_grace_s(group, usual_grace_s))
    if grace_s < 0 or not is_short(group, running, existing):
        return None
    stale_since = epoch_s(group.metadata.annotations.get(STALE_SINCE, ""))
    if stale_since is None:
        return None if grace_s else 0
    return stale_since + grace_s


def _may_be_short(record: PodGroupRecord) -> bool:
    """Say whether it is worth a closer look: for most units it is not."""
    min_members = record.min_members
    return (
        record.is_valid
        and any(
            record.count_of(podset, RUNNING) < minimum for podset, minimum in min_members.items()
        )
        and any(record.count_of(podset, RUNNING) for podset in min_members)
        and not any(record.count_of(podset, SUCCEEDED) for podset in min_members)
    )


def _counts_by_podset(record: PodGroupRecord, states: tuple[int, ...]) -> Counter[str]:
    return Counter(
        {
            podset: sum(record.count_of(podset, one) for one in states)
            for podset in record.min_members
        }
    )
