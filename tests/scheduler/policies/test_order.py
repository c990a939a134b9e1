"""Within a queue, the PodGroup with the larger priority comes first."""

from scheduler.core.model.podgroup import PodGroupInfo, PodSet
from scheduler.policies.registry import elastic, priority


def test_the_more_important_comes_first() -> None:
    assert priority(unit(75), 1) < priority(unit(50), -1) < priority(unit(-5), -1)


def unit(important: int) -> PodGroupInfo:
    return PodGroupInfo("it", 0, important, is_preemptible=True, tree=PodSet("a", 1))


def test_a_podgroup_below_its_minimum_comes_first() -> None:
    """Then a PodGroup at its minimum, whatever its priority."""
    assert elastic(unit(1), -1) < elastic(unit(9), 0) < elastic(unit(99), 1)
