"""What became of TrainJobs, as rows: TrainJob, JobSet, Jobs, pods; and their groups. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from e2e.cluster.resources import JOBS, JOBSETS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import State
from e2e.cluster.trainjobs import condition
from e2e.front.install import PODGROUPS
from e2e.front.ours import GROUP, QUEUE

__all__ = ["GroupRow", "Row", "groups_of", "rows_of", "waiting_pods"]

_UID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


class Row(NamedTuple):
    """One object, how deep it lies below its TrainJob, and how it is doing."""

    depth: int
    kind: str
    name: str
    state: str


class GroupRow(NamedTuple):
    """A PodGroup, by the columns that kubectl shows."""

    name: str
    queue: str
    stage: str
    members: str


def groups_of(state: State) -> list[GroupRow]:
    """Return every PodGroup, in the order of names."""
    return [
        GroupRow(
            _short(group["metadata"]["name"]),
            group["spec"]["queue"],
            group["metadata"]["annotations"]["trainer-kai.dev/stage"],
            group["metadata"]["annotations"]["trainer-kai.dev/members"],
        )
        for group in _objects(state, PODGROUPS)
    ]


def rows_of(state: State) -> list[Row]:
    """Return the tree of every TrainJob, in the order of names."""
    return [row for trainjob in _objects(state, TRAINJOBS) for row in _trainjob(state, trainjob)]


def waiting_pods(state: State) -> int:
    """Count the pods that exist and have no node."""
    return sum("nodeName" not in pod["spec"] for pod in _objects(state, PODS))


def _trainjob(state: State, trainjob: Obj) -> Iterator[Row]:
    name = trainjob["metadata"]["name"]
    yield Row(
        0, "TrainJob", name, _verdict(trainjob, "Complete", "Failed", "Suspended") or "accepted"
    )
    for jobset in _owned(state, JOBSETS, trainjob):
        replicated_jobs = jobset["spec"]["replicatedJobs"]
        jobs = {_part_of(job): job for job in _owned(state, JOBS, jobset)}
        finished = _verdict(jobset, "Completed", "Failed", "Suspended")
        queue = jobset["metadata"].get("labels", {}).get(QUEUE, "none")
        words = finished or f"queue {queue}, {len(jobs)} of {len(replicated_jobs)} Jobs exist"
        yield Row(1, "JobSet", jobset["metadata"]["name"], words)
        for replicated in replicated_jobs:
            job = jobs.get(replicated["name"])
            yield from _absent(replicated) if job is None else _job(state, job)


def _job(state: State, job: Obj) -> Iterator[Row]:
    counts = job.get("status", {})
    done, wanted = counts.get("succeeded", 0), job["spec"]["completions"]
    words = f"{counts.get('active', 0)} active, {done} of {wanted} done"
    yield Row(2, "Job", job["metadata"]["name"], words)
    for pod in _owned(state, PODS, job):
        node = pod["spec"].get("nodeName")
        where = f"on {node}" if node else f"for {pod['spec']['schedulerName']}"
        words = f"{pod['status']['phase']}, {where}, {_place_of(pod)}"
        yield Row(3, "Pod", pod["metadata"]["name"], words)


def _place_of(pod: Obj) -> str:
    """Return where a pod stands in its group."""
    meta = pod["metadata"]
    group = meta.get("annotations", {}).get(GROUP)
    return f"in {_short(group)}" if group else "in no group"


def _short(group: str) -> str:
    """Return the name of a group without most of its uid."""
    return _UID.sub(lambda uid: f"{uid[0][:4]}…", group)


def _absent(replicated: Obj) -> Iterator[Row]:
    """Return the row of a Job that JobSet has not created, with what it is waiting for."""
    awaited = [f"{d['name']} is {d['status']}" for d in replicated.get("dependsOn", ())]
    words = f"does not exist before {' and '.join(awaited)}" if awaited else "not created yet"
    yield Row(2, "Job", replicated["name"], words)


def _objects(state: State, resource: Resource) -> list[Obj]:
    found = [obj for key, obj in state.items() if key.resource == resource]
    return sorted(found, key=lambda obj: str(obj["metadata"]["name"]))


def _owned(state: State, resource: Resource, owner: Obj) -> Iterable[Obj]:
    uid = owner["metadata"]["uid"]
    for obj in _objects(state, resource):
        if any(ref["uid"] == uid for ref in obj["metadata"].get("ownerReferences", ())):
            yield obj


def _part_of(job: Obj) -> str:
    name: str = job["metadata"]["labels"][_REPLICATED_JOB]
    return name


def _verdict(obj: Obj, *conditions: str) -> str:
    return next((name for name in conditions if condition(obj, name)), "")
