"""What the cases are worth: planners that know too little fail most of them."""

import pytest

from tests.scheduler.cases.test_cases import options_of
from tests.support.cases import all_cases, faults
from tests.support.planners import Planner, plan_first_fit, plan_nothing
from trainer_kai.cli.simulation import simulate

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
