"""Within a queue, who lacks what it needs goes first."""

from scheduler.core.model import PodGroupInfo, PodSet
from scheduler.policies.elastic import elastic


def unit(important: int) -> PodGroupInfo:
    """Return a unit."""
    return PodGroupInfo("it", 0, important, is_preemptible=True, tree=PodSet("a", 1))


def test_who_lacks_something_comes_first() -> None:
    """Then who has just what it needs, however important it is."""
    assert elastic(unit(1), -1) < elastic(unit(9), 0) < elastic(unit(99), 1)
