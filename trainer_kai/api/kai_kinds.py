"""The kinds of KAI: Queue, PodGroup and Topology."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.quantity import Quantity


class QueueResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The share of one resource: GPUs, millicores, or megabytes of 10^6; -1 means unlimited.

    A missing number is 0: a queue may use nothing of a resource that it does not mention.
    """

    quota: Decimal = Decimal(0)
    over_quota_weight: Decimal = Decimal(0)
    limit: Decimal = Decimal(0)


# What counts for a resource that a queue does not mention. It equals a resource whose numbers are
# all written as 0; only `is` tells the two apart.
ABSENT_RESOURCE: Final = QueueResource()


class QueueResources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    gpu: QueueResource = ABSENT_RESOURCE
    cpu: QueueResource = ABSENT_RESOURCE
    memory: QueueResource = ABSENT_RESOURCE


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    parent_queue: str = ""
    priority: int | None = None
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""
    resources: QueueResources | None = None


class QueueStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Cores, bytes and devices, unlike the spec."""

    child_queues: tuple[str, ...] = ()
    allocated: Mapping[str, Quantity] = {}
    allocated_non_preemptible: Mapping[str, Quantity] = {}
    requested: Mapping[str, Quantity] = {}


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class TopologyConstraint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A level is a node label of the topology, or its alias."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A PodSet counts pods (`min_member`), a SubGroupSet counts its children (`min_sub_group`)."""

    name: str
    parent: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: TopologyConstraint | None = None


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    queue: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    sub_groups: tuple[SubGroup, ...] = ()
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: TopologyConstraint | None = None
    mark_unschedulable: bool = True
    preemption_delay: str = ""
    staleness_grace_period: str = ""


class SchedulingReason(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    reason: str
    message: str = ""


class SchedulingCondition(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The last result of the scheduler, for one node pool."""

    type: str = ""
    node_pool: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    reasons: tuple[SchedulingReason, ...] = ()
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str = ""


class ResourcesStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    allocated: Mapping[str, Quantity] = {}
    allocated_non_preemptible: Mapping[str, Quantity] = {}
    requested: Mapping[str, Quantity] = {}


class PodGroupStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    scheduling_conditions: tuple[SchedulingCondition, ...] = ()
    resources_status: ResourcesStatus = ResourcesStatus()


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class TopologyLevel(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Workloads may refer to it by its alias."""

    node_label: str
    alias: str = ""


class TopologySpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    levels: tuple[TopologyLevel, ...] = ()


class Topology(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: TopologySpec = TopologySpec()
