"""Whether the current nodes, if they were empty, could hold a pod, or all pods of a PodGroup.

Three rules for each PodGroup: a pod against the largest node, all pods against all nodes, all pods
against the largest topology domain. If no node of a kind exists today, the size of a future node is
unknown, so that is only a warning.

What all pods of a PodGroup request is a lower bound: only the minimum number of pods counts and, if
a PodGroup needs only some of its SubGroups, only the smallest SubGroups.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trainer_kai.api.gpu_requests import share_request
from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.names import AMD_GPU, GPU, PODS
from trainer_kai.api.pod import Container, PodSpec
from trainer_kai.api.quantity import QuantityError, milli
from trainer_kai.api.text import listed_names, verb_form
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_index import LintBudget, NodeIndex, union
from trainer_kai.policy.podgroups.grouping import PlannedPodGroup, PlannedSubGroup
from trainer_kai.policy.pods.requests import ResourceAmounts, format_amount, pod_requests
from trainer_kai.policy.workloads.workload import StagedJobs

_DEVICES: Final = (GPU, AMD_GPU)
_MOST_LISTED: Final = 3  # names that a message lists
_DOMAIN_STEPS: Final = 8  # steps of the budget for one domain


class RequiredDomain(NamedTuple):
    path: str  # of the annotation that requests it
    level: str  # its name
    topology: str
    labels: tuple[str, ...]  # of all its levels, the coarsest first: each node needs all of them
    depth: int  # the place of the level among them
    queue: str = ""  # that requires it by default


class SubGroupDemand(NamedTuple):
    job_index: int  # in the JobSet
    job: ReplicatedJob
    subgroup: PlannedSubGroup
    requests: ResourceAmounts  # of one pod, in thousandths

    @property
    def pod(self) -> PodSpec:
        return self.job.template.spec.template.spec

    @property
    def needed(self) -> int:
        """The minimum number of pods that start together."""
        return self.subgroup.min_pods


def subgroup_demand(jobset: StagedJobs, subgroup: PlannedSubGroup) -> SubGroupDemand | None:
    """None if a quantity is invalid."""
    jobs = jobset.spec.replicated_jobs
    index = next(i for i, job in enumerate(jobs) if job.name == subgroup.name)
    template = jobs[index].template.spec.template
    try:
        requests = pod_requests(template.spec)
    except QuantityError:
        return None
    # Fractions of devices are not counted here.
    uncounted = _DEVICES if share_request(template.metadata.annotations) else ()
    counted = {name: it for name, it in requests.items() if it > 0 and name not in uncounted}
    return SubGroupDemand(index, jobs[index], subgroup, counted)


def total_demand(podgroup: PlannedPodGroup, demands: Iterable[SubGroupDemand]) -> Mapping[str, int]:
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
    return " and ".join(demand.job.name for demand in demands)


def pod_path(index: int) -> str:
    return f"spec.replicatedJobs[{index}].template.spec.template.spec"


def count_path(demands: Iterable[SubGroupDemand]) -> str:
    """Return the path of the pod count of the replicatedJob with the most pods."""
    most = max(demands, key=lambda demand: demand.needed)
    return f"spec.replicatedJobs[{most.job_index}].template.spec.parallelism"


def container_path(demand: SubGroupDemand, name: str) -> str:
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


def containers_at(jobset: StagedJobs, index: int) -> Iterator[tuple[str, Container]]:
    """Yield the containers of the pods of a replicatedJob, each with its path."""
    for kind, containers in _containers(
        jobset.spec.replicated_jobs[index].template.spec.template.spec
    ):
        for i, container in enumerate(containers):
            yield f"{pod_path(index)}.{kind}[{i}]", container


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


class _PodKind(NamedTuple):
    """Pods with the same requests and the same eligible nodes."""

    demands: tuple[SubGroupDemand, ...]
    requests: ResourceAmounts
    eligible: int
    capacities: tuple[tuple[int, int], ...]  # nodes, and how many such pods each node holds

    @property
    def needed(self) -> int:
        return sum(demand.needed for demand in self.demands)

    def capacity_of(self, among: int) -> int:
        return sum((nodes & among).bit_count() * each for nodes, each in self.capacities)


class NodeCapacityCheck:
    """It caches the capacity of the nodes."""

    def __init__(self, nodes: NodeIndex, budget: LintBudget, *, autoscales: bool) -> None:
        self._nodes: Final = nodes
        self._budget: Final = budget
        self._blocks: Final = not autoscales
        self._pod_kinds: Final[dict[tuple[tuple[tuple[str, int], ...], int], _PodKind]] = {}

    def podgroup_findings(
        self,
        demands: Sequence[SubGroupDemand],
        needs: ResourceAmounts,
        required_domain: RequiredDomain | None,
        *,
        all_needed: bool,
    ) -> Iterator[Finding]:
        """Yield a finding about a pod, else about the PodGroup, else about a topology domain."""
        eligible = [self._nodes.eligible_for(demand.pod) for demand in demands]
        pod_findings: list[Finding] = []
        for demand, nodes in zip(demands, eligible, strict=True):
            pod_findings += self._pod_findings(demand, nodes, needed=all_needed)
        if pod_findings:
            yield from pod_findings
            return
        kinds = self._kinds(demands, eligible) if all_needed else ()
        if kinds is None:
            return
        total_findings = [*self._total_findings(demands, kinds, needs, eligible)]
        yield from total_findings
        if required_domain is not None and not total_findings:
            yield from self._domain_findings(demands, kinds, needs, required_domain, eligible)

    def podset_findings(
        self, demand: SubGroupDemand, required_domain: RequiredDomain
    ) -> Iterator[Finding]:
        """Yield a finding if a topology domain is too small for the pods of one Job."""
        one = demand._replace(subgroup=demand.subgroup._replace(replicas=1))
        eligible = [self._nodes.eligible_for(demand.pod)]
        kinds = self._kinds([one], eligible)
        if kinds is not None and kinds[0].capacities:
            needs = {name: amount * one.needed for name, amount in one.requests.items()}
            yield from self._domain_findings([one], kinds, needs, required_domain, eligible)

    def _pod_findings(
        self, demand: SubGroupDemand, eligible: int, *, needed: bool
    ) -> Iterator[Finding]:
        if not eligible:
            yield _no_node_today(pod_path(demand.job_index), self._no_node_reason(demand))
            return
        kind = self._kind(demand, eligible)
        if kind is None or kind.capacities:
            return
        most = self._largest_amounts(demand.requests, eligible)
        over = [name for name, amount in demand.requests.items() if amount > most[name]]
        if not over:
            message = (
                f"no node, even if empty, has all resources that each pod of {demand.job.name} "
                "requests. Request less"
            )
            path = pod_path(demand.job_index)
            yield Finding(path, message, self._blocks and needed, FindingCode.POD_TOO_LARGE)
            return
        name = max(over, key=lambda it: (not most[it], demand.requests[it] / max(most[it], 1)))
        path = container_path(demand, name)
        if not most[name]:
            yield _no_node_today(
                path, f"no node that is eligible for pods of {demand.job.name} has {name} today"
            )
            return
        message = (
            f"each pod of {demand.job.name} requests "
            f"{format_amount(name, demand.requests[name])} {name}, and "
            f"{_largest_text(eligible)} has {format_amount(name, most[name])}. Request at most "
            f"{format_amount(name, most[name])}"
        )
        yield Finding(path, message, self._blocks and needed, FindingCode.POD_TOO_LARGE)

    def _total_findings(
        self,
        demands: Sequence[SubGroupDemand],
        kinds: Sequence[_PodKind],
        needs: ResourceAmounts,
        eligible: Iterable[int],
    ) -> Iterator[Finding]:
        for kind in kinds:
            capacity = kind.capacity_of(kind.eligible)
            if kind.needed > capacity:
                message = (
                    f"{kind.needed} pods of {names_text(kind.demands)} must start together, and "
                    f"{_all_text(kind.eligible, 'hold')} {capacity}. Request at most {capacity}"
                )
                path = count_path(kind.demands)
                yield Finding(path, message, self._blocks, FindingCode.PODGROUP_TOO_LARGE)
                return
        among = union(eligible)
        name = next(iter(self._lacking(needs, among)), None)
        if name is not None:
            allocatable = format_amount(name, self._total(name, among))
            message = (
                f"the pods that must start together request {format_amount(name, needs[name])} "
                f"{name}, and {_all_text(among, 'have')} {allocatable}. Request at most "
                f"{allocatable}"
            )
            yield Finding(
                count_path(demands), message, self._blocks, FindingCode.PODGROUP_TOO_LARGE
            )

    def _domain_findings(
        self,
        demands: Sequence[SubGroupDemand],
        kinds: Sequence[_PodKind],
        needs: ResourceAmounts,
        required_domain: RequiredDomain,
        eligible: Iterable[int],
    ) -> Iterator[Finding]:
        among = self._nodes.with_labels(required_domain.labels, union(eligible))
        domains = self._domains(required_domain, among, is_one_kind=len(kinds) == 1)
        if domains is None:
            return
        if not domains:
            few = len(required_domain.labels) == 1
            labels = ("the label " if few else "all of the labels ") + ", ".join(
                required_domain.labels
            )
            yield _no_node_today(
                required_domain.path, f"no node that is eligible for the pods has {labels} today"
            )
            return
        best = 0
        for domain in sorted(domains, key=int.bit_count, reverse=True):
            if not self._budget.spend(sum(len(kind.capacities) for kind in kinds) + 4):
                return
            capacities = [kind.capacity_of(domain) for kind in kinds]
            best = max(best, *capacities, 0)
            enough = all(kind.needed <= one for kind, one in zip(kinds, capacities, strict=True))
            if enough and (len(kinds) == 1 or not any(self._lacking(needs, domain & among))):
                return
        count = sum(demand.needed for demand in demands)
        where = f"one {required_domain.level} of Topology {required_domain.topology}"
        where += f" (the default of queue {required_domain.queue})" if required_domain.queue else ""
        message = f"{count} pods of {names_text(demands)} must be in {where}, and "
        if len(kinds) == 1 and best:
            message += f"the largest holds {best}. Request at most {best} pods, or a coarser level"
        else:
            message += "none holds them. Request less, or a coarser level"
        yield Finding(required_domain.path, message, self._blocks, FindingCode.DOMAIN_TOO_SMALL)

    def _domains(
        self, required_domain: RequiredDomain, among: int, *, is_one_kind: bool
    ) -> list[int] | None:
        """If each domain is one node and all pods are equal, one of each size."""
        labels = required_domain.labels[: required_domain.depth + 1]
        if is_one_kind and self._nodes.is_unique_label(labels[-1]):
            sizes = (nodes & among for _, nodes in self._nodes.by_allocatable())
            return [nodes & -nodes for nodes in sizes if nodes]
        found = []
        for domain in self._nodes.domains(labels, among):
            if not self._budget.spend(_DOMAIN_STEPS + len(labels)):
                return None
            found.append(domain)
        return found

    def _kinds(
        self, demands: Sequence[SubGroupDemand], eligible: Sequence[int]
    ) -> tuple[_PodKind, ...] | None:
        """Combine replicatedJobs if their pods have the same requests and eligible nodes."""
        found: dict[tuple[tuple[tuple[str, int], ...], int], _PodKind] = {}
        for demand, nodes in zip(demands, eligible, strict=True):
            kind = self._kind(demand, nodes)
            if kind is None:
                return None
            key = _key(demand, nodes)
            before = found[key].demands if key in found else ()
            found[key] = kind._replace(demands=(*before, demand))
        return tuple(found.values())

    def _kind(self, demand: SubGroupDemand, eligible: int) -> _PodKind | None:
        """None if counting how many such pods each node holds exceeds the budget."""
        key = _key(demand, eligible)
        if key in self._pod_kinds:
            return self._pod_kinds[key]
        if not self._budget.spend(self._nodes.distinct_count * (4 + len(demand.requests))):
            return None
        capacity = []
        for allocatable, nodes in self._nodes.by_allocatable():
            each = _capacity(demand.requests, allocatable) if nodes & eligible else 0
            if each:
                capacity.append((nodes & eligible, each))
        self._pod_kinds[key] = _PodKind((), demand.requests, eligible, tuple(capacity))
        return self._pod_kinds[key]

    def _largest_amounts(self, requests: ResourceAmounts, among: int) -> Mapping[str, int]:
        allocatables = [
            allocatable for allocatable, nodes in self._nodes.by_allocatable() if nodes & among
        ]
        return {
            name: max(allocatable.get(name, 0) for allocatable in allocatables) for name in requests
        }

    def _lacking(self, needs: ResourceAmounts, among: int) -> Iterator[str]:
        """None of them if that exceeds the budget."""
        if self._budget.spend(self._nodes.distinct_count * (2 + len(needs))):
            for name, amount in needs.items():
                if amount > self._total(name, among):
                    yield name

    def _total(self, name: str, among: int) -> int:
        return sum(
            allocatable.get(name, 0) * (nodes & among).bit_count()
            for allocatable, nodes in self._nodes.by_allocatable()
        )

    def _no_node_reason(self, demand: SubGroupDemand) -> str:
        nodes, name = self._nodes, demand.job.name
        if not nodes.all:
            return "the cluster has no nodes today"
        selected = nodes.selected_by(demand.pod)
        if selected:
            taints = listed_names(nodes.taints(selected), _MOST_LISTED)
            return (
                f"pods of {name} tolerate no node that they select today; the taints are {taints}"
            )
        for label, value in demand.pod.node_selector.items():
            values = nodes.label_values(label)
            if value not in values:
                existing = listed_names(values, _MOST_LISTED)
                right = f"; existing values are {existing}" if values else ""
                return f"pods of {name} select {label}={value}, which no node has today{right}"
        return f"no node matches what pods of {name} select today"


def _no_node_today(path: str, message: str) -> Finding:
    return Finding(
        path, f"{message}. The pods wait for such a node", code=FindingCode.NO_NODE_MATCHES
    )


def _key(demand: SubGroupDemand, eligible: int) -> tuple[tuple[tuple[str, int], ...], int]:
    return tuple(sorted(demand.requests.items())), eligible


def _capacity(requests: ResourceAmounts, allocatable: Mapping[str, int]) -> int:
    capacity = allocatable.get(PODS, 2**63) // 1000
    for name, amount in requests.items():
        capacity = min(capacity, allocatable.get(name, 0) // amount)
    return capacity


def _largest_text(nodes: int) -> str:
    count = nodes.bit_count()
    return "the one eligible node" if count == 1 else f"the largest of {count} eligible nodes"


def _all_text(nodes: int, verb: str) -> str:
    count = nodes.bit_count()
    if count == 1:
        return f"the one eligible node {verb_form(1, verb)}"
    return f"the {count} eligible nodes {verb}"
