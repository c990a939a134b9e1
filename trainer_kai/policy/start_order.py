"""The order in which the replicatedJobs of a JobSet begin.

JobSet creates the Jobs of a replicatedJob once all its dependencies are Ready or Complete;
`InOrder` is a chain of Ready. The result is a set of edges between the replicatedJobs that have
pods. One without pods does not delay others: for JobSet it is reached at once (no replicas), or as
soon as its Jobs are created (no pods in them). So the edges before it are connected to the edges
after it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from trainer_kai.api.jobset import JobSetSpec, ReplicatedJob
from trainer_kai.policy.finding import Finding

READY: Final = "Ready"
COMPLETE: Final = "Complete"
INITIALIZERS: Final = frozenset({"dataset-initializer", "model-initializer"})


class Edge(NamedTuple):
    before: str
    after: str
    status: str


class StartOrder(NamedTuple):
    """Only replicatedJobs that have pods, in the order of the list."""

    names: tuple[str, ...]
    edges: tuple[Edge, ...]
    findings: tuple[Finding, ...] = ()


def pods_at_once(job: ReplicatedJob) -> int:
    """Of each Job; the default is one."""
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
        message = _cycle_message([name for name in jobs if name in circular])
        findings.append(Finding("spec.replicatedJobs", message, blocks=True))
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
    """JobSet does not wait for, or in, one without replicas."""
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
    earlier: set[str] = set()
    for i, job in enumerate(spec.replicated_jobs):
        for j, dependency in enumerate(job.depends_on):
            path = f"spec.replicatedJobs[{i}].dependsOn[{j}]"
            if dependency.name not in jobs:
                names = ", ".join(sorted(earlier))
                hint = f"Name one that is listed before: {names}" if names else "Remove dependsOn"
                message = f"replicatedJob {dependency.name!r} does not exist. {hint}"
                yield Finding(f"{path}.name", message, blocks=True)
            # JobSet accepts a dependency on itself.
            elif dependency.name not in {*earlier, job.name}:
                message = f"{dependency.name!r} must be listed before {job.name!r}"
                yield Finding(f"{path}.name", message, blocks=True)
            if dependency.status not in {READY, COMPLETE}:
                message = f"{dependency.status!r} must be {READY!r} or {COMPLETE!r}"
                yield Finding(f"{path}.status", message, blocks=True)
        earlier.add(job.name)


def _is_unreachable(edge: Edge, jobs: Mapping[str, ReplicatedJob]) -> bool:
    """Say whether the status is never reached: the replicatedJob does not exist or never runs."""
    job = jobs.get(edge.before)
    if job is None or edge.status not in {READY, COMPLETE} or job.replicas < 0:
        return True
    if edge.status == READY or pods_at_once(job) > 0:
        return False
    return job.template.spec.completions != 0


def _lacks_completions(job: ReplicatedJob) -> bool:
    """Say whether the API server refuses the Jobs: Indexed ones need completions."""
    spec = job.template.spec
    is_counted = spec.completions is not None or spec.parallelism is None
    return not is_counted and spec.completion_mode in {"", "Indexed"}


def _unreachable_findings(
    spec: JobSetSpec, jobs: Mapping[str, ReplicatedJob], stuck: Iterable[Edge]
) -> Iterator[Finding]:
    for edge in dict.fromkeys(stuck):
        if edge.before in jobs and edge.status in {READY, COMPLETE}:
            path = _path(spec, edge.after) + ("" if _is_in_order(spec) else ".dependsOn")
            message = f"{edge.before!r} never becomes {edge.status}, so {edge.after!r} never begins"
            yield Finding(path, message, blocks=True)
    for name, job in jobs.items():
        if job.replicas > 0 and _lacks_completions(job):
            path = f"{_path(spec, name)}.template.spec.completions"
            message = f"must be set: {name!r} is Indexed, and the API server refuses its Jobs"
            yield Finding(path, message, blocks=True)


def _cycle_message(names: list[str]) -> str:
    if len(names) == 1:
        return f"replicatedJob {names[0]} depends on itself, so it never begins"
    return f"replicatedJobs {' and '.join(names)} depend on each other, so they never begin"


def _in_cycles(edges: list[Edge]) -> frozenset[str]:
    """Return the replicatedJobs that depend on themselves, directly or through others."""
    after = _followers(edges)
    return frozenset(name for name in after if name in _reachable(after[name], after))


def with_dependents(names: Iterable[str], edges: Iterable[Edge]) -> frozenset[str]:
    return _reachable(names, _followers(edges))


def _followers(edges: Iterable[Edge]) -> Mapping[str, Iterable[str]]:
    followers: dict[str, set[str]] = {}
    for edge in edges:
        followers.setdefault(edge.before, set()).add(edge.after)
    return followers


def _reachable(names: Iterable[str], followers: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the names and all replicatedJobs that begin after them."""
    found: set[str] = set()
    pending = [*names]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += followers.get(name, ())
    return frozenset(found)


def _bypassed(edges: Iterable[Edge], name: str) -> Iterator[Edge]:
    """Yield the edges without a replicatedJob that has no pods.

    Its Jobs are Ready or Complete as soon as they are created, which is when its own dependencies
    are reached.
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
