"""What a simulation makes of each case is what the rules make of it by hand."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import Case, case_files, faults, read_case
from trainer_kai.cli.simulation import Options, simulate


def options_of(case: Case) -> Options:
    """Return the flags of a case as the simulation takes them."""
    given: dict[str, Any] = dict(case.options)
    if "actions" in given:
        given["actions"] = tuple(given["actions"].split(","))
    if "now" in given:
        given["now"] = int(datetime.fromisoformat(given["now"]).timestamp())
    return Options(**given)


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_the_rules_hold(path: Path) -> None:
    """Every case is answered as it should be."""
    case = read_case(path)

    assert faults(case, simulate(case.objects, options_of(case))) == []


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_the_order_of_the_objects_does_not_matter(path: Path) -> None:
    """Backwards they are the same cluster."""
    case = read_case(path)

    assert faults(case, simulate(case.objects[::-1], options_of(case))) == []
