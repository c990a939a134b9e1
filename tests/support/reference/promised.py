"""Who was promised a node, and goes before those who could not take it from him: rule 10a."""

from fractions import Fraction

from tests.support.reference import rights
from tests.support.reference.amounts import axes
from tests.support.reference.evicting import queues_of
from tests.support.reference.things import Cluster, Unit
from tests.support.reference.trees import chunk

__all__ = ["ahead"]


def ahead(cluster: Cluster, unit: Unit, units: list[Unit]) -> list[Unit]:
    """Return who has a turn before the unit that is next."""
    if _is_promised(cluster, unit):
        return []
    return [
        one for one in units if _is_promised(cluster, one) and not _could_take(cluster, unit, one)
    ]


def _is_promised(cluster: Cluster, unit: Unit) -> bool:
    names = {machine.name for machine in cluster.machines}
    pods = [pod for pod in chunk(unit.root) if not pod.later]
    return bool(pods) and all(pod.nominated in names for pod in pods)


def _could_take(cluster: Cluster, unit: Unit, other: Unit) -> bool:
    if not other.preemptible:
        return False
    if unit.queue == other.queue:
        return unit.priority > other.priority
    known = queues_of(cluster)
    mine, theirs = known[unit.queue], known[other.queue]
    asked, promised = _asked(unit), _asked(other)
    for queue in theirs.way_up():
        queue.has = [has + more for has, more in zip(queue.has, promised, strict=True)]
    if not rights.has_claim(mine, asked, is_fixed=not unit.preemptible):
        return False
    if not rights.comes_into_question(mine, asked, theirs):
        return False
    (may,), is_fair = rights.take_all(mine, asked, [(theirs, promised)], Fraction(1))
    return may and is_fair


def _asked(unit: Unit) -> rights.Asked:
    cpu, memory, gpu = (sum(axes(pod.needs)[i] for pod in chunk(unit.root)) for i in range(3))
    return cpu, memory, gpu
