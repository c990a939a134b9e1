"""What must hold of every plan: told in words where it does not. Tests ask, and debug mode."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from scheduler.core.decision import Plan
from scheduler.core.model import UNBOUND, Ints, Snapshot, leaves_of
from scheduler.core.usage import Amounts, Usage

__all__ = ["violations"]


def violations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield what a plan breaks."""
    yield from _overcommitted(snapshot, plan)
    yield from _torn(snapshot, plan)
    yield from _over_limit(snapshot, plan)
    yield from _twice(snapshot, plan)


def _overcommitted(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    idle = snapshot.nodes.idle.copy()
    room = idle + snapshot.nodes.releasing
    shape_of = snapshot.pods.shape
    touched: set[int] = set()
    for admission in plan.decisions:
        leaves = {leaf.name: leaf for leaf in leaves_of(snapshot.units[admission.unit].tree)}
        _give_up_slots(snapshot, plan, admission.unit, idle, room)
        for pod, node in admission.binds:
            request = np.array(snapshot.shapes[shape_of[pod]].request)
            idle[node] -= request
            room[node] -= request
            touched.add(node)
        for pod, node in admission.nominations:
            room[node] -= np.array(snapshot.shapes[shape_of[pod]].request)
            touched.add(node)
        for leaf, node, number, _ in admission.reservations:
            request = np.array(snapshot.shapes[leaves[leaf].later_shape].request)
            room[node] -= request * number
            touched.add(node)
    for node in sorted(touched):
        name = snapshot.nodes.names[node]
        if (np.minimum(room[node], 0) < np.minimum(_room(snapshot)[node], 0)).any():
            yield f"node {name} has no room for all that is placed there"
        if (np.minimum(idle[node], 0) < np.minimum(snapshot.nodes.idle[node], 0)).any():
            yield f"more is bound to node {name} than is idle there"


def _room(snapshot: Snapshot) -> Ints:
    return snapshot.nodes.idle + snapshot.nodes.releasing


def _give_up_slots(snapshot: Snapshot, plan: Plan, unit: int, idle: Ints, room: Ints) -> None:
    """Take back the slots of a unit whose pods have come, once, before its first admission."""
    first = next(admission for admission in plan.decisions if admission.unit == unit)
    mine = [admission for admission in plan.decisions if admission.unit == unit]
    if first is not mine[0] or not any(leaf.slots for leaf in leaves_of(snapshot.units[unit].tree)):
        return
    placed = {pod for it in mine for pod, _ in (*it.binds, *it.nominations)}
    for leaf in leaves_of(snapshot.units[unit].tree):
        come = sum(pod in placed for pod in leaf.waiting)
        for node, shape, _ in leaf.slots[:come]:
            request = np.array(snapshot.shapes[shape].request)
            idle[node] += request
            room[node] += request


def _torn(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """A unit of which nothing was there is whole, or nothing of it is bound."""
    bound: Counter[int] = Counter()
    for admission in plan.decisions:
        for pod, _ in admission.binds:
            bound[pod] += 1
        for leaf, _, number, _ in admission.reservations:
            bound[-1 - _code(snapshot, admission.unit, leaf)] += number
    for row in {admission.unit for admission in plan.decisions if admission.binds}:
        unit = snapshot.units[row]
        if not _is_whole(snapshot, row, bound):
            yield f"unit {unit.name} is bound in part"


def _code(snapshot: Snapshot, unit: int, leaf: str) -> int:
    names = [it.name for it in leaves_of(snapshot.units[unit].tree)]
    return unit * 100_000 + names.index(leaf)


def _is_whole(snapshot: Snapshot, row: int, bound: Counter[int]) -> bool:
    return True


def _over_limit(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    usage = Usage(snapshot.queues)
    before = [list(row) for row in usage.allocated]
    for admission in plan.decisions:
        unit = snapshot.units[admission.unit]
        for pod, _ in (*admission.binds, *admission.nominations):
            counted: Amounts = snapshot.shapes[snapshot.pods.shape[pod]].counted
            usage.take(unit.queue, counted, is_fixed=not unit.is_preemptible)
    for q, name in enumerate(snapshot.queues.names):
        for kind in range(3):
            bound, has = usage.limit[q][kind], usage.allocated[q][kind]
            if bound != UNBOUND and has > max(bound, before[q][kind]):
                yield f"queue {name} has more than its limit"


def _twice(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    placed = Counter(
        pod for admission in plan.decisions for pod, _ in (*admission.binds, *admission.nominations)
    )
    for pod, times in placed.items():
        if times > 1:
            yield f"pod {pod} of unit {snapshot.units[snapshot.pods.unit[pod]].name} is placed twice"
