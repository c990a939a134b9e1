"""What all Kubernetes objects have in common: metadata, owners, and selectors of objects."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec


class Key(NamedTuple):
    """The namespace is "" for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""  # the end of the grace period that was requested with the deletion
    deletion_grace_period_seconds: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """There is at most one owner that controls the object."""
        return next((owner for owner in self.owner_references if owner.controller), None)


def without_version(meta: Meta) -> Meta:
    return msgspec.structs.replace(meta, resource_version="", generation=0)


class TemplateMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Condition(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Object(Protocol):
    @property
    def metadata(self) -> Meta: ...


class PartialObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta


class Requirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One key, an operator (In, NotIn, Exists, DoesNotExist; for nodes Gt and Lt too), values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """All requirements must hold; an empty selector matches all objects, a missing one none."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """All requirements must hold; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """At least one term must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()
