"""The affinity, anti-affinity, tolerations and spread constraints of a pod."""

import msgspec

from trainer_kai.api.selector import LabelSelector, NodeSelector, NodeSelectorTerm


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
