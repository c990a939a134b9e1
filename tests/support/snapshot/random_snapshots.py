"""Small random snapshots, and the next snapshot once a plan is carried out."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from scheduler.core.model.podgroup import (
    AffinityTerm,
    LabelRequirement,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SpreadConstraint,
    SubGroupSet,
    SubGroupTree,
    podsets_of,
)
from scheduler.core.model.resources import NONE, UNBOUND
from scheduler.core.model.result import Plan, PodGroupAllocation
from scheduler.core.model.snapshot import PodRelations, PodState, ReleasingAmount, Snapshot
from scheduler.core.nodes.statement import Statement
from tests.support.snapshot.builder import Builder, SnapshotNode, SnapshotQueue, signature

__all__ = ["PLAIN", "SnapshotOptions", "after_plan", "no_pod_affinity", "snapshots"]

_ZONE: Final = 0  # the key of the label
_IN_ZONE: Final = (((LabelRequirement(_ZONE, frozenset({0})),),),)
_SPREAD: Final = SpreadConstraint(0, _ZONE, 1, 0, True, True, True)

PLAIN_SIGNATURES: Final = (
    *(
        signature(gpu=1),
        signature(gpu=1),
        signature(gpu=2, cpu=2),
        signature(gpu=2, cpu=0.5),
        signature(gpu=4),
    ),
    *(signature(cpu=2), signature(cpu=0)),
)
CONSTRAINED_SIGNATURES: Final = (
    signature(gpu=1, tolerated_taints=frozenset({0})),
    signature(gpu=1, node_affinity=_IN_ZONE),
    signature(cpu=1, host_ports=(0,), conflicting_ports=(0,)),
    signature(gpu=1, matched_selectors=(0,), anti_affinity=(0,), existing_anti_affinity=(0,)),
    signature(
        cpu=1,
        matched_selectors=(0,),
        existing_anti_affinity=(0,),
        affinity=(AffinityTerm(0, _ZONE),),
        matches_own_affinity=True,
    ),
    signature(
        gpu=1, matched_selectors=(0,), existing_anti_affinity=(0,), spread_constraints=(_SPREAD,)
    ),
    signature(cpu=1, rwo_claims=(0,)),
    signature(cpu=1, rwop_claims=(1,)),
)


@dataclass(frozen=True)
class SnapshotOptions:
    """What may occur in a snapshot."""

    has_releasing: bool = True
    has_reserved_places: bool = True
    has_mixed_podgroups: bool = True  # their pods differ
    signatures: tuple[SchedulingSignature, ...] = PLAIN_SIGNATURES + CONSTRAINED_SIGNATURES


PLAIN: Final = SnapshotOptions(False, False, False, PLAIN_SIGNATURES)


def no_pod_affinity(nodes: int, **more: Any) -> PodRelations:
    """Return neighbours without any pod yet: one selector, one term, two volume claims."""
    none = np.zeros((1, nodes), dtype=np.int32)
    table: dict[str, Any] = {
        "selector_counts": none,
        "anti_affinity_terms": (AffinityTerm(0, _ZONE),),
        "anti_affinity_counts": none.copy(),
        "claim_node": (NONE, NONE),
        "claim_users": (0, 0),
    }
    return PodRelations(**{**table, **more})


@st.composite
def snapshots(draw: st.DrawFn, options: SnapshotOptions = SnapshotOptions()) -> Snapshot:
    """Draw a few nodes, queues and PodGroups."""
    nodes = draw(st.lists(_nodes(options), min_size=2, max_size=5))
    build = Builder(nodes=nodes, queues=draw(_queues()))
    parents = {queue.parent for queue in build.queues}
    podsets = [queue.name for queue in build.queues if queue.name not in parents]
    for row, node in enumerate(nodes):
        if node.releasing_gpu and draw(st.booleans()):
            of = [queue.name for queue in build.queues].index(draw(st.sampled_from(podsets)))
            build.terminating.append(ReleasingAmount(of, row, (0, 0, node.releasing_gpu * 1000)))
    for _ in range(draw(st.integers(2, 6))):
        tree = draw(_subgroup_trees(build, options))
        build.podgroup(
            tree,
            queue=draw(st.sampled_from(podsets)),
            priority=draw(st.sampled_from([50, 50, 75])),
            is_preemptible=draw(st.booleans()),
            is_kept=draw(st.booleans()),
        )
    return _with_nominated(build.snapshot(pod_relations=no_pod_affinity(len(nodes))))


@st.composite
def _nodes(draw: st.DrawFn, options: SnapshotOptions) -> SnapshotNode:
    gpu = draw(st.sampled_from([8, 4, 8, 2, 1, 0]))
    used = draw(st.integers(0, gpu // 2))
    return SnapshotNode(
        gpu=gpu,
        cpu=draw(st.sampled_from([16, 8, 4])),
        pods=draw(st.sampled_from([110, 110, 110, 2])),
        used_gpu=used,
        used_cpu=draw(st.integers(0, 2)),
        releasing_gpu=draw(st.integers(0, gpu - used)) if options.has_releasing else 0,
        prefilter_fault=draw(st.sampled_from([0] * 7 + [4])),
        labels=(draw(st.sampled_from([NONE, 0, 1])),),
        taints=(draw(st.sampled_from([False] * 5 + [True])),),
    )


@st.composite
def _queues(draw: st.DrawFn) -> list[SnapshotQueue]:
    bound = st.sampled_from([UNBOUND, 8, UNBOUND, 4, UNBOUND, 2, 1, 0])
    parents = draw(st.sampled_from([("", "0"), ("",), ("", "0", "0", ""), ("", "")]))
    has = [draw(st.sampled_from([0, 0, 0, 1, 3])) for _ in parents]
    for q, parent in reversed(list(enumerate(parents))):
        if parent:
            has[int(parent)] += has[q]
    return [
        SnapshotQueue(
            name=str(q),
            parent=parent,
            quota=draw(bound),
            limit=draw(bound),
            weight=draw(st.sampled_from([0, 1, 3])),
            priority=draw(st.sampled_from([100, 100, 200])),
            allocated=has[q],
        )
        for q, parent in enumerate(parents)
    ]


@st.composite
def _subgroup_trees(draw: st.DrawFn, build: Builder, options: SnapshotOptions) -> SubGroupTree:
    names = iter("abcdef")
    shapes = st.sampled_from(options.signatures)
    one = draw(shapes)

    def podset() -> PodSet:
        it = draw(shapes) if options.has_mixed_podgroups else one
        return _podset(draw, build, options, (next(names), it))

    def group(name: str, children: tuple[SubGroupTree, ...]) -> SubGroupSet:
        return SubGroupSet(name, draw(st.integers(0, len(children))), children)

    kind = draw(st.sampled_from(["leaf", "leaf", "group", "groups"]))
    if kind == "leaf":
        return podset()
    if kind == "group":
        return group("top", tuple(podset() for _ in range(draw(st.integers(1, 3)))))
    return group("top", (group("left", (podset(), podset())), group("right", (podset(), podset()))))


def _podset(
    draw: st.DrawFn, build: Builder, options: SnapshotOptions, of: tuple[str, SchedulingSignature]
) -> PodSet:
    name, one = of
    waiting = build.waiting_pods(draw(st.sampled_from([2, 1, 3, 4, 0])), one)
    later = draw(st.sampled_from([0, 0, 1, 2]))
    row = build.signature_row(one)
    is_alone = (
        one.matched_selectors or one.rwo_claims or one.rwop_claims
    )  # reserved places might be where pods cannot be
    most = len(waiting) + later if options.has_reserved_places and not is_alone else 0
    reserved_places = draw(st.lists(st.integers(0, len(build.nodes) - 1), max_size=min(2, most)))
    return PodSet(
        name=name,
        minimum=draw(st.integers(0, len(waiting) + later) | st.integers(0, 5)),
        pending=waiting,
        running=draw(st.sampled_from([0, 0, 0, 1, 2])),
        reserved_places=tuple(
            ReservedPlace(node, row, ReservationCause.ANTICIPATED) for node in reserved_places
        ),
        expected=later,
        expected_signature=row,
    )


def _with_nominated(snapshot: Snapshot) -> Snapshot:
    """Take the capacity of reserved places, and charge their queues."""
    statement = Statement(snapshot)
    queues = _QueueCharges(snapshot)
    for podgroup in snapshot.podgroups:
        for podset in podsets_of(podgroup.tree):
            for reserved_place in podset.reserved_places:
                statement.allocate(reserved_place.node, reserved_place.signature, on_idle=True)
                queues.charge(
                    podgroup.queue, reserved_place.signature, 1, not podgroup.is_preemptible
                )
                queues.request(podgroup.queue, reserved_place.signature, 1)
    return _written(snapshot, statement, queues)


class _QueueCharges:
    """What queues have and want while it changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.allocated = snapshot.queues.allocated.copy()
        self.fixed = snapshot.queues.non_preemptible.copy()
        self.requested = snapshot.queues.requested.copy()

    def charge(self, queue: int, one: int, sign: int, is_fixed: bool) -> None:
        """Let a queue have a pod more, or less."""
        for q in self._ancestors(queue):
            self.allocated[q] += sign * np.array(self._snapshot.signatures[one].queue_request)
            if is_fixed:
                self.fixed[q] += sign * np.array(self._snapshot.signatures[one].queue_request)

    def request(self, queue: int, one: int, sign: int) -> None:
        """Let a queue want a pod more, or less."""
        for q in self._ancestors(queue):
            self.requested[q] += sign * np.array(self._snapshot.signatures[one].queue_request)

    def _ancestors(self, queue: int) -> list[int]:
        way = []
        while queue != NONE:
            way.append(queue)
            queue = self._snapshot.queues.parent[queue]
        return way


def after_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the cluster when everything is bound; nothing may have been nominated."""
    statement = Statement(snapshot)
    charges = _QueueCharges(snapshot)
    podgroups = list(snapshot.podgroups)
    state, node_of = snapshot.pods.state.copy(), snapshot.pods.node.copy()
    for admission in plan.allocations:
        podgroup = podgroups[admission.podgroup]
        is_fixed = not podgroup.is_preemptible
        for reserved_place in _released_places(podgroup.tree, admission):
            statement.deallocate(reserved_place.node, reserved_place.signature)
            charges.charge(podgroup.queue, reserved_place.signature, -1, is_fixed)
            charges.request(podgroup.queue, reserved_place.signature, -1)
        for pod, node, _ in admission.binds:
            one = int(snapshot.pods.signature[pod])
            statement.allocate(node, one, on_idle=True)
            charges.charge(podgroup.queue, one, 1, is_fixed)
            state[pod], node_of[pod] = PodState.RUNNING, node
        tree = _grown_tree(podgroup.tree, admission)
        for name, node, number, _ in admission.reservations:
            one = next(
                podset.expected_signature for podset in podsets_of(tree) if podset.name == name
            )
            for _ in range(number):
                statement.allocate(node, one, on_idle=True)
                charges.charge(podgroup.queue, one, 1, is_fixed)
                charges.request(podgroup.queue, one, 1)
        podgroups[admission.podgroup] = replace(podgroup, tree=tree)
    pods = replace(snapshot.pods, state=state, node=node_of)
    return replace(_written(snapshot, statement, charges), podgroups=tuple(podgroups), pods=pods)


def _released_places(tree: SubGroupTree, admission: PodGroupAllocation) -> list[ReservedPlace]:
    placed = {it.pod for it in admission.binds}
    return [
        reserved_place
        for podset in podsets_of(tree)
        for reserved_place in podset.reserved_places[: sum(pod in placed for pod in podset.pending)]
    ]


def _grown_tree(tree: SubGroupTree, admission: PodGroupAllocation) -> SubGroupTree:
    if isinstance(tree, SubGroupSet):
        return replace(tree, children=tuple(_grown_tree(it, admission) for it in tree.children))
    placed = {it.pod for it in admission.binds}
    come = sum(pod in placed for pod in tree.pending)
    held = tuple(
        ReservedPlace(it.node, tree.expected_signature, it.cause)
        for it in admission.reservations
        if it.podset == tree.name
        for _ in range(it.number)
    )
    return replace(
        tree,
        pending=tuple(pod for pod in tree.pending if pod not in placed),
        running=tree.running + come,
        reserved_places=tree.reserved_places[come:] + held,
    )


def _written(snapshot: Snapshot, statement: Statement, charges: _QueueCharges) -> Snapshot:
    pod_relations = replace(
        snapshot.pod_relations,
        selector_counts=statement.selector_counts,
        anti_affinity_counts=statement.anti_affinity_counts,
        claim_node=tuple(statement.claim_node),
        claim_users=tuple(statement.claim_users),
    )
    return replace(
        snapshot,
        nodes=replace(snapshot.nodes, idle=statement.idle, ports=statement.ports),
        pod_relations=pod_relations,
        queues=replace(
            snapshot.queues,
            allocated=charges.allocated,
            non_preemptible=charges.fixed,
            requested=charges.requested,
        ),
    )
