"""Classes of pods that are equal but for name and node."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.podgroup import LabelRequirement
from scheduler.core.model.resources import NONE
from scheduler.state.pods.gpu_share_metadata import (
    GpuShareFault,
    GpuSharing,
    MigAnnotations,
    is_gpu_group,
    is_gpu_reservation,
    read_mig_annotations,
)
from trainer_kai.api.meta import Key, LabelSelector
from trainer_kai.api.names import (
    APP,
    COMPLETION_INDEX,
    GPU_CONFIG_MAP,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    KUBEFLOW_JOB_ROLE,
    POD_GROUP,
    RAY_NODE_TYPE,
    SCALING_APP,
    SCALING_NAMESPACE,
    TASK_PRIORITY,
)
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.quantity import Quantity, QuantityError, milli
from trainer_kai.api.resources import JOBS
from trainer_kai.policy.pods.gpu_share_config_maps import is_config_map_prefix
from trainer_kai.policy.pods.requests import (
    PodHostPort,
    ResourceAmounts,
    hard_spread_constraints,
    has_match_label_keys,
    pod_host_ports,
    pod_requests,
    required_pod_terms,
    spec_limit_fault,
    term_count,
)

PodMetadata: TypeAlias = tuple[Mapping[str, str], Mapping[str, str]]  # labels, annotations
_SCHEDULING_ANNOTATIONS: Final = (POD_GROUP, GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES)
_LEADERS: Final = ((KUBEFLOW_JOB_ROLE, ("master", "launcher")), (RAY_NODE_TYPE, ("head",)))
_NUMBER: Final = re.compile("[+-]?[0-9]{1,9}")
_UNRANKED: Final = 10**9  # after all pods that have a task priority


class NodeRequirements(NamedTuple):
    tolerated_taints: frozenset[int]
    node_affinity: tuple[tuple[tuple[LabelRequirement, ...], ...], ...]


class SharedSpec:
    """A spec without its node, and what is computed from it once for all pods that have it."""

    __slots__ = (
        "_fault",
        "_node_requirements",
        "_ports",
        "_requests",
        "class_count",
        "encoded",
        "has_label_keys",
        "limit_fault",
        "selects_by_index",
        "spec",
        "term_count",
    )

    def __init__(self, spec: PodSpec, encoded: bytes) -> None:
        self.spec: Final = spec
        self.encoded: Final = encoded
        self.class_count = 0  # pod classes that have this spec
        self.limit_fault: Final = spec_limit_fault(spec)  # it has more terms than are evaluated
        self.term_count: Final = 0 if self.limit_fault else term_count(spec)
        self.has_label_keys: Final = self.term_count > 0 and has_match_label_keys(spec)
        # Whether a term selects pods of its own namespace by a label that pods of one class have
        # with different values: their completion index, or the GPU that they share.
        self.selects_by_index: Final = self.term_count > 0 and any(
            any(map(_is_own_label, keys)) or _selects_by_index(selector)
            for selector, keys in _pod_selections(spec)
        )
        self._requests: ResourceAmounts | str | None = None
        self._fault: str | None = None  # empty if there is none
        self._ports: tuple[PodHostPort, ...] | None = None
        self._node_requirements: tuple[object, NodeRequirements] | None = None

    @property
    def ports(self) -> tuple[PodHostPort, ...]:
        if self._ports is None:
            self._ports = tuple(dict.fromkeys(pod_host_ports(self.spec)))
        return self._ports

    def requests(self) -> ResourceAmounts:
        """Return the requests of one pod, in thousandths; nothing if a quantity is invalid."""
        requests = self._read_requests()
        return {} if isinstance(requests, str) else requests

    def requests_fault(self) -> str | None:
        if self._fault is None:
            self._fault = self._read_fault() or ""
        return self._fault or None

    def _read_fault(self) -> str | None:
        requests = self._read_requests()
        if isinstance(requests, str):
            return requests
        quantities = _quantities(self.spec)
        try:
            negative = sorted(name for name, quantity in quantities if milli(quantity) < 0)
        except QuantityError as error:  # in a limit that a request overrides
            return str(error)
        return f"the request of {negative[0]} is negative" if negative else None

    def node_requirements(
        self, encoding: object, encode: Callable[[PodSpec], NodeRequirements]
    ) -> NodeRequirements:
        """Return the requirements in the codes of an encoding, computed once for each encoding."""
        if self._node_requirements is None or self._node_requirements[0] is not encoding:
            self._node_requirements = encoding, encode(self.spec)
        return self._node_requirements[1]

    def _read_requests(self) -> ResourceAmounts | str:
        if self._requests is None:
            try:
                self._requests = pod_requests(self.spec)
            except QuantityError as error:
                self._requests = str(error)
        return self._requests


class PodClass:
    """Pods that are equal but for name, node and state."""

    __slots__ = (
        "_owner",
        "annotations",
        "ephemeral_pod_name",
        "expected_by",
        "gpu_sharing",
        "labels",
        "mig_annotations",
        "namespace",
        "number",
        "pod_rows",
        "podgroup_key",
        "serial",
        "shared_spec",
    )

    def __init__(self, key: Key, pod: Pod, metadata: PodMetadata, shared_spec: SharedSpec) -> None:
        self.namespace: Final = key.namespace
        self.labels, self.annotations = metadata
        self.shared_spec: Final = shared_spec
        owner = pod.metadata.controller if pod.metadata.owner_references else None
        self._owner: Final = owner
        # An ephemeral claim is named for its pod, so such a pod is a class of its own.
        has_own = any(volume.ephemeral for volume in pod.spec.volumes)
        self.ephemeral_pod_name: Final = key.name if has_own else ""
        self.number = NONE  # later another class may get it
        self.serial = NONE  # no other class ever gets it
        self.pod_rows: Final[dict[int, None]] = {}  # of its pods in the pod table
        self.expected_by = 0  # PodGroupRecords that expect such pods
        self.podgroup_key: Key | None = None  # the PodGroup that the pods name
        # Of pods of our scheduler only; set when the class is added to the table.
        self.mig_annotations: MigAnnotations = ()
        self.gpu_sharing: GpuSharing | GpuShareFault | None = None

    @property
    def controller(self) -> tuple[str, str]:
        owner = self._owner
        return (owner.api_version, owner.kind) if owner else ("", "")

    @property
    def spec(self) -> PodSpec:
        return self.shared_spec.spec

    @property
    def scheduling_annotations(self) -> tuple[object, ...]:
        mig = read_mig_annotations(self.annotations)
        return *map(self.annotations.get, _SCHEDULING_ANNOTATIONS), self.has_config_map, mig

    @property
    def has_config_map(self) -> bool:
        """Say whether admission prepared the pods for shares; each has a prefix of its own."""
        return is_config_map_prefix(self.annotations.get(GPU_CONFIG_MAP, ""))

    @property
    def podgroup_name(self) -> str:
        return self.annotations.get(POD_GROUP, "")

    @property
    def is_from_job(self) -> bool:
        return self.controller == (JOBS.api_version, JOBS.kind)

    @property
    def is_gpu_reservation(self) -> bool:
        return is_gpu_reservation(self.namespace, self.labels, self.spec)

    @property
    def is_scheduler_helper(self) -> bool:
        """Say whether the pods are helpers of the scheduler, not a workload."""
        is_scaling = self.labels.get(APP) == SCALING_APP and self.namespace == SCALING_NAMESPACE
        return is_scaling or self.is_gpu_reservation

    @property
    def rank(self) -> int:
        """Return the order of the pods in their PodSet; smaller comes first."""
        text = self.labels.get(TASK_PRIORITY, "")
        rank = -int(text) if _NUMBER.fullmatch(text) else _UNRANKED
        leads = any(self.labels.get(name) in values for name, values in _LEADERS)
        return rank - 3 * _UNRANKED if leads else rank  # leaders come before all others


def _quantities(spec: PodSpec) -> Iterator[tuple[str, Quantity]]:
    parts = [one.resources for one in (*spec.init_containers, *spec.containers)]
    for part in (*parts, *([spec.resources] if spec.resources else [])):
        yield from part.requests.items()
        yield from part.limits.items()
    yield from spec.overhead.items()


def _pod_selections(spec: PodSpec) -> Iterator[tuple[LabelSelector | None, tuple[str, ...]]]:
    for anti_affinity in (False, True):
        for term in required_pod_terms(spec.affinity, anti=anti_affinity):
            yield term.label_selector, term.match_label_keys + term.mismatch_label_keys
    for spread in hard_spread_constraints(spec):
        yield spread.label_selector, spread.match_label_keys


def _selects_by_index(selector: LabelSelector | None) -> bool:
    if selector is None:
        return False
    return any(map(_is_own_label, selector.match_labels)) or any(
        _is_own_label(expression.key) for expression in selector.match_expressions
    )


def _is_own_label(label: str) -> bool:
    return label == COMPLETION_INDEX or is_gpu_group(label)
