"""The table of pod classes: found by the content of their pods, removed with the last of them.

Classes are found by the identity of the parts that decoded siblings share, and only where those
differ by their text. An identity is only good while its object lives, so identities are forgotten
after each reading.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.core.model.resources import NONE, Bools, Ints
from scheduler.state.inputs import StateOptions
from scheduler.state.pods.gpu_share_metadata import (
    GpuSharing,
    is_gpu_group,
    read_gpu_sharing,
    read_mig_annotations,
)
from scheduler.state.pods.pod_class import PodClass, PodMetadata, SharedSpec
from trainer_kai.api.interning import IndexedLabels, spec_without_node
from trainer_kai.api.meta import Key
from trainer_kai.api.names import GPU_FRACTION, GPU_MEMORY, RESERVATION_APP
from trainer_kai.api.pod import Pod, PodSpec

N = TypeVar("N", bound=np.generic)

NO_CLASS: Final = 0  # the class of a free row of the pod table
_INITIAL_ROWS: Final = 64  # rows of an empty table
# What copies of a spec on different nodes have in common; of interned specs the same objects.
_shared_parts: Final = attrgetter(
    "volumes",
    "init_containers",
    "containers",
    "node_selector",
    "host_network",
    "affinity",
    "scheduler_name",
    "service_account_name",
    "tolerations",
    "priority_class_name",
    "priority",
    "preemption_policy",
    "overhead",
    "topology_spread_constraints",
    "scheduling_gates",
    "resource_claims",
    "resources",
    "termination_grace_period_seconds",
)


class PodClassTable:
    """Pod classes by number; arrays are [class]."""

    def __init__(self, options: StateOptions) -> None:
        self._scheduler_name: Final = options.scheduler_name
        self._gpus: Final = options.gpu_resources
        # Namespaces where pods of one Job are of different classes, by their completion index.
        self.indexed_namespaces: frozenset[str] = frozenset()
        self.rows: Final[list[PodClass | None]] = [None]
        self.next_serial = 0
        self._free: Final[list[int]] = []
        self._by_content: Final[dict[tuple[object, ...], PodClass]] = {}
        self._shared_specs: Final[dict[bytes, SharedSpec]] = {}
        self._by_identity: Final[dict[tuple[int | str, ...], PodClass]] = {}
        self._specs_by_identity: Final[dict[tuple[int, ...] | int, SharedSpec]] = {}
        # Of the spec that was read last: mostly that of a sibling of the next pod.
        self._latest_parts: tuple[object, ...] = ()
        self._latest_spec: SharedSpec | None = None
        self._labels: Final[dict[tuple[tuple[str, str], ...], Mapping[str, str]]] = {}
        self._index_selecting: Final[dict[str, int]] = {}  # classes that select others by index
        self.namespaces: Final[dict[str, int]] = {}  # how many classes each has
        self.is_ours = _flags()
        self.is_standalone = _flags()  # names no PodGroup
        self.is_misplaced = _flags()  # its PodGroup has no PodSet for it
        self.is_foreign = _flags()
        self.has_pod_terms = _flags()  # affinity terms and spread constraints
        self.exceeds_pod_bound = _flags()  # its spec has more terms than are evaluated
        self.exceeds_namespace_bound = _flags()  # its namespace has more than are evaluated
        self.has_ports = _flags()
        self.has_volumes = _flags()
        self.has_claims = _flags()  # for devices
        self.shares_gpu = _flags()  # and is ours
        self.has_mig_annotations = _flags()  # likewise
        self.is_gpu_reservation = _flags()
        self.is_expected = _flags()
        self.record_number = _numbers()  # of the PodGroupRecord that it belongs to
        self.is_counted = _flags()  # its PodGroupRecord counts its pods
        self.queue_row = _numbers()
        self.is_non_preemptible = _flags()  # for its queue
        self.is_requested = _flags()  # pending pods count as requested of its queue
        self.serial = _numbers()

    def __getitem__(self, number: int) -> PodClass:
        pod_class = self.rows[number]
        assert pod_class is not None
        return pod_class

    def is_known(self, number: int) -> bool:
        return number < len(self.rows) and self.rows[number] is not None

    def numbers(self, serials: Iterable[int]) -> list[int]:
        wanted = np.isin(self.serial[: len(self.rows)], list(serials))
        return [number for number in np.flatnonzero(wanted).tolist() if self.is_known(number)]

    @property
    def index_selecting_namespaces(self) -> frozenset[str]:
        """Return the namespaces in which a pod selects others by their completion index."""
        return frozenset(self._index_selecting)

    def class_of(self, key: Key, pod: Pod) -> PodClass:
        """Return the class of a pod; identities are used until they are forgotten."""
        meta, spec = pod.metadata, pod.spec
        if spec.node_name:  # then no two pods share a spec object
            shared_spec = self._shared_spec_of(spec)
        else:
            known = self._specs_by_identity.get(id(spec))
            shared_spec = known or self._specs_by_identity.setdefault(
                id(spec), self._shared_spec_of(spec)
            )
        labels, annotations = meta.labels, meta.annotations
        if type(labels) is IndexedLabels and key.namespace not in self.indexed_namespaces:
            labels = labels.shared
        if type(annotations) is IndexedLabels:
            annotations = annotations.shared
        if _may_name_gpus(key, annotations) and key.namespace not in self.indexed_namespaces:
            labels = self._without_gpu_groups(labels)
        parts = (
            id(shared_spec),
            id(labels),
            id(annotations),
            id(meta.owner_references),
            key.namespace,
        )
        pod_class = self._by_identity.get(parts)
        if pod_class is None:
            pod_class = self._get_or_add(key, pod, (labels, annotations), shared_spec)
            if not pod_class.ephemeral_pod_name:
                self._by_identity[parts] = pod_class
        return pod_class

    def forget_identities(self) -> None:
        """Forget the identities of objects, which another object may get later."""
        self._by_identity.clear()
        self._specs_by_identity.clear()
        self._latest_parts, self._latest_spec = (), None
        self._labels.clear()

    def expect(self, key: Key, pod: Pod, metadata: PodMetadata) -> PodClass:
        """Return a class that may have no pods yet; it is kept until `stop_expecting`."""
        pod_class = self._get_or_add(key, pod, metadata, self._shared_spec(pod.spec))
        pod_class.expected_by += 1
        self.is_expected[pod_class.number] = True
        return pod_class

    def stop_expecting(self, pod_class: PodClass) -> None:
        pod_class.expected_by -= 1
        self.is_expected[pod_class.number] = pod_class.expected_by > 0
        self.remove_if_empty(pod_class)

    def remove_if_empty(self, pod_class: PodClass) -> bool:
        """Remove a class that has no pods and expects none; say whether it was removed."""
        number, shared_spec = pod_class.number, pod_class.shared_spec
        if pod_class.pod_rows or pod_class.expected_by or self.rows[number] is not pod_class:
            return False
        del self._by_content[_content(pod_class)]
        shared_spec.class_count -= 1
        if not shared_spec.class_count:
            del self._shared_specs[shared_spec.encoded]
        if shared_spec.selects_by_index:
            _add_count(self._index_selecting, pod_class.namespace, -1)
        _add_count(self.namespaces, pod_class.namespace, -1)
        self.rows[number] = None
        self.has_pod_terms[number] = self.has_ports[number] = self.has_volumes[number] = False
        self.has_claims[number] = False
        self._free.append(number)
        return True

    def _get_or_add(
        self, key: Key, pod: Pod, metadata: PodMetadata, shared_spec: SharedSpec
    ) -> PodClass:
        candidate = PodClass(key, pod, metadata, shared_spec)
        pod_class = self._by_content.setdefault(_content(candidate), candidate)
        if pod_class is candidate:
            self._add(pod_class)
        return pod_class

    def _add(self, pod_class: PodClass) -> None:
        if self._free:
            pod_class.number = self._free.pop()
        else:
            pod_class.number = len(self.rows)
            self.rows.append(None)
            if pod_class.number == len(self.record_number):
                self._grow(2 * pod_class.number)
        self.rows[pod_class.number] = pod_class
        pod_class.shared_spec.class_count += 1
        pod_class.serial = self.next_serial
        self.next_serial += 1
        _add_count(self.namespaces, pod_class.namespace, 1)
        if pod_class.shared_spec.selects_by_index:
            _add_count(self._index_selecting, pod_class.namespace, 1)
        self._write_columns(pod_class)

    def _write_columns(self, pod_class: PodClass) -> None:
        """Write all columns of a new class: another class may have had its number."""
        number, spec = pod_class.number, pod_class.spec
        is_ours = spec.scheduler_name == self._scheduler_name
        if is_ours:
            pod_class.mig_annotations = read_mig_annotations(pod_class.annotations)
            pod_class.gpu_sharing = read_gpu_sharing(
                pod_class.annotations, pod_class.shared_spec.requests(), self._gpus
            )
        self.is_ours[number] = is_ours
        self.is_standalone[number] = is_ours and not pod_class.podgroup_name
        self.is_foreign[number] = not is_ours and not pod_class.is_scheduler_helper
        self.has_pod_terms[number] = pod_class.shared_spec.term_count > 0
        self.exceeds_pod_bound[number] = pod_class.shared_spec.limit_fault is not None
        self.has_ports[number] = bool(pod_class.shared_spec.ports)
        self.has_volumes[number] = bool(spec.volumes)
        self.has_claims[number] = bool(spec.resource_claims)
        self.shares_gpu[number] = isinstance(pod_class.gpu_sharing, GpuSharing)
        self.has_mig_annotations[number] = bool(pod_class.mig_annotations)
        self.is_gpu_reservation[number] = pod_class.is_gpu_reservation
        self.is_expected[number] = self.is_misplaced[number] = False
        self.exceeds_namespace_bound[number] = self.is_counted[number] = False
        self.is_non_preemptible[number] = self.is_requested[number] = False
        self.record_number[number] = self.queue_row[number] = NONE
        self.serial[number] = pod_class.serial

    def _grow(self, size: int) -> None:
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(self, name, grown(column, size))

    def _without_gpu_groups(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return labels without the labels that name a shared GPU; equal ones are one object."""
        if not any(map(is_gpu_group, labels)):
            return labels
        others = tuple(it for it in labels.items() if not is_gpu_group(it[0]))
        return self._labels.setdefault(others, dict(others))

    def _shared_spec_of(self, spec: PodSpec) -> SharedSpec:
        """Return the one `SharedSpec` of all specs that are equal but for their node."""
        parts = _shared_parts(spec)
        if self._latest_spec is not None and parts == self._latest_parts:
            return self._latest_spec
        identity = tuple(map(id, parts))
        shared_spec = self._specs_by_identity.get(identity)
        if shared_spec is None:
            shared_spec = self._specs_by_identity[identity] = self._shared_spec(spec)
        self._latest_parts, self._latest_spec = parts, shared_spec
        return shared_spec

    def _shared_spec(self, spec: PodSpec) -> SharedSpec:
        bare = spec_without_node(spec)
        text = msgspec.json.encode(bare, order="deterministic")
        shared_spec = self._shared_specs.get(text)
        if shared_spec is None:
            shared_spec = self._shared_specs[text] = SharedSpec(bare, text)
        return shared_spec


def grown(rows: NDArray[N], size: int, fill: int = 0) -> NDArray[N]:
    longer: NDArray[N] = np.full((size, *rows.shape[1:]), fill, dtype=rows.dtype)
    longer[: len(rows)] = rows
    return longer


def _flags() -> Bools:
    return np.zeros(_INITIAL_ROWS, dtype=np.bool_)


def _numbers() -> Ints:
    return np.full(_INITIAL_ROWS, NONE, dtype=np.int64)


def _may_name_gpus(key: Key, annotations: Mapping[str, str]) -> bool:
    """Say whether the labels of a pod name a shared GPU: then siblings differ in them."""
    if key.namespace == RESERVATION_APP:
        return True
    return bool(annotations) and (GPU_FRACTION in annotations or GPU_MEMORY in annotations)


def _add_count(counts: dict[str, int], name: str, delta: int) -> None:
    counts[name] = counts.get(name, 0) + delta
    if not counts[name]:
        del counts[name]


def _content(pod_class: PodClass) -> tuple[object, ...]:
    return (
        pod_class.shared_spec,
        pod_class.namespace,
        pod_class.ephemeral_pod_name,
        *pod_class.controller,
        *pod_class.scheduling_annotations,
        *chain.from_iterable(sorted(pod_class.labels.items())),
    )
