"""The PodGroup manifest of each planned PodGroup, and which of its fields may change.

A manifest is sent as a server-side apply with all fields that we manage, since a field that is left
out would be removed. Fields of other clients (`reserved`, back-off, an assigned topology) are left
out, and stay.

Our scheduler reads KAI's tree: a SubGroup for each replicatedJob, a PodSet for each of its Jobs. An
external scheduler gets a flat PodGroup for each stage, with a minimum that sinks as pods succeed.

Queue, priority and preemptibility decide whether a running PodGroup can be evicted, and users can
change the labels of their workloads. So while a pod is on a node, a change may only make eviction
easier:

- the queue and the node pool do not change;
- the PriorityClass may change to one with a value that is not larger than the current and the
  default one: the scheduler treats a class that a label may not choose as the default one;
- a preemptible PodGroup remains preemptible, by its field and by its class; for the same reason, a
  class alone does not prove that a PodGroup is non-preemptible;
- the staleness grace period does not become longer (without one, KAI's default counts).

All other fields change at once. When no pod is on a node, every field changes.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.names import (
    ANTICIPATED,
    GANG,
    MEMBERS,
    NODE_POOL,
    PREEMPTIBILITY,
    PREEMPTION_DELAY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    STAGE,
    STALENESS_GRACE_PERIOD,
    TOP_OWNER,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.quantity import DurationError, nanoseconds
from trainer_kai.api.requested_values import (
    PREEMPTIBILITIES,
    requested_annotation_faults,
    requested_label_faults,
)
from trainer_kai.api.resources import PODGROUPS
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.anticipated import anticipated_annotation
from trainer_kai.policy.podgroups.grouping import (
    JobPodCounts,
    PlannedPodGroup,
    PlannedSubGroup,
    PodGroupPlan,
    is_initializer,
    podgroup_name,
    podset_name,
)
from trainer_kai.policy.podgroups.segments import segment_prefix
from trainer_kai.policy.queueing.kind_defaults import NO_CHANGES, KindDefault, KindDefaults
from trainer_kai.policy.queueing.priority_classes import (
    PREEMPTIBLE_BELOW,
    SYSTEM_CLASS_PREFIX,
    SelectablePriorityClasses,
)
from trainer_kai.policy.workloads.roles import segment_topology
from trainer_kai.policy.workloads.workload import (
    PodGroupShape,
    StagedJobs,
    SubGroupShape,
    Workload,
)

GroupingMode = Literal["bundled", "external"]
ManifestFields = dict[str, Any]
Spec: TypeAlias = Mapping[str, Any]

NEVER_STALE: Final = "-1s"  # the staleness grace period never ends
_KAI_GRACE: Final = "60s"
_NON_PREEMPTIBLE: Final = PREEMPTIBILITIES[1]


class GroupingRules(NamedTuple):
    mode: GroupingMode
    scheduler_name: str
    default_queue: str
    kueue: bool = False  # Kueue runs in this cluster
    indexed_jobs: bool = False  # all pods of an Indexed Job start together
    kind_defaults: KindDefaults = NO_CHANGES


def podgroup_manifests(
    workload: Workload,
    plan: PodGroupPlan,
    rules: GroupingRules,
    counts: Mapping[str, JobPodCounts] | None = None,
) -> Iterator[ManifestFields]:
    """Yield the wanted PodGroups of a workload; *counts* are its pod counts, in external mode."""
    jobs = {job.name: job for job in workload.spec.replicated_jobs}
    levels = _levels(plan)
    for podgroup, level in zip(plan.podgroups, levels, strict=True):
        annotations = {
            STAGE: _stage_text(podgroup, level, max(levels)),
            MEMBERS: _members_text(podgroup),
            TOP_OWNER: owner_text(_owner(workload)),
        }
        if rules.mode == "bundled":
            name_of = partial(_podgroup_name_of, workload, plan)
            annotations[ANTICIPATED] = anticipated_annotation(podgroup, jobs, name_of)
            spec = _bundled_spec(workload, podgroup, jobs)
        else:
            spec = _flat_spec(workload, podgroup, jobs, counts or {})
        yield {
            "apiVersion": PODGROUPS.api_version,
            "kind": PODGROUPS.kind,
            "metadata": {
                "name": planned_podgroup_name(workload, podgroup),
                "namespace": workload.metadata.namespace,
                "labels": _labels(workload, podgroup),
                "annotations": {name: text for name, text in annotations.items() if text},
                "ownerReferences": [_owner(workload)],
            },
            "spec": {**_requested_fields(workload, podgroup, jobs, rules), **spec},
        }


def planned_podgroup_name(workload: StagedJobs, podgroup: PlannedPodGroup) -> str:
    return podgroup_name(workload.metadata.name, workload.metadata.uid, podgroup.suffix)


def _podgroup_name_of(workload: Workload, plan: PodGroupPlan, name: str) -> str:
    podgroup = plan.podgroup_of(name)
    return planned_podgroup_name(workload, podgroup) if podgroup else ""


def _labels(workload: Workload, podgroup: PlannedPodGroup) -> dict[str, str]:
    labels = {workload.kind.name_label: workload.metadata.name, GANG: podgroup.suffix}
    for name in (QUEUE, NODE_POOL):
        if workload.metadata.labels.get(name):
            labels[name] = workload.metadata.labels[name]
    return labels


def _owner(workload: Workload) -> ManifestFields:
    resource = workload.kind.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": workload.metadata.name,
        "uid": workload.metadata.uid,
    }


def owner_text(owner: ManifestFields) -> str:
    """Write an owner as KAI does, for tools that read it."""
    group, _, version = owner["apiVersion"].rpartition("/")
    return (
        f"name: {owner['name']}\nuid: {owner['uid']}\ngroup: {group}\n"
        f"version: {version}\nkind: {owner['kind']}\n"
    )


def _levels(plan: PodGroupPlan) -> list[int]:
    """Earlier stages are listed first."""
    levels: list[int] = []
    level_of: dict[str, int] = {}
    for podgroup in plan.podgroups:
        levels.append(1 + max((level_of.get(edge.before, 0) for edge in podgroup.after), default=0))
        level_of |= {subgroup.name: levels[-1] for subgroup in podgroup.subgroups}
    return levels


def _stage_text(podgroup: PlannedPodGroup, level: int, last: int) -> str:
    names_by_status: dict[str, list[str]] = {}
    for edge in podgroup.after:
        names_by_status.setdefault(edge.status, []).append(edge.before)
    after = " and ".join(
        f"{', '.join(dict.fromkeys(names))} {status}" for status, names in names_by_status.items()
    )
    return f"{level}/{last}" + (f" after {after}" if after else "")


def _members_text(podgroup: PlannedPodGroup) -> str:
    return " + ".join(
        f"{subgroup.total_pods} {subgroup.name}{' later' if subgroup.is_anticipated else ''}"
        for subgroup in podgroup.subgroups
    )


def _requested_fields(
    workload: Workload,
    podgroup: PlannedPodGroup,
    jobs: Mapping[str, ReplicatedJob],
    rules: GroupingRules,
) -> ManifestFields:
    """Invalid values are ignored, as in KAI."""
    meta = workload.metadata
    labels = valid_labels(meta.labels)
    annotations = valid_annotations(meta.annotations)
    pods = [jobs[subgroup.name].template.spec.template.spec for subgroup in podgroup.subgroups]
    pod_classes = (pod.priority_class_name for pod in pods if pod.priority_class_name)
    default = _kind_default(workload, rules)
    pod_class = next(pod_classes, default.priority_class)
    label_class = labels.get(PRIORITY_CLASS_NAME, "")
    # KAI accepts a system class from a label.
    if rules.mode == "external" and label_class.startswith(SYSTEM_CLASS_PREFIX):
        all_pods_name_it = {pod.priority_class_name for pod in pods} == {label_class}
        label_class = label_class if all_pods_name_it else ""
    external = NEVER_STALE if rules.mode == "external" else None
    requested: ManifestFields = {
        "queue": meta.labels.get(QUEUE) or rules.default_queue,
        "priorityClassName": label_class or pod_class,
        "preemptibility": labels.get(PREEMPTIBILITY) or default.preemptibility,
        "preemptionDelay": annotations.get(PREEMPTION_DELAY),
        "stalenessGracePeriod": annotations.get(STALENESS_GRACE_PERIOD, external),
        "topologyConstraint": topology_constraint(annotations)
        if is_bound_by_topology(podgroup, jobs)
        else None,
    }
    return {name: value for name, value in requested.items() if value}


def is_bound_by_topology(podgroup: PlannedPodGroup, jobs: Mapping[str, ReplicatedJob]) -> bool:
    """Say whether a constraint of the workload counts: initializers need not be near its pods."""
    return not all(is_initializer(jobs[subgroup.name]) for subgroup in podgroup.subgroups)


def _kind_default(workload: Workload, rules: GroupingRules) -> KindDefault:
    """Return the default of the kind that users create, or else of the workload itself."""
    owner, resource = workload.kind.owner, workload.kind.resource
    by_users = owner.resource if owner is not None and workload.needs_owner else resource
    return rules.kind_defaults.of(by_users.group, by_users.kind)


def valid_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    invalid = {fault.path for fault in requested_annotation_faults(annotations, "")}
    return {name: text for name, text in annotations.items() if f"[{name}]" not in invalid}


def valid_labels(labels: Mapping[str, str]) -> dict[str, str]:
    invalid = {fault.path for fault in requested_label_faults(labels, "")}
    return {name: text for name, text in labels.items() if f"[{name}]" not in invalid}


def topology_constraint(annotations: Mapping[str, str]) -> ManifestFields | None:
    names = {
        "topology": annotations.get(TOPOLOGY),
        "requiredTopologyLevel": annotations.get(TOPOLOGY_REQUIRED),
        "preferredTopologyLevel": annotations.get(TOPOLOGY_PREFERRED),
    }
    return {name: text for name, text in names.items() if text} if names["topology"] else None


def has_topology_constraint(annotations: Mapping[str, str]) -> bool:
    """Say whether annotations of a workload, job or segment are a constraint: it has a level."""
    return bool(_constraint(annotations))


def _bundled_spec(
    workload: Workload, podgroup: PlannedPodGroup, jobs: Mapping[str, ReplicatedJob]
) -> ManifestFields:
    if podgroup.shape is not None:
        return _shaped_spec(podgroup.shape)
    annotations = workload.metadata.annotations
    if workload.kind.form.jobs_path:
        return _tree_spec(podgroup, jobs, annotations)
    only = podgroup.subgroups[0]
    if only.segments.size:
        leaves = [*_segments("", jobs[only.name], only, annotations)]
        return {"minSubGroup": len(leaves), "subGroups": leaves}
    return {"minMember": max(podgroup.smallest_sum(it.min_pods for it in podgroup.subgroups), 1)}


def _shaped_spec(shape: PodGroupShape) -> ManifestFields:
    if not shape.subgroups:
        return {"minMember": max(shape.min_pods, 1)}
    return {
        "minSubGroup": sum(not it.parent for it in shape.subgroups),
        "subGroups": [_shaped_subgroup(it) for it in shape.subgroups],
    }


def _shaped_subgroup(shape: SubGroupShape) -> ManifestFields:
    topology = topology_constraint(valid_annotations(shape.topology))
    fields: ManifestFields = {
        "name": shape.name,
        "minMember" if shape.job else "minSubGroup": shape.minimum,
        "parent": shape.parent,
        "topologyConstraint": topology if topology and len(topology) > 1 else None,
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}


def _tree_spec(
    podgroup: PlannedPodGroup, jobs: Mapping[str, ReplicatedJob], annotations: Mapping[str, str]
) -> ManifestFields:
    """Return the sub-groups; *annotations* are those of the workload."""
    podsets = {
        podset_name(subgroup.name, i): subgroup
        for subgroup in podgroup.subgroups
        for i in range(subgroup.replicas)
    }
    if any(subgroup.name in podsets for subgroup in podgroup.subgroups):
        # A SubGroup has the same name as a PodSet. Without SubGroups all PodSets are needed.
        flat = [
            fields
            for name, subgroup in podsets.items()
            for fields in _podset(name, jobs[subgroup.name], subgroup, annotations)
        ]
        return {"minSubGroup": len(podsets), "subGroups": flat}
    subgroups: list[ManifestFields] = []
    for subgroup in podgroup.subgroups:
        subgroups.append({"name": subgroup.name, "minSubGroup": subgroup.replicas})
        for i in range(subgroup.replicas):
            name = podset_name(subgroup.name, i)
            podset, *below = _podset(name, jobs[subgroup.name], subgroup, annotations)
            subgroups += [{**podset, "parent": subgroup.name}, *below]
    return {"minSubGroup": podgroup.min_subgroups, "subGroups": subgroups}


def _podset(
    name: str, job: ReplicatedJob, subgroup: PlannedSubGroup, annotations: Mapping[str, str]
) -> Iterator[ManifestFields]:
    """Yield the sub-group of a Job, and then its segments."""
    segments = subgroup.segments.number
    minimum = {"minSubGroup": segments} if segments else {"minMember": subgroup.min_member}
    own = job.template.metadata.annotations
    yield {"name": name, **minimum, **_constraint(own)}
    for it in _segments(name, job, subgroup, {**annotations, **own}):
        yield {**it, "parent": name}


def _segments(
    podset: str, job: ReplicatedJob, subgroup: PlannedSubGroup, annotations: Mapping[str, str]
) -> Iterator[ManifestFields]:
    pods = job.template.spec.template.metadata.annotations
    constraint = _constraint(segment_topology(pods, annotations))
    for number in range(subgroup.segments.number):
        minimum = subgroup.segments.minimum(number, subgroup.min_member)
        name = f"{segment_prefix(podset)}{number}"
        yield {"name": name, "minMember": minimum, **constraint}


def _constraint(annotations: Mapping[str, str]) -> ManifestFields:
    """Return the field of a sub-group; none without a level."""
    topology = topology_constraint(valid_annotations(annotations))
    return {"topologyConstraint": topology} if topology and len(topology) > 1 else {}


def _flat_spec(
    workload: Workload,
    podgroup: PlannedPodGroup,
    jobs: Mapping[str, ReplicatedJob],
    counts: Mapping[str, JobPodCounts],
) -> ManifestFields:
    """Return the flat minMember; it sinks when pods have succeeded and other pods wait.

    An external scheduler does not count pods that succeeded, so with the original minimum a
    recreated pod would wait for ever. If no pod waits, the minimum is not changed.
    """
    found = {subgroup.name: _job_counts(subgroup, counts) for subgroup in podgroup.subgroups}
    needed = [subgroup.min_pods for subgroup in podgroup.subgroups]
    alive = [count.waiting + count.bound for each in found.values() for count in each]
    is_waiting = any(count.waiting for each in found.values() for count in each)
    if is_waiting and sum(alive) < podgroup.smallest_sum(needed):
        succeeded = {one.name: one.succeeded for one in workload.jobs_status}
        needed = [
            0  # the pods of a finished Job may be deleted
            if succeeded.get(subgroup.name) == subgroup.replicas
            else sum(
                _remaining(subgroup, jobs[subgroup.name], count) for count in found[subgroup.name]
            )
            for subgroup in podgroup.subgroups
        ]
    return {"minMember": max(podgroup.smallest_sum(needed), 1)}


def _remaining(subgroup: PlannedSubGroup, job: ReplicatedJob, count: JobPodCounts) -> int:
    completions = job.template.spec.completions
    if completions is not None:
        return min(subgroup.min_member, max(completions - count.succeeded, 0))
    return count.waiting + count.bound if count.succeeded else subgroup.min_member


def _job_counts(
    subgroup: PlannedSubGroup, counts: Mapping[str, JobPodCounts]
) -> list[JobPodCounts]:
    return [
        counts.get(podset_name(subgroup.name, i), JobPodCounts()) for i in range(subgroup.replicas)
    ]


class RunningUpdate(NamedTuple):
    fields: ManifestFields
    deferred: tuple[Finding, ...] = ()


def running_update(
    wanted: ManifestFields,
    labels: Mapping[str, str],
    spec: Spec,
    priority_classes: SelectablePriorityClasses,
    mode: GroupingMode,
    remedy: str,
) -> RunningUpdate:
    """Return the update of a PodGroup with pods on nodes; *labels* and *spec* are its own.

    The *remedy* says what lets no pod run for a while.
    """
    spec_wanted, changes = wanted["spec"], list[tuple[str, str, Any, Any]]()
    for name, (path, is_easier) in _SPEC_RULES.items():
        # In external mode a grace period without a value never ends, so any value is shorter.
        if mode == "external" and name == "stalenessGracePeriod":
            continue
        requested = spec_wanted.get(name)
        if requested != spec.get(name) and not is_easier(spec, spec_wanted, priority_classes):
            changes.append((path, name, spec.get(name), requested))
            spec_wanted = _with(spec_wanted, name, spec.get(name))
    meta, labels_wanted = wanted["metadata"], wanted["metadata"]["labels"]
    if labels_wanted.get(NODE_POOL) != labels.get(NODE_POOL):
        requested = labels_wanted.get(NODE_POOL)
        path = f"labels[{NODE_POOL}]"
        changes.append((path, "node pool", labels.get(NODE_POOL), requested))
    keeps_queue = spec_wanted["queue"] != wanted["spec"]["queue"]
    fixed_labels = (NODE_POOL, QUEUE) if keeps_queue else (NODE_POOL,)
    for name in fixed_labels:
        labels_wanted = _with(labels_wanted, name, labels.get(name))
    fields = {**wanted, "metadata": {**meta, "labels": labels_wanted}, "spec": spec_wanted}
    return RunningUpdate(fields, tuple(_deferred_finding(*it, remedy) for it in changes))


def _with(fields: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """None removes the field."""
    rest = {key: it for key, it in fields.items() if key != name}
    return rest if value is None else {**rest, name: value}


def _deferred_finding(path: str, name: str, current: Any, requested: Any, remedy: str) -> Finding:
    was, new = ("none" if it is None else repr(it) for it in (current, requested))
    message = f"{name} remains {was} while pods of the PodGroup run. To use {new}, {remedy}"
    return Finding(f"metadata.{path}", message)


def _has_no_queue(
    current: Spec, _spec_wanted: Spec, _priority_classes: SelectablePriorityClasses
) -> bool:
    return not current.get("queue")


def _is_no_higher_class(
    current: Spec, spec_wanted: Spec, priority_classes: SelectablePriorityClasses
) -> bool:
    now = priority_classes.value(current.get("priorityClassName", ""))
    then = priority_classes.value(spec_wanted.get("priorityClassName", ""))
    return then <= min(now, priority_classes.default)


def _stays_preemptible(
    current: Spec, spec_wanted: Spec, priority_classes: SelectablePriorityClasses
) -> bool:
    if current.get("preemptibility") == _NON_PREEMPTIBLE:
        return True
    preemptibility = spec_wanted.get("preemptibility")
    if preemptibility in PREEMPTIBILITIES:
        return bool(preemptibility != _NON_PREEMPTIBLE)
    return priority_classes.value(spec_wanted.get("priorityClassName", "")) < PREEMPTIBLE_BELOW


def _is_grace_no_longer(
    current: Spec, spec_wanted: Spec, _priority_classes: SelectablePriorityClasses
) -> bool:
    return "stalenessGracePeriod" not in spec_wanted or _grace(spec_wanted) <= _grace(current)


def _grace(spec: Spec) -> float:
    try:
        length = nanoseconds(spec.get("stalenessGracePeriod") or _KAI_GRACE)
    except DurationError:
        return nanoseconds(_KAI_GRACE)
    return length if length >= 0 else math.inf


_SPEC_RULES: Final[
    Mapping[str, tuple[str, Callable[[Spec, Spec, SelectablePriorityClasses], bool]]]
] = MappingProxyType(
    {
        "queue": (f"labels[{QUEUE}]", _has_no_queue),
        "priorityClassName": (f"labels[{PRIORITY_CLASS_NAME}]", _is_no_higher_class),
        "preemptibility": (f"labels[{PREEMPTIBILITY}]", _stays_preemptible),
        "stalenessGracePeriod": (f"annotations[{STALENESS_GRACE_PERIOD}]", _is_grace_no_longer),
    }
)
