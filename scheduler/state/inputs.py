"""What the state is given: the objects of a cluster, options and time, and what it warns of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from trainer_kai.api.cluster_kinds import (
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    PriorityClass,
    ResourceQuota,
    StorageClass,
)
from trainer_kai.api.device_kinds import (
    ClaimAllocation,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from trainer_kai.api.kai_kinds import PodGroup, Queue, Topology
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import AMD_GPU, DEFAULT_QUEUE, GPU, SCHEDULER_NAME, SHARED_GPU
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PDBS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    QUEUES,
    QUOTAS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from trainer_kai.policy.leaving_nodes import DEFAULT_SIGNS, LeavingSigns
from trainer_kai.policy.podgroups.avoided_nodes import DEFAULT_AVOID_TIMES, AvoidTimes
from trainer_kai.policy.queueing.queue_access import QueueAccessMode
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE, OWNER_OF_RESOURCE
from trainer_kai.policy.workloads.workload import ObjectKey, Suspendable, Workload, WorkloadKind


@dataclass(frozen=True)
class StateOptions:
    """What the configuration of the scheduler says, and the time."""

    now: int  # seconds since 1970
    scheduler_name: str = SCHEDULER_NAME
    default_queue: str = DEFAULT_QUEUE
    stuck_in_releasing_s: int = 120
    max_termination_grace_s: int = 3600  # a longer grace period of a pod does not count
    staleness_grace_s: float = 60  # below zero: unlimited
    # True: the grace counts since `Cluster.stale_since`; False: since the annotation.
    observes_staleness: bool = False
    gpu_resources: tuple[str, ...] = (GPU, AMD_GPU)
    gpu_replicas: tuple[tuple[str, int], ...] = ((SHARED_GPU, 1000),)  # each in thousandths
    priority_classes: frozenset[str] = frozenset()  # a label may name one of these; empty: any
    kueue: bool = False  # Kueue runs here: it suspends and resumes workloads with its label
    needs_permission: bool = False  # a namespace without a permit may not use a closed queue
    default_access: str = QueueAccessMode.CLOSED  # of queues that do not set it
    # True: PodGroups may be relocated unless their queue forbids it; False: only if it allows it.
    relocates_by_default: bool = True
    # True: pods with GPUs are placed on nodes with the label of GPU workers only, others on those
    # with the label of CPU workers.
    restricts_nodes: bool = False
    places_gpu_shares: bool = False  # else pods that request shares of GPUs wait
    ungrouped_wait_s: int = 0  # so long a new pod with an owner waits for its PodGroup
    # True: the labels of running pods say of which GPUs they have shares, as in files. False: such
    # a label counts only where a reservation pod holds that GPU, and a pod gets shares only if the
    # webhook has prepared it.
    trusts_gpu_labels: bool = False
    # Of CEL expressions, that are evaluated for one snapshot; 0: all that are asked for.
    selector_steps: int = 0
    counts_ended_pods: bool = False  # for a placement that minds which pods ran lately
    leaving: LeavingSigns = DEFAULT_SIGNS  # what marks nodes that leave
    keeps_non_preemptible: bool = False  # non-preemptible PodGroups stay on nodes that leave
    avoid_times: AvoidTimes = DEFAULT_AVOID_TIMES  # of nodes that refused pods

    def workload(self, kind: WorkloadKind, obj: Object | None) -> Workload | None:
        """Read a workload; None for one that no plan needs, of which there may be many."""
        workload = kind.adapt(obj) if obj is not None else None
        if workload is None or kind.covers_all:
            return workload
        templates = (it.template.spec.template.spec for it in workload.spec.replicated_jobs)
        ours = {"", self.scheduler_name}
        return workload if any(it.scheduler_name in ours for it in templates) else None


class ObjectWarning(NamedTuple):
    """An object that is ignored, and why: pods of a PodGroup, a node or a queue.

    Or an invalid value of a queue or PodGroup, and what counts in its place. Nodes and queues have
    a key without a namespace.
    """

    object_key: Key
    message: str
    is_pod_pending: bool = False  # a pod that is not counted is pending: its PodGroup reports it
    still_counts: bool = False  # the queue or PodGroup itself is not ignored

    @property
    def text(self) -> str:
        return self.message if self.still_counts else f"ignored: {self.message}"


@lru_cache(maxsize=8192)  # pods of one Job are created in the same second
def epoch_s(timestamp: str) -> int | None:
    try:
        moment = datetime.fromisoformat(timestamp)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp())
    except (ValueError, OverflowError):
        return None


def format_timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


K = TypeVar("K")
V = TypeVar("V")


class ObjectStore(Generic[K, V]):
    """The objects of one kind by name, and which have changed; an update costs almost nothing."""

    def __init__(
        self, objects: dict[K, V], is_same: Callable[[V, V], bool] = lambda _old, _new: False
    ) -> None:
        """*is_same* says of two versions of an object that no snapshot shows the difference."""
        self.objects: Final = objects
        self._is_same: Final = is_same
        self._changes: dict[K, V | None] = {}  # in the order of the updates

    def put(self, key: K, obj: V | None) -> V | None:
        """Store an object as it is now, None removes it; return it as it was before."""
        before = self.objects.get(key)
        if obj is not None:
            self.objects[key] = obj
            if before is not None and self._is_same(before, obj):
                return before
        elif before is None:
            return None
        else:
            del self.objects[key]
        self._changes[key] = obj
        return before

    def put_all(self, objects: Mapping[K, V]) -> None:
        self.objects.update(objects)
        self._changes.update(objects)

    def drain_changes(self) -> dict[K, V | None]:
        """Return the objects that have changed, None for removed ones, and forget the changes."""
        changes, self._changes = self._changes, {}
        return changes


class Permit(IntEnum):
    GRANTED = 0
    REFUSED = 1
    UNANSWERED = 2  # a review was tried, and there is no answer yet


class AssumedClaim(NamedTuple):
    """The devices of a claim that we write, until a watch shows that they are allocated."""

    uid: str
    allocation: ClaimAllocation
    pods: tuple[tuple[Key, str], ...]  # that are being bound, with their uids


class ApiEviction(NamedTuple):
    """The pod of a PodGroup that was evicted through the API last."""

    pod: str
    node: str
    at: int  # when that was seen, in seconds since 1970


def _workload_objects() -> dict[Resource[Any], dict[Key, Any]]:
    return {resource: {} for resource in (*KIND_OF_RESOURCE, *OWNER_OF_RESOURCE)}


@dataclass
class Cluster:
    """All objects that are read; objects without a namespace are stored by name alone.

    `workloads` and `owners` are what `ClusterState` has read of `workload_objects`, by the tables
    of the kinds of workloads.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[Key, Pod] = field(default_factory=dict)
    pod_groups: dict[Key, PodGroup] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    quotas: dict[Key, ResourceQuota] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    claims: dict[Key, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    storage_classes: dict[str, StorageClass] = field(default_factory=dict)
    budgets: dict[Key, PodDisruptionBudget] = field(default_factory=dict)
    device_classes: dict[str, DeviceClass] = field(default_factory=dict)
    resource_slices: dict[str, ResourceSlice] = field(default_factory=dict)
    device_taint_rules: dict[str, DeviceTaintRule] = field(default_factory=dict)
    claim_templates: dict[Key, ResourceClaimTemplate] = field(default_factory=dict)
    resource_claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    workload_objects: dict[Resource[Any], dict[Key, Any]] = field(default_factory=_workload_objects)
    workloads: dict[ObjectKey, Workload] = field(default_factory=dict)
    owners: dict[ObjectKey, Suspendable] = field(default_factory=dict)
    # Why workloads or their owners cannot be suspended.
    suspend_refusals: dict[ObjectKey, str] = field(default_factory=dict)
    # The uids of what another client resumed during its eviction: its pods are evicted.
    reverted_suspensions: dict[ObjectKey, str] = field(default_factory=dict)
    permits: dict[Key, Permit] = field(default_factory=dict)  # by namespace and queue
    # Since when PodGroups that started lack pods which exist and have no node: epoch seconds.
    stale_since: dict[Key, int] = field(default_factory=dict)
    api_evictions: dict[Key, ApiEviction] = field(default_factory=dict)  # by PodGroup
    # The ids of the shared GPUs of pods with a bind in flight; changes only with the pod.
    bind_gpu_groups: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    # The claims of pods with a bind in flight; one counts as long as such a pod is on a node.
    assumed_claims: dict[Key, AssumedClaim] = field(default_factory=dict)

    def by_resource(self) -> dict[Resource[Any], dict[Any, Any]]:
        return {
            NODES: self.nodes,
            QUEUES: self.queues,
            TOPOLOGIES: self.topologies,
            PRIORITY_CLASSES: self.priority_classes,
            QUOTAS: self.quotas,
            NAMESPACES: self.namespaces,
            PVS: self.volumes,
            STORAGE_CLASSES: self.storage_classes,
            PVCS: self.claims,
            PDBS: self.budgets,
            DEVICE_CLASSES: self.device_classes,
            RESOURCE_SLICES: self.resource_slices,
            DEVICE_TAINT_RULES: self.device_taint_rules,
            CLAIM_TEMPLATES: self.claim_templates,
            RESOURCE_CLAIMS: self.resource_claims,
            **self.workload_objects,
            PODGROUPS: self.pod_groups,
            PODS: self.pods,
        }
