"""Planners that know too little: a measure of the cases is how many of them these fail."""

from collections.abc import Callable

import numpy as np

from scheduler.core.model.plugins import Policies
from scheduler.core.model.podgroup import podsets_of
from scheduler.core.model.resources import NONE, Ints
from scheduler.core.model.result import Plan, PodGroupAllocation, PodPlacement
from scheduler.core.model.snapshot import Snapshot
from scheduler.core.queues.fair_share import fair_share

__all__ = ["Planner", "plan_first_fit", "plan_nothing"]

Planner = Callable[[Snapshot, Policies], Plan]


def plan_nothing(snapshot: Snapshot, _policies: Policies) -> Plan:
    """Decide nothing."""
    due = fair_share(snapshot.queues, snapshot.total)
    return Plan(allocations=(), rejections=(), fair_share=due)


def plan_first_fit(snapshot: Snapshot, _policies: Policies) -> Plan:
    """Bind each waiting pod, the oldest PodGroup first, to the first node with enough free for it.

    It knows no shares: each is a whole GPU.
    """
    idle = snapshot.nodes.idle.copy()
    shared = np.bincount(snapshot.devices.node, minlength=len(idle))
    decisions = []
    for row, podgroup in enumerate(snapshot.podgroups):
        if podgroup.queue == NONE:
            continue
        binds = []
        for pod in (pod for podset in podsets_of(podgroup.tree) for pod in podset.pending):
            node = _first_node_with_room(idle, snapshot, pod)
            if node is not None:
                signature = snapshot.signatures[snapshot.pods.signature[pod]]
                first = int(shared[node])
                shared[node] += signature.shared_devices
                slots = range(first, first + signature.shared_devices)
                binds.append(PodPlacement(pod, node, tuple(slots)))
        if binds:
            decisions.append(PodGroupAllocation(row, tuple(binds)))
    due = fair_share(snapshot.queues, snapshot.total)
    return Plan(allocations=tuple(decisions), rejections=(), fair_share=due)


def _first_node_with_room(idle: Ints, snapshot: Snapshot, pod: int) -> int | None:
    signature = snapshot.signatures[snapshot.pods.signature[pod]]
    request = np.array(signature.request)
    request[list(snapshot.resources.gpus[:1])] += 1000 * signature.shared_devices
    for node in range(len(idle)):
        if snapshot.nodes.fault[node] == 0 and (idle[node] >= request).all():
            idle[node] -= request
            return node
    return None
