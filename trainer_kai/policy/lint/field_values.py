"""Whether the values in a JobSet are valid: names that exist, annotations, amounts pods can have.

The API server refuses pods whose amounts break its rules, and their Jobs retry forever.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trainer_kai.api.container import Container, Resources
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import (
    GPU,
    GPU_FRACTION,
    GPU_MEMORY,
    NATIVE_PREFIX,
    PRIORITY_CLASS_NAME,
    QUEUE,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.quantity import QuantityError, is_whole, milli
from trainer_kai.api.requested_values import requested_annotation_faults, requested_label_faults
from trainer_kai.api.topology import TopologySpec
from trainer_kai.policy.finding import Finding, FindingCode
from trainer_kai.policy.lint.node_capacity import RequiredDomain
from trainer_kai.policy.lint.subgroup_demand import pod_path
from trainer_kai.policy.pods.spec_limits import spec_limit_fault
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses

__all__ = [
    "amount_faults",
    "annotation_faults",
    "priority_faults",
    "required_domain",
    "spec_limit_faults",
    "topology_faults",
    "unsupported_topologies",
]

_MOST_LISTED: Final = 5  # names in a message


def annotation_faults(jobset: JobSet) -> Iterator[Finding]:
    """Yield the invalid labels and annotations that are ignored; not the queue label."""
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
            yield Finding(
                fault.path, f"{fault.message}; it is ignored", code=FindingCode.INVALID_VALUE
            )


def priority_faults(jobset: JobSet, known: Mapping[str, PriorityClass]) -> Iterator[Finding]:
    """Yield the classes that do not exist, and one that the label may not choose.

    No pod is created from a template that names a class that does not exist.
    """
    name = jobset.metadata.labels.get(PRIORITY_CLASS_NAME, "")
    existing, path = _existing_names(known), f"metadata.labels[{PRIORITY_CLASS_NAME}]"
    pods = [job.template.spec.template.spec for job in jobset.spec.replicated_jobs]
    refusal = SelectablePriorityClasses(known).refusal(name)
    if name and name not in known:
        message = f"there is no PriorityClass {name!r}, so it counts for nothing; {existing}"
        yield Finding(path, message, code=FindingCode.UNKNOWN_PRIORITY)
    elif refusal is not None and {pod.priority_class_name for pod in pods} != {name}:
        yield Finding(path, refusal, blocks=True, code=FindingCode.PRIORITY_REFUSED)
    for i, pod in enumerate(pods):
        name = pod.priority_class_name
        if name and name not in known:
            message = f"there is no PriorityClass {name!r}, so no pod can be made; {existing}"
            path = f"{pod_path(i)}.priorityClassName"
            yield Finding(path, message, blocks=True, code=FindingCode.UNKNOWN_PRIORITY)


def spec_limit_faults(jobset: JobSet) -> Iterator[Finding]:
    """Yield the pods that exceed the limits of our scheduler."""
    for i, job in enumerate(jobset.spec.replicated_jobs):
        message = spec_limit_fault(job.template.spec.template.spec)
        if message is not None:
            yield Finding(pod_path(i), message, blocks=True, code=FindingCode.POD_SPEC_TOO_LARGE)


def topology_faults(
    annotations: Mapping[str, str], path: str, known: Mapping[str, TopologySpec]
) -> Iterator[Finding]:
    """Yield the Topology and the levels that do not exist."""
    name = annotations.get(TOPOLOGY)
    if not name:
        return
    topology = known.get(name)
    if topology is None:
        message = f"there is no Topology {name!r}; {_existing_names(known)}"
        yield Finding(f"{path}[{TOPOLOGY}]", message, code=FindingCode.UNKNOWN_TOPOLOGY)
        return
    for annotation in (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED):
        level = annotations.get(annotation)
        if level and _depth(topology, level) is None:
            levels = ", ".join(it.node_label for it in topology.levels) or "none"
            message = f"topology {name} has no level {level!r}; its levels are {levels}"
            yield Finding(f"{path}[{annotation}]", message, code=FindingCode.UNKNOWN_TOPOLOGY)


def unsupported_topologies(jobset: JobSet) -> Iterator[Finding]:
    """Yield the topologies that our scheduler does not honour yet; KAI does."""
    yield from _unsupported(jobset.metadata.annotations, "metadata.annotations")
    for i, job in enumerate(jobset.spec.replicated_jobs):
        path = f"spec.replicatedJobs[{i}].template.metadata.annotations"
        yield from _unsupported(job.template.metadata.annotations, path)


def _unsupported(annotations: Mapping[str, str], path: str) -> Iterator[Finding]:
    name = annotations.get(TOPOLOGY, "")
    invalid = {fault.path for fault in requested_annotation_faults(annotations, path)}
    if not name or f"{path}[{TOPOLOGY}]" in invalid:
        return
    for annotation in (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED):
        where, level, is_required = (
            f"{path}[{annotation}]",
            annotations.get(annotation),
            annotation == TOPOLOGY_REQUIRED,
        )
        if level and where not in invalid:
            topology_text = f'topology "{level}" of topology "{name}"'
            message = (
                f"required {topology_text} is not supported yet: the pods wait; remove it or use "
                f"{TOPOLOGY_PREFERRED}"
                if is_required
                else f"preferred {topology_text} has no effect yet"
            )
            yield Finding(where, message, blocks=is_required, code=FindingCode.TOPOLOGY_UNSUPPORTED)


def required_domain(
    annotations: Mapping[str, str], path: str, known: Mapping[str, TopologySpec] | None
) -> RequiredDomain | None:
    """Return in which domain pods must be together; None where the topology is unknown."""
    name, level = annotations.get(TOPOLOGY), annotations.get(TOPOLOGY_REQUIRED)
    topology = known.get(name) if known and name else None
    depth = _depth(topology, level) if topology and level else None
    if topology is None or depth is None or not name or not level:
        return None
    labels = tuple(it.node_label for it in topology.levels[: depth + 1])
    return RequiredDomain(f"{path}[{TOPOLOGY_REQUIRED}]", level, name, labels)


def amount_faults(jobset: JobSet) -> Iterator[Finding]:
    """Yield the amounts for which the API server refuses pods, and the Jobs that create them."""
    for i, job in enumerate(jobset.spec.replicated_jobs):
        template = job.template.spec.template
        annotations = template.metadata.annotations
        sharing = next((name for name in (GPU_FRACTION, GPU_MEMORY) if name in annotations), None)
        for kind, containers in (
            ("containers", template.spec.containers),
            ("initContainers", template.spec.init_containers),
        ):
            for j, container in enumerate(containers):
                path = f"{pod_path(i)}.{kind}[{j}].resources"
                yield from _container_faults(container, path)
                if sharing and GPU in container.resources.limits:
                    message = f"beside the annotation {sharing} whole GPUs count for nothing"
                    message += "; remove one of them"
                    yield Finding(f"{path}.limits[{GPU}]", message, code=FindingCode.INVALID_AMOUNT)


def _container_faults(container: Container, path: str) -> Iterator[Finding]:
    resources = container.resources
    for field, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for name in amounts:
            fault = _amount_fault(resources, field, name)
            if fault:
                message = f"{fault}; no pod can be made as it is"
                where = f"{path}.{field}[{name}]"
                yield Finding(where, message, blocks=True, code=FindingCode.INVALID_AMOUNT)


def _amount_fault(resources: Resources, field: str, name: str) -> str | None:
    """Say what is wrong with one amount, and what would be right."""
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
        existing = f", or the annotation {GPU_FRACTION} for a part of one" if name == GPU else ""
        return f"{quantity} must be a whole number{existing}"
    if field == "limits":
        return None
    if is_extended and amount != limit:
        return (
            f"{quantity} must be the limit as well, which is {resources.limits.get(name, 'none')}"
        )
    if limit is not None and amount > limit:
        return f"{quantity} must not be above the limit, which is {resources.limits[name]}"
    return None


def _depth(topology: TopologySpec, level: str) -> int | None:
    for i, it in enumerate(topology.levels):
        if level in {it.node_label, it.alias}:
            return i
    return None


def _existing_names(known: Mapping[str, object]) -> str:
    names: Sequence[str] = sorted(known)
    if not names:
        return "there is none"
    more = len(names) - _MOST_LISTED
    are = "are" if len(names) > 1 else "is"
    return f"there {are} {', '.join(names[:_MOST_LISTED])}" + (
        f" and {more} more" if more > 0 else ""
    )
