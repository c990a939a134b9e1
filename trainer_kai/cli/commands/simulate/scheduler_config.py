"""The scheduler's configuration: from a KAI snapshot, a SchedulingShard and the options.

An unknown action is an error; an unknown plugin is a note.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from scheduler.core.model.result import Policies
from scheduler.policies.registry import (
    PluginSelection,
    PolicySelection,
    build_policies,
    selection_errors,
)
from trainer_kai.api.meta import Meta
from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.api.scheduler_names import ACTIONS, OPTIONAL_PLUGINS, PLUGINS, Action
from trainer_kai.cli.input.cluster import InputCluster
from trainer_kai.cli.input.kinds import Shard, ShardPlacement, ShardSpec
from trainer_kai.errors import ConfigError, FieldError

_MAX_PREEMPTEES: Final = "max-consolidation-preemptees"
_NUMBER: Final = re.compile("-?[0-9]{1,9}")


class SchedulerConfig(NamedTuple):
    policies: Policies
    scheduler_name: str
    notes: tuple[str, ...]


def scheduler_config(
    inputs: InputCluster,
    actions: Sequence[str],
    scheduler_name: str = "",
    victims: str = "kai",
    disruption_budgets: str = "best-effort",
    placement: str = "",
) -> SchedulerConfig:
    """Combine a KAI snapshot, a SchedulingShard and the options; the last one wins."""
    faults = [*_duplicate_faults(inputs), *_unknown_actions(inputs, actions)]
    if faults:
        raise ConfigError(faults)
    layers = [shard for _, shard in (*inputs.configs, *inputs.shards)]
    if placement:
        strategy = ShardPlacement(gpu=placement, cpu=placement)
        layers.append(Shard(metadata=Meta(), spec=ShardSpec(placement_strategy=strategy)))
    selection = _combine(layers)
    if actions:
        selection = replace(selection, actions={name: name in actions for name in ACTIONS})
    notes = [*selection_errors(selection)]
    known = {name: it for name, it in selection.plugins.items() if name in PLUGINS}
    for document, shard in inputs.shards:
        if shard.spec.partition_label_value:
            begin = f"{document}: spec.partitionLabelValue has no effect"
            notes.append(f"{begin}: all nodes are considered")
    names = [shard.spec.args.get("scheduler-name", "") for shard in layers]
    name = next(filter(None, (scheduler_name, *reversed(names))), SCHEDULER_NAME)
    limits = [shard.spec.args.get(_MAX_PREEMPTEES, "") for shard in layers]
    numbers = (int(it) for it in reversed(limits) if _NUMBER.fullmatch(it))
    selection = replace(
        selection,
        plugins=known,
        max_relocated=next(numbers, selection.max_relocated),
        victim_order=victims,
        disruption_budgets=disruption_budgets,
    )
    return SchedulerConfig(build_policies(selection), name, tuple(notes))


def _duplicate_faults(inputs: InputCluster) -> Iterator[FieldError]:
    for same_kind in (inputs.shards, inputs.configs):
        for document, _ in same_kind[1:]:
            message = f"only one is allowed; another one is {same_kind[0][0]}"
            yield FieldError(str(document), message)


def _unknown_actions(inputs: InputCluster, actions: Sequence[str]) -> Iterator[FieldError]:
    yield from action_faults(actions, "--actions")
    for document, shard in inputs.shards if not actions else ():
        enabled = (name for name, switch in shard.spec.actions.items() if switch.enabled)
        yield from action_faults(enabled, f"{document}: spec.actions")


def action_faults(names: Iterable[str], path: str) -> Iterator[FieldError]:
    for name in names:
        if name not in ACTIONS:
            yield FieldError(path, f"{name!r} is unknown; valid names are {', '.join(ACTIONS)}")


def _combine(layers: Sequence[Shard]) -> PolicySelection:
    plugins: dict[str, PluginSelection] = {}
    actions: dict[str, bool] = {}
    placement = ShardPlacement()
    for shard in layers:
        spec = shard.spec
        placement = spec.placement_strategy or placement
        if spec.k_value is not None:
            plugins["proportion"] = PluginSelection(arguments={"kValue": str(spec.k_value)})
        min_runtimes = {
            "defaultPreemptMinRuntime": spec.min_runtime.preempt_min_runtime,
            "defaultReclaimMinRuntime": spec.min_runtime.reclaim_min_runtime,
        }
        if any(min_runtimes.values()):
            arguments = {name: text for name, text in min_runtimes.items() if text}
            plugins["minruntime"] = PluginSelection(arguments=arguments)
        if spec.only:
            plugins |= dict.fromkeys(OPTIONAL_PLUGINS, PluginSelection(enabled=False))
        for name, it in spec.plugins.items():
            known = plugins.get(name)
            plugins[name] = _merge_plugin(known, it.enabled, it.arguments, only=spec.only)
        for name, it in spec.actions.items():
            actions[name] = True if it.enabled is None else it.enabled
    if "spread" in (placement.gpu, placement.cpu):
        actions.setdefault(Action.CONSOLIDATION, False)  # consolidation packs pods
    return PolicySelection(plugins, placement.gpu, placement.cpu, actions)


def _merge_plugin(
    known: PluginSelection | None,
    enabled: bool | None,
    arguments: Mapping[str, str],
    *,
    only: bool,
) -> PluginSelection:
    """Return a plugin with the values of a later layer; arguments replace earlier ones."""
    previous = known or PluginSelection()
    is_enabled = True if only else previous.enabled if enabled is None else enabled
    return PluginSelection(is_enabled, arguments or previous.arguments)
