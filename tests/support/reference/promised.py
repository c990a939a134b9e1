"""Which queues have their turn before all others: rule 10a."""

from tests.support.reference.things import Cluster, Queue, Unit
from tests.support.reference.turns import is_promised

__all__ = ["lateness"]


def lateness(cluster: Cluster, units: list[Unit], queue: Queue, best: Unit) -> int:
    """Say whether the best unit below a queue was promised something, or another, or none."""
    if is_promised(cluster, best):
        return 0
    below = [one for one in units if queue in cluster.way_up(one.queue)]
    return 1 if any(is_promised(cluster, one) for one in below) else 2
