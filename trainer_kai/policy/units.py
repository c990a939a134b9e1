"""Which replicatedJobs start together or not at all.

The edges that end in Complete cut a JobSet into parts that never run at the same time. What is left
connected by Ready, or begins at the same moment, is one unit: it is admitted as a whole or not at
all. An initializer is a unit of its own. Units that would wait for each other are one.

Somebody else who takes each group for itself, and knows of no pods that come later, is served by
stages: there Ready cuts too, so that all pods of a group can exist at once.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import ANCESTOR_STEP, BATCH_MIN_MEMBER
from trainer_kai.api.wishes import is_count
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.joined import Joined
from trainer_kai.policy.names import MAIN
from trainer_kai.policy.podbounds import is_related
from trainer_kai.policy.stages import Edge, course, pods_of

__all__ = [
    "INITIALIZERS",
    "MOST_EXPECTED",
    "MOST_JOBS",
    "MOST_RELATED",
    "MOST_SUB_GROUPS",
    "Member",
    "Outline",
    "Unit",
    "outline",
    "size_fault",
]

INITIALIZERS: Final = frozenset({"dataset-initializer", "model-initializer"})

MOST_JOBS: Final = 64  # while one JobSet is planned all others wait: these take 15 ms at the worst
MOST_SUB_GROUPS: Final = 3000  # as many as the definition of a PodGroup allows
MOST_EXPECTED: Final = 100_000  # pods of one group that come later: a number is soon written
MOST_RELATED: Final = 5000  # of them, those that are placed one by one, for they mind each other
_MOST_EDGES: Final = 10 * MOST_JOBS


class Member(NamedTuple):
    """A replicatedJob of a unit."""

    name: str
    replicas: int
    pods: int  # of each replica, at once
    minimum: int  # of each replica, to be placed for it to count
    is_later: bool  # begins only after others of its unit
    is_related: bool = False  # its pods have affinity to pods, spread or ports of the node


class Unit(NamedTuple):
    """What starts together: members in the order they are listed."""

    suffix: str
    members: tuple[Member, ...]
    min_members: int  # how many of them are needed
    after: tuple[Edge, ...]  # what others must have reached before


class Outline(NamedTuple):
    """All units of a JobSet, those that begin first in front."""

    units: tuple[Unit, ...]
    findings: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()  # replicatedJobs of units that are too large for a group

    def unit_of(self, replicated_job: str) -> Unit | None:
        """Return the unit that a replicatedJob belongs to."""
        for unit in self.units:
            if any(member.name == replicated_job for member in unit.members):
                return unit
        return None


def outline(jobset: JobSet, scheduler_name: str, *, staged: bool = False) -> Outline:
    """Cut a JobSet into units; pods of another scheduler belong to none."""
    excess = size_fault(jobset)
    if excess:
        return Outline((), (Finding("spec.replicatedJobs", excess, blocks=True),))
    jobs = {job.name: job for job in jobset.spec.replicated_jobs}
    way = course(jobset.spec)
    ours = [name for name in way.names if _scheduler(jobs[name]) in {"", scheduler_name}]
    joined = Joined(way, ours, [name for name in ours if _is_initializer(jobs[name])])
    parts = [*joined.parts(staged=staged)]
    findings = [*way.findings, *_foreign(jobset, scheduler_name)]
    members = {name: _member(jobset, name, findings) for name in ours}
    wanted = _count_in(jobset.metadata.annotations, "metadata", findings)
    units: list[Unit] = []
    left_out: list[str] = []
    for part in parts:
        suffix = MAIN if len(parts) == 1 else min(part, key=ours.index)
        inside = joined.reached(part)
        later = {edge.after for edge in way.edges if edge.before in inside}
        chosen = tuple(
            members[name]._replace(is_later=name in later) for name in ours if name in part
        )
        needed = min(wanted or len(chosen), len(chosen))
        unit = Unit(suffix, chosen, needed, joined.entering(part))
        excess = _excess(unit, staged=staged)
        if excess:
            findings.append(Finding("spec.replicatedJobs", excess, blocks=True))
            left_out += (member.name for member in chosen)
        else:
            units.append(unit)
    return Outline(tuple(units), tuple(findings), tuple(left_out))


def size_fault(jobset: JobSet) -> str | None:
    """Say why a JobSet is too large to be planned while others wait."""
    jobs = jobset.spec.replicated_jobs
    if len(jobs) > MOST_JOBS:
        message = f"{len(jobs)} are more than the {MOST_JOBS} that are planned"
        return f"{message}; let one of them have more replicas"
    edges = sum(len(job.depends_on) for job in jobs)
    return f"{edges} dependencies are more than {_MOST_EDGES}" if edges > _MOST_EDGES else None


def _excess(unit: Unit, *, staged: bool) -> str | None:
    """Say why a group cannot hold a unit: each Job has a place in it, and pods are expected."""
    names = " and ".join(member.name for member in unit.members)
    jobs = sum(member.replicas for member in unit.members)
    if staged:
        if jobs <= MOST_SUB_GROUPS:
            return None
        message = f"{names} would have {jobs} Jobs, and a group is of {MOST_SUB_GROUPS} at most"
        return f"{message}; lower replicas"
    places = jobs + len(unit.members)
    if places > MOST_SUB_GROUPS:
        return f"{names} would need {places} sub-groups, and a group has {MOST_SUB_GROUPS} at most"
    later = [member for member in unit.members if member.is_later]
    related = [member for member in later if member.is_related]
    return _many(later, "pods", MOST_EXPECTED) or _many(
        related, "pods with affinity, spread or ports", MOST_RELATED
    )


def _many(later: list[Member], pods: str, most: int) -> str | None:
    """Say that members that come later have more pods than a group may expect of these."""
    expected = sum(member.replicas * member.pods for member in later)
    if expected <= most:
        return None
    names = " and ".join(member.name for member in later)
    message = f"{names} would have {expected} {pods} that come later (dependsOn with status Ready)"
    return f"{message}, and a group expects {most} at most; lower replicas or parallelism"


def _scheduler(job: ReplicatedJob) -> str:
    return job.template.spec.template.spec.scheduler_name


def _is_initializer(job: ReplicatedJob) -> bool:
    return job.template.metadata.labels.get(ANCESTOR_STEP) in INITIALIZERS


def _member(jobset: JobSet, name: str, findings: list[Finding]) -> Member:
    number, job = next(
        (i, job) for i, job in enumerate(jobset.spec.replicated_jobs) if job.name == name
    )
    path = f"spec.replicatedJobs[{number}].template.metadata"
    asked = _count_in(job.template.metadata.annotations, path, findings)
    pods = pods_of(job)
    if asked is not None and asked > pods:
        message = f"{asked} is more than the {pods} pods that each of its Jobs has at once"
        findings.append(Finding(f"{path}.annotations[{BATCH_MIN_MEMBER}]", message))
    minimum = min(asked, pods) if asked is not None else _least(job, pods)
    related = is_related(job.template.spec.template.spec)
    return Member(name, job.replicas, pods, minimum, is_later=False, is_related=related)


def _least(job: ReplicatedJob, pods: int) -> int:
    """Return all pods; but one of those that take work from a common list, one after another."""
    spec = job.template.spec
    is_list = spec.completion_mode == "NonIndexed" and (
        spec.parallelism is not None if spec.completions is None else spec.completions > pods
    )
    return 1 if is_list else pods


def _count_in(annotations: Mapping[str, str], path: str, findings: list[Finding]) -> int | None:
    text = annotations.get(BATCH_MIN_MEMBER)
    if text is None:
        return None
    if is_count(text):
        return int(text)
    message = f"{text!r} must be a whole number from 1 on; it is ignored"
    findings.append(Finding(f"{path}.annotations[{BATCH_MIN_MEMBER}]", message))
    return None


def _foreign(jobset: JobSet, scheduler_name: str) -> Iterator[Finding]:
    for i, job in enumerate(jobset.spec.replicated_jobs):
        name = _scheduler(job)
        if name not in {"", scheduler_name}:
            path = f"spec.replicatedJobs[{i}].template.spec.template.spec.schedulerName"
            yield Finding(
                path, f"{job.name} is left to {name!r}, which knows nothing of the others"
            )
