"""Policies by the names of KAI's settings."""

from typing import Final

import pytest

from scheduler.core.model.result import NodeFeatures, Policies
from scheduler.policies.registry import (
    PluginSelection,
    PolicySelection,
    availability,
    binpack,
    build_policies,
    elastic,
    may_borrow,
    nominated_node,
    priority,
    resource_type,
    selection_errors,
    shared_gpu,
    spread,
    within_limit,
    within_quota,
)
from tests.support.case import Case, ids
from tests.support.snapshot.builder import signature
from trainer_kai.api.scheduler_names import ACTIONS, ALWAYS_ON_PLUGINS, PLUGINS

OFF: Final = PluginSelection(enabled=False)
FEATURES: Final = NodeFeatures(1, 2, 8, fits_idle=True, has_gpu=True, is_nominated=False)


def arguments(plugin: str, **given: str) -> PolicySelection:
    return PolicySelection(plugins={plugin: PluginSelection(arguments=given)})


def without(*plugins: str) -> PolicySelection:
    return PolicySelection(plugins=dict.fromkeys(plugins, OFF))


# a choice -> what is said of it, by the beginning
FAULTS: list[Case[PolicySelection, list[str]]] = [
    Case("nothing is chosen", PolicySelection(), []),
    Case(
        "an unknown plugin",
        without("proporton"),
        ["plugin 'proporton' is unknown; known plugins: dynamicresources, "],
    ),
    Case("every plugin of KAI's is known", without(*(set(PLUGINS) - set(ALWAYS_ON_PLUGINS))), []),
    Case("what is always on", without("ray"), ["plugin 'ray' is always enabled"]),
    Case(
        "an unknown action",
        PolicySelection(actions={"steal": True}),
        ["action 'steal' is unknown; known actions: allocate, "],
    ),
    Case(
        "every action of KAI's is known", PolicySelection(actions=dict.fromkeys(ACTIONS, True)), []
    ),
    Case(
        "an unknown placement",
        PolicySelection(gpu_placement="stack", cpu_placement="spread"),
        ["gpu placement 'stack' is unknown; valid values: binpack, spread"],
    ),
    Case(
        "an unknown placement among arguments",
        arguments("nodeplacement", cpu="heap"),
        ["cpu placement 'heap' is unknown; valid values: binpack, spread"],
    ),
    Case(
        "a meaning of budgets that there is not",
        PolicySelection(disruption_budgets="never"),
        [
            "disruption budget mode 'never' is unknown; valid values: best-effort, always",
        ],
    ),
    Case(
        "an order of victims that there is not",
        PolicySelection(victim_order="oldest"),
        ["victim order 'oldest' is unknown; valid values: kai, least-work-lost, fewest-podgroups"],
    ),
    Case(
        "what is not built yet",
        arguments("proportion", kValue="0.5"),
        ["kValue has no effect: fair share over time"],
    ),
    Case(
        "all at once",
        PolicySelection({"x": OFF}, "y", "z", {"w": False}),
        ["plugin 'x'", "action 'w'", "gpu placement 'y'", "cpu placement 'z'"],
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_faults(case: Case[PolicySelection, list[str]]) -> None:
    report = list(selection_errors(case.given))
    assert len(report) == len(case.want)
    assert all(text.startswith(want) for text, want in zip(report, case.want, strict=True))


def test_what_is_not_configured_is_as_in_kai() -> None:
    """Weights far apart: each step decides only where those before it say the same."""
    got = build_policies(PolicySelection())
    weights = [weight for weight, _ in got.scores]
    assert weights == [10_000_000.0, 1_000.0, 10.0, 10_000.0, 9.0]
    assert [score for _, score in got.scores[:3]] == [nominated_node, availability, resource_type]
    assert got.podgroup_order == (priority, elastic)
    assert got.quotas == (within_limit, within_quota, may_borrow)
    assert got.actions == ACTIONS


def placements(choice: PolicySelection) -> tuple[str, str]:
    names = {binpack(signature(), FEATURES): "binpack", spread(signature(), FEATURES): "spread"}
    score = build_policies(choice).scores[-1][1]
    return names[score(signature(gpu=1), FEATURES)], names[score(signature(), FEATURES)]


# a choice -> how pods with GPUs are placed, and how others
PLACEMENTS: list[Case[PolicySelection, tuple[str, str]]] = [
    Case("nothing is chosen", PolicySelection(), ("binpack", "binpack")),
    Case("of the shard", PolicySelection(gpu_placement="spread"), ("spread", "binpack")),
    Case("of the shard, for CPU", PolicySelection(cpu_placement="spread"), ("binpack", "spread")),
    Case(
        "arguments of the plugin win",
        PolicySelection(
            {"nodeplacement": PluginSelection(arguments={"gpu": "spread"})}, "binpack", "spread"
        ),
        ("spread", "spread"),
    ),
    Case(
        "what cannot be meant is as if it were not there",
        PolicySelection(gpu_placement="x"),
        ("binpack", "binpack"),
    ),
]


@pytest.mark.parametrize("case", PLACEMENTS, ids=ids)
def test_placement(case: Case[PolicySelection, tuple[str, str]]) -> None:
    assert placements(case.given) == case.want


# a choice -> whether shares are spread, and whether nodes with shared GPUs are preferred
SHARES: list[Case[PolicySelection, tuple[bool, bool]]] = [
    Case("nothing is chosen", PolicySelection(), (False, True)),
    Case("spread alone spreads shares", PolicySelection(gpu_placement="spread"), (True, False)),
    Case("CPU is spread", PolicySelection(cpu_placement="spread"), (False, True)),
    Case("by fragments", PolicySelection(gpu_placement="fragmentation"), (False, False)),
    Case(
        "spread by the plugins",
        PolicySelection(
            {"gpuspread": PluginSelection(True), "gpupack": PluginSelection(False)},
        ),
        (True, False),
    ),
    Case(
        "packed beside spread nodes",
        PolicySelection({"gpuspread": PluginSelection(False)}, gpu_placement="spread"),
        (False, True),
    ),
]


@pytest.mark.parametrize("case", SHARES, ids=ids)
def test_shares_of_gpus(case: Case[PolicySelection, tuple[bool, bool]]) -> None:
    got = build_policies(case.given)

    assert (got.spreads_shares, shared_gpu in [it for _, it in got.scores]) == case.want


# placement of GPUs and of CPUs -> whether gangs have a placement of their own
OF_GANGS: list[Case[tuple[str, str], bool]] = [
    Case("binpack", ("binpack", "binpack"), False),
    Case("fragmentation", ("fragmentation", "fragmentation"), True),
    Case("of GPUs only", ("fragmentation", "spread"), True),
    Case("of CPUs only", ("binpack", "fragmentation"), False),
]


@pytest.mark.parametrize("case", OF_GANGS, ids=ids)
def test_gangs_are_packed_where_gpus_are_placed_by_fragments(
    case: Case[tuple[str, str], bool],
) -> None:
    """Their scores are those of binpack; all else is as for the others."""
    gpu, cpu = case.given
    found = build_policies(PolicySelection(gpu_placement=gpu, cpu_placement=cpu)).of_gangs
    assert (found is not None) is case.want
    if found is not None:
        one, features = signature(gpu=1), FEATURES._replace(fragment_rank=9)
        packed = build_policies(PolicySelection(cpu_placement=cpu))
        sums = [sum(w * it(one, features) for w, it in of.scores) for of in (found, packed)]
        assert sums[0] == sums[1]


def counted(policies: Policies) -> tuple[int, int, int]:
    return len(policies.scores), len(policies.podgroup_order), len(policies.quotas)


# plugins that are off -> how many scores, orders and quotas are left
WITHOUT: list[Case[tuple[str, ...], tuple[int, int, int]]] = [
    Case("without exceptions all are left", (), (5, 2, 3)),
    Case("the nominated node", ("nominatednode",), (4, 2, 3)),
    Case("without nodeplacement one score is less", ("nodeplacement",), (4, 2, 3)),
    Case("without priority one order is less", ("priority",), (5, 1, 3)),
    Case("without proportion no quota is left", ("proportion",), (5, 2, 0)),
    Case("what is always on stays on", ("predicates", "subgrouporder", "taskorder"), (5, 2, 3)),
    Case("what is not built yet", ("dynamicresources", "numa"), (5, 2, 3)),
    Case(
        "without both share plugins one score is less", ("gpusharingorder", "gpuspread"), (4, 2, 3)
    ),
    Case("without plugins nothing is left", PLUGINS, (0, 0, 0)),
]


@pytest.mark.parametrize("case", WITHOUT, ids=ids)
def test_what_is_off_is_left_out(case: Case[tuple[str, ...], tuple[int, int, int]]) -> None:
    assert counted(build_policies(without(*case.given))) == case.want


def test_plugins_are_on_unless_turned_off() -> None:
    """A plugin with arguments only is not turned off."""
    both = PolicySelection(
        plugins={"priority": PluginSelection(True), "elastic": PluginSelection()}
    )
    assert counted(build_policies(both)) == counted(build_policies(PolicySelection()))


def test_actions() -> None:
    assert build_policies(PolicySelection(actions={"reclaim": True})).actions == ACTIONS
    assert (
        build_policies(PolicySelection(actions={"allocate": False, "reclaim": True})).actions
        == ACTIONS[1:]
    )


def test_no_name_stands_for_two() -> None:
    """And all of KAI's names are in lower case, as it writes them."""
    assert len(set(PLUGINS)) == len(PLUGINS)
    assert all(name == name.lower() for name in (*PLUGINS, *ACTIONS))
