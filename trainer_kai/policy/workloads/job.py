"""Jobs that users create, or a CronJob: each is one PodGroup, and the pods are its members.

As in KAI a Job starts with its first pod, unless its annotation `kai.scheduler/batch-min-member`
asks for more. The Jobs of a JobSet are parts of that workload; Jobs of other controllers are left
to KAI's rule for a single pod.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from trainer_kai.api.jobset import Job, JobSetSpec, JobTemplate, ReplicatedJob, ReplicatedJobStatus
from trainer_kai.api.meta import Key, Meta, OwnerReference, TemplateMeta
from trainer_kai.api.names import (
    COMPLETION_INDEX,
    CONTROLLER_UID,
    JOB_CONTROLLER,
    JOB_NAME,
    JOBSET_UID,
    NODE_POOL,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
)
from trainer_kai.api.resources import CRON_JOBS, JOBS
from trainer_kai.policy.workloads.workload import (
    JobsForm,
    ObjectKey,
    PodPlace,
    Workload,
    WorkloadKind,
    Workloads,
    suspension_changed_at,
)

JOB_FORM: Final = JobsForm(JOBS.kind, "")

ONLY_JOB: Final = "pods"  # the name of its only job, in messages: "4 pods"
_MANAGED_HERE: Final = frozenset({"", JOB_CONTROLLER})
_TERMINAL: Final = frozenset({"Complete", "Failed"})
_OF_PODS: Final = (PRIORITY_CLASS_NAME, PREEMPTIBILITY, NODE_POOL)
_NON_INDEXED: Final = "NonIndexed"
_PLACE: Final = PodPlace(ONLY_JOB, "0", (0, 0))


def job_workload(job: Job) -> Workload | None:
    meta, spec, status = job.metadata, job.spec, job.status
    controller = meta.controller
    if controller is not None and not _is_cron_job(controller):
        return None
    # The API server writes the default; a file may lack it, and of a JobSet it is another one.
    jobs = spec if spec.completion_mode else replace(spec, completion_mode=_NON_INDEXED)
    template = JobTemplate(
        metadata=TemplateMeta(labels=meta.labels, annotations=meta.annotations), spec=jobs
    )
    is_finished = any(it.type in _TERMINAL and it.status == "True" for it in status.conditions)
    return Workload(
        kind=JOB_KIND,
        key=ObjectKey(JOBS.kind, meta.namespace, meta.name),
        metadata=_with_labels_of_pods(meta, spec.template.metadata.labels),
        spec=JobSetSpec(replicated_jobs=(ReplicatedJob(name=ONLY_JOB, template=template),)),
        jobs_status=(ReplicatedJobStatus(name=ONLY_JOB, succeeded=int(is_finished)),),
        regarding=OwnerReference(
            api_version=JOBS.api_version, kind=JOBS.kind, name=meta.name, uid=meta.uid
        ),
        is_suspended=spec.suspend,
        suspension_changed_at=suspension_changed_at(status.conditions),
        is_finished=is_finished,
        is_managed_here=spec.managed_by in _MANAGED_HERE,
        deadline_s=max(spec.active_deadline_seconds or 0, 0),
        deadline_from=status.start_time,
    )


def job_pod_place(labels: Mapping[str, str]) -> PodPlace:
    """Return the place of a pod: one that replaces another is of the same attempt."""
    index = labels.get(COMPLETION_INDEX)
    return _PLACE._replace(completion_index=index) if index else _PLACE


def _with_labels_of_pods(meta: Meta, labels: Mapping[str, str]) -> Meta:
    """Add what only the pod template says of its PodGroup; as in KAI, the Job's own label wins."""
    added = {name: labels[name] for name in _OF_PODS if name in labels and name not in meta.labels}
    return replace(meta, labels={**meta.labels, **added}) if added else meta


def job_pod_labels(workload: Workload | None, _job: str, _index: str) -> Mapping[str, str]:
    return {JOB_NAME: workload.key.name} if workload is not None else {}


def workload_of_job(job: Key, workloads: Workloads) -> tuple[Workload, ReplicatedJob] | None:
    workload = workloads.get(ObjectKey(JOBS.kind, job.namespace, job.name))
    return (workload, workload.spec.replicated_jobs[0]) if workload is not None else None


def _is_cron_job(owner: OwnerReference) -> bool:
    return owner.api_version.partition("/")[0] == CRON_JOBS.group and owner.kind == CRON_JOBS.kind


JOB_KIND: Final = WorkloadKind(
    resource=JOBS,
    selection=f"!{JOBSET_UID}",
    adapt=job_workload,
    owner=None,
    job_label="",
    name_label=JOB_NAME,
    uid_label=CONTROLLER_UID,
    pod_place=job_pod_place,
    form=JOB_FORM,
    expected_labels=job_pod_labels,
    workload_of_job=workload_of_job,
)
