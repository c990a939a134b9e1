"""Pod: its requests, its constraints and its state."""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.affinity import Affinity, Toleration, TopologySpread
from trainer_kai.api.container import Container, Resources
from trainer_kai.api.meta import Condition, Meta, TemplateMeta
from trainer_kai.api.quantity import Quantity

TERMINAL_PHASES: Final = ("Succeeded", "Failed")  # of a pod that does not run any more


class Ephemeral(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A volume claim that is created for the pod, with the name POD-VOLUME."""


class VolumeClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The volume claim of a volume."""

    claim_name: str
    read_only: bool = False


class Volume(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A volume; one without a claim uses no storage that we consider."""

    name: str
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: Ephemeral | None = None


class SchedulingGate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A gate that a controller removes before the pod may be scheduled."""

    name: str


class PodResourceClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A dynamic resource: an existing claim, or a claim that is created for the pod."""

    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The desired state of the pod."""

    volumes: tuple[Volume, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    node_selector: Mapping[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    affinity: Affinity | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
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
    """The claim that was created for one of the pod's resource claims."""

    name: str
    resource_claim_name: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The state of the pod."""

    phase: str = ""
    reason: str = ""  # why a kubelet let it fail
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The template of pods."""

    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()
