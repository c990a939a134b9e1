"""Applies all lint rules to a JobSet as admission would store it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import PREEMPTIBILITY, PRIORITY_CLASS_NAME, SKIP_PODGROUPER
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.budget import LintBudget
from trainer_kai.policy.lint.field_values import (
    amount_faults,
    annotation_faults,
    gpu_share_faults,
    gpu_sharing_off,
    priority_faults,
    replaced_podgroups,
    required_domain,
    spec_limit_faults,
    topology_faults,
    unsupported_topologies,
)
from trainer_kai.policy.lint.known_cluster import KnownCluster
from trainer_kai.policy.lint.node_capacity import NodeCapacityCheck
from trainer_kai.policy.lint.queue_limits import over_limits, over_quotas
from trainer_kai.policy.lint.subgroup_demand import (
    SubGroupDemand,
    count_path,
    subgroup_demand,
    total_demand,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.podgroups.planned import PlannedPodGroup, plan_podgroups
from trainer_kai.policy.queueing.priority_classes import (
    DEFAULT_PRIORITY_CLASS,
    PREEMPTIBLE_BELOW,
    SelectablePriorityClasses,
)

MOST_FINDINGS: Final = 16  # a user reads no more, and the API server drops more warnings
_ANNOTATIONS: Final = "metadata.annotations"


def lint_jobset(
    jobset: JobSet, queue: str, rules: GroupingRules, cluster: KnownCluster
) -> tuple[Finding, ...]:
    """Return the findings about a JobSet, blocking ones first, with paths of the JobSet."""
    found = dict.fromkeys(islice(_findings(jobset, queue, rules, cluster), 4 * MOST_FINDINGS))
    suppressed = FindingCode.NO_NODE_TODAY if cluster.autoscales else ""
    reported = (it for it in found if it.code != suppressed)
    return tuple(sorted(reported, key=lambda it: not it.blocks)[:MOST_FINDINGS])


def _findings(
    jobset: JobSet, queue: str, rules: GroupingRules, cluster: KnownCluster
) -> Iterator[Finding]:
    plan = plan_podgroups(jobset, rules.scheduler_name, staged=rules.mode == "external")
    for finding in plan.findings:
        code = FindingCode.UNREACHABLE if finding.blocks else FindingCode.INVALID_VALUE
        yield finding._replace(code=code)
    yield from gpu_share_faults(jobset, rules.scheduler_name)
    if rules.mode == "bundled" and not cluster.shares_gpus:
        yield from gpu_sharing_off(jobset, rules.scheduler_name)
    yield from _value_findings(jobset, cluster)
    if jobset.metadata.annotations.get(SKIP_PODGROUPER) == "true":
        return  # the user groups the pods
    yield from replaced_podgroups(jobset, rules.scheduler_name)
    if rules.mode == "bundled":
        yield from unsupported_topologies(jobset)
        yield from spec_limit_faults(jobset)
    budget = LintBudget()
    capacity = (
        NodeCapacityCheck(cluster.nodes, budget, autoscales=cluster.autoscales)
        if cluster.nodes is not None
        else None
    )
    for podgroup in plan.podgroups:
        demands = [subgroup_demand(jobset, subgroup) for subgroup in podgroup.subgroups]
        known = [demand for demand in demands if demand is not None]
        if len(known) == len(demands):
            yield from _podgroup_findings(jobset, podgroup, known, capacity, (queue, cluster))


def _value_findings(jobset: JobSet, cluster: KnownCluster) -> Iterator[Finding]:
    yield from amount_faults(jobset)
    if cluster.priorities is not None:
        yield from priority_faults(jobset, cluster.priorities)
    if cluster.topologies is not None:
        yield from topology_faults(jobset.metadata.annotations, _ANNOTATIONS, cluster.topologies)
        for i, job in enumerate(jobset.spec.replicated_jobs):
            annotations = job.template.metadata.annotations
            yield from topology_faults(annotations, _template_annotations(i), cluster.topologies)
    yield from annotation_faults(jobset)


def _podgroup_findings(
    jobset: JobSet,
    podgroup: PlannedPodGroup,
    demands: Sequence[SubGroupDemand],
    capacity: NodeCapacityCheck | None,
    known: tuple[str, KnownCluster],
) -> Iterator[Finding]:
    """Yield the findings about the size of one PodGroup."""
    queue, cluster = known
    needs = {name: amount for name, amount in total_demand(podgroup, demands).items() if amount}
    path = count_path(demands)
    if cluster.queues is not None:
        yield from over_limits(path, needs, cluster.gpus, queue, cluster.queues)
        if _is_non_preemptible(jobset, demands, cluster):
            yield from over_quotas(path, needs, cluster.gpus, queue, cluster.queues)
    if capacity is None:
        return
    podgroup_domain = required_domain(jobset.metadata.annotations, _ANNOTATIONS, cluster.topologies)
    is_all = podgroup.min_subgroups == len(podgroup.subgroups)
    yield from capacity.podgroup_findings(demands, needs, podgroup_domain, all_needed=is_all)
    for demand in demands:
        annotations = demand.job.template.metadata.annotations
        podset_domain = required_domain(
            annotations, _template_annotations(demand.job_index), cluster.topologies
        )
        if podset_domain is not None:
            yield from capacity.podset_findings(demand, podset_domain)


def _template_annotations(index: int) -> str:
    return f"spec.replicatedJobs[{index}].template.{_ANNOTATIONS}"


def _is_non_preemptible(
    jobset: JobSet, demands: Iterable[SubGroupDemand], cluster: KnownCluster
) -> bool:
    """Say whether a PodGroup is certainly non-preemptible."""
    labels = jobset.metadata.labels
    preemptibility = labels.get(PREEMPTIBILITY)
    if preemptibility in PREEMPTIBILITIES:
        return preemptibility != PREEMPTIBILITIES[0]
    if cluster.priorities is None:
        return False
    pod_classes = (
        demand.pod.priority_class_name for demand in demands if demand.pod.priority_class_name
    )
    name = labels.get(PRIORITY_CLASS_NAME) or next(pod_classes, DEFAULT_PRIORITY_CLASS)
    return SelectablePriorityClasses(cluster.priorities).value(name) >= PREEMPTIBLE_BELOW
