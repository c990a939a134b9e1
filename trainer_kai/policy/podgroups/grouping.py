"""Which replicatedJobs of a JobSet form one PodGroup: they start together or not at all.

Edges with status Complete divide a JobSet into parts that never run at the same time. In a part,
replicatedJobs that are connected by Ready, or that start at the same moment, are one PodGroup. An
initializer is a PodGroup of its own. PodGroups that would wait for each other are merged.

An external scheduler places each PodGroup on its own and does not know anticipated pods. It gets a
PodGroup for each stage: there Ready divides too, so that all pods of a PodGroup exist together.

The names of PodGroups and PodSets are KAI's, so that podgroupers and schedulers of both projects
work together. They follow from the labels of a pod, so that admission can name its PodGroup without
reading an object.

Pods count by Job: waiting, bound, succeeded, or only on a node. Only those of the newest attempt
count; older ones and terminating ones only occupy their nodes. A pod that succeeded counts,
although it occupies nothing.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.bounds import (
    MOST_CONSTRAINED,
    MOST_EDGES,
    MOST_EXPECTED,
    MOST_JOBS,
    MOST_SUB_GROUPS,
)
from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ANCESTOR_STEP,
    BATCH_MIN_MEMBER,
    DEFAULT_SCHEDULER,
    SEGMENT_SIZE,
    TOPOLOGY,
)
from trainer_kai.api.pod import TERMINAL_PHASES, BriefPod, Pod
from trainer_kai.api.requested_values import is_count
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.partition import JobSetPartition
from trainer_kai.policy.podgroups.segments import UNDIVIDED, Segmentation, segmentation
from trainer_kai.policy.pods.requests import has_inter_pod_constraints
from trainer_kai.policy.start_order import INITIALIZERS, Edge, pods_at_once, start_order
from trainer_kai.policy.workloads.jobset import JOBSET_FORM
from trainer_kai.policy.workloads.shapes import shape_of_jobs
from trainer_kai.policy.workloads.workload import (
    JobsForm,
    PodGroupShape,
    PodPlace,
    RestartAttempt,
    StagedJobs,
    Workload,
)

MAIN: Final = "Main"  # the suffix of a JobSet's only PodGroup; no replicatedJob can have this name

_MAX_UNHASHED: Final = 48  # characters: with "-replica-" and an index the name fits into a label
_PODGROUP_NAME: Final = re.compile(
    r"pg-(?P<owner>.+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-.+)?"
)
_HASHED_PREFIX: Final = 39  # characters before the hash


class PlannedSubGroup(NamedTuple):
    name: str
    replicas: int
    pods: int  # of each replica, at the same time
    min_member: int  # of each replica: fewer pods do not start
    is_anticipated: bool  # begins only after other replicatedJobs of its PodGroup
    has_inter_pod_constraints: bool = False  # affinity to pods, spread or host ports
    segments: Segmentation = UNDIVIDED

    @property
    def min_pods(self) -> int:
        """Of all replicas."""
        return self.replicas * self.min_member

    @property
    def total_pods(self) -> int:
        """Of all replicas, at the same time."""
        return self.replicas * self.pods


class PlannedPodGroup(NamedTuple):
    """The replicatedJobs are in the order in which they are listed."""

    suffix: str
    subgroups: tuple[PlannedSubGroup, ...]
    min_subgroups: int  # the number of SubGroups that are needed
    after: tuple[Edge, ...]  # edges from replicatedJobs of other PodGroups
    shape: PodGroupShape | None = None  # where the kind of the workload names the sub-groups

    def smallest_sum(self, amounts: Iterable[int]) -> int:
        """Return the smallest sum for the SubGroups that are needed; *amounts* are of one each."""
        return sum(sorted(amounts)[: self.min_subgroups])


class PodGroupPlan(NamedTuple):
    """Each PodGroup comes after the PodGroups that it depends on."""

    podgroups: tuple[PlannedPodGroup, ...]
    findings: tuple[Finding, ...] = ()
    too_large: tuple[str, ...] = ()  # replicatedJobs that exceed the limits of a PodGroup

    def podgroup_of(self, replicated_job: str, group: str = "") -> PlannedPodGroup | None:
        """Return the PodGroup of a job; *group* is its suffix where several have that job."""
        for podgroup in self.podgroups:
            has_job = any(subgroup.name == replicated_job for subgroup in podgroup.subgroups)
            if has_job and group in {"", podgroup.suffix}:
                return podgroup
        return None


def plan_podgroups(
    jobset: StagedJobs,
    scheduler_name: str,
    *,
    staged: bool = False,
    form: JobsForm = JOBSET_FORM,
) -> PodGroupPlan:
    """Pods of another scheduler are in no PodGroup."""
    if isinstance(jobset, Workload) and jobset.shapes is not None:
        return _shaped_podgroups(jobset, jobset.shapes, scheduler_name)
    excess = size_fault(jobset)
    if excess:
        return PodGroupPlan((), (Finding(form.jobs_path, excess, blocks=True),))
    jobs = {job.name: job for job in jobset.spec.replicated_jobs}
    order = start_order(jobset.spec)
    scheduled = [name for name in order.names if _scheduler(jobs[name]) in {"", scheduler_name}]
    initializers = [name for name in scheduled if is_initializer(jobs[name])]
    partition = JobSetPartition(order, scheduled, initializers)
    parts = [*partition.parts(staged=staged)]
    findings = [*order.findings, *_other_scheduler_findings(jobset, scheduler_name, form)]
    by_name = {name: _subgroup(jobset, name, form, findings) for name in scheduled}
    findings += _unused_segments(jobset)
    min_subgroups = None
    if form.jobs_path:
        min_subgroups = _batch_min_member(jobset.metadata.annotations, "metadata", findings)
    podgroups: list[PlannedPodGroup] = []
    too_large: list[str] = []
    for part in parts:
        suffix = MAIN if len(parts) == 1 else min(part, key=scheduled.index)
        inside = partition.with_dependents(part)
        anticipated = {edge.after for edge in order.edges if edge.before in inside}
        subgroups = tuple(
            by_name[name]._replace(is_anticipated=name in anticipated)
            for name in scheduled
            if name in part
        )
        needed = min(min_subgroups or len(subgroups), len(subgroups))
        podgroup = PlannedPodGroup(suffix, subgroups, needed, partition.incoming_edges(part))
        excess = _podgroup_size_fault(podgroup, staged=staged)
        if excess:
            findings.append(Finding(form.jobs_path, excess, blocks=True))
            too_large += (subgroup.name for subgroup in subgroups)
        else:
            podgroups.append(podgroup)
    return PodGroupPlan(tuple(podgroups), tuple(findings), tuple(too_large))


def _shaped_podgroups(
    workload: Workload, shapes: Iterable[PodGroupShape], scheduler_name: str
) -> PodGroupPlan:
    """Plan the PodGroups that a kind divides itself; there each role names its scheduler."""
    path, roles = workload.kind.form.jobs_path, workload.spec.replicated_jobs
    jobs = {role.name: role for role in roles if _scheduler(role) == scheduler_name}
    findings, podgroups = [*workload.faults], list[PlannedPodGroup]()
    for shape in shapes:
        podgroup = _shaped_podgroup(shape, jobs)
        later = [it for it in podgroup.subgroups if it.is_anticipated] if podgroup else []
        excess = _anticipated_fault(later, "pods", MOST_EXPECTED)
        if excess:
            findings.append(Finding(path, excess, blocks=True))
        elif podgroup is not None:
            podgroups.append(podgroup)
    for i, role in enumerate(roles if jobs else ()):
        if role.name not in jobs:
            scheduler = _scheduler(role) or DEFAULT_SCHEDULER
            message = f"the pods of {role.name} are in no PodGroup: scheduler {scheduler!r}"
            at = f"{workload.role_paths[i].template}.spec.schedulerName"
            findings.append(Finding(at, f"{message} places them"))
    return PodGroupPlan(tuple(podgroups), tuple(dict.fromkeys(findings)))


def _shaped_podgroup(
    shape: PodGroupShape, jobs: Mapping[str, ReplicatedJob]
) -> PlannedPodGroup | None:
    names = tuple(name for name in shape.jobs if name in jobs)
    if not names:
        return None
    kept = shape_of_jobs(shape, names, sum(pods_at_once(jobs[name]) for name in names))
    left, planned = kept.min_pods, list[PlannedSubGroup]()
    for name in names:
        pods = pods_at_once(jobs[name])
        own = [it for it in kept.subgroups if it.job == name]
        minimum = sum(it.minimum for it in own) if own else min(left, pods)
        left -= minimum
        constrained = has_inter_pod_constraints(jobs[name].template.spec.template.spec)
        is_later = any(it.is_later for it in own)
        planned.append(PlannedSubGroup(name, 1, pods, minimum, is_later, constrained))
    return PlannedPodGroup(shape.suffix, tuple(planned), len(planned), (), kept)


def size_fault(jobset: StagedJobs) -> str | None:
    jobs = jobset.spec.replicated_jobs
    if len(jobs) > MOST_JOBS:
        return f"the JobSet {too_many_jobs(len(jobs))}"
    edges = sum(len(job.depends_on) for job in jobs)
    if edges <= MOST_EDGES:
        return None
    return (
        f"the JobSet has {edges} dependencies (dependsOn), and the maximum is {MOST_EDGES}. "
        "Remove some"
    )


def too_many_jobs(count: int) -> str:
    """To follow the name of a JobSet or a runtime."""
    return (
        f"has {count} replicatedJobs, and the maximum is {MOST_JOBS}. Combine equal "
        "ones into one with more replicas"
    )


def _podgroup_size_fault(podgroup: PlannedPodGroup, *, staged: bool) -> str | None:
    names = " and ".join(subgroup.name for subgroup in podgroup.subgroups)
    jobs = sum(subgroup.replicas for subgroup in podgroup.subgroups)
    if staged:
        if jobs <= MOST_SUB_GROUPS:
            return None
        return (
            f"the PodGroup of {names} would have {jobs} Jobs, and the maximum is "
            f"{MOST_SUB_GROUPS}. Lower replicas"
        )
    segments = sum(it.replicas * it.segments.number for it in podgroup.subgroups)
    subgroup_count = jobs + len(podgroup.subgroups) + segments
    if subgroup_count > MOST_SUB_GROUPS:
        larger = f", or raise {SEGMENT_SIZE}" if segments else ""
        return (
            f"the PodGroup of {names} would have {subgroup_count} sub-groups, and the maximum is "
            f"{MOST_SUB_GROUPS}. Lower replicas{larger}"
        )
    anticipated = [subgroup for subgroup in podgroup.subgroups if subgroup.is_anticipated]
    constrained = [subgroup for subgroup in anticipated if subgroup.has_inter_pod_constraints]
    return _anticipated_fault(anticipated, "pods", MOST_EXPECTED) or _anticipated_fault(
        constrained, "pods with affinity, spread or ports", MOST_CONSTRAINED
    )


def _anticipated_fault(anticipated: list[PlannedSubGroup], pods: str, most: int) -> str | None:
    expected = sum(subgroup.total_pods for subgroup in anticipated)
    if expected <= most:
        return None
    names = " and ".join(subgroup.name for subgroup in anticipated)
    return (
        f"{names} would have {expected} expected {pods} (they start after others: dependsOn with "
        f"status Ready), and the maximum is {most}. Lower replicas or parallelism"
    )


def _scheduler(job: ReplicatedJob) -> str:
    return job.template.spec.template.spec.scheduler_name


def is_initializer(job: ReplicatedJob) -> bool:
    return job.template.metadata.labels.get(ANCESTOR_STEP) in INITIALIZERS


def _subgroup(
    jobset: StagedJobs, name: str, form: JobsForm, findings: list[Finding]
) -> PlannedSubGroup:
    jobs = jobset.spec.replicated_jobs
    index, job = next((i, job) for i, job in enumerate(jobs) if job.name == name)
    path = f"{form.template_path(index)}metadata"
    requested = _batch_min_member(job.template.metadata.annotations, path, findings)
    pods = pods_at_once(job)
    if requested is not None and requested > pods:
        message = f"{requested} is more than the pods of each Job at the same time. {pods} is used"
        findings.append(Finding(f"{path}.annotations[{BATCH_MIN_MEMBER}]", message))
    default = _default_min_member(job, pods) if form.jobs_path else 1
    min_member = min(default if requested is None else requested, pods)
    named = f"{form.template_path(index)}spec.template.metadata"
    topology = jobset.metadata.annotations.get(TOPOLOGY, "")
    segments = segmentation(job, pods, named, findings, topology)
    if segments.size:  # whole ones
        min_member = min(-(-min_member // segments.size) * segments.size, pods)
    constrained = has_inter_pod_constraints(job.template.spec.template.spec)
    return PlannedSubGroup(
        name,
        job.replicas,
        pods,
        min_member,
        is_anticipated=False,
        has_inter_pod_constraints=constrained,
        segments=segments,
    )


def _unused_segments(jobset: StagedJobs) -> Iterator[Finding]:
    templates = (job.template.spec.template for job in jobset.spec.replicated_jobs)
    is_used = any(SEGMENT_SIZE in it.metadata.annotations for it in templates)
    if SEGMENT_SIZE in jobset.metadata.annotations and not is_used:
        message = "has no effect here. Set it on the pod template of the Job to divide"
        yield Finding(f"metadata.annotations[{SEGMENT_SIZE}]", message)


def _default_min_member(job: ReplicatedJob, pods: int) -> int:
    """One pod if the pods take work from a common work queue."""
    spec = job.template.spec
    is_work_queue = spec.completion_mode == "NonIndexed" and (
        spec.parallelism is not None if spec.completions is None else spec.completions > pods
    )
    return 1 if is_work_queue else pods


def _batch_min_member(
    annotations: Mapping[str, str], path: str, findings: list[Finding]
) -> int | None:
    text = annotations.get(BATCH_MIN_MEMBER)
    if text is None:
        return None
    if is_count(text):
        return int(text)
    message = f"ignored: {text!r} must be a whole number, 1 or more"
    findings.append(Finding(f"{path}.annotations[{BATCH_MIN_MEMBER}]", message))
    return None


def _other_scheduler_findings(
    jobset: StagedJobs, scheduler_name: str, form: JobsForm
) -> Iterator[Finding]:
    for i, job in enumerate(jobset.spec.replicated_jobs):
        name = _scheduler(job)
        if name not in {"", scheduler_name}:
            path = f"{form.template_path(i)}spec.template.spec.schedulerName"
            message = f"the pods of {job.name} are in no PodGroup: scheduler {name!r} places them"
            yield Finding(path, message)


def podgroup_name(jobset: str, uid: str, suffix: str) -> str:
    """Return the name of a PodGroup; the suffix distinguishes the PodGroups of one JobSet."""
    return f"pg-{jobset}-{uid}" if suffix == MAIN else f"pg-{jobset}-{uid}-{suffix}"


def owner_name(podgroup: str) -> str:
    """Return the JobSet in the name of a PodGroup; it has the name of its TrainJob.

    Use it in messages only: any other name is returned as it is.
    """
    match = _PODGROUP_NAME.fullmatch(podgroup)
    return match["owner"] if match else podgroup


def workload_name(podgroup: Key) -> str:
    """Return the namespace and name of a PodGroup's TrainJob, or of a single pod."""
    return f"{podgroup.namespace}/{owner_name(podgroup.name)}"


def podset_name(replicated_job: str, index: int | str) -> str:
    return f"{podset_name_prefix(replicated_job)}{index}"


def podset_name_prefix(replicated_job: str) -> str:
    """Return the prefix of the PodSets of a replicatedJob; the index of the Job follows."""
    if len(replicated_job) <= _MAX_UNHASHED:
        return f"{replicated_job}-replica-"
    digest = hashlib.sha256(replicated_job.encode()).hexdigest()[:8]
    return f"{replicated_job[:_HASHED_PREFIX]}-{digest}-replica-"


class PodObservation(NamedTuple):
    podset: str
    attempt: RestartAttempt
    phase: str
    is_bound: bool
    is_terminating: bool


class JobPodCounts(NamedTuple):
    waiting: int = 0
    bound: int = 0
    succeeded: int = 0
    occupying: int = 0  # pods of an older attempt, or terminating


def observe_pod(pod: Pod | BriefPod, place: PodPlace) -> PodObservation:
    """Read a pod; the caller checks that it belongs to the workload."""
    return PodObservation(
        podset=podset_name(place.replicated_job, place.job_index),
        attempt=place.attempt,
        phase=pod.status.phase,
        is_bound=bool(pod.spec.node_name),
        is_terminating=bool(pod.metadata.deletion_timestamp),
    )


def podset_and_attempt(place: PodPlace) -> tuple[str, RestartAttempt]:
    return podset_name(place.replicated_job, place.job_index), place.attempt


def newest_attempts(
    attempts: Sequence[tuple[str, RestartAttempt]],
) -> Mapping[str, RestartAttempt]:
    """Return the newest attempt of each Job, as a PodSet, within the newest of their JobSet."""
    newest = max((attempt[0] for _, attempt in attempts), default=0)
    newest_of: dict[str, RestartAttempt] = {}
    for podset, attempt in attempts:
        newest_of[podset] = max(newest_of.get(podset, (newest, 0)), attempt)
    return newest_of


def count_pods(pods: Iterable[PodObservation]) -> Mapping[str, JobPodCounts]:
    pods = list(pods)
    newest_of = newest_attempts([(pod.podset, pod.attempt) for pod in pods])
    counts: dict[str, JobPodCounts] = {}
    for pod in pods:
        count = counts.get(pod.podset, JobPodCounts())
        counts[pod.podset] = _counted(count, pod, counts=pod.attempt == newest_of[pod.podset])
    return counts


def _counted(count: JobPodCounts, pod: PodObservation, *, counts: bool) -> JobPodCounts:
    if counts and pod.phase == "Succeeded":
        return count._replace(succeeded=count.succeeded + 1)
    if pod.phase in TERMINAL_PHASES:
        return count
    if pod.is_terminating or not counts:
        return count._replace(occupying=count.occupying + pod.is_bound)
    if pod.is_bound:
        return count._replace(bound=count.bound + 1)
    return count._replace(waiting=count.waiting + 1)
