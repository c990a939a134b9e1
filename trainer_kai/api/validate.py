"""The faults of an object by itself: all of them at once, each with its path.

Only faults that the object alone shows. Values that KAI's CRD admits are no faults; for those see
`requested_values`. Whether its queue exists, or whether it can be placed, is checked elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from trainer_kai.api.bounds import LARGEST_NUMBER, TOPOLOGY_LEVELS
from trainer_kai.api.gpu_requests import gpu_share_faults
from trainer_kai.api.jobset import CronJob, Job, JobSet, JobSetSpec
from trainer_kai.api.kai_kinds import PodGroup, Queue, QueueResource, SubGroup, Topology
from trainer_kai.api.meta import Meta, TemplateMeta
from trainer_kai.api.names import GPU_FRACTION, HOSTNAME
from trainer_kai.api.pod import Container, Pod, PodSpec
from trainer_kai.api.quantity import Quantity, QuantityError, is_whole, milli
from trainer_kai.api.requested_values import (
    preemptibility_fault,
    requested_annotation_faults,
    requested_label_faults,
)
from trainer_kai.api.syntax import (
    annotation_faults,
    dns_label_fault,
    dns_subdomain_fault,
    label_faults,
    label_name_fault,
)
from trainer_kai.api.trainjob import JobSetTemplate, Runtime, TrainJob
from trainer_kai.errors import FieldError

O = TypeVar("O", Queue, PodGroup, Topology, TrainJob, Runtime, JobSet, Job, CronJob, Pod)  # noqa: E741 - an object
Faults: TypeAlias = Iterator[FieldError]


def _collected(faults: Callable[[O], Faults]) -> Callable[[O], tuple[FieldError, ...]]:
    return lambda it: tuple(faults(it))


@_collected
def queue_faults(queue: Queue) -> Faults:
    spec = queue.spec
    yield from _metadata(queue.metadata, "metadata")
    if spec.parent_queue:
        yield from _at_path("spec.parentQueue", dns_subdomain_fault(spec.parent_queue))
        if spec.parent_queue == queue.metadata.name:
            yield FieldError("spec.parentQueue", "a queue cannot be its own parent")
    if spec.resources is None:
        yield FieldError("spec.resources", "is missing; -1 for quota and limit means unlimited")
        return
    for name in ("gpu", "cpu", "memory"):
        yield from _queue_resource(getattr(spec.resources, name), f"spec.resources.{name}")


def _queue_resource(resource: QueueResource, path: str) -> Faults:
    """`effective_queue` handles negative values."""
    for name, number in (
        ("quota", resource.quota),
        ("limit", resource.limit),
        ("overQuotaWeight", resource.over_quota_weight),
    ):
        if not number.is_finite():
            yield FieldError(f"{path}.{name}", f"{number} must be a number")


@_collected
def podgroup_faults(group: PodGroup) -> Faults:
    spec = group.spec
    yield from _metadata(group.metadata, "metadata")
    if spec.preemptibility:
        yield from _at_path("spec.preemptibility", preemptibility_fault(spec.preemptibility))
    yield from _min_numbers(spec.min_member, spec.min_sub_group, "spec")
    yield from _tree(spec.sub_groups)


def _tree(groups: tuple[SubGroup, ...]) -> Faults:
    parents = {group.name: group.parent for group in groups}
    inner = {group.parent for group in groups}
    count = Counter(group.name for group in groups)
    for i, group in enumerate(groups):
        path = f"spec.subGroups[{i}]"
        yield from _at_path(f"{path}.name", dns_label_fault(group.name))
        if count[group.name] > 1:
            yield FieldError(f"{path}.name", f"{group.name!r} exists {count[group.name]} times")
        if group.parent and group.parent not in parents:
            yield FieldError(f"{path}.parent", f"sub-group {group.parent!r} does not exist")
        elif _is_in_cycle(group.name, parents):
            yield FieldError(f"{path}.parent", f"{group.name!r} is its own ancestor")
        yield from _min_numbers(group.min_member, group.min_sub_group, path)
        yield from _sub_group_minima(group, path, is_inner=group.name in inner)


def _sub_group_minima(group: SubGroup, path: str, *, is_inner: bool) -> Faults:
    """Check the minimum counts; a minMember above sub-groups is ignored, as in older objects."""
    if not is_inner and group.min_sub_group is not None:
        message = "must not be set on a sub-group without children; its minMember counts pods"
        yield FieldError(f"{path}.minSubGroup", message)
    if not is_inner and group.min_member is None:
        yield FieldError(f"{path}.minMember", "is missing: it is the minimum number of pods")


def _min_numbers(member: int | None, sub_group: int | None, path: str) -> Faults:
    for name, number in (("minMember", member), ("minSubGroup", sub_group)):
        if number is not None and number < 0:
            yield FieldError(f"{path}.{name}", f"{number} must be 0 or more")
    if member is not None and sub_group is not None:
        yield FieldError(f"{path}.minMember", "cannot be set together with minSubGroup")


def _is_in_cycle(name: str, parents: Mapping[str, str]) -> bool:
    at, steps = parents[name], 0
    while at in parents and at != name and steps < len(parents):
        at, steps = parents[at], steps + 1
    return at == name


@_collected
def topology_faults(topology: Topology) -> Faults:
    levels = topology.spec.levels
    yield from _metadata(topology.metadata, "metadata")
    if not 1 <= len(levels) <= TOPOLOGY_LEVELS:
        message = f"{len(levels)} levels; between 1 and {TOPOLOGY_LEVELS} are allowed"
        yield FieldError("spec.levels", message)
    labels = Counter(level.node_label for level in levels)
    aliases = Counter(level.alias for level in levels if level.alias)
    for i, level in enumerate(levels):
        path = f"spec.levels[{i}]"
        yield from _at_path(f"{path}.nodeLabel", label_name_fault(level.node_label))
        if labels[level.node_label] > 1:
            yield FieldError(f"{path}.nodeLabel", f"{level.node_label!r} exists twice")
        if level.node_label == HOSTNAME and i < len(levels) - 1:
            message = "a single node is the finest level, so it must be last"
            yield FieldError(f"{path}.nodeLabel", message)
        if level.alias:
            yield from _at_path(f"{path}.alias", label_name_fault(level.alias))
        if aliases[level.alias] > 1:
            yield FieldError(f"{path}.alias", f"{level.alias!r} exists twice")
        if level.alias in labels:
            yield FieldError(f"{path}.alias", f"{level.alias!r} is the label of a level")


@_collected
def trainjob_faults(job: TrainJob) -> Faults:
    yield from _metadata(job.metadata, "metadata")
    trainer = job.spec.trainer
    if trainer is not None:
        yield from _number(trainer.num_nodes, "spec.trainer.numNodes", 0)
        yield from _number(trainer.num_proc_per_node, "spec.trainer.numProcPerNode", 1)
    if trainer is not None and trainer.resources_per_node is not None:
        path = "spec.trainer.resourcesPerNode"
        yield from _quantities(trainer.resources_per_node.requests, f"{path}.requests")
        yield from _quantities(trainer.resources_per_node.limits, f"{path}.limits")
    for i, patch in enumerate(job.spec.runtime_patches):
        path = f"spec.runtimePatches[{i}].trainingRuntimeSpec.template"
        yield from _jobset_template(patch.training_runtime_spec.template, path)


def _number(value: int | None, path: str, least: int) -> Faults:
    if value is not None and not least <= value <= LARGEST_NUMBER:
        yield FieldError(path, f"{value} must be between {least} and {LARGEST_NUMBER}")


@_collected
def runtime_faults(runtime: Runtime) -> Faults:
    yield from _metadata(runtime.metadata, "metadata")
    policy = runtime.spec.pod_group_policy
    if policy is not None and policy.kai_scheduler is not None and policy.kai_scheduler.queue:
        fault = dns_subdomain_fault(policy.kai_scheduler.queue)
        yield from _at_path("spec.podGroupPolicy.kaiScheduler.queue", fault)
    yield from _jobset_template(runtime.spec.template, "spec.template")


@_collected
def jobset_faults(jobset: JobSet) -> Faults:
    yield from _metadata(jobset.metadata, "metadata")
    yield from _jobset_spec(jobset.spec, "spec")


@_collected
def job_faults(job: Job) -> Faults:
    yield from _metadata(job.metadata, "metadata")
    pod = job.spec.template
    yield from _pod(pod.metadata, pod.spec, "spec.template.")


@_collected
def cron_job_faults(cron_job: CronJob) -> Faults:
    yield from _metadata(cron_job.metadata, "metadata")
    template = cron_job.spec.job_template
    pod = template.spec.template
    yield from _metadata(template.metadata, "spec.jobTemplate.metadata")
    yield from _pod(pod.metadata, pod.spec, "spec.jobTemplate.spec.template.")


def _jobset_template(template: JobSetTemplate, path: str) -> Faults:
    yield from _metadata(template.metadata, f"{path}.metadata")
    yield from _jobset_spec(template.spec, f"{path}.spec")


def _jobset_spec(spec: JobSetSpec, path: str) -> Faults:
    names = {job.name for job in spec.replicated_jobs}
    for i, job in enumerate(spec.replicated_jobs):
        at = f"{path}.replicatedJobs[{i}]"
        for j, dependency in enumerate(job.depends_on):
            if dependency.name not in names - {job.name}:
                message = f"another replicatedJob {dependency.name!r} does not exist"
                yield FieldError(f"{at}.dependsOn[{j}].name", message)
        pod = job.template.spec.template
        yield from _metadata(job.template.metadata, f"{at}.template.metadata")
        yield from _pod(pod.metadata, pod.spec, f"{at}.template.spec.template.")


def _metadata(metadata: Meta | TemplateMeta, path: str) -> Faults:
    yield from label_faults(metadata.labels, f"{path}.labels")
    yield from requested_label_faults(metadata.labels, f"{path}.labels")
    yield from annotation_faults(metadata.annotations, f"{path}.annotations")
    yield from requested_annotation_faults(metadata.annotations, f"{path}.annotations")


@_collected
def pod_faults(pod: Pod) -> Faults:
    return _pod(pod.metadata, pod.spec, "")


def _pod(metadata: Meta | TemplateMeta, spec: PodSpec, path: str) -> Faults:
    yield from _metadata(metadata, f"{path}metadata")
    yield from _pod_spec(spec, f"{path}spec")
    yield from gpu_share_faults(metadata.annotations, spec, path)


def _pod_spec(spec: PodSpec, path: str) -> Faults:
    yield from _containers(spec.init_containers, f"{path}.initContainers")
    yield from _containers(spec.containers, f"{path}.containers")
    yield from _quantities(spec.overhead, f"{path}.overhead")


def _containers(containers: tuple[Container, ...], path: str) -> Faults:
    for i, container in enumerate(containers):
        resources = container.resources
        yield from _quantities(resources.requests, f"{path}[{i}].resources.requests")
        yield from _quantities(resources.limits, f"{path}[{i}].resources.limits")


def _quantities(amounts: Mapping[str, Quantity], path: str) -> Faults:
    for name, quantity in amounts.items():
        try:
            thousandths = milli(quantity)
        except QuantityError as error:
            yield FieldError(f"{path}[{name}]", str(error))
            continue
        if thousandths < 0:
            yield FieldError(f"{path}[{name}]", f"{quantity} must not be negative")
        elif "/" in name and not is_whole(quantity):
            message = f"{quantity} must be an integer; a fraction of a GPU is requested by "
            yield FieldError(f"{path}[{name}]", f"{message}the annotation {GPU_FRACTION}")


def _at_path(path: str, fault: str | None) -> Faults:
    if fault:
        yield FieldError(path, fault)
