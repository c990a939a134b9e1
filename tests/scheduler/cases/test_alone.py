"""An action asked for alone evicts as it does after allocate, where allocate places nothing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.scheduler.cases.test_cases import options_of
from tests.support.cases import Case, all_cases
from trainer_kai.cli.simulation import simulate

_PLACED = ("binds", "nominations", "reservations")


def first_cycle(case: Case, *actions: str) -> dict[str, Any]:
    """Return what the first plan with some actions decides."""
    options = replace(options_of(case), actions=actions, cycles=1)
    cycle: dict[str, Any] = simulate(case.objects, options)["cycles"][0]
    return cycle


def cases_without_binds(action: str) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield the cases in which an action evicts and allocate places nothing, and the first plan."""
    for case in all_cases():
        if action not in str(case.expect.get("evictions", "")):
            continue
        alone = first_cycle(case, "allocate")
        both = first_cycle(case, "allocate", action)
        if both["evictions"] and not any(alone[it] for it in _PLACED):
            yield case, both


@pytest.mark.parametrize(
    ("action", "least"), [("reclaim", 80), ("preempt", 20), ("consolidation", 8)]
)
def test_an_action_alone_evicts_as_after_allocate(action: str, least: int) -> None:
    """It acts on the pending pods as they stand, and says of the others why they wait."""
    found = list(cases_without_binds(action))
    different = [case.name for case, both in found if first_cycle(case, action) != both]

    assert len(found) >= least
    assert different == []
