"""Checks the values in a JobSet: names of objects, annotations, and amounts of resources.

The API server refuses pods with invalid amounts, and their Jobs retry for ever.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.gpu_requests import gpu_share_faults as requested_share_faults
from trainer_kai.api.gpu_requests import (
    mig_annotation_faults,
    requests_gpu_resource,
    reserved_label_faults,
    share_request,
    sharing_off_faults,
)
from trainer_kai.api.kai_kinds import TopologyLevel, TopologySpec
from trainer_kai.api.names import (
    GPU,
    GPU_FRACTION,
    NATIVE_PREFIX,
    POD_GROUP,
    PRIORITY_CLASS_NAME,
    QUEUE,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.pod import Container, PodTemplate, Resources
from trainer_kai.api.quantity import QuantityError, is_whole, milli
from trainer_kai.api.requested_values import requested_annotation_faults, requested_label_faults
from trainer_kai.api.text import listed_names
from trainer_kai.errors import FieldError
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_capacity import RequiredDomain, containers_at, pod_path
from trainer_kai.policy.misspelled_keys import POD_KEYS, misspelled_keys
from trainer_kai.policy.pods.requests import spec_limit_fault
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses
from trainer_kai.policy.workloads.workload import StagedJobs

_MOST_LISTED: Final = 5  # names in a message
_LONG_DEADLINE_S: Final = 24 * 3600  # from so long on the time in a queue matters less
_WITH_QUEUE: Final = (
    "counts from the creation or the last resume, so it includes the time for which the pods wait "
    "in their queue"
)


def annotation_faults(jobset: StagedJobs) -> Iterator[Finding]:
    """Invalid labels and annotations are ignored; the queue label has its own check."""
    meta = jobset.metadata
    faults = [
        *requested_label_faults(meta.labels, "metadata.labels"),
        *requested_annotation_faults(meta.annotations, "metadata.annotations"),
    ]
    for i, job in enumerate(jobset.spec.replicated_jobs):
        path = f"spec.replicatedJobs[{i}].template"
        faults += requested_annotation_faults(
            job.template.metadata.annotations, f"{path}.metadata.annotations"
        )
        pods = job.template.spec.template.metadata
        faults += requested_annotation_faults(
            pods.annotations, f"{path}.spec.template.metadata.annotations"
        )
    for fault in faults:
        if not fault.path.endswith(f"[{QUEUE}]"):
            yield Finding(fault.path, f"ignored: {fault.message}", code=FindingCode.INVALID_VALUE)
    for i, job in enumerate(jobset.spec.replicated_jobs):
        pods = job.template.spec.template.metadata
        for it in misspelled_keys(pods.labels, pods.annotations, POD_KEYS, _template_path(i)):
            yield Finding(it.path, it.message, code=FindingCode.INVALID_VALUE)


def replaced_podgroups(jobset: StagedJobs, scheduler_name: str) -> Iterator[Finding]:
    for i, job in enumerate(jobset.spec.replicated_jobs):
        template = job.template.spec.template
        is_ours = template.spec.scheduler_name in {"", scheduler_name}
        if is_ours and POD_GROUP in template.metadata.annotations:
            path = f"{_template_path(i)}metadata.annotations[{POD_GROUP}]"
            message = "it is replaced: the pods are in the PodGroup of their workload. Remove it"
            yield Finding(path, message, code=FindingCode.RESERVED_LABEL)


def priority_faults(jobset: StagedJobs, known: Mapping[str, PriorityClass]) -> Iterator[Finding]:
    name = jobset.metadata.labels.get(PRIORITY_CLASS_NAME, "")
    existing, path = _existing_names(known), f"metadata.labels[{PRIORITY_CLASS_NAME}]"
    pods = [job.template.spec.template.spec for job in jobset.spec.replicated_jobs]
    refusal = SelectablePriorityClasses(known).refusal(name)
    if name and name not in known:
        message = f"PriorityClass {name!r} does not exist, so the label is ignored. {existing}"
        yield Finding(path, message, code=FindingCode.UNKNOWN_PRIORITY)
    elif refusal is not None and {pod.priority_class_name for pod in pods} != {name}:
        yield Finding(path, refusal, blocks=True, code=FindingCode.PRIORITY_REFUSED)
    for i, pod in enumerate(pods):
        name = pod.priority_class_name
        if name and name not in known:
            message = f"PriorityClass {name!r} does not exist, so no pod can be created. {existing}"
            path = f"{pod_path(i)}.priorityClassName"
            yield Finding(path, message, blocks=True, code=FindingCode.UNKNOWN_PRIORITY)


def spec_limit_faults(jobset: StagedJobs) -> Iterator[Finding]:
    for i, job in enumerate(jobset.spec.replicated_jobs):
        message = spec_limit_fault(job.template.spec.template.spec)
        if message is not None:
            yield Finding(pod_path(i), message, blocks=True, code=FindingCode.POD_SPEC_TOO_LARGE)


def topology_faults(
    annotations: Mapping[str, str],
    path: str,
    known: Mapping[str, TopologySpec],
    *,
    of_queue: bool = False,
) -> Iterator[Finding]:
    """Invalid values have their own finding. The default of a queue lets no pod wait."""
    requires = TOPOLOGY_REQUIRED in annotations and not of_queue
    invalid = {fault.path for fault in requested_annotation_faults(annotations, path)}
    name = annotations.get(TOPOLOGY)
    if not name or f"{path}[{TOPOLOGY}]" in invalid:
        return
    topology = known.get(name)
    if topology is None:
        existing = _existing_names(known)
        effect = _effect(requires=requires)
        message = f"Topology {name!r} does not exist, so {effect}. {existing}"
        yield Finding(f"{path}[{TOPOLOGY}]", message, code=FindingCode.UNKNOWN_TOPOLOGY)
        return
    for annotation in (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED):
        level, where = annotations.get(annotation), f"{path}[{annotation}]"
        if level and where not in invalid and _depth(topology, level) is None:
            levels = ", ".join(map(_level_text, topology.levels)) or "none"
            effect = _effect(requires=requires and annotation == TOPOLOGY_REQUIRED)
            message = (
                f"Topology {name!r} has no level {level!r}, so {effect}. Name one of its levels: "
                f"{levels}"
            )
            yield Finding(where, message, code=FindingCode.UNKNOWN_TOPOLOGY)


def _effect(*, requires: bool) -> str:
    """Say what follows from a placement that does not exist."""
    return "no pod starts until it does" if requires else "it has no effect"


def _level_text(level: TopologyLevel) -> str:
    return f"{level.node_label} ({level.alias})" if level.alias else level.node_label


def required_domain(
    annotations: Mapping[str, str], path: str, known: Mapping[str, TopologySpec] | None
) -> RequiredDomain | None:
    """None if the Topology or level is unknown."""
    name, level = annotations.get(TOPOLOGY), annotations.get(TOPOLOGY_REQUIRED)
    topology = known.get(name) if known and name else None
    depth = _depth(topology, level) if topology and level else None
    if topology is None or depth is None or not name or not level:
        return None
    labels = tuple(it.node_label for it in topology.levels)
    return RequiredDomain(f"{path}[{TOPOLOGY_REQUIRED}]", level, name, labels, depth)


def amount_faults(jobset: StagedJobs) -> Iterator[Finding]:
    for job in range(len(jobset.spec.replicated_jobs)):
        for path, container in containers_at(jobset, job):
            yield from _container_faults(container, f"{path}.resources")


def gpu_share_faults(jobset: StagedJobs, scheduler_name: str) -> Iterator[Finding]:
    """Only those with which no pod starts."""
    for i, job in enumerate(jobset.spec.replicated_jobs):
        template, path = job.template.spec.template, _template_path(i)
        for fault in reserved_label_faults(template.metadata.labels, f"{path}metadata.labels"):
            yield Finding(fault.path, fault.message, blocks=True, code=FindingCode.RESERVED_LABEL)
        if template.spec.scheduler_name not in {"", scheduler_name}:
            continue
        annotations = template.metadata.annotations
        faults = (
            *requested_share_faults(annotations, template.spec, path),
            *mig_annotation_faults(annotations, f"{path}metadata.annotations"),
        )
        for fault in faults:
            message = f"{fault.message}. Otherwise no pod starts"
            yield Finding(fault.path, message, blocks=True, code=FindingCode.INVALID_AMOUNT)


def gpu_sharing_off(jobset: StagedJobs, scheduler_name: str) -> Iterator[Finding]:
    for i, job in enumerate(jobset.spec.replicated_jobs):
        template, path = job.template.spec.template, _template_path(i)
        if template.spec.scheduler_name in {"", scheduler_name}:
            for it in sharing_off_faults(template.metadata.annotations, path):
                yield Finding(it.path, it.message, blocks=True, code=FindingCode.GPU_SHARING_OFF)


def deadline_faults(
    deadline_s: int | None, templates: Iterable[PodTemplate], scheduler_name: str
) -> Iterator[FieldError]:
    """Yield a short deadline of a TrainJob or Job with GPUs: it may end without having run."""
    if deadline_s is None or not 0 < deadline_s < _LONG_DEADLINE_S:
        return
    if any(it.spec.scheduler_name in {"", scheduler_name} and _has_gpus(it) for it in templates):
        yield FieldError("spec.activeDeadlineSeconds", _WITH_QUEUE)


def deadline_findings(
    deadline_s: int | None, jobset: StagedJobs, scheduler_name: str
) -> Iterator[Finding]:
    templates = (it.template.spec.template for it in jobset.spec.replicated_jobs)
    for it in deadline_faults(deadline_s, templates, scheduler_name):
        yield Finding(it.path, it.message, code=FindingCode.DEADLINE_INCLUDES_QUEUE)


def _has_gpus(template: PodTemplate) -> bool:
    """Say whether pods request GPUs; a ResourceClaim may be for some."""
    pod = template.spec
    return bool(
        share_request(template.metadata.annotations)
        or pod.resource_claims
        or any(map(requests_gpu_resource, (*pod.containers, *pod.init_containers)))
    )


def _template_path(index: int) -> str:
    return pod_path(index).removesuffix("spec")


def _container_faults(container: Container, path: str) -> Iterator[Finding]:
    resources = container.resources
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name in amounts:
            fault = _amount_fault(resources, field, name)
            if fault:
                message = f"{fault}. Otherwise no pod can be created"
                where = f"{path}.{field}[{name}]"
                yield Finding(where, message, blocks=True, code=FindingCode.INVALID_AMOUNT)


def _amount_fault(resources: Resources, field: str, name: str) -> str | None:
    quantity = (resources.limits if field == "limits" else resources.requests)[name]
    try:
        amount = milli(quantity)
        limit = milli(resources.limits[name]) if name in resources.limits else None
    except QuantityError as error:
        return str(error)
    if amount < 0:
        return f"{quantity} must not be negative"
    is_extended = "/" in name and NATIVE_PREFIX not in name
    if is_extended and not is_whole(quantity):
        fraction = f", or use the annotation {GPU_FRACTION} for a part of a GPU"
        return f"{quantity} must be a whole number{fraction if name == GPU else ''}"
    if field == "limits":
        return None
    if is_extended and amount != limit:
        return f"{quantity} must equal the limit, which is {resources.limits.get(name, 'not set')}"
    if limit is not None and amount > limit:
        return f"{quantity} must not be above the limit, which is {resources.limits[name]}"
    return None


def _depth(topology: TopologySpec, level: str) -> int | None:
    for i, it in enumerate(topology.levels):
        if level in {it.node_label, it.alias}:
            return i
    return None


def _existing_names(known: Mapping[str, object]) -> str:
    if not known:
        return "None exists: create it, or remove the name"
    return f"Name an existing one: {listed_names(sorted(known), _MOST_LISTED)}"
