"""A cluster out of plain objects: each read once, checked, and put where it belongs.

All faults are told at once. What hand-written objects leave out is filled in the same way whatever
their order: the namespace `default`, and for a uid the name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from scheduler.state.cluster import Cluster
from scheduler.state.permits import permits_of
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GPU_GROUP, GPU_GROUP_PREFIX
from trainer_kai.api.pod import Pod
from trainer_kai.api.runtime import Runtime
from trainer_kai.api.share import on_node
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.cli.documents import Document, read
from trainer_kai.cli.fields import Remarks
from trainer_kai.cli.kinds import (
    KINDS,
    OPAQUE,
    BindRequest,
    Shard,
    faults_of,
    is_nameless,
    named,
    seconds,
)
from trainer_kai.cli.unread import near, spelt, unread_files
from trainer_kai.errors import ConfigError, FieldError

__all__ = ["Given", "read_objects", "with_devices"]

_SHELVES: Final = {  # where a cluster has them
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
    "JobSet": "jobsets",
}


@dataclass(slots=True)
class Given:
    """What the objects are."""

    cluster: Cluster
    trainjobs: dict[Key, TrainJob] = field(default_factory=dict)
    runtimes: dict[tuple[str, Key], Runtime] = field(default_factory=dict)
    shards: list[tuple[Document, Shard]] = field(default_factory=list)
    configs: list[tuple[Document, Shard]] = field(default_factory=list)
    newest: int = 0  # of all times that they say
    notes: list[str] = field(default_factory=list)


def read_objects(documents: Iterable[Document]) -> Given:
    """Read them all; raise `ConfigError` with everything that is wrong."""
    found: dict[tuple[str, str, Key], tuple[Document, Any]] = {}
    faults: list[FieldError] = []
    ignored: Counter[str] = Counter()
    remarks = Remarks()
    newest = 0
    documents = [*documents]
    faults += unread_files(documents, KINDS)
    for document in documents:
        kind = (document.group, document.kind)
        if kind not in KINDS and kind not in OPAQUE:
            ignored[f"ignored: {spelt(document)}{near(document)}"] += 1
            continue
        told = [*_add(found, document, kind, remarks)]
        faults += told
        if kind in KINDS:
            remarks.add(document, KINDS[kind].resource.struct)
        if not told:
            newest = max(newest, _newest(document.fields))
        if kind in OPAQUE:
            ignored[f"read, but nothing is decided by it yet: {spelt(document)}"] += 1
    if faults:
        raise ConfigError(faults)
    given = _placed(found)
    given.newest = newest
    given.notes += remarks.lines()
    given.notes += (f"{what} ({count})" for what, count in sorted(ignored.items()))
    return given


def _add(
    found: dict[tuple[str, str, Key], tuple[Document, Any]],
    document: Document,
    kind: tuple[str, str],
    remarks: Remarks,
) -> Iterator[FieldError]:
    """Add an object to those that were found; yield what is wrong with it."""
    try:
        whole = named(document)
    except ConfigError as error:
        yield from error.faults
        return
    meta = whole.fields["metadata"]
    key = Key(str(meta.get("namespace", "")), str(meta["name"]))
    known = found.get((*kind, key))
    if known is not None:
        if is_nameless(document):  # it asks and answers the same
            return
        where = f", first in {known[0].file}" if known[0].file != whole.file else ""
        yield FieldError(str(whole), f"metadata.name: is there twice{where}")
        return
    if kind in OPAQUE:
        found[*kind, key] = whole, None
        return
    try:
        it = read(KINDS[kind].resource.struct, whole)
    except ConfigError as error:
        yield from error.faults
        return
    found[*kind, key] = whole, it
    yield from remarks.sift(whole, faults_of(kind, it))


def _newest(fields: Mapping[str, Any]) -> int:
    """Return the newest time that an object says: of itself, its annotations, or its status."""
    metadata = fields.get("metadata") or {}
    texts = [metadata.get("creationTimestamp")]
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping):
        texts += annotations.values()
    texts += _texts(fields.get("status"))
    times = (seconds(text) for text in texts if isinstance(text, str) and _is_like_a_time(text))
    told = max((time for time in times if time is not None), default=0)
    return max(told, _asked_to_go(metadata))


def _asked_to_go(metadata: Mapping[str, Any]) -> int:
    """Return when a deletion was asked for: its time is when that must be over, far ahead maybe."""
    due, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    at = seconds(due) if isinstance(due, str) and _is_like_a_time(due) else None
    return 0 if at is None else at - (grace if isinstance(grace, int) else 0)


def _is_like_a_time(text: str) -> bool:
    return len(text) >= 20 and text[10] == "T" and text[4] == "-"


def _texts(value: object) -> Iterator[str]:
    rest = [value]
    while rest:
        it = rest.pop()
        if isinstance(it, str):
            yield it
        elif isinstance(it, Mapping):
            rest += it.values()
        elif isinstance(it, list):
            rest += it


def _placed(found: Mapping[tuple[str, str, Key], tuple[Document, Any]]) -> Given:
    """Put each object where it belongs, in an order that is not that of the files."""
    given = Given(Cluster())
    requests: list[BindRequest] = []
    for (_, kind, key), (document, it) in sorted(found.items(), key=lambda pair: pair[0]):
        if it is None:
            continue
        if kind in _SHELVES:
            getattr(given.cluster, _SHELVES[kind])[key if key.namespace else key.name] = it
        elif kind == "TrainJob":
            given.trainjobs[key] = given.cluster.trainjobs[key] = it
        elif kind in {"TrainingRuntime", "ClusterTrainingRuntime"}:
            given.runtimes[kind, key] = it
        elif kind == "BindRequest":
            requests.append(it)
        elif kind == "SubjectAccessReview":
            given.cluster.permits |= permits_of(it)
        else:
            (given.shards if kind == "SchedulingShard" else given.configs).append((document, it))
    for request in requests:
        _promise(given.cluster, request)
    return given


def _promise(cluster: Cluster, request: BindRequest) -> None:
    """Put the pod of a live request on its node, unless it is another pod by now."""
    key = Key(request.metadata.namespace, request.spec.pod_name or request.metadata.name)
    pod = cluster.pods.get(key)
    if pod is None or pod.spec.node_name or not request.is_live:
        return
    owners = {owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod"}
    if owners and pod.metadata.uid not in owners:
        return
    spec = on_node(pod.spec, request.spec.selected_node)
    placed = replace(pod, spec=spec)
    cluster.pods[key] = with_devices(placed, request.spec.selected_gpu_groups)


def with_devices(pod: Pod, devices: tuple[str, ...]) -> Pod:
    """Return a pod with the labels that say which shared devices it has."""
    labels = {
        name: value
        for name, value in pod.metadata.labels.items()
        if name != GPU_GROUP and not name.startswith(GPU_GROUP_PREFIX)
    }
    if not devices and len(labels) == len(pod.metadata.labels):
        return pod
    if len(devices) == 1:
        labels[GPU_GROUP] = devices[0]
    else:
        labels |= {f"{GPU_GROUP_PREFIX}{device}": device for device in devices}
    return replace(pod, metadata=replace(pod.metadata, labels=labels))
