"""The preview of a TrainJob, JobSet or Job: its queue, its PodGroups, and findings. Pure.

What Trainer, admission and the podgrouper would do is done one after the other, by the same
functions, so a preview is what will happen. The patch of admission is applied as the API server
does it. The uid of an object that does not exist yet is `UID`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from trainer_kai.api.jobset import CronJob, Job, JobSet
from trainer_kai.api.meta import Key, Meta, OwnerReference
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    BATCH_MIN_MEMBER,
    MEMBERS,
    PROJECT,
    QUEUE,
    STAGE,
)
from trainer_kai.api.requested_values import is_count
from trainer_kai.api.resources import CRON_JOBS, JOBSETS, RUNTIMES
from trainer_kai.api.text import counted
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.cli.commands.plan.admission import (
    excluded_namespace,
    other_scheduler_finding,
    requested_queues,
    review_workload,
)
from trainer_kai.cli.commands.plan.placements import Placement
from trainer_kai.cli.commands.plan.requests import NO_CLAIMS, ClaimGpus, total_requests
from trainer_kai.cli.input.pod_owners import OwnedPods
from trainer_kai.podgrouper.plan import ObservedState, plan
from trainer_kai.policy.expand.jobset import carried_to_pods, expand, launcher_trains
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_index import NOTHING_KNOWN, KnownCluster
from trainer_kai.policy.lint.trainjob import lint_jobset, lint_trainjob
from trainer_kai.policy.podgroups.default_group import (
    DefaultGroup,
    default_group_findings,
    default_podgroup,
)
from trainer_kai.policy.podgroups.grouping import (
    MAIN,
    PlannedPodGroup,
    PlannedSubGroup,
    PodGroupPlan,
)
from trainer_kai.policy.podgroups.manifests import GroupingMode, GroupingRules, ManifestFields
from trainer_kai.policy.queueing.kind_defaults import NO_CHANGES, KindDefaults
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    queue_of_owner,
    resolve_queue,
)
from trainer_kai.policy.start_order import pods_at_once
from trainer_kai.policy.workloads.job import ONLY_JOB, job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import Workload
from webhook.admission.patch import Operation
from webhook.admission.review import AdmissionRequest, AdmissionResponse, ReviewedKind
from webhook.cache.admission_cache import QueueTree, TrainJobSummary
from webhook.rules.jobset_mutate import JobSetContext, mutate_jobset, read_jobset
from webhook.rules.trainjob_queue_sources import QUEUE_LABEL_PATH, unusable_queue_message

_OF_PODS: Final = re.compile(
    r"spec\.replicatedJobs\[(\d+)\]\.template\.spec\.template\.(metadata\.annotations\[(.+)\])"
)
_UID: Final = "UID"
_TIME: Final = "TIME"  # ends the name of a Job of a CronJob
_REPORTED_ELSEWHERE: Final = (  # by the build, the plan and the checks of values
    FindingCode.JOBSET_NOT_BUILT,
    FindingCode.UNREACHABLE,
    FindingCode.INVALID_VALUE,
)
_NAMESPACE: Final = "metadata.namespace"
_JOB_TEMPLATE: Final = "spec.jobTemplate."


class PreviewContext(NamedTuple):
    """The settings of the cluster, the labels of the namespace, and the known objects."""

    mode: GroupingMode
    scheduler_name: str
    default_queue: str
    namespace_labels: Mapping[str, str] | None = {}  # None where it was not read
    known_cluster: KnownCluster = NOTHING_KNOWN
    kind_defaults: KindDefaults = NO_CHANGES
    claim_gpus: ClaimGpus = NO_CLAIMS


class PodGroupPreview(NamedTuple):
    stage: str  # such as 2/3
    name: str
    after: str
    members: str
    planned: PlannedPodGroup
    requests: Mapping[str, str]  # of all its pods together: resources, and shares of GPUs

    @property
    def min_pods_text(self) -> str:
        members = self.planned.subgroups
        return counted(sum(it.replicas * it.min_member for it in members), "pod")

    def as_json(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "podGroup": self.name,
            "after": [{"replicatedJob": e.before, "status": e.status} for e in self.planned.after],
            "members": [
                {
                    "replicatedJob": member.name,
                    "replicas": member.replicas,
                    "pods": member.pods,
                    "minimum": member.min_member,
                    "later": member.is_anticipated,
                }
                for member in self.planned.subgroups
            ],
            "minMembers": self.planned.min_subgroups,
            "requests": dict(self.requests),
        }


class Preview(NamedTuple):
    kind: str
    key: Key
    runtime: str
    mode: GroupingMode
    queue: QueueChoice
    podgroups: tuple[PodGroupPreview, ...]
    manifests: tuple[ManifestFields, ...]
    findings: tuple[Finding, ...]
    placements: tuple[Placement, ...] = ()

    @property
    def is_blocked(self) -> bool:
        """Say whether a part of it can never run."""
        return any(finding.blocks for finding in self.findings)


class _BuiltJobSet(NamedTuple):
    """A TrainJob's JobSet, before and after admission, with the findings of both."""

    before_admission: JobSet
    admitted: JobSet
    runtime_queue: str  # the queue that the runtime names in a field
    faults: tuple[Finding, ...]
    notes: list[Finding]


def preview_trainjob(job: TrainJob, runtime: Runtime, context: PreviewContext) -> Preview:
    built = _build_jobset(job, runtime, context)
    queue_sources = _queue_sources(built.before_admission, context, job, built.runtime_queue)
    choice = resolve_queue(queue_sources, context.default_queue)
    preview = _preview(jobset_workload(built.admitted), context, choice)
    built.notes.extend(_namespace_notes(preview, context))
    reported = {(finding.path, finding.message) for finding in preview.findings}
    notes = (note for note in built.notes if (note.path, note.message) not in reported)
    rules, queue, known_cluster = _rules(context), preview.queue.queue, context.known_cluster
    linted = lint_trainjob(job, runtime, queue, rules, known_cluster) if preview.podgroups else ()
    carried = dict(
        carried_to_pods(
            built.before_admission.spec.replicated_jobs,
            job.metadata.annotations,
            with_launcher=launcher_trains(runtime.spec.ml_policy),
        )
    )
    planned = dict.fromkeys(_in_trainjob(it, carried) for it in preview.findings)
    own = (*planned, *_not_reported(linted), *_queue_findings(preview, context))
    reference = job.spec.runtime_ref
    return preview._replace(
        kind="TrainJob",
        key=job.metadata.key,
        runtime=f"{reference.kind} {reference.name}",
        findings=(*built.faults, *notes, *own),
    )


def _in_trainjob(finding: Finding, carried: Mapping[int, Mapping[str, str]]) -> Finding:
    """Name the annotation of the TrainJob, where its pods have it from there."""
    found = _OF_PODS.fullmatch(finding.path)
    if found is None or found[3] not in carried.get(int(found[1]), {}):
        return finding
    return finding._replace(path=found[2])


def preview_workload(
    workload: Workload, context: PreviewContext, queue: QueueChoice | None = None
) -> Preview:
    """Return the preview of a workload as it is; without the mark of admission it is ignored.

    *queue* is the choice of admission, which the workload shows no more.
    """
    sources = requested_queues(workload, _namespace(context))
    preview = _preview(workload, context, queue or resolve_queue(sources, context.default_queue))
    if workload.is_admitted_here:
        rules, form = _rules(context), workload.kind.form
        linted = lint_jobset(workload, preview.queue.queue, rules, context.known_cluster, form)
        own = (*preview.findings, *_not_reported(linted), *_queue_findings(preview, context))
        return preview._replace(findings=own)
    kind = workload.key.kind
    if workload.metadata.annotations.get(ADMITTED) == ADMITTED_MARK:
        message = f"another controller manages the {kind}"
        return preview._replace(findings=(Finding("spec.managedBy", message),))
    message = f"the {kind} has no annotation {ADMITTED}, so trainer-kai ignores it"
    return preview._replace(findings=(Finding("metadata.annotations", message),))


def preview_submitted(workload: Workload, context: PreviewContext) -> Preview:
    """Return the preview of a workload before admission; one with an owner stays as it is."""
    if workload.needs_owner:
        return preview_workload(workload, context)
    reviewed = review_workload(workload, _rules(context), _namespace(context))
    preview = preview_workload(reviewed.workload, context, reviewed.queue)
    if reviewed.findings:
        return preview._replace(findings=reviewed.findings)
    return preview._replace(findings=(*_namespace_notes(preview, context), *preview.findings))


def preview_cron_job(cron_job: CronJob, context: PreviewContext) -> Preview:
    """Return the preview of a Job that the CronJob will create."""
    workload = job_workload(job_of_cron_job(cron_job))
    assert workload is not None, "a Job of a CronJob is a workload"
    preview = preview_submitted(workload, context)
    findings = (
        it if it.path == _NAMESPACE else it._replace(path=f"{_JOB_TEMPLATE}{it.path}")
        for it in preview.findings
    )
    key = cron_job.metadata.key
    return preview._replace(kind=CRON_JOBS.kind, key=key, findings=tuple(findings))


def job_of_cron_job(cron_job: CronJob) -> Job:
    meta, template = cron_job.metadata, cron_job.spec.job_template
    owner = OwnerReference(
        api_version=CRON_JOBS.api_version, kind=CRON_JOBS.kind, name=meta.name, controller=True
    )
    job_meta = Meta(
        name=f"{meta.name}-{_TIME}",
        namespace=meta.namespace,
        uid=_UID,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=(owner,),
    )
    return Job(metadata=job_meta, spec=template.spec)


def foreign_preview(kind: str, meta: Meta, context: PreviewContext) -> Preview:
    """Return the preview of an object that is a part of another workload."""
    controller = meta.controller
    named = f"{controller.kind} {controller.name}" if controller else "another object"
    message = f"the {kind} belongs to {named}. Plan that instead"
    finding = Finding("metadata.ownerReferences", message)
    queue = QueueChoice(context.default_queue, QueueSource.DEFAULT)
    return Preview(kind, meta.key, "", context.mode, queue, (), (), (finding,))


def preview_owned(owned: OwnedPods, context: PreviewContext) -> Preview:
    """Return the preview of an object that owns pods by a template: the podgrouper groups these."""
    group, rules = owned.group, _rules(context)
    left_out = _left_out(owned, context)
    if group is None or left_out is not None:
        queue = QueueChoice(context.default_queue, QueueSource.DEFAULT)
        found = (left_out,) if left_out is not None else ()
        return Preview(owned.kind, owned.key, "", context.mode, queue, (), (), found)
    choice = owner_queue(group, context.namespace_labels or {}, context.default_queue)
    classes = SelectablePriorityClasses(context.known_cluster.priorities or {})
    fields = default_podgroup(group, choice.queue, classes, context.kind_defaults)
    minimum = fields["spec"].get("minMember", 1)
    planned = PlannedPodGroup(
        MAIN, (PlannedSubGroup(ONLY_JOB, 1, owned.pods, minimum, is_anticipated=False),), 1, ()
    )
    row = PodGroupPreview(
        fields["metadata"]["annotations"][STAGE],
        group.key.name,
        "",
        counted(owned.pods, "pod"),
        planned,
        total_requests(owned, planned, context.claim_gpus, set()),
    )
    raised = ", or raise spec.replicas" if owned.has_replicas else ""
    linted = lint_jobset(owned, choice.queue, rules, context.known_cluster, owned.form)
    preview = Preview(owned.kind, owned.key, "", context.mode, choice, (row,), (fields,), ())
    findings = (
        *_namespace_notes(preview, context),
        *default_group_findings(group.subject),
        *_minimum_faults(minimum, owned.pods, raised),
        *_not_reported(linted),
        *_queue_findings(preview, context),
    )
    return preview._replace(findings=findings)


def _left_out(owned: OwnedPods, context: PreviewContext) -> Finding | None:
    """Return why an object has no PodGroup of ours."""
    if owned.group is None:
        return Finding("metadata.deletionTimestamp", "it is being deleted")
    other = other_scheduler_finding(owned, owned.kind, owned.form, context.scheduler_name)
    if other is None and context.mode == "external":
        return Finding("metadata", "the podgrouper of KAI groups its pods")
    if other is None and not owned.pods:
        return Finding("spec.replicas", "its number of pods is 0")
    return other


def _minimum_faults(requested: int, pods: int, remedy: str = "") -> Iterator[Finding]:
    if requested > pods:
        message = f"{requested} is more than its {counted(pods, 'pod')}, so it can never start"
        path = f"metadata.annotations[{BATCH_MIN_MEMBER}]"
        yield Finding(path, f"{message}. Lower it to {pods}{remedy}", blocks=True)


def owner_queue(
    group: DefaultGroup, namespace_labels: Mapping[str, str], default: str
) -> QueueChoice:
    """Return the queue of pods whose owner has no adapter, as the podgrouper finds it."""
    own, of_pod = group.subject.labels, group.pod.labels
    name = queue_of_owner(own, of_pod)
    if not name:
        return resolve_queue(RequestedQueues(namespace=namespace_labels), default)
    is_own = own.get(QUEUE) or (own.get(PROJECT) and not of_pod.get(QUEUE))
    return QueueChoice(name, QueueSource.TRAINJOB if is_own else QueueSource.POD_TEMPLATE)


def admitted_jobset(
    job: TrainJob, runtime: Runtime, context: PreviewContext
) -> tuple[JobSet, tuple[Finding, ...]]:
    built = _build_jobset(job, runtime, context)
    return built.admitted, (*built.faults, *built.notes)


def runtime_key(job: TrainJob) -> tuple[str, Key]:
    reference = job.spec.runtime_ref
    namespace = job.metadata.namespace if reference.kind == RUNTIMES.kind else ""
    return reference.kind, Key(namespace, reference.name)


def _namespace_notes(preview: Preview, context: PreviewContext) -> Iterator[Finding]:
    if context.namespace_labels is None and preview.queue.source is QueueSource.DEFAULT:
        message = "is in no file; a label of the namespace could name the queue"
        yield Finding(_NAMESPACE, message)


def _namespace(context: PreviewContext) -> Mapping[str, str]:
    return context.namespace_labels or {}


def _not_reported(findings: Iterable[Finding]) -> Iterator[Finding]:
    return (finding for finding in findings if finding.code not in _REPORTED_ELSEWHERE)


def _queue_findings(preview: Preview, context: PreviewContext) -> Iterator[Finding]:
    """Yield why a queue takes no workload, like admission if all queues are known."""
    queues = context.known_cluster.queues
    is_refused = any(it.path == QUEUE_LABEL_PATH and it.blocks for it in preview.findings)
    if not queues or not preview.podgroups or is_refused:
        return
    tree = QueueTree()
    for name, spec in queues.items():
        tree.put(name, spec.parent_queue)
    tree.mark_listed()
    message = unusable_queue_message(preview.queue, tree)
    if message:
        yield Finding(QUEUE_LABEL_PATH, message)


def _build_jobset(job: TrainJob, runtime: Runtime, context: PreviewContext) -> _BuiltJobSet:
    built = expand(job, runtime)
    policy = runtime.spec.pod_group_policy
    queue = policy.kai_scheduler.queue if policy and policy.kai_scheduler else ""
    faults = tuple(Finding(fault.path, fault.message, blocks=True) for fault in built.faults)
    jobset_context = JobSetContext(
        _trainjob_summary(job),
        queue,
        context.namespace_labels or {},
        launcher_trains(runtime.spec.ml_policy),
    )
    notes = [*excluded_namespace(jobset_context.namespace_labels)]
    if notes:
        return _BuiltJobSet(built.jobset, _without_pods(built.jobset), queue, faults, notes)
    jobset, notes = _admit(built.jobset, jobset_context, context)
    return _BuiltJobSet(built.jobset, jobset, queue, faults, notes)


def _trainjob_summary(job: TrainJob) -> TrainJobSummary:
    return TrainJobSummary(
        uid=_UID,
        labels=job.metadata.labels,
        annotations=job.metadata.annotations,
        runtime=Key(job.metadata.namespace, job.spec.runtime_ref.name),
    )


def _admit(
    jobset: JobSet, jobset_context: JobSetContext, context: PreviewContext
) -> tuple[JobSet, list[Finding]]:
    """Pass a JobSet through admission, like the API server at its creation."""
    rules = _rules(context)
    kind = ReviewedKind(group=JOBSETS.group, version=JOBSETS.version, kind=JOBSETS.kind)
    body = msgspec.Raw(msgspec.json.encode(jobset))
    request = AdmissionRequest(uid=_UID, kind=kind, operation="CREATE", object=body)
    admission = read_jobset(request, rules)
    if isinstance(admission, AdmissionResponse):
        return _without_pods(jobset), _refusals(admission)
    response = mutate_jobset(admission, jobset_context, rules)
    admitted = msgspec.convert(_patched(body, response.operations), JobSet)
    if response.denial or ADMITTED not in admitted.metadata.annotations:
        return _without_pods(jobset), _refusals(response)
    warnings = (it.partition(": ") for it in response.warnings)
    return admitted, [Finding(path, message) for path, _, message in warnings]


def _patched(body: bytes, operations: Iterable[Operation]) -> Any:
    """Apply the operations of a response to the submitted object, as the API server does."""
    import jsonpatch  # noqa: PLC0415 - `why` previews JobSets only, which need no patch

    sent = msgspec.json.decode(msgspec.json.encode(operations))
    return jsonpatch.apply_patch(msgspec.json.decode(body), sent, in_place=True)


def _refusals(response: AdmissionResponse) -> list[Finding]:
    if response.denial:
        return [Finding("spec.runtimeRef", response.denial.message, blocks=True)]
    message = "its pods have another scheduler, so admission changes nothing"
    return [Finding("spec.runtimeRef", message)]


def _without_pods(jobset: JobSet) -> JobSet:
    return replace(jobset, spec=replace(jobset.spec, replicated_jobs=()))


def _queue_sources(
    jobset: JobSet, context: PreviewContext, job: TrainJob, runtime_queue: str
) -> RequestedQueues:
    templates = (it.template.spec.template for it in jobset.spec.replicated_jobs)
    return RequestedQueues(
        trainjob=job.metadata.labels,
        runtime_queue=runtime_queue,
        jobset=jobset.metadata.labels,
        templates=tuple(it.metadata.labels for it in templates),
        namespace=context.namespace_labels or {},
    )


def _rules(context: PreviewContext) -> GroupingRules:
    return GroupingRules(
        context.mode,
        context.scheduler_name,
        context.default_queue,
        kind_defaults=context.kind_defaults,
    )


def _preview(workload: Workload, context: PreviewContext, queue: QueueChoice) -> Preview:
    """Return what the podgrouper would do if the workload existed and were not suspended."""
    meta = replace(workload.metadata, uid=workload.metadata.uid or _UID)
    started = replace(workload, metadata=meta, is_suspended=False, is_finished=False)
    steps = plan(started, ObservedState({}), (), _rules(context))
    podgroups = (
        _podgroup_previews(started, steps.podgroup_plan, steps.apply, context.claim_gpus)
        if steps.apply
        else ()
    )
    return Preview(
        kind=workload.key.kind,
        key=meta.key,
        runtime="",
        mode=context.mode,
        queue=queue,
        podgroups=tuple(podgroups),
        manifests=steps.apply,
        findings=(*_plan_findings(started, steps.podgroup_plan.findings, context.mode),),
    )


def _plan_findings(
    workload: Workload, findings: Iterable[Finding], mode: GroupingMode
) -> Iterator[Finding]:
    """KAI takes a minimum above the pods of a Job as it is, where we lower it."""
    text = workload.metadata.annotations.get(BATCH_MIN_MEMBER, "")
    is_of_kai = mode == "external" and not workload.kind.form.jobs_path and is_count(text)
    too_many = [
        fault
        for job in (workload.spec.replicated_jobs if is_of_kai else ())
        if (pods := pods_at_once(job))  # none is a Job on hold, as with a Deployment
        for fault in _minimum_faults(int(text), pods)
    ]
    replaced = {it.path for it in too_many}
    for it in findings:
        path = workload.own_path(it.path)
        if path not in replaced:
            yield it._replace(path=path)
    yield from too_many


def _podgroup_previews(
    workload: Workload,
    plan: PodGroupPlan,
    manifests: tuple[ManifestFields, ...],
    claims: ClaimGpus,
) -> Iterator[PodGroupPreview]:
    counted_claims = set[str]()
    for podgroup, fields in zip(plan.podgroups, manifests, strict=True):
        annotations = fields["metadata"]["annotations"]
        stage, _, after = annotations[STAGE].partition(" after ")
        name, members = fields["metadata"]["name"], annotations[MEMBERS]
        if not workload.kind.form.jobs_path:  # its only job has no name
            members = counted(sum(it.total_pods for it in podgroup.subgroups), "pod")
        requests = total_requests(workload, podgroup, claims, counted_claims)
        yield PodGroupPreview(stage, name, after, members, podgroup, requests)
