"""What a site has chosen, out of a SchedulingShard, a snapshot's configuration and options.

An action that there is not is refused by name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from scheduler.core.policy import Policies
from scheduler.policies.registry import (
    ACTIONS,
    FIXED,
    PLUGINS,
    Choice,
    PluginChoice,
    choice_faults,
    choose,
)
from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.kinds import Placement, Shard
from trainer_kai.cli.objects import Given
from trainer_kai.errors import ConfigError, FieldError

__all__ = ["Site", "action_faults", "site_of"]

_MOST_MOVED: Final = "max-consolidation-preemptees"
_NUMBER: Final = re.compile("-?[0-9]{1,9}")


class Site(NamedTuple):
    """The policies, and whose pods they are for."""

    policies: Policies
    scheduler_name: str
    notes: tuple[str, ...]


def site_of(
    given: Given,
    actions: Sequence[str],
    scheduler_name: str = "",
    victims: str = "kai",
    disruption_budgets: str = "best-effort",
) -> Site:
    """Combine what a snapshot says, what a shard says, and what was asked for; the last wins."""
    faults = [*_too_many(given), *_in_vain(given, actions)]
    if faults:
        raise ConfigError(faults)
    layers = [shard for _, shard in (*given.configs, *given.shards)]
    choice = _combined(layers)
    if actions:
        choice = replace(choice, actions={name: name in actions for name in ACTIONS})
    notes = [*choice_faults(choice)]
    known = {name: it for name, it in choice.plugins.items() if name in PLUGINS}
    for document, shard in given.shards:
        if shard.spec.partition_label_value:
            notes.append(f"{document}: spec.partitionLabelValue is not looked at: all nodes count")
    told = [shard.spec.args.get("scheduler-name", "") for shard in layers]
    name = next(filter(None, (scheduler_name, *reversed(told))), SCHEDULER_NAME)
    told = [shard.spec.args.get(_MOST_MOVED, "") for shard in layers]
    most = next((int(it) for it in reversed(told) if _NUMBER.fullmatch(it)), choice.most_moved)
    chosen = replace(choice, plugins=known, most_moved=most, victims=victims)
    chosen = replace(chosen, disruption_budgets=disruption_budgets)
    return Site(choose(chosen), name, tuple(notes))


def _too_many(given: Given) -> Iterator[FieldError]:
    for group in (given.shards, given.configs):
        for document, _ in group[1:]:
            yield FieldError(str(document), f"there can be only one: there is {group[0][0]} too")


def _in_vain(given: Given, actions: Sequence[str]) -> Iterator[FieldError]:
    """Yield the actions that are asked for in vain."""
    yield from action_faults(actions, "--actions")
    for document, shard in given.shards if not actions else ():
        asked = (name for name, switch in shard.spec.actions.items() if switch.enabled)
        yield from action_faults(asked, f"{document}: spec.actions")


def action_faults(names: Iterable[str], path: str) -> Iterator[FieldError]:
    """Yield which actions there are not."""
    for name in names:
        if name not in ACTIONS:
            yield FieldError(path, f"{name!r} is unknown; there are {', '.join(ACTIONS)}")


def _combined(layers: Sequence[Shard]) -> Choice:
    plugins: dict[str, PluginChoice] = {}
    actions: dict[str, bool] = {}
    placement = Placement()
    for shard in layers:
        spec = shard.spec
        placement = spec.placement_strategy or placement
        if spec.k_value is not None:
            plugins["proportion"] = PluginChoice(arguments={"kValue": str(spec.k_value)})
        lasting = {
            "defaultPreemptMinRuntime": spec.min_runtime.preempt_min_runtime,
            "defaultReclaimMinRuntime": spec.min_runtime.reclaim_min_runtime,
        }
        if any(lasting.values()):
            said = {name: text for name, text in lasting.items() if text}
            plugins["minruntime"] = PluginChoice(arguments=said)
        if spec.only:
            plugins |= {name: PluginChoice(enabled=False) for name in PLUGINS if name not in FIXED}
        for name, it in spec.plugins.items():
            plugins[name] = _over(plugins.get(name), it.enabled, it.arguments, only=spec.only)
        for name, it in spec.actions.items():
            actions[name] = True if it.enabled is None else it.enabled
    if "spread" in (placement.gpu, placement.cpu):
        actions.setdefault("consolidation", False)  # it packs
    return Choice(plugins, placement.gpu, placement.cpu, actions)


def _over(
    known: PluginChoice | None,
    enabled: bool | None,
    arguments: Mapping[str, str],
    *,
    only: bool,
) -> PluginChoice:
    """Say more of a plugin; arguments replace those that were there."""
    before = known or PluginChoice()
    on = True if only else before.enabled if enabled is None else enabled
    return PluginChoice(on, arguments or before.arguments)
