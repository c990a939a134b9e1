"""When JobSet creates Jobs and Jobs create pods, computed from the spec and what exists.

A witness for the rules of `trainer_kai.policy`, so it shares nothing with them: it follows the
loops of JobSet v0.12 and of the Job controller. Of a Job only what makes pods is played: there is
no limit to retries, no deadline and no success policy, and all Jobs must succeed.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trainer_kai.api.jobset import JobSetSpec, JobSpec, ReplicatedJob


class Job(NamedTuple):
    """One Job of a replicatedJob."""

    name: str
    number: int


class ModelPod(NamedTuple):
    """A pod: Pending, Running, Ready, Succeeded or Failed; only a Pending one is not bound."""

    job: Job
    serial: int
    attempt: int
    completion: int
    phase: str = "Pending"
    is_going: bool = False

    @property
    def is_alive(self) -> bool:
        """Say whether the Job controller counts it as active."""
        return self.phase not in {"Succeeded", "Failed"} and not self.is_going


class State(NamedTuple):
    """What there is: Jobs, and whether each is suspended; Jobs of an older attempt; pods."""

    jobs: Mapping[Job, bool] = {}
    previous: frozenset[Job] = frozenset()
    pods: tuple[ModelPod, ...] = ()
    attempt: int = 0
    is_suspended: bool = False


def settled(spec: JobSetSpec, state: State) -> State:
    """Let both controllers work until neither has anything to do."""
    while True:
        after = _with_pods(spec, state._replace(jobs=_reconciled(spec, state)))
        if after == state:
            return state
        state = after


def finished(spec: JobSetSpec, state: State) -> frozenset[Job]:
    """Return the Jobs that are Complete."""
    jobs = {job.name: job for job in spec.replicated_jobs}
    return frozenset(
        job
        for job in state.jobs
        if _is_finished(jobs[job.name].template.spec, _pods_of_job(state, job))
    )


def with_pod(state: State, pod: ModelPod, phase: str) -> State:
    """Return the state with another phase of a pod."""
    pods = (one._replace(phase=phase) if one == pod else one for one in state.pods)
    return state._replace(pods=tuple(pods))


def restarted(state: State) -> State:
    """Return the state when JobSet begins anew: all Jobs are deleted, their pods are going."""
    pods = (pod._replace(is_going=True) for pod in state.pods)
    return State({}, state.previous | set(state.jobs), tuple(pods), state.attempt + 1)


def suspended(state: State, *, now: bool) -> State:
    """Return the state with another wish of the user."""
    return state._replace(is_suspended=now)


def _reconciled(spec: JobSetSpec, state: State) -> Mapping[Job, bool]:
    jobs, went_well = _created(spec, state)
    if not went_well:
        return jobs
    if state.is_suspended:
        done = finished(spec, state)
        return {job: jobs[job] if job in done else True for job in jobs}
    return _resumed(spec, state, jobs)


def _created(spec: JobSetSpec, state: State) -> tuple[dict[Job, bool], bool]:
    """Make Jobs; what the API server refuses ends the round."""
    jobs = dict(state.jobs)
    in_order = spec.startup_policy.startup_policy_order == "InOrder" and not state.is_suspended
    replicas: dict[str, int] = {}
    for one in spec.replicated_jobs:
        replicas[one.name] = one.replicas
        if not _is_reached(spec, state, one, replicas):
            continue
        if in_order and _is_started(state, one):
            continue
        for number in range(one.replicas):
            job = Job(one.name, number)
            if job in jobs or job in state.previous:
                continue
            if _is_refused(one.template.spec):
                return jobs, False
            jobs[job] = state.is_suspended
        if in_order:
            break
    return jobs, True


def _resumed(spec: JobSetSpec, state: State, jobs: dict[Job, bool]) -> dict[Job, bool]:
    in_order = spec.startup_policy.startup_policy_order == "InOrder"
    replicas: dict[str, int] = {}
    for one in spec.replicated_jobs:
        replicas[one.name] = one.replicas
        if not _is_reached(spec, state, one, replicas):
            continue
        if in_order and _is_started(state, one):
            continue
        jobs |= {job: False for job in jobs if job.name == one.name}
        if in_order:
            break
    return jobs


def _is_reached(
    spec: JobSetSpec, state: State, one: ReplicatedJob, replicas: Mapping[str, int]
) -> bool:
    known = {job.name: job for job in spec.replicated_jobs}
    for dependency in one.depends_on:
        before = known.get(dependency.name)
        if before is None:
            return False
        ready, succeeded = _counted(state, before)
        wanted = replicas.get(dependency.name, 0)
        if dependency.status == "Complete" and wanted != succeeded:
            return False
        if dependency.status == "Ready" and wanted != ready + succeeded:
            return False
    return True


def _is_started(state: State, one: ReplicatedJob) -> bool:
    return one.replicas == sum(_counted(state, one))


def _counted(state: State, one: ReplicatedJob) -> tuple[int, int]:
    """Return how many Jobs are ready, and how many of the others succeeded."""
    spec = one.template.spec
    wanted = _parallelism(spec)
    if spec.completions is not None:
        wanted = min(wanted, spec.completions)
    ready = succeeded = 0
    for job in state.jobs:
        if job.name != one.name:
            continue
        pods = _pods_of_job(state, job)
        done = sum(pod.phase == "Succeeded" for pod in pods)
        if _is_finished(spec, pods):
            succeeded += 1
        elif done + sum(pod.phase == "Ready" and pod.is_alive for pod in pods) >= wanted:
            ready += 1
    return ready, succeeded


def _with_pods(spec: JobSetSpec, state: State) -> State:
    """Make the pods that Jobs lack, and delete those of suspended ones."""
    specs = {one.name: one.template.spec for one in spec.replicated_jobs}
    pods = [pod for pod in state.pods if not (pod.is_alive and state.jobs.get(pod.job))]
    for job in sorted(state.jobs):
        of = [pod for pod in pods if pod.job == job and not pod.is_going]
        if state.jobs[job] or _is_finished(specs[job.name], of):
            continue
        serial = max((pod.serial for pod in state.pods if pod.job == job), default=-1)
        for number, completion in enumerate(_missing_pods(specs[job.name], of), serial + 1):
            pods.append(ModelPod(job, number, state.attempt, completion))
    return state._replace(pods=tuple(pods))


def _missing_pods(spec: JobSpec, pods: list[ModelPod]) -> list[int]:
    """Return the completion indexes of the pods to make."""
    active = [pod for pod in pods if pod.is_alive]
    done = [pod for pod in pods if pod.phase == "Succeeded"]
    wanted = _parallelism(spec)
    if spec.completions is not None:
        wanted = min(wanted, spec.completions - len(done))
    elif done:
        wanted = len(active)
    taken = {pod.completion for pod in (*active, *done)}
    is_indexed = spec.completion_mode != "NonIndexed"
    free = [i for i in range(spec.completions or wanted) if i not in taken or not is_indexed]
    return free[: max(wanted - len(active), 0)]


def _is_finished(spec: JobSpec, pods: Iterable[ModelPod]) -> bool:
    pods = list(pods)
    if any(pod.is_alive for pod in pods):
        return False
    done = sum(pod.phase == "Succeeded" for pod in pods)
    return done > 0 if _completions(spec) is None else done >= (_completions(spec) or 0)


def _parallelism(spec: JobSpec) -> int:
    return 1 if spec.parallelism is None else spec.parallelism


def _completions(spec: JobSpec) -> int | None:
    """Return what the API server fills in."""
    return 1 if spec.completions is None and spec.parallelism is None else spec.completions


def _is_refused(spec: JobSpec) -> bool:
    return _completions(spec) is None and spec.completion_mode != "NonIndexed"


def _pods_of_job(state: State, job: Job) -> list[ModelPod]:
    return [pod for pod in state.pods if pod.job == job and not pod.is_going]
