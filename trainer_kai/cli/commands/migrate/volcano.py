"""From Volcano: Queues, and the runtimes and TrainJobs that name them. Pure.

Fields are those of scheduling.volcano.sh/v1beta1 in Volcano 1.9 to 1.13. `deserved` and `guarantee`
become the quota, `capability` the limit, and `weight` the weight over quota.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import QUEUE, SCHEDULER_NAME
from trainer_kai.api.quantity import Quantity
from trainer_kai.api.resources import CLUSTER_RUNTIMES, RUNTIMES, TRAINJOBS
from trainer_kai.cli.commands.migrate.migration import (
    FieldRule,
    Migration,
    MigrationNote,
    ReadObject,
    field_notes,
    read_objects,
    values_at,
)
from trainer_kai.cli.commands.migrate.queue_manifests import (
    FREE,
    RESOURCES,
    UNLIMITED,
    QueueShare,
    amount_of,
    queue_field,
    queue_manifest,
    queue_name_fault,
    shares_text,
)
from trainer_kai.cli.commands.migrate.workloads import (
    CLUSTER,
    WORKLOAD_KINDS,
    WORKLOAD_STRUCTS,
    LabelledObject,
    is_finished,
    new_labels,
    relabel_trainjob,
    without_status,
)
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.queueing.queue_access import QueueAccessMode

_SCHEDULING: Final = "scheduling.volcano.sh"
_BATCH: Final = "batch.volcano.sh"
_FLOW: Final = "flow.volcano.sh"
_TOPOLOGY: Final = "topology.volcano.sh"
_ROOT: Final = "root"  # the queue above all, which Volcano makes
_QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
_VOLCANO: Final = "volcano"
_DEFAULT_PRIORITY: Final = 100  # of a Queue without one
_OWNED: Final = ("deserved", "guarantee.resource")  # amounts that a queue can count on
_CLOSED: Final = ("Closed", "Closing")


class Guarantee(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    resource: Mapping[str, Quantity] = {}


class VolcanoQueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    weight: int = 1
    capability: Mapping[str, Quantity] = {}
    deserved: Mapping[str, Quantity] = {}
    guarantee: Guarantee = Guarantee()
    parent: str = ""
    reclaimable: bool | None = None
    priority: int = 0


class VolcanoQueueStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    state: str = ""


class VolcanoQueue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoQueueStatus = VolcanoQueueStatus()


_STRUCTS: Final[Mapping[tuple[str, str], type[Any]]] = {
    (_SCHEDULING, "Queue"): VolcanoQueue,
    (_SCHEDULING, "PodGroup"): LabelledObject,
    (_FLOW, "JobFlow"): LabelledObject,
    (_TOPOLOGY, "HyperNode"): LabelledObject,
    **WORKLOAD_STRUCTS,
}
_NO_EQUIVALENT: Final = (
    FieldRule("spec.affinity", "a Queue has no node groups; write a nodeSelector in the workloads"),
    FieldRule("spec.extendClusters", "trainer-kai schedules one cluster"),
    FieldRule("spec.dequeueStrategy", "the scheduler also starts PodGroups behind one that waits"),
    FieldRule(
        "spec.guarantee",
        "the amount counts in the quota, and is not kept free: others use it until it is reclaimed",
    ),
)
_NOT_RECLAIMABLE: Final = (
    "what it uses over its quota can be reclaimed. Raise the quota, or make its workloads "
    "non-preemptible (label kai.scheduler/preemptibility: non-preemptible)"
)
_OTHER_KINDS: Final = {
    "JobFlow": "trainer-kai has no flows of jobs",
    "HyperNode": "create a Topology, whose levels are labels of nodes",
}


def plan_volcano(documents: Sequence[Document]) -> Migration:
    faults: list[FieldError] = []
    # A Job of Volcano and one of Kubernetes have the same kind.
    own_jobs = [it for it in documents if (it.group, it.kind) == (_BATCH, "Job")]
    objects = read_objects(documents, _STRUCTS, {_SCHEDULING: ("v1beta1",)})
    jobs = read_objects(own_jobs, {(_BATCH, "Job"): LabelledObject})["Job"]
    migration = Migration()
    divided = _divided(objects["Queue"])
    _add_queues(migration, _parents_first(objects["Queue"], faults), divided, faults)
    if faults:
        raise ConfigError(faults)
    for it in jobs:
        message = (
            "rewrite it as a TrainJob: trainer-kai makes gangs of TrainJobs, and pods of other "
            "kinds are scheduled alone"
        )
        migration.not_supported(it.name, "kind", message)
    for kind, message in _OTHER_KINDS.items():
        migration.unsupported += (MigrationNote(it.name, "kind", message) for it in objects[kind])
    queues = {it["metadata"]["name"] for it in migration.manifests}
    for kind in WORKLOAD_KINDS:
        for workload in objects[kind]:
            if not is_finished(workload):
                _add_workload(migration, workload, queues)
    return migration


def _parents_first(
    queues: Sequence[ReadObject[VolcanoQueue]], faults: list[FieldError]
) -> list[ReadObject[VolcanoQueue]]:
    """Return the queues below the root, by depth; a cycle is a fault."""
    parents = {it.value.metadata.name: _parent(it.value) for it in queues}
    depths: dict[str, int] = {}
    for it in queues:
        name, seen = it.value.metadata.name, [it.value.metadata.name]
        while (name := parents.get(name, "")) and name not in seen:
            seen.append(name)
        if name == it.value.metadata.name:
            message = f"spec.parent: the queue is below itself: {' → '.join((*seen, name))}"
            faults.append(FieldError(str(it.document), message))
        depths[it.value.metadata.name] = len(seen)
    below_root = [it for it in queues if it.value.metadata.name != _ROOT]
    return sorted(below_root, key=lambda it: (depths[it.value.metadata.name], it.name))


def _parent(queue: VolcanoQueue) -> str:
    return "" if queue.spec.parent == _ROOT else queue.spec.parent


def _divided(queues: Sequence[ReadObject[VolcanoQueue]]) -> frozenset[str]:
    """Return the fields of a Queue with an amount in any queue; GPUs are always divided."""
    specs = [it.value.spec for it in queues]
    named = (
        resource
        for spec in specs
        for amounts in (spec.deserved, spec.guarantee.resource, spec.capability)
        for resource in amounts
    )
    return frozenset(map(queue_field, named)) | {"gpu"}


def _add_queues(
    migration: Migration,
    queues: Sequence[ReadObject[VolcanoQueue]],
    divided: AbstractSet[str],
    faults: list[FieldError],
) -> None:
    """Add a Queue for each queue, parents first; the quota of a parent covers its children."""
    shares = {it.value.metadata.name: _shares(migration, it, divided, faults) for it in queues}
    below: dict[str, list[dict[str, QueueShare]]] = {}
    for it in reversed(queues):
        name = it.value.metadata.name
        shares[name] = _with_children(shares[name], below.get(name, ()))
        below.setdefault(_parent(it.value), []).append(shares[name])
    made = {name for name in shares if not queue_name_fault(name)}
    for it in queues:
        _add_queue(migration, it, shares[it.value.metadata.name], made, faults)


def _with_children(
    own: Mapping[str, QueueShare], children: Sequence[Mapping[str, QueueShare]]
) -> dict[str, QueueShare]:
    """Raise each quota to the sum of the children, up to the limit."""
    raised = {}
    for name, share in own.items():
        quota = max(share.quota, sum(it[name].quota for it in children))
        if share.quota == UNLIMITED:
            quota = UNLIMITED
        elif share.limit != UNLIMITED:
            quota = max(share.quota, min(quota, share.limit))
        raised[name] = share._replace(quota=quota)
    return raised


def _add_queue(
    migration: Migration,
    it: ReadObject[VolcanoQueue],
    shares: Mapping[str, QueueShare],
    made: AbstractSet[str],
    faults: list[FieldError],
) -> None:
    queue, spec = it.value, it.value.spec
    name, parent = queue.metadata.name, _parent(it.value)
    if fault := queue_name_fault(name):
        message = f"{fault}: create a Queue with another name"
        migration.change_by_hand(it.name, "metadata.name", message)
        return
    if parent and parent not in made:
        message = f"no Queue {parent} is made: create it by hand, or choose another parent"
        migration.change_by_hand(it.name, "spec.parent", message)
    if spec.weight < 0:
        message = f"spec.weight: {spec.weight} must not be negative"
        faults.append(FieldError(str(it.document), message))
    access = QueueAccessMode.CLOSED if queue.status.state in _CLOSED else None
    priority = _DEFAULT_PRIORITY + spec.priority if spec.priority else None
    manifest = queue_manifest(name, parent, shares, access, priority)
    closed = "closed, as its state says; " if access else ""
    migration.add(it.name, manifest, f"{closed}{shares_text(manifest)}")
    migration.unsupported += field_notes(it, _NO_EQUIVALENT)
    if spec.reclaimable is False:
        migration.not_supported(it.name, "spec.reclaimable", _NOT_RECLAIMABLE)


def _shares(
    migration: Migration,
    it: ReadObject[VolcanoQueue],
    divided: AbstractSet[str],
    faults: list[FieldError],
) -> dict[str, QueueShare]:
    """Return the shares; CPU and memory that no queue names are not divided."""
    spec = it.value.spec
    amounts = {
        name: _amounts(migration, it, f"spec.{name}", found, faults)
        for name, found in (
            ("deserved", spec.deserved),
            ("guarantee.resource", spec.guarantee.resource),
            ("capability", spec.capability),
        )
    }
    shares = {}
    for name in RESOURCES:
        owned = [amounts[field][name] for field in _OWNED if name in amounts[field]]
        limit = amounts["capability"].get(name, UNLIMITED)
        quota = max(owned, default=0)
        shares[name] = QueueShare(quota, limit, spec.weight) if name in divided else FREE
        if limit != UNLIMITED and quota > limit:
            message = f"spec.capability: the {name} is less than deserved or guarantee"
            faults.append(FieldError(str(it.document), message))
    return shares


def _amounts(
    migration: Migration,
    it: ReadObject[VolcanoQueue],
    path: str,
    resources: Mapping[str, Quantity],
    faults: list[FieldError],
) -> dict[str, int]:
    """Return the amounts by field of a Queue; GPUs of all names are one number."""
    amounts: dict[str, int] = {}
    for resource, quantity in resources.items():
        field = queue_field(resource)
        if field:
            where = f"{it.document}: {path}[{resource}]"
            amounts[field] = amounts.get(field, 0) + amount_of(resource, quantity, where, faults)
        else:
            message = "a Queue counts GPU, CPU and memory only"
            migration.not_supported(it.name, f"{path}[{resource}]", message)
    return amounts


def _add_workload(
    migration: Migration, it: ReadObject[LabelledObject], queues: AbstractSet[str]
) -> None:
    """Change a runtime or a TrainJob; pods that name Volcano in other kinds by hand."""
    meta = it.value.metadata
    if meta.controller:
        return
    if it.document.kind in {RUNTIMES.kind, CLUSTER_RUNTIMES.kind}:
        _add_runtime(migration, it, queues)
    elif it.document.kind == TRAINJOBS.kind:
        queue = meta.annotations.get(_QUEUE_NAME, "")
        if queue and QUEUE not in meta.labels and queue not in queues:
            path = f"metadata.annotations[{_QUEUE_NAME}]"
            migration.change_by_hand(it.name, path, _no_queue_text(queue))
        elif queue and QUEUE not in meta.labels:
            relabel_trainjob(migration, it, new_labels(queue, (_QUEUE_NAME,)))
    else:
        for path in _volcano_schedulers(it.document.fields):
            message = (
                f"set schedulerName: {SCHEDULER_NAME} and the label {QUEUE} on its pods; only "
                "TrainJobs are gangs, each of these pods is scheduled alone"
            )
            migration.change_by_hand(it.name, path, message)


def _no_queue_text(queue: Any) -> str:
    return f"{queue!r}: no such Queue is made: set the label {QUEUE} to the name of a Queue"


def _add_runtime(
    migration: Migration, it: ReadObject[LabelledObject], queues: AbstractSet[str]
) -> None:
    """Remove Volcano from a runtime: its policy, its scheduler name, and its queue."""
    changes = [*_runtime_changes(it.document.fields)]
    if not changes:
        return
    migration.by_hand += (
        MigrationNote(it.name, path, _no_queue_text(queue))
        for path, queue in _queue_names(it.document.fields)
        if not _is_made(queue, queues)
    )
    topologies = [path for path in changes if path.endswith("networkTopology")]
    for path in topologies:
        message = "annotate the template with kai.scheduler/topology and a placement instead"
        migration.not_supported(it.name, path, message)
    changes = [path for path in changes if path not in topologies]
    if it.document.file == CLUSTER:
        message = "remove it: the webhook sets schedulerName, and the podgrouper makes the PodGroup"
        named = dict(_queue_names(it.document.fields))
        for path in changes:
            if path not in named:
                migration.change_by_hand(it.name, path, message)
            elif _is_made(named[path], queues):
                label = f"replace it by the label {QUEUE}: {named[path]}"
                migration.change_by_hand(it.name, path, label)
        return
    manifest = without_status(it.document.fields)
    _remove_volcano(manifest, queues)
    migration.add(it.name, manifest, f"without {', '.join(changes)}")


def _runtime_changes(fields: Mapping[str, Any]) -> Iterator[str]:
    for path, policy in values_at(fields, "spec.podGroupPolicy.volcano"):
        yield path
        if isinstance(policy, Mapping) and policy.get("networkTopology"):
            yield f"{path}.networkTopology"
    yield from (path for path, _ in _queue_names(fields))
    yield from _volcano_schedulers(fields)


def _queue_names(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the annotation of a runtime's template that names a queue, with its path."""
    for path, annotations in values_at(fields, "spec.template.metadata.annotations"):
        if isinstance(annotations, Mapping) and _QUEUE_NAME in annotations:
            yield f"{path}[{_QUEUE_NAME}]", annotations[_QUEUE_NAME]


def _is_made(queue: Any, queues: AbstractSet[str]) -> bool:
    return isinstance(queue, str) and queue in queues


def _volcano_schedulers(fields: Mapping[str, Any]) -> Iterator[str]:
    for start in (
        "spec",
        "spec.template.spec",
        "spec.replicatedJobs[].template.spec.template.spec",
        "spec.template.spec.replicatedJobs[].template.spec.template.spec",
    ):
        for path, name in values_at(fields, f"{start}.schedulerName"):
            if name == _VOLCANO:
                yield path


def _remove_volcano(manifest: dict[str, Any], queues: AbstractSet[str]) -> None:
    spec = manifest["spec"]
    policy = spec.get("podGroupPolicy")
    if isinstance(policy, dict):
        policy.pop(_VOLCANO, None)
        if not policy:
            del spec["podGroupPolicy"]
    for _, meta in [*values_at(manifest, "spec.template.metadata")]:
        annotations = meta.get("annotations") if isinstance(meta, dict) else None
        if isinstance(annotations, dict) and _QUEUE_NAME in annotations:
            queue, labels = annotations.pop(_QUEUE_NAME), meta.get("labels")
            if _is_made(queue, queues):
                meta["labels"] = {**(labels if isinstance(labels, dict) else {}), QUEUE: queue}
            if not annotations:
                del meta["annotations"]
    path = "spec.template.spec.replicatedJobs[].template.spec.template.spec"
    for _, pods in [*values_at(manifest, path)]:
        if isinstance(pods, dict) and pods.get("schedulerName") == _VOLCANO:
            del pods["schedulerName"]
