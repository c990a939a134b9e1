"""Kinds of the cluster around a TrainJob, volumes and requests for nodes included.

The few fields that we read.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainer_kai.api.meta import Condition, LabelSelector, Meta, NodeSelector
from trainer_kai.api.quantity import Quantity


class NamespaceStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    phase: str = ""


class Namespace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    status: NamespaceStatus = NamespaceStatus()


class Taint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    allocatable: Mapping[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClass(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    metadata: Meta
    value: int = 0
    global_default: bool = False


class ScopeRequirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """*operator* is In, NotIn, Exists or DoesNotExist."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class QuotaSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A scope is an expression with Exists."""

    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuota(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Only the API server reads its amounts."""

    metadata: Meta
    spec: QuotaSpec = QuotaSpec()


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Without a selector it is for no pod."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How many more pods may be evicted now, as of a generation; evictions in progress count."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """In the format of the core group, or in the newer one."""

    metadata: Meta
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: LeaseSpec = LeaseSpec()


class DeploymentStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    ready_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    status: DeploymentStatus = DeploymentStatus()


class StatefulSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pod_management_policy: str = "OrderedReady"


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: StatefulSetSpec = StatefulSetSpec()


class PolicyRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Without names it is for all objects."""

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()


class Role(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    rules: tuple[PolicyRule, ...] = ()


class RoleRef(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    metadata: Meta
    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] = ()


class ResourceAttributes(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    verb: str = ""
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""


class AccessSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    resource_attributes: ResourceAttributes = ResourceAttributes()
    user: str = ""
    groups: tuple[str, ...] = ()


class AccessStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    allowed: bool = False
    reason: str = ""


class AccessReview(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request, and its response if there is one."""

    metadata: Meta
    spec: AccessSpec = AccessSpec()
    status: AccessStatus | None = None


class VolumeResources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    requests: Mapping[str, Quantity] = {}


class VolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A class of "" and a missing class mean different things."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: VolumeResources = VolumeResources()


class VolumeClaimStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: VolumeClaimSpec = VolumeClaimSpec()
    status: VolumeClaimStatus = VolumeClaimStatus()


class ClaimRef(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    required: NodeSelector | None = None


class VolumeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    capacity: Mapping[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimRef | None = None
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None


class VolumeStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class LabelValues(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Where the class creates volumes."""

    match_label_expressions: tuple[LabelValues, ...] = ()


class StorageClass(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class ProvisioningRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    provisioning_class_name: str = ""
    pod_sets: tuple[Any, ...] = ()  # only their number counts


class ProvisioningRequestStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class ProvisioningRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
