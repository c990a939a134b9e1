"""JobSets: those that Trainer creates belong to the TrainJob of the same name, others to users."""

from collections.abc import Mapping
from typing import Final

from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.meta import Key, OwnerReference
from trainer_kai.api.names import (
    COMPLETION_INDEX,
    JOB_INDEX,
    JOB_RESTART_ATTEMPT,
    JOBSET_CONTROLLER,
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB,
    RESTART_ATTEMPT,
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.resources import JOBSETS, TRAINJOBS, same_name_trainjob_owner
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.workloads.workload import (
    JobsForm,
    ObjectKey,
    OwnerKind,
    PodPlace,
    Suspendable,
    Workload,
    WorkloadKind,
    Workloads,
    suspension_changed_at,
)

JOBSET_FORM: Final = JobsForm(JOBSETS.kind, "spec.replicatedJobs")

_MANAGED_HERE: Final = frozenset({"", JOBSET_CONTROLLER})
_TRAINJOB_MANAGED_HERE: Final = frozenset({"", TRAINJOB_CONTROLLER})


def trainjob_suspendable(job: TrainJob) -> Suspendable:
    meta = job.metadata
    resumed_at = suspension_changed_at(job.status.conditions)
    return Suspendable(
        key=ObjectKey(TRAINJOBS.kind, meta.namespace, meta.name),
        resource=TRAINJOBS,
        metadata=meta,
        is_suspended=job.spec.suspend,
        is_managed_here=job.spec.managed_by in _TRAINJOB_MANAGED_HERE,
        deadline_s=max(job.spec.active_deadline_seconds or 0, 0),
        deadline_from="" if job.spec.suspend else resumed_at or meta.creation_timestamp,
    )


def jobset_workload(jobset: JobSet) -> Workload:
    """Events go to its controller, whatever that is; only a TrainJob may be its owner."""
    meta, spec, status = jobset.metadata, jobset.spec, jobset.status
    return Workload(
        kind=JOBSET_KIND,
        key=ObjectKey(JOBSETS.kind, meta.namespace, meta.name),
        metadata=meta,
        spec=spec,
        jobs_status=status.replicated_jobs_status,
        needs_owner=meta.controller is not None,
        owner=same_name_trainjob_owner(meta),
        regarding=meta.controller or _own_reference(jobset),
        is_suspended=spec.suspend,
        suspension_changed_at=suspension_changed_at(status.conditions),
        is_finished=bool(status.terminal_state),
        is_managed_here=spec.managed_by in _MANAGED_HERE,
    )


def jobset_pod_place(labels: Mapping[str, str]) -> PodPlace:
    return PodPlace(
        labels.get(REPLICATED_JOB, ""),
        labels.get(JOB_INDEX, ""),
        (_number(labels.get(RESTART_ATTEMPT)), _number(labels.get(JOB_RESTART_ATTEMPT))),
        completion_index=labels.get(COMPLETION_INDEX, ""),
    )


def jobset_pod_labels(workload: Workload | None, job: str, index: str) -> Mapping[str, str]:
    labels = {JOB_INDEX: index}
    if workload is not None:
        labels |= {JOBSET_NAME: workload.key.name, JOBSET_UID: workload.metadata.uid}
        if job:
            labels[REPLICATED_JOB] = job
    return labels


def jobset_of_job(job: Key, workloads: Workloads) -> tuple[Workload, ReplicatedJob] | None:
    """Find the JobSet of a Job by the name: both names in it may have hyphens."""
    rest, _, index = job.name.rpartition("-")
    hyphens = [at for at, sign in enumerate(rest) if sign == "-"] if index.isdecimal() else []
    for at in reversed(hyphens):
        workload = workloads.get(ObjectKey(JOBSETS.kind, job.namespace, rest[:at]))
        for replicated_job in workload.spec.replicated_jobs if workload else ():
            is_named = replicated_job.name == rest[at + 1 :]
            if workload and is_named and int(index) < replicated_job.replicas:
                return workload, replicated_job
    return None


def _own_reference(jobset: JobSet) -> OwnerReference:
    meta = jobset.metadata
    return OwnerReference(
        api_version=JOBSETS.api_version, kind=JOBSETS.kind, name=meta.name, uid=meta.uid
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


JOBSET_KIND: Final = WorkloadKind(
    resource=JOBSETS,
    selection="",
    adapt=jobset_workload,
    owner=OwnerKind(TRAINJOBS, trainjob_suspendable, "the controller of Trainer"),
    job_label=JOBSET_UID,
    name_label=JOBSET_NAME,
    uid_label=JOBSET_UID,
    pod_place=jobset_pod_place,
    form=JOBSET_FORM,
    expected_labels=jobset_pod_labels,
    workload_of_job=jobset_of_job,
)
