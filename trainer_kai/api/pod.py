"""Pod: what it needs, where it may be and how it is."""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.affinity import Affinity, Toleration, TopologySpread
from trainer_kai.api.container import Container, Resources
from trainer_kai.api.meta import Condition, Meta, TemplateMeta
from trainer_kai.api.quantity import Quantity

__all__ = [
    "TERMINAL_PHASES",
    "ClaimStatus",
    "Ephemeral",
    "Pod",
    "PodResourceClaim",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "SchedulingGate",
    "Volume",
    "VolumeClaim",
]

TERMINAL_PHASES: Final = ("Succeeded", "Failed")  # of a pod that does not run any more


class Ephemeral(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A claim made for this pod, called POD-VOLUME."""


class VolumeClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The claim behind a volume."""

    claim_name: str
    read_only: bool = False


class Volume(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A volume; what is neither claimed nor ephemeral binds to no storage."""

    name: str
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: Ephemeral | None = None


class SchedulingGate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A controller that has not yet let the pod be scheduled."""

    name: str


class PodResourceClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A dynamic resource: a claim that exists, or one made for this pod."""

    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What the pod was made with."""

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    node_selector: Mapping[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    overhead: Mapping[str, Quantity] = {}
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: Resources | None = None  # of the whole pod


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The claim that was made for one of the pod's resource claims."""

    name: str
    resource_claim_name: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What has become of the pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What pods are made from."""

    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()
