"""JobSets: those that Trainer creates belong to the TrainJob of the same name, others to users."""

from collections.abc import Mapping
from typing import Final

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import OwnerReference
from trainer_kai.api.names import (
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
)

JOBSET_FORM: Final = JobsForm(JOBSETS.kind, "spec.replicatedJobs")

_MANAGED_HERE: Final = frozenset({"", JOBSET_CONTROLLER})
_TRAINJOB_MANAGED_HERE: Final = frozenset({"", TRAINJOB_CONTROLLER})


def trainjob_suspendable(job: TrainJob) -> Suspendable:
    meta = job.metadata
    return Suspendable(
        key=ObjectKey(TRAINJOBS.kind, meta.namespace, meta.name),
        metadata=meta,
        is_suspended=job.spec.suspend,
        is_managed_here=job.spec.managed_by in _TRAINJOB_MANAGED_HERE,
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
        is_over=bool(meta.deletion_timestamp or status.terminal_state),
        is_managed_here=spec.managed_by in _MANAGED_HERE,
    )


def jobset_pod_place(labels: Mapping[str, str]) -> PodPlace:
    return PodPlace(
        labels.get(REPLICATED_JOB, ""),
        labels.get(JOB_INDEX, ""),
        (_number(labels.get(RESTART_ATTEMPT)), _number(labels.get(JOB_RESTART_ATTEMPT))),
    )


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
    owner=OwnerKind(TRAINJOBS, trainjob_suspendable),
    job_label=JOBSET_UID,
    name_label=JOBSET_NAME,
    uid_label=JOBSET_UID,
    pod_place=jobset_pod_place,
    form=JOBSET_FORM,
)
