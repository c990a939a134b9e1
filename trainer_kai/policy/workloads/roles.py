"""The roles of a workload as jobs, and the sub-groups that a kind names itself.

A role is a job with one pod template. Roles of other schedulers are in no PodGroup, and count for
no minimum: kinds without admission of ours name the scheduler themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from trainer_kai.api.bounds import MOST_JOBS, MOST_SUB_GROUPS
from trainer_kai.api.jobset import JobSetSpec, JobSpec, JobTemplate, ReplicatedJob
from trainer_kai.api.meta import Meta, OwnerReference, TemplateMeta
from trainer_kai.api.names import (
    NODE_POOL,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    PROJECT,
    QUEUE,
    SEGMENT_PREFERRED,
    SEGMENT_REQUIRED,
    SEGMENT_SIZE,
    SKIP_PODGROUPER,
    TOPOLOGY,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.pod import PodTemplate
from trainer_kai.api.requested_values import is_count
from trainer_kai.api.resources import Resource
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.workloads.workload import (
    FieldPath,
    JobsForm,
    ObjectKey,
    PodGroupShape,
    PodPlace,
    RolePaths,
    SubGroupShape,
    Workload,
    WorkloadKind,
)

MAIN: Final = "Main"  # the suffix of the only PodGroup of a workload

_MOST_SEGMENTS: Final = MOST_SUB_GROUPS - 10  # what is left of a PodGroup by its other sub-groups
_OF_PODS: Final = (QUEUE, PROJECT, PRIORITY_CLASS_NAME, PREEMPTIBILITY, NODE_POOL)


class PodRole(NamedTuple):
    name: str
    pods: int
    template: PodTemplate
    paths: RolePaths


class ObjectState(NamedTuple):
    """What an object says of itself as a whole."""

    is_suspended: bool = False
    is_finished: bool = False
    is_managed_here: bool = True
    is_suspendable: bool = True
    suspension_changed_at: str = ""


def roles_kind(
    resource: Resource[Any],
    adapt: Callable[[Any], Workload | None],
    pod_place: Callable[[Mapping[str, str]], PodPlace],
    *,
    name_label: str,
    path: str,
    suspend_path: FieldPath = ("spec", "suspend"),
) -> WorkloadKind:
    """Return a kind whose objects are not marked by admission; *path* is that of its roles."""

    def expected_labels(workload: Workload | None, _job: str, _index: str) -> Mapping[str, str]:
        return {name_label: workload.key.name} if workload is not None else {}

    return WorkloadKind(
        resource=resource,
        selection="",
        adapt=adapt,
        owner=None,
        job_label="",
        name_label=name_label,
        uid_label="",
        pod_place=pod_place,
        form=JobsForm(resource.kind, path),
        expected_labels=expected_labels,
        workload_of_job=lambda _job, _workloads: None,  # its pods are no Job's
        suspend_path=suspend_path,
        has_mark=False,
        has_jobs=False,
    )


def roles_workload(
    kind: WorkloadKind,
    meta: Meta,
    roles: Sequence[PodRole],
    shapes: tuple[PodGroupShape, ...],
    state: ObjectState,
    faults: Sequence[Finding],
) -> Workload:
    """Return a workload with a job for each role."""
    resource = kind.resource
    own = OwnerReference(
        api_version=resource.api_version, kind=resource.kind, name=meta.name, uid=meta.uid
    )
    if meta.annotations.get(SKIP_PODGROUPER) == "true":
        shapes = ()
    if len(roles) > MOST_JOBS:
        message = f"has {len(roles)} roles, and the maximum is {MOST_JOBS}. Combine equal ones"
        roles, shapes = (), ()
        faults = (*faults, Finding(kind.form.jobs_path, message, blocks=True))
    return Workload(
        kind=kind,
        key=ObjectKey(resource.kind, meta.namespace, meta.name),
        metadata=_with_labels_of_pods(meta, roles),
        spec=JobSetSpec(replicated_jobs=tuple(map(_job, roles))),
        shapes=shapes,
        role_paths=tuple(role.paths for role in roles),
        faults=tuple(faults),
        regarding=own,
        is_suspended=state.is_suspended,
        suspension_changed_at=state.suspension_changed_at,
        is_finished=state.is_finished,
        is_managed_here=state.is_managed_here,
        is_suspendable=state.is_suspendable,
    )


def _job(role: PodRole) -> ReplicatedJob:
    meta = role.template.metadata
    return ReplicatedJob(
        name=role.name,
        template=JobTemplate(
            metadata=TemplateMeta(labels=meta.labels, annotations=meta.annotations),
            spec=JobSpec(parallelism=role.pods, completions=role.pods, template=role.template),
        ),
    )


def _with_labels_of_pods(meta: Meta, roles: Iterable[PodRole]) -> Meta:
    """Add what only the pods say of their PodGroup; as in KAI, the workload's own label wins.

    Without a label of the queue KAI makes its name from the labels of a project and a node pool.
    """
    labels = dict[str, str]()
    for source in (meta.labels, *(role.template.metadata.labels for role in roles)):
        labels |= {name: source[name] for name in _OF_PODS if name in source and name not in labels}
    project = labels.pop(PROJECT, "")
    if project and QUEUE not in labels:
        pool = labels.get(NODE_POOL)
        labels[QUEUE] = f"{project}-{pool}" if pool else project
    return replace(meta, labels={**meta.labels, **labels})


def topology_of(own: Mapping[str, str], workload: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations of a role; the workload may name the topology for all of them."""
    names = (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED)
    return _named_topology({name: own[name] for name in names if name in own}, own, workload)


def segment_topology(own: Mapping[str, str], workload: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations of each segment, with the names that they have for a sub-group."""
    names = {SEGMENT_REQUIRED: TOPOLOGY_REQUIRED, SEGMENT_PREFERRED: TOPOLOGY_PREFERRED}
    levels = {name: own[key] for key, name in names.items() if key in own}
    return _named_topology(levels, own, workload)


def _named_topology(
    levels: Mapping[str, str], own: Mapping[str, str], workload: Mapping[str, str]
) -> Mapping[str, str]:
    name = own.get(TOPOLOGY) or workload.get(TOPOLOGY)
    return {TOPOLOGY: name, **levels} if name and levels else {}


def segment_size(
    role: PodRole, sources: Sequence[tuple[str, Mapping[str, str]]], faults: list[Finding]
) -> int | None:
    """Return the size that the first annotation requests; *sources* are paths and annotations."""
    found = ((path, it[SEGMENT_SIZE]) for path, it in sources if SEGMENT_SIZE in it)
    path, text = next(found, ("", ""))
    if not path:
        return None
    path = f"{path}.annotations[{SEGMENT_SIZE}]"
    if not is_count(text):
        faults.append(Finding(path, f"ignored: {text!r} must be a whole number, 1 or more"))
        return None
    return checked_segment_size(role, int(text), path, faults)


def checked_segment_size(role: PodRole, size: int, path: str, faults: list[Finding]) -> int | None:
    if size * _MOST_SEGMENTS >= role.pods:
        return size
    message = (
        f"ignored: {role.pods} pods would be {-(-role.pods // size)} segments, and the maximum is "
        f"{_MOST_SEGMENTS}. Set at least {-(-role.pods // _MOST_SEGMENTS)}"
    )
    faults.append(Finding(path, message))
    return None


def segments(
    role: PodRole, prefix: str, size: int, topology: Mapping[str, str], start: int = 0
) -> Iterator[SubGroupShape]:
    """Yield equal parts of a role, but for the last one; *start* is the index of its first pod."""
    for number, first in enumerate(range(0, role.pods, size)):
        pods = min(size, role.pods - first)
        yield SubGroupShape(
            f"{prefix}-{number}", pods, role.name, start + first, pods, topology=topology
        )
