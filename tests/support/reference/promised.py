"""What was promised: whose turn comes first, and room that is held: rules 10a and 10b."""

from collections.abc import Iterable

from tests.support.reference.amounts import Amounts, added, fits, subtracted
from tests.support.reference.things import Cluster, Machine, Queue, Unit
from tests.support.reference.trees import chunk
from tests.support.reference.turns import is_promised

__all__ = ["Held", "lateness"]


def lateness(cluster: Cluster, units: list[Unit], queue: Queue, best: Unit) -> int:
    """Say whether the best unit below a queue was promised something, or another, or none."""
    if is_promised(cluster, best):
        return 0
    below = [one for one in units if queue in cluster.way_up(one.queue)]
    return 1 if any(is_promised(cluster, one) for one in below) else 2


class Held:
    """Room that is held for units until their turn: what is released there is less by it."""

    def __init__(self, cluster: Cluster) -> None:
        self.of: dict[Unit, list[tuple[Machine, Amounts]]] = {}
        self._cluster = cluster

    def hold(self, units: Iterable[Unit]) -> None:
        """Hold for each unit what it was promised, if all of it is there, for the oldest first."""
        at = {machine.name: machine for machine in self._cluster.machines}
        for unit in sorted(units, key=lambda it: (it.created, it.uid)):
            if not is_promised(self._cluster, unit):
                continue
            self.of[unit] = []
            for pod in chunk(unit.root):
                if pod.later:
                    continue
                machine = at[pod.nominated]
                if not fits(pod.needs, machine.idle, machine.releasing):
                    self.let_go(unit)
                    break
                machine.releasing = subtracted(machine.releasing, pod.needs)
                self.of[unit].append((machine, pod.needs))

    def let_go(self, unit: Unit) -> None:
        """Hold nothing for a unit."""
        for machine, needs in self.of.pop(unit, []):
            machine.releasing = added(machine.releasing, needs)
