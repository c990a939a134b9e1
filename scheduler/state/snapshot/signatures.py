"""The encoding of a snapshot, and scheduling signatures: pods that fit the same nodes.

An encoding is kept as long as its key is the same; then only new pod classes are read.
"""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.claims import PodClaim
from scheduler.core.model.podgroup import AvoidedNode, SchedulingSignature
from scheduler.core.model.resources import NONE, Ints
from scheduler.state.claims.claim_table import ClaimTable
from scheduler.state.constraints.affinity import AffinityTable, HostPortTable
from scheduler.state.constraints.namespace_bounds import ConsideredConstraints
from scheduler.state.constraints.selectors import NamespaceLabels
from scheduler.state.constraints.volumes import VolumeClaims
from scheduler.state.inputs import Cluster, StateOptions
from scheduler.state.nodes.labels import Alternatives, NodeLabels
from scheduler.state.nodes.node_table import NodeTable, ResourceEncoder, Taints
from scheduler.state.pods.class_table import PodClassTable, grown
from scheduler.state.pods.gpu_share_metadata import GpuSharing
from scheduler.state.pods.pod_class import NodeRequirements, PodClass
from scheduler.state.pods.requests import PodRequests
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CPU_WORKER, GPU_WORKER
from trainer_kai.api.pod import PodSpec

_NO_SHARING: Final = GpuSharing("", 0, 0, 0)
_FEW_UNUSED: Final = 64  # so many unused signatures do no harm


class EncodingGenerations(NamedTuple):
    """How often something changed of which nothing more needs to be known."""

    namespaces: int = 0
    signatures: int = 0  # how often most of them were unused


class EncodingKey(NamedTuple):
    """What an encoding depends on: with another key it is made anew."""

    generations: EncodingGenerations
    nodes: int  # generation of their names, labels and taints
    resources: frozenset[str]  # that nodes have
    considered: ConsideredConstraints  # pod classes with affinity terms, and host ports
    namespaces: frozenset[str]  # of pods, if any pod class has an affinity term


class NodeProperties(NamedTuple):
    labels: NodeLabels
    taints: Taints
    restricts: bool  # by the labels of GPU workers and CPU workers


def current_encoding_key(
    class_table: PodClassTable,
    considered: ConsideredConstraints,
    nodes: NodeTable,
    generations: EncodingGenerations,
) -> EncodingKey:
    if not considered.term_classes:
        generations = generations._replace(namespaces=0)  # no term selects by their labels
    return EncodingKey(
        generations=generations,
        nodes=nodes.version,
        resources=nodes.resources,
        considered=considered,
        namespaces=frozenset(class_table.namespaces) if considered.term_classes else frozenset(),
    )


class Encoding:
    """Labels, taints, requests and constraints as numbers, and the signatures made of them."""

    def __init__(
        self,
        encoding_key: EncodingKey,
        nodes: NodeTable,
        cluster: Cluster,
        class_table: PodClassTable,
        device_claims: ClaimTable,
        options: StateOptions,
    ) -> None:
        self.key: Final = encoding_key
        self.device_claims: Final = device_claims
        self._class_table: Final = class_table
        # Of the pod classes that were read, by number.
        self._serial: Ints = np.zeros(0, dtype=np.int64)
        self.labels: Final = NodeLabels(nodes.nodes)
        self.taints: Final = Taints(nodes.nodes)
        columns = ResourceEncoder(
            encoding_key.resources, options.gpu_resources, dict(options.gpu_replicas)
        )
        self.requests: Final = PodRequests(
            columns, nodes, lambda pod_class: device_claims.of_class(pod_class).gpus
        )
        namespaces = NamespaceLabels(cluster.namespaces, class_table.namespaces)
        self.affinity: Final = AffinityTable(class_table, self.labels, namespaces)
        self.affinity.read(class_table.numbers(encoding_key.considered.term_classes))
        self.host_ports: Final = HostPortTable(encoding_key.considered.ports)
        self.claims_generation: tuple[int, tuple[Key, ...]] = (NONE, ())
        self.claims = VolumeClaims(cluster, (), self.labels)
        constraint_tables = ConstraintTables(
            self.affinity, self.host_ports, self.claims, device_claims
        )
        self.signatures: Final = SignatureTable(
            NodeProperties(self.labels, self.taints, options.restricts_nodes),
            self.requests,
            constraint_tables,
            class_table,
        )
        self.read_classes()

    def read_claims(self, cluster: Cluster, generation: int, shared: tuple[Key, ...]) -> None:
        self.claims_generation = generation, shared
        self.claims = self.signatures.claims = VolumeClaims(cluster, shared, self.labels)
        self.signatures.forget(np.flatnonzero(self._class_table.has_volumes), 0)

    def read_device_claims(self, numbers: list[int]) -> None:
        """Read pod classes again that request other devices than before."""
        self.forget(numbers)
        self.requests.read(
            [it for it in numbers if self._class_table.is_known(it)], self._class_table
        )

    def forget(self, numbers: list[int]) -> None:
        """Forget the signatures of pod classes that exceed a namespace bound now, or no longer."""
        self.signatures.forget(np.array(numbers, dtype=np.int64), 0)

    def read_classes(self) -> None:
        """Read new pod classes; forget the pod classes that had their numbers before."""
        class_table, size = self._class_table, len(self._class_table.serial)
        if size > len(self._serial):
            self._serial = grown(self._serial, size, NONE)
        new = np.flatnonzero(class_table.serial != self._serial)
        self._serial[new] = class_table.serial[new]
        numbers = [number for number in new.tolist() if class_table.is_known(number)]
        self.signatures.forget(new, size)
        for number in numbers:
            self.affinity.forget(number)
            self.claims.forget(number)
        self.requests.read(numbers, class_table)


class ConstraintTables(NamedTuple):
    affinity: AffinityTable
    host_ports: HostPortTable
    claims: VolumeClaims
    device_claims: ClaimTable


class SignatureTable:
    """The signatures, a row each, made when a row is asked for."""

    def __init__(
        self,
        nodes: NodeProperties,
        requests: PodRequests,
        constraint_tables: ConstraintTables,
        class_table: PodClassTable,
    ) -> None:
        self._labels, self._taints, self._restricts_nodes = nodes
        self._class_table: Final = class_table
        self._requests: Final = requests
        self._affinity, self._host_ports, self.claims, self._device_claims = constraint_tables
        self._encoding_identity: Final = object()  # node requirements are cached for it
        self._rows: Final[dict[SchedulingSignature, int]] = {}
        self._signatures: Final[list[SchedulingSignature]] = []
        self._row_by_content: Final[dict[tuple[object, ...], int]] = {}
        self._nominated_rows: Final[dict[tuple[int, int], int]] = {}
        # By the row of pending pods that request memory of GPUs, and that memory.
        self._memory_rows: Final[dict[tuple[int, int], int]] = {}
        self.row_by_class: Ints = np.zeros(0, dtype=np.int64)  # [pod class]

    def __len__(self) -> int:
        return len(self._signatures)

    def are_mostly_unused(self, rows: NDArray[np.int32]) -> bool:
        """Say whether pods have far fewer signatures than there are; *rows* are those of pods."""
        used = int(np.count_nonzero(np.bincount(rows[rows != NONE])))
        return len(self) > 2 * used + _FEW_UNUSED

    def table(self) -> tuple[SchedulingSignature, ...]:
        return tuple(self._signatures)

    def forget(self, numbers: Ints, size: int) -> None:
        """Forget the rows of some pod classes; there may be *size* pod classes."""
        if size > len(self.row_by_class):
            self.row_by_class = grown(self.row_by_class, size, NONE)
        self.row_by_class[numbers] = NONE

    def row(self, pod_class: PodClass) -> int:
        row = int(self.row_by_class[pod_class.number])
        if row == NONE:
            row = self.row_by_class[pod_class.number] = self._find_row(pod_class)
        return row

    def nominated_row(self, pod_class: PodClass, node: int) -> int:
        row = self.row(pod_class)
        found = self._nominated_rows.get((row, node))
        if found is None:
            found = self._add(replace(self._signatures[row], nominated_node=node))
            self._nominated_rows[row, node] = found
        return found

    def row_on(self, pod_class: PodClass, node: int) -> int:
        """Return the row of the pods of a class on a node: its GPUs may have another memory."""
        row, number, requests = self.row(pod_class), pod_class.number, self._requests
        pending = self._signatures[row]
        if node == NONE or not pending.device_memory:
            return row
        memory = requests.memory_of(node)
        found = self._memory_rows.get((row, memory))
        if found is None:
            cpu, ram, gpu = pending.queue_request
            on_node = replace(
                pending,
                device_share=requests.share_on(number, node),
                queue_request=(cpu, ram, gpu + requests.beyond_pending(number, node)),
                least_queue_request=None,
            )
            found = self._memory_rows[row, memory] = self._add(on_node)
        return found

    def row_with_claims(self, row: int, claims: tuple[PodClaim, ...], less: int) -> int:
        """Return the row of a pod with other claims than its class: they have their devices.

        It is charged *less* GPU where other pods are charged for what it will use with them.
        """
        known = self._signatures[row]
        cpu, memory, gpu = known.queue_request
        least = known.least_queue_request
        return self._add(
            replace(
                known,
                claims=claims,
                queue_request=(cpu, memory, gpu - less),
                least_queue_request=least and (least[0], least[1], least[2] - less),
            )
        )

    def row_avoiding(self, row: int, avoided_nodes: tuple[AvoidedNode, ...]) -> int:
        """Return the row of the same pods in a PodGroup that avoids some nodes."""
        return self._add(replace(self._signatures[row], avoided_nodes=avoided_nodes))

    def _find_row(self, pod_class: PodClass) -> int:
        """Return the row of a pod class with the same content, or of a new signature."""
        number = pod_class.number
        content = (
            pod_class.shared_spec,
            self._requests.sharing.get(number),
            pod_class.mig_annotations,
            pod_class.is_gpu_reservation,
            self._affinity.affinity_of(number),
            # With volumes each pod class has its own signature.
            number if pod_class.spec.volumes else NONE,
            self._exceeds_bounds(pod_class),
            self._device_claims.of_class(pod_class),
        )
        row = self._row_by_content.get(content)
        if row is None:
            row = self._add(self._build(pod_class))
            if not pod_class.spec.volumes:
                self._row_by_content[content] = row
        return row

    def _add(self, signature: SchedulingSignature) -> int:
        row = self._rows.setdefault(signature, len(self._signatures))
        if row == len(self._signatures):
            self._signatures.append(signature)
        return row

    def _exceeds_bounds(self, pod_class: PodClass) -> bool:
        return pod_class.shared_spec.limit_fault is not None or bool(
            self._class_table.exceeds_namespace_bound[pod_class.number]
        )

    def _build(self, pod_class: PodClass) -> SchedulingSignature:
        requests, claims, number = self._requests, self.claims, pod_class.number
        cpu, memory, gpu = requests.queue_request[number].tolist()
        gpu_sharing = requests.sharing.get(number, _NO_SHARING)
        least_gpu = requests.least_gpu_request(number)
        signature = SchedulingSignature(
            request=tuple(requests.request[number].tolist()),
            queue_request=(cpu, memory, gpu),
            has_gpu=requests.has_gpu(number),
            host_ports=self._host_ports.host_ports(pod_class),
            **self._affinity.affinity_of(number)._asdict(),
            rwo_claims=claims.rows(pod_class, one_pod=False),
            rwop_claims=claims.rows(pod_class, one_pod=True),
            shared_devices=gpu_sharing.devices,
            device_share=gpu_sharing.thousandths,
            device_memory=gpu_sharing.mib,
            least_queue_request=None if least_gpu is None else (cpu, memory, least_gpu),
            requests_mig=requests.requests_mig(number),
            claims=self._device_claims.of_class(pod_class).claims,
        )
        if self._exceeds_bounds(pod_class):
            return replace(signature, node_affinity=(self._labels.match_no_node(),))
        node_requirements = pod_class.shared_spec.node_requirements(
            self._encoding_identity, self._node_requirements
        )
        return replace(
            signature,
            tolerated_taints=node_requirements.tolerated_taints,
            node_affinity=node_requirements.node_affinity
            + claims.node_affinity(pod_class)
            + self._restriction(has_gpu=signature.has_gpu),
            conflicting_ports=self._host_ports.conflicting_ports(pod_class),
            unknown_resources=requests.unknown_resources.get(number, ()),
        )

    def _restriction(self, *, has_gpu: bool) -> tuple[Alternatives, ...]:
        """Return that GPU pods run on GPU workers only, and others on CPU workers."""
        if not self._restricts_nodes:
            return ()
        workers = self._labels.match_present(GPU_WORKER if has_gpu else CPU_WORKER)
        return () if () in workers else (workers,)

    def _node_requirements(self, spec: PodSpec) -> NodeRequirements:
        tolerates = self._taints.tolerated(spec.tolerations)
        return NodeRequirements(tolerates, tuple(self._node_selectors(spec)))

    def _node_selectors(self, spec: PodSpec) -> list[Alternatives]:
        labels = self._labels
        node_selectors = [labels.match_labels(spec.node_selector)] if spec.node_selector else []
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is not None and affinity.required is not None:
            node_selectors.append(labels.match_node_selector(affinity.required))
        # All nodes satisfy an empty alternative.
        return [it for it in node_selectors if () not in it]
