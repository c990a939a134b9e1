"""All policies by the names that KAI's settings have for them: the one list.

Policies are plain functions of the kinds in `scheduler.core.model.result`: orders of PodGroups and
of victims, quota checks, and scores of nodes. Limits and quotas are checked from the queue up, and
every bound that would be exceeded is reported. A resource that is not requested is not checked, so
that a queue above its limit can still start PodGroups that need other resources. Plugins that are
not supported yet are known by name, so that settings made for KAI are accepted.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from scheduler.core.model.line import DEFAULT_LINE, LineSettings
from scheduler.core.model.podgroup import PodGroupInfo, SchedulingSignature
from scheduler.core.model.rejections import QueueBoundExceeded
from scheduler.core.model.resources import RESOURCE_KINDS, UNBOUND, Amounts, ResourceKind
from scheduler.core.model.result import (
    MOST_FRAGMENT_RANK,
    MinRuntime,
    NodeFeatures,
    PodGroupOrderPlugin,
    Policies,
    QuotaPlugin,
    QuotaRefusal,
    ScorePlugin,
    ScoreValue,
    VictimOrderPlugin,
)
from scheduler.core.model.usage import Usage
from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.api.scheduler_names import (
    ACTIONS,
    ALWAYS_ON_PLUGINS,
    ELASTIC,
    GPU_PACK,
    GPU_SHARING_ORDER,
    GPU_SPREAD,
    MIN_RUNTIME,
    NODE_AVAILABILITY,
    NODE_PLACEMENT,
    NOMINATED_NODE,
    PLUGINS,
    PRIORITY,
    PROPORTION,
    RESOURCE_TYPE,
    SUPPORTED_PLUGINS,
    TOPOLOGY_PLUGIN,
    Action,
)


def priority(podgroup: PodGroupInfo, _min_available_state: int) -> int:
    return -podgroup.priority


def elastic(_podgroup: PodGroupInfo, min_available_state: int) -> int:
    return min_available_state


def _least_work(_amounts: Amounts, lost_work: int, _requested: Amounts) -> int:
    return lost_work


def _most_released(amounts: Amounts, _lost_work: int, requested: Amounts) -> int:
    """More than is requested counts no more."""
    kind = ResourceKind.GPU if requested[ResourceKind.GPU] else ResourceKind.CPU
    return -min(amounts[kind], requested[kind])


VICTIM_ORDERS: Final[Mapping[str, VictimOrderPlugin | None]] = {
    "kai": None,
    "least-work-lost": VictimOrderPlugin(
        _least_work, "victims that lose the least work are evicted first"
    ),
    "fewest-podgroups": VictimOrderPlugin(
        _most_released, "victims that release the most are evicted first"
    ),
}


_UNBOUND: Final = [UNBOUND] * len(RESOURCE_KINDS)


def within_limit(usage: Usage, podgroup: PodGroupInfo, requested: Amounts) -> QuotaRefusal | None:
    path = usage.paths[podgroup.queue]
    details = _exceeded(path, usage.limit, usage.allocated, requested)
    return QuotaRefusal(UnschedulableReason.EXCEEDS_LIMIT, details) if details else None


def within_quota(usage: Usage, podgroup: PodGroupInfo, requested: Amounts) -> QuotaRefusal | None:
    if podgroup.is_preemptible:
        return None
    details = _exceeded(usage.paths[podgroup.queue], usage.quota, usage.non_preemptible, requested)
    return (
        QuotaRefusal(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, details) if details else None
    )


def may_borrow(usage: Usage, podgroup: PodGroupInfo, requested: Amounts) -> QuotaRefusal | None:
    """Refuse more of a resource of which a queue has unevictable usage above its quota.

    A queue with unevictable PodGroups could otherwise borrow everything, PodGroup by PodGroup.
    """
    queue = podgroup.queue
    unevictable = usage.unevictable.get(queue)
    if unevictable is None:
        return None
    columns = zip(
        RESOURCE_KINDS,
        usage.quota[queue],
        usage.non_preemptible[queue],
        requested,
        unevictable.amounts,
        strict=True,
    )
    details = [
        QueueBoundExceeded(queue, kind, quota, fixed, more, unevictable=unevictable.podgroups)
        for kind, quota, fixed, more, unevictable_amount in columns
        if quota != UNBOUND and more > 0 and unevictable_amount and fixed > quota
    ]
    if not details:
        return None
    first = details[0]._replace(others=tuple(details[1:]))
    return QuotaRefusal(UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA, first)


def _exceeded(
    path: tuple[int, ...], bounds: list[list[int]], has: list[list[int]], requested: Amounts
) -> QueueBoundExceeded | None:
    passed: list[QueueBoundExceeded] = []
    for q in path:
        if bounds[q] == _UNBOUND:
            continue  # called for every PodGroup, and most queues have no bound
        for kind, bound, before, more in zip(
            RESOURCE_KINDS, bounds[q], has[q], requested, strict=True
        ):
            if bound != UNBOUND and more > 0 and before + more > bound:
                passed.append(QueueBoundExceeded(q, kind, bound, before, more))
    return passed[0]._replace(others=tuple(passed[1:])) if passed else None


def availability(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    return 1 * features.fits_idle


def nominated_node(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    return 1 * features.is_nominated


def shared_gpu(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    return 1 * features.shares_device


def binpack(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Less than nothing free counts as nothing."""
    return 1 - features.free * (features.free > 0) / max(features.max_allocatable, 1)


def spread(_signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Less than nothing free counts as nothing."""
    return (
        features.free * (features.free > 0) / (features.allocatable + (features.allocatable == 0))
    )


def fragmentation(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    """Prefer the least growth of what typical pods cannot use; without GPUs as `binpack`."""
    fullness = binpack(signature, features) * (1 - 1 * features.has_gpu)
    return 0.5 + (fullness / 2 - features.fragment_rank) / (2 * MOST_FRAGMENT_RANK + 2)


def by_resource_type(gpu: ScorePlugin, cpu: ScorePlugin) -> ScorePlugin:
    def score(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
        return gpu(signature, features) if signature.has_gpu else cpu(signature, features)

    return score


def resource_type(signature: SchedulingSignature, features: NodeFeatures) -> ScoreValue:
    return 0 * features.has_gpu if signature.has_gpu else 1 - 1 * features.has_gpu


_RESOLVE: Final = "reclaimResolveMethod"
_PREEMPT: Final = "defaultPreemptMinRuntime"
_RECLAIM: Final = "defaultReclaimMinRuntime"
_RESOLVE_METHODS: Final = ("lca", "queue")  # the first is KAI's choice
_MILLISECONDS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_DURATION_PART: Final = re.compile(r"([0-9]{1,9})(ms|[smhdw])")
_MAX_LENGTH: Final = 64


def min_runtime(arguments: Mapping[str, str]) -> MinRuntime:
    """Invalid values are ignored: `argument_errors` reports them."""
    return MinRuntime(
        preempt_s=_seconds(arguments.get(_PREEMPT, "")) or 0,
        reclaim_s=_seconds(arguments.get(_RECLAIM, "")) or 0,
        from_victim_queue=arguments.get(_RESOLVE) == "queue",
    )


def argument_errors(arguments: Mapping[str, str]) -> Iterator[str]:
    for name in (_PREEMPT, _RECLAIM):
        if name in arguments and _seconds(arguments[name]) is None:
            valid = 'must be a duration such as "90s", "10m" or "2d"'
            yield f"{name} of minruntime {valid}, not {arguments[name]!r}"
    if arguments.get(_RESOLVE, "lca") not in _RESOLVE_METHODS:
        valid = f'must be "{_RESOLVE_METHODS[0]}", the default, or "{_RESOLVE_METHODS[1]}"'
        yield f"{_RESOLVE} of minruntime {valid}, not {arguments[_RESOLVE]!r}"


def _seconds(text: str) -> int | None:
    """Round up to whole seconds; return None for what is no duration."""
    parts = _DURATION_PART.findall(text[:_MAX_LENGTH])
    if text == "0":
        return 0
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return -(-sum(int(number) * _MILLISECONDS[unit] for number, unit in parts) // 1000)


_PODGROUP_ORDER: Final[Mapping[str, PodGroupOrderPlugin]] = {PRIORITY: priority, ELASTIC: elastic}
_SCORES: Final[Mapping[str, tuple[float, ScorePlugin]]] = {
    NOMINATED_NODE: (10_000_000.0, nominated_node),
    NODE_AVAILABILITY: (1_000.0, availability),
    RESOURCE_TYPE: (10.0, resource_type),
}
_PLACEMENTS: Final[Mapping[str, ScorePlugin]] = {
    "binpack": binpack,
    "spread": spread,
    "fragmentation": fragmentation,
}
_PLACEMENT_WEIGHT: Final = 9.0
_QUOTAS: Final[tuple[QuotaPlugin, ...]] = (within_limit, within_quota, may_borrow)
_K_VALUE: Final = "kValue"
_BUDGETS: Final = ("best-effort", "always")
# Of the plugins that are supported; of others arguments are not checked.
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((*SUPPORTED_PLUGINS, *ALWAYS_ON_PLUGINS), ()),
    NODE_PLACEMENT: ("cpu", "gpu"),
    PROPORTION: (_K_VALUE,),
    MIN_RUNTIME: (_PREEMPT, _RECLAIM, _RESOLVE),
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
    line: LineSettings = DEFAULT_LINE


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
            valid = ", ".join(_PLACEMENTS)
            yield f"{kind} placement {placement!r} is unknown; valid values: {valid}"
    if selection.victim_order not in VICTIM_ORDERS:
        yield (
            f"victim order {selection.victim_order!r} is unknown; valid values: "
            f"{', '.join(VICTIM_ORDERS)}"
        )
    if selection.disruption_budgets not in _BUDGETS:
        unknown = f"disruption budget mode {selection.disruption_budgets!r} is unknown"
        yield f"{unknown}; valid values: {', '.join(_BUDGETS)}"
    if _K_VALUE in _arguments(selection, PROPORTION):
        yield f"{_K_VALUE} has no effect: fair share over time (past use) is not supported yet"
    yield from argument_errors(_arguments(selection, MIN_RUNTIME))


def _ineffective_settings(selection: PolicySelection) -> Iterator[str]:
    for name, it in sorted(selection.plugins.items()):
        if name in ALWAYS_ON_PLUGINS and it.enabled is False:
            yield f"plugin {name!r} is always enabled"
        known = _ARGUMENTS.get(name)
        for argument in sorted(it.arguments) if known is not None else ():
            if argument not in (known or ()):
                valid = f"known arguments: {', '.join(known)}" if known else "it has no arguments"
                yield f"argument {argument!r} of plugin {name!r} is unknown; {valid}"


def build_policies(selection: PolicySelection) -> Policies:
    """Invalid values are ignored: `selection_errors` reports them."""
    placements = {kind: _PLACEMENTS.get(it, binpack) for kind, it in _placements(selection).items()}
    policies = _policies(selection, placements)
    if not policies.minds_fragments[True]:
        return policies
    of_gangs = _policies(selection, {**placements, "gpu": binpack})
    return replace(policies, of_gangs=of_gangs)


def _policies(selection: PolicySelection, placements: Mapping[str, ScorePlugin]) -> Policies:
    scores = [score for name, score in _SCORES.items() if _is_on(selection, name)]
    packs_shares = _packs_shares(selection)
    # Where the fragments are smallest is not always where a GPU is shared.
    prefers_shared = packs_shares and placements["gpu"] is not fragmentation
    if _is_on(selection, GPU_SHARING_ORDER, is_default=prefers_shared):
        scores.append((10_000.0, shared_gpu))
    has_placement = _is_on(selection, NODE_PLACEMENT)
    if has_placement:
        scores.append((_PLACEMENT_WEIGHT, by_resource_type(placements["gpu"], placements["cpu"])))
    return Policies(
        scores=tuple(scores),
        podgroup_order=tuple(
            key for name, key in _PODGROUP_ORDER.items() if _is_on(selection, name)
        ),
        quotas=_QUOTAS if _is_on(selection, PROPORTION) else (),
        min_runtime=(
            min_runtime(_arguments(selection, MIN_RUNTIME))
            if _is_on(selection, MIN_RUNTIME)
            else None
        ),
        actions=tuple(Action(it) for it in ACTIONS if selection.actions.get(it, True)),
        max_relocated=selection.max_relocated,
        victim_order=VICTIM_ORDERS.get(selection.victim_order),
        line=selection.line,
        is_budget_strict=selection.disruption_budgets == "always",
        minds_fragments=(
            has_placement and placements["cpu"] is fragmentation,
            has_placement and placements["gpu"] is fragmentation,
        ),
        spreads_shares=not packs_shares,
        places_by_topology=_is_on(selection, TOPOLOGY_PLUGIN),
    )


def _packs_shares(selection: PolicySelection) -> bool:
    """Say whether shares go to the GPU with the most used; KAI's plugins outrank the placement."""
    is_packed = _placements(selection)["gpu"] != "spread"
    if _is_on(selection, GPU_SPREAD, is_default=not is_packed):
        return _is_on(selection, GPU_PACK, is_default=is_packed)
    return True


def _placements(selection: PolicySelection) -> Mapping[str, str]:
    arguments = _arguments(selection, NODE_PLACEMENT)
    return {
        "gpu": arguments.get("gpu", selection.gpu_placement),
        "cpu": arguments.get("cpu", selection.cpu_placement),
    }


def _arguments(selection: PolicySelection, name: str) -> Mapping[str, str]:
    return selection.plugins.get(name, PluginSelection()).arguments


def _is_on(selection: PolicySelection, name: str, *, is_default: bool = True) -> bool:
    enabled = selection.plugins.get(name, PluginSelection()).enabled
    return is_default if enabled is None else enabled
