"""What must hold of every plan: told in words where it does not. Tests and benchmarks ask."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from scheduler.core.chunks import Progress, is_satisfied, members_of
from scheduler.core.decision import Action, Admission, Eviction, Plan
from scheduler.core.model import (
    KINDS,
    NONE,
    UNBOUND,
    Ints,
    Leaf,
    PodState,
    Snapshot,
    Tree,
    leaves_of,
)
from scheduler.core.moving import moved_shapes
from scheduler.core.stale import is_stale
from scheduler.core.tenants import could_lose
from scheduler.core.unevictable import unevictable
from scheduler.core.usage import Usage

__all__ = ["violations"]


def violations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield what a plan breaks."""
    yield from _placed_twice(snapshot, plan)
    yield from _overcommitted(snapshot, plan)
    yield from _torn(snapshot, plan)
    yield from _over_limit(snapshot, plan)
    yield from _beside_what_goes(snapshot, plan)
    yield from _wronged(snapshot, plan)
    yield from _disrupted(snapshot, plan)
    yield from _beyond_quota(snapshot, plan)
    yield from _homeless(snapshot, plan)
    yield from _cut_short(snapshot, plan)


def _disrupted(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No budget lets more go than it may, but for a queue that takes back, which names it."""
    budgets, gone = snapshot.budgets, Counter[int]()
    for it in plan.evictions if budgets.names else ():
        rows = [budgets.of[pod] for pod in it.pods]
        more = Counter(one for row in rows if row != NONE for one in budgets.sets[row])
        gone += more
        passed = tuple(sorted(one for one in more if gone[one] > budgets.allowed[one]))
        if it.claimant != NONE and it.budgets != passed:
            for one in sorted({*passed, *it.budgets}):
                yield f"{gone[one]} pods of {budgets.names[one]} go, not {budgets.allowed[one]}"
        if it.budgets and it.action != Action.RECLAIM:
            yield f"{snapshot.units[it.units[0]].name} goes for its own queue, despite a budget"


def _beyond_quota(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No queue borrows more of what it has more of than its quota, and cannot give back."""
    kept, usage = unevictable(snapshot), Usage(snapshot.queues)
    usage.fix(kept)
    more = {queue: [0, 0, 0] for queue in kept}
    for row, shape, number in _gains(snapshot, plan):
        queue = snapshot.units[row].queue
        for kind in KINDS if queue in kept else ():
            more[queue][kind] += snapshot.shapes[shape].counted[kind] * number
    for queue, amounts in more.items():
        for kind in KINDS:
            quota, fixed = usage.quota[queue][kind], usage.fixed[queue][kind]
            is_over = quota != UNBOUND and fixed > quota and kept[queue].amounts[kind]
            if is_over and amounts[kind] > 0:
                yield f"queue {snapshot.queues.names[queue]} borrows more {kind.name}"


def _homeless(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Whoever is moved, and nobody else, has a slot for each pod that it loses."""
    moved = {row for it in plan.evictions for row in it.units if it.action == Action.CONSOLIDATION}
    held = Counter(move.unit for move in plan.moves)
    for row in sorted({*moved, *held}):
        lost = Counter(
            shape for it in plan.evictions for unit, _, shape in _left(snapshot, it) if unit == row
        )
        found: Counter[int] = Counter()
        for unit, _, shape, number in _slots(snapshot, plan):
            found[shape] += number if unit == row else 0
        if row not in moved or held[row] != 1 or lost != +found:
            yield f"{snapshot.units[row].name} is moved, and not to a place for each of its pods"


def _slots(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[int, int, int, int]]:
    """Yield unit, node, shape and number of the slots of those who are moved."""
    for move in plan.moves:
        pods = _there(snapshot, {move.unit})
        shape_of = moved_shapes(snapshot, move.unit, [int(snapshot.pods.shape[it]) for it in pods])
        for leaf, node, number, _ in move.slots:
            yield move.unit, node, (shape_of or {}).get(leaf, NONE), number


def _wronged(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Nobody is evicted twice, in part, for nobody, or who may not be."""
    gone = Counter(pod for it in plan.evictions for pod in it.pods)
    awaiting = {it.unit for it in plan.decisions if it.nominations or it.reservations} | {NONE}
    state, unit_of = snapshot.pods.state, snapshot.pods.unit
    for pod, times in gone.items():
        name = snapshot.units[unit_of[pod]].name
        if times > 1 or state[pod] != PodState.THERE:
            yield f"pod {pod} of {name} cannot go {times} times"
    yield from _protected(snapshot, plan)
    bundles = {it.bundle for it in snapshot.units if it.bundle}
    for it in plan.evictions:
        if it.claimant not in awaiting:
            yield f"{snapshot.units[it.units[0]].name} is evicted for nobody"
        whole = {row for row in it.units if it.is_whole}
        whole |= {row for row in it.units if snapshot.units[row].bundle in bundles}
        left = [pod for pod in _there(snapshot, whole) if pod not in gone]
        if left:
            yield f"{snapshot.units[it.units[0]].name} keeps {len(left)} pods"


def _protected(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Nobody loses anything who may not; for nobody only those do who are stale."""
    given = {it.unit for it in plan.decisions}
    started = {it.unit for it in plan.decisions if it.binds or it.nominations}
    for it in plan.evictions:
        if it.claimant == NONE and not (it.is_whole and _is_over(snapshot, it)):
            yield f"{snapshot.units[it.units[0]].name} is evicted for nobody"
        for row in {int(snapshot.pods.unit[pod]) for pod in it.pods}:
            unit = snapshot.units[row]
            may_go = unit.queue != NONE and not unit.stays and row not in started
            if it.claimant != NONE:
                may_go = could_lose(unit) and row not in given
            if it.claimant == NONE or it.action == Action.CONSOLIDATION:
                may_go = may_go and not unit.is_partly_done
            if not may_go:
                yield f"{unit.name} may not lose anything"


def _is_over(snapshot: Snapshot, one: Eviction) -> bool:
    return any(is_stale(snapshot, row) for row in one.units)


def _cut_short(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Who does not lose all loses nothing of what it needs."""
    lost: dict[int, set[int]] = {}
    for it in plan.evictions:
        for row in it.units if not it.is_whole else ():
            lost.setdefault(row, set()).update(it.pods)
    for row, pods in lost.items():
        unit, left = snapshot.units[row], Progress()
        for leaf in _leaves(snapshot, row):
            left.pods[leaf.name] = -len(pods.intersection(leaf.pods))
        if -sum(left.pods.values()) < len(pods) or not _may_shrink(unit.tree, left):
            yield f"{unit.name} loses what it needs"


def _may_shrink(tree: Tree, left: Progress) -> bool:
    """Say whether nothing was needed; a child that is not may be gone with all it had."""
    if isinstance(tree, Leaf):
        return not left.pods[tree.name] or members_of(tree, left) >= tree.minimum
    gone = [child for child in tree.children if not _may_shrink(child, left)]
    leaves = [leaf for child in gone for leaf in leaves_of(child)]
    if any(len(leaf.pods) + left.pods[leaf.name] for leaf in leaves):
        return False
    return not gone or is_satisfied(tree, left)


def _there(snapshot: Snapshot, units: set[int]) -> list[int]:
    is_there = snapshot.pods.state == PodState.THERE
    rows: list[int] = np.flatnonzero(is_there & np.isin(snapshot.pods.unit, [*units])).tolist()
    return rows


def _placed_twice(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    placed = Counter(pod for it in plan.decisions for pod, _ in (*it.binds, *it.nominations))
    rows = {int(snapshot.pods.unit[pod]) for pod in placed}
    waiting = {pod for row in rows for leaf in _leaves(snapshot, row) for pod in leaf.waiting}
    for pod, times in placed.items():
        unit = snapshot.units[snapshot.pods.unit[pod]].name
        if times > 1:
            yield f"pod {pod} of {unit} is placed {times} times"
        if pod not in waiting:
            yield f"pod {pod} of {unit} does not wait"


def _overcommitted(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Nobody gets room that is not there; what was overcommitted before gets no worse."""
    idle = snapshot.nodes.idle.copy()
    room = idle + snapshot.nodes.releasing + _released(snapshot, plan)
    for admission in plan.decisions:
        for node, request, is_now in _takings(snapshot, admission):
            room[node] -= request
            if is_now:
                idle[node] -= request
    for _, node, shape, number in _slots(snapshot, plan):
        room[node] -= np.array(snapshot.shapes[shape].request) * number
    for unit in {admission.unit for admission in plan.decisions}:
        for node, shape, _ in _given_up(snapshot, plan, unit):
            request = np.array(snapshot.shapes[shape].request)
            idle[node] += request
            room[node] += request
    before = snapshot.nodes.idle + snapshot.nodes.releasing
    for node, name in enumerate(snapshot.nodes.names):
        if (np.minimum(room[node], 0) < np.minimum(before[node], 0)).any():
            yield f"node {name} has no room for all that is placed there"
        if (np.minimum(idle[node], 0) < np.minimum(snapshot.nodes.idle[node], 0)).any():
            yield f"more is bound to node {name} than is idle there"


def _released(snapshot: Snapshot, plan: Plan) -> Ints:
    """Return the room that evictions leave on each node."""
    found = np.zeros_like(snapshot.nodes.idle)
    for it in plan.evictions:
        for _, node, shape in _left(snapshot, it):
            if node != NONE:
                found[node] += np.array(snapshot.shapes[shape].request)
    return found


def _left(snapshot: Snapshot, one: Eviction) -> Iterator[tuple[int, int, int]]:
    """Yield unit, node and shape of what is evicted, the slots of who goes whole included."""
    pods = snapshot.pods
    for pod in one.pods:
        yield int(pods.unit[pod]), int(pods.node[pod]), int(pods.shape[pod])
    for row in one.units if one.is_whole else ():
        for leaf in _leaves(snapshot, row):
            for slot in leaf.slots:
                yield row, slot.node, slot.shape


def _takings(snapshot: Snapshot, admission: Admission) -> Iterator[tuple[int, Ints, bool]]:
    """Yield node, amounts, and whether out of what is idle; reservations may wait as well."""
    shape_of = snapshot.pods.shape
    for pod, node in admission.binds:
        yield node, np.array(snapshot.shapes[shape_of[pod]].request), True
    for pod, node in admission.nominations:
        yield node, np.array(snapshot.shapes[shape_of[pod]].request), False
    shapes = {leaf.name: leaf.later_shape for leaf in _leaves(snapshot, admission.unit)}
    for name, node, number, _ in admission.reservations:
        yield node, np.array(snapshot.shapes[shapes[name]].request) * number, False


def _given_up(snapshot: Snapshot, plan: Plan, unit: int) -> Iterator[tuple[int, int, int]]:
    placed = {
        pod
        for admission in plan.decisions
        if admission.unit == unit
        for pod, _ in (*admission.binds, *admission.nominations)
    }
    for leaf in _leaves(snapshot, unit):
        yield from leaf.slots[: sum(pod in placed for pod in leaf.waiting)]


def _torn(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Of a unit of which pods are bound there is all that it needs."""
    for row in sorted({admission.unit for admission in plan.decisions if admission.binds}):
        progress = Progress()
        for admission in plan.decisions:
            if admission.unit == row:
                _count(snapshot, admission, progress)
        if not is_satisfied(snapshot.units[row].tree, progress):
            yield f"{snapshot.units[row].name} is bound in part"


def _count(snapshot: Snapshot, admission: Admission, progress: Progress) -> None:
    bound = {pod for pod, _ in admission.binds}
    for leaf in _leaves(snapshot, admission.unit):
        come = sum(pod in bound for pod in leaf.waiting)
        progress.pods[leaf.name] = progress.pods.get(leaf.name, 0) + come
    for name, _, number, _ in admission.reservations:
        progress.later[name] = progress.later.get(name, 0) + number


def _over_limit(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No queue passes a limit, and what cannot be preempted no quota; who had more may keep it."""
    usage, before = Usage(snapshot.queues), Usage(snapshot.queues)
    for row, shape, number in _charges(snapshot, plan):
        unit = snapshot.units[row]
        cpu, memory, gpu = snapshot.shapes[shape].counted
        amounts = (cpu * number, memory * number, gpu * number)
        usage.take(unit.queue, amounts, is_fixed=not unit.is_preemptible)
    for q, name in enumerate(snapshot.queues.names):
        for kind in KINDS:
            limit, quota = usage.limit[q][kind], usage.quota[q][kind]
            allocated, fixed = usage.allocated[q][kind], usage.fixed[q][kind]
            if limit != UNBOUND and allocated > max(limit, before.allocated[q][kind]):
                yield f"queue {name} has more {kind.name} than its limit"
            if quota != UNBOUND and fixed > max(quota, before.fixed[q][kind]):
                yield f"queue {name} has more {kind.name} that is fixed than its quota"


def _beside_what_goes(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No queue has more on nodes than its limit, with those who go; who had more binds nothing."""
    queues = snapshot.queues
    if not queues.going and not plan.evictions:
        return  # there is no more on nodes than is allocated
    usage = Usage(queues)
    for queue, _, amounts in queues.going:
        usage.take(queue, amounts, is_fixed=False)
    before = usage.copy()
    for admission in plan.decisions:
        queue = snapshot.units[admission.unit].queue
        for pod, _ in admission.binds:
            counted = snapshot.shapes[snapshot.pods.shape[pod]].counted
            usage.take(queue, counted, is_fixed=False)
    for unit in {admission.unit for admission in plan.decisions}:
        for _, shape, _ in _given_up(snapshot, plan, unit):
            counted = snapshot.shapes[shape].counted
            usage.give(snapshot.units[unit].queue, counted, is_fixed=False)
    for q, name in enumerate(queues.names):
        for kind in KINDS:
            limit, has = usage.limit[q][kind], usage.allocated[q][kind]
            if limit != UNBOUND and has > max(limit, before.allocated[q][kind]):
                yield f"queue {name} has more {kind.name} on nodes than its limit"


def _gains(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Yield units, and how many pods or slots of which shape they get, less what they give up."""
    for admission in plan.decisions:
        for pod, _ in (*admission.binds, *admission.nominations):
            yield admission.unit, int(snapshot.pods.shape[pod]), 1
        shapes = {leaf.name: leaf.later_shape for leaf in _leaves(snapshot, admission.unit)}
        for name, _, number, _ in admission.reservations:
            yield admission.unit, shapes[name], number
    for unit in sorted({admission.unit for admission in plan.decisions}):
        for _, shape, _ in _given_up(snapshot, plan, unit):
            yield unit, shape, -1


def _charges(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Yield units, and how many pods or slots of which shape they get, or lose."""
    yield from _gains(snapshot, plan)
    for row, _, shape, number in _slots(snapshot, plan):
        yield row, shape, number
    for it in plan.evictions:
        yield from ((unit, shape, -1) for unit, _, shape in _left(snapshot, it))


def _leaves(snapshot: Snapshot, unit: int) -> list[Leaf]:
    return list(leaves_of(snapshot.units[unit].tree))
