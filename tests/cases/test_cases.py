"""A simulation of each case decides what the rules decide by hand."""

import pytest

from tests.cases.case_files import check_all, faults, options_of
from trainer_kai.cli.commands.simulate.simulation import simulate


@pytest.mark.parametrize("step", [1, -1], ids=["as written", "backwards"])
def test_the_rules_hold(step: int) -> None:
    """Every case is answered as it should be, also when its objects are given backwards."""
    check_all(lambda case: faults(case, simulate(case.objects[::step], options_of(case))))
