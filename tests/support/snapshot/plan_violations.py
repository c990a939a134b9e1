"""The invariants of every plan, as messages about the violations. Tests and benchmarks use it."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from scheduler.core.actions.consolidate import relocated_signatures
from scheduler.core.actions.stale_gang import is_stale
from scheduler.core.gang import AssignedTasks, is_satisfied, member_count
from scheduler.core.model.podgroup import PodSet, SubGroupTree, is_evictable, podsets_of
from scheduler.core.model.resources import NONE, RESOURCE_KINDS, UNBOUND, Amounts, Ints
from scheduler.core.model.result import Eviction, Plan, PodGroupAllocation
from scheduler.core.model.snapshot import PodState, Snapshot
from scheduler.core.model.usage import Usage
from scheduler.core.queues.reclaimable import unevictable_usage
from tests.support.snapshot.device_violations import (
    SharedGpuUse,
    charged_gpus,
    device_violations,
    released_places,
)
from trainer_kai.api.scheduler_names import Action


def plan_violations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield what a plan breaks."""
    yield from _placed_twice(snapshot, plan)
    yield from _overcommitted(snapshot, plan)
    yield from _bound_in_part(snapshot, plan)
    yield from _over_limit(snapshot, plan)
    yield from _over_limit_on_nodes(snapshot, plan)
    yield from _wrong_evictions(snapshot, plan)
    yield from _disruption_violations(snapshot, plan)
    yield from _non_evictable_over_quota(snapshot, plan)
    yield from _relocated_without_place(snapshot, plan)
    yield from _below_minimum(snapshot, plan)
    yield from device_violations(snapshot, plan)
    yield from _in_several_domains(snapshot, plan)


def _in_several_domains(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Yield sub-groups that are in several domains of a level that they require.

    Those with running pods may be in several already.
    """
    for placed in plan.allocations:
        podgroup = snapshot.podgroups[placed.podgroup]
        for part in _parts(podgroup.tree):
            if part.domains is None or part.domains.required == NONE:
                continue
            podsets = {it.name: it for it in podsets_of(part)}
            own = {pod for it in podsets.values() for pod in it.pending}
            nodes = {it.node for it in (*placed.binds, *placed.nominations) if it.pod in own}
            nodes |= {it.node for it in placed.reservations if it.podset in podsets}
            topology = snapshot.topologies[part.domains.topology]
            domains = {int(topology.domains[part.domains.required][node]) for node in nodes}
            has_running = any(it.running for it in podsets.values())
            if NONE in domains or (len(domains) > 1 and not has_running):
                yield f"{podgroup.name}: {part.name or 'all of it'} is in domains {domains}"


def _parts(tree: SubGroupTree) -> Iterator[SubGroupTree]:
    yield tree
    if not isinstance(tree, PodSet):
        for child in tree.children:
            yield from _parts(child)


def _disruption_violations(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No budget lets more go than it may, but for a queue that takes back, which names it."""
    budgets, evicted = snapshot.budgets, Counter[int]()
    for it in plan.evictions if budgets.names else ():
        rows = [budgets.set_of_pod[pod] for pod in it.pods]
        more = Counter(one for row in rows if row != NONE for one in budgets.sets[row])
        evicted += more
        passed = tuple(sorted(one for one in more if evicted[one] > budgets.allowed[one]))
        if it.preemptor != NONE and it.budgets != passed:
            for one in sorted({*passed, *it.budgets}):
                yield f"{evicted[one]} pods of {budgets.names[one]} go, not {budgets.allowed[one]}"
        if it.budgets and it.action != Action.RECLAIM:
            yield (
                f"{snapshot.podgroups[it.podgroups[0]].name} goes for its own "
                "queue, despite a budget"
            )


def _non_evictable_over_quota(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No queue borrows more of what it has more of than its quota, and cannot give back."""
    kept, usage = unevictable_usage(snapshot), Usage(snapshot.queues)
    usage.add_unevictable(kept)
    more = {queue: [0, 0, 0] for queue in kept}
    for row, counted, number in _gained(snapshot, plan):
        queue = snapshot.podgroups[row].queue
        for kind in RESOURCE_KINDS if queue in kept else ():
            more[queue][kind] += counted[kind] * number
    for queue, amounts in more.items():
        for kind in RESOURCE_KINDS:
            quota, fixed = usage.quota[queue][kind], usage.non_preemptible[queue][kind]
            is_over = quota != UNBOUND and fixed > quota and kept[queue].amounts[kind]
            if is_over and amounts[kind] > 0:
                yield f"queue {snapshot.queues.names[queue]} borrows more {kind.name}"


def _relocated_without_place(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Exactly the PodGroups that are moved have a reserved place for each pod that they lose."""
    moved = {
        row for it in plan.evictions for row in it.podgroups if it.action == Action.CONSOLIDATION
    }
    held = Counter(move.podgroup for move in plan.relocations)
    for row in sorted({*moved, *held}):
        lost = Counter(
            shape
            for it in plan.evictions
            for podgroup, _, shape in _freed_places(snapshot, it)
            if podgroup == row
        )
        found: Counter[int] = Counter()
        for podgroup, _, shape, number in _relocated_places(snapshot, plan):
            found[shape] += number if podgroup == row else 0
        if row not in moved or held[row] != 1 or lost != +found:
            yield (
                f"{snapshot.podgroups[row].name} is moved, and not to a place for each of its pods"
            )


def _relocated_places(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[int, int, int, int]]:
    """Yield PodGroup, node, signature and number of the places of PodGroups that are moved."""
    for move in plan.relocations:
        pods = _running_pods(snapshot, {move.podgroup})
        shape_of = relocated_signatures(
            snapshot, move.podgroup, [int(snapshot.pods.signature[it]) for it in pods]
        )
        for podset, node, number, _ in move.reservations:
            yield move.podgroup, node, (shape_of or {}).get(podset, NONE), number


def _wrong_evictions(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No PodGroup is evicted twice, in part, for no reclaimer, or if it cannot be evicted."""
    gone = Counter(pod for it in plan.evictions for pod in it.pods)
    awaiting = {it.podgroup for it in plan.allocations if it.nominations or it.reservations} | {
        NONE
    }
    state, podgroup_of = snapshot.pods.state, snapshot.pods.podgroup
    for pod, times in gone.items():
        name = snapshot.podgroups[podgroup_of[pod]].name
        if times > 1 or state[pod] != PodState.RUNNING:
            yield f"pod {pod} of {name} cannot go {times} times"
    yield from _protected_evictions(snapshot, plan)
    workloads = {it.workload for it in snapshot.podgroups if it.workload}
    for it in plan.evictions:
        if it.preemptor not in awaiting:
            yield f"{snapshot.podgroups[it.podgroups[0]].name} is evicted for no PodGroup"
        whole = {row for row in it.podgroups if it.is_whole}
        whole |= {row for row in it.podgroups if snapshot.podgroups[row].workload in workloads}
        left = [pod for pod in _running_pods(snapshot, whole) if pod not in gone]
        if left:
            yield f"{snapshot.podgroups[it.podgroups[0]].name} keeps {len(left)} pods"


def _leaves(snapshot: Snapshot, one: Eviction) -> bool:
    return any(snapshot.podgroups[row].departure is not None for row in one.podgroups)


def _protected_evictions(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Only PodGroups that may be evicted lose pods; without a reclaimer stale or leaving ones."""
    given = {it.podgroup for it in plan.allocations}
    started = {it.podgroup for it in plan.allocations if it.binds or it.nominations}
    for it in plan.evictions:
        may_lose = _is_stale(snapshot, it) or _leaves(snapshot, it)
        if it.preemptor == NONE and not (it.is_whole and may_lose):
            yield f"{snapshot.podgroups[it.podgroups[0]].name} is evicted for no PodGroup"
        for row in {int(snapshot.pods.podgroup[pod]) for pod in it.pods}:
            podgroup = snapshot.podgroups[row]
            may_go = (
                podgroup.queue != NONE and not podgroup.non_evictable_reason and row not in started
            )
            if it.preemptor != NONE:
                may_go = is_evictable(podgroup) and row not in given
            if it.preemptor == NONE or it.action == Action.CONSOLIDATION:
                may_go = may_go and not podgroup.is_partly_succeeded
            if not may_go:
                yield f"{podgroup.name} may not lose anything"


def _is_stale(snapshot: Snapshot, one: Eviction) -> bool:
    return any(is_stale(snapshot, row) for row in one.podgroups)


def _below_minimum(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Nothing of a minimum is evicted unless all of the PodGroup is."""
    lost: dict[int, set[int]] = {}
    for it in plan.evictions:
        for row in it.podgroups if not it.is_whole else ():
            lost.setdefault(row, set()).update(it.pods)
    for row, pods in lost.items():
        podgroup, left = snapshot.podgroups[row], AssignedTasks()
        for podset in _podsets(snapshot, row):
            left.pods[podset.name] = -len(pods.intersection(podset.running_pods))
        if -sum(left.pods.values()) < len(pods) or not _keeps_minimum(podgroup.tree, left):
            yield f"{podgroup.name} loses what it needs"


def _keeps_minimum(tree: SubGroupTree, left: AssignedTasks) -> bool:
    """Say whether nothing was needed; a child that is not may be gone with all it had."""
    if isinstance(tree, PodSet):
        return not left.pods[tree.name] or member_count(tree, left) >= tree.minimum
    gone = [child for child in tree.children if not _keeps_minimum(child, left)]
    podsets = [podset for child in gone for podset in podsets_of(child)]
    if any(len(podset.running_pods) + left.pods[podset.name] for podset in podsets):
        return False
    return not gone or is_satisfied(tree, left)


def _running_pods(snapshot: Snapshot, podgroups: set[int]) -> list[int]:
    is_there = snapshot.pods.state == PodState.RUNNING
    rows: list[int] = np.flatnonzero(
        is_there & np.isin(snapshot.pods.podgroup, [*podgroups])
    ).tolist()
    return rows


def _placed_twice(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    placed = Counter(it.pod for one in plan.allocations for it in (*one.binds, *one.nominations))
    rows = {int(snapshot.pods.podgroup[pod]) for pod in placed}
    waiting = {pod for row in rows for podset in _podsets(snapshot, row) for pod in podset.pending}
    for pod, times in placed.items():
        podgroup = snapshot.podgroups[snapshot.pods.podgroup[pod]].name
        if times > 1:
            yield f"pod {pod} of {podgroup} is placed {times} times"
        if pod not in waiting:
            yield f"pod {pod} of {podgroup} does not wait"


def _overcommitted(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No pod gets room that is not there; what was overcommitted before gets no worse."""
    idle = snapshot.nodes.idle.copy()
    room = idle + snapshot.nodes.releasing + _released_amounts(snapshot, plan)
    for admission in plan.allocations:
        for node, request, is_now in _placements(snapshot, admission):
            room[node] -= request
            if is_now:
                idle[node] -= request
    moved = [at[1:] for at in _relocated_places(snapshot, plan)]
    shares_now, shares = SharedGpuUse(snapshot, plan, moved).taken()
    idle -= shares_now
    room -= shares
    for node, shape, number in moved:
        room[node] -= np.array(snapshot.signatures[shape].request) * number
    for podgroup in {admission.podgroup for admission in plan.allocations}:
        for node, shape, *_ in released_places(snapshot, plan, podgroup):
            request = np.array(snapshot.signatures[shape].request)
            idle[node] += request
            room[node] += request
    before = snapshot.nodes.idle + snapshot.nodes.releasing
    for node, name in enumerate(snapshot.nodes.names):
        if (np.minimum(room[node], 0) < np.minimum(before[node], 0)).any():
            yield f"node {name} has no room for all that is placed there"
        if (np.minimum(idle[node], 0) < np.minimum(snapshot.nodes.idle[node], 0)).any():
            yield f"more is bound to node {name} than is idle there"


def _released_amounts(snapshot: Snapshot, plan: Plan) -> Ints:
    """Return the room that evictions leave on each node."""
    found = np.zeros_like(snapshot.nodes.idle)
    for it in plan.evictions:
        for _, node, shape in _freed_places(snapshot, it):
            if node != NONE:
                found[node] += np.array(snapshot.signatures[shape].request)
    return found


def _freed_places(snapshot: Snapshot, one: Eviction) -> Iterator[tuple[int, int, int]]:
    """Yield PodGroup, node and signature of what is evicted, places of whole ones included."""
    pods = snapshot.pods
    for pod in one.pods:
        yield int(pods.podgroup[pod]), int(pods.node[pod]), int(pods.signature[pod])
    for row in one.podgroups if one.is_whole else ():
        for podset in _podsets(snapshot, row):
            for reserved_place in podset.reserved_places:
                yield row, reserved_place.node, reserved_place.signature


def _placements(
    snapshot: Snapshot, admission: PodGroupAllocation
) -> Iterator[tuple[int, Ints, bool]]:
    """Yield node, amounts, and whether out of what is idle; reservations may wait as well."""
    shape_of = snapshot.pods.signature
    for pod, node, _ in admission.binds:
        yield node, np.array(snapshot.signatures[shape_of[pod]].request), True
    for pod, node, _ in admission.nominations:
        yield node, np.array(snapshot.signatures[shape_of[pod]].request), False
    shapes = {
        podset.name: podset.expected_signature for podset in _podsets(snapshot, admission.podgroup)
    }
    for name, node, number, _ in admission.reservations:
        yield node, np.array(snapshot.signatures[shapes[name]].request) * number, False


def _bound_in_part(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Of a PodGroup of which pods are bound there is all that it needs."""
    for row in sorted({admission.podgroup for admission in plan.allocations if admission.binds}):
        progress = AssignedTasks()
        for admission in plan.allocations:
            if admission.podgroup == row:
                _count_placed(snapshot, admission, progress)
        if not is_satisfied(snapshot.podgroups[row].tree, progress):
            yield f"{snapshot.podgroups[row].name} is bound in part"


def _count_placed(
    snapshot: Snapshot, admission: PodGroupAllocation, progress: AssignedTasks
) -> None:
    bound = {it.pod for it in admission.binds}
    for podset in _podsets(snapshot, admission.podgroup):
        come = sum(pod in bound for pod in podset.pending)
        progress.pods[podset.name] = progress.pods.get(podset.name, 0) + come
    for name, _, number, _ in admission.reservations:
        progress.expected[name] = progress.expected.get(name, 0) + number


def _over_limit(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No queue exceeds a limit, and no non-preemptible usage a quota; what was above may stay."""
    usage, before = Usage(snapshot.queues), Usage(snapshot.queues)
    for row, (cpu, memory, gpu), number in _charged(snapshot, plan):
        podgroup = snapshot.podgroups[row]
        amounts = (cpu * number, memory * number, gpu * number)
        usage.charge(podgroup.queue, amounts, is_non_preemptible=not podgroup.is_preemptible)
    for q, name in enumerate(snapshot.queues.names):
        for kind in RESOURCE_KINDS:
            limit, quota = usage.limit[q][kind], usage.quota[q][kind]
            allocated, fixed = usage.allocated[q][kind], usage.non_preemptible[q][kind]
            if limit != UNBOUND and allocated > max(limit, before.allocated[q][kind]):
                yield f"queue {name} has more {kind.name} than its limit"
            if quota != UNBOUND and fixed > max(quota, before.non_preemptible[q][kind]):
                yield f"queue {name} has more {kind.name} that is fixed than its quota"


def _over_limit_on_nodes(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """No queue has more on nodes than its limit, with terminating pods; above it binds nothing."""
    queues = snapshot.queues
    if not queues.releasing and not plan.evictions:
        return  # there is no more on nodes than is allocated
    usage = Usage(queues)
    for queue, _, amounts in queues.releasing:
        usage.charge(queue, amounts, is_non_preemptible=False)
    before = usage.copy()
    for admission in plan.allocations:
        queue = snapshot.podgroups[admission.podgroup].queue
        for pod, node, _ in admission.binds:
            counted = _counted(snapshot, int(snapshot.pods.signature[pod]), node)
            usage.charge(queue, counted, is_non_preemptible=False)
    for podgroup in {admission.podgroup for admission in plan.allocations}:
        for node, shape, *_ in released_places(snapshot, plan, podgroup):
            counted = _counted(snapshot, shape, node)
            usage.refund(snapshot.podgroups[podgroup].queue, counted, is_non_preemptible=False)
    for q, name in enumerate(queues.names):
        for kind in RESOURCE_KINDS:
            limit, has = usage.limit[q][kind], usage.allocated[q][kind]
            if limit != UNBOUND and has > max(limit, before.allocated[q][kind]):
                yield f"queue {name} has more {kind.name} on nodes than its limit"


def _gained(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[int, Amounts, int]]:
    """Yield PodGroup, amounts and how many pods and places it gets, less what it gives up."""
    for admission in plan.allocations:
        for pod, node, _ in (*admission.binds, *admission.nominations):
            shape = int(snapshot.pods.signature[pod])
            yield admission.podgroup, _counted(snapshot, shape, node), 1
        shapes = {
            podset.name: podset.expected_signature
            for podset in _podsets(snapshot, admission.podgroup)
        }
        for name, node, number, _ in admission.reservations:
            yield admission.podgroup, _counted(snapshot, shapes[name], node), number
    for podgroup in sorted({admission.podgroup for admission in plan.allocations}):
        for node, shape, *_ in released_places(snapshot, plan, podgroup):
            yield podgroup, _counted(snapshot, shape, node), -1


def _charged(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[int, Amounts, int]]:
    """Yield PodGroup, amounts and how many pods and reserved places it gets, or loses."""
    yield from _gained(snapshot, plan)
    for row, node, shape, number in _relocated_places(snapshot, plan):
        yield row, _counted(snapshot, shape, node), number
    for it in plan.evictions:
        for podgroup, node, shape in _freed_places(snapshot, it):
            yield podgroup, _counted(snapshot, shape, node), -1


def _counted(snapshot: Snapshot, shape: int, node: int) -> Amounts:
    """Return what a queue is charged for a pod on a node."""
    one = snapshot.signatures[shape]
    return (*one.queue_request[:2], charged_gpus(snapshot, one, node))


def _podsets(snapshot: Snapshot, podgroup: int) -> list[PodSet]:
    return list(podsets_of(snapshot.podgroups[podgroup].tree))
