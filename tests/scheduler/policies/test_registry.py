"""Policies by the names of KAI's settings."""

from typing import Final

import pytest

from scheduler.core.policy import Policies, Seats
from scheduler.policies.availability import availability
from scheduler.policies.elastic import elastic
from scheduler.policies.nominated_node import nominated_node
from scheduler.policies.placement import binpack, spread
from scheduler.policies.priority import priority
from scheduler.policies.quota import may_borrow, within_limit, within_quota
from scheduler.policies.registry import (
    ACTIONS,
    FIXED,
    PLUGINS,
    Choice,
    PluginChoice,
    choice_faults,
    choose,
)
from scheduler.policies.resource_type import resource_type
from tests.support.case import Case, ids
from tests.support.snapshots import shape

OFF: Final = PluginChoice(enabled=False)
SEATS: Final = Seats(1, 2, 8, fits_now=True, has_gpu=True, is_nominated=False)


def arguments(plugin: str, **given: str) -> Choice:
    """Return a choice of arguments."""
    return Choice(plugins={plugin: PluginChoice(arguments=given)})


def without(*plugins: str) -> Choice:
    """Return a choice without some plugins."""
    return Choice(plugins=dict.fromkeys(plugins, OFF))


# a choice -> what is said of it, by the beginning
FAULTS: list[Case[Choice, list[str]]] = [
    Case("nothing is chosen", Choice(), []),
    Case(
        "an unknown plugin",
        without("proporton"),
        ["plugin 'proporton' is unknown; there are dynamicresources, "],
    ),
    Case("every plugin of KAI's is known", without(*(set(PLUGINS) - set(FIXED))), []),
    Case("what is always on", without("ray"), ["plugin 'ray' is always on"]),
    Case(
        "an unknown action",
        Choice(actions={"steal": True}),
        ["action 'steal' is unknown; there are allocate, "],
    ),
    Case("every action of KAI's is known", Choice(actions=dict.fromkeys(ACTIONS, True)), []),
    Case(
        "an unknown placement",
        Choice(gpu_placement="stack", cpu_placement="spread"),
        ["placement 'stack' of gpu is unknown: binpack or spread"],
    ),
    Case(
        "an unknown placement among arguments",
        arguments("nodeplacement", cpu="heap"),
        ["placement 'heap' of cpu is unknown: binpack or spread"],
    ),
    Case(
        "a meaning of budgets that there is not",
        Choice(disruption_budgets="never"),
        [
            "what budgets of disruption mean, 'never', is unknown; there are best-effort, always",
        ],
    ),
    Case(
        "an order of victims that there is not",
        Choice(victims="oldest"),
        ["order of victims 'oldest' is unknown; there are kai, least-work-lost, fewest-units"],
    ),
    Case(
        "what is not built yet",
        arguments("proportion", kValue="0.5"),
        ["kValue has no effect: fair share over time"],
    ),
    Case(
        "all at once",
        Choice({"x": OFF}, "y", "z", {"w": False}),
        ["plugin 'x'", "action 'w'", "placement 'y' of gpu", "placement 'z' of cpu"],
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_faults(case: Case[Choice, list[str]]) -> None:
    """What cannot be meant is told, with what would be right."""
    told = list(choice_faults(case.given))
    assert len(told) == len(case.want)
    assert all(text.startswith(want) for text, want in zip(told, case.want, strict=True))


def test_what_nobody_chose_is_as_kai_has_it() -> None:
    """Weights far apart: each step decides only where those before it say the same."""
    got = choose(Choice())
    weights = [weight for weight, _ in got.scores]
    assert weights == [10_000_000.0, 1_000.0, 10.0, 9.0]
    assert [score for _, score in got.scores[:3]] == [nominated_node, availability, resource_type]
    assert got.unit_order == (priority, elastic)
    assert got.quotas == (within_limit, within_quota, may_borrow)
    assert got.actions == ACTIONS


def placements(choice: Choice) -> tuple[str, str]:
    """Return how pods with GPUs are placed, and how others."""
    names = {binpack(shape(), SEATS): "binpack", spread(shape(), SEATS): "spread"}
    score = choose(choice).scores[-1][1]
    return names[score(shape(gpu=1), SEATS)], names[score(shape(), SEATS)]


# a choice -> how pods with GPUs are placed, and how others
PLACEMENTS: list[Case[Choice, tuple[str, str]]] = [
    Case("nothing is chosen", Choice(), ("binpack", "binpack")),
    Case("of the shard", Choice(gpu_placement="spread"), ("spread", "binpack")),
    Case("of the shard, for CPU", Choice(cpu_placement="spread"), ("binpack", "spread")),
    Case(
        "arguments of the plugin win",
        Choice({"nodeplacement": PluginChoice(arguments={"gpu": "spread"})}, "binpack", "spread"),
        ("spread", "spread"),
    ),
    Case(
        "what cannot be meant is as if it were not there",
        Choice(gpu_placement="x"),
        ("binpack", "binpack"),
    ),
]


@pytest.mark.parametrize("case", PLACEMENTS, ids=ids)
def test_placement(case: Case[Choice, tuple[str, str]]) -> None:
    """Each kind by itself."""
    assert placements(case.given) == case.want


def counted(policies: Policies) -> tuple[int, int, int]:
    """Return how many scores, orders and quotas there are."""
    return len(policies.scores), len(policies.unit_order), len(policies.quotas)


# plugins that are off -> how many scores, orders and quotas are left
WITHOUT: list[Case[tuple[str, ...], tuple[int, int, int]]] = [
    Case("none", (), (4, 2, 3)),
    Case("the promised node", ("nominatednode",), (3, 2, 3)),
    Case("placement", ("nodeplacement",), (3, 2, 3)),
    Case("priority", ("priority",), (4, 1, 3)),
    Case("bounds", ("proportion",), (4, 2, 0)),
    Case("what is always on stays on", ("predicates", "subgrouporder", "taskorder"), (4, 2, 3)),
    Case("what is not built yet", ("topology", "numa"), (4, 2, 3)),
    Case("all", PLUGINS, (0, 0, 0)),
]


@pytest.mark.parametrize("case", WITHOUT, ids=ids)
def test_what_is_off_is_left_out(case: Case[tuple[str, ...], tuple[int, int, int]]) -> None:
    """Nothing else changes."""
    assert counted(choose(without(*case.given))) == case.want


def test_on_is_what_nobody_turned_off() -> None:
    """Whoever only gives arguments does not turn a plugin off."""
    both = Choice(plugins={"priority": PluginChoice(True), "elastic": PluginChoice()})
    assert counted(choose(both)) == counted(choose(Choice()))


def test_actions() -> None:
    """Those that are built, unless they are off."""
    assert choose(Choice(actions={"reclaim": True})).actions == ACTIONS
    assert choose(Choice(actions={"allocate": False, "reclaim": True})).actions == ACTIONS[1:]


def test_no_name_stands_for_two() -> None:
    """And all of KAI's names are in lower case, as it writes them."""
    assert len(set(PLUGINS)) == len(PLUGINS)
    assert all(name == name.lower() for name in (*PLUGINS, *ACTIONS))
