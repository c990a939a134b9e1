"""Creates the PodGroups and pods that Trainer, JobSet, Job and podgrouper would create.

A workload with pods that have no PodGroup gets its PodGroups by the podgrouper's code. For a
TrainJob without a JobSet, and for a JobSet or Job that has not started, the pods of the first stage
are created; those of later stages are anticipated by their PodGroup.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from scheduler.state.inputs import Cluster
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
from trainer_kai.api.resources import JOBS, JOBSETS, TRAINJOBS
from trainer_kai.api.text import listed_names
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.cli.commands.plan.admission import review_workload
from trainer_kai.cli.commands.plan.preview import PreviewContext, admitted_jobset, runtime_key
from trainer_kai.cli.input.cluster import InputCluster
from trainer_kai.cli.input.kinds import UID
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.podgrouper.plan import ObservedState, PodAssignment, plan
from trainer_kai.podgrouper.store import PodRecord
from trainer_kai.policy.podgroups.grouping import (
    MAIN,
    PlannedPodGroup,
    observe_pod,
    plan_podgroups,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules, ManifestFields
from trainer_kai.policy.start_order import pods_at_once, start_order
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.kinds import KINDS, kind_of_owner, kind_of_pod
from trainer_kai.policy.workloads.shapes import first_role_pods
from trainer_kai.policy.workloads.workload import (
    ObjectKey,
    PodGroupShape,
    PodPlace,
    Workload,
)

_FINISHED: Final = frozenset({"Complete", "Failed"})
_MAX_PODS: Final = 100_000  # of one workload; a cluster has hardly more pods in total


class _Known(NamedTuple):
    """A workload, and the object that messages about it name."""

    workload: Workload
    name: str
    has_started: bool  # so that its missing pods have ended, or it has none
    obj: Any


def create_missing_objects(inputs: InputCluster, rules: GroupingRules) -> None:
    """Create the PodGroups and pods that are missing, and note workloads that can never run."""
    pods: dict[ObjectKey, list[Pod]] = {}  # by the workload that their labels name
    for pod in inputs.cluster.pods.values():
        for key in _named_workloads(inputs, pod.metadata):
            pods.setdefault(key, []).append(pod)
    known = inputs.cluster.workload_objects[JOBSETS]
    owned = (it for it in known.values() if it.metadata.controller is not None)
    workloads = [_known_jobset(it, rules) for it in owned]
    without_runtime: list[FieldError] = []
    for job in inputs.cluster.workload_objects[TRAINJOBS].values():
        key = job.metadata.key
        if not (key in known or ObjectKey(JOBSETS.kind, *key) in pods):
            workloads += _of_trainjob(inputs, job, rules, without_runtime)
    workloads += _of_users(inputs, pods, rules)
    for it in workloads:
        _create_podgroups(inputs, it, pods.get(it.workload.key, []), rules)
    if without_runtime and not inputs.cluster.pods:
        raise ConfigError(without_runtime)  # the plan would say nothing about the TrainJobs


def _named_workloads(inputs: InputCluster, pod: Meta) -> Iterator[ObjectKey]:
    """Yield the workload that a pod names, by a label that several kinds may have."""
    kind = kind_of_pod(pod.labels)
    if kind is None:
        return
    name = pod.labels[kind.name_label]
    for it in KINDS if not kind.has_mark else (kind,):
        if it.name_label == kind.name_label:
            key = ObjectKey(it.resource.kind, pod.namespace, name)
            known = inputs.cluster.workload_objects[it.resource].get(Key(pod.namespace, name))
            above = known.metadata.controller if known is not None else None
            owner = kind_of_owner(above) if above is not None else None
            if above is not None and owner is not None:  # a part of a workload
                key = ObjectKey(owner.resource.kind, pod.namespace, above.name)
            yield key


def _no_pods_reason(job: TrainJob) -> str:
    """Return why a TrainJob creates no pods: suspended, deleted or finished; "" if it does."""
    if job.spec.suspend:
        return "spec.suspend is true"
    if job.metadata.deletion_timestamp:
        return "it is being deleted"
    true_conditions = (it.type for it in job.status.conditions if it.status == "True")
    return next((f"it is {name}" for name in true_conditions if name in _FINISHED), "")


def _of_trainjob(
    inputs: InputCluster, job: TrainJob, rules: GroupingRules, without_runtime: list[FieldError]
) -> Iterator[_Known]:
    key, (kind, runtime_name) = job.metadata.key, runtime_key(job)
    why = _no_pods_reason(job)
    if why:
        inputs.notes.append(f"TrainJob {key}: makes no pods: {why}")
        return
    runtime = inputs.runtimes.get((kind, runtime_name))
    if runtime is None:
        message = f"its {kind} {runtime_name} is in no file. Add the file with another -f"
        inputs.notes.append(f"TrainJob {key}: ignored: {message}")
        without_runtime.append(FieldError(f"TrainJob {key}", message))
        return
    namespace = inputs.cluster.namespaces.get(key.namespace)
    context = PreviewContext(
        mode="bundled",
        scheduler_name=rules.scheduler_name,
        default_queue=rules.default_queue,
        namespace_labels=namespace.metadata.labels if namespace else {},
        kind_defaults=rules.kind_defaults,
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
    yield _known(replace(jobset, metadata=meta), f"TrainJob {key}")


def _known_jobset(jobset: JobSet, rules: GroupingRules) -> _Known:
    """Return a JobSet with the marks of admission, if it names our scheduler."""
    name = f"JobSet {jobset.metadata.key}"
    jobs = jobset.spec.replicated_jobs
    names = {job.template.spec.template.spec.scheduler_name for job in jobs}
    if ADMITTED in jobset.metadata.annotations or rules.scheduler_name not in names:
        return _known(jobset, name)
    podgroup_of = plan_podgroups(jobset, rules.scheduler_name).podgroup_of
    annotations = {**jobset.metadata.annotations, ADMITTED: ADMITTED_MARK}
    marked = tuple(_with_gang_label(job, rules, podgroup_of(job.name)) for job in jobs)
    meta = replace(jobset.metadata, annotations=annotations)
    spec = replace(jobset.spec, replicated_jobs=marked)
    return _known(replace(jobset, metadata=meta, spec=spec), name)


def _known(jobset: JobSet, name: str) -> _Known:
    status = jobset.status
    has_started = bool(status.replicated_jobs_status or status.restarts or status.terminal_state)
    return _Known(jobset_workload(jobset), name, has_started, jobset)


def _of_users(
    inputs: InputCluster, pods: Collection[ObjectKey], rules: GroupingRules
) -> Iterator[_Known]:
    """Yield the workloads without a TrainJob, as admission stores them; note those without pods."""
    without_pods: dict[tuple[str, str], list[str]] = {}  # by kind and reason
    for it in _submitted(inputs):
        workload = it.workload
        kind, namespace, _ = workload.key
        space = inputs.cluster.namespaces.get(namespace)
        reviewed = review_workload(workload, rules, space.metadata.labels if space else {})
        why = "; ".join(map(str, reviewed.findings))
        is_new = ADMITTED not in workload.metadata.annotations
        if not why and workload.is_suspended and is_new:  # others are as the cluster has them
            why = "spec.suspend is true"
        if why and workload.key not in pods and not workload.is_over:
            without_pods.setdefault((kind, why), []).append(str(workload.key))
        yield it._replace(workload=reviewed.workload)
    for (kind, why), names in without_pods.items():
        inputs.notes.append(f"{kind} {listed_names(names, 1)}: makes no pods: {why}")


def _submitted(inputs: InputCluster) -> Iterator[_Known]:
    for jobset in inputs.cluster.workload_objects[JOBSETS].values():
        if jobset.metadata.controller is None:
            yield _known(jobset, f"JobSet {jobset.metadata.key}")
    for key, job in inputs.cluster.workload_objects[JOBS].items():
        workload = job_workload(job)
        if workload is not None:
            yield _Known(workload, f"Job {key}", bool(job.status.start_time), job)
    for kind in (it for it in KINDS if not it.has_mark):
        for key, obj in inputs.cluster.workload_objects[kind.resource].items():
            workload = kind.adapt(obj)
            if workload is not None:
                yield _Known(workload, f"{kind.resource.kind} {key}", has_started=False, obj=obj)


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
    inputs: InputCluster, it: _Known, pods: list[Pod], rules: GroupingRules
) -> None:
    cluster, workload = inputs.cluster, it.workload
    owner_fault = _owner_fault(inputs, workload)
    if owner_fault:
        inputs.notes.append(f"{it.name}: gets no PodGroup: {owner_fault}")
    ended = it.has_started or workload.is_suspended or workload.is_over
    has_none = ended or owner_fault or not workload.is_admitted_here
    created = [] if pods or has_none else [*_first_pods(it.name, workload, rules)]
    for pod, _ in created:
        cluster.pods.setdefault(pod.metadata.key, pod)
    known = ObservedState({}, has_owner=not owner_fault)
    place_of = workload.kind.pod_place
    existing = ((pod, place_of(pod.metadata.labels)) for pod in pods)
    members = [_pod_record(pod, place) for pod, place in (*existing, *created)]
    steps = plan(workload, known, members, rules)
    for finding in steps.podgroup_plan.findings:
        if finding.blocks:
            inputs.notes.append(f"{it.name}: never runs: {finding}")
    owner = own_uid(workload.metadata)
    for fields in steps.apply:
        group = new_podgroup(fields, workload.metadata, owner)
        cluster.pod_groups.setdefault(group.metadata.key, group)
    for assign in steps.assign:
        cluster.pods[assign.key] = assigned_pod(cluster.pods[assign.key], assign)
    _store(cluster, it, replace(workload.metadata, uid=owner))


def _store(cluster: Cluster, it: _Known, meta: Meta) -> None:
    objects, spec = cluster.workload_objects[it.workload.kind.resource], it.workload.spec
    stored = replace(it.obj, metadata=meta)
    objects[meta.key] = replace(stored, spec=spec) if isinstance(stored, JobSet) else stored


def _owner_fault(inputs: InputCluster, workload: Workload) -> str:
    """Return why a workload does not belong to the TrainJob that it names; "" if it can.

    Files often contain only one of both, or no uids; then the JobSet is trusted.
    """
    controller, owner = workload.metadata.controller, workload.owner
    if controller is None or controller.kind != TRAINJOBS.kind:
        return ""
    if owner is None:
        return f"TrainJob {controller.name} is not its controller, because their names differ"
    job = inputs.cluster.workload_objects[TRAINJOBS].get(
        Key(workload.metadata.namespace, owner.name)
    )
    if job is None or not owner.uid:
        return ""
    filled_in = f"{job.metadata.namespace}.{job.metadata.name}"
    if job.metadata.uid in {owner.uid, filled_in}:
        return ""
    return "the TrainJob that it names as its controller has another uid"


def own_uid(meta: Meta) -> str:
    """Return the uid of a JobSet; its name for a JobSet that has none yet."""
    return f"{meta.namespace}.{meta.name}" if meta.uid == UID else meta.uid


def new_podgroup(fields: ManifestFields, workload: Meta, owner: str) -> PodGroup:
    meta = fields["metadata"]
    owners = [{**it, "uid": owner} for it in meta["ownerReferences"]]
    own_metadata = {
        **meta,
        "uid": f"{meta['namespace']}.{meta['name']}",
        "creationTimestamp": workload.creation_timestamp,
        "ownerReferences": owners,
    }
    return decode(PodGroup, encode({**fields, "metadata": own_metadata}))


def _pod_record(pod: Pod, place: PodPlace) -> PodRecord:
    meta, controller = pod.metadata, pod.metadata.controller
    return PodRecord(
        key=meta.key,
        uid=meta.uid,
        job_uid=controller.uid if controller else "",
        place=place,
        group=meta.annotations.get(POD_GROUP, ""),
        observation=observe_pod(pod, place),
    )


def assigned_pod(pod: Pod, assign: PodAssignment) -> Pod:
    metadata = assign.fields["metadata"]
    meta = replace(
        pod.metadata,
        annotations=intern_labels({**pod.metadata.annotations, **metadata["annotations"]}),
        labels=intern_labels({**pod.metadata.labels, **metadata.get("labels", {})}),
    )
    return replace(pod, metadata=meta)


def _first_pods(
    name: str, workload: Workload, rules: GroupingRules
) -> Iterator[tuple[Pod, PodPlace]]:
    """Yield the pods that exist at first, and their places."""
    if workload.shapes is not None:
        counts = [*first_role_pods(workload, rules.scheduler_name)]
        check_pod_count(name, sum(pods for *_, pods in counts))
        for shape, role, pods in counts:
            yield from _role_pods(workload, shape, role, pods)
        return
    stages = start_order(workload.spec)
    dependent_jobs = {edge.after for edge in stages.edges}
    names = {*stages.names} - dependent_jobs
    first = [job for job in workload.spec.replicated_jobs if job.name in names]
    check_pod_count(name, sum(job.replicas * pods_at_once(job) for job in first))
    for job in first:
        for replica in range(job.replicas):
            for pod in _job_pods(workload, job, replica):
                yield pod, workload.kind.pod_place(pod.metadata.labels)


def check_pod_count(name: str, count: int) -> None:
    if count > _MAX_PODS:
        message = f"it would create {count} pods at once, but at most {_MAX_PODS} are supported"
        raise ConfigError([FieldError(name, message)])


def _role_pods(
    workload: Workload, shape: PodGroupShape, role: ReplicatedJob, pods: int
) -> Iterator[tuple[Pod, PodPlace]]:
    meta, template = workload.metadata, role.template.spec.template
    uid = own_uid(meta)
    owner = replace(workload.regarding, uid=uid, controller=True)
    prefix = meta.name if shape.suffix == MAIN else f"{meta.name}-{shape.suffix}"
    start = min((it.first for it in shape.subgroups if it.job == role.name), default=0)
    for index in range(start, start + pods):
        name = f"{prefix}-{role.name}-{index}"
        pod = Meta(
            name=name,
            namespace=meta.namespace,
            uid=f"{uid}-{shape.suffix}-{role.name}-{index:06}",
            creation_timestamp=meta.creation_timestamp,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        )
        place = PodPlace(role.name, str(index), (0, 0), shape.suffix)
        yield Pod(metadata=pod, spec=template.spec, status=PodStatus(phase="Pending")), place


def _job_pods(workload: Workload, job: ReplicatedJob, replica: int) -> Iterable[Pod]:
    meta, template = workload.metadata, job.template.spec.template
    is_own_job = not workload.kind.form.jobs_path
    name = meta.name if is_own_job else f"{meta.name}-{job.name}-{replica}"
    uid = own_uid(meta) if is_own_job else f"{meta.namespace}.{name}"
    owner = OwnerReference(
        api_version=JOBS.api_version, kind=JOBS.kind, name=name, uid=uid, controller=True
    )
    labels = {
        **template.metadata.labels,
        **({} if is_own_job else _jobset_labels(meta, job, replica)),
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


def _jobset_labels(jobset: Meta, job: ReplicatedJob, replica: int) -> Mapping[str, str]:
    return {
        JOBSET_NAME: jobset.name,
        JOBSET_UID: jobset.uid,
        REPLICATED_JOB: job.name,
        JOB_INDEX: str(replica),
        RESTART_ATTEMPT: "0",
    }
