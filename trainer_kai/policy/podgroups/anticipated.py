"""The pods of a PodGroup that do not exist yet: annotation `trainer-kai.dev/anticipated`.

Some pods of a PodGroup are created only when its first pods run, but the PodGroup needs resources
for all of them. So the annotation has these pods with their requests, and the stages that must be
complete or ready before the PodGroup may start. It follows from the spec of the JobSet and is
written once: readers subtract the pods that exist. `docs/grouping.md` describes the fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from trainer_kai.api.bounds import MOST_CONSTRAINED, MOST_EXPECTED, MOST_SUB_GROUPS
from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.names import GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_MEMORY, MPS
from trainer_kai.api.pod import (
    Affinity,
    Pod,
    PodSpec,
    PodTemplate,
    Toleration,
    TopologySpread,
    Volume,
)
from trainer_kai.policy.podgroups.grouping import (
    PlannedPodGroup,
    PlannedSubGroup,
    podset_name,
    podset_name_prefix,
)
from trainer_kai.policy.podgroups.segments import (
    Segmentation,
    segment_prefix,
    segmentation,
)
from trainer_kai.policy.pods.requests import (
    ANY_ADDRESS,
    TCP,
    format_amounts,
    has_inter_pod_constraints,
    pod_host_ports,
    pod_requests,
)
from trainer_kai.policy.start_order import READY, pods_at_once
from trainer_kai.policy.workloads.workload import SubGroupShape


class StageDependency(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True
):
    """A replicatedJob that must be complete, or ready, before any pod of the PodGroup is placed.

    It is when each of its PodSets has *count* such pods. A pod that is created only afterwards also
    proves it: the pods before it may have been removed.
    """

    replicated_job: str
    status: str
    group: str = ""  # its PodGroup; "" if another scheduler places it
    sub_group_prefix: str
    replicas: int
    count: int
    before: tuple[str, ...] = ()  # prefixes of PodSets of this PodGroup that begin only afterwards
    segments: int = 0  # of each PodSet: then its pods are in these


class AnticipatedHostPort(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True
):
    """A host port, on one address of the node or on all addresses."""

    port: int
    protocol: str = ""  # TCP
    host_ip: str = msgspec.field(default="", name="hostIP")


class AnticipatedPods(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True
):
    """Expected pods of one replicatedJob: *count* in each PodSet, and the needs of each pod."""

    sub_group_prefix: str  # an index follows, unless a PodSet has it as its whole name
    replicas: int
    count: int
    requests: Mapping[str, str] = {}
    sharing: Mapping[str, str] = {}  # annotations that request a part of a GPU
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    labels: Mapping[str, str] = {}  # of the template
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    host_ports: tuple[AnticipatedHostPort, ...] = ()
    volumes: tuple[Volume, ...] = ()  # PersistentVolumeClaims only


class AnticipatedAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the annotation."""

    after: tuple[StageDependency, ...] = ()
    later: tuple[AnticipatedPods, ...] = ()


_SHARING: Final = (GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES, MPS)
_decoder: Final = msgspec.json.Decoder(AnticipatedAnnotation)


def anticipated_annotation(
    podgroup: PlannedPodGroup, jobs: Mapping[str, ReplicatedJob], group_of: Callable[[str], str]
) -> str:
    value = AnticipatedAnnotation(
        after=_stage_dependencies(podgroup, jobs, group_of), later=_anticipated_pods(podgroup, jobs)
    )
    return (
        msgspec.json.encode(value, order="sorted").decode()
        if value != AnticipatedAnnotation()
        else ""
    )


def read_anticipated(text: str) -> AnticipatedAnnotation:
    """Read the annotation; raise `msgspec.DecodeError` if it is invalid or exceeds a limit.

    It may be from another version or written by hand, so the limits are checked here.
    """
    declared = _decoder.decode(text) if text else AnticipatedAnnotation()
    excess = _size_fault(declared)
    if excess:
        raise msgspec.ValidationError(excess)
    return declared


def _size_fault(declared: AnticipatedAnnotation) -> str:
    for path, each in (("after", declared.after), ("later", declared.later)):
        replicas = max((one.replicas for one in each), default=0)
        if replicas > MOST_SUB_GROUPS:
            return f"{path}: {replicas} replicas, and the maximum is {MOST_SUB_GROUPS}"
    segments = max((one.replicas * one.segments for one in declared.after), default=0)
    if segments > MOST_SUB_GROUPS:
        return f"after: {segments} segments, and the maximum is {MOST_SUB_GROUPS}"
    constrained = [one for one in declared.later if _has_inter_pod_constraints(one)]
    return _expected_fault(declared.later, "pods", MOST_EXPECTED) or _expected_fault(
        constrained, "pods with affinity, spread or ports", MOST_CONSTRAINED
    )


def _expected_fault(anticipated_pods: Iterable[AnticipatedPods], pods: str, most: int) -> str:
    expected = sum(max(one.replicas, 0) * max(one.count, 0) for one in anticipated_pods)
    if expected <= most:
        return ""
    return f"later: {expected} expected {pods}, and the maximum for one PodGroup is {most}"


def _has_inter_pod_constraints(one: AnticipatedPods) -> bool:
    declared = PodSpec(
        affinity=one.affinity, topology_spread_constraints=one.topology_spread_constraints
    )
    return bool(one.host_ports) or has_inter_pod_constraints(declared)


def _stage_dependencies(
    podgroup: PlannedPodGroup, jobs: Mapping[str, ReplicatedJob], group_of: Callable[[str], str]
) -> tuple[StageDependency, ...]:
    dependents: dict[tuple[str, str], list[str]] = {}
    for edge in podgroup.after:
        prefixes = _podset_prefixes(jobs[edge.after])
        dependents.setdefault((edge.before, edge.status), []).extend(prefixes)
    return tuple(
        StageDependency(
            replicated_job=name,
            status=status,
            group=group_of(name),
            sub_group_prefix=podset_name_prefix(name),
            replicas=jobs[name].replicas,
            count=pods_at_once(jobs[name]) if status == READY else _completions(jobs[name]),
            before=tuple(before),
            segments=_segmentation(jobs[name]).number,
        )
        for (name, status), before in dependents.items()
    )


def _podset_prefixes(job: ReplicatedJob) -> Iterator[str]:
    """Yield the prefixes of the sub-groups that have the pods of a replicatedJob."""
    if not _segmentation(job).size:
        yield podset_name_prefix(job.name)
        return
    for index in range(job.replicas):
        yield segment_prefix(podset_name(job.name, index))


def _segmentation(job: ReplicatedJob) -> Segmentation:
    return segmentation(job, pods_at_once(job), "", [], "")


def _completions(job: ReplicatedJob) -> int:
    spec = job.template.spec
    if spec.completions is not None:
        return spec.completions
    return 1


def _anticipated_pods(
    podgroup: PlannedPodGroup, jobs: Mapping[str, ReplicatedJob]
) -> tuple[AnticipatedPods, ...]:
    if podgroup.shape is not None:
        later = (it for it in podgroup.shape.subgroups if it.is_later)
        return tuple(_anticipated_leaf(it, jobs[it.job]) for it in later)
    return tuple(
        pods
        for subgroup in podgroup.subgroups
        if subgroup.is_anticipated
        for pods in _anticipated_subgroup(subgroup, jobs[subgroup.name])
    )


def _anticipated_subgroup(
    subgroup: PlannedSubGroup, job: ReplicatedJob
) -> Iterator[AnticipatedPods]:
    """Yield one entry, or for each Job those of its full segments and of the last one."""
    pod, size = anticipated_pod(job.template.spec.template), subgroup.segments.size
    if not size:
        yield msgspec.structs.replace(
            pod,
            sub_group_prefix=podset_name_prefix(subgroup.name),
            replicas=subgroup.replicas,
            count=subgroup.pods,
        )
        return
    full, rest = divmod(subgroup.pods, size)
    for index in range(subgroup.replicas):
        prefix = segment_prefix(podset_name(subgroup.name, index))
        if full:
            yield msgspec.structs.replace(pod, sub_group_prefix=prefix, replicas=full, count=size)
        if rest:
            yield msgspec.structs.replace(
                pod, sub_group_prefix=f"{prefix}{full}", replicas=1, count=rest
            )


def _anticipated_leaf(subgroup: SubGroupShape, job: ReplicatedJob) -> AnticipatedPods:
    """Its prefix is the whole name of the sub-group, as no index follows it."""
    pod = anticipated_pod(job.template.spec.template)
    return msgspec.structs.replace(
        pod, sub_group_prefix=subgroup.name, replicas=1, count=subgroup.pods
    )


def anticipated_pod(template: PodTemplate | Pod) -> AnticipatedPods:
    meta, spec = template.metadata, template.spec
    return AnticipatedPods(
        sub_group_prefix="",
        replicas=1,
        count=1,
        requests=format_amounts(pod_requests(spec)),
        sharing={k: meta.annotations[k] for k in _SHARING if k in meta.annotations},
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        priority_class_name=spec.priority_class_name,
        labels=meta.labels,
        topology_spread_constraints=spec.topology_spread_constraints,
        host_ports=tuple(_host_ports(spec)),
        volumes=tuple(one for one in spec.volumes if one.persistent_volume_claim),
    )


def _host_ports(spec: PodSpec) -> Iterator[AnticipatedHostPort]:
    for protocol, number, address in dict.fromkeys(pod_host_ports(spec)):
        yield AnticipatedHostPort(
            port=number,
            protocol="" if protocol == TCP else protocol,
            host_ip="" if address == ANY_ADDRESS else address,
        )
