"""A simulation of each case decides what the rules decide by hand."""

from datetime import datetime
from typing import Any

import pytest

from tests.cases.case_files import SchedulerCase, check_all, faults
from trainer_kai.cli.commands.simulate.simulation import SimulationOptions, simulate


def options_of(case: SchedulerCase) -> SimulationOptions:
    """Return the flags of a case as the simulation takes them."""
    given: dict[str, Any] = dict(case.options)
    if "actions" in given:
        given["actions"] = tuple(given["actions"].split(","))
    if "now" in given:
        given["now"] = int(datetime.fromisoformat(given["now"]).timestamp())
    return SimulationOptions(**given)


@pytest.mark.parametrize("step", [1, -1], ids=["as written", "backwards"])
def test_the_rules_hold(step: int) -> None:
    """Every case is answered as it should be, also when its objects are given backwards."""
    check_all(lambda case: faults(case, simulate(case.objects[::step], options_of(case))))
