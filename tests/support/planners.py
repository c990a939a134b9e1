"""Planners that know too little: what the cases are worth is how many of them these fail."""

from collections.abc import Callable

import numpy as np

from scheduler.core.decision import Admission, Placing, Plan
from scheduler.core.model import NONE, Ints, Snapshot, leaves_of
from scheduler.core.policy import Policies
from scheduler.core.share import fair_share

__all__ = ["Planner", "first_fit", "nothing"]

Planner = Callable[[Snapshot, Policies], Plan]


def nothing(snapshot: Snapshot, _policies: Policies) -> Plan:
    """Decide nothing."""
    due = fair_share(snapshot.queues, snapshot.total)
    return Plan(decisions=(), rejections=(), fair_share=due)


def first_fit(snapshot: Snapshot, _policies: Policies) -> Plan:
    """Bind each waiting pod, the oldest unit first, to the first node with room for it."""
    idle = snapshot.nodes.idle.copy()
    decisions = []
    for row, unit in enumerate(snapshot.units):
        if unit.queue == NONE:
            continue
        binds = []
        for pod in (pod for leaf in leaves_of(unit.tree) for pod in leaf.waiting):
            node = _first(idle, snapshot, pod)
            if node is not None:
                binds.append(Placing(pod, node))
        if binds:
            decisions.append(Admission(row, tuple(binds)))
    due = fair_share(snapshot.queues, snapshot.total)
    return Plan(decisions=tuple(decisions), rejections=(), fair_share=due)


def _first(idle: Ints, snapshot: Snapshot, pod: int) -> int | None:
    request = np.array(snapshot.shapes[snapshot.pods.shape[pod]].request)
    for node in range(len(idle)):
        if snapshot.nodes.fault[node] == 0 and (idle[node] >= request).all():
            idle[node] -= request
            return node
    return None
