"""The sub-groups that a kind names itself: a part of them, and the one that a pod is in."""

from collections.abc import Collection, Iterator

from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.policy.start_order import pods_at_once
from trainer_kai.policy.workloads.workload import PodGroupShape, PodPlace, SubGroupShape, Workload


def shape_of_jobs(shape: PodGroupShape, jobs: Collection[str], pods: int) -> PodGroupShape:
    """Return what is left of a PodGroup without the other jobs; *pods* are all that are left."""
    if all(job in jobs for job in shape.jobs):
        return shape
    leaves = [it for it in shape.subgroups if it.job in jobs]
    kept = {it.name for it in leaves}
    parents = {it.parent for it in leaves}
    subgroups = tuple(
        it if it.job else it._replace(minimum=_children(it.name, leaves))
        for it in shape.subgroups
        if it.name in kept or it.name in parents
    )
    needed = sum(it.minimum for it in leaves) if leaves else min(shape.min_pods, pods)
    return PodGroupShape(
        shape.suffix, tuple(it for it in shape.jobs if it in jobs), needed, subgroups
    )


def first_role_pods(
    workload: Workload, scheduler_name: str
) -> Iterator[tuple[PodGroupShape, ReplicatedJob, int]]:
    """Yield the roles of each PodGroup that exist at first, and their pods of this scheduler."""
    roles = {it.name: it for it in workload.spec.replicated_jobs}
    for shape in workload.shapes or ():
        later = {it.job for it in shape.subgroups if it.is_later}
        for name in shape.jobs:
            role = roles[name]
            is_ours = role.template.spec.template.spec.scheduler_name == scheduler_name
            if is_ours and name not in later:
                yield shape, role, pods_at_once(role)


def subgroup_of(shape: PodGroupShape, place: PodPlace) -> str:
    """Return the sub-group of a pod; "" if its PodGroup has none, or none for it.

    A pod whose index is past the last sub-group, as an elastic job may have, is in that one.
    """
    index = int(place.job_index) if place.job_index.isdecimal() else 0
    of_job = [it for it in shape.subgroups if it.job == place.replicated_job]
    before = [it for it in of_job if it.first <= index]
    found = max(before, key=lambda it: it.first) if before else next(iter(of_job), None)
    return found.name if found is not None else ""


def _children(name: str, leaves: list[SubGroupShape]) -> int:
    return sum(it.parent == name for it in leaves)
