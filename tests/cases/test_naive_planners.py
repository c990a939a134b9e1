"""Naive planners fail most of the cases."""

import pytest

from tests.cases.case_files import all_cases, faults, options_of
from tests.cases.naive_planners import Planner, plan_first_fit, plan_nothing
from trainer_kai.cli.commands.simulate.simulation import simulate

_MOST_PASSED = 0.25


@pytest.mark.parametrize("planner", [plan_nothing, plan_first_fit])
def test_a_planner_that_knows_too_little_fails(planner: Planner) -> None:
    """It passes one case of four at most; and there are three hundred at least."""
    cases = all_cases()
    passed = [
        case.name
        for case in cases
        if not faults(case, simulate(case.objects, options_of(case), planner))
    ]
    assert len(cases) >= 300
    assert len(passed) <= _MOST_PASSED * len(cases), passed
