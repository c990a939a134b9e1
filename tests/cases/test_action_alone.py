"""An action that runs alone evicts as it does after allocate."""

from dataclasses import replace
from typing import Any

import pytest

from tests.cases.case_files import SchedulerCase, all_cases
from tests.cases.test_cases import options_of
from trainer_kai.cli.commands.simulate.simulation import simulate

_PLACED = ("binds", "nominations", "reservations")


def first_cycle(case: SchedulerCase, *actions: str) -> dict[str, Any]:
    """Return what the first plan with some actions decides."""
    options = replace(options_of(case), actions=actions, cycles=1)
    cycle: dict[str, Any] = simulate(case.objects, options)["cycles"][0]
    return cycle


def places_before(case: SchedulerCase) -> bool:
    """Say whether allocate places something: a PodGroup with room is not bound without it."""
    return any(first_cycle(case, "allocate")[it] for it in _PLACED)


@pytest.mark.parametrize(
    ("action", "least"), [("reclaim", 140), ("preempt", 30), ("consolidation", 12)]
)
def test_an_action_alone_evicts_as_after_allocate(action: str, least: int) -> None:
    """Where allocate places nothing the rest is the same too."""
    evicting, different = 0, []
    for case in all_cases():
        if action not in str(case.expect.get("evictions", "")):
            continue
        after, alone = first_cycle(case, "allocate", action), first_cycle(case, action)
        evicting += bool(after["evictions"])
        if after["evictions"] != alone["evictions"] or (after != alone and not places_before(case)):
            different.append(case.name)

    assert evicting >= least
    assert different == []
