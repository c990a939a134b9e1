"""Devices and claims of a cluster, brought up to date together; nothing is made without claims."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from scheduler.core.model.claims import NO_CLAIM_DEVICES, ClaimDevices, PodClaim, slot_and_device
from scheduler.core.model.podgroup import PodSet, ReservedPlace, SubGroupTree
from scheduler.core.model.resources import DeviceSort, Ints, with_devices
from scheduler.core.model.result import Policies
from scheduler.core.model.snapshot import NodeFault, Snapshot
from scheduler.core.nodes.statement import Change
from scheduler.core.nodes.working_nodes import WorkingNodes
from scheduler.state.claims.allocations import ClaimAllocations
from scheduler.state.claims.claim_table import ClaimTable
from scheduler.state.claims.device_table import DeviceTable
from scheduler.state.claims.evaluation import Evaluation
from scheduler.state.claims.selectors import Selectors
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.pods.pod_class import PodClass
from scheduler.state.pods.pod_table import PodTable
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.device_kinds import ResourceSlice
from trainer_kai.api.meta import Key
from trainer_kai.api.quantity import milli

_GPU: Final = 1000


class ClaimChanges(NamedTuple):
    slices: Mapping[str, ResourceSlice | None]
    claims: AbstractSet[Key]
    has_rules: bool = False  # DeviceTaintRules
    has_definitions: bool = False  # templates or DeviceClasses


class ClaimState:
    def __init__(
        self, cluster: Cluster, pod_table: PodTable, nodes: NodeTable, options: StateOptions
    ) -> None:
        self._gpu_resources: Final = options.gpu_resources
        self._cluster: Final = cluster
        self._pod_table: Final = pod_table
        self._nodes: Final = nodes
        selectors = Selectors()
        self._devices: Final = DeviceTable(nodes, selectors)
        self._evaluation: Final = Evaluation(selectors, self._devices, options.selector_steps)
        self.claims: Final = ClaimTable(cluster, pod_table, selectors, self._evaluation)
        self._allocations: Final = ClaimAllocations(cluster, pod_table, self.claims, self._devices)

    @property
    def unevaluated_namespaces(self) -> tuple[str, ...]:
        """The namespaces of which claims ask for what is not evaluated yet."""
        return self._evaluation.waiting

    @property
    def _is_unused(self) -> bool:
        return self.claims.is_empty and not self._devices.names

    def read(self, changes: ClaimChanges, pod_counts: Ints) -> list[int]:
        """Return the pod classes that request others than before."""
        rules = self._cluster.device_taint_rules.values() if changes.has_rules else None
        self._devices.read(changes.slices, rules)
        self._evaluation.begin()
        shapes = self.claims.shapes
        changed = self.claims.read(
            pod_counts, changes.claims, has_definitions=changes.has_definitions
        )
        if self.claims.shapes is not shapes:
            self._devices.forget_filters([it.key for it in self.claims.shapes.filters])
        return changed

    def classes_of(self, claims: Iterable[Key]) -> set[int]:
        """Return the pod classes with pods that have some claims."""
        classes, found = self._pod_table.class_table, set[int]()
        rows = self._pod_table.row_by_key
        for key in claims:
            claim = self._cluster.resource_claims.get(key)
            owner = claim.metadata.controller if claim is not None else None
            row = rows.get(Key(key.namespace, owner.name)) if owner is not None else None
            if row is not None:
                found.add(int(self._pod_table.class_number[row]))
            else:  # it is gone, or several pods name it
                found.update(
                    n
                    for n in np.flatnonzero(classes.has_claims).tolist()
                    if classes.is_known(n) and classes[n].namespace == key.namespace
                )
        return found

    def nodes_of(self, numbers: list[int]) -> set[int]:
        """Return the nodes with pods of some classes, which are charged otherwise than before."""
        is_of = np.isin(self._pod_table.class_number, numbers)
        nodes: set[int] = set(self._pod_table.node[is_of].tolist())
        return nodes

    def special_claims(self) -> Iterator[tuple[int, PodClass, tuple[PodClaim, ...], int]]:
        """Yield the pending pods that have devices already, or are charged less than others."""
        if not self._is_unused:
            self._allocations.read()
            yield from self._allocations.special_claims()

    def table(self) -> ClaimDevices:
        return NO_CLAIM_DEVICES if self._is_unused else self._allocations.table()

    def claim_keys(self) -> Mapping[int, tuple[Key | None, ...]]:
        return {} if self.claims.is_empty else self._allocations.claim_keys()

    def with_gpus(self, total: tuple[int, int, int]) -> tuple[int, int, int]:
        """Add the GPUs of usable nodes that have none as resources: the same GPUs may be both."""
        if not self._devices.is_gpu.any():
            return total
        node = self._devices.node[self._devices.is_gpu]
        has_none = np.array(
            [not _offers_gpus(it, self._gpu_resources) for it in self._nodes.nodes], dtype=np.bool_
        )
        is_usable = np.equal(self._nodes.faults, NodeFault.NONE) & has_none
        cpu, memory, gpu = total
        return cpu, memory, gpu + _GPU * int(is_usable[node].sum())


def _offers_gpus(node: Node, resources: Iterable[str]) -> bool:
    return any(milli(node.status.allocatable.get(it, 0)) > 0 for it in resources)


def with_reserved_devices(snapshot: Snapshot) -> Snapshot:
    """Give reserved places the devices of their claims, the oldest PodGroup first."""
    signatures = snapshot.signatures
    rows = [
        row
        for row, podgroup in enumerate(snapshot.podgroups)
        if any(signatures[it.signature].claims for it in _places_of(podgroup.tree))
    ]
    if not rows:
        return snapshot
    nodes = WorkingNodes(snapshot, Policies(scores=()))
    podgroups, taken = [*snapshot.podgroups], set(snapshot.claim_devices.taken)
    for row in rows:
        tree = _with_devices(podgroups[row].tree, nodes, taken)
        podgroups[row] = replace(podgroups[row], tree=tree)
    devices = replace(snapshot.claim_devices, taken=frozenset(taken))
    return replace(snapshot, podgroups=tuple(podgroups), claim_devices=devices)


def _places_of(tree: SubGroupTree) -> Iterator[ReservedPlace]:
    if isinstance(tree, PodSet):
        yield from tree.reserved_places
    else:
        for child in tree.children:
            yield from _places_of(child)


def _with_devices(tree: SubGroupTree, nodes: WorkingNodes, taken: set[int]) -> SubGroupTree:
    if not isinstance(tree, PodSet):
        children = tuple([_with_devices(it, nodes, taken) for it in tree.children])
        return replace(tree, children=children)
    places = tuple([_place_with_devices(it, nodes, taken) for it in tree.reserved_places])
    return replace(tree, reserved_places=places)


def _place_with_devices(
    place: ReservedPlace, nodes: WorkingNodes, taken: set[int]
) -> ReservedPlace:
    claims = nodes.devices.participants[DeviceSort.CLAIM]
    if not claims.concerns(place.signature):
        return place
    found = claims.choose_reserved(place.signature, place.node, ())
    if found is None:
        return place
    held = with_devices(place.held, DeviceSort.CLAIM, found)
    claims.add(Change(place.node, place.signature, 1, on_idle=False, held=held))
    taken.update(slot_and_device(it)[1] for it in found)
    return place._replace(held=held)
