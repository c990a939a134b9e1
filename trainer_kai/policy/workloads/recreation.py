"""Which Jobs of a suspended workload are recreated before it is resumed.

A Job that is suspended and resumed leaves out the ranks that have succeeded. The others continue
from a checkpoint and wait for all ranks, so they would wait for ever: such Jobs are recreated by
the controller of their workload, once they are deleted. A PodGroup that is complete stays complete,
and so does a Job that runs its pods in several rounds: those do not wait for each other. A Job that
is itself the workload is never recreated: what has succeeded of it stays done.

A Job also counts each pod that was evicted through the API, as `kubectl drain` does it, as a failed
attempt. If it has counted no others, it is recreated as well, and counts from zero.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from trainer_kai.api.jobset import Job
from trainer_kai.api.meta import Key
from trainer_kai.policy.podgroups.grouping import plan_podgroups
from trainer_kai.policy.workloads.workload import Workload, WorkloadKind


class JobProgress(NamedTuple):
    """How far a Job is; the Job itself may have a large template."""

    key: Key
    uid: str
    replicated_job: str
    succeeded: int
    failed: int  # attempts
    completions: int | None
    is_complete: bool
    is_one_round: bool  # all of its pods run at once


def job_progress(job: Job, kind: WorkloadKind) -> JobProgress:
    completions, parallelism = job.spec.completions, job.spec.parallelism
    at_once = 1 if parallelism is None else parallelism
    return JobProgress(
        key=job.metadata.key,
        uid=job.metadata.uid,
        replicated_job=kind.pod_place(job.metadata.labels).replicated_job,
        succeeded=job.status.succeeded,
        failed=job.status.failed + len(job.status.uncounted_terminated_pods.failed),
        completions=completions,
        is_complete=any(
            it.type == "Complete" and it.status == "True" for it in job.status.conditions
        ),
        is_one_round=completions is not None and completions <= at_once,
    )


def jobs_to_recreate(
    workload: Workload,
    scheduler_name: str,
    jobs: Iterable[JobProgress],
    succeeded: Mapping[str, int],
    evicted: Mapping[str, int],
) -> Iterator[JobProgress]:
    """Yield the Jobs to recreate.

    By the uid of their Job, *succeeded* counts existing pods, *evicted* those that ended lately.
    """
    known = [*jobs]
    succeeded_of = {it.uid: max(it.succeeded, succeeded.get(it.uid, 0)) for it in known}
    form = workload.kind.form
    for planned_podgroup in plan_podgroups(workload, scheduler_name, form=form).podgroups:
        names = {member.name for member in planned_podgroup.subgroups}
        jobs_of_podgroup = [job for job in known if job.replicated_job in names]
        finished = sum(_is_finished(job, succeeded_of[job.uid]) for job in jobs_of_podgroup)
        if finished < sum(member.replicas for member in planned_podgroup.subgroups):
            for job in jobs_of_podgroup:
                has_succeeded = bool(succeeded_of[job.uid])
                counts_evicted = 0 < job.failed <= evicted.get(job.uid, 0)
                if job.is_one_round if has_succeeded else counts_evicted:
                    yield job


def _is_finished(job: JobProgress, succeeded: int) -> bool:
    return job.is_complete or (job.completions is not None and succeeded >= job.completions)
