"""From KAI: its Queues and PodGroups stay; what its settings and other objects mean here. Pure.

Fields are those of KAI v0.13 to v0.17. The settings are at the end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    KAI,
    NODE_POOL,
    POD_GROUP,
    QUEUE,
    RESERVATION_APP,
    RUN_AI,
    SCHEDULER_NAME,
)
from trainer_kai.api.pod import TERMINAL_PHASES
from trainer_kai.api.resources import (
    JOBSETS,
    PODGROUPS,
    PODS,
    QUEUES,
    TOPOLOGIES,
    TRAINJOBS,
    trainjob_owner,
)
from trainer_kai.api.scheduler_names import (
    ACTIONS,
    ALWAYS_ON_PLUGINS,
    PLUGINS,
    UNSUPPORTED_PLUGINS,
    Action,
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
from trainer_kai.cli.commands.migrate.queue_manifests import shares_text
from trainer_kai.cli.commands.migrate.workloads import LabelledObject, is_finished
from trainer_kai.cli.commands.queue.write_plan import effective_access
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.kinds import BindRequest
from trainer_kai.policy.queueing.queue_access import close_command


class OwnedPodGroupSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    queue: str = ""


class OwnedPodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: OwnedPodGroupSpec = OwnedPodGroupSpec()


class ScheduledPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduler_name: str = ""
    node_name: str = ""


class PodPhase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    phase: str = ""


class ScheduledPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ScheduledPodSpec = ScheduledPodSpec()
    status: PodPhase = PodPhase()


_STRUCTS: Final[Mapping[tuple[str, str], type[Any]]] = {
    (RUN_AI, QUEUES.kind): Queue,
    (RUN_AI, PODGROUPS.kind): OwnedPodGroup,
    (RUN_AI, "BindRequest"): BindRequest,
    (KAI, "Config"): LabelledObject,
    (KAI, "SchedulingShard"): LabelledObject,
    (KAI, TOPOLOGIES.kind): LabelledObject,
    (JOBSETS.group, JOBSETS.kind): LabelledObject,
    ("", PODS.kind): ScheduledPod,
}
_VERSIONS: Final = {RUN_AI: ("v2", "v2alpha2", "v1alpha2"), KAI: ("v1", "v1alpha1")}
_RESUMED: Final = (
    "its JobSet is older than the webhook. Pods that run keep their PodGroup; pods that are "
    "created after a suspension or an eviction get none, and are scheduled alone and in the queue "
    "of their own label. When it is suspended, run `kubectl -n {0} delete jobset {1}` and resume "
    "it: Trainer creates the JobSet again, and the webhook admits it"
)
_OTHER_OWNER: Final = (
    "pods that run keep this PodGroup. No process makes PodGroups for new pods of a {0}: each pod "
    "is scheduled alone. To keep such gangs, keep KAI and install trainer-kai with mode external"
)
_CONFIG_SETTINGS: Final = (
    FieldRule(
        "spec.global.schedulerName",
        "set the setting scheduler_name for all processes",
        (SCHEDULER_NAME,),
    ),
    FieldRule(
        "spec.global.namespaceLabelSelector",
        "use the component opt-in, and label the namespaces trainer-kai.dev/inject: enabled",
    ),
    FieldRule(
        "spec.admission.blockNvidiaVisibleDevices",
        "set the setting admission.nvidia_visible_devices to block; with kustomize, add the "
        "component device-access instead",
    ),
    FieldRule("spec.binder.cdiEnabled", "set the setting reservation_pods.cdi to true"),
    FieldRule(
        "spec.binder.plugins.hamicore.enabled",
        "set the setting gpu_sharing.memory_limits to hami-core",
    ),
    FieldRule(
        "spec.binder.resourceReservation.allocationTimeout",
        "set the setting reservation_pods.allocation_s",
        (40,),
    ),
)
_RUNTIME_CLASSES: Final = (  # of Config; "" is a value: none is set
    "spec.admission.gpuPodRuntimeClassName",
    "spec.admission.gpuFractionRuntimeClassName",
)
_DEFAULT_RUNTIME_CLASS: Final = "nvidia"
_CONFIG_RULES: Final = (
    FieldRule("spec.global.queueLabelKey", f"the label of the queue is always {QUEUE}", (QUEUE,)),
    FieldRule(
        "spec.global.nodePoolLabelKey",
        f"the label of a node pool is always {NODE_POOL}",
        (NODE_POOL,),
    ),
    FieldRule("spec.global.podLabelSelector", "all pods of the scheduler name are scheduled"),
    FieldRule(
        "spec.admission.queueLabelSelector", "admission is not limited to labelled namespaces"
    ),
    FieldRule(
        "spec.binder.resourceReservation.namespace",
        f"the namespace of reservation pods is always {RESERVATION_APP}",
        (RESERVATION_APP,),
    ),
    FieldRule("spec.podGrouper.args.gangScheduleKnative", "Knative services are not gangs"),
    FieldRule(
        "spec.podGrouper.args.defaultPrioritiesConfigMapName",
        "TrainJobs without a PriorityClass get train",
    ),
    FieldRule(
        "spec.nodeScaleAdjuster.service.enabled",
        "no scaling pods are created; autoscalers see the condition of waiting pods. Set the "
        "settings admission.cluster to grows and autoscaling.enabled to true",
    ),
    FieldRule("spec.prometheus.enabled", "the use of the past does not count in the fair share"),
    FieldRule("spec.prometheus.externalPrometheusUrl", "the use of the past does not count"),
)
_SHARD_SETTINGS: Final = (
    FieldRule("spec.placementStrategy.gpu", "set the setting policies.gpu_placement", ("binpack",)),
    FieldRule("spec.placementStrategy.cpu", "set the setting policies.cpu_placement", ("binpack",)),
    FieldRule("spec.minRuntime.reclaimMinRuntime", "set spec.reclaimMinRuntime of the root queues"),
    FieldRule("spec.minRuntime.preemptMinRuntime", "set spec.preemptMinRuntime of the root queues"),
)
_SHARD_RULES: Final = (
    FieldRule(
        "spec.partitionLabelValue",
        "all nodes are one pool; select nodes by nodeSelector, and quotas count for all nodes",
    ),
    FieldRule("spec.kValue", "the use of the past does not count in the fair share"),
    FieldRule("spec.usageDBConfig", "the use of the past does not count in the fair share"),
    FieldRule("spec.queueDepthPerAction", "each plan considers all PodGroups"),
    FieldRule("spec.scenarioSearchBudgets", "the search for victims has bounds of its own"),
)
_ARGS: Final = {  # flags of KAI's scheduler with a setting
    "default-staleness-grace-period": "set the setting staleness_grace_s to its seconds",
    "scheduler-name": "set the setting scheduler_name for all processes",
}


class _Like(NamedTuple):
    """Objects that get the same sentence: the first of them, and how many more."""

    first: ObjectName
    more: int

    @property
    def text(self) -> str:
        return f" (and {self.more} more)" if self.more else ""


def plan_kai(documents: Sequence[Document]) -> Migration:
    objects = read_objects(documents, _STRUCTS, _VERSIONS)
    migration = Migration()
    _add_queues(migration, objects[QUEUES.kind])
    for it in objects[TOPOLOGIES.kind]:
        migration.becomes.append(Successor(it.name, it.name, "stays"))
    _add_settings(migration, objects["Config"], objects["SchedulingShard"])
    _add_podgroups(migration, objects)
    _add_pods(migration, objects[PODS.kind])
    pending = [it.name for it in objects["BindRequest"] if _is_pending(it.value)]
    for like in _likes({"": pending}).values():
        message = f"wait until KAI's binder has bound the pod{like.text}, then scale KAI down"
        migration.change_by_hand(like.first, "status.phase", message)
    return migration


def _is_pending(request: BindRequest) -> bool:
    return request.is_live and request.status.phase != "Succeeded"


def _add_queues(migration: Migration, queues: Sequence[ReadObject[Queue]]) -> None:
    """Add the queues, which stay; and what trainer-kai reads in them that KAI does not."""
    by_name = {it.value.metadata.name: it.value for it in queues}
    for it in queues:
        name = it.value.metadata.name
        text = f"stays; {shares_text(it.document.fields)}"
        migration.becomes.append(Successor(it.name, it.name, text))
        if effective_access(by_name, name).mode is None and not it.value.spec.parent_queue:
            message = (
                "no annotation trainer-kai.dev/access here: every namespace may use this queue and "
                f"those below it, as with KAI. `{close_command(name)}` closes them"
            )
            migration.change_by_hand(it.name, "metadata.annotations", message)
        if fault := _tree_fault(by_name, name):
            message = f"{fault}. PodGroups of the queue wait until spec.parentQueue is corrected"
            migration.change_by_hand(it.name, "spec.parentQueue", message)
        if NODE_POOL in it.value.metadata.labels:
            message = "the queue counts for all nodes: there are no node pools"
            path = f"metadata.labels[{NODE_POOL}]"
            migration.not_supported(it.name, path, message)


def _tree_fault(queues: Mapping[str, Queue], name: str) -> str:
    """Return what is wrong with the parent of a queue; "" for nothing."""
    parent = queues[name].spec.parent_queue
    if parent and parent not in queues:
        return f"Queue {parent} does not exist in the input"
    path = [name]
    while parent and parent in queues and parent not in path:
        path.append(parent)
        parent = queues[parent].spec.parent_queue
    return f"the queue is below itself: {' → '.join((*path, name))}" if parent == name else ""


def _add_podgroups(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    """Add the PodGroups by owner and queue, and the JobSets that the webhook never saw."""
    kept: dict[tuple[str, str], list[ObjectName]] = {}
    for it in objects[PODGROUPS.kind]:
        owners = it.value.metadata.owner_references
        kind = owners[0].kind if owners else ""
        kept.setdefault((kind, it.value.spec.queue), []).append(it.name)
    for (_, queue), names in sorted(kept.items()):
        text = f"stays, in queue {queue or '-'}; its pods keep running and are charged to the queue"
        migration.becomes.append(Successor(names[0], names[0], text, len(names) - 1))
    by_owner: dict[str, list[ObjectName]] = {}
    for (kind, _), names in kept.items():
        if kind not in {JOBSETS.kind, ""}:
            by_owner.setdefault(kind, []).extend(names)
    for kind, like in _likes(by_owner).items():
        message = f"{_OTHER_OWNER.format(kind)}{like.text}"
        migration.not_supported(like.first, "metadata.ownerReferences", message)
    for it in objects[JOBSETS.kind]:
        meta = it.value.metadata
        is_admitted = meta.annotations.get(ADMITTED) == ADMITTED_MARK
        if trainjob_owner(meta) and not is_admitted and not is_finished(it):
            source = ObjectName(TRAINJOBS.kind, meta.key)
            message = _RESUMED.format(meta.namespace, meta.name)
            migration.change_by_hand(source, "spec.suspend", message)


def _add_pods(migration: Migration, pods: Sequence[ReadObject[ScheduledPod]]) -> None:
    """Add the pods of KAI's scheduler that have no PodGroup, one line for each namespace."""
    ungrouped: Counter[str] = Counter()
    for it in pods:
        pod = it.value
        if pod.spec.scheduler_name != SCHEDULER_NAME or pod.status.phase in TERMINAL_PHASES:
            continue
        ungrouped[pod.metadata.namespace] += POD_GROUP not in pod.metadata.annotations
    for namespace, count in sorted(ungrouped.items()):
        if count:
            message = f"{count} pods name no PodGroup: each is scheduled alone"
            source = ObjectName("Namespace", Key("", namespace))
            migration.change_by_hand(source, "pods", message)


def _likes(found: Mapping[Any, list[ObjectName]]) -> dict[Any, _Like]:
    kept = ((reason, names) for reason, names in sorted(found.items()) if names)
    return {reason: _Like(names[0], len(names) - 1) for reason, names in kept}


def _add_settings(
    migration: Migration, configs: Sequence[ReadObject[Any]], shards: Sequence[ReadObject[Any]]
) -> None:
    for it in configs:
        migration.by_hand += (*field_notes(it, _CONFIG_SETTINGS), *_runtime_class_notes(it))
        migration.unsupported += field_notes(it, _CONFIG_RULES)
    for it in shards:
        migration.by_hand += (*field_notes(it, _SHARD_SETTINGS), *_action_notes(it))
        migration.unsupported += field_notes(it, _SHARD_RULES)
        _add_args(migration, it)
        _add_plugins(migration, it)
    for it in shards[1:]:
        message = f"one scheduler serves all nodes; the shards become one with {shards[0].name}"
        migration.not_supported(it.name, "spec", message)


def _runtime_class_notes(it: ReadObject[Any]) -> Iterator[MigrationNote]:
    for path in _RUNTIME_CLASSES:
        for field, value in values_at(it.document.fields, path):
            if isinstance(value, str) and value != _DEFAULT_RUNTIME_CLASS:
                message = f"{value!r}: set the setting gpu_sharing.runtime_class"
                yield MigrationNote(it.name, field, message)


def _action_notes(it: ReadObject[Any]) -> Iterator[MigrationNote]:
    """Yield the note about disabled actions: the setting lists the enabled ones."""
    switches = _named(it, "spec.actions")
    disabled = {name for name, switch in switches if switch.get("enabled") is False}
    placement = [*values_at(it.document.fields, "spec.placementStrategy.gpu")]
    placement += values_at(it.document.fields, "spec.placementStrategy.cpu")
    if "spread" in (value for _, value in placement):
        disabled.add(Action.CONSOLIDATION)  # KAI consolidates only where pods are packed
    if disabled:
        enabled = ",".join(name for name in ACTIONS if name not in disabled)
        message = f"set the setting policies.actions to {enabled}"
        yield MigrationNote(it.name, "spec.actions", message)


def _add_args(migration: Migration, it: ReadObject[Any]) -> None:
    for path, found in values_at(it.document.fields, "spec.args"):
        for flag, value in _sorted_items(found):
            remedy = _ARGS.get(flag)
            add = migration.change_by_hand if remedy else migration.not_supported
            message = f"{value!r}: {remedy or 'no setting has this effect'}"
            add(it.name, f"{path}.{flag}", message)


def _add_plugins(migration: Migration, it: ReadObject[Any]) -> None:
    for name, switch in _named(it, "spec.plugins"):
        path = f"spec.plugins.{name}"
        can_disable = name in PLUGINS and name not in (*ALWAYS_ON_PLUGINS, *UNSUPPORTED_PLUGINS)
        if switch.get("enabled") is False and can_disable:
            message = f"add {name} to the setting policies.disabled"
            migration.change_by_hand(it.name, f"{path}.enabled", message)
        elif switch.get("enabled") is not False and name not in PLUGINS:
            migration.not_supported(it.name, path, "trainer-kai has no plugin of this name")
        if switch.get("arguments"):
            message = "arguments of plugins cannot be set"
            migration.not_supported(it.name, f"{path}.arguments", message)


def _named(it: ReadObject[Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for _, found in values_at(it.document.fields, path):
        for name, switch in _sorted_items(found):
            if isinstance(switch, Mapping):
                yield name, switch


def _sorted_items(found: Any) -> list[tuple[str, Any]]:
    """Return keys and values; none of a field that is no object. YAML has keys of any type."""
    items = found.items() if isinstance(found, Mapping) else ()
    return sorted(((str(key), value) for key, value in items), key=lambda item: item[0])
