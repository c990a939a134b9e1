"""All policies by the names that KAI's settings have for them: the one list.

Plugins that are not supported yet are known by name, so that settings made for KAI are accepted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scheduler.core.model.plugins import PodGroupOrderPlugin, Policies, QuotaPlugin, ScorePlugin
from scheduler.policies.min_runtime import ARGUMENTS as MIN_RUNTIME_ARGUMENTS
from scheduler.policies.min_runtime import argument_errors, min_runtime
from scheduler.policies.order import VICTIM_ORDERS, elastic, priority
from scheduler.policies.quota import may_borrow, within_limit, within_quota
from scheduler.policies.scores import (
    availability,
    binpack,
    by_resource_type,
    nominated_node,
    resource_type,
    shared_gpu,
    spread,
)

ACTIONS: Final = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")

_PODGROUP_ORDER: Final[Mapping[str, PodGroupOrderPlugin]] = {
    "priority": priority,
    "elastic": elastic,
}
_SCORES: Final[Mapping[str, tuple[float, ScorePlugin]]] = {
    "nominatednode": (10_000_000.0, nominated_node),
    "nodeavailability": (1_000.0, availability),
    "resourcetype": (10.0, resource_type),
}
_PACK_SHARES, _SPREAD_SHARES, _SHARING_ORDER = "gpupack", "gpuspread", "gpusharingorder"
_PLACEMENT: Final = "nodeplacement"
_PLACEMENTS: Final[Mapping[str, ScorePlugin]] = {"binpack": binpack, "spread": spread}
_PLACEMENT_WEIGHT: Final = 9.0
_PROPORTION: Final = "proportion"
_MIN_RUNTIME: Final = "minruntime"
_QUOTAS: Final[tuple[QuotaPlugin, ...]] = (within_limit, within_quota, may_borrow)
_K_VALUE: Final = "kValue"
_BUDGETS: Final = ("best-effort", "always")

# Always on: without them pods would be bound where they cannot run, or sub-groups would be split.
ALWAYS_ON: Final = ("predicates", "subgrouporder", "taskorder", "kubeflow", "ray", "snapshot")
NOT_BUILT: Final = (
    "podaffinity",
    "dynamicresources",
    "topology",
    "numa",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
    "reflectjoborder",
)
PLUGINS: Final = (
    *_PODGROUP_ORDER,
    *_SCORES,
    _PACK_SHARES,
    _SPREAD_SHARES,
    _SHARING_ORDER,
    _PLACEMENT,
    _PROPORTION,
    _MIN_RUNTIME,
    *ALWAYS_ON,
    *NOT_BUILT,
)
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (*_PODGROUP_ORDER, *_SCORES, _PACK_SHARES, _SPREAD_SHARES, _SHARING_ORDER, *ALWAYS_ON), ()
    ),
    _PLACEMENT: ("cpu", "gpu"),
    _PROPORTION: (_K_VALUE,),
    _MIN_RUNTIME: MIN_RUNTIME_ARGUMENTS,
}


class PluginSelection(NamedTuple):
    """The settings of one plugin; None keeps the default."""

    enabled: bool | None = None
    arguments: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class PolicySelection:
    """What the configuration selects; what it does not mention has the default of KAI."""

    plugins: Mapping[str, PluginSelection] = field(default_factory=dict)
    gpu_placement: str = "binpack"
    cpu_placement: str = "binpack"
    actions: Mapping[str, bool] = field(default_factory=dict)
    max_relocated: int = 16  # candidates that consolidation tries; below zero: all
    victim_order: str = "kai"
    disruption_budgets: str = "best-effort"  # in reclaim; always: as in all else


def selection_errors(selection: PolicySelection) -> Iterator[str]:
    """Yield invalid values, with the valid ones, and values that have no effect yet."""
    for name in selection.plugins:
        if name not in PLUGINS:
            yield f"plugin {name!r} is unknown; known plugins: {', '.join(sorted(PLUGINS))}"
    yield from _ineffective_settings(selection)
    for name in selection.actions:
        if name not in ACTIONS:
            yield f"action {name!r} is unknown; known actions: {', '.join(ACTIONS)}"
    for kind, placement in _placements(selection).items():
        if placement not in _PLACEMENTS:
            yield f"{kind} placement {placement!r} is unknown; valid values: binpack, spread"
    if selection.victim_order not in VICTIM_ORDERS:
        yield (
            f"victim order {selection.victim_order!r} is unknown; valid values: "
            f"{', '.join(VICTIM_ORDERS)}"
        )
    if selection.disruption_budgets not in _BUDGETS:
        unknown = f"disruption budget mode {selection.disruption_budgets!r} is unknown"
        yield f"{unknown}; valid values: {', '.join(_BUDGETS)}"
    if _K_VALUE in _arguments(selection, _PROPORTION):
        yield f"{_K_VALUE} has no effect: fair share over time (past use) is not supported yet"
    yield from argument_errors(_arguments(selection, _MIN_RUNTIME))


def _ineffective_settings(selection: PolicySelection) -> Iterator[str]:
    for name, it in sorted(selection.plugins.items()):
        if name in ALWAYS_ON and it.enabled is False:
            yield f"plugin {name!r} is always enabled"
        known = _ARGUMENTS.get(name)
        for argument in sorted(it.arguments) if known is not None else ():
            if argument not in (known or ()):
                valid = f"known arguments: {', '.join(known)}" if known else "it has no arguments"
                yield f"argument {argument!r} of plugin {name!r} is unknown; {valid}"


def build_policies(selection: PolicySelection) -> Policies:
    """Return the selected policies; invalid values are ignored."""
    placements = {kind: _PLACEMENTS.get(it, binpack) for kind, it in _placements(selection).items()}
    scores = [score for name, score in _SCORES.items() if _is_on(selection, name)]
    packs_shares = _packs_shares(selection)
    if _is_on(selection, _SHARING_ORDER, is_default=packs_shares):
        scores.append((10_000.0, shared_gpu))
    if _is_on(selection, _PLACEMENT):
        scores.append((_PLACEMENT_WEIGHT, by_resource_type(placements["gpu"], placements["cpu"])))
    return Policies(
        scores=tuple(scores),
        podgroup_order=tuple(
            key for name, key in _PODGROUP_ORDER.items() if _is_on(selection, name)
        ),
        quotas=_QUOTAS if _is_on(selection, _PROPORTION) else (),
        min_runtime=(
            min_runtime(_arguments(selection, _MIN_RUNTIME))
            if _is_on(selection, _MIN_RUNTIME)
            else None
        ),
        actions=tuple(name for name in ACTIONS if selection.actions.get(name, True)),
        max_relocated=selection.max_relocated,
        victim_order=VICTIM_ORDERS.get(selection.victim_order),
        is_budget_strict=selection.disruption_budgets == "always",
        spreads_shares=not packs_shares,
    )


def _packs_shares(selection: PolicySelection) -> bool:
    """Say whether shares go to the GPU with the most used; KAI's plugins outrank the placement."""
    is_packed = _placements(selection)["gpu"] != "spread"
    if _is_on(selection, _SPREAD_SHARES, is_default=not is_packed):
        return _is_on(selection, _PACK_SHARES, is_default=is_packed)
    return True


def _placements(selection: PolicySelection) -> Mapping[str, str]:
    arguments = _arguments(selection, _PLACEMENT)
    return {
        "gpu": arguments.get("gpu", selection.gpu_placement),
        "cpu": arguments.get("cpu", selection.cpu_placement),
    }


def _arguments(selection: PolicySelection, name: str) -> Mapping[str, str]:
    return selection.plugins.get(name, PluginSelection()).arguments


def _is_on(selection: PolicySelection, name: str, *, is_default: bool = True) -> bool:
    enabled = selection.plugins.get(name, PluginSelection()).enabled
    return is_default if enabled is None else enabled
