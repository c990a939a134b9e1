"""PodGroup: pods that are scheduled together, as a tree of sub-groups."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.quantity import Quantity


class TopologyConstraint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The topology to place pods in; a level is a node label of the topology, or its alias."""

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
    """The desired state."""

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
    """The reason why the PodGroup is not scheduled."""

    reason: str
    message: str = ""


class SchedulingCondition(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The last result of the scheduler for the PodGroup, for one node pool."""

    type: str = ""
    node_pool: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    reasons: tuple[SchedulingReason, ...] = ()
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str = ""


class ResourcesStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the PodGroup uses and requests."""

    allocated: Mapping[str, Quantity] = {}
    allocated_non_preemptible: Mapping[str, Quantity] = {}
    requested: Mapping[str, Quantity] = {}


class PodGroupStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The state that the scheduler reports."""

    scheduling_conditions: tuple[SchedulingCondition, ...] = ()
    resources_status: ResourcesStatus = ResourcesStatus()


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A PodGroup."""

    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
