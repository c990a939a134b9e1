"""Classes of pods that are equal but for name and node, and which part of a GPU a class shares."""

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


# Any user may write the label; in these namespaces it is the scheduler that makes pods.
_HELPER_NAMESPACES: Final = {RESERVATION_APP: RESERVATION_APP, SCALING_APP: SCALING_NAMESPACE}
_NUMBER: Final = re.compile("[+-]?[0-9]{1,9}")
_UNRANKED: Final = 10**9  # behind all that have a number


class NodeRequirements(NamedTuple):
    """What a spec says of nodes, in codes."""

    tolerated_taints: frozenset[int]
    node_affinity: tuple[tuple[tuple[LabelRequirement, ...], ...], ...]


class SharedSpec:
    """What the pods of one spec, whatever their node, have in common: worked out once."""

    __slots__ = (
        "_demand",
        "_fault",
        "_node_requirements",
        "_ports",
        "class_count",
        "encoded",
        "excess",
        "has_label_keys",
        "selects_by_index",
        "spec",
        "term_count",
    )

    def __init__(self, spec: PodSpec, text: bytes) -> None:
        self.spec: Final = spec
        self.encoded: Final = text
        self.class_count = 0  # how many have it
        self.excess: Final = spec_limit_fault(spec)  # what it says more of than is looked at
        self.term_count: Final = 0 if self.excess else term_count(spec)
        self.has_label_keys: Final = self.term_count > 0 and has_match_label_keys(spec)
        # Whether their neighbours, in their own namespace, are chosen by the index of pods.
        self.selects_by_index: Final = self.term_count > 0 and any(
            COMPLETION_INDEX in keys or _selects_by_index(selector)
            for selector, keys in _pod_selections(spec)
        )
        self._demand: ResourceAmounts | str | None = None
        self._fault: str | None = None  # nothing where there is none
        self._ports: tuple[PodHostPort, ...] | None = None
        self._node_requirements: tuple[object, NodeRequirements] | None = None

    @property
    def ports(self) -> tuple[PodHostPort, ...]:
        """Return the ports of nodes that they take."""
        if self._ports is None:
            self._ports = tuple(dict.fromkeys(pod_host_ports(self.spec)))
        return self._ports

    def demand(self) -> ResourceAmounts:
        """Return what one of them asks for, in thousandths; nothing for what cannot be read."""
        found = self._read_demand()
        return {} if isinstance(found, str) else found

    def demand_fault(self) -> str | None:
        """Say what is wrong with what they ask for."""
        if self._fault is None:
            self._fault = self._read_fault() or ""
        return self._fault or None

    def _read_fault(self) -> str | None:
        found = self._read_demand()
        if isinstance(found, str):
            return found
        try:
            below = sorted(name for name, quantity in _quantities(self.spec) if milli(quantity) < 0)
        except QuantityError as error:  # in a limit that a request outranks
            return str(error)
        return f"it asks for less than nothing of {below[0]}" if below else None

    def node_requirements(
        self, encoding: object, work_out: Callable[[PodSpec], NodeRequirements]
    ) -> NodeRequirements:
        """Return what is worked out for codes, and remembered as long as these are meant."""
        if self._node_requirements is None or self._node_requirements[0] is not encoding:
            self._node_requirements = encoding, work_out(self.spec)
        return self._node_requirements[1]

    def _read_demand(self) -> ResourceAmounts | str:
        if self._demand is None:
            try:
                self._demand = pod_requests(self.spec)
            except QuantityError as error:
                self._demand = str(error)
        return self._demand


class PodClass:
    """Pods that are alike."""

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
        # A claim that is made for a pod is called after it, so that such a pod has no kin.
        has_own = any(volume.ephemeral for volume in pod.spec.volumes)
        self.ephemeral_pod_name: Final = key.name if has_own else ""
        self.number = NONE  # another may have it afterwards
        self.serial = NONE  # nobody else ever has it
        self.pod_rows: Final[dict[int, None]] = {}  # of its pods
        self.expected_by = 0  # gangs that await such pods
        self.podgroup_key: Key | None = None  # that they name

    @property
    def controller(self) -> tuple[str, str]:
        """Return of which kind the object is that made them."""
        owner = self._owner
        return (owner.api_version, owner.kind) if owner else ("", "")

    @property
    def attempt(self) -> tuple[str, tuple[int, int]]:
        """Return the Job, as a leaf, and which attempt they are of."""
        return podset_and_attempt(self.labels)

    @property
    def spec(self) -> PodSpec:
        """Return what they are to run, without a node."""
        return self.shared_spec.spec

    @property
    def scheduling_annotations(self) -> tuple[str | None, ...]:
        """Return the annotations that we read."""
        return tuple(map(self.annotations.get, _SCHEDULING_ANNOTATIONS))

    @property
    def podgroup_name(self) -> str:
        """Return the group that they name, or nothing."""
        return self.annotations.get(POD_GROUP, "")

    @property
    def is_from_job(self) -> bool:
        """Say whether a Job made them."""
        return self.controller == (JOBS.api_version, JOBS.kind)

    @property
    def is_gpu_reservation(self) -> bool:
        """Say whether they only hold the devices that others share."""
        return self.is_scheduler_helper and self.labels[APP] == RESERVATION_APP

    @property
    def is_scheduler_helper(self) -> bool:
        """Say whether they do something for the scheduler, and are no work."""
        return self.namespace == _HELPER_NAMESPACES.get(self.labels.get(APP, ""))

    @property
    def rank(self) -> int:
        """Return their place among the pods of a leaf; smaller comes first."""
        text = self.labels.get(TASK_PRIORITY, "")
        rank = -int(text) if _NUMBER.fullmatch(text) else _UNRANKED
        leads = any(self.labels.get(name) in values for name, values in _LEADERS)
        return rank - 3 * _UNRANKED if leads else rank  # before all others


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
        need.key == COMPLETION_INDEX for need in selector.match_expressions
    )


UNKNOWN_MEMORY_MIB: Final = 100  # of a device of which nobody says it
_MOST_DEVICES: Final = 64
_MOST_MIB: Final = 2**31
_MIN_BYTES: Final = 2**20  # so many MiB no device has: these are bytes


class GpuSharing(NamedTuple):
    """How many devices, and of each either thousandths or MiB."""

    annotation: str
    devices: int
    thousandths: int
    mib: int

    def thousandths_of_device(self, memory_mib: int) -> int:
        """Return the thousandths of a device that has so much memory; whole hundredths, as KAI."""
        if not self.mib:
            return self.thousandths
        return -(-100 * self.mib // memory_mib) * 10

    def queue_request(self, memory_mib: int) -> int:
        """Return what a queue counts."""
        return (self.thousandths_of_device(memory_mib) + 5) // 10 * 10 * self.devices


def read_gpu_sharing(pod_class: PodClass, gpus: Iterable[str]) -> GpuSharing | None:
    """Read the annotations; None for whole devices, or for what cannot be meant.

    Pods that ask for whole devices have them, whatever an annotation says that any user may add
    while they run.
    """
    annotations = pod_class.annotations
    if any(pod_class.shared_spec.demand().get(name) for name in gpus):
        return None
    if GPU_FRACTION in annotations:
        name, thousandths, mib = GPU_FRACTION, _fraction(annotations[GPU_FRACTION]), 0
    elif GPU_MEMORY in annotations:
        name, thousandths, mib = GPU_MEMORY, 0, _count(annotations[GPU_MEMORY], _MOST_MIB)
    else:
        return None
    devices = _count(annotations.get(GPU_FRACTION_DEVICES, "1"), _MOST_DEVICES)
    return GpuSharing(name, devices, thousandths, mib)


def device_memory_mib(node: Node) -> int:
    """Return what the label of a node says of its devices."""
    number = _count(node.metadata.labels.get(GPU_MEMORY_MIB, ""), 2**53)
    number = number // 2**20 if number >= _MIN_BYTES else number
    return max(number // 100 * 100, UNKNOWN_MEMORY_MIB)


def least_memory_mib(nodes: Iterable[Node]) -> int:
    """Return what the smallest device has of those of which it is known."""
    known = (device_memory_mib(node) for node in nodes)
    return min((mib for mib in known if mib > UNKNOWN_MEMORY_MIB), default=UNKNOWN_MEMORY_MIB)


def _fraction(text: str) -> int:
    """Return thousandths; what is no part of a device is none of it."""
    try:
        return min(max(milli(text), 0), 1000)
    except QuantityError:
        return 0


def _count(text: str, most: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    return min(int(text), most) if is_number else 0
