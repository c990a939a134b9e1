"""Creates the PodGroups and pods that Trainer, JobSet, Job and podgrouper would create.

A JobSet with pods that have no PodGroup gets its PodGroups by the podgrouper's code. For a
TrainJob without a JobSet, and for a JobSet that has not started, the pods of the first stage are
created; those of later stages are anticipated by their PodGroup.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.decode import decode, encode
from trainer_kai.api.interning import intern_labels
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.meta import Key, Meta, OwnerReference
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    COMPLETION_INDEX,
    CONTROLLER_UID,
    GANG,
    JOB_INDEX,
    JOB_NAME,
    JOB_TRACKING,
    JOBSET_NAME,
    JOBSET_UID,
    POD_GROUP,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
)
from trainer_kai.api.pod import Pod, PodStatus
from trainer_kai.api.resources import JOBS, JOBSETS, TRAINJOBS, same_name_trainjob_owner
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.cli.commands.plan.preview import PreviewContext, admitted_jobset, runtime_key
from trainer_kai.cli.input.cluster import InputCluster
from trainer_kai.cli.input.kinds import UID
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.podgrouper.plan import ObservedState, PodAssignment, plan
from trainer_kai.podgrouper.store import PodRecord
from trainer_kai.policy.podgroups.grouping import PlannedPodGroup, observe_pod, plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules, ManifestFields
from trainer_kai.policy.start_order import pods_at_once, start_order
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.kinds import pod_place

_FINISHED: Final = frozenset({"Complete", "Failed"})
_MAX_PODS: Final = 100_000  # of one workload; a cluster has hardly more pods in total


class _Workload(NamedTuple):
    """A JobSet, and the object that messages about it name."""

    jobset: JobSet
    name: str


def create_missing_objects(inputs: InputCluster, rules: GroupingRules) -> None:
    """Create the PodGroups and pods that are missing, and note workloads that can never run."""
    pods: dict[Key, list[Pod]] = {}  # by the JobSet that their labels name
    for pod in inputs.cluster.pods.values():
        meta = pod.metadata
        if JOBSET_NAME in meta.labels:
            pods.setdefault(Key(meta.namespace, meta.labels[JOBSET_NAME]), []).append(pod)
    jobsets = inputs.cluster.workload_objects[JOBSETS]
    workloads = [
        _Workload(_with_admission_marks(it, rules), f"JobSet {key}") for key, it in jobsets.items()
    ]
    for key, job in inputs.trainjobs.items():
        if key in jobsets or key in pods:
            continue
        why = _no_pods_reason(job)
        if why:
            inputs.notes.append(f"TrainJob {key}: makes no pods: {why}")
        else:
            workloads += _built_jobset(inputs, job, rules)
    for it in workloads:
        _create_podgroups(inputs, it, pods.get(it.jobset.metadata.key, []), rules)


def _no_pods_reason(job: TrainJob) -> str:
    """Return why a TrainJob creates no pods: suspended, deleted or finished; "" if it does."""
    if job.spec.suspend:
        return "spec.suspend is true"
    if job.metadata.deletion_timestamp:
        return "it is being deleted"
    true_conditions = (it.type for it in job.status.conditions if it.status == "True")
    return next((f"it is {name}" for name in true_conditions if name in _FINISHED), "")


def _built_jobset(inputs: InputCluster, job: TrainJob, rules: GroupingRules) -> Iterator[_Workload]:
    key, (kind, runtime_name) = job.metadata.key, runtime_key(job)
    runtime = inputs.runtimes.get((kind, runtime_name))
    if runtime is None:
        inputs.notes.append(f"TrainJob {key}: ignored: its {kind} {runtime_name} is in no file")
        return
    namespace = inputs.cluster.namespaces.get(key.namespace)
    context = PreviewContext(
        mode="bundled",
        scheduler_name=rules.scheduler_name,
        default_queue=rules.default_queue,
        namespace_labels=namespace.metadata.labels if namespace else {},
    )
    jobset, findings = admitted_jobset(job, runtime, context)
    faults = [f"TrainJob {key}: never runs: {finding}" for finding in findings if finding.blocks]
    inputs.notes += faults
    if faults:
        return
    if not jobset_workload(jobset).is_admitted_here:
        why = "; ".join(map(str, findings)) or "another scheduler is requested"
        inputs.notes.append(f"TrainJob {key}: ignored: {why}")
    elif not any(job.replicas * pods_at_once(job) for job in jobset.spec.replicated_jobs):
        inputs.notes.append(f"TrainJob {key}: makes no pods: its numbers of pods are 0")
    meta = replace(jobset.metadata, uid=UID, creation_timestamp=job.metadata.creation_timestamp)
    yield _Workload(replace(jobset, metadata=meta), f"TrainJob {key}")


def _with_admission_marks(jobset: JobSet, rules: GroupingRules) -> JobSet:
    """Return a JobSet with the marks of admission, if it names our scheduler."""
    jobs = jobset.spec.replicated_jobs
    names = {job.template.spec.template.spec.scheduler_name for job in jobs}
    if ADMITTED in jobset.metadata.annotations or rules.scheduler_name not in names:
        return jobset
    podgroup_of = plan_podgroups(jobset, rules.scheduler_name).podgroup_of
    annotations = {**jobset.metadata.annotations, ADMITTED: ADMITTED_MARK}
    marked = tuple(_with_gang_label(job, rules, podgroup_of(job.name)) for job in jobs)
    return replace(
        jobset,
        metadata=replace(jobset.metadata, annotations=annotations),
        spec=replace(jobset.spec, replicated_jobs=marked),
    )


def _with_gang_label(
    job: ReplicatedJob, rules: GroupingRules, planned: PlannedPodGroup | None
) -> ReplicatedJob:
    template = job.template.spec.template
    if planned is None or template.spec.scheduler_name != rules.scheduler_name:
        return job
    labels = {**template.metadata.labels, GANG: planned.suffix}
    marked = replace(template, metadata=replace(template.metadata, labels=labels))
    spec = replace(job.template.spec, template=marked)
    return replace(job, template=replace(job.template, spec=spec))


def _create_podgroups(
    inputs: InputCluster, it: _Workload, pods: list[Pod], rules: GroupingRules
) -> None:
    cluster, jobset = inputs.cluster, it.jobset
    owner_fault = _owner_fault(inputs, jobset)
    if owner_fault:
        inputs.notes.append(f"{it.name}: gets no PodGroup: {owner_fault}")
    created = [] if pods or owner_fault or _has_started(jobset) else [*_first_pods(it.name, jobset)]
    for pod in created:
        cluster.pods.setdefault(pod.metadata.key, pod)
    known = ObservedState({}, has_owner=not owner_fault)
    members = map(_pod_record, (*pods, *created))
    steps = plan(jobset_workload(jobset), known, members, rules)
    for finding in steps.podgroup_plan.findings:
        if finding.blocks:
            inputs.notes.append(f"{it.name}: never runs: {finding}")
    owner = _own_uid(jobset.metadata)
    for fields in steps.apply:
        group = _podgroup(fields, jobset.metadata, owner)
        cluster.pod_groups.setdefault(group.metadata.key, group)
    for assign in steps.assign:
        cluster.pods[assign.key] = _assigned(cluster.pods[assign.key], assign)
    meta = replace(jobset.metadata, uid=owner)
    cluster.workload_objects[JOBSETS][meta.key] = replace(jobset, metadata=meta)


def _owner_fault(inputs: InputCluster, jobset: JobSet) -> str:
    """Return why a JobSet does not belong to the TrainJob that it names; "" if it can.

    Files often contain only one of both, or no uids; then the JobSet is trusted.
    """
    controller = jobset.metadata.controller
    if controller is None or controller.kind != TRAINJOBS.kind:
        return ""
    owner = same_name_trainjob_owner(jobset.metadata)
    if owner is None:
        return f"TrainJob {controller.name} is not its controller, because their names differ"
    job = inputs.trainjobs.get(Key(jobset.metadata.namespace, owner.name))
    if job is None or not owner.uid:
        return ""
    filled_in = f"{job.metadata.namespace}.{job.metadata.name}"
    if job.metadata.uid in {owner.uid, filled_in}:
        return ""
    return "the TrainJob that it names as its controller has another uid"


def _own_uid(meta: Meta) -> str:
    """Return the uid of a JobSet; its name for a JobSet that has none yet."""
    return f"{meta.namespace}.{meta.name}" if meta.uid == UID else meta.uid


def _podgroup(fields: ManifestFields, jobset: Meta, owner: str) -> PodGroup:
    meta = fields["metadata"]
    owners = [{**it, "uid": owner} for it in meta["ownerReferences"]]
    own_metadata = {
        **meta,
        "uid": f"{meta['namespace']}.{meta['name']}",
        "creationTimestamp": jobset.creation_timestamp,
        "ownerReferences": owners,
    }
    return decode(PodGroup, encode({**fields, "metadata": own_metadata}))


def _has_started(jobset: JobSet) -> bool:
    """Say whether a JobSet has started, so that its missing pods have ended, or has no pods."""
    status = jobset.status
    is_known = bool(status.replicated_jobs_status or status.restarts or status.terminal_state)
    return is_known or jobset.spec.suspend or not jobset_workload(jobset).is_admitted_here


def _pod_record(pod: Pod) -> PodRecord:
    meta = pod.metadata
    controller = meta.controller
    return PodRecord(
        key=meta.key,
        uid=meta.uid,
        job_uid=controller.uid if controller else "",
        replicated_job=meta.labels.get(REPLICATED_JOB, ""),
        group=meta.annotations.get(POD_GROUP, ""),
        observation=observe_pod(pod, pod_place(pod.metadata.labels)),
    )


def _assigned(pod: Pod, assign: PodAssignment) -> Pod:
    metadata = assign.fields["metadata"]
    meta = replace(
        pod.metadata,
        annotations=intern_labels({**pod.metadata.annotations, **metadata["annotations"]}),
        labels=intern_labels({**pod.metadata.labels, **metadata.get("labels", {})}),
    )
    return replace(pod, metadata=meta)


def _first_pods(name: str, jobset: JobSet) -> Iterator[Pod]:
    """Yield the pods of the first stage: of replicatedJobs that depend on no other."""
    stages = start_order(jobset.spec)
    dependent_jobs = {edge.after for edge in stages.edges}
    names = {*stages.names} - dependent_jobs
    first = [job for job in jobset.spec.replicated_jobs if job.name in names]
    count = sum(job.replicas * pods_at_once(job) for job in first)
    if count > _MAX_PODS:
        message = f"it would create {count} pods at once, but at most {_MAX_PODS} are supported"
        raise ConfigError([FieldError(name, message)])
    for job in first:
        for replica in range(job.replicas):
            yield from _job_pods(jobset, job, replica)


def _job_pods(jobset: JobSet, job: ReplicatedJob, replica: int) -> Iterable[Pod]:
    meta, template = jobset.metadata, job.template.spec.template
    name = f"{meta.name}-{job.name}-{replica}"
    uid = f"{meta.namespace}.{name}"
    owner = OwnerReference(
        api_version=JOBS.api_version, kind=JOBS.kind, name=name, uid=uid, controller=True
    )
    labels = {
        **template.metadata.labels,
        JOBSET_NAME: meta.name,
        JOBSET_UID: meta.uid,
        REPLICATED_JOB: job.name,
        JOB_INDEX: str(replica),
        RESTART_ATTEMPT: "0",
        JOB_NAME: name,
        CONTROLLER_UID: uid,
    }
    for index in range(pods_at_once(job)):
        pod = Meta(
            name=f"{name}-{index}",
            namespace=meta.namespace,
            uid=f"{uid}-{index:06}",
            creation_timestamp=meta.creation_timestamp,
            labels={**labels, COMPLETION_INDEX: str(index)},
            annotations=template.metadata.annotations,
            owner_references=(owner,),
            finalizers=(JOB_TRACKING,),
        )
        yield Pod(metadata=pod, spec=template.spec, status=PodStatus(phase="Pending"))
