"""Which replicatedJobs of a JobSet form one PodGroup: they start together or not at all.

The edges that end in Complete cut a JobSet into parts that never run at the same time. What is left
connected by Ready, or starts at the same moment, is one PodGroup. An initializer is a PodGroup of
its own. PodGroups that would wait for each other are one.

An external scheduler takes each PodGroup by itself and knows no anticipated pods. It gets one
PodGroup for each stage: there Ready cuts too, so that all pods of a PodGroup can exist at once.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import ANCESTOR_STEP, BATCH_MIN_MEMBER
from trainer_kai.api.requested_values import is_count
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.names import MAIN
from trainer_kai.policy.podgroups.partition import JobSetPartition
from trainer_kai.policy.pods.spec_limits import has_inter_pod_constraints
from trainer_kai.policy.stages import INITIALIZERS, Edge, pods_at_once, start_order

__all__ = [
    "MOST_CONSTRAINED",
    "MOST_EXPECTED",
    "MOST_JOBS",
    "MOST_SUB_GROUPS",
    "PlannedPodGroup",
    "PlannedSubGroup",
    "PodGroupPlan",
    "plan_podgroups",
    "size_fault",
]

MOST_JOBS: Final = 64  # all others wait while one JobSet is planned: these take 15 ms at worst
MOST_SUB_GROUPS: Final = 3000  # as many as the CRD of a PodGroup allows
MOST_EXPECTED: Final = 100_000  # anticipated pods of one PodGroup
MOST_CONSTRAINED: Final = 5000  # of them, those with inter-pod constraints: placed one by one
_MOST_EDGES: Final = 10 * MOST_JOBS


class PlannedSubGroup(NamedTuple):
    """A replicatedJob of a PodGroup."""

    name: str
    replicas: int
    pods: int  # of each replica, at once
    min_member: int  # of each replica, to be placed for it to count
    is_anticipated: bool  # begins only after others of its PodGroup
    has_inter_pod_constraints: bool = False  # affinity to pods, spread or host ports


class PlannedPodGroup(NamedTuple):
    """The replicatedJobs that start together, in the order they are listed."""

    suffix: str
    subgroups: tuple[PlannedSubGroup, ...]
    min_subgroups: int  # how many of them are needed
    after: tuple[Edge, ...]  # what replicatedJobs of other PodGroups must have reached before


class PodGroupPlan(NamedTuple):
    """All PodGroups of a JobSet, each after those that it waits for."""

    podgroups: tuple[PlannedPodGroup, ...]
    findings: tuple[Finding, ...] = ()
    too_large: tuple[str, ...] = ()  # replicatedJobs of what is too large for a PodGroup

    def podgroup_of(self, replicated_job: str) -> PlannedPodGroup | None:
        """Return the PodGroup that a replicatedJob belongs to."""
        for podgroup in self.podgroups:
            if any(subgroup.name == replicated_job for subgroup in podgroup.subgroups):
                return podgroup
        return None


def plan_podgroups(jobset: JobSet, scheduler_name: str, *, staged: bool = False) -> PodGroupPlan:
    """Divide a JobSet into PodGroups; pods of another scheduler belong to none."""
    excess = size_fault(jobset)
    if excess:
        return PodGroupPlan((), (Finding("spec.replicatedJobs", excess, blocks=True),))
    jobs = {job.name: job for job in jobset.spec.replicated_jobs}
    order = start_order(jobset.spec)
    scheduled = [name for name in order.names if _scheduler(jobs[name]) in {"", scheduler_name}]
    partition = JobSetPartition(
        order, scheduled, [name for name in scheduled if _is_initializer(jobs[name])]
    )
    parts = [*partition.parts(staged=staged)]
    findings = [*order.findings, *_other_scheduler_findings(jobset, scheduler_name)]
    by_name = {name: _subgroup(jobset, name, findings) for name in scheduled}
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
            findings.append(Finding("spec.replicatedJobs", excess, blocks=True))
            too_large += (subgroup.name for subgroup in subgroups)
        else:
            podgroups.append(podgroup)
    return PodGroupPlan(tuple(podgroups), tuple(findings), tuple(too_large))


def size_fault(jobset: JobSet) -> str | None:
    """Say why a JobSet is too large to be planned while others wait."""
    jobs = jobset.spec.replicated_jobs
    if len(jobs) > MOST_JOBS:
        message = f"{len(jobs)} are more than the {MOST_JOBS} that are planned"
        return f"{message}; let one of them have more replicas"
    edges = sum(len(job.depends_on) for job in jobs)
    return f"{edges} dependencies are more than {_MOST_EDGES}" if edges > _MOST_EDGES else None


def _podgroup_size_fault(podgroup: PlannedPodGroup, *, staged: bool) -> str | None:
    """Say why something is too large for a PodGroup: too many SubGroups or anticipated pods."""
    names = " and ".join(subgroup.name for subgroup in podgroup.subgroups)
    jobs = sum(subgroup.replicas for subgroup in podgroup.subgroups)
    if staged:
        if jobs <= MOST_SUB_GROUPS:
            return None
        message = f"{names} would have {jobs} Jobs, and a group is of {MOST_SUB_GROUPS} at most"
        return f"{message}; lower replicas"
    subgroup_count = jobs + len(podgroup.subgroups)
    if subgroup_count > MOST_SUB_GROUPS:
        return (
            f"{names} would need {subgroup_count} sub-groups, and a group has "
            f"{MOST_SUB_GROUPS} at most"
        )
    anticipated = [subgroup for subgroup in podgroup.subgroups if subgroup.is_anticipated]
    constrained = [subgroup for subgroup in anticipated if subgroup.has_inter_pod_constraints]
    return _anticipated_fault(anticipated, "pods", MOST_EXPECTED) or _anticipated_fault(
        constrained, "pods with affinity, spread or ports", MOST_CONSTRAINED
    )


def _anticipated_fault(anticipated: list[PlannedSubGroup], pods: str, most: int) -> str | None:
    """Say whether SubGroups that come later have more pods than a PodGroup may expect."""
    expected = sum(subgroup.replicas * subgroup.pods for subgroup in anticipated)
    if expected <= most:
        return None
    names = " and ".join(subgroup.name for subgroup in anticipated)
    message = f"{names} would have {expected} {pods} that come later (dependsOn with status Ready)"
    return f"{message}, and a group expects {most} at most; lower replicas or parallelism"


def _scheduler(job: ReplicatedJob) -> str:
    return job.template.spec.template.spec.scheduler_name


def _is_initializer(job: ReplicatedJob) -> bool:
    return job.template.metadata.labels.get(ANCESTOR_STEP) in INITIALIZERS


def _subgroup(jobset: JobSet, name: str, findings: list[Finding]) -> PlannedSubGroup:
    number, job = next(
        (i, job) for i, job in enumerate(jobset.spec.replicated_jobs) if job.name == name
    )
    path = f"spec.replicatedJobs[{number}].template.metadata"
    requested = _batch_min_member(job.template.metadata.annotations, path, findings)
    pods = pods_at_once(job)
    if requested is not None and requested > pods:
        message = f"{requested} is more than the {pods} pods that each of its Jobs has at once"
        findings.append(Finding(f"{path}.annotations[{BATCH_MIN_MEMBER}]", message))
    min_member = min(requested, pods) if requested is not None else _default_min_member(job, pods)
    constrained = has_inter_pod_constraints(job.template.spec.template.spec)
    return PlannedSubGroup(
        name,
        job.replicas,
        pods,
        min_member,
        is_anticipated=False,
        has_inter_pod_constraints=constrained,
    )


def _default_min_member(job: ReplicatedJob, pods: int) -> int:
    """Return all pods of a Job; one if they take work from a common queue."""
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
    message = f"{text!r} must be a whole number from 1 on; it is ignored"
    findings.append(Finding(f"{path}.annotations[{BATCH_MIN_MEMBER}]", message))
    return None


def _other_scheduler_findings(jobset: JobSet, scheduler_name: str) -> Iterator[Finding]:
    for i, job in enumerate(jobset.spec.replicated_jobs):
        name = _scheduler(job)
        if name not in {"", scheduler_name}:
            path = f"spec.replicatedJobs[{i}].template.spec.template.spec.schedulerName"
            yield Finding(
                path, f"{job.name} is left to {name!r}, which knows nothing of the others"
            )
