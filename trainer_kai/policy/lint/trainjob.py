"""All lint rules, for a TrainJob and for a JobSet as admission would store it.

A TrainJob is checked by the JobSet that Trainer will build from it and its runtime. Its author can
change only the TrainJob. So a path is a field of the TrainJob: the one that sets the value, or else
`spec.runtimeRef`; then the message has the field of the runtime.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from trainer_kai.api.bounds import MOST_PARTS
from trainer_kai.api.gpu_requests import is_whole_gpu, share_request
from trainer_kai.api.jobset import JobSet, ReplicatedJob
from trainer_kai.api.kai_kinds import TopologySpec
from trainer_kai.api.names import (
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    SKIP_PODGROUPER,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.errors import FieldWarning
from trainer_kai.policy.expand.jobset import (
    carried_to_pods,
    expand,
    gets_resources_per_node,
    launcher_trains,
    num_nodes_index,
    with_carried_metadata,
)
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.device_claims import device_claim_faults, unknown_claim_faults
from trainer_kai.policy.lint.field_values import (
    amount_faults,
    annotation_faults,
    deadline_findings,
    gpu_share_faults,
    gpu_sharing_off,
    priority_faults,
    replaced_podgroups,
    required_domain,
    spec_limit_faults,
    topology_faults,
)
from trainer_kai.policy.lint.node_capacity import (
    NodeCapacityCheck,
    RequiredDomain,
    SubGroupDemand,
    count_path,
    subgroup_demand,
    total_demand,
)
from trainer_kai.policy.lint.node_index import KnownCluster, LintBudget, count_spec_parts
from trainer_kai.policy.lint.queue_limits import over_bounds
from trainer_kai.policy.podgroups.grouping import (
    PlannedPodGroup,
    PodGroupPlan,
    plan_podgroups,
)
from trainer_kai.policy.podgroups.manifests import (
    GroupingRules,
    has_topology_constraint,
    is_bound_by_topology,
)
from trainer_kai.policy.queueing.priority_classes import (
    DEFAULT_PRIORITY_CLASS,
    PREEMPTIBLE_BELOW,
    SelectablePriorityClasses,
)
from trainer_kai.policy.queueing.topology_default import TopologyDefault, topology_default
from trainer_kai.policy.workloads.job import ONLY_JOB
from trainer_kai.policy.workloads.jobset import JOBSET_FORM
from trainer_kai.policy.workloads.roles import segment_topology
from trainer_kai.policy.workloads.workload import JobsForm, StagedJobs, Workload

MOST_FINDINGS: Final = 16  # a user reads no more, and the API server drops more warnings
_SEVERAL: Final = 2  # pods: from so many on the topology of a queue counts
_ANNOTATIONS: Final = "metadata.annotations"
_RUNTIME: Final = "spec.runtimeRef"
_OF_ONLY_JOB: Final = re.compile(rf"\b(pods?) of {ONLY_JOB}\b")  # in messages about a Job
_JOB_PATH: Final = re.compile(r"spec\.replicatedJobs\[([0-9]+)\]\.template\.spec\.(.+)")
_AMOUNT_PATH: Final = re.compile(
    r"template\.spec\.containers\[([0-9]+)\]\.resources\.(limits|requests)\[(.+)\]"
)
_GPU_PATH: Final = re.compile(
    r"template\.spec\.(?:initContainers|containers)\[[0-9]+\]\.resources\.(?:limits|requests)\[(.+)\]"
)
_POD_ANNOTATION_PATH: Final = re.compile(r"template\.metadata\.annotations\[(.+)\]")
_METADATA_PATH: Final = re.compile(r"metadata\.(labels|annotations)\[(.+)\]")
_UNKNOWN_NAMES: Final = (FindingCode.UNKNOWN_PRIORITY, FindingCode.UNKNOWN_TOPOLOGY)


class _Known(NamedTuple):
    queue: str  # of the workload
    cluster: KnownCluster
    topology_default: TopologyDefault | None


def lint_trainjob(
    job: TrainJob, runtime: Runtime, queue: str, rules: GroupingRules, cluster: KnownCluster
) -> tuple[Finding, ...]:
    """There are none for another controller or scheduler."""
    policy = runtime.spec.pod_group_policy
    is_foreign = policy is not None and (policy.coscheduling or policy.volcano)
    if is_foreign or job.spec.managed_by not in {"", TRAINJOB_CONTROLLER}:
        return ()
    patches = (it.training_runtime_spec.template.spec for it in job.spec.runtime_patches)
    if count_spec_parts((runtime.spec.template.spec, *patches)) > MOST_PARTS:
        message = f"not checked: TrainJob and runtime have more than {MOST_PARTS} parts"
        return (Finding(_RUNTIME, message, code=FindingCode.NOT_CHECKED),)
    built = expand(job, runtime)
    meta = job.metadata
    with_launcher = launcher_trains(runtime.spec.ml_policy)
    jobset = with_carried_metadata(
        built.jobset, meta.labels, meta.annotations, with_launcher=with_launcher
    )
    paths = _TrainJobPaths(job, runtime, built.jobset)
    found = [
        Finding(it.path, it.message, not isinstance(it, FieldWarning), FindingCode.JOBSET_NOT_BUILT)
        for it in built.faults
    ]
    found += map(paths.in_trainjob, lint_jobset(jobset, queue, rules, cluster))
    found += deadline_findings(job.spec.active_deadline_seconds, jobset, rules.scheduler_name)
    unique = dict.fromkeys(found)  # equal annotations of several templates have one path
    return tuple(sorted(unique, key=lambda it: not it.blocks)[:MOST_FINDINGS])


def is_refusable(finding: Finding) -> bool:
    """Say whether `admission.lint: deny` denies a TrainJob with this finding."""
    return finding.blocks or finding.code in _UNKNOWN_NAMES


def lint_jobset(
    jobset: StagedJobs,
    queue: str,
    rules: GroupingRules,
    cluster: KnownCluster,
    form: JobsForm = JOBSET_FORM,
) -> tuple[Finding, ...]:
    """Blocking findings come first; paths are of the JobSet, or of a kind with another *form*."""
    plan = plan_podgroups(jobset, rules.scheduler_name, staged=rules.mode == "external", form=form)
    default = _topology_default(queue, cluster) if rules.mode == "bundled" else None
    known = _Known(queue, cluster, default)
    findings = islice(_findings(jobset, plan, known, rules), 4 * MOST_FINDINGS)
    own = jobset if isinstance(jobset, Workload) else None
    found = dict.fromkeys(_in_form(it, form, own) for it in findings)
    if own is not None:
        found |= dict.fromkeys(deadline_findings(own.deadline_s, own, rules.scheduler_name))
    suppressed = FindingCode.NO_NODE_MATCHES if cluster.autoscales else ""
    reported = (it for it in found if it.code != suppressed)
    return tuple(sorted(reported, key=lambda it: not it.blocks)[:MOST_FINDINGS])


def _topology_default(queue: str, cluster: KnownCluster) -> TopologyDefault | None:
    queues = cluster.queues or {}

    def parent_of(name: str) -> str:
        return queues[name].parent_queue if name in queues else ""

    return topology_default(queue, parent_of, cluster.topology_defaults)


def _in_form(finding: Finding, form: JobsForm, workload: Workload | None) -> Finding:
    if form.jobs_path:
        return (
            finding if workload is None else finding._replace(path=workload.own_path(finding.path))
        )
    message = _OF_ONLY_JOB.sub(r"\1", finding.message)
    return finding._replace(path=form.own_path(finding.path), message=message)


def _findings(
    jobset: StagedJobs, plan: PodGroupPlan, known: _Known, rules: GroupingRules
) -> Iterator[Finding]:
    cluster = known.cluster
    for finding in plan.findings:
        code = FindingCode.UNREACHABLE if finding.blocks else FindingCode.INVALID_VALUE
        yield finding._replace(code=code)
    yield from gpu_share_faults(jobset, rules.scheduler_name)
    if rules.mode == "bundled" and not cluster.shares_gpus:
        yield from gpu_sharing_off(jobset, rules.scheduler_name)
    yield from _value_findings(jobset, cluster)
    yield from unknown_claim_faults(jobset)
    yield from device_claim_faults(jobset, rules.scheduler_name, cluster)
    is_grouped_by_user = jobset.metadata.annotations.get(SKIP_PODGROUPER) == "true"
    if is_grouped_by_user:
        return
    yield from replaced_podgroups(jobset, rules.scheduler_name)
    if rules.mode == "bundled":
        yield from spec_limit_faults(jobset)
    budget = LintBudget()
    capacity = (
        NodeCapacityCheck(cluster.nodes, budget, autoscales=cluster.autoscales)
        if cluster.nodes is not None
        else None
    )
    for podgroup in plan.podgroups:
        demands = [subgroup_demand(jobset, subgroup) for subgroup in podgroup.subgroups]
        valid = [demand for demand in demands if demand is not None]
        if len(valid) == len(demands):
            yield from _podgroup_findings(jobset, podgroup, valid, capacity, known)


def _value_findings(jobset: StagedJobs, cluster: KnownCluster) -> Iterator[Finding]:
    yield from amount_faults(jobset)
    if cluster.priorities is not None:
        yield from priority_faults(jobset, cluster.priorities)
    if cluster.topologies is not None:
        yield from topology_faults(jobset.metadata.annotations, _ANNOTATIONS, cluster.topologies)
        for i, job in enumerate(jobset.spec.replicated_jobs):
            annotations = job.template.metadata.annotations
            yield from topology_faults(annotations, _template_annotations(i), cluster.topologies)
            yield from _segment_faults(jobset, i, cluster.topologies)
    yield from annotation_faults(jobset)


def _podgroup_findings(
    jobset: StagedJobs,
    podgroup: PlannedPodGroup,
    demands: Sequence[SubGroupDemand],
    capacity: NodeCapacityCheck | None,
    known: _Known,
) -> Iterator[Finding]:
    queue, cluster = known.queue, known.cluster
    needs = {name: amount for name, amount in total_demand(podgroup, demands).items() if amount}
    path = count_path(demands)
    if cluster.queues is not None:
        is_fixed = _is_non_preemptible(jobset, demands, cluster)
        for field in ("limit", "quota") if is_fixed else ("limit",):
            yield from over_bounds(path, needs, cluster.gpus, queue, cluster.queues, field)
    if capacity is None:
        return
    jobs = {demand.job.name: demand.job for demand in demands}
    podgroup_domain = (
        required_domain(jobset.metadata.annotations, _ANNOTATIONS, cluster.topologies)
        if is_bound_by_topology(podgroup, jobs)
        else None
    ) or _default_domain(jobset, podgroup, demands, known)
    is_all = podgroup.min_subgroups == len(podgroup.subgroups)
    yield from capacity.podgroup_findings(demands, needs, podgroup_domain, all_needed=is_all)
    for demand in demands:
        # A Job has one place for both, and that is checked above.
        annotations = demand.job.template.metadata.annotations
        podset_domain = required_domain(
            annotations, _template_annotations(demand.job_index), cluster.topologies
        )
        if podset_domain is not None and annotations is not jobset.metadata.annotations:
            yield from capacity.podset_findings(demand, podset_domain)
        segment_domain = required_domain(
            _of_segments(jobset, demand.job),
            _segment_annotations(demand.job_index),
            cluster.topologies,
        )
        size = demand.subgroup.segments.size
        if segment_domain is not None and size:
            path = _as_segment_path(segment_domain.path)
            one = demand.subgroup._replace(min_member=min(size, demand.subgroup.pods))
            yield from capacity.podset_findings(
                demand._replace(subgroup=one), segment_domain._replace(path=path)
            )


def _default_domain(
    jobset: StagedJobs,
    podgroup: PlannedPodGroup,
    demands: Sequence[SubGroupDemand],
    known: _Known,
) -> RequiredDomain | None:
    """Return what the queue requires of PodGroups of several pods that have no constraint."""
    default = known.topology_default
    if default is None or sum(it.needed for it in demands) < _SEVERAL:
        return None
    jobs = {it.job.name: it.job for it in demands}
    own = [jobset.metadata.annotations] if is_bound_by_topology(podgroup, jobs) else []
    own += [it.template.metadata.annotations for it in jobs.values()]
    own += [_of_segments(jobset, it) for it in jobs.values()]
    if any(map(has_topology_constraint, own)):
        return None
    domain = required_domain(default.annotations, "", known.cluster.topologies)
    return domain and domain._replace(path=count_path(demands), queue=default.decided_by)


def _segment_faults(
    jobset: StagedJobs, index: int, known: Mapping[str, TopologySpec]
) -> Iterator[Finding]:
    """Leave out an unknown Topology that the workload names, since it is reported there."""
    job = jobset.spec.replicated_jobs[index]
    names_topology = TOPOLOGY in job.template.spec.template.metadata.annotations
    path = _segment_annotations(index)
    for it in topology_faults(_of_segments(jobset, job), path, known):
        if names_topology or it.path != f"{path}[{TOPOLOGY}]":
            yield it._replace(path=_as_segment_path(it.path))


def _of_segments(jobset: StagedJobs, job: ReplicatedJob) -> Mapping[str, str]:
    """Return the constraint of each segment, as the annotations of a sub-group."""
    pods = job.template.spec.template.metadata.annotations
    above = {**jobset.metadata.annotations, **job.template.metadata.annotations}
    return segment_topology(pods, above) if SEGMENT_SIZE in pods else {}


def _segment_annotations(index: int) -> str:
    return f"spec.replicatedJobs[{index}].template.spec.template.{_ANNOTATIONS}"


def _as_segment_path(path: str) -> str:
    path = path.replace(f"[{TOPOLOGY_REQUIRED}]", f"[{SEGMENT_REQUIRED}]")
    return path.replace(f"[{TOPOLOGY_PREFERRED}]", f"[{SEGMENT_PREFERRED}]")


def _template_annotations(index: int) -> str:
    return f"spec.replicatedJobs[{index}].template.{_ANNOTATIONS}"


def _is_non_preemptible(
    jobset: StagedJobs, demands: Iterable[SubGroupDemand], cluster: KnownCluster
) -> bool:
    """Say whether a PodGroup is certainly non-preemptible."""
    labels = jobset.metadata.labels
    preemptibility = labels.get(PREEMPTIBILITY)
    if preemptibility in PREEMPTIBILITIES:
        return preemptibility != PREEMPTIBILITIES[0]
    if cluster.priorities is None:
        return False
    pod_classes = (it.pod.priority_class_name for it in demands if it.pod.priority_class_name)
    name = labels.get(PRIORITY_CLASS_NAME) or next(pod_classes, DEFAULT_PRIORITY_CLASS)
    return SelectablePriorityClasses(cluster.priorities).value(name) >= PREEMPTIBLE_BELOW


class _TrainJobPaths:
    """Finds the field of a TrainJob that sets a field of its JobSet."""

    def __init__(self, job: TrainJob, runtime: Runtime, expanded: JobSet) -> None:
        """Take the JobSet before admission copies metadata from the TrainJob, as *expanded*."""
        self._job: Final = job
        self._runtime: Final = runtime
        self._expanded: Final = expanded
        self._num_nodes_index: Final = num_nodes_index(job, runtime)
        self._to_pods: Final = dict(
            carried_to_pods(
                expanded.spec.replicated_jobs,
                job.metadata.annotations,
                with_launcher=launcher_trains(runtime.spec.ml_policy),
            )
        )

    def in_trainjob(self, finding: Finding) -> Finding:
        own_path = next(self._own_paths(finding.path), None)
        if own_path is not None:
            return finding._replace(path=own_path)
        reference = self._job.spec.runtime_ref
        where = f"{reference.kind} {reference.name}, spec.template.{finding.path}"
        path = self._share_path(finding.path) or _RUNTIME
        return finding._replace(path=path, message=f"{finding.message} ({where})")

    def _share_path(self, path: str) -> str:
        """Return the request for a share that conflicts with the GPUs of the runtime at a path."""
        found = _JOB_PATH.fullmatch(path)
        gpus = _GPU_PATH.fullmatch(found[2]) if found else None
        if found is None or gpus is None or not is_whole_gpu(gpus[1]):
            return ""
        name = share_request(self._to_pods.get(int(found[1]), {}))
        return f"metadata.annotations[{name}]" if name else ""

    def _own_paths(self, path: str) -> Iterator[str]:
        metadata_match = _METADATA_PATH.fullmatch(path)
        if metadata_match:
            field, name = metadata_match.groups()
            meta = self._expanded.metadata
            if name not in (meta.labels if field == "labels" else meta.annotations):
                yield path
            return
        found = _JOB_PATH.fullmatch(path)
        if found is None:
            return
        index, rest = int(found[1]), found[2]
        if rest == "parallelism" and index == self._num_nodes_index:
            yield "spec.trainer.numNodes"
        annotation = _POD_ANNOTATION_PATH.fullmatch(rest)
        if annotation and annotation[1] in self._to_pods.get(index, {}):
            yield f"metadata.annotations[{annotation[1]}]"
        amount = _AMOUNT_PATH.fullmatch(rest)
        if amount and self._sets_amount(index, int(amount[1]), amount[2], amount[3]):
            yield f"spec.trainer.resourcesPerNode.{amount[2]}[{amount[3]}]"

    def _sets_amount(self, index: int, place: int, field: str, name: str) -> bool:
        trainer = self._job.spec.trainer
        if trainer is None or trainer.resources_per_node is None:
            return False
        resources = trainer.resources_per_node
        amounts = resources.limits if field == "limits" else resources.requests
        return name in amounts and gets_resources_per_node(
            self._expanded.spec.replicated_jobs[index], place, self._runtime
        )
