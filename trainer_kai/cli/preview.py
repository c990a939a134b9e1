"""What would become of a TrainJob: its JobSet, queue, units, groups and findings, all at once.

The same functions answer here as in Trainer's place, in admission and in the podgrouper, one after
the other, so a preview is what happens. Before there is an object its uid reads `UID`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK, INJECT, MEMBERS, STAGE
from trainer_kai.api.resources import JOBSETS
from trainer_kai.api.runtime import Runtime
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.podgrouper.plan import Known, is_ours, plan
from trainer_kai.policy.demand import demand, spell
from trainer_kai.policy.expand import expand
from trainer_kai.policy.finding import Code, Finding
from trainer_kai.policy.groups import Fields, Mode, Rules
from trainer_kai.policy.lint import NOTHING_KNOWN, Bounds, lint_jobset, lint_trainjob
from trainer_kai.policy.queues import Asked, Choice, Source, choose
from trainer_kai.policy.units import Outline, Unit
from webhook.cache import TrainJob as KnownTrainJob
from webhook.mutate_jobset import Facts, mutate_jobset, read_jobset
from webhook.queuetree import QueueTree
from webhook.resolved import LABEL
from webhook.review import Answer, Kind, Request

__all__ = ["Preview", "Row", "Surroundings", "admitted", "preview", "preview_jobset"]

_UID: Final = "UID"
_TOLD: Final = (Code.NOT_BUILT, Code.UNREACHABLE, Code.NOT_UNDERSTOOD)  # by others, here
_TAKEN_OUT: Final = "disabled"


class Surroundings(NamedTuple):
    """What a site decides, and what the namespace says."""

    mode: Mode
    scheduler_name: str
    default_queue: str
    namespace: Mapping[str, str] | None = {}  # its labels; None where nobody has looked
    bounds: Bounds = NOTHING_KNOWN


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
    rows: tuple[Row, ...]
    groups: tuple[Fields, ...]
    findings: tuple[Finding, ...]

    @property
    def is_blocked(self) -> bool:
        """Say whether a part of it will never run."""
        return any(finding.blocks for finding in self.findings)


class _Built(NamedTuple):
    """A TrainJob's JobSet, before and after admission, and what is worth telling of either."""

    bare: JobSet
    admitted: JobSet
    queue: str  # the runtime's own field
    faults: tuple[Finding, ...]
    told: list[Finding]


def admitted(
    job: TrainJob, runtime: Runtime, around: Surroundings
) -> tuple[JobSet, tuple[Finding, ...]]:
    """Return the JobSet of a TrainJob as it would be let in, and what is worth telling of it."""
    built = _built(job, runtime, around)
    return built.admitted, (*built.faults, *built.told)


def preview(job: TrainJob, runtime: Runtime, around: Surroundings) -> Preview:
    """Return what becomes of a TrainJob: built by Trainer, admitted by us, grouped by us."""
    built = _built(job, runtime, around)
    found = _preview(built.admitted, around, _asked(built.bare, around, job, built.queue))
    reference = job.spec.runtime_ref
    if around.namespace is None and found.queue.source is Source.DEFAULT:
        path, message = "metadata.namespace", "is in no file; its label would name the queue"
        built.told.append(Finding(path, message))
    known = {(finding.path, finding.message) for finding in found.findings}
    notes = (note for note in built.told if (note.path, note.message) not in known)
    rules, queue = _rules(around), found.queue.queue
    linted = lint_trainjob(job, runtime, queue, rules, around.bounds) if found.rows else ()
    return found._replace(
        kind="TrainJob",
        key=job.metadata.key,
        runtime=f"{reference.kind} {reference.name}",
        findings=(*built.faults, *notes, *found.findings, *_new(linted), *_missing(found, around)),
    )


def _new(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what nobody else tells."""
    return (finding for finding in findings if finding.code not in _TOLD)


def _missing(found: Preview, around: Surroundings) -> Iterator[Finding]:
    """Yield why no workload can be in a queue, as admission does where all queues are known."""
    if not (around.bounds.queues and found.rows) or any(
        it.path == LABEL and it.blocks for it in found.findings
    ):
        return
    tree = QueueTree()
    for name, spec in around.bounds.queues.items():
        tree.put(name, spec.parent_queue)
    tree.all_listed()
    lack = tree.lack(found.queue.queue)
    if lack:
        source = found.queue.source.value
        yield Finding(LABEL, f"{source} is {found.queue.queue!r}, and {lack}")


def _built(job: TrainJob, runtime: Runtime, around: Surroundings) -> _Built:
    built = expand(job, runtime)
    policy = runtime.spec.pod_group_policy
    queue = policy.kai_scheduler.queue if policy and policy.kai_scheduler else ""
    faults = tuple(Finding(fault.path, fault.message, blocks=True) for fault in built.faults)
    facts = Facts(_known(job), queue, around.namespace or {})
    if facts.namespace.get(INJECT) == _TAKEN_OUT:
        out = Finding("metadata.namespace", f"is taken out by its label {INJECT}")
        return _Built(built.jobset, _without_pods(built.jobset), queue, faults, [out])
    jobset, told = _admit(built.jobset, facts, around)
    return _Built(built.jobset, jobset, queue, faults, told)


def preview_jobset(jobset: JobSet, around: Surroundings) -> Preview:
    """Return what becomes of a JobSet as it is; only admission makes one ours."""
    found = _preview(jobset, around, _asked(jobset, around, None, ""))
    if is_ours(jobset):
        linted = lint_jobset(jobset, found.queue.queue, _rules(around), around.bounds)
        return found._replace(findings=(*found.findings, *_new(linted), *_missing(found, around)))
    manager = jobset.spec.managed_by
    is_marked = jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    told = (
        Finding("spec.managedBy", f"it is left to {manager}")
        if is_marked
        else Finding("metadata.annotations", f"without {ADMITTED} it is left alone: not ours")
    )
    return found._replace(findings=(told,))


def _known(job: TrainJob) -> KnownTrainJob:
    reference = job.spec.runtime_ref
    return KnownTrainJob(
        uid=_UID,
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
        runtime=Key(job.metadata.namespace, reference.name),
    )


def _admit(jobset: JobSet, facts: Facts, around: Surroundings) -> tuple[JobSet, list[Finding]]:
    """Send a JobSet through admission, as the API server would at its creation."""
    rules = _rules(around)
    kind = Kind(group=JOBSETS.group, version=JOBSETS.version, kind=JOBSETS.kind)
    body = msgspec.Raw(msgspec.json.encode(jobset))
    request = Request(uid=_UID, kind=kind, operation="CREATE", object=body)
    case = read_jobset(request, rules)
    if isinstance(case, Answer):
        return _without_pods(jobset), _refusals(case)
    answer = mutate_jobset(case, facts, rules)
    made = msgspec.convert(case.tree, JobSet)
    if answer.refusal or ADMITTED not in made.metadata.annotations:
        return _without_pods(jobset), _refusals(answer)
    return made, [*map(_note, answer.warnings)]


def _note(warning: str) -> Finding:
    path, _, message = warning.partition(": ")
    return Finding(path, message)


def _refusals(answer: Answer) -> list[Finding]:
    if answer.refusal:
        return [Finding("spec.runtimeRef", answer.refusal.message, blocks=True)]
    message = "its pods are left to another scheduler, so admission writes nothing"
    return [Finding("spec.runtimeRef", message)]


def _without_pods(jobset: JobSet) -> JobSet:
    return replace(jobset, spec=replace(jobset.spec, replicated_jobs=()))


def _asked(jobset: JobSet, around: Surroundings, job: TrainJob | None, field: str) -> Asked:
    return Asked(
        trainjob=job.metadata.labels if job else {},
        runtime_queue=field,
        jobset=jobset.metadata.labels,
        templates=tuple(
            it.template.spec.template.metadata.labels for it in jobset.spec.replicated_jobs
        ),
        namespace=around.namespace or {},
    )


def _rules(around: Surroundings) -> Rules:
    return Rules(around.mode, around.scheduler_name, around.default_queue)


def _preview(jobset: JobSet, around: Surroundings, asked: Asked) -> Preview:
    """Ask the podgrouper what it would do if the JobSet were there now, and free to begin."""
    jobset = JobSet(
        metadata=replace(jobset.metadata, uid=jobset.metadata.uid or _UID, deletion_timestamp=""),
        spec=replace(jobset.spec, suspend=False),
    )
    steps = plan(jobset, Known({}), (), _rules(around))
    return Preview(
        kind="JobSet",
        key=jobset.metadata.key,
        runtime="",
        mode=around.mode,
        queue=choose(asked, around.default_queue),
        rows=tuple(_rows(jobset, steps.outline, steps.apply)) if steps.apply else (),
        groups=steps.apply,
        findings=steps.outline.findings,
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
