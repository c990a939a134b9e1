"""The requests of the replicatedJobs of a PodGroup, for lint.

The total is a lower bound: only the minimum number of pods counts and, if a PodGroup needs only
some of its SubGroups, only the smallest SubGroups.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.container import Container
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import AMD_GPU, GPU, GPU_FRACTION, GPU_MEMORY
from trainer_kai.api.pod import PodSpec
from trainer_kai.api.quantity import QuantityError, milli
from trainer_kai.policy.podgroups.planned import PlannedPodGroup, PlannedSubGroup
from trainer_kai.policy.pods.requests import ResourceAmounts, pod_requests

_DEVICES: Final = (GPU, AMD_GPU)


class SubGroupDemand(NamedTuple):
    """A replicatedJob of a PodGroup, and the requests of each of its pods."""

    job_index: int  # in the JobSet
    job: ReplicatedJob
    subgroup: PlannedSubGroup
    requests: ResourceAmounts  # of one pod, in thousandths

    @property
    def pod(self) -> PodSpec:
        """Return the spec of its pods."""
        return self.job.template.spec.template.spec

    @property
    def needed(self) -> int:
        """Return the minimum number of pods that start together."""
        return self.subgroup.replicas * self.subgroup.min_member


def subgroup_demand(jobset: JobSet, subgroup: PlannedSubGroup) -> SubGroupDemand | None:
    """Return the requests of a SubGroup; None if a quantity is invalid."""
    jobs = jobset.spec.replicated_jobs
    index = next(i for i, job in enumerate(jobs) if job.name == subgroup.name)
    template = jobs[index].template.spec.template
    try:
        requests = dict(pod_requests(template.spec))
    except QuantityError:
        return None
    annotations = template.metadata.annotations
    if GPU_FRACTION in annotations or GPU_MEMORY in annotations:
        for name in _DEVICES:
            requests.pop(
                name, None
            )  # the pod uses fractions of devices, which are not counted here
    return SubGroupDemand(
        index, jobs[index], subgroup, {name: it for name, it in requests.items() if it > 0}
    )


def total_demand(podgroup: PlannedPodGroup, demands: Iterable[SubGroupDemand]) -> Mapping[str, int]:
    """Return the minimum requests of a PodGroup, by resource."""
    found: dict[str, list[int]] = {}
    for demand in demands:
        for name, amount in demand.requests.items():
            found.setdefault(name, []).append(amount * demand.needed)
    totals = {}
    for name, amounts in found.items():
        without_request = len(podgroup.subgroups) - len(amounts)
        totals[name] = sum(sorted(amounts)[: max(podgroup.min_subgroups - without_request, 0)])
    return totals


def names_text(demands: Iterable[SubGroupDemand]) -> str:
    """Return the names of the replicatedJobs, for a message."""
    return " and ".join(demand.job.name for demand in demands)


def pod_path(index: int) -> str:
    """Return the path of the pod spec of a replicatedJob."""
    return f"spec.replicatedJobs[{index}].template.spec.template.spec"


def count_path(demands: Iterable[SubGroupDemand]) -> str:
    """Return the path of the pod count of the replicatedJob with the most pods."""
    most = max(demands, key=lambda demand: demand.needed)
    return f"spec.replicatedJobs[{most.job_index}].template.spec.parallelism"


def container_path(demand: SubGroupDemand, name: str) -> str:
    """Return the path of the largest request of a resource."""
    found = [
        (
            _requested(container, field, name),
            -i,
            f"{pod_path(demand.job_index)}.{kind}[{i}].resources.{field}",
        )
        for kind, containers in _containers(demand.pod)
        for i, container in enumerate(containers)
        for field in ("requests", "limits")
    ]
    most = max(found, default=(0, 0, pod_path(demand.job_index)))
    return f"{most[2]}[{name}]" if most[0] else pod_path(demand.job_index)


def _containers(pod: PodSpec) -> Iterator[tuple[str, tuple[Container, ...]]]:
    yield "containers", pod.containers
    yield "initContainers", pod.init_containers


def _requested(container: Container, field: str, name: str) -> int:
    resources = container.resources
    amounts = resources.limits if field == "limits" else resources.requests
    try:
        return milli(amounts[name]) if name in amounts else 0
    except QuantityError:
        return 0
