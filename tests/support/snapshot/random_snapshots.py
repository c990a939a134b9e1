"""Small random snapshots, and the next snapshot once a plan is carried out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from scheduler.core.model.podgroup import (
    AffinityTerm,
    LabelRequirement,
    PodGroupInfo,
    PodSet,
    ReservationCause,
    ReservedPlace,
    SchedulingSignature,
    SpreadConstraint,
    SubGroupSet,
    SubGroupTree,
    podsets_of,
)
from scheduler.core.model.resources import NONE, UNBOUND, held_shares
from scheduler.core.model.result import Plan, PodGroupAllocation
from scheduler.core.model.snapshot import (
    GpuMode,
    PodRelations,
    PodState,
    ReleasingAmount,
    SharedDevices,
    Snapshot,
)
from scheduler.core.nodes.working_nodes import WorkingNodes
from tests.support.snapshot.builder import (
    Builder,
    SnapshotNode,
    SnapshotQueue,
    mig_signature,
    share_signature,
    signature,
)
from tests.support.snapshot.device_violations import share_on_node
from tests.support.snapshot.statement_state import gpu_shares, working_nodes

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
SHARE_SIGNATURES: Final = (
    *(share_signature(share) for share in (0.5, 0.2, 0.7, 0.125, 1, 0.34)),
    *(share_signature(0.5, 2), share_signature(0.3, 3, cpu=0)),
)
DEVICE_SIGNATURES: Final = (
    *SHARE_SIGNATURES,
    *(mig_signature("1g.5gb"), mig_signature("3g.20gb", 2)),
    *(signature(gpu=1), signature(gpu=2), signature(cpu=1)),
)


@dataclass(frozen=True)
class SnapshotOptions:
    """What may occur in a snapshot."""

    has_releasing: bool = True
    has_reserved_places: bool = True
    has_mixed_podgroups: bool = True  # their pods differ
    signatures: tuple[SchedulingSignature, ...] = PLAIN_SIGNATURES + CONSTRAINED_SIGNATURES
    has_devices: bool = False  # GPUs that pods share, and nodes with MIG
    memories: tuple[int, ...] = ()  # of GPUs that pods request, in MiB
    has_expected_pods: bool = True


PLAIN: Final = SnapshotOptions(False, False, False, PLAIN_SIGNATURES)
DEVICES: Final = SnapshotOptions(
    signatures=DEVICE_SIGNATURES, has_devices=True, memories=(10_000, 25_000, 50_000)
)
PLAIN_DEVICES: Final = SnapshotOptions(
    False, False, False, DEVICE_SIGNATURES, has_devices=True, has_expected_pods=False
)


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
    if options.has_devices:
        memory = [build.memory_signature(mib, 1 + mib // 50_000) for mib in options.memories]
        options = replace(options, signatures=(*options.signatures, *memory))
        _running_shares(draw, build, podsets)
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


def _running_shares(draw: st.DrawFn, build: Builder, queues: list[str]) -> None:
    """Let pods run on GPUs of nodes that are shared already."""
    for row, node in enumerate(build.nodes):
        for slot, amounts in enumerate(node.shares):
            one = draw(st.sampled_from([None, *SHARE_SIGNATURES[1:4]]))
            if one is not None and sum(amounts) + one.device_share <= 1000:
                queue, minimum = draw(st.sampled_from(queues)), draw(st.integers(0, 1))
                build.running_podgroup([row], one, slots=[(slot,)], minimum=minimum, queue=queue)


@st.composite
def _nodes(draw: st.DrawFn, options: SnapshotOptions) -> SnapshotNode:
    node = draw(_whole_nodes(options))
    if not options.has_devices:
        return node
    mode = draw(st.sampled_from([GpuMode.WHOLE] * 6 + [*GpuMode][1:]))
    if mode != GpuMode.WHOLE:
        gpu = 0 if mode == GpuMode.MIG_MIXED else node.gpu
        mig = draw(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 4)))
        closed = draw(st.sampled_from([False, False, True]))
        whole = replace(node, gpu=gpu, used_gpu=0, releasing_gpu=0)
        return replace(whole, gpu_mode=mode, mig=mig, is_closed_to_mig=closed)
    releasing = st.sampled_from([0, 0, 200, 500] if options.has_releasing else [0])
    shares = st.tuples(st.sampled_from([300, 500, 750, 100]), releasing)
    shares |= st.just((0, 500)) if options.has_releasing else st.nothing()
    most = node.gpu - node.used_gpu - node.releasing_gpu
    return replace(
        node,
        gpu_memory=draw(st.sampled_from([40_000, 80_000, 0, 16_000])),
        shares=tuple(it for it in draw(st.lists(shares, max_size=min(most, 3))) if sum(it) <= 1000),
    )


@st.composite
def _whole_nodes(draw: st.DrawFn, options: SnapshotOptions) -> SnapshotNode:
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
    later = draw(st.sampled_from([0, 0, 1, 2])) if options.has_expected_pods else 0
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
            ReservedPlace(node, _row_on_node(build, one, node), ReservationCause.ANTICIPATED)
            for node in reserved_places
            if not one.shared_devices or _may_share(build.nodes[node], one)
        ),
        expected=later,
        expected_signature=row,
    )


def _may_share(node: SnapshotNode, one: SchedulingSignature) -> bool:
    has_gpus = node.gpu > 0 and node.gpu_mode == GpuMode.WHOLE
    return has_gpus and (node.gpu_memory >= one.device_memory or not one.device_memory)


def _row_on_node(build: Builder, one: SchedulingSignature, node: int) -> int:
    """Return the signature of a pod on a node: with its share there if it requests memory."""
    memory = build.nodes[node].gpu_memory
    if not one.device_memory or not memory:
        return build.signature_row(one)
    share = -(-100 * one.device_memory // memory) * 10
    counted = (*one.queue_request[:2], share * one.shared_devices)
    return build.signature_row(
        replace(one, device_share=share, queue_request=counted, least_queue_request=None)
    )


def _with_nominated(snapshot: Snapshot) -> Snapshot:
    """Take the capacity of reserved places, and charge their queues."""
    nodes = working_nodes(snapshot)
    queues = _QueueCharges(snapshot)
    podgroups = []
    for podgroup in snapshot.podgroups:

        def take(place: ReservedPlace, podgroup: PodGroupInfo = podgroup) -> ReservedPlace:
            slots = _best_fit(nodes, place.node, place.signature)
            nodes.statement.allocate(
                place.node, place.signature, on_idle=True, held=held_shares(slots)
            )
            queues.charge(podgroup.queue, place.signature, 1, not podgroup.is_preemptible)
            queues.request(podgroup.queue, place.signature, 1)
            return place._replace(held=held_shares(slots))

        podgroups.append(replace(podgroup, tree=_mapped(podgroup.tree, take)))
    return replace(_written(snapshot, nodes, queues), podgroups=tuple(podgroups))


def _mapped(tree: SubGroupTree, take: Callable[[ReservedPlace], ReservedPlace]) -> SubGroupTree:
    if isinstance(tree, SubGroupSet):
        return replace(tree, children=tuple(_mapped(it, take) for it in tree.children))
    return replace(tree, reserved_places=tuple(take(it) for it in tree.reserved_places))


def _best_fit(nodes: WorkingNodes, node: int, one: int) -> tuple[int, ...]:
    """Return the GPUs that a reserved place has: the fullest that fit, else more GPUs."""
    snapshot = nodes.snapshot
    share = share_on_node(snapshot, snapshot.signatures[one], node)
    used = [*gpu_shares(nodes).used_later(node)]
    fitting = sorted(
        (-amount, slot) for slot, amount in enumerate(used) if 0 < amount <= 1000 - share
    )
    new = range(len(used), len(used) + snapshot.signatures[one].shared_devices)
    slots = [*(slot for _, slot in fitting), *new]
    return tuple(slots[: snapshot.signatures[one].shared_devices])


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
    nodes = working_nodes(snapshot)
    charges = _QueueCharges(snapshot)
    podgroups = list(snapshot.podgroups)
    state, node_of = snapshot.pods.state.copy(), snapshot.pods.node.copy()
    slots_of_pod = dict(snapshot.devices.slots_of_pod)
    for admission in plan.allocations:
        podgroup = podgroups[admission.podgroup]
        is_fixed = not podgroup.is_preemptible
        for reserved_place in _released_places(podgroup.tree, admission):
            nodes.statement.deallocate(
                reserved_place.node, reserved_place.signature, reserved_place.held
            )
            charges.charge(podgroup.queue, reserved_place.signature, -1, is_fixed)
            charges.request(podgroup.queue, reserved_place.signature, -1)
        for bind in admission.binds:
            pod, node, slots = bind.pod, bind.node, bind.slots
            one = int(snapshot.pods.signature[pod])
            nodes.statement.allocate(node, one, on_idle=True, held=held_shares(slots))
            charges.charge(podgroup.queue, one, 1, is_fixed)
            slots_of_pod.update({pod: slots} if slots else {})
            state[pod], node_of[pod] = PodState.RUNNING, node
        tree = _grown_tree(podgroup.tree, admission)
        for name, node, number, _ in admission.reservations:
            one = next(
                podset.expected_signature for podset in podsets_of(tree) if podset.name == name
            )
            for _ in range(number):
                nodes.statement.allocate(node, one, on_idle=True)
                charges.charge(podgroup.queue, one, 1, is_fixed)
                charges.request(podgroup.queue, one, 1)
        podgroups[admission.podgroup] = replace(podgroup, tree=tree)
    pods = replace(snapshot.pods, state=state, node=node_of)
    written = _written(snapshot, nodes, charges)
    devices = replace(written.devices, slots_of_pod=slots_of_pod)
    return replace(written, podgroups=tuple(podgroups), pods=pods, devices=devices)


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


def _written(snapshot: Snapshot, nodes: WorkingNodes, charges: _QueueCharges) -> Snapshot:
    pod_relations = replace(
        snapshot.pod_relations,
        selector_counts=nodes.relations.selector_counts,
        anti_affinity_counts=nodes.relations.anti_affinity_counts,
        claim_node=tuple(nodes.relations.claim_node),
        claim_users=tuple(nodes.relations.claim_users),
    )
    return replace(
        snapshot,
        nodes=replace(snapshot.nodes, idle=nodes.resources.idle, ports=nodes.relations.ports),
        pod_relations=pod_relations,
        devices=_devices(snapshot, nodes),
        queues=replace(
            snapshot.queues,
            allocated=charges.allocated,
            non_preemptible=charges.fixed,
            requested=charges.requested,
        ),
    )


def _devices(snapshot: Snapshot, nodes: WorkingNodes) -> SharedDevices:
    """Return the shared GPUs as a statement has them."""
    now, later = gpu_shares(nodes).now, gpu_shares(nodes).later
    rows = [(node, slot) for node in sorted(now) for slot in range(len(now[node]))]
    return SharedDevices(
        ids=tuple(f"gpu-{slot:03}" for _, slot in rows),
        node=np.array([node for node, _ in rows], dtype=np.int32),
        used=np.array([now[node][slot] for node, slot in rows], dtype=np.int64),
        releasing=np.array(
            [now[node][slot] - later[node][slot] for node, slot in rows], dtype=np.int64
        ),
        slots_of_pod=snapshot.devices.slots_of_pod,
    )
