"""What admission makes of a JobSet or Job of a user: refused, ignored, or marked as ours. Pure.

A workload without a TrainJob is ours if a pod template names our scheduler. Then the queue is
resolved, and the pods of each PodGroup get its label.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    DEFAULT_SCHEDULER,
    GANG,
    INJECT,
    QUEUE,
    SKIP_PODGROUPER,
)
from trainer_kai.api.text import listed_names
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.podgroups.grouping import PodGroupPlan, plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.queue_resolution import (
    QueueChoice,
    QueueSource,
    RequestedQueues,
    resolve_queue,
)
from trainer_kai.policy.workloads.workload import JobsForm, StagedJobs, Workload
from webhook.rules.jobset_deny import (
    deny_exclusive_placement,
    deny_oversized_podgroup,
    deny_queue_name,
    deny_size,
)

# In the form of a JobSet.
FIRST_SCHEDULER_FIELD: Final = "spec.replicatedJobs[0].template.spec.template.spec.schedulerName"

_DISABLED: Final = "disabled"
_MAX_NAMED: Final = 3


class ReviewedWorkload(NamedTuple):
    """A workload as it will be stored; only one that is ours has the mark of admission."""

    workload: Workload
    queue: QueueChoice
    findings: tuple[Finding, ...] = ()  # why it is refused, or not ours


def review_workload(
    workload: Workload, rules: GroupingRules, namespace_labels: Mapping[str, str]
) -> ReviewedWorkload:
    """Review a workload at its creation; one that has the mark already stays as it is."""
    sources = requested_queues(workload, namespace_labels)
    queue = resolve_queue(sources, rules.default_queue)
    if workload.metadata.annotations.get(ADMITTED) == ADMITTED_MARK:
        return ReviewedWorkload(workload, queue)
    findings = [*_foreign_findings(workload, rules, namespace_labels)]
    if findings or not workload.kind.has_mark:
        if queue.source is QueueSource.NAMESPACE:
            workload = workload.with_namespace_queue(queue.queue)
        return ReviewedWorkload(workload, queue, tuple(findings))
    plan = plan_podgroups(
        workload,
        rules.scheduler_name,
        staged=rules.mode == "external",
        form=workload.kind.form,
    )
    findings = [*_denials(workload, rules, queue, plan)]
    if findings:
        return ReviewedWorkload(workload, queue, tuple(findings))
    return ReviewedWorkload(_marked(workload, rules, queue, plan), queue)


def requested_queues(workload: Workload, namespace_labels: Mapping[str, str]) -> RequestedQueues:
    templates = (it.template.spec.template for it in workload.spec.replicated_jobs)
    return RequestedQueues(
        trainjob=workload.metadata.labels,  # no object stands above it
        templates=tuple(it.metadata.labels for it in templates),
        namespace=namespace_labels,
    )


def excluded_namespace(labels: Mapping[str, str]) -> Iterator[Finding]:
    if labels.get(INJECT) == _DISABLED:
        message = f"is excluded from trainer-kai by its label {INJECT}"
        yield Finding("metadata.namespace", message)


def other_schedulers(workload: StagedJobs, scheduler_name: str) -> str:
    """Return the schedulers that the pod templates name; "" if one of them is ours."""
    named = {_scheduler(job) for job in workload.spec.replicated_jobs}
    if scheduler_name in named:
        return ""
    return listed_names(sorted(it or DEFAULT_SCHEDULER for it in named), _MAX_NAMED)


def other_scheduler_finding(
    workload: StagedJobs, kind: str, form: JobsForm, scheduler_name: str
) -> Finding | None:
    """Return that none of the pods are for our scheduler, and what to change."""
    others = other_schedulers(workload, scheduler_name)
    if not others:
        return None
    message = (
        f"the pods are for scheduler {others}. To have trainer-kai schedule the {kind}, set"
        f" {scheduler_name} here"
    )
    own = workload if isinstance(workload, Workload) else form
    return Finding(own.own_path(FIRST_SCHEDULER_FIELD), message)


def _foreign_findings(
    workload: Workload, rules: GroupingRules, namespace_labels: Mapping[str, str]
) -> Iterator[Finding]:
    yield from excluded_namespace(namespace_labels)
    kind = workload.key.kind
    if not workload.is_managed_here:
        yield Finding("spec.managedBy", f"another controller manages the {kind}")
        return
    other = other_scheduler_finding(workload, kind, workload.kind.form, rules.scheduler_name)
    if other is not None:
        yield other


def _denials(
    workload: Workload, rules: GroupingRules, queue: QueueChoice, plan: PodGroupPlan
) -> Iterator[Finding]:
    jobset = JobSet(metadata=workload.metadata, spec=workload.spec)
    is_jobset = bool(workload.kind.form.jobs_path)
    jobs = workload.spec.replicated_jobs
    ours = {i: job for i, job in enumerate(jobs) if _scheduler(job) == rules.scheduler_name}
    refused = (
        deny_size(jobset),
        deny_exclusive_placement(jobset, ours) if is_jobset else None,
        deny_queue_name(queue),
        deny_oversized_podgroup(plan),
    )
    for denial in filter(None, refused):
        yield Finding(workload.kind.form.jobs_path or "metadata", denial.message, blocks=True)


def _marked(
    workload: Workload, rules: GroupingRules, queue: QueueChoice, plan: PodGroupPlan
) -> Workload:
    meta, spec = workload.metadata, workload.spec
    is_grouped_by_user = meta.annotations.get(SKIP_PODGROUPER) == "true"
    jobs = []
    for job in spec.replicated_jobs:
        podgroup = None if is_grouped_by_user else plan.podgroup_of(job.name)
        labels = {QUEUE: queue.queue} if queue.queue else {}
        if podgroup is not None:
            labels[GANG] = podgroup.suffix
        is_ours = _scheduler(job) == rules.scheduler_name
        jobs.append(_with_labels(job, labels) if is_ours else job)
    marked = replace(
        meta,
        annotations={**meta.annotations, ADMITTED: ADMITTED_MARK},
        labels={**meta.labels, QUEUE: queue.queue} if queue.queue else meta.labels,
    )
    return replace(workload, metadata=marked, spec=replace(spec, replicated_jobs=tuple(jobs)))


def _with_labels(job: ReplicatedJob, added: Mapping[str, str]) -> ReplicatedJob:
    """Add labels to the pods; a queue that they name stays."""
    spec = job.template.spec
    given = spec.template.metadata
    own_queue = {QUEUE: given.labels[QUEUE]} if given.labels.get(QUEUE) else {}
    meta = replace(given, labels={**given.labels, **added, **own_queue})
    pods = replace(spec.template, metadata=meta)
    return replace(job, template=replace(job.template, spec=replace(spec, template=pods)))


def _scheduler(job: ReplicatedJob) -> str:
    return job.template.spec.template.spec.scheduler_name
