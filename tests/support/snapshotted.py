"""Small snapshots by chance, and what becomes of one when its plan is carried out."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from scheduler.core.decision import Admission, Plan
from scheduler.core.ledger import Ledger
from scheduler.core.model import (
    NONE,
    UNBOUND,
    Cause,
    Going,
    Group,
    Leaf,
    Neighbours,
    PodState,
    Require,
    Slot,
    Snapshot,
    Spread,
    Term,
    Tree,
    leaves_of,
)
from scheduler.core.model import Shape as PodShape
from tests.support.snapshots import Builder, Node, Queue, shape

__all__ = ["PLAIN", "Taste", "after", "neighbours", "snapshots"]

_ZONE: Final = 0  # the key of the label
_IN_ZONE: Final = (((Require(_ZONE, frozenset({0})),),),)
_SPREAD: Final = Spread(0, _ZONE, 1, 0, True, True, True)

ORDINARY: Final = (
    *(shape(gpu=1), shape(gpu=1), shape(gpu=2, cpu=2), shape(gpu=2, cpu=0.5), shape(gpu=4)),
    *(shape(cpu=2), shape(cpu=0)),
)
SOCIABLE: Final = (
    shape(gpu=1, tolerates=frozenset({0})),
    shape(gpu=1, any_of=_IN_ZONE),
    shape(cpu=1, takes=(0,), avoids=(0,)),
    shape(gpu=1, matches=(0,), apart=(0,), shunned=(0,)),
    shape(cpu=1, matches=(0,), shunned=(0,), near=(Term(0, _ZONE),), is_own_neighbour=True),
    shape(gpu=1, matches=(0,), shunned=(0,), spread=(_SPREAD,)),
    shape(cpu=1, claims=(0,)),
    shape(cpu=1, own_claims=(1,)),
)


@dataclass(frozen=True)
class Taste:
    """What may occur in a snapshot."""

    has_releasing: bool = True
    has_slots: bool = True
    has_mixed_units: bool = True  # their pods differ
    shapes: tuple[PodShape, ...] = ORDINARY + SOCIABLE


PLAIN: Final = Taste(False, False, False, ORDINARY)


def neighbours(nodes: int, **more: Any) -> Neighbours:
    """Return neighbours of which nobody is there yet: one selector, one term, two claims."""
    none = np.zeros((1, nodes), dtype=np.int32)
    table: dict[str, Any] = {
        "counts": none,
        "terms": (Term(0, _ZONE),),
        "holders": none.copy(),
        "claim_node": (NONE, NONE),
        "claim_users": (0, 0),
    }
    return Neighbours(**{**table, **more})


@st.composite
def snapshots(draw: st.DrawFn, taste: Taste = Taste()) -> Snapshot:
    """Draw a few nodes, queues and units."""
    nodes = draw(st.lists(_nodes(taste), min_size=2, max_size=5))
    build = Builder(nodes=nodes, queues=draw(_queues()))
    parents = {queue.parent for queue in build.queues}
    leaves = [queue.name for queue in build.queues if queue.name not in parents]
    for row, node in enumerate(nodes):
        if node.releasing_gpu and draw(st.booleans()):
            of = [queue.name for queue in build.queues].index(draw(st.sampled_from(leaves)))
            build.going.append(Going(of, row, (0, 0, node.releasing_gpu * 1000)))
    for _ in range(draw(st.integers(2, 6))):
        tree = draw(_trees(build, taste))
        build.unit(
            tree,
            queue=draw(st.sampled_from(leaves)),
            priority=draw(st.sampled_from([50, 50, 75])),
            is_preemptible=draw(st.booleans()),
            is_kept=draw(st.booleans()),
        )
    return _held(build.snapshot(neighbours=neighbours(len(nodes))))


@st.composite
def _nodes(draw: st.DrawFn, taste: Taste) -> Node:
    gpu = draw(st.sampled_from([8, 4, 8, 2, 1, 0]))
    used = draw(st.integers(0, gpu // 2))
    return Node(
        gpu=gpu,
        cpu=draw(st.sampled_from([16, 8, 4])),
        pods=draw(st.sampled_from([110, 110, 110, 2])),
        used_gpu=used,
        used_cpu=draw(st.integers(0, 2)),
        releasing_gpu=draw(st.integers(0, gpu - used)) if taste.has_releasing else 0,
        fault=draw(st.sampled_from([0] * 7 + [4])),
        labels=(draw(st.sampled_from([NONE, 0, 1])),),
        taints=(draw(st.sampled_from([False] * 5 + [True])),),
    )


@st.composite
def _queues(draw: st.DrawFn) -> list[Queue]:
    bound = st.sampled_from([UNBOUND, 8, UNBOUND, 4, UNBOUND, 2, 1, 0])
    parents = draw(st.sampled_from([("", "0"), ("",), ("", "0", "0", ""), ("", "")]))
    has = [draw(st.sampled_from([0, 0, 0, 1, 3])) for _ in parents]
    for q, parent in reversed(list(enumerate(parents))):
        if parent:
            has[int(parent)] += has[q]
    return [
        Queue(
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
def _trees(draw: st.DrawFn, build: Builder, taste: Taste) -> Tree:
    names = iter("abcdef")
    shapes = st.sampled_from(taste.shapes)
    one = draw(shapes)

    def leaf() -> Leaf:
        it = draw(shapes) if taste.has_mixed_units else one
        return _leaf(draw, build, taste, (next(names), it))

    def group(name: str, children: tuple[Tree, ...]) -> Group:
        return Group(name, draw(st.integers(0, len(children))), children)

    kind = draw(st.sampled_from(["leaf", "leaf", "group", "groups"]))
    if kind == "leaf":
        return leaf()
    if kind == "group":
        return group("top", tuple(leaf() for _ in range(draw(st.integers(1, 3)))))
    return group("top", (group("left", (leaf(), leaf())), group("right", (leaf(), leaf()))))


def _leaf(draw: st.DrawFn, build: Builder, taste: Taste, of: tuple[str, PodShape]) -> Leaf:
    name, one = of
    waiting = build.pods(draw(st.sampled_from([2, 1, 3, 4, 0])), one)
    later = draw(st.sampled_from([0, 0, 1, 2]))
    row = build.shape(one)
    is_alone = one.matches or one.claims or one.own_claims  # slots might be where pods cannot be
    most = len(waiting) + later if taste.has_slots and not is_alone else 0
    slots = draw(st.lists(st.integers(0, len(build.nodes) - 1), max_size=min(2, most)))
    return Leaf(
        name=name,
        minimum=draw(st.integers(0, len(waiting) + later) | st.integers(0, 5)),
        waiting=waiting,
        there=draw(st.sampled_from([0, 0, 0, 1, 2])),
        slots=tuple(Slot(node, row, Cause.ANTICIPATED) for node in slots),
        later=later,
        later_shape=row,
    )


def _held(snapshot: Snapshot) -> Snapshot:
    """Take the room of slots, and charge their queues."""
    ledger = Ledger(snapshot)
    queues = _Charges(snapshot)
    for unit in snapshot.units:
        for leaf in leaves_of(unit.tree):
            for slot in leaf.slots:
                ledger.take(slot.node, slot.shape, is_now=True)
                queues.charge(unit.queue, slot.shape, 1, not unit.is_preemptible)
                queues.ask(unit.queue, slot.shape, 1)
    return _written(snapshot, ledger, queues)


class _Charges:
    """What queues have and want while it changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.allocated = snapshot.queues.allocated.copy()
        self.fixed = snapshot.queues.fixed.copy()
        self.requested = snapshot.queues.requested.copy()

    def charge(self, queue: int, one: int, sign: int, is_fixed: bool) -> None:
        """Let a queue have a pod more, or less."""
        for q in self._up(queue):
            self.allocated[q] += sign * np.array(self._snapshot.shapes[one].counted)
            if is_fixed:
                self.fixed[q] += sign * np.array(self._snapshot.shapes[one].counted)

    def ask(self, queue: int, one: int, sign: int) -> None:
        """Let a queue want a pod more, or less."""
        for q in self._up(queue):
            self.requested[q] += sign * np.array(self._snapshot.shapes[one].counted)

    def _up(self, queue: int) -> list[int]:
        way = []
        while queue != NONE:
            way.append(queue)
            queue = self._snapshot.queues.parent[queue]
        return way


def after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the cluster when everything is bound; nothing may have been nominated."""
    ledger = Ledger(snapshot)
    charges = _Charges(snapshot)
    units = list(snapshot.units)
    state, node_of = snapshot.pods.state.copy(), snapshot.pods.node.copy()
    for admission in plan.decisions:
        unit = units[admission.unit]
        is_fixed = not unit.is_preemptible
        for slot in _given_up(unit.tree, admission):
            ledger.give(slot.node, slot.shape)
            charges.charge(unit.queue, slot.shape, -1, is_fixed)
            charges.ask(unit.queue, slot.shape, -1)
        for pod, node in admission.binds:
            one = int(snapshot.pods.shape[pod])
            ledger.take(node, one, is_now=True)
            charges.charge(unit.queue, one, 1, is_fixed)
            state[pod], node_of[pod] = PodState.THERE, node
        tree = _grown(unit.tree, admission)
        for name, node, number, _ in admission.reservations:
            one = next(leaf.later_shape for leaf in leaves_of(tree) if leaf.name == name)
            for _ in range(number):
                ledger.take(node, one, is_now=True)
                charges.charge(unit.queue, one, 1, is_fixed)
                charges.ask(unit.queue, one, 1)
        units[admission.unit] = replace(unit, tree=tree)
    pods = replace(snapshot.pods, state=state, node=node_of)
    return replace(_written(snapshot, ledger, charges), units=tuple(units), pods=pods)


def _given_up(tree: Tree, admission: Admission) -> list[Slot]:
    placed = {pod for pod, _ in admission.binds}
    return [
        slot
        for leaf in leaves_of(tree)
        for slot in leaf.slots[: sum(pod in placed for pod in leaf.waiting)]
    ]


def _grown(tree: Tree, admission: Admission) -> Tree:
    if isinstance(tree, Group):
        return replace(tree, children=tuple(_grown(it, admission) for it in tree.children))
    placed = {pod for pod, _ in admission.binds}
    come = sum(pod in placed for pod in tree.waiting)
    held = tuple(
        Slot(it.node, tree.later_shape, it.cause)
        for it in admission.reservations
        if it.leaf == tree.name
        for _ in range(it.number)
    )
    return replace(
        tree,
        waiting=tuple(pod for pod in tree.waiting if pod not in placed),
        there=tree.there + come,
        slots=tree.slots[come:] + held,
    )


def _written(snapshot: Snapshot, ledger: Ledger, charges: _Charges) -> Snapshot:
    crowd = replace(
        snapshot.neighbours,
        counts=ledger.counts,
        holders=ledger.holders,
        claim_node=tuple(ledger.claim_node),
        claim_users=tuple(ledger.claim_users),
    )
    return replace(
        snapshot,
        nodes=replace(snapshot.nodes, idle=ledger.idle, ports=ledger.ports),
        neighbours=crowd,
        queues=replace(
            snapshot.queues,
            allocated=charges.allocated,
            fixed=charges.fixed,
            requested=charges.requested,
        ),
    )
