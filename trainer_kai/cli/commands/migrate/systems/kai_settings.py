"""From KAI's Config and SchedulingShards: which settings of trainer-kai replace which fields. Pure.

Fields are those of KAI v0.13 to v0.17.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.policies.registry import ACTIONS, ALWAYS_ON, NOT_BUILT, PLUGINS
from trainer_kai.api.names import NODE_POOL, QUEUE, RESERVATION_APP, SCHEDULER_NAME
from trainer_kai.cli.commands.migrate.migration import (
    FieldRule,
    Migration,
    MigrationNote,
    ReadObject,
    field_notes,
    values_at,
)

_SETTINGS: Final = (  # of Config
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
        "setting admission.cluster to grows",
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
    "default-staleness-grace-period": "set the setting repair_grace_s to its seconds",
    "scheduler-name": "set the setting scheduler_name for all processes",
}


def add_kai_settings(
    migration: Migration, configs: Sequence[ReadObject[Any]], shards: Sequence[ReadObject[Any]]
) -> None:
    """Add a note for each field of Config and SchedulingShard that is not a default."""
    for it in configs:
        migration.by_hand += (*field_notes(it, _SETTINGS), *_runtime_class_notes(it))
        migration.unsupported += field_notes(it, _CONFIG_RULES)
    for it in shards:
        migration.by_hand += (*field_notes(it, _SHARD_SETTINGS), *_action_notes(it))
        migration.unsupported += field_notes(it, _SHARD_RULES)
        _add_args(migration, it)
        _add_plugins(migration, it)
    for it in shards[1:]:
        message = f"one scheduler serves all nodes; the shards become one with {shards[0].name}"
        migration.unsupported.append(MigrationNote(it.name, "spec", message))


def _runtime_class_notes(it: ReadObject[Any]) -> Iterator[MigrationNote]:
    """Yield a note for each RuntimeClass of pods with shares that is not the default."""
    for path in _RUNTIME_CLASSES:
        for field, value in values_at(it.document.fields, path):
            if isinstance(value, str) and value != _DEFAULT_RUNTIME_CLASS:
                message = f"{value!r}: set the setting gpu_sharing.runtime_class"
                yield MigrationNote(it.name, field, message)


def _action_notes(it: ReadObject[Any]) -> Iterator[MigrationNote]:
    """Yield the note about disabled actions: the setting lists the enabled ones."""
    disabled = {
        name for name, switch in _named(it, "spec.actions") if switch.get("enabled") is False
    }
    spread = [value for _, value in values_at(it.document.fields, "spec.placementStrategy.gpu")]
    spread += [value for _, value in values_at(it.document.fields, "spec.placementStrategy.cpu")]
    if "spread" in spread:
        disabled.add("consolidation")  # KAI consolidates only where pods are packed
    if disabled:
        enabled = ",".join(name for name in ACTIONS if name not in disabled)
        message = f"set the setting policies.actions to {enabled}"
        yield MigrationNote(it.name, "spec.actions", message)


def _add_args(migration: Migration, it: ReadObject[Any]) -> None:
    for path, found in values_at(it.document.fields, "spec.args"):
        for flag, value in _sorted_items(found):
            remedy = _ARGS.get(flag)
            notes = migration.by_hand if remedy else migration.unsupported
            text = remedy or "no setting has this effect"
            notes.append(MigrationNote(it.name, f"{path}.{flag}", f"{value!r}: {text}"))


def _add_plugins(migration: Migration, it: ReadObject[Any]) -> None:
    for name, switch in _named(it, "spec.plugins"):
        path = f"spec.plugins.{name}"
        can_disable = name in PLUGINS and name not in (*ALWAYS_ON, *NOT_BUILT)
        if switch.get("enabled") is False and can_disable:
            message = f"add {name} to the setting policies.disabled"
            migration.by_hand.append(MigrationNote(it.name, f"{path}.enabled", message))
        elif switch.get("enabled") is not False and name not in PLUGINS:
            message = "trainer-kai has no plugin of this name"
            migration.unsupported.append(MigrationNote(it.name, path, message))
        if switch.get("arguments"):
            message = "arguments of plugins cannot be set"
            migration.unsupported.append(MigrationNote(it.name, f"{path}.arguments", message))


def _named(it: ReadObject[Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for _, found in values_at(it.document.fields, path):
        for name, switch in _sorted_items(found):
            if isinstance(switch, Mapping):
                yield name, switch


def _sorted_items(found: Any) -> list[tuple[str, Any]]:
    """Return keys and values; none of a field that is no object. YAML has keys of any type."""
    items = found.items() if isinstance(found, Mapping) else ()
    return sorted(((str(key), value) for key, value in items), key=lambda item: item[0])
