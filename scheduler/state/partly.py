"""Which Jobs of a suspended JobSet have to be made anew, so that all ranks of a unit run again.

A Job that is suspended and resumed leaves out the ranks that have succeeded. The others go on from
a checkpoint and wait for all ranks, so they would wait for ever. A unit that is done as a whole
stays done, and so does a Job that runs its pods in several rounds: those do not wait for each
other.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trainer_kai.api.job import Job
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import REPLICATED_JOB
from trainer_kai.policy.units import outline

__all__ = ["partly_done"]

_COMPLETE: Final = "Complete"


def partly_done(
    jobset: JobSet, scheduler_name: str, jobs: Iterable[Job], succeeded: Mapping[str, int]
) -> Iterator[Job]:
    """Yield the Jobs to make anew; *succeeded* counts pods that are there, by the Job's uid."""
    known = [*jobs]
    for unit in outline(jobset, scheduler_name).units:
        names = {member.name for member in unit.members}
        of_unit = [job for job in known if job.metadata.labels.get(REPLICATED_JOB) in names]
        done = {it.metadata.uid: _done(it, succeeded) for it in of_unit}
        over = sum(_is_over(job, done[job.metadata.uid]) for job in of_unit)
        if over < sum(member.replicas for member in unit.members):
            yield from (job for job in of_unit if done[job.metadata.uid] and _is_one_round(job))


def _done(job: Job, succeeded: Mapping[str, int]) -> int:
    """Count the ranks that are done; a pod of which the Job does not know yet is one."""
    return max(job.status.succeeded, succeeded.get(job.metadata.uid, 0))


def _is_over(job: Job, done: int) -> bool:
    complete = (it for it in job.status.conditions if it.type == _COMPLETE)
    completions = job.spec.completions
    return any(it.status == "True" for it in complete) or (
        completions is not None and done >= completions
    )


def _is_one_round(job: Job) -> bool:
    """Say whether all pods of a Job run at once."""
    completions, parallelism = job.spec.completions, job.spec.parallelism
    return completions is not None and completions <= (1 if parallelism is None else parallelism)
