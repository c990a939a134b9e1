"""What the pods on each node use, shared GPUs included, and what is idle; updated by node.

Only pods of our scheduler have shares of GPUs, and are charged for them. Any user can write the
label that names a GPU: in the live cluster it counts only where a reservation pod holds that GPU.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from scheduler.core.model.resources import NONE, SUM_MOST, Bools, Ints, ResourceKind, sums, total
from scheduler.core.model.snapshot import NodeFault, PodRelations, SharedDevices, SnapshotNodes
from scheduler.state.nodes.gpu_packing import HeldGpus, Packing, SharedGpus
from scheduler.state.nodes.node_table import NodeTable
from scheduler.state.podgroups.reservations import Reservations
from scheduler.state.pods.gpu_share_metadata import named_gpus
from scheduler.state.pods.pod_table import (
    RELEASING,
    RUNNING,
    PodsPerNode,
    PodTable,
    pods_per_node,
    with_reserved,
)
from scheduler.state.pods.requests import PodRequests
from scheduler.state.snapshot.signatures import Encoding
from trainer_kai.api.gpu_requests import WHOLE_GPU
from trainer_kai.api.meta import Key
from trainer_kai.api.names import RECEIVED_TYPE

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _PlacesOnNode(NamedTuple):
    key: Key
    podset: str
    class_number: int
    number: int


class _NodeGpus(NamedTuple):
    """The shared GPUs of a node in the order of their ids, and the slots of what has shares."""

    ids: tuple[str, ...]
    used: tuple[int, ...]  # thousandths
    releasing: tuple[int, ...]
    made_up: frozenset[int]  # slots without an id that labels name
    closed: frozenset[int]  # slots that take no further share
    unreserved: int  # shared GPUs that lack a reservation pod
    unshared: tuple[int, int]  # GPUs that only reservation pods hold, and how many are releasing
    slots_of_pod: dict[int, tuple[int, ...]]  # by row, of running pods
    # By PodGroup and PodSet, of each reserved place.
    slots_of_places: dict[tuple[Key, str], tuple[tuple[int, ...], ...]]


class SharedGpuTable:
    """Shared GPUs in the order of their nodes, then of their ids."""

    def __init__(
        self,
        pod_table: PodTable,
        requests: PodRequests,
        bind_gpu_groups: Mapping[Key, tuple[str, ...]],
        *,
        trusts_labels: bool,
    ) -> None:
        """*bind_gpu_groups* are the ids of the GPUs of pods with a bind in flight.

        *trusts_labels*: an id counts also where no reservation pod holds it.
        """
        self._pod_table: Final = pod_table
        self._requests: Final = requests
        self._bind_gpu_groups: Final = bind_gpu_groups
        self._trusts_labels: Final = trusts_labels
        self._by_node: Final[dict[int, _NodeGpus]] = {}
        columns = requests.encoder.resource_columns
        self._gpus: Final = columns.gpus
        self._pods: Final = columns.pods
        self._slots_of_pod: Final[dict[int, tuple[int, ...]]] = {}
        self._table: SharedDevices | None = None

    def read(self, rows: Iterable[int], is_selected: Bools, reservations: Reservations) -> set[Key]:
        """Read the shared GPUs of some nodes again; *is_selected*, [node], is true of these.

        Return the PodGroups that have reserved places with other slots than before.
        """
        if not self._requests.sharing and not self._by_node and not self._has_reservation_pods():
            return set()
        before = {row: self._by_node.pop(row) for row in rows if row in self._by_node}
        for known in before.values():
            for pod_row in known.slots_of_pod:
                del self._slots_of_pod[pod_row]
        pods = self._pods_by_node(is_selected)
        places = self._places_by_node(is_selected, reservations)
        held = self._held_gpus(is_selected)
        for row in sorted({*pods, *places, *held}):
            found = self._read_node(
                row, pods.get(row, []), places.get(row, ()), held.get(row, HeldGpus())
            )
            self._by_node[row] = found
            self._slots_of_pod.update(found.slots_of_pod)
        if before or pods or places or held:
            self._table = None
        return {
            key
            for row, place_list in places.items()
            for key, podset, *_ in place_list
            if row not in before
            or before[row].slots_of_places.get((key, podset))
            != self._by_node[row].slots_of_places[key, podset]
        }

    def slots_of_places(self, key: Key, podset: str, node: int) -> tuple[tuple[int, ...], ...]:
        """Return the slots of the reserved places of a PodSet on a node, of each place."""
        found = self._by_node.get(node)
        return found.slots_of_places.get((key, podset), ()) if found else ()

    def table(self) -> SharedDevices:
        if self._table is None:
            rows = sorted(self._by_node)
            nodes = [self._by_node[row] for row in rows]
            counts = [len(it.ids) for it in nodes]
            first = [0, *accumulate(counts)]
            self._table = SharedDevices(
                ids=tuple(chain.from_iterable(it.ids for it in nodes)),
                node=np.repeat(np.array(rows, dtype=np.int32), counts),
                used=_joined(it.used for it in nodes),
                releasing=_joined(it.releasing for it in nodes),
                slots_of_pod=dict(self._slots_of_pod),
                made_up=_rows_of(first, (it.made_up for it in nodes)),
                closed=_rows_of(first, (it.closed for it in nodes)),
            )
        return self._table

    def charge(self, rows: Iterable[int], allocatable: Ints, used: Ints, releasing: Ints) -> None:
        """Charge each shared GPU to its node; it is releasing when all its shares are.

        So is each GPU that only a reservation pod holds, and the place of each reservation pod that
        is missing.
        """
        for row in rows:
            found = self._by_node.get(row)
            column = NONE if found is None else self._column(allocatable[row])
            if found is not None and column != NONE:
                pairs = zip(found.used, found.releasing, strict=True)
                is_releasing = sum(used_ == releasing_ for used_, releasing_ in pairs)
                unshared, unshared_releasing = found.unshared
                used[row, column] += WHOLE_GPU * (len(found.ids) + unshared)
                releasing[row, column] += WHOLE_GPU * (is_releasing + unshared_releasing)
                used[row, self._pods] += found.unreserved

    def _column(self, allocatable: Ints) -> int:
        return next((column for column in self._gpus if allocatable[column] > 0), NONE)

    def _pods_by_node(self, is_selected: Bools) -> dict[int, list[int]]:
        pod_table, by_node = self._pod_table, dict[int, list[int]]()
        chosen = np.flatnonzero(
            is_selected[pod_table.node] & pod_table.class_table.shares_gpu[pod_table.class_number]
        )
        for pod_row, row in zip(chosen.tolist(), pod_table.node[chosen].tolist(), strict=True):
            by_node.setdefault(row, []).append(pod_row)
        return by_node

    def _places_by_node(
        self, is_selected: Bools, reservations: Reservations
    ) -> dict[int, list[_PlacesOnNode]]:
        sharing, by_node = self._requests.sharing, dict[int, list[_PlacesOnNode]]()
        chosen = sorted(
            (key, podset, it)
            for key, podsets in reservations.by_podgroup.items()
            for podset, it in podsets.items()
            if it.pod_class.number in sharing
        )
        for key, podset, reserved in chosen:
            counts = Counter(row for row, _ in reserved.places if is_selected[row])
            for row, count in counts.items():
                by_node.setdefault(row, []).append(
                    _PlacesOnNode(key, podset, reserved.pod_class.number, count)
                )
        return by_node

    def _has_reservation_pods(self) -> bool:
        return not self._trusts_labels and bool(
            self._pod_table.class_table.is_gpu_reservation.any()
        )

    def _held_gpus(self, is_selected: Bools) -> dict[int, HeldGpus]:
        pod_table, found = self._pod_table, dict[int, HeldGpus]()
        if not self._has_reservation_pods():
            return found
        for pod_row in np.flatnonzero(
            is_selected[pod_table.node]
            & pod_table.class_table.is_gpu_reservation[pod_table.class_number]
        ).tolist():
            state = int(pod_table.state[pod_row])
            found.setdefault(int(pod_table.node[pod_row]), HeldGpus()).add(
                named_gpus(pod_table.pod(pod_row).metadata.labels),
                is_terminating=state != RUNNING,
                is_releasing=state == RELEASING,
            )
        return found

    def _read_node(
        self, row: int, pod_rows: list[int], places: Sequence[_PlacesOnNode], held: HeldGpus
    ) -> _NodeGpus:
        """Read one node; the ids that reservation pods hold count."""
        state, gpus, trusts_labels = self._pod_table.state, SharedGpus(), self._trusts_labels
        ids_of = self._add_pods(gpus, row, pod_rows, held.ids)
        # The GPUs of pods without an id may be any, so no share is put there.
        closed = set() if trusts_labels else gpus.made_up | held.terminating_ids
        ids_of_places = self._add_places(gpus, row, places, closed)
        slot_of = {id_: slot for slot, id_ in enumerate(sorted(gpus.used))}
        return _NodeGpus(
            ids=tuple(slot_of),
            used=tuple([gpus.used[it] for it in slot_of]),
            releasing=tuple([gpus.releasing[it] for it in slot_of]),
            made_up=frozenset(map(slot_of.__getitem__, gpus.made_up)),
            closed=frozenset(slot_of[it] for it in closed if it in slot_of),
            unreserved=0 if trusts_labels else len(slot_of.keys() - held.ids),
            unshared=held.unshared(slot_of.keys()),
            slots_of_pod={
                pod_row: _slots(slot_of, ids)
                for pod_row, ids in ids_of.items()
                if state[pod_row] == RUNNING
            },
            slots_of_places={
                name: tuple([_slots(slot_of, ids) for ids in of_places])
                for name, of_places in ids_of_places.items()
            },
        )

    def _add_pods(
        self, gpus: SharedGpus, row: int, pod_rows: list[int], held: AbstractSet[str]
    ) -> dict[int, tuple[str, ...]]:
        """Add the shares of the pods of a node; return the ids of their GPUs, by pod row."""
        pod_table, requests = self._pod_table, self._requests
        ids_of: dict[int, tuple[str, ...]] = {}
        without_id: list[tuple[int, int, int, bool]] = []
        binding, keys = self._bind_gpu_groups, pod_table.keys
        bound_now = set().union(*(binding.get(keys[it], ()) for it in pod_rows)) if binding else ()
        for pod_row in sorted(pod_rows, key=keys.__getitem__):
            number = int(pod_table.class_number[pod_row])
            amount, devices = requests.share_on(number, row), requests.sharing[number].devices
            is_releasing = bool(pod_table.state[pod_row] == RELEASING)
            counting = binding.get(keys[pod_row]) or self._counting(pod_row, held, bound_now)
            ids = [
                it
                for it in counting[:devices]
                if gpus.add_named(it, amount, is_releasing=is_releasing)
            ]
            ids_of[pod_row] = tuple(ids)
            if len(ids) < devices:
                without_id.append((pod_row, amount, devices - len(ids), is_releasing))
        packing = Packing("unknown", gpus, {})
        for pod_row, amount, count, is_releasing in without_id:
            ids_of[pod_row] += gpus.add_packed(packing, amount, count, is_releasing=is_releasing)
        return ids_of

    def _counting(
        self, pod_row: int, held: AbstractSet[str], bound_now: Collection[str]
    ) -> tuple[str, ...]:
        """Return the ids in the labels of a pod that count.

        A GPU to which another pod is being bound is that of its users also while its reservation is
        lost. Only a scheduler writes the annotation that its users have.
        """
        meta = self._pod_table.pod(pod_row).metadata
        named = tuple(named_gpus(meta.labels))
        if self._trusts_labels:
            return named
        is_user = bool(bound_now) and RECEIVED_TYPE in meta.annotations
        return tuple([it for it in named if it in held or (is_user and it in bound_now)])

    def _add_places(
        self,
        gpus: SharedGpus,
        row: int,
        places: Sequence[_PlacesOnNode],
        closed: AbstractSet[str],
    ) -> dict[tuple[Key, str], list[tuple[str, ...]]]:
        """Add the shares of the reserved places of a node, beside all shares that stay."""
        staying = {
            id_: used - gpus.releasing[id_] for id_, used in gpus.used.items() if id_ not in closed
        }
        packing = Packing("reserved", gpus, {id_: it for id_, it in staying.items() if it})
        ids_of: dict[tuple[Key, str], list[tuple[str, ...]]] = {}
        for key, podset, class_number, count in places:
            amount = self._requests.share_on(class_number, row)
            devices = self._requests.sharing[class_number].devices
            ids_of[key, podset] = [gpus.add_packed(packing, amount, devices) for _ in range(count)]
        return ids_of


def _slots(slot_of: Mapping[str, int], ids: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted([slot_of[id_] for id_ in ids]))


def _rows_of(first: list[int], slots: Iterable[frozenset[int]]) -> frozenset[int]:
    """Return the rows of some slots of each node; its first slots have the rows *first*."""
    return frozenset(
        start + slot for start, some in zip(first, slots, strict=False) for slot in some
    )


def _joined(columns: Iterable[tuple[int, ...]]) -> Ints:
    return np.array(list(chain.from_iterable(columns)), dtype=np.int64)


class NodeOccupancy:
    """What is allocatable and used on each node, as arrays in the columns of one encoding."""

    def __init__(
        self,
        encoding: Encoding,
        nodes: NodeTable,
        pod_table: PodTable,
        bind_gpu_groups: Mapping[Key, tuple[str, ...]],
        *,
        trusts_gpu_labels: bool,
    ) -> None:
        self._encoding: Final = encoding
        self._nodes: Final = nodes
        self._pod_table: Final = pod_table
        size, width = len(nodes), len(encoding.requests.encoder.names)
        affinity = encoding.affinity
        self._allocatable: Final[Ints] = nodes.allocatable(encoding.requests.encoder, range(size))
        self._used: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._releasing: Final[Ints] = np.zeros((size, width), dtype=np.int64)
        self._foreign: Final[Ints] = np.zeros((size, len(ResourceKind)), dtype=np.int64)
        self._ports: Final = np.zeros((size, len(encoding.host_ports.ports)), dtype=np.int32)
        self._selector_counts: Final = np.zeros((len(affinity.selectors), size), dtype=np.int32)
        self._anti_affinity_counts: Final = np.zeros((len(affinity.terms), size), dtype=np.int32)
        self._labels: NDArray[np.int32] = encoding.labels.table()
        self._closed_to_mig: Final[Bools] = np.zeros(size, dtype=np.bool_)
        self.shared_gpus: Final = SharedGpuTable(
            pod_table, encoding.requests, bind_gpu_groups, trusts_labels=trusts_gpu_labels
        )

    def read_capacity(self, rows: Iterable[int]) -> None:
        known = list(rows)
        if known:
            self._allocatable[known] = self._nodes.allocatable(
                self._encoding.requests.encoder, known
            )

    def read(self, rows: Iterable[int], reservations: Reservations) -> set[Key]:
        """Count the pods of some nodes again.

        Return the PodGroups that have reserved places with other shared GPUs than before.
        """
        reserved, classes = reservations.counts_by_node(), self._pod_table.class_table
        chosen = np.array(sorted(rows), dtype=np.int64)
        is_selected = np.zeros(len(self._nodes) + 1, dtype=np.bool_)
        is_selected[chosen] = True
        on = pods_per_node(self._pod_table, is_selected)
        reserved_counts = {pair: count for pair, count in reserved.items() if is_selected[pair[1]]}
        size = len(self._nodes)
        with_reservations = with_reserved(on, reserved_counts, size + 1)
        self._charge(chosen, on, with_reservations)
        is_closing = classes.has_mig_annotations[on.class_number]
        self._closed_to_mig[chosen] = False
        self._closed_to_mig[on.node[is_closing]] = True
        changed = self.shared_gpus.read(chosen.tolist(), is_selected, reservations)
        self.shared_gpus.charge(chosen.tolist(), self._allocatable, self._used, self._releasing)
        counts, holders = self._encoding.affinity.count_pods(with_reservations, size)
        self._selector_counts[:, chosen] = counts[:, chosen]
        self._anti_affinity_counts[:, chosen] = holders[:, chosen]
        taken = self._encoding.host_ports.count_pods(with_reservations, classes, size)
        self._ports[chosen] = taken[chosen]
        return changed

    def table(self) -> SnapshotNodes:
        """Return the nodes, less what pods, shared devices and reserved places use."""
        encoding, nodes = self._encoding, self._nodes
        if self._labels.shape[1] != len(encoding.labels.key_names):
            self._labels = encoding.labels.table()
        return SnapshotNodes(
            names=nodes.names,
            allocatable=self._allocatable.copy(),
            idle=self._allocatable - self._used,
            releasing=self._releasing.copy(),
            fault=nodes.faults.copy(),
            labels=self._labels,
            taints=encoding.taints.table,
            ports=self._ports.copy(),
            key_names=encoding.labels.key_names,
            taint_names=encoding.taints.names,
            gpu_mode=nodes.gpu_mode.copy(),
            gpu_memory=nodes.gpu_memory.copy(),
            closed_to_mig=self._closed_to_mig.copy(),
            key_values=encoding.labels.key_values,
        )

    def pod_relations(self, placed: tuple[tuple[int, int], ...]) -> PodRelations:
        """Return the pods by selector and term; *placed* are node and users of each claim."""
        return PodRelations(
            selector_counts=self._selector_counts.copy(),
            anti_affinity_terms=self._encoding.affinity.terms,
            anti_affinity_counts=self._anti_affinity_counts.copy(),
            claim_node=tuple(node for node, _ in placed),
            claim_users=tuple(users for _, users in placed),
        )

    def total(self) -> tuple[int, int, int]:
        """Return what usable nodes have, less what pods of other schedulers use there."""
        usable = self._nodes.faults == NodeFault.NONE
        whole = self._encoding.requests.encoder.queue_capacity(self._allocatable[usable])
        taken = self._foreign[usable]
        cpu, memory, gpu = (
            min(max(total(whole[:, kind]) - total(taken[:, kind]), 0), SUM_MOST)
            for kind in ResourceKind
        )
        return cpu, memory, gpu

    def _charge(self, rows: Ints, on: PodsPerNode, with_reservations: PodsPerNode) -> None:
        """Charge pods and reserved places to their nodes; what is releasing is used as well.

        On a node that is charged with more than can be counted nothing is releasing.
        """
        requests, is_foreign = self._encoding.requests, self._pod_table.class_table.is_foreign

        def charged(amounts: Ints, pods: PodsPerNode, pod_counts: Ints) -> Ints:
            some = pod_counts > 0
            at = np.searchsorted(rows, pods.node[some])
            return sums(at, amounts[pods.class_number[some]], pod_counts[some], len(rows))

        used = charged(requests.request, with_reservations, with_reservations.pod_counts)
        self._used[rows] = used
        releasing = charged(requests.request, on, on.releasing)
        self._releasing[rows] = np.where(used < SUM_MOST, releasing, 0)
        foreign = np.where(is_foreign[on.class_number], on.pod_counts, 0)
        self._foreign[rows] = charged(requests.queue_request, on, foreign)
