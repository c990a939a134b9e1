"""A cluster from the objects of files: each object is read once, checked, and stored by kind.

All faults are reported together. Missing namespaces and uids are filled in, independent of the
order of the objects: the namespace `default`, and the name as uid.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from scheduler.state.inputs import Cluster
from scheduler.state.pods.gpu_share_metadata import with_gpu_groups
from scheduler.state.queues.access import permits_from_review
from trainer_kai.api.interning import spec_on_node
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import Resource
from trainer_kai.api.trainjob import Runtime
from trainer_kai.cli.input.documents import Document, read_object
from trainer_kai.cli.input.kinds import (
    CRON_JOBS,
    KINDS,
    UNUSED_KINDS,
    BindRequest,
    Shard,
    faults_of,
    is_unnamed_review,
    unix_seconds,
    with_identity,
)
from trainer_kai.cli.input.pod_owners import TEMPLATE_KINDS, PodOwner, unknown_pods_note
from trainer_kai.cli.input.unknown_fields import (
    InputWarnings,
    kind_text,
    similar_kind,
    unread_files,
)
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.workloads.kinds import SUSPENDABLE
from trainer_kai.policy.workloads.workload import ObjectKey

# By group, kind and name; None stands for objects of unused kinds.
_Objects: TypeAlias = dict[tuple[str, str, Key], tuple[Document, Any]]

_CLUSTER_FIELDS: Final = {  # fields of `Cluster` by kind
    "Node": "nodes",
    "Pod": "pods",
    "PodGroup": "pod_groups",
    "Queue": "queues",
    "Topology": "topologies",
    "PriorityClass": "priority_classes",
    "ResourceQuota": "quotas",
    "Namespace": "namespaces",
    "PersistentVolumeClaim": "claims",
    "PersistentVolume": "volumes",
    "StorageClass": "storage_classes",
    "PodDisruptionBudget": "budgets",
    "DeviceClass": "device_classes",
    "ResourceSlice": "resource_slices",
    "DeviceTaintRule": "device_taint_rules",
    "ResourceClaimTemplate": "claim_templates",
    "ResourceClaim": "resource_claims",
}


_CRON_JOB: Final = (CRON_JOBS.group, CRON_JOBS.kind)


@dataclass(slots=True)
class InputCluster:
    """The cluster of the input, and the objects that are not part of `Cluster`."""

    cluster: Cluster
    runtimes: dict[tuple[str, Key], Runtime] = field(default_factory=dict)
    pod_owners: dict[ObjectKey, tuple[Resource[PodOwner], PodOwner]] = field(default_factory=dict)
    shards: list[tuple[Document, Shard]] = field(default_factory=list)
    configs: list[tuple[Document, Shard]] = field(default_factory=list)
    latest_time: int = 0  # the newest time in an object, in seconds since 1970
    notes: list[str] = field(default_factory=list)


def read_cluster(documents: Iterable[Document]) -> InputCluster:
    """Return the cluster of the objects; raise `ConfigError` with all their faults."""
    documents = [*documents]
    objects: _Objects = {}
    faults = [*unread_files(documents, KINDS)]
    ignored: Counter[str] = Counter()
    warnings = InputWarnings()
    latest_time = 0
    for document in documents:
        kind = (document.group, document.kind)
        if kind not in KINDS and kind not in UNUSED_KINDS:
            note = similar_kind(document) or unknown_pods_note(*kind)
            ignored[f"ignored: {kind_text(document)}{note}"] += 1
            continue
        object_faults = [*_add(objects, document, kind, warnings)]
        faults += object_faults
        if kind in KINDS:
            warnings.add(document, KINDS[kind].resource.struct)
        if not object_faults:
            latest_time = max(latest_time, _latest_time(document.fields))
        if kind in UNUSED_KINDS:
            ignored[f"read, but without effect on scheduling yet: {kind_text(document)}"] += 1
        elif kind == _CRON_JOB:
            ignored[f"ignored: {kind_text(document)}, because only its Jobs have pods"] += 1
    if faults:
        raise ConfigError(faults)
    inputs = _build_cluster(objects)
    inputs.latest_time = latest_time
    inputs.notes += warnings.lines()
    inputs.notes += (f"{what} ({count})" for what, count in sorted(ignored.items()))
    return inputs


def _add(
    objects: _Objects, document: Document, kind: tuple[str, str], warnings: InputWarnings
) -> Iterator[FieldError]:
    try:
        identified = with_identity(document)
    except ConfigError as error:
        yield from error.faults
        return
    meta = identified.fields["metadata"]
    key = Key(str(meta.get("namespace", "")), str(meta["name"]))
    previous = objects.get((*kind, key))
    if previous is not None:
        if is_unnamed_review(document):  # the same request with the same response
            return
        where = f", first in {previous[0].file}" if previous[0].file != identified.file else ""
        yield FieldError(str(identified), f"metadata.name: exists twice{where}")
        return
    if kind in UNUSED_KINDS:
        objects[*kind, key] = identified, None
        return
    try:
        it = read_object(KINDS[kind].resource.struct, identified)
    except ConfigError as error:
        yield from error.faults
        return
    objects[*kind, key] = identified, it
    yield from warnings.without_warnings(identified, faults_of(kind, it))


def _latest_time(fields: Mapping[str, Any]) -> int:
    """Return the newest time in the metadata and the status of an object."""
    metadata = fields.get("metadata") or {}
    texts = [metadata.get("creationTimestamp")]
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping):
        texts += annotations.values()
    texts += _texts(fields.get("status"))
    times = (_time(text) for text in texts)
    latest = max((time for time in times if time is not None), default=0)
    return max(latest, _deletion_requested_at(metadata))


def _deletion_requested_at(metadata: Mapping[str, Any]) -> int:
    """Return when a deletion was requested; deletionTimestamp is its deadline."""
    grace = metadata.get("deletionGracePeriodSeconds")
    deadline = _time(metadata.get("deletionTimestamp"))
    return 0 if deadline is None else deadline - (grace if isinstance(grace, int) else 0)


def _time(text: object) -> int | None:
    """Return a time as seconds since 1970; None for other values, most of them at one look."""
    if isinstance(text, str) and len(text) >= 20 and text[10] == "T" and text[4] == "-":
        return unix_seconds(text)
    return None


def _texts(value: object) -> Iterator[str]:
    remaining = [value]
    while remaining:
        it = remaining.pop()
        if isinstance(it, str):
            yield it
        elif isinstance(it, Mapping):
            remaining += it.values()
        elif isinstance(it, list):
            remaining += it


def _build_cluster(objects: _Objects) -> InputCluster:
    """Store each object by its kind, sorted, so that the order of the files does not matter."""
    inputs = InputCluster(Cluster())
    requests: list[BindRequest] = []
    for (group, kind, key), (document, it) in sorted(objects.items(), key=lambda pair: pair[0]):
        if it is None or kind == CRON_JOBS.kind:
            continue
        if kind in _CLUSTER_FIELDS:
            getattr(inputs.cluster, _CLUSTER_FIELDS[kind])[key if key.namespace else key.name] = it
        elif kind in SUSPENDABLE:
            inputs.cluster.workload_objects[SUSPENDABLE[kind]][key] = it
        elif (group, kind) in TEMPLATE_KINDS:
            inputs.pod_owners[ObjectKey(kind, *key)] = TEMPLATE_KINDS[group, kind], it
        elif kind in {"TrainingRuntime", "ClusterTrainingRuntime"}:
            inputs.runtimes[kind, key] = it
        elif kind == "BindRequest":
            requests.append(it)
        elif kind == "SubjectAccessReview":
            inputs.cluster.permits |= permits_from_review(it)
        else:
            (inputs.shards if kind == "SchedulingShard" else inputs.configs).append((document, it))
    for request in requests:
        _apply_bind_request(inputs.cluster, request)
    return inputs


def _apply_bind_request(cluster: Cluster, request: BindRequest) -> None:
    """Put the pod of an active BindRequest on its node, unless the request is for another pod."""
    key = Key(request.metadata.namespace, request.spec.pod_name or request.metadata.name)
    pod = cluster.pods.get(key)
    if pod is None or pod.spec.node_name or not request.is_live:
        return
    owners = {owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"}
    if owners and pod.metadata.uid not in owners:
        return
    spec = spec_on_node(pod.spec, request.spec.selected_node)
    placed = replace(pod, spec=spec)
    cluster.pods[key] = pod_with_gpu_groups(placed, request.spec.selected_gpu_groups)


def pod_with_gpu_groups(pod: Pod, gpu_groups: tuple[str, ...]) -> Pod:
    labels = with_gpu_groups(pod.metadata.labels, gpu_groups)
    if not gpu_groups and len(labels) == len(pod.metadata.labels):
        return pod
    return replace(pod, metadata=replace(pod.metadata, labels=labels))
