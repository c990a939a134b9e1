"""Which queues have their turn before all others: rule 10a."""

from tests.support.reference.things import Cluster, Queue, Unit
from tests.support.reference.turns import is_promised

__all__ = ["is_early"]


def is_early(cluster: Cluster, units: list[Unit], queue: Queue) -> bool:
    """Say whether one of the units that wait below a queue was promised something."""
    return any(is_promised(cluster, one) and queue in cluster.way_up(one.queue) for one in units)
