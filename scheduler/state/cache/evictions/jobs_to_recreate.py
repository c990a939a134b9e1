"""Which Jobs of a suspended JobSet are recreated, so that all ranks of a PodGroup run again.

A Job that is suspended and resumed leaves out the ranks that have succeeded. The others continue
from a checkpoint and wait for all ranks, so they would wait for ever. A PodGroup that is complete
stays complete, and so does a Job that runs its pods in several rounds: those do not wait for each
other.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.job import Job
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.names import REPLICATED_JOB
from trainer_kai.policy.podgroups.planned import plan_podgroups

_COMPLETE: Final = "Complete"


class JobProgress(NamedTuple):
    """How far a Job is; the Job itself may have a large template."""

    key: Key
    uid: str
    replicated_job: str
    succeeded: int
    completions: int | None
    is_complete: bool
    is_one_round: bool  # all of its pods run at once


def job_progress(job: Job) -> JobProgress:
    """Return the progress of a Job."""
    completions, parallelism = job.spec.completions, job.spec.parallelism
    at_once = 1 if parallelism is None else parallelism
    return JobProgress(
        key=job.metadata.key,
        uid=job.metadata.uid,
        replicated_job=job.metadata.labels.get(REPLICATED_JOB, ""),
        succeeded=job.status.succeeded,
        completions=completions,
        is_complete=any(
            it.type == _COMPLETE and it.status == "True" for it in job.status.conditions
        ),
        is_one_round=completions is not None and completions <= at_once,
    )


def jobs_to_recreate(
    jobset: JobSet, scheduler_name: str, jobs: Iterable[JobProgress], succeeded: Mapping[str, int]
) -> Iterator[JobProgress]:
    """Yield the Jobs to recreate; *succeeded* counts existing pods by the uid of their Job."""
    known = [*jobs]
    succeeded_of = {it.uid: max(it.succeeded, succeeded.get(it.uid, 0)) for it in known}
    for planned_podgroup in plan_podgroups(jobset, scheduler_name).podgroups:
        names = {member.name for member in planned_podgroup.subgroups}
        jobs_of_podgroup = [job for job in known if job.replicated_job in names]
        finished = sum(_is_finished(job, succeeded_of[job.uid]) for job in jobs_of_podgroup)
        if finished < sum(member.replicas for member in planned_podgroup.subgroups):
            yield from (
                job for job in jobs_of_podgroup if succeeded_of[job.uid] and job.is_one_round
            )


def _is_finished(job: JobProgress, succeeded: int) -> bool:
    return job.is_complete or (job.completions is not None and succeeded >= job.completions)
