"""What a TrainJob becomes: its JobSet, queue, PodGroups and findings, computed together.

The functions of Trainer, of admission and of the podgrouper run one after the other, so a preview
is what happens. Before an object exists its uid reads `UID`.
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
from trainer_kai.podgrouper.plan import ObservedState, is_admitted_here, plan
from trainer_kai.policy.expand.jobset import expand
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint import NOTHING_KNOWN, KnownCluster, lint_jobset, lint_trainjob
from trainer_kai.policy.podgroups.manifests import GroupingMode, GroupingRules, ManifestFields
from trainer_kai.policy.podgroups.planned import PlannedPodGroup, PodGroupPlan
from trainer_kai.policy.pods.requests import format_amounts, pod_requests
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)
from webhook.admission.review import AdmissionRequest, AdmissionResponse, ReviewedKind
from webhook.cache.queues import QueueTree
from webhook.cache.trainjobs import TrainJobSummary as KnownTrainJob
from webhook.rules.jobset_mutate import JobSetContext, mutate_jobset, read_jobset
from webhook.rules.queue_resolution import QUEUE_LABEL_PATH

__all__ = [
    "PodGroupPreview",
    "Preview",
    "PreviewContext",
    "admitted_jobset",
    "preview_jobset",
    "preview_trainjob",
]

_UID: Final = "UID"
_REPORTED_ELSEWHERE: Final = (
    FindingCode.NOT_BUILT,
    FindingCode.UNREACHABLE,
    FindingCode.INVALID_VALUE,
)  # by others, here
_DISABLED: Final = "disabled"


class PreviewContext(NamedTuple):
    """What a site decides, and what the namespace says."""

    mode: GroupingMode
    scheduler_name: str
    default_queue: str
    namespace: Mapping[str, str] | None = {}  # its labels; None where nobody has looked
    bounds: KnownCluster = NOTHING_KNOWN


class PodGroupPreview(NamedTuple):
    """One unit, as people want to see it."""

    stage: str  # such as 2/3
    name: str
    after: str
    members: str
    podgroup: PlannedPodGroup
    requests: Mapping[str, str]  # of all its pods together

    @property
    def needs(self) -> str:
        """Return how many pods must be placed together."""
        total = sum(member.replicas * member.min_member for member in self.podgroup.subgroups)
        return f"{total} pod{'s' if total != 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "stage": self.stage,
            "podGroup": self.name,
            "after": [{"replicatedJob": e.before, "status": e.status} for e in self.podgroup.after],
            "members": [
                {
                    "replicatedJob": member.name,
                    "replicas": member.replicas,
                    "pods": member.pods,
                    "minimum": member.min_member,
                    "later": member.is_anticipated,
                }
                for member in self.podgroup.subgroups
            ],
            "minMembers": self.podgroup.min_subgroups,
            "requests": dict(self.requests),
        }


class Preview(NamedTuple):
    """Everything that is known of a workload before it exists."""

    kind: str
    key: Key
    runtime: str
    mode: GroupingMode
    queue: QueueChoice
    rows: tuple[PodGroupPreview, ...]
    groups: tuple[ManifestFields, ...]
    findings: tuple[Finding, ...]

    @property
    def is_blocked(self) -> bool:
        """Say whether a part of it will never run."""
        return any(finding.blocks for finding in self.findings)


class _BuiltJobSet(NamedTuple):
    """A TrainJob's JobSet, before and after admission, and what is worth telling of either."""

    before_admission: JobSet
    admitted: JobSet
    queue: str  # the runtime's own field
    faults: tuple[Finding, ...]
    notes: list[Finding]


def admitted_jobset(
    job: TrainJob, runtime: Runtime, context: PreviewContext
) -> tuple[JobSet, tuple[Finding, ...]]:
    """Return the JobSet of a TrainJob as it would be let in, and what is worth telling of it."""
    built = _build_jobset(job, runtime, context)
    return built.admitted, (*built.faults, *built.notes)


def preview_trainjob(job: TrainJob, runtime: Runtime, context: PreviewContext) -> Preview:
    """Return what becomes of a TrainJob: built by Trainer, admitted by us, grouped by us."""
    built = _build_jobset(job, runtime, context)
    found = _preview(
        built.admitted, context, _queue_sources(built.before_admission, context, job, built.queue)
    )
    reference = job.spec.runtime_ref
    if context.namespace is None and found.queue.source is QueueSource.DEFAULT:
        path, message = "metadata.namespace", "is in no file; its label would name the queue"
        built.notes.append(Finding(path, message))
    known = {(finding.path, finding.message) for finding in found.findings}
    notes = (note for note in built.notes if (note.path, note.message) not in known)
    rules, queue = _rules(context), found.queue.queue
    linted = lint_trainjob(job, runtime, queue, rules, context.bounds) if found.rows else ()
    return found._replace(
        kind="TrainJob",
        key=job.metadata.key,
        runtime=f"{reference.kind} {reference.name}",
        findings=(
            *built.faults,
            *notes,
            *found.findings,
            *_not_reported(linted),
            *_queue_findings(found, context),
        ),
    )


def _not_reported(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what nobody else tells."""
    return (finding for finding in findings if finding.code not in _REPORTED_ELSEWHERE)


def _queue_findings(found: Preview, context: PreviewContext) -> Iterator[Finding]:
    """Yield why no workload can be in a queue, as admission does where all queues are known."""
    if not (context.bounds.queues and found.rows) or any(
        it.path == QUEUE_LABEL_PATH and it.blocks for it in found.findings
    ):
        return
    tree = QueueTree()
    for name, spec in context.bounds.queues.items():
        tree.put(name, spec.parent_queue)
    tree.mark_listed()
    queue_fault = tree.unusable_reason(found.queue.queue)
    if queue_fault:
        source = found.queue.source.value
        yield Finding(QUEUE_LABEL_PATH, f"{source} is {found.queue.queue!r}, and {queue_fault}")


def _build_jobset(job: TrainJob, runtime: Runtime, context: PreviewContext) -> _BuiltJobSet:
    built = expand(job, runtime)
    policy = runtime.spec.pod_group_policy
    queue = policy.kai_scheduler.queue if policy and policy.kai_scheduler else ""
    faults = tuple(Finding(fault.path, fault.message, blocks=True) for fault in built.faults)
    facts = JobSetContext(_known_trainjob(job), queue, context.namespace or {})
    if facts.namespace.get(INJECT) == _DISABLED:
        finding = Finding("metadata.namespace", f"is taken out by its label {INJECT}")
        return _BuiltJobSet(built.jobset, _without_pods(built.jobset), queue, faults, [finding])
    jobset, reported = _admit(built.jobset, facts, context)
    return _BuiltJobSet(built.jobset, jobset, queue, faults, reported)


def preview_jobset(jobset: JobSet, context: PreviewContext) -> Preview:
    """Return what becomes of a JobSet as it is; only admission makes one ours."""
    found = _preview(jobset, context, _queue_sources(jobset, context, None, ""))
    if is_admitted_here(jobset):
        linted = lint_jobset(jobset, found.queue.queue, _rules(context), context.bounds)
        return found._replace(
            findings=(*found.findings, *_not_reported(linted), *_queue_findings(found, context))
        )
    manager = jobset.spec.managed_by
    is_marked = jobset.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
    reported = (
        Finding("spec.managedBy", f"it is left to {manager}")
        if is_marked
        else Finding("metadata.annotations", f"without {ADMITTED} it is left alone: not ours")
    )
    return found._replace(findings=(reported,))


def _known_trainjob(job: TrainJob) -> KnownTrainJob:
    reference = job.spec.runtime_ref
    return KnownTrainJob(
        uid=_UID,
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
        runtime=Key(job.metadata.namespace, reference.name),
    )


def _admit(
    jobset: JobSet, facts: JobSetContext, context: PreviewContext
) -> tuple[JobSet, list[Finding]]:
    """Send a JobSet through admission, as the API server would at its creation."""
    rules = _rules(context)
    kind = ReviewedKind(group=JOBSETS.group, version=JOBSETS.version, kind=JOBSETS.kind)
    body = msgspec.Raw(msgspec.json.encode(jobset))
    request = AdmissionRequest(uid=_UID, kind=kind, operation="CREATE", object=body)
    admission = read_jobset(request, rules)
    if isinstance(admission, AdmissionResponse):
        return _without_pods(jobset), _refusals(admission)
    answer = mutate_jobset(admission, facts, rules)
    admitted = msgspec.convert(admission.tree, JobSet)
    if answer.denial or ADMITTED not in admitted.metadata.annotations:
        return _without_pods(jobset), _refusals(answer)
    return admitted, [*map(_note, answer.warnings)]


def _note(warning: str) -> Finding:
    path, _, message = warning.partition(": ")
    return Finding(path, message)


def _refusals(answer: AdmissionResponse) -> list[Finding]:
    if answer.denial:
        return [Finding("spec.runtimeRef", answer.denial.message, blocks=True)]
    message = "its pods are left to another scheduler, so admission writes nothing"
    return [Finding("spec.runtimeRef", message)]


def _without_pods(jobset: JobSet) -> JobSet:
    return replace(jobset, spec=replace(jobset.spec, replicated_jobs=()))


def _queue_sources(
    jobset: JobSet, context: PreviewContext, job: TrainJob | None, field: str
) -> RequestedQueues:
    return RequestedQueues(
        trainjob=job.metadata.labels if job else {},
        runtime_queue=field,
        jobset=jobset.metadata.labels,
        templates=tuple(
            it.template.spec.template.metadata.labels for it in jobset.spec.replicated_jobs
        ),
        namespace=context.namespace or {},
    )


def _rules(context: PreviewContext) -> GroupingRules:
    return GroupingRules(context.mode, context.scheduler_name, context.default_queue)


def _preview(jobset: JobSet, context: PreviewContext, queue_sources: RequestedQueues) -> Preview:
    """Ask the podgrouper what it would do if the JobSet were there now, and free to begin."""
    jobset = JobSet(
        metadata=replace(jobset.metadata, uid=jobset.metadata.uid or _UID, deletion_timestamp=""),
        spec=replace(jobset.spec, suspend=False),
    )
    steps = plan(jobset, ObservedState({}), (), _rules(context))
    return Preview(
        kind="JobSet",
        key=jobset.metadata.key,
        runtime="",
        mode=context.mode,
        queue=resolve_queue(queue_sources, context.default_queue),
        rows=tuple(_rows(jobset, steps.outline, steps.apply)) if steps.apply else (),
        groups=steps.apply,
        findings=steps.outline.findings,
    )


def _rows(
    jobset: JobSet, plan: PodGroupPlan, wanted: tuple[ManifestFields, ...]
) -> Iterator[PodGroupPreview]:
    for podgroup, fields in zip(plan.podgroups, wanted, strict=True):
        notes = fields["metadata"]["annotations"]
        stage, _, after = notes[STAGE].partition(" after ")
        name = fields["metadata"]["name"]
        yield PodGroupPreview(
            stage, name, after, notes[MEMBERS], podgroup, format_amounts(_total(jobset, podgroup))
        )


def _total(jobset: JobSet, podgroup: PlannedPodGroup) -> Mapping[str, int]:
    jobs = {job.name: job for job in jobset.spec.replicated_jobs}
    total: dict[str, int] = {}
    for member in podgroup.subgroups:
        pod = pod_requests(jobs[member.name].template.spec.template.spec)
        for name, amount in pod.items():
            total[name] = total.get(name, 0) + amount * member.replicas * member.pods
    return total
