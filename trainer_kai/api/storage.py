"""Volume claims, volumes and storage classes: which nodes can use the data of a pod."""

from collections.abc import Mapping

import msgspec

from trainer_kai.api.meta import Meta, NodeSelector
from trainer_kai.api.quantity import Quantity


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
