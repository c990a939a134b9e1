"""Within a queue, who is more important goes first."""

from scheduler.policies.priority import priority
from tests.scheduler.policies.test_elastic import unit


def test_the_more_important_comes_first() -> None:
    """However much it has."""
    assert priority(unit(75), 1) < priority(unit(50), -1) < priority(unit(-5), -1)
