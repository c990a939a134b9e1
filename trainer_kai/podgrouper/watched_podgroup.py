"""What the podgrouper stores of a PodGroup: its content, and the fields that we manage.

The API server records the fields of each manager in managedFields. They tell a field that we no
longer want from a field of another client, so nothing is remembered between two reconciles. A
client chooses the name of its manager; that is enough here, since users may not write PodGroups.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.resources import PODGROUPS, Resource

ManagedFieldPath: TypeAlias = tuple[str, ...]

FIELD_MANAGER: Final = "trainer-kai-podgrouper"


class ManagedFieldsEntry(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """*fields_v1* is in the API server's own notation."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class WatchedPodGroupMeta(Meta, frozen=True, rename="camel", kw_only=True, gc=False):
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class WatchedPodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The spec stays raw, to be compared."""

    metadata: WatchedPodGroupMeta
    spec: dict[str, Any] = {}


class StoredPodGroup(NamedTuple):
    key: Key
    uid: str
    version: str
    metadata: Mapping[str, Any]  # labels, annotations and owners
    spec: Mapping[str, Any]
    managed_paths: frozenset[ManagedFieldPath]


WATCHED_PODGROUPS: Final = Resource(
    PODGROUPS.group,
    PODGROUPS.version,
    PODGROUPS.plural,
    PODGROUPS.kind,
    namespaced=True,
    struct=WatchedPodGroup,
)


def stored_podgroup(watched: WatchedPodGroup) -> StoredPodGroup:
    meta = watched.metadata
    ours = frozenset[ManagedFieldPath]()
    for managed in meta.managed_fields:
        is_ours = managed.manager == FIELD_MANAGER and managed.operation == "Apply"
        if is_ours and not managed.subresource:
            ours |= _paths(bytes(managed.fields_v1))
    owners = [  # other objects may own it too
        {"apiVersion": it.api_version, "kind": it.kind, "name": it.name, "uid": it.uid}
        for it in meta.owner_references
    ]
    metadata = {
        "labels": meta.labels,
        "annotations": meta.annotations,
        "ownerReferences": owners,
    }
    return StoredPodGroup(meta.key, meta.uid, meta.resource_version, metadata, watched.spec, ours)


def field_paths(
    fields: Mapping[str, Any], start: ManagedFieldPath = ()
) -> Iterator[ManagedFieldPath]:
    """Yield the path of each value; a list is one value."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from field_paths(value, (*start, name))
        else:
            yield (*start, name)


@lru_cache(maxsize=1024)  # many PodGroups have the same fields
def _paths(fields_v1: bytes) -> frozenset[ManagedFieldPath]:
    return frozenset(_walk(msgspec.json.decode(fields_v1), ()))


def _walk(node: Mapping[str, Any], start: ManagedFieldPath) -> Iterator[ManagedFieldPath]:
    """Fields inside a list belong to the list."""
    fields = {name[2:]: below for name, below in node.items() if name.startswith("f:")}
    if not fields:
        yield start
    for name, below in fields.items():
        yield from _walk(below, (*start, name))
