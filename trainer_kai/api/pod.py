"""Pod: its containers with their requests, its constraints and its state."""

from collections.abc import Mapping
from typing import Final

import msgspec

from trainer_kai.api.meta import (
    Condition,
    LabelSelector,
    Meta,
    NodeSelector,
    NodeSelectorTerm,
    TemplateMeta,
)
from trainer_kai.api.quantity import Quantity


class ResourceClaimUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    request: str = ""


class Resources(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The API server sets missing requests of a stored pod to its limits."""

    requests: Mapping[str, Quantity] = {}
    limits: Mapping[str, Quantity] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Ports without a host port do not conflict."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """An init container with restartPolicy Always is a sidecar and keeps running."""

    name: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class PreferredNodes(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A node selector term with a weight: a preference."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The required and the preferred nodes."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredNodes, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Pods, and the node label that defines which nodes are near each other."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PreferredPods(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A pod affinity term with a weight: a preference."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pods to be near; as anti-affinity, the pods to be far from."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredPods, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The affinities of a pod; all of them must hold."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A taint that a pod tolerates; an empty key with Exists tolerates all taints."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpread(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How unevenly pods may be spread over the values of a node label."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


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
    name: str


class PodResourceClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
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
    termination_grace_period_seconds: int | None = None


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    resource_claim_name: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    phase: str = ""
    reason: str = ""  # why a kubelet let it fail
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Reasons with which a kubelet refuses a pod that is bound to its node, beside OutOf<resource>. None
# of them is about the image or the program of the pod.
_KUBELET_REFUSALS: Final = frozenset(
    {
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodePorts",
        "SMTAlignmentError",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)


def kubelet_refusal(pod: Pod | None) -> str:
    """Return why a kubelet refused a pod before any container started; "" if none did."""
    if pod is None or pod.status.phase != "Failed" or not pod.spec.node_name:
        return ""
    reason = pod.status.reason
    return reason if reason in _KUBELET_REFUSALS or reason.startswith("OutOf") else ""


class BriefPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""


class BriefPodStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    phase: str = ""


class BriefPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What decides about the PodGroup of a pod."""

    metadata: Meta
    spec: BriefPodSpec = BriefPodSpec()
    status: BriefPodStatus = BriefPodStatus()


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()
