"""Classes of pods that are equal but for name and node, and the GPU share that a class requests."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.podgroup import LabelRequirement
from scheduler.core.model.resources import NONE
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    APP,
    COMPLETION_INDEX,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    GPU_MEMORY_MIB,
    KUBEFLOW_JOB_ROLE,
    POD_GROUP,
    RAY_NODE_TYPE,
    RESERVATION_APP,
    SCALING_APP,
    SCALING_NAMESPACE,
    TASK_PRIORITY,
)
from trainer_kai.api.node import Node
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.api.quantity import Quantity, QuantityError, milli
from trainer_kai.api.resources import JOBS
from trainer_kai.api.selector import LabelSelector
from trainer_kai.policy.podgroups.pod_counts import podset_and_attempt
from trainer_kai.policy.pods.requests import (
    PodHostPort,
    ResourceAmounts,
    pod_host_ports,
    pod_requests,
)
from trainer_kai.policy.pods.spec_limits import (
    hard_spread_constraints,
    has_match_label_keys,
    required_pod_terms,
    spec_limit_fault,
    term_count,
)

__all__ = [
    "UNKNOWN_MEMORY_MIB",
    "GpuSharing",
    "NodeRequirements",
    "PodClass",
    "PodMetadata",
    "SharedSpec",
    "device_memory_mib",
    "least_memory_mib",
    "read_gpu_sharing",
]

PodMetadata: TypeAlias = tuple[Mapping[str, str], Mapping[str, str]]  # labels, annotations
_SCHEDULING_ANNOTATIONS: Final = (POD_GROUP, GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES)
_LEADERS: Final = ((KUBEFLOW_JOB_ROLE, ("master", "launcher")), (RAY_NODE_TYPE, ("head",)))
# Any user may write the label; in these namespaces only the scheduler creates pods.
_HELPER_NAMESPACES: Final = {RESERVATION_APP: RESERVATION_APP, SCALING_APP: SCALING_NAMESPACE}
_NUMBER: Final = re.compile("[+-]?[0-9]{1,9}")
_UNRANKED: Final = 10**9  # after all pods that have a task priority
UNKNOWN_MEMORY_MIB: Final = 100  # of a GPU without a label that states its memory
_MAX_GPUS: Final = 64
_MAX_MIB: Final = 2**31
_MIN_BYTES: Final = 2**20  # no GPU has so many MiB: a number of this size is bytes


class NodeRequirements(NamedTuple):
    """The taints that a spec tolerates and its node affinity, as codes."""

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
        # Whether a term selects pods of its own namespace by their completion index.
        self.selects_by_index: Final = self.term_count > 0 and any(
            COMPLETION_INDEX in keys or _selects_by_index(selector)
            for selector, keys in _pod_selections(spec)
        )
        self._requests: ResourceAmounts | str | None = None
        self._fault: str | None = None  # empty if there is none
        self._ports: tuple[PodHostPort, ...] | None = None
        self._node_requirements: tuple[object, NodeRequirements] | None = None

    @property
    def ports(self) -> tuple[PodHostPort, ...]:
        """Return the host ports."""
        if self._ports is None:
            self._ports = tuple(dict.fromkeys(pod_host_ports(self.spec)))
        return self._ports

    def requests(self) -> ResourceAmounts:
        """Return the requests of one pod, in thousandths; nothing if a quantity is invalid."""
        requests = self._read_requests()
        return {} if isinstance(requests, str) else requests

    def requests_fault(self) -> str | None:
        """Say what is wrong with the requests and limits."""
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
        "labels",
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

    @property
    def controller(self) -> tuple[str, str]:
        """Return the API version and kind of the object that created the pods."""
        owner = self._owner
        return (owner.api_version, owner.kind) if owner else ("", "")

    @property
    def attempt(self) -> tuple[str, tuple[int, int]]:
        """Return the Job of the pods, as a PodSet, and their attempt."""
        return podset_and_attempt(self.labels)

    @property
    def spec(self) -> PodSpec:
        """Return the spec of the pods, without a node."""
        return self.shared_spec.spec

    @property
    def scheduling_annotations(self) -> tuple[str | None, ...]:
        """Return the annotations that the scheduler reads."""
        return tuple(map(self.annotations.get, _SCHEDULING_ANNOTATIONS))

    @property
    def podgroup_name(self) -> str:
        """Return the PodGroup that the pods name, or nothing."""
        return self.annotations.get(POD_GROUP, "")

    @property
    def is_from_job(self) -> bool:
        """Say whether a Job created the pods."""
        return self.controller == (JOBS.api_version, JOBS.kind)

    @property
    def is_gpu_reservation(self) -> bool:
        """Say whether the pods only reserve GPUs that other pods share."""
        return self.is_scheduler_helper and self.labels[APP] == RESERVATION_APP

    @property
    def is_scheduler_helper(self) -> bool:
        """Say whether the pods are helpers of the scheduler, not a workload."""
        return self.namespace == _HELPER_NAMESPACES.get(self.labels.get(APP, ""))

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
    return COMPLETION_INDEX in selector.match_labels or any(
        expression.key == COMPLETION_INDEX for expression in selector.match_expressions
    )


class GpuSharing(NamedTuple):
    """The shared GPUs that a pod requests: how many, and of each either thousandths or MiB."""

    annotation: str
    devices: int
    thousandths: int
    mib: int

    def thousandths_of_device(self, memory_mib: int) -> int:
        """Return the thousandths of a GPU with so much memory; whole hundredths, as in KAI."""
        if not self.mib:
            return self.thousandths
        return -(-100 * self.mib // memory_mib) * 10

    def queue_request(self, memory_mib: int) -> int:
        """Return the thousandths of GPUs that are charged to the queue."""
        return (self.thousandths_of_device(memory_mib) + 5) // 10 * 10 * self.devices


def read_gpu_sharing(pod_class: PodClass, gpus: Iterable[str]) -> GpuSharing | None:
    """Read the GPU sharing annotations; None for pods that share no GPU.

    The annotations of pods that request whole GPUs do not count: any user may add them while the
    pods run.
    """
    annotations = pod_class.annotations
    if any(pod_class.shared_spec.requests().get(name) for name in gpus):
        return None
    if GPU_FRACTION in annotations:
        name, thousandths, mib = GPU_FRACTION, _fraction(annotations[GPU_FRACTION]), 0
    elif GPU_MEMORY in annotations:
        name, thousandths, mib = GPU_MEMORY, 0, _count(annotations[GPU_MEMORY], _MAX_MIB)
    else:
        return None
    devices = _count(annotations.get(GPU_FRACTION_DEVICES, "1"), _MAX_GPUS)
    return GpuSharing(name, devices, thousandths, mib)


def device_memory_mib(node: Node) -> int:
    """Return the memory of one GPU of a node, from its label."""
    number = _count(node.metadata.labels.get(GPU_MEMORY_MIB, ""), 2**53)
    number = number // 2**20 if number >= _MIN_BYTES else number
    return max(number // 100 * 100, UNKNOWN_MEMORY_MIB)


def least_memory_mib(nodes: Iterable[Node]) -> int:
    """Return the memory of the smallest GPU with known memory."""
    known = (device_memory_mib(node) for node in nodes)
    return min((mib for mib in known if mib > UNKNOWN_MEMORY_MIB), default=UNKNOWN_MEMORY_MIB)


def _fraction(text: str) -> int:
    """Return a fraction in thousandths, 0 to 1000; 0 if it is invalid."""
    try:
        return min(max(milli(text), 0), 1000)
    except QuantityError:
        return 0


def _count(text: str, maximum: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    return min(int(text), maximum) if is_number else 0
