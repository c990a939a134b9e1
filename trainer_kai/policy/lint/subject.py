"""What lint looks at: a JobSet as admission would let it in, its units, and what its pods ask for.

How much a unit needs is never overstated: pods that could be fewer count as the fewest, and of
members of which some are enough the smallest count.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.container import Container
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.names import AMD_GPU, GPU, GPU_FRACTION, GPU_MEMORY
from trainer_kai.api.pod import PodSpec
from trainer_kai.api.quantity import QuantityError, milli
from trainer_kai.policy.demand import Amounts, demand
from trainer_kai.policy.units import Member, Unit

__all__ = ["Part", "container_path", "count_path", "part_of", "pod_path", "summed", "titles"]

_DEVICES: Final = (GPU, AMD_GPU)


class Part(NamedTuple):
    """A replicatedJob of a unit."""

    place: int  # in the JobSet
    job: ReplicatedJob
    member: Member
    asks: Amounts  # of one pod, in thousandths

    @property
    def pod(self) -> PodSpec:
        """Return what its pods are made with."""
        return self.job.template.spec.template.spec

    @property
    def needed(self) -> int:
        """Return how many of its pods start together, at least."""
        return self.member.replicas * self.member.minimum


def part_of(jobset: JobSet, member: Member) -> Part | None:
    """Return what a member asks for; None if that cannot be read."""
    jobs = jobset.spec.replicated_jobs
    place = next(i for i, job in enumerate(jobs) if job.name == member.name)
    template = jobs[place].template.spec.template
    try:
        asks = dict(demand(template.spec))
    except QuantityError:
        return None
    notes = template.metadata.annotations
    if GPU_FRACTION in notes or GPU_MEMORY in notes:
        for name in _DEVICES:
            asks.pop(name, None)  # it has parts of devices instead, which are not counted here
    return Part(place, jobs[place], member, {name: it for name, it in asks.items() if it > 0})


def summed(unit: Unit, parts: Iterable[Part]) -> Mapping[str, int]:
    """Return what starts together at least, of each resource; the cheapest members count."""
    found: dict[str, list[int]] = {}
    for part in parts:
        for name, amount in part.asks.items():
            found.setdefault(name, []).append(amount * part.needed)
    totals = {}
    for name, amounts in found.items():
        asking_nothing = len(unit.members) - len(amounts)
        totals[name] = sum(sorted(amounts)[: max(unit.min_members - asking_nothing, 0)])
    return totals


def titles(parts: Iterable[Part]) -> str:
    """Name some members."""
    return " and ".join(part.job.name for part in parts)


def pod_path(index: int) -> str:
    """Return where the pods of a replicatedJob are described."""
    return f"spec.replicatedJobs[{index}].template.spec.template.spec"


def count_path(parts: Iterable[Part]) -> str:
    """Return where it is said how many pods there are: of those of which there are most."""
    most = max(parts, key=lambda part: part.needed)
    return f"spec.replicatedJobs[{most.place}].template.spec.parallelism"


def container_path(part: Part, name: str) -> str:
    """Return where most of a resource is asked for."""
    found = [
        (
            _asked(container, field, name),
            -i,
            f"{pod_path(part.place)}.{kind}[{i}].resources.{field}",
        )
        for kind, containers in _containers(part.pod)
        for i, container in enumerate(containers)
        for field in ("requests", "limits")
    ]
    most = max(found, default=(0, 0, pod_path(part.place)))
    return f"{most[2]}[{name}]" if most[0] else pod_path(part.place)


def _containers(pod: PodSpec) -> Iterator[tuple[str, tuple[Container, ...]]]:
    yield "containers", pod.containers
    yield "initContainers", pod.init_containers


def _asked(container: Container, field: str, name: str) -> int:
    resources = container.resources
    amounts = resources.limits if field == "limits" else resources.requests
    try:
        return milli(amounts[name]) if name in amounts else 0
    except QuantityError:
        return 0
