"""The kinds that a simulation reads, and the faults of one object by itself.

Faults between objects, such as a queue without its parent or a cycle of SubGroups, are not checked
here: the scheduler reports them as the reason of a PodGroup.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from trainer_kai.api import resources
from trainer_kai.api.jobset import CronJob, Job, JobSet
from trainer_kai.api.kai_kinds import PodGroup, Queue, QueueResources
from trainer_kai.api.meta import Meta, Object
from trainer_kai.api.names import KAI, KAI_SNAPSHOT, NODE_TOPOLOGY, RUN_AI
from trainer_kai.api.quantity import Quantity, QuantityError, milli
from trainer_kai.api.requested_values import effective_queue
from trainer_kai.api.resources import Resource
from trainer_kai.api.syntax import annotation_faults, label_faults
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.api.validate import (
    cron_job_faults,
    job_faults,
    jobset_faults,
    pod_faults,
    podgroup_faults,
    queue_faults,
    runtime_faults,
    topology_faults,
    trainjob_faults,
)
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.pod_owners import TEMPLATE_KINDS, PodOwner
from trainer_kai.errors import ConfigError, FieldError, FieldWarning
from trainer_kai.policy.misspelled_keys import (
    PODGROUP_KEYS,
    QUEUE_KEYS,
    TRAINJOB_KEYS,
    KnownKeys,
    misspelled_keys,
)
from trainer_kai.policy.workloads.kinds import KINDS as WORKLOAD_KINDS

Faults = Iterable[FieldError]
_MAX_INT32: Final = 2**31 - 1  # the largest number of a field in Kubernetes
_REVIEW: Final = (resources.ACCESS_REVIEWS.group, resources.ACCESS_REVIEWS.kind)
UID: Final = "UID"  # of a workload that does not exist yet
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_JOB_TEMPLATE: Final = "spec.jobTemplate."
_PLACEMENTS: Final = ("binpack", "spread", "fragmentation")  # the last one is ours
_NAME: Final = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class BindRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pod_name: str = ""
    selected_node: str = ""
    selected_gpu_groups: tuple[str, ...] = msgspec.field(default=(), name="selectedGPUGroups")
    backoff_limit: int | None = None


class BindRequestStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = ""
    failed_attempts: int = 0


class BindRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A decision of KAI's scheduler that its binder carries out."""

    metadata: Meta
    spec: BindRequestSpec = BindRequestSpec()
    status: BindRequestStatus = BindRequestStatus()

    @property
    def is_live(self) -> bool:
        limit = self.spec.backoff_limit
        is_over = limit is None or self.status.failed_attempts >= limit
        return bool(self.spec.selected_node) and not (self.status.phase == "Failed" and is_over)


class Switch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    enabled: bool | None = None
    arguments: Mapping[str, str] = {}


class ShardPlacement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    gpu: str = "binpack"
    cpu: str = "binpack"


class ShardMinRuntime(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""


class ShardSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The scheduler's configuration; *only* is ours: it disables plugins that are not named."""

    partition_label_value: str = ""
    placement_strategy: ShardPlacement | None = None
    k_value: float | None = None
    min_runtime: ShardMinRuntime = ShardMinRuntime()
    plugins: Mapping[str, Switch] = {}
    actions: Mapping[str, Switch] = {}
    args: Mapping[str, str] = {}
    only: bool = False


class Shard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ShardSpec = ShardSpec()


BIND_REQUESTS: Final = Resource(
    RUN_AI, "v1alpha2", "bindrequests", "BindRequest", namespaced=True, struct=BindRequest
)
SHARDS: Final = Resource(
    KAI, "v1", "schedulingshards", "SchedulingShard", namespaced=False, struct=Shard
)
# The scheduler configuration of a KAI snapshot, in the form of a SchedulingShard.
CONFIGS: Final = Resource(
    KAI_SNAPSHOT, "v1", "configs", "SchedulerConfig", namespaced=False, struct=Shard
)

CRON_JOBS: Final = resources.CRON_JOBS.with_struct(CronJob)

# Kinds without an effect on scheduling yet.
UNUSED_KINDS: Final = frozenset(
    {
        ("", "ConfigMap"),
        (NODE_TOPOLOGY, "NodeResourceTopology"),
    }
)


class _Kind(NamedTuple):
    resource: Resource[Any]
    faults: Callable[[Any], Faults]


def with_identity(document: Document, namespace: str = "default") -> Document:
    """Return an object with name, namespace and uid; equal input gives equal identities."""
    metadata = _metadata_of(document)
    if is_unnamed_review(document):
        metadata = {**metadata, "name": _hash_of(document)}
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}x"
    if not metadata.get("name") and not metadata.get("generateName"):
        raise ConfigError([FieldError(str(document), "metadata.name: is missing")])
    meta = {**metadata, "name": name}
    kind = (document.group, document.kind)
    if kind in UNUSED_KINDS:
        return Document(document.file, {**document.fields, "metadata": meta})
    resource = KINDS[kind].resource
    version = document.fields.get("apiVersion")
    known = (it.resource for it in WORKLOAD_KINDS)
    others = {it.api_version for it in known if (it.group, it.kind) == kind}
    if version not in {resource.api_version, *others} and kind not in TEMPLATE_KINDS:
        message = f"apiVersion: {version!r} must be {resource.api_version!r}"
        raise ConfigError([FieldError(str(document), message)])
    meta["namespace"] = metadata.get("namespace") or namespace
    if not resource.namespaced:
        del meta["namespace"]
    if not metadata.get("uid"):
        full = f"{meta['namespace']}.{name}" if resource.namespaced else name
        is_workload = resource.struct in (JobSet, Job, PodOwner) or kind in UNMARKED
        meta["uid"] = UID if is_workload else full
    return Document(document.file, {**document.fields, "metadata": meta})


def is_unnamed_review(document: Document) -> bool:
    """Say whether it is a SubjectAccessReview without a name; the API server stores none."""
    is_review = (document.group, document.kind) == _REVIEW
    return is_review and not (document.fields.get("metadata") or {}).get("name")


def _metadata_of(document: Document) -> Mapping[str, Any]:
    metadata = document.fields.get("metadata")
    if isinstance(metadata, Mapping):
        return metadata
    if metadata is None and (document.group, document.kind) == _REVIEW:
        return {}
    problem = "is missing" if metadata is None else "must be an object with a name"
    raise ConfigError([FieldError(str(document), f"metadata: {problem}")])


def _hash_of(document: Document) -> str:
    text = json.dumps([document.fields.get("spec"), document.fields.get("status")], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def faults_of(kind: tuple[str, str], it: Object) -> Faults:
    yield from _time_faults(it.metadata)
    yield from KINDS[kind].faults(it)


def unix_seconds(text: str) -> int | None:
    """Return a time as seconds since 1970; None if the text is not an RFC 3339 time."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return None


def _metadata_faults(it: Object) -> Faults:
    yield from label_faults(it.metadata.labels, "metadata.labels")
    yield from annotation_faults(it.metadata.annotations, "metadata.annotations")


def _time_faults(meta: Meta) -> Faults:
    for name, text in (
        ("creationTimestamp", meta.creation_timestamp),
        ("deletionTimestamp", meta.deletion_timestamp),
    ):
        if text and unix_seconds(text) is None:
            message = f"{text!r} must be a time such as '2026-01-31T12:00:00Z'"
            yield FieldError(f"metadata.{name}", message)


def _faults_with_amounts(path: str) -> Callable[[Any], Faults]:
    """Return the rule of a kind with quantities: they have one path in JSON and in the struct."""

    def faults(it: Object) -> Faults:
        yield from _metadata_faults(it)
        amounts: Mapping[str, Quantity] = attrgetter(path)(it)
        for name, quantity in amounts.items():
            try:
                message = "" if milli(quantity) >= 0 else f"{quantity} must not be negative"
            except QuantityError as error:
                message = str(error)
            if message:
                yield FieldError(f"{path}[{name}]", message)

    return faults


def _podgroup_faults(group: PodGroup) -> Faults:
    """Check everything but the tree of SubGroups: the scheduler reports its faults."""
    spec = group.spec
    min_sub_group = None if spec.min_member is not None else spec.min_sub_group
    without_tree = replace(spec, sub_groups=(), min_sub_group=min_sub_group)
    yield from _misspelled_key_warnings(group.metadata, PODGROUP_KEYS)
    yield from podgroup_faults(replace(group, spec=without_tree))
    minima = [("spec", spec.min_sub_group, "minSubGroup")] if min_sub_group is None else []
    for i, sub in enumerate(spec.sub_groups):
        minima.append((f"spec.subGroups[{i}]", sub.min_member, "minMember"))
        minima.append((f"spec.subGroups[{i}]", sub.min_sub_group, "minSubGroup"))
    for path, number, name in minima:
        if number is not None and number < 0:
            yield FieldError(f"{path}.{name}", f"{number} must be 0 or more")
    minima.append(("spec", spec.min_member, "minMember"))
    for path, number, name in minima:
        if number is not None and number > _MAX_INT32:
            yield FieldError(f"{path}.{name}", f"{number} must be at most {_MAX_INT32}")


def _trainjob_faults(job: TrainJob) -> Faults:
    """Check also the name and the runtime, as Trainer does."""
    yield from trainjob_faults(job)
    yield from _misspelled_key_warnings(job.metadata, TRAINJOB_KEYS)
    reference = job.spec.runtime_ref
    kinds = (resources.RUNTIMES.kind, resources.CLUSTER_RUNTIMES.kind)
    if not reference.name:
        yield FieldError("spec.runtimeRef.name", "is missing")
    if reference.kind not in kinds:
        yield FieldError("spec.runtimeRef.kind", f"{reference.kind!r} must be {' or '.join(kinds)}")
    if not _NAME.fullmatch(job.metadata.name):
        message = "must be at most 63 of a-z, 0-9 and -, and begin with a letter"
        yield FieldError("metadata.name", f"{job.metadata.name!r} {message}")


def _jobset_faults(jobset: JobSet) -> Faults:
    yield from jobset_faults(jobset)
    yield from _misspelled_key_warnings(jobset.metadata, TRAINJOB_KEYS)


def _job_faults(job: Job) -> Faults:
    yield from job_faults(job)
    yield from _misspelled_key_warnings(job.metadata, TRAINJOB_KEYS)


def _workload_faults(it: Object) -> Faults:
    yield from _metadata_faults(it)
    yield from _misspelled_key_warnings(it.metadata, TRAINJOB_KEYS)


def _cron_job_faults(cron_job: CronJob) -> Faults:
    yield from cron_job_faults(cron_job)
    template = cron_job.spec.job_template.metadata
    keys = misspelled_keys(template.labels, template.annotations, TRAINJOB_KEYS, _JOB_TEMPLATE)
    yield from (FieldWarning(it.path, it.message) for it in keys)


def queue_warnings(queue: Queue) -> Faults:
    yield from _misspelled_key_warnings(queue.metadata, QUEUE_KEYS)
    for it in effective_queue(queue.spec)[1]:
        yield FieldWarning(it.path, it.message)


def _misspelled_key_warnings(meta: Meta, known: KnownKeys) -> Faults:
    """Yield labels and annotations that no process reads and that resemble known ones."""
    for it in misspelled_keys(meta.labels, meta.annotations, known):
        yield FieldWarning(it.path, it.message)


def _queue_faults(queue: Queue) -> Faults:
    """Check everything but the parent and missing resources, which the scheduler reports."""
    resources = queue.spec.resources or QueueResources()
    spec = replace(queue.spec, parent_queue="", resources=resources)
    yield from queue_faults(replace(queue, spec=spec))


def _shard_faults(shard: Shard) -> Faults:
    yield from _metadata_faults(shard)
    placement = shard.spec.placement_strategy or ShardPlacement()
    arguments = shard.spec.plugins.get("nodeplacement", Switch()).arguments
    for path, values in (
        ("placementStrategy", {"gpu": placement.gpu, "cpu": placement.cpu}),
        ("plugins.nodeplacement.arguments", arguments),
    ):
        for name in ("gpu", "cpu"):
            if values.get(name, _PLACEMENTS[0]) not in _PLACEMENTS:
                *others, last = map(repr, _PLACEMENTS)
                message = f"{values[name]!r} must be {', '.join(others)} or {last}"
                yield FieldError(f"spec.{path}.{name}", message)


# The kinds that admission does not mark; of a kind with two versions the last one.
UNMARKED: Final = {
    (it.resource.group, it.resource.kind): it for it in WORKLOAD_KINDS if not it.has_mark
}

KINDS: Final[Mapping[tuple[str, str], _Kind]] = {
    **{kind: _Kind(it.resource, _workload_faults) for kind, it in UNMARKED.items()},
    **{kind: _Kind(it, _workload_faults) for kind, it in TEMPLATE_KINDS.items()},
    **{
        (resource.group, resource.kind): _Kind(resource, faults)
        for resource, faults in (
            (resources.NODES, _faults_with_amounts("status.allocatable")),
            (resources.PODS, pod_faults),
            (resources.PODGROUPS, _podgroup_faults),
            (resources.QUEUES, _queue_faults),
            (resources.TOPOLOGIES, topology_faults),
            (resources.PRIORITY_CLASSES, _metadata_faults),
            (resources.QUOTAS, _metadata_faults),
            (resources.NAMESPACES, _metadata_faults),
            (resources.PVCS, _faults_with_amounts("spec.resources.requests")),
            (resources.PVS, _faults_with_amounts("spec.capacity")),
            (resources.STORAGE_CLASSES, _metadata_faults),
            (resources.PDBS, _metadata_faults),
            (resources.DEVICE_CLASSES, _metadata_faults),
            (resources.RESOURCE_SLICES, _metadata_faults),
            (resources.DEVICE_TAINT_RULES, _metadata_faults),
            (resources.CLAIM_TEMPLATES, _metadata_faults),
            (resources.RESOURCE_CLAIMS, _metadata_faults),
            (resources.JOBSETS, _jobset_faults),
            (resources.JOBS, _job_faults),
            (CRON_JOBS, _cron_job_faults),
            (resources.TRAINJOBS, _trainjob_faults),
            (resources.RUNTIMES, runtime_faults),
            (resources.CLUSTER_RUNTIMES, runtime_faults),
            (resources.ACCESS_REVIEWS, _metadata_faults),
            (BIND_REQUESTS, _metadata_faults),
            (SHARDS, _shard_faults),
            (CONFIGS, _shard_faults),
        )
    },
}
