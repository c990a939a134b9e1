"""What counts as the condition of an object: a wait for Complete ends with it, and not before."""

from e2e.cluster.trainjobs import condition


def test_only_a_condition_that_is_true_holds() -> None:
    """One that is unknown, absent or another's does not."""
    status = {"conditions": [{"type": it, "status": it} for it in ("True", "False", "Unknown")]}
    held = [it for it in ("True", "False", "Unknown", "no") if condition({"status": status}, it)]

    assert held == ["True"]
    assert not any(condition(it, "True") for it in ({}, {"status": {"conditions": None}}))
