"""What would become of a TrainJob: its JobSet, queue, units, groups and findings, all at once.

The same functions answer here as in admission and in the podgrouper, so a preview is what happens.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import MEMBERS, QUEUE, STAGE
from trainer_kai.api.runtime import Runtime
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.demand import demand, spell
from trainer_kai.policy.expand import expand
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.groups import Fields, Mode, Rules, groups
from trainer_kai.policy.queues import Asked, Choice, choose
from trainer_kai.policy.units import Outline, Unit, outline

__all__ = ["Preview", "Row", "Surroundings", "preview", "preview_jobset"]


class Surroundings(NamedTuple):
    """What a site decides, and what the namespace says."""

    mode: Mode
    scheduler_name: str
    default_queue: str
    namespace: Mapping[str, str] = {}


class Row(NamedTuple):
    """One unit, as people want to see it."""

    stage: str  # such as 2/3
    group: str
    after: str
    members: str
    unit: Unit
    requests: Mapping[str, str]  # of all its pods together

    @property
    def needs(self) -> str:
        """Return how many pods must be placed together."""
        total = sum(member.replicas * member.minimum for member in self.unit.members)
        return f"{total} pod{'s' if total != 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "stage": self.stage,
            "podGroup": self.group,
            "after": [{"replicatedJob": e.before, "status": e.status} for e in self.unit.after],
            "members": [
                {
                    "replicatedJob": member.name,
                    "replicas": member.replicas,
                    "pods": member.pods,
                    "minimum": member.minimum,
                    "later": member.is_later,
                }
                for member in self.unit.members
            ],
            "minMembers": self.unit.min_members,
            "requests": dict(self.requests),
        }


class Preview(NamedTuple):
    """Everything that is known of a workload before it exists."""

    kind: str
    key: Key
    runtime: str
    mode: Mode
    queue: Choice
    jobset: JobSet
    rows: tuple[Row, ...]
    groups: tuple[Fields, ...]
    findings: tuple[Finding, ...]

    @property
    def is_blocked(self) -> bool:
        """Say whether a part of it will never run."""
        return any(finding.blocks for finding in self.findings)


def preview(job: TrainJob, runtime: Runtime, around: Surroundings) -> Preview:
    """Return what becomes of a TrainJob."""
    built = expand(job, runtime)
    policy = runtime.spec.pod_group_policy
    field = policy.kai_scheduler.queue if policy and policy.kai_scheduler else ""
    faults = tuple(Finding(fault.path, fault.message, blocks=True) for fault in built.faults)
    found = _preview(built.jobset, around, _asked(built.jobset, around, job, field))
    reference = job.spec.runtime_ref
    return found._replace(
        kind="TrainJob",
        runtime=f"{reference.kind} {reference.name}",
        findings=(*faults, *found.findings),
    )


def preview_jobset(jobset: JobSet, around: Surroundings) -> Preview:
    """Return what becomes of a JobSet that is there already, or was written by hand."""
    return _preview(jobset, around, _asked(jobset, around, None, ""))


def _asked(jobset: JobSet, around: Surroundings, job: TrainJob | None, field: str) -> Asked:
    return Asked(
        trainjob=job.metadata.labels if job else {},
        runtime_queue=field,
        jobset=jobset.metadata.labels,
        templates=tuple(
            it.template.spec.template.metadata.labels for it in jobset.spec.replicated_jobs
        ),
        namespace=around.namespace,
    )


def _preview(jobset: JobSet, around: Surroundings, asked: Asked) -> Preview:
    queue = choose(asked, around.default_queue)
    labels = {**jobset.metadata.labels, QUEUE: queue.queue}
    meta = replace(jobset.metadata, labels=labels, uid=jobset.metadata.uid or "UID")
    jobset = replace(jobset, metadata=meta)
    plan = outline(jobset, around.scheduler_name, staged=around.mode == "external")
    rules = Rules(around.mode, around.scheduler_name, around.default_queue)
    wanted = tuple(groups(jobset, plan, rules))
    return Preview(
        kind="JobSet",
        key=meta.key,
        runtime="",
        mode=around.mode,
        queue=queue,
        jobset=jobset,
        rows=tuple(_rows(jobset, plan, wanted)),
        groups=wanted,
        findings=plan.findings,
    )


def _rows(jobset: JobSet, plan: Outline, wanted: tuple[Fields, ...]) -> Iterator[Row]:
    for unit, fields in zip(plan.units, wanted, strict=True):
        notes = fields["metadata"]["annotations"]
        stage, _, after = notes[STAGE].partition(" after ")
        name = fields["metadata"]["name"]
        yield Row(stage, name, after, notes[MEMBERS], unit, spell(_total(jobset, unit)))


def _total(jobset: JobSet, unit: Unit) -> Mapping[str, int]:
    jobs = {job.name: job for job in jobset.spec.replicated_jobs}
    total: dict[str, int] = {}
    for member in unit.members:
        pod = demand(jobs[member.name].template.spec.template.spec)
        for name, amount in pod.items():
            total[name] = total.get(name, 0) + amount * member.replicas * member.pods
    return total
