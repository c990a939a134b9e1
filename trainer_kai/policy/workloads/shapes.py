"""The sub-groups that a kind names itself: a part of them, and the one that a pod is in."""

from collections.abc import Collection

from trainer_kai.policy.workloads.workload import PodGroupShape, PodPlace, SubGroupShape


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
