"""The PodGroups of a workload, and the pods of each.

They are what admission and the podgrouper make of the JobSet or Job, by the functions of these two.
If the user may not read the JobSet, they come from the PodGroups, and from the pods that name one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.kai_kinds import PodGroup, SubGroup
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ANTICIPATED,
    CONTROLLER_UID,
    MEMBERS,
    POD_GROUP,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
    STAGE,
    SUBGROUP,
)
from trainer_kai.api.resources import JOBS, PODS
from trainer_kai.cli.commands.plan.preview import (
    PodGroupPreview,
    Preview,
    PreviewContext,
    preview_workload,
)
from trainer_kai.cli.commands.why.snapshot import PodSnapshot, TrainJobSnapshot
from trainer_kai.policy.podgroups.anticipated import AnticipatedAnnotation, read_anticipated
from trainer_kai.policy.podgroups.manifests import NEVER_STALE
from trainer_kai.policy.start_order import Edge
from trainer_kai.policy.workloads.kinds import kind_of_owner, pod_place
from trainer_kai.policy.workloads.workload import Workload

_ONLY_OWN_PODS: Final = {PODS.kind, JOBS.kind}  # other pods of their PodGroup are not read


class PodCounts(NamedTuple):
    running: int = 0
    starting: int = 0  # on a node, and not running yet
    nominated: int = 0  # to a node on which other pods still terminate
    gated: int = 0  # with scheduling gates
    waiting: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def unplaced(self) -> int:
        return self.nominated + self.gated + self.waiting

    @property
    def existing(self) -> int:
        """Return the number of pods that count for their PodGroup."""
        return self.running + self.starting + self.unplaced + self.succeeded


class PodGroupSnapshot(NamedTuple):
    """One PodGroup, planned or as the cluster has it, with its pods."""

    stage: str
    name: str  # also of one that does not exist; "" if the pods name none
    after: str
    members: str
    replicated_jobs: frozenset[str]
    expected_jobs: tuple[str, ...]  # have no pods until other replicatedJobs are Ready
    min_pods: int  # the number of pods that must run
    dependencies: tuple[Edge, ...]  # the stage dependencies that must be met first
    is_finished: bool
    pods: tuple[PodSnapshot, ...]
    api_object: PodGroup | None


def preview_of(snapshot: TrainJobSnapshot) -> Preview | None:
    workload = snapshot.workload
    if workload is None:
        return None
    groups = snapshot.podgroups
    is_for_kai = bool(groups) and all(map(is_for_kai_scheduler, groups))
    settings = snapshot.scheduler_name, snapshot.default_queue
    context = PreviewContext("external" if is_for_kai else "bundled", *settings)
    return preview_workload(workload, context)


def is_for_kai_scheduler(group: PodGroup) -> bool:
    """Say whether a PodGroup was written for KAI's scheduler; ours are flat only for Jobs."""
    if group.spec.sub_groups:
        return False
    kinds = map(kind_of_owner, group.metadata.owner_references)
    is_of_job = any(it is not None and not (it.form.jobs_path and it.has_mark) for it in kinds)
    return not is_of_job or group.spec.staleness_grace_period == NEVER_STALE


def podgroup_snapshots(
    snapshot: TrainJobSnapshot, plan: Preview | None
) -> tuple[PodGroupSnapshot, ...]:
    """Return the planned PodGroups in their order, then the others and pods without one."""
    groups = {group.metadata.key: group for group in snapshot.podgroups}
    pods = _current_attempt(snapshot)
    podgroups = []
    for preview in plan.podgroups if plan else ():
        own_pods = [pod for pod in pods if _is_in(pod, preview)]
        pods = [pod for pod in pods if not _is_in(pod, preview)]
        group = groups.pop(Key(snapshot.key.namespace, preview.name), None)
        podgroups.append(_planned_podgroup(preview, own_pods, group, snapshot.workload))
    unplanned = _unplanned_podgroups(pods, groups)
    if snapshot.kind in _ONLY_OWN_PODS:
        unplanned = (it._replace(min_pods=len(it.pods)) for it in unplanned)
    return (*podgroups, *unplanned)


def standalone_snapshot(pods: Iterable[PodSnapshot]) -> PodGroupSnapshot:
    """Return pods without a PodGroup, as if they had one."""
    return _podgroup_of_pods("", [*pods], None)


def count_pods(pods: Iterable[PodSnapshot]) -> PodCounts:
    numbers = dict.fromkeys(PodCounts._fields, 0)
    for pod in pods:
        numbers[pod_state(pod)] += 1
    return PodCounts(**numbers)


def pod_state(pod: PodSnapshot) -> str:
    """Return the state of a pod: a field of `PodCounts`."""
    finished = {"Succeeded": "succeeded", "Failed": "failed"}.get(pod.status.phase)
    if finished:
        return finished
    if pod.metadata.deletion_timestamp:
        return "terminating"
    if pod.spec.node_name:
        return "running" if pod.status.phase == "Running" else "starting"
    if pod.spec.scheduling_gates:
        return "gated"
    return "nominated" if pod.status.nominated_node_name else "waiting"


def _planned_podgroup(
    preview: PodGroupPreview,
    pods: list[PodSnapshot],
    group: PodGroup | None,
    workload: Workload | None,
) -> PodGroupSnapshot:
    present_jobs = {*map(_job_of, pods)}
    members = preview.planned.subgroups
    min_pods = sum(
        member.min_pods
        for member in members
        if not member.is_anticipated or member.name in present_jobs
    )
    succeeded = {it.name: it.succeeded for it in workload.jobs_status} if workload else {}
    return PodGroupSnapshot(
        stage=preview.stage,
        name=preview.name,
        after=preview.after,
        members=preview.members,
        replicated_jobs=frozenset(member.name for member in members),
        expected_jobs=tuple(
            it.name for it in members if it.is_anticipated and it.name not in present_jobs
        ),
        min_pods=min_pods,
        dependencies=preview.planned.after,
        is_finished=all(succeeded.get(member.name, -1) >= member.replicas for member in members),
        pods=tuple(pods),
        api_object=group,
    )


def _is_in(pod: PodSnapshot, preview: PodGroupPreview) -> bool:
    """Say whether a pod is in a PodGroup: by its job, unless several PodGroups have that job."""
    if preview.planned.shape is not None:
        return pod.metadata.annotations.get(POD_GROUP) == preview.name
    return any(member.name == _job_of(pod) for member in preview.planned.subgroups)


def _job_of(pod: PodSnapshot) -> str:
    return pod_place(pod.metadata.labels).replicated_job


def _unplanned_podgroups(
    pods: list[PodSnapshot], groups: dict[Key, PodGroup]
) -> Iterator[PodGroupSnapshot]:
    """Yield the PodGroups that pods name, and those that exist without a plan."""
    named: dict[str, list[PodSnapshot]] = {}
    for pod in pods:
        named.setdefault(pod.metadata.annotations.get(POD_GROUP, ""), []).append(pod)
    by_name = {key.name: group for key, group in groups.items()}
    podgroups = [
        _podgroup_of_pods(name, named.get(name, []), by_name.get(name))
        for name in {*named, *by_name}
    ]
    yield from sorted(podgroups, key=lambda podgroup: (podgroup.stage, podgroup.name))


def _podgroup_of_pods(
    name: str, pods: list[PodSnapshot], group: PodGroup | None
) -> PodGroupSnapshot:
    """Return a PodGroup by its own fields; if the object is unknown, by those of its pods."""
    annotations = group.metadata.annotations if group else {}
    stage, _, after = annotations.get(STAGE, "-").partition(" after ")
    anticipated = _anticipated(annotations)
    sub_groups = [it for it in group.spec.sub_groups if it.min_member is not None] if group else []
    present_jobs = {pod.metadata.labels.get(SUBGROUP) for pod in pods}
    expected = [
        sub_group
        for sub_group in sub_groups
        if _is_expected(sub_group, anticipated) and sub_group.name not in present_jobs
    ]
    min_pods = sum(
        sub_group.min_member or 0 for sub_group in sub_groups if sub_group not in expected
    )
    min_member = group.spec.min_member if group else None
    above = {it.name: it for it in group.spec.sub_groups} if group else {}
    inner = [it.name for it in above.values() if it.min_member is None and not it.parent]
    labels = (pod.metadata.labels.get(REPLICATED_JOB, "") for pod in pods)
    return PodGroupSnapshot(
        stage=stage,
        name=name,
        after=after,
        members=annotations.get(MEMBERS) or "-",
        replicated_jobs=frozenset(filter(None, (*inner, *labels))),
        expected_jobs=tuple(dict.fromkeys(_topmost(sub_group, above) for sub_group in expected)),
        min_pods=min_pods or min_member or len(pods),
        dependencies=tuple(Edge(it.replicated_job, "", it.status) for it in anticipated.after),
        is_finished=False,
        pods=tuple(pods),
        api_object=group,
    )


def _topmost(sub_group: SubGroup, above: Mapping[str, SubGroup]) -> str:
    """Return the sub-group of the replicatedJob, above those of a Job and of its segments."""
    names = [sub_group.name]  # an invalid PodGroup may have a circle
    while names[-1] in above and above[names[-1]].parent not in {"", *names}:
        names.append(above[names[-1]].parent)
    return names[-1]


def _anticipated(annotations: Mapping[str, str]) -> AnticipatedAnnotation:
    try:
        return read_anticipated(annotations.get(ANTICIPATED, ""))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return AnticipatedAnnotation()  # the scheduler reports it as a reason


def _is_expected(sub_group: SubGroup, anticipated: AnticipatedAnnotation) -> bool:
    prefixes = (it.sub_group_prefix for it in anticipated.later)
    return any(
        sub_group.name == prefix
        or (sub_group.name.startswith(prefix) and sub_group.name.removeprefix(prefix).isdecimal())
        for prefix in prefixes
    )


def _current_attempt(snapshot: TrainJobSnapshot) -> list[PodSnapshot]:
    """Return the pods of the workload's newest attempt; pods of earlier attempts do not count."""
    workload = snapshot.workload
    uid = workload.metadata.uid if workload else ""
    uid_label = (workload.kind.job_label if workload else "") or CONTROLLER_UID
    labels = [pod.metadata.labels for pod in snapshot.pods]
    own_pods = [
        (_attempt_number(it.get(RESTART_ATTEMPT, "")), pod)
        for it, pod in zip(labels, snapshot.pods, strict=True)
        if not uid or it.get(uid_label, uid) == uid
    ]
    newest = max((attempt for attempt, _ in own_pods), default=0)
    return [pod for attempt, pod in own_pods if attempt == newest]


def _attempt_number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
