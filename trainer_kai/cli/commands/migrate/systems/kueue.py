"""From Kueue: Queues, grants, namespaces, priorities, topologies and TrainJobs. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainer_kai.api.meta import Key
from trainer_kai.api.names import KUEUE, KUEUE_PRIORITY_CLASS, KUEUE_QUEUE, PREEMPTIBILITY, QUEUE
from trainer_kai.api.resources import NAMESPACES, PRIORITY_CLASSES, TOPOLOGIES, TRAINJOBS
from trainer_kai.cli.commands.migrate.migration import (
    FieldRule,
    Migration,
    MigrationNote,
    ObjectName,
    ReadObject,
    Successor,
    field_notes,
    read_objects,
    values_at,
)
from trainer_kai.cli.commands.migrate.systems.kueue_objects import (
    KUEUE_STRUCTS,
    KUEUE_VERSIONS,
    LocalQueue,
    WorkloadPriorityClass,
)
from trainer_kai.cli.commands.migrate.systems.kueue_quotas import add_kueue_queues
from trainer_kai.cli.commands.migrate.workloads import (
    WORKLOAD_KINDS,
    labelled_templates,
    new_labels,
    relabel_trainjob,
    relabelled_other,
)
from trainer_kai.cli.commands.queue.grants import ExistingGrant, grant_writes, make_grant
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError, FieldError

__all__ = ["plan_kueue"]

_DEFAULT: Final = "default"  # the LocalQueue of workloads that name none
_ALL_USERS: Final = "system:authenticated"
_NON_PREEMPTIBLE: Final = 100
_MAX_PRIORITY: Final = 10**9
_STOPPED: Final = ("Hold", "HoldAndDrain")
_FLAVOR_RULES: Final = (
    FieldRule(
        "spec.topologyName",
        "a Queue has no flavors; the scheduler does not support a required topology yet",
    ),
    FieldRule("spec.nodeTaints", "a Queue has no flavors; write tolerations in the workloads"),
    FieldRule("spec.tolerations", "a Queue has no flavors; write tolerations in the workloads"),
)
_NO_CHECKS: Final = "trainer-kai has no admission checks: PodGroups start without it"
_ONE_CLUSTER: Final = "trainer-kai schedules one cluster: TrainJobs run where they are created"
_WITHOUT_EQUIVALENT: Final = {
    "AdmissionCheck": _NO_CHECKS,
    "ProvisioningRequestConfig": "trainer-kai creates no ProvisioningRequest: a node autoscaler "
    "acts on the condition of the waiting pods",
    "MultiKueueConfig": _ONE_CLUSTER,
    "MultiKueueCluster": _ONE_CLUSTER,
}
_CLASS_NOTE: Final = (
    "the value is {}: from 100 on a PodGroup is non-preemptible, must fit in the quota of its "
    "queue, and is never reclaimed. The TrainJobs here get {}: preemptible; set it on new ones too"
)


def plan_kueue(documents: Sequence[Document]) -> Migration:
    """Return what a move from Kueue changes; raise for faults of the objects."""
    faults: list[FieldError] = []
    objects = read_objects(documents, KUEUE_STRUCTS, {KUEUE: KUEUE_VERSIONS})
    migration = Migration()
    add_kueue_queues(migration, objects["ClusterQueue"], objects["Cohort"], faults)
    if faults:
        raise ConfigError(faults)
    _add_grants(migration, objects)
    _add_priorities(migration, objects["WorkloadPriorityClass"])
    _add_flavors(migration, objects)
    _add_workloads(migration, objects)
    return migration


def _add_grants(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    """Add a grant for each LocalQueue, and a label for each namespace with a default one."""
    known = {it.value.metadata.name for it in objects["ClusterQueue"]}
    queues: dict[str, dict[str, str]] = {}
    granted: set[tuple[str, str]] = set()
    for it in objects["LocalQueue"]:
        (namespace, name), queue = it.value.metadata.key, it.value.spec.cluster_queue
        if not queue or not namespace:
            field = "metadata.namespace" if queue else "spec.clusterQueue"
            raise ConfigError([FieldError(str(it.document), f"{field}: is missing")])
        queues.setdefault(namespace, {})[name] = queue
        if queue not in known:
            message = f"ClusterQueue {queue} is not in the input: create Queue {queue} by hand"
            migration.by_hand.append(MigrationNote(it.name, "spec.clusterQueue", message))
        if it.value.spec.stop_policy in _STOPPED:
            message = "the LocalQueue is stopped: leave out its grant until it takes workloads"
            migration.by_hand.append(MigrationNote(it.name, "spec.stopPolicy", message))
        _add_grant(migration, it, is_first=(namespace, queue) not in granted)
        granted.add((namespace, queue))
    for namespace, by_name in queues.items():
        _add_namespace(migration, namespace, by_name)


def _add_grant(migration: Migration, it: ReadObject[LocalQueue], *, is_first: bool) -> None:
    """Add the grant of a LocalQueue: all users that may create TrainJobs there may use it."""
    queue, namespace = it.value.spec.cluster_queue, it.value.metadata.namespace
    grant = make_grant(queue, namespace, groups=(_ALL_USERS,))
    role, binding = (write.change for write in grant_writes(grant, ExistingGrant(None, None)))
    assert isinstance(role, dict)
    assert isinstance(binding, dict)
    target = ObjectName(grant.bindings.kind, grant.key)
    text = f"workloads and users of namespace {namespace} may use queue {queue}"
    migration.becomes.append(Successor(it.name, target, text))
    if is_first:
        migration.manifests += (role, binding)


def _add_namespace(migration: Migration, namespace: str, queues: Mapping[str, str]) -> None:
    """Make the default LocalQueue, or the only one, the queue of the namespace."""
    source = ObjectName("LocalQueue", Key(namespace, _DEFAULT))
    queue = queues.get(_DEFAULT, "")
    if len(queues) == 1:
        ((name, queue),) = queues.items()
        source = ObjectName("LocalQueue", Key(namespace, name))
    if not queue:
        message = (
            f"the namespace has {len(queues)} LocalQueues: label each TrainJob with {QUEUE}, or "
            f"the namespace with one of {', '.join(sorted(set(queues.values())))}"
        )
        source = ObjectName(NAMESPACES.kind, Key("", namespace))
        migration.by_hand.append(MigrationNote(source, "metadata.labels", message))
        return
    manifest = {
        "apiVersion": NAMESPACES.api_version,
        "kind": NAMESPACES.kind,
        "metadata": {"name": namespace, "labels": {QUEUE: queue}},
    }
    text = f"label {QUEUE}: {queue}, the queue of TrainJobs that name none"
    migration.add(source, manifest, text)


def _add_priorities(
    migration: Migration, classes: Sequence[ReadObject[WorkloadPriorityClass]]
) -> None:
    for it in classes:
        value = it.value.value
        if not -_MAX_PRIORITY <= value < _MAX_PRIORITY:
            message = f"{value} must be at most {_MAX_PRIORITY - 1} in size: choose a value"
            migration.by_hand.append(MigrationNote(it.name, "value", message))
            continue
        manifest = {
            "apiVersion": PRIORITY_CLASSES.api_version,
            "kind": PRIORITY_CLASSES.kind,
            "metadata": {"name": it.value.metadata.name},
            "value": value,
            "description": it.value.description or "From a WorkloadPriorityClass of Kueue.",
        }
        migration.add(it.name, manifest, f"value {value}")
        if value >= _NON_PREEMPTIBLE:
            message = _CLASS_NOTE.format(value, PREEMPTIBILITY)
            migration.by_hand.append(MigrationNote(it.name, "value", message))


def _add_flavors(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    for it in objects["ResourceFlavor"]:
        for path, labels in values_at(it.document.fields, "spec.nodeLabels"):
            if not isinstance(labels, Mapping) or not labels:
                continue
            selector = ", ".join(f"{key}: {value}" for key, value in sorted(labels.items()))
            message = f"write the nodeSelector in the workloads that need these nodes: {selector}"
            migration.by_hand.append(MigrationNote(it.name, path, message))
        migration.unsupported += field_notes(it, _FLAVOR_RULES)
    for it in objects["Topology"]:
        levels = [level for _, level in values_at(it.document.fields, "spec.levels[].nodeLabel")]
        manifest = {
            "apiVersion": TOPOLOGIES.api_version,
            "kind": TOPOLOGIES.kind,
            "metadata": {"name": it.value.metadata.name},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        }
        migration.add(it.name, manifest, "the same levels")
        message = "a PodGroup with a required topology waits with TopologyUnfit"
        migration.unsupported.append(MigrationNote(it.name, "spec.levels", message))
    for kind, message in _WITHOUT_EQUIVALENT.items():
        migration.unsupported += (MigrationNote(it.name, "spec", message) for it in objects[kind])


def _add_workloads(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    """Relabel TrainJobs; other kinds are changed by hand."""
    local_queues = {it.value.metadata.key: it.value.spec for it in objects["LocalQueue"]}
    values = {it.value.metadata.name: it.value.value for it in objects["WorkloadPriorityClass"]}
    for kind in WORKLOAD_KINDS:
        for it in objects[kind]:
            migration.by_hand += labelled_templates(it, KUEUE_QUEUE)
            labels = it.value.metadata.labels
            local = labels.get(KUEUE_QUEUE, "")
            if not local:
                continue
            spec = local_queues.get(Key(it.value.metadata.namespace, local))
            if spec is None:
                message = f"LocalQueue {local} is not in the input: set {QUEUE} to its queue"
                path = f"metadata.labels[{KUEUE_QUEUE}]"
                migration.by_hand.append(MigrationNote(it.name, path, message))
                continue
            priority = labels.get(KUEUE_PRIORITY_CLASS, "")
            new = new_labels(
                spec.cluster_queue,
                (KUEUE_QUEUE, KUEUE_PRIORITY_CLASS),
                priority,
                values.get(priority, 0),
            )
            add = relabel_trainjob if kind == TRAINJOBS.kind else relabelled_other
            add(migration, it, new)
