"""What was promised: whose turn comes first, and room that is held: rules 10a and 10b."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from tests.support.reference.amounts import added, fits, subtracted
from tests.support.reference.things import Cluster, Machine, Pod, Queue, Unit
from tests.support.reference.trees import chunk, turn
from tests.support.reference.turns import is_promised, over_capacity

__all__ = ["Held", "lateness"]

Part = list[tuple[Machine, Pod]]  # what is held together


def lateness(cluster: Cluster, units: list[Unit], queue: Queue, best: Unit) -> int:
    """Say whether the best unit below a queue was promised something, or another, or none."""
    if is_promised(cluster, best):
        return 0
    below = [one for one in units if queue in cluster.way_up(one.queue)]
    return 1 if any(is_promised(cluster, one) for one in below) else 2


class Held:
    """What is held for units until their turn: what is released there is less by it."""

    def __init__(self, cluster: Cluster) -> None:
        self.of: dict[Unit, list[Part]] = {}
        self._cluster = cluster

    def hold(self, units: Iterable[Unit]) -> None:
        """Hold what units were promised: what they take next, then the rest pod by pod."""
        parts: dict[Unit, list[list[Pod]]] = {}
        for unit in units:
            if is_promised(self._cluster, unit):
                first = [pod for pod in chunk(unit.root) if not pod.later]
                rest = [[pod] for pod in _waiting(unit) if pod not in first]
                parts[unit] = [first, *rest]
        self._keep(parts)

    def let_go(self, unit: Unit) -> list[list[Pod]]:
        """Hold nothing for a unit; return what was."""
        parts = self.of.pop(unit, [])
        for part in parts:
            self._undo(part)
        return [[pod for _, pod in part] for part in parts]

    @contextmanager
    def lifted(self, units: Iterable[Unit]) -> Iterator[None]:
        """Hold nothing for units meanwhile, and then what was held and is still there."""
        parts = {unit: self.let_go(unit) for unit in units}
        yield
        self._keep(parts)

    def may_have(self, unit: Unit) -> list[Unit]:
        """Return those whose room a unit may have: it could preempt them at once."""
        return [
            one
            for one in self.of
            if one.queue == unit.queue
            and one.priority < unit.priority
            and one.preemptible
            and not unit.patient
        ]

    def over_capacity(self, unit: Unit, pods: list[Pod]) -> str:
        """Ask for bounds as if everybody had what is held for him, but for whom it may be had."""
        others = [
            (one, pod)
            for one, parts in self.of.items()
            if one not in self.may_have(unit)
            for part in parts
            for _, pod in part
        ]
        queues = [(it, [*it.allocated], [*it.fixed]) for it in self._cluster.queues.values()]
        for one, pod in others:
            self._cluster.hold(one, pod)
        verdict = over_capacity(self._cluster, unit, pods)
        for queue, allocated, fixed in queues:
            queue.allocated, queue.fixed = allocated, fixed
        return verdict

    def _keep(self, parts: Mapping[Unit, list[list[Pod]]]) -> None:
        """Hold of each part all or nothing, for the oldest unit first."""
        for unit in sorted(parts, key=lambda it: (it.created, it.uid)):
            if some := [part for pods in parts[unit] if (part := self._held(pods))]:
                self.of[unit] = some

    def _held(self, pods: list[Pod]) -> Part:
        """Hold the room of all of these pods, or of none."""
        at = {machine.name: machine for machine in self._cluster.machines}
        some: Part = []
        for pod in pods:
            machine = at.get(pod.nominated)
            if machine is None or not fits(pod.needs, machine.idle, machine.releasing):
                self._undo(some)
                return []
            machine.releasing = subtracted(machine.releasing, pod.needs)
            some.append((machine, pod))
        return some

    def _undo(self, some: Part) -> None:
        for machine, pod in some:
            machine.releasing = added(machine.releasing, pod.needs)


def _waiting(unit: Unit) -> list[Pod]:
    return [
        pod for leaf in unit.leaves for pod in sorted(leaf.pods, key=turn) if pod.state == "waiting"
    ]
