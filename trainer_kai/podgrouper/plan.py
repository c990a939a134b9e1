"""What to write for one workload: PodGroups that are missing or differ, and unassigned pods.

The result follows only from the observed state, so a second run writes nothing. Nothing is written
for a suspended workload: its queue may still change, and its PodGroups request nothing. While a pod
of it is on a node, its PodGroups change only in ways that make eviction easier. Nothing is written
for a workload without its owner, if its kind has one: its author may have invented labels and
owners.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import GANG, POD_GROUP, QUEUE, SUBGROUP
from trainer_kai.api.quantity import QuantityError
from trainer_kai.api.requested_values import requested_annotation_faults, requested_label_faults
from trainer_kai.podgrouper.loose_pods import LoosePod
from trainer_kai.podgrouper.store import PodRecord
from trainer_kai.podgrouper.watched_podgroup import StoredPodGroup, field_paths
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.grouping import (
    PlannedPodGroup,
    PodGroupPlan,
    count_pods,
    plan_podgroups,
)
from trainer_kai.policy.podgroups.manifests import (
    GroupingRules,
    ManifestFields,
    RunningUpdate,
    planned_podgroup_name,
    podgroup_manifests,
    running_update,
)
from trainer_kai.policy.podgroups.segments import segment_of
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.workloads.shapes import subgroup_of
from trainer_kai.policy.workloads.workload import Workload

_NOT_COMPARED: Final = ("apiVersion", "kind", "metadata")


class ObservedState(NamedTuple):
    groups: Mapping[Key, StoredPodGroup]
    unsupported_fields: AbstractSet[str] = frozenset()  # of a PodGroup's spec: the CRD lacks them
    has_owner: bool = True  # the object that the workload names as its owner exists
    is_running: bool = False  # a pod of a PodGroup is on a node, and not finished
    priority_classes: SelectablePriorityClasses = SelectablePriorityClasses({})


class PodAssignment(NamedTuple):
    key: Key
    fields: ManifestFields

    @property
    def uid(self) -> str:
        return str(self.fields["metadata"]["uid"])

    @property
    def group(self) -> str:
        return str(self.fields["metadata"]["annotations"][POD_GROUP])


class GroupingPlan(NamedTuple):
    apply: tuple[ManifestFields, ...] = ()
    assign: tuple[PodAssignment, ...] = ()
    is_first: bool = False
    podgroup_plan: PodGroupPlan = PodGroupPlan(())
    deferred: tuple[Finding, ...] = ()  # changes that wait until no pod runs


def plan(
    workload: Workload, observed: ObservedState, members: Iterable[PodRecord], rules: GroupingRules
) -> GroupingPlan:
    # Of kinds that admission does not mark, an external scheduler's podgrouper has the PodGroups.
    is_others = rules.mode == "external" and not workload.kind.has_mark
    is_ours = observed.has_owner and workload.is_admitted_here and not is_others
    if workload.is_over or workload.is_suspended or not is_ours:
        return GroupingPlan()
    form, is_external = workload.kind.form, rules.mode == "external"
    complete_plan = plan_podgroups(workload, rules.scheduler_name, staged=is_external, form=form)
    marked = PodGroupPlan(
        tuple(podgroup for podgroup in complete_plan.podgroups if _is_marked(workload, podgroup)),
        (*complete_plan.findings, *_request_findings(workload)),
    )
    pods = list(members)
    counts = count_pods(pod.observation for pod in pods) if is_external else {}
    try:
        wanted = list(podgroup_manifests(workload, complete_plan, rules, counts))
    except QuantityError as error:
        message = f"the PodGroups cannot be planned: {error}"
        finding = Finding(form.jobs_path or "spec", message, blocks=True)
        return GroupingPlan(podgroup_plan=marked._replace(findings=(*marked.findings, finding)))
    if not any(count.waiting for count in counts.values()):
        wanted = [_keep_lowered_minimum(fields, observed.groups) for fields in wanted]
    remedy = f"suspend the {workload.called} and resume it"
    pairs = zip(complete_plan.podgroups, wanted, strict=True)
    updates = [
        _restricted_while_running(fields, observed, rules, remedy)
        for podgroup, fields in pairs
        if podgroup in marked.podgroups
    ]
    apply = tuple(it.fields for it in updates if _differs(it.fields, observed))
    assign = (_assignment(workload, pod, marked, rules) for pod in pods if not pod.group)
    deferred = tuple(dict.fromkeys(finding for it in updates for finding in it.deferred))
    is_first = bool(apply) and not observed.groups
    return GroupingPlan(apply, tuple(filter(None, assign)), is_first, marked, deferred)


def plan_default(
    wanted: ManifestFields,
    observed: ObservedState,
    pods: Iterable[LoosePod],
    rules: GroupingRules,
) -> GroupingPlan:
    """Return the plan of a PodGroup whose owner is of a kind without an adapter.

    A pod that was assigned to another PodGroup by hand is assigned again unless it is on a node.
    """
    remedy = "let no pod of it run for a moment, for instance with 0 replicas"
    update = _restricted_while_running(wanted, observed, rules, remedy)
    apply = (update.fields,) if _differs(update.fields, observed) else ()
    is_first = bool(apply) and _key(wanted) not in observed.groups
    assign = assign_all(_key(wanted).name, pods)
    return GroupingPlan(apply, assign, is_first, deferred=update.deferred)


def assign_all(group: str, pods: Iterable[LoosePod]) -> tuple[PodAssignment, ...]:
    return tuple(
        PodAssignment(pod.key, {"metadata": {"uid": pod.uid, "annotations": {POD_GROUP: group}}})
        for pod in pods
        if pod.group != group and not (pod.group and pod.is_bound)
    )


def _request_findings(workload: Workload) -> Iterator[Finding]:
    """Only with an invalid queue nothing can run."""
    meta = workload.metadata
    for fault in (
        *requested_label_faults(meta.labels, "metadata.labels"),
        *requested_annotation_faults(meta.annotations, "metadata.annotations"),
    ):
        yield Finding(fault.path, fault.message, blocks=f"[{QUEUE}]" in fault.path)


def _keep_lowered_minimum(
    fields: ManifestFields, groups: Mapping[Key, StoredPodGroup]
) -> ManifestFields:
    """No pod waits, so raising minMember helps no pod."""
    group = groups.get(_key(fields))
    current = group.spec.get("minMember") if group else None
    if current is None or "minMember" not in fields["spec"]:
        return fields
    lowest = min(current, fields["spec"]["minMember"])
    return {**fields, "spec": {**fields["spec"], "minMember": lowest}}


def _restricted_while_running(
    fields: ManifestFields, observed: ObservedState, rules: GroupingRules, remedy: str
) -> RunningUpdate:
    """Keep the current value of a field if pods run and the new one makes eviction harder."""
    current = observed.groups.get(_key(fields))
    if current is None or not observed.is_running:
        return RunningUpdate(fields)
    return running_update(
        fields,
        current.metadata["labels"],
        current.spec,
        observed.priority_classes,
        rules.mode,
        remedy,
    )


def _is_marked(workload: Workload, podgroup: PlannedPodGroup) -> bool:
    """Say whether admission marked the pods of a PodGroup, so that no user groups them."""
    names = {member.name for member in podgroup.subgroups}
    return not workload.kind.has_mark or any(
        GANG in job.template.spec.template.metadata.labels
        for job in workload.spec.replicated_jobs
        if job.name in names
    )


def _key(fields: ManifestFields) -> Key:
    return Key(fields["metadata"]["namespace"], fields["metadata"]["name"])


def _differs(wanted: ManifestFields, observed: ObservedState) -> bool:
    meta = wanted["metadata"]
    group = observed.groups.get(_key(wanted))
    if group is None:
        return True
    if any(it not in group.metadata["ownerReferences"] for it in meta["ownerReferences"]):
        return True  # other objects may own it too
    own = {name: meta[name] for name in ("labels", "annotations")}
    spec = {
        name: it for name, it in wanted["spec"].items() if name not in observed.unsupported_fields
    }
    fields = {"metadata": own, "spec": spec}
    if not _contains(fields, {"metadata": group.metadata, "spec": group.spec}):
        return True
    owners = {"ownerReferences": meta["ownerReferences"]}
    complete = {"metadata": {**own, **owners}, "spec": wanted["spec"]}
    must_be_removed = group.managed_paths - set(field_paths(complete))
    return bool(must_be_removed)


def _contains(wanted: Any, current: Any) -> bool:
    """Say whether an object has all wanted values; lists are compared as a whole."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(
            name in current and _contains(value, current[name]) for name, value in wanted.items()
        )
    return bool(wanted == current)


def _assignment(
    workload: Workload, pod: PodRecord, marked: PodGroupPlan, rules: GroupingRules
) -> PodAssignment | None:
    podgroup = marked.podgroup_of(pod.place.replicated_job, pod.place.group)
    if podgroup is None or pod.observation.is_terminating:
        return None
    metadata: ManifestFields = {
        "uid": pod.uid,  # the API server rejects the merge if the pod was recreated
        "annotations": {POD_GROUP: planned_podgroup_name(workload, podgroup)},
    }
    podset = _podset(workload, podgroup, pod)
    if rules.mode == "bundled" and podset:
        metadata["labels"] = {SUBGROUP: podset}
    return PodAssignment(pod.key, {"metadata": metadata})


def _podset(workload: Workload, podgroup: PlannedPodGroup, pod: PodRecord) -> str:
    """Return the sub-group of a pod; "" if its PodGroup has none."""
    if podgroup.shape is not None:
        return subgroup_of(podgroup.shape, pod.place)
    podset = pod.observation.podset if workload.kind.form.jobs_path else ""
    size = next(
        it.segments.size for it in podgroup.subgroups if it.name == pod.place.replicated_job
    )
    return segment_of(podset, str(size), pod.place.completion_index)
