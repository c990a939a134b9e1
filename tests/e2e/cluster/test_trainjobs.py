"""What counts as the condition of an object: a wait for Complete ends with it, and not before."""

import pytest

from e2e.cluster.resources import Obj
from e2e.cluster.trainjobs import condition


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        ({"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, False),
        ({"conditions": [{"type": "Complete", "status": "Unknown"}]}, False),
        ({"conditions": [{"type": "Failed", "status": "True"}]}, False),
        ({"conditions": None}, False),
        ({}, False),
    ],
)
def test_only_a_condition_that_is_true_holds(status: Obj, holds: bool) -> None:
    """One that is unknown, absent or another's does not."""
    assert condition({"status": status}, "Complete") is holds
