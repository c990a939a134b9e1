"""Shapes: what of a kin says where its pods may go. Equal ones are one row."""

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.core.model import NONE, Ints, SchedulingSignature
from scheduler.state.asks import PodRequests
from scheduler.state.claims import VolumeClaims
from scheduler.state.kin import NodeRequirements, PodClass
from scheduler.state.kins import PodClassTable
from scheduler.state.labels import Alternatives, NodeLabels
from scheduler.state.neighbours import AffinityTable
from scheduler.state.nodes import Taints
from scheduler.state.ports import HostPortTable
from trainer_kai.api.pod import PodSpec

__all__ = ["ConstraintTables", "SignatureTable"]

_FEW_UNUSED: Final = 64  # unused ones are no matter


class ConstraintTables(NamedTuple):
    """What ties pods to nodes beyond what the nodes are."""

    affinity: AffinityTable
    host_ports: HostPortTable
    claims: VolumeClaims


class SignatureTable:
    """The rows, made as they are asked for."""

    def __init__(
        self,
        nodes: tuple[NodeLabels, Taints],
        requests: PodRequests,
        constraint_tables: ConstraintTables,
        class_table: PodClassTable,
    ) -> None:
        self._labels, self._taints = nodes
        self._class_table: Final = class_table
        self._requests: Final = requests
        self._affinity, self._host_ports, self.claims = constraint_tables
        self._encoding_identity: Final = object()  # these and no others
        self._rows: Final[dict[SchedulingSignature, int]] = {}
        self._signatures: Final[list[SchedulingSignature]] = []
        self._row_by_content: Final[dict[tuple[object, ...], int]] = {}
        self._nominated_rows: Final[dict[tuple[int, int], int]] = {}
        self.row_by_class: Ints = np.zeros(0, dtype=np.int64)  # [kin]

    def __len__(self) -> int:
        return len(self._signatures)

    def are_mostly_unused(self, rows: NDArray[np.int32]) -> bool:
        """Say whether there are many more shapes than pods have; *rows* are those of pods."""
        used = int(np.count_nonzero(np.bincount(rows[rows != NONE])))
        return len(self) > 2 * used + _FEW_UNUSED

    def table(self) -> tuple[SchedulingSignature, ...]:
        """Return all that were asked for."""
        return tuple(self._signatures)

    def forget(self, numbers: Ints, size: int) -> None:
        """Forget kin whose numbers others have, of so many that there may be."""
        if size > len(self.row_by_class):
            longer = np.full(size, NONE, dtype=np.int64)
            longer[: len(self.row_by_class)] = self.row_by_class
            self.row_by_class = longer
        self.row_by_class[numbers] = NONE

    def row(self, pod_class: PodClass) -> int:
        """Return the row of a kin's pods."""
        row = int(self.row_by_class[pod_class.number])
        if row == NONE:
            row = self.row_by_class[pod_class.number] = self._find_row(pod_class)
        return row

    def nominated_row(self, pod_class: PodClass, node: int) -> int:
        """Return the row of a kin's pods that a node was promised to."""
        row = self.row(pod_class)
        found = self._nominated_rows.get((row, node))
        if found is None:
            found = self._add(replace(self._signatures[row], nominated_node=node))
            self._nominated_rows[row, node] = found
        return found

    def _find_row(self, pod_class: PodClass) -> int:
        """Return the row of a kin; making a shape is what takes time."""
        number = pod_class.number
        content = (
            pod_class.shared_spec,
            self._requests.sharing.get(number),
            pod_class.is_gpu_reservation,
            self._affinity.affinity_of(number),
            number if pod_class.spec.volumes else NONE,  # of claims each has its own
            self._exceeds_bounds(pod_class),
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
        """Say whether pods say more than is looked at: they have what they have, and go nowhere."""
        return pod_class.shared_spec.excess is not None or bool(
            self._class_table.exceeds_namespace_bound[pod_class.number]
        )

    def _build(self, pod_class: PodClass) -> SchedulingSignature:
        requests, claims, number = self._requests, self.claims, pod_class.number
        cpu, memory, gpu = requests.queue_request[number].tolist()
        gpu_sharing = requests.sharing.get(number)
        signature = SchedulingSignature(
            request=tuple(requests.request[number].tolist()),
            queue_request=(cpu, memory, gpu),
            has_gpu=requests.has_gpu(number),
            host_ports=self._host_ports.host_ports(pod_class),
            **self._affinity.affinity_of(number)._asdict(),
            rwo_claims=claims.rows(pod_class, one_pod=False),
            rwop_claims=claims.rows(pod_class, one_pod=True),
            shared_devices=gpu_sharing.devices if gpu_sharing else 0,
            device_share=gpu_sharing.thousandths if gpu_sharing else 0,
        )
        if self._exceeds_bounds(pod_class):
            return replace(signature, node_affinity=(self._labels.match_no_node(),))
        node_requirements = pod_class.shared_spec.node_requirements(
            self._encoding_identity, self._node_requirements
        )
        return replace(
            signature,
            tolerated_taints=node_requirements.tolerated_taints,
            node_affinity=node_requirements.node_affinity + claims.node_affinity(pod_class),
            conflicting_ports=self._host_ports.conflicting_ports(pod_class),
            unknown_resources=requests.unknown_resources.get(number, ()),
        )

    def _node_requirements(self, spec: PodSpec) -> NodeRequirements:
        tolerates = self._taints.tolerated(spec.tolerations)
        return NodeRequirements(tolerates, tuple(self._node_selectors(spec)))

    def _node_selectors(self, spec: PodSpec) -> list[Alternatives]:
        labels = self._labels
        node_selectors = [labels.match_labels(spec.node_selector)] if spec.node_selector else []
        affinity = spec.affinity.node_affinity if spec.affinity else None
        if affinity is not None and affinity.required is not None:
            node_selectors.append(labels.match_node_selector(affinity.required))
        return [
            node_selector for node_selector in node_selectors if () not in node_selector
        ]  # all nodes satisfy the others
