"""Which queues have their turn before those that are due less: rule 10a."""

from tests.support.reference import rights
from tests.support.reference.amounts import axes
from tests.support.reference.evicting import queues_of
from tests.support.reference.things import Cluster, Queue, Unit
from tests.support.reference.trees import chunk
from tests.support.reference.turns import is_promised

__all__ = ["is_early"]


def is_early(cluster: Cluster, units: list[Unit], queue: Queue, best: Unit) -> bool:
    """Say whether a queue is, of which one of the units that wait is the best."""
    if any(is_promised(cluster, one) and queue in cluster.way_up(one.queue) for one in units):
        return True
    known = queues_of(cluster)
    mine, asked = known[best.queue], _asked(best)
    if not rights.has_claim(mine, asked, is_fixed=not best.preemptible):
        return False
    return not any(
        one.above is not None and one.above.goal == "quota-only" and one.is_over_quota(would)
        for one in mine.way_up()
        for would in [[has + more for has, more in zip(one.has, asked, strict=True)]]
    )


def _asked(unit: Unit) -> rights.Asked:
    cpu, memory, gpu = (sum(axes(pod.needs)[i] for pod in chunk(unit.root)) for i in range(3))
    return cpu, memory, gpu
