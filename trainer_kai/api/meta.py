"""What every Kubernetes object has: a name, a version, labels, owners."""

from typing import NamedTuple, Protocol

import msgspec

__all__ = ["Key", "Meta", "Object", "OwnerReference", "PartialObject"]


class Key(NamedTuple):
    """Which object of a kind: namespace ("" for those that have none) and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The metadata we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return Key(self.namespace, self.name)


class Object(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Meta:
        """Return the metadata."""
        ...


class PartialObject(msgspec.Struct, frozen=True):
    """An object of any kind, of which only the metadata was asked for."""

    metadata: Meta
