"""From Kueue: Queues, grants, namespaces, priorities, topologies and TrainJobs. Pure."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    KUEUE,
    KUEUE_PRIORITY_CLASS,
    KUEUE_QUEUE,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    QUEUE,
)
from trainer_kai.api.resources import NAMESPACES, PRIORITY_CLASSES, TOPOLOGIES, TRAINJOBS
from trainer_kai.cli.commands.migrate.kueue_quotas import (
    KUEUE_STRUCTS,
    KUEUE_VERSIONS,
    STOPPED,
    LocalQueue,
    WorkloadPriorityClass,
    add_kueue_queues,
)
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
from trainer_kai.cli.commands.migrate.workloads import (
    WORKLOAD_KINDS,
    LabelledObject,
    is_finished,
    labelled_templates,
    new_labels,
    relabel_trainjob,
    relabelled_other,
)
from trainer_kai.cli.commands.queue.write_plan import ExistingGrant, grant_writes, make_grant
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.policy.queueing.priority_classes import PREEMPTIBLE_BELOW

_DEFAULT: Final = "default"  # the LocalQueue of workloads that name none
_ALL_USERS: Final = "system:authenticated"
_MAX_PRIORITY: Final = 10**9
_INSTALLED_CLASSES: Final = ("build", "build-preemptible", "inference", "train")
_KUBERNETES_PREFIX: Final = "system-"  # of names of PriorityClasses
_FLAVOR_RULES: Final = (
    FieldRule(
        "spec.topologyName",
        "a Queue has no flavors; name the Topology in the annotation kai.scheduler/topology",
    ),
    FieldRule("spec.nodeTaints", "a Queue has no flavors; write tolerations in the workloads"),
    FieldRule("spec.tolerations", "a Queue has no flavors; write tolerations in the workloads"),
)
_NO_CHECKS: Final = "trainer-kai has no admission checks: PodGroups start without it"
_ONE_CLUSTER: Final = "trainer-kai schedules one cluster: TrainJobs run where they are created"
_WITHOUT_EQUIVALENT: Final = {
    "AdmissionCheck": _NO_CHECKS,
    "ProvisioningRequestConfig": "a Queue names the class in the annotation "
    "trainer-kai.dev/provisioning-class (see docs/autoscaling.md); parameters are not passed on",
    "MultiKueueConfig": _ONE_CLUSTER,
    "MultiKueueCluster": _ONE_CLUSTER,
}
_CLASS_NOTE: Final = (
    "the value is {}: from 100 on a PodGroup is non-preemptible, must fit in the quota of its "
    "queue, and is never reclaimed. The TrainJobs here get {}: preemptible; set it on new ones too"
)


class _KueueSuccessors(NamedTuple):
    """What the labels of workloads become."""

    queues: Mapping[Key, str]  # of each LocalQueue; "" without a Queue
    values: Mapping[str, int]  # of each WorkloadPriorityClass
    refused: AbstractSet[str]  # names of WorkloadPriorityClasses without a PriorityClass


def plan_kueue(documents: Sequence[Document]) -> Migration:
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
    known = _known(migration, "ClusterQueue")
    queues: dict[str, dict[str, str]] = {}
    granted: set[tuple[str, str]] = set()
    for it in objects["LocalQueue"]:
        (namespace, name), queue = it.value.metadata.key, it.value.spec.cluster_queue
        if not queue or not namespace:
            field = "metadata.namespace" if queue else "spec.clusterQueue"
            raise ConfigError([FieldError(str(it.document), f"{field}: is missing")])
        queues.setdefault(namespace, {})[name] = queue
        if queue not in known:
            message = (
                f"no Queue is made of ClusterQueue {queue}: add it to the input; or create a Queue "
                f"in its place, and run `trainer-kai queue allow QUEUE -n {namespace}`"
            )
            migration.change_by_hand(it.name, "spec.clusterQueue", message)
            continue
        if it.value.spec.stop_policy in STOPPED:
            message = "the LocalQueue is stopped: leave out its grant until it takes workloads"
            migration.change_by_hand(it.name, "spec.stopPolicy", message)
        _add_grant(migration, it, is_first=(namespace, queue) not in granted)
        granted.add((namespace, queue))
    for namespace, by_name in queues.items():
        _add_namespace(migration, namespace, by_name, known)


def _known(migration: Migration, kind: str) -> frozenset[str]:
    """Return the names of the objects of a kind of Kueue that the move makes objects of."""
    sources = (it.source for it in migration.becomes)
    return frozenset(it.key.name for it in sources if it.kind == kind)


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


def _add_namespace(
    migration: Migration, namespace: str, queues: Mapping[str, str], known: AbstractSet[str]
) -> None:
    """Make the default LocalQueue, or the only one, the queue of the namespace."""
    source = ObjectName("LocalQueue", Key(namespace, _DEFAULT))
    queue = queues.get(_DEFAULT, "")
    if len(queues) == 1:
        ((name, queue),) = queues.items()
        source = ObjectName("LocalQueue", Key(namespace, name))
    if queue not in known:
        usable = sorted(known & set(queues.values()))
        choice = f"one of {', '.join(usable)}" if usable else "the name of a Queue"
        reason = (
            f"no Queue is made of ClusterQueue {queue}"
            if queue
            else f"the namespace has {len(queues)} LocalQueues, and none is the default"
        )
        message = f"{reason}: label each TrainJob with {QUEUE}, or the namespace with {choice}"
        source = ObjectName(NAMESPACES.kind, Key("", namespace))
        migration.change_by_hand(source, "metadata.labels", message)
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
        name, value = it.value.metadata.name, it.value.value
        if fault := _class_name_fault(name):
            message = f"{fault}: create a PriorityClass with another name"
            migration.change_by_hand(it.name, "metadata.name", message)
            continue
        if not -_MAX_PRIORITY <= value < _MAX_PRIORITY:
            message = f"{value} must be at most {_MAX_PRIORITY - 1} in size: choose a value"
            migration.change_by_hand(it.name, "value", message)
            continue
        manifest = {
            "apiVersion": PRIORITY_CLASSES.api_version,
            "kind": PRIORITY_CLASSES.kind,
            "metadata": {"name": name},
            "value": value,
            "description": it.value.description or "From a WorkloadPriorityClass of Kueue.",
        }
        migration.add(it.name, manifest, f"value {value}")
        if value >= PREEMPTIBLE_BELOW:
            message = _CLASS_NOTE.format(value, PREEMPTIBILITY)
            migration.change_by_hand(it.name, "value", message)


def _class_name_fault(name: str) -> str:
    """Return why a name cannot be the name of a PriorityClass that a move makes."""
    if name in _INSTALLED_CLASSES:
        return f"PriorityClass {name} belongs to the installation of trainer-kai"
    if name.startswith(_KUBERNETES_PREFIX):
        return f"names that begin with {_KUBERNETES_PREFIX} belong to Kubernetes"
    return ""


def _add_flavors(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    for it in objects["ResourceFlavor"]:
        for path, labels in values_at(it.document.fields, "spec.nodeLabels"):
            if not isinstance(labels, Mapping) or not labels:
                continue
            selector = ", ".join(sorted(f"{key}: {value}" for key, value in labels.items()))
            message = f"write the nodeSelector in the workloads that need these nodes: {selector}"
            migration.change_by_hand(it.name, path, message)
        migration.unsupported += field_notes(it, _FLAVOR_RULES)
    for it in objects["Topology"]:
        found = [level for _, level in values_at(it.document.fields, "spec.levels[].nodeLabel")]
        levels = [level for level in found if level and isinstance(level, str)]
        if not levels or len(levels) < len(found):
            message = "a level has no node label, which is a text: create the Topology by hand"
            migration.change_by_hand(it.name, "spec.levels", message)
            continue
        manifest = {
            "apiVersion": TOPOLOGIES.api_version,
            "kind": TOPOLOGIES.kind,
            "metadata": {"name": it.value.metadata.name},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        }
        migration.add(it.name, manifest, "the same levels")
    for kind, message in _WITHOUT_EQUIVALENT.items():
        migration.unsupported += (MigrationNote(it.name, "spec", message) for it in objects[kind])


def _add_workloads(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    """Relabel TrainJobs; other kinds are changed by hand."""
    successors = _successors(migration, objects)
    for kind in WORKLOAD_KINDS:
        for it in objects[kind]:
            if not is_finished(it):
                migration.by_hand += labelled_templates(it, KUEUE_QUEUE)
                _add_workload(migration, it, successors)


def _successors(
    migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]
) -> _KueueSuccessors:
    known = _known(migration, "ClusterQueue")
    queues = (it.value for it in objects["LocalQueue"])
    local_queues = {it.metadata.key: it.spec.cluster_queue for it in queues}
    values = {it.value.metadata.name: it.value.value for it in objects["WorkloadPriorityClass"]}
    return _KueueSuccessors(
        {key: it if it in known else "" for key, it in local_queues.items()},
        values,
        values.keys() - _known(migration, "WorkloadPriorityClass"),
    )


def _add_workload(
    migration: Migration, it: ReadObject[LabelledObject], successors: _KueueSuccessors
) -> None:
    labels = it.value.metadata.labels
    local = labels.get(KUEUE_QUEUE, "")
    if not local:
        return
    queue = successors.queues.get(Key(it.value.metadata.namespace, local))
    if not queue:
        reason = "is not in the input" if queue is None else "has a queue that becomes no Queue"
        message = f"LocalQueue {local} {reason}: set the label {QUEUE} to the name of a Queue"
        path = f"metadata.labels[{KUEUE_QUEUE}]"
        migration.change_by_hand(it.name, path, message)
        return
    priority = labels.get(KUEUE_PRIORITY_CLASS, "")
    if priority in successors.refused:
        message = (
            f"WorkloadPriorityClass {priority} becomes no PriorityClass: set the label "
            f"{PRIORITY_CLASS_NAME} to another one"
        )
        path = f"metadata.labels[{KUEUE_PRIORITY_CLASS}]"
        migration.change_by_hand(it.name, path, message)
        priority = ""
    removed = (KUEUE_QUEUE, KUEUE_PRIORITY_CLASS)
    new = new_labels(queue, removed, priority, successors.values.get(priority, 0))
    add = relabel_trainjob if it.document.kind == TRAINJOBS.kind else relabelled_other
    add(migration, it, new)
