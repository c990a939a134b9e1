"""In which order the replicatedJobs of a JobSet begin.

JobSet makes the Jobs of a replicatedJob only once all it depends on is Ready or Complete; `InOrder`
is a chain of Ready. Here this is edges between the replicatedJobs that have pods. One without pods
is never waited for long: JobSet takes it for reached at once (no replicas, whatever it waits for
itself), or as soon as its Jobs are made (no pods in them), so its edges are joined to those behind.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSetSpec, ReplicatedJob
from trainer_kai.policy.finding import Finding

__all__ = [
    "COMPLETE",
    "INITIALIZERS",
    "READY",
    "Edge",
    "StartOrder",
    "pods_at_once",
    "start_order",
    "with_dependents",
]

READY: Final = "Ready"
COMPLETE: Final = "Complete"
INITIALIZERS: Final = frozenset({"dataset-initializer", "model-initializer"})


class Edge(NamedTuple):
    """The second begins when the first has reached a status."""

    before: str
    after: str
    status: str


class StartOrder(NamedTuple):
    """The replicatedJobs that have pods, as they are listed, and the edges between them."""

    names: tuple[str, ...]
    edges: tuple[Edge, ...]
    findings: tuple[Finding, ...] = ()


def pods_at_once(job: ReplicatedJob) -> int:
    """Return how many pods each Job has at once; the default is one."""
    spec = job.template.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        return max(parallelism, 0)
    return max(min(parallelism, spec.completions), 0)


def start_order(spec: JobSetSpec) -> StartOrder:
    """Return the start order; a replicatedJob that can never begin gets a finding instead."""
    jobs = {job.name: job for job in spec.replicated_jobs}
    findings = list(_invalid_dependencies(spec, jobs))
    edges = [edge for edge in _edges(spec) if not _is_void(edge, jobs)]
    stuck = [edge for edge in edges if _is_unreachable(edge, jobs)]
    findings += _unreachable_findings(spec, jobs, stuck)
    circular = _in_cycles(edges)
    if circular:
        names = " and ".join(name for name in jobs if name in circular)
        findings.append(
            Finding("spec.replicatedJobs", _cycle_message(names, len(circular)), blocks=True)
        )
    refused = [name for name, job in jobs.items() if job.replicas > 0 and _lacks_completions(job)]
    excluded = with_dependents({*(edge.after for edge in stuck), *circular, *refused}, edges)
    edges = [edge for edge in edges if edge.before not in excluded and edge.after not in excluded]
    remaining = [name for name in jobs if name not in excluded]
    empty = [name for name in remaining if jobs[name].replicas <= 0 or not pods_at_once(jobs[name])]
    for name in empty:
        edges = list(_bypassed(edges, name))
    alive = tuple(name for name in remaining if name not in empty)
    return StartOrder(alive, tuple(dict.fromkeys(edges)), tuple(findings))


def _edges(spec: JobSetSpec) -> Iterator[Edge]:
    return _in_order_edges(spec) if _is_in_order(spec) else _depends_on_edges(spec)


def _is_void(edge: Edge, jobs: Mapping[str, ReplicatedJob]) -> bool:
    """Say whether an edge has no effect: a replicatedJob without replicas is never waited for."""
    before = jobs.get(edge.before)
    return jobs[edge.after].replicas == 0 or (before is not None and before.replicas == 0)


def _is_in_order(spec: JobSetSpec) -> bool:
    return spec.startup_policy.startup_policy_order == "InOrder"


def _in_order_edges(spec: JobSetSpec) -> Iterator[Edge]:
    names = [job.name for job in spec.replicated_jobs if job.replicas != 0]
    for before, after in pairwise(names):
        yield Edge(before, after, READY)


def _depends_on_edges(spec: JobSetSpec) -> Iterator[Edge]:
    for job in spec.replicated_jobs:
        for dependency in job.depends_on:
            yield Edge(dependency.name, job.name, dependency.status)


def _invalid_dependencies(spec: JobSetSpec, jobs: Mapping[str, ReplicatedJob]) -> Iterator[Finding]:
    """Yield what JobSet itself would refuse."""
    earlier: set[str] = set()
    for i, job in enumerate(spec.replicated_jobs):
        for j, dependency in enumerate(job.depends_on):
            path = f"spec.replicatedJobs[{i}].dependsOn[{j}]"
            if dependency.name not in jobs:
                earlier_names = ", ".join(sorted(earlier)) or "none: this is the first one"
                are = "are" if len(earlier) > 1 else "is"
                message = (
                    f"there is no replicatedJob {dependency.name!r}; before it "
                    f"there {are} {earlier_names}"
                )
                yield Finding(f"{path}.name", message, blocks=True)
            elif dependency.name not in {*earlier, job.name}:  # JobSet lets a job wait for itself
                message = f"{dependency.name!r} must be listed before {job.name!r}"
                yield Finding(f"{path}.name", message, blocks=True)
            if dependency.status not in {READY, COMPLETE}:
                message = f"{dependency.status!r} must be {READY!r} or {COMPLETE!r}"
                yield Finding(f"{path}.status", message, blocks=True)
        earlier.add(job.name)


def _is_unreachable(edge: Edge, jobs: Mapping[str, ReplicatedJob]) -> bool:
    """Say whether the first never reaches the status: it does not exist, or never runs."""
    job = jobs.get(edge.before)
    if job is None or edge.status not in {READY, COMPLETE} or job.replicas < 0:
        return True
    if edge.status == READY or pods_at_once(job) > 0:
        return False
    return job.template.spec.completions != 0


def _lacks_completions(job: ReplicatedJob) -> bool:
    """Say whether the API server refuses its Jobs: Indexed ones need completions."""
    spec = job.template.spec
    is_counted = spec.completions is not None or spec.parallelism is None
    return not is_counted and spec.completion_mode in {"", "Indexed"}


def _unreachable_findings(
    spec: JobSetSpec, jobs: Mapping[str, ReplicatedJob], stuck: Iterable[Edge]
) -> Iterator[Finding]:
    """Yield why replicatedJobs never begin."""
    for edge in dict.fromkeys(stuck):
        if edge.before in jobs and edge.status in {READY, COMPLETE}:
            path = _path(spec, edge.after) + ("" if _is_in_order(spec) else ".dependsOn")
            message = f"{edge.before!r} can never be {edge.status}, so {edge.after} never begins"
            yield Finding(path, message, blocks=True)
    for name, job in jobs.items():
        if job.replicas > 0 and _lacks_completions(job):
            path = f"{_path(spec, name)}.template.spec.completions"
            message = f"must be there: {name} is Indexed, so its pods are counted"
            yield Finding(path, message, blocks=True)


def _cycle_message(names: str, count: int) -> str:
    if count == 1:
        return f"{names} waits for itself, so it never begins"
    return f"{names} wait for each other, so none of them begins"


def _in_cycles(edges: list[Edge]) -> frozenset[str]:
    """Return the replicatedJobs that wait, through others, for themselves."""
    followers: dict[str, set[str]] = {}
    for edge in edges:
        followers.setdefault(edge.before, set()).add(edge.after)
    return frozenset(name for name in followers if name in _dependents(name, followers))


def _dependents(name: str, followers: Mapping[str, set[str]]) -> set[str]:
    """Return all replicatedJobs that begin after one."""
    dependents: set[str] = set()
    pending = [name]
    while pending:
        more = followers.get(pending.pop(), set()) - dependents
        dependents |= more
        pending += more
    return dependents


def with_dependents(names: Iterable[str], edges: Iterable[Edge]) -> frozenset[str]:
    """Return the names and all replicatedJobs that begin after them."""
    followers: dict[str, list[str]] = {}
    for edge in edges:
        followers.setdefault(edge.before, []).append(edge.after)
    dependents: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in dependents:
            dependents.add(name)
            pending += followers.get(name, ())
    return frozenset(dependents)


def _bypassed(edges: Iterable[Edge], name: str) -> Iterator[Edge]:
    """Yield the edges without one whose Jobs have no pods.

    They are Ready, or Complete, as soon as they are made, which is when what is before them is.
    """
    edges = tuple(edges)
    before = [edge for edge in edges if edge.after == name]
    for edge in edges:
        if name not in (edge.before, edge.after):
            yield edge
        elif edge.before == name:
            yield from (Edge(first.before, edge.after, first.status) for first in before)


def _path(spec: JobSetSpec, name: str) -> str:
    index = next(i for i, job in enumerate(spec.replicated_jobs) if job.name == name)
    return f"spec.replicatedJobs[{index}]"
