"""What goes of queues and is still on nodes, and who may wait for it: rules 20a and 37."""

from tests.support.reference.amounts import axes
from tests.support.reference.placing import place
from tests.support.reference.things import Cluster, Pod, Queue, Unit
from tests.support.reference.turns import over_capacity

__all__ = ["Saved", "awaits_its_own", "is_late", "lose", "settles", "take"]


class Saved:
    """How everything is, to be so again."""

    def __init__(self, cluster: Cluster) -> None:
        self._machines = [(one, one.idle, one.releasing) for one in cluster.machines]
        self._queues = [
            (one, [*one.allocated], [*one.fixed], [*one.left], [*one.lost], _copied(one.left_at))
            for one in cluster.queues.values()
        ]
        self._pods = [(pod, pod.state, pod.node) for one in cluster.units for pod in one.pods]
        self._units = [(unit, unit.awaits_its_own) for unit in cluster.units]

    def restore(self) -> None:
        """Let all be as it was."""
        for machine, idle, releasing in self._machines:
            machine.idle, machine.releasing = idle, releasing
        for queue, allocated, fixed, left, lost, left_at in self._queues:
            queue.allocated, queue.fixed = allocated, fixed
            queue.left, queue.lost, queue.left_at = left, lost, left_at
        for pod, state, node in self._pods:
            pod.state, pod.node = state, node
        for unit, awaits in self._units:
            unit.awaits_its_own = awaits


def _copied(left_at: dict[str, list[int]]) -> dict[str, list[int]]:
    return {node: [*amounts] for node, amounts in left_at.items()}


def take(cluster: Cluster, unit: Unit, pods: list[Pod], *, waits: bool = False) -> str:
    """Decide a whole chunk; return the verdict if it cannot be, and then nothing has changed."""
    unit.awaits_its_own = False
    verdict = over_capacity(cluster, unit, pods)
    if verdict:
        return verdict
    own = awaits_its_own(cluster, unit, pods)
    waits = waits or is_late(cluster, unit, pods)
    saved = Saved(cluster)
    verdict = place(cluster, unit, pods, waits=waits)
    if not verdict and settles(cluster, unit, pods, waits=waits):
        return ""
    saved.restore()
    unit.awaits_its_own = own
    return "ExceedsLimit" if own else verdict


def awaits_its_own(cluster: Cluster, unit: Unit, pods: list[Pod]) -> bool:
    """Say whether what goes of its queues already would be in the way of a unit."""
    more = _sum(pods)
    return any(
        more[i] and queue.left[i] and _passes(queue, i, queue.left[i] + more[i])
        for queue in cluster.way_up(unit.queue)
        for i in range(3)
    )


def is_late(cluster: Cluster, unit: Unit, pods: list[Pod]) -> bool:
    """Say whether a unit cannot be there before all that goes of its queues is gone."""
    more = _sum(pods)
    return any(
        more[i] and _passes(queue, i, queue.left[i] + queue.lost[i] + more[i])
        for queue in cluster.way_up(unit.queue)
        for i in range(3)
    )


def settles(cluster: Cluster, unit: Unit, pods: list[Pod], *, waits: bool) -> bool:
    """Let what was placed wait for what goes of its queues; say whether it may be there then."""
    way, more = cluster.way_up(unit.queue), _sum(pods)
    seats = [pod for pod in pods if pod.state == "nominated" and not pod.later]
    seats += [pod for pod in pods if pod.later] if waits else []
    for_its_own = [_wait(way[at], seats) for at in range(len(way))]
    least = [min(some[i] for some in for_its_own) for i in range(3)]
    return not any(
        more[i] > least[i] and _passes(queue, i, queue.left[i]) for queue in way for i in range(3)
    )


def _wait(queue: Queue, seats: list[Pod]) -> list[int]:
    """Let pods wait for what goes of a queue; return how much of it."""
    found = [0, 0, 0]
    for pod in seats:
        here = queue.left_at.get(pod.node, [0, 0, 0])
        for i, amount in enumerate(axes(pod.needs)):
            is_promised = pod.node == pod.nominated
            most = queue.left[i] if is_promised else min(queue.left[i], here[i])
            some = min(amount, most)
            found[i] += some
            queue.left[i] -= some
            here[i] -= min(some, here[i])
    return found


def _passes(queue: Queue, i: int, more: int) -> bool:
    return bool(queue.limit[i] != -1 and queue.allocated[i] + more > queue.limit[i])


def lose(cluster: Cluster, queue: str, amounts: tuple[int, int, int]) -> None:
    """Note that pods of a queue go for somebody."""
    for one in cluster.way_up(queue):
        one.lost = [has + more for has, more in zip(one.lost, amounts, strict=True)]


def _sum(pods: list[Pod]) -> list[int]:
    return [sum(axes(pod.needs)[i] for pod in pods) for i in range(3)]
