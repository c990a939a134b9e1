"""What is sent to the API server, as values. Pure: nothing here waits or knows a connection.

Whether a request may be sent twice is a property of the request: `repeatable` means that doing it
again does no more than doing it once, so a lost answer may be answered by asking again.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resource import Resource

__all__ = [
    "ALL",
    "NO_OPTIONS",
    "Body",
    "DeleteOptions",
    "ListTarget",
    "Patch",
    "PatchKind",
    "Request",
    "Selection",
    "WriteOptions",
    "create",
    "delete",
    "get",
    "list_page",
    "object_path",
    "patch",
    "post",
    "replace",
    "resource_path",
    "watch",
]

T = TypeVar("T", bound=Object)

Body: TypeAlias = Mapping[str, Any]  # an object on its way out: JSON, which has no narrower type
AnyResource: TypeAlias = Resource[Any]

_NO_NAMES: Final = ("", ".", "..")  # a path that holds one of them leads elsewhere
_JSON: Final = "application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, complete but for credentials."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON
    repeatable: bool = False

    @property
    def target(self) -> str:
        """Return path and query, as the request line has them."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a kind: selectors as kubectl writes them; empty means all."""

    labels: str = ""
    fields: str = ""

    def query(self) -> tuple[tuple[str, str], ...]:
        """Return the parameters."""
        return _non_empty(("labelSelector", self.labels), ("fieldSelector", self.fields))


ALL: Final = Selection()


class ListTarget(msgspec.Struct, Generic[T], frozen=True):
    """What is listed and followed: a kind, where, which of them, and how much of each.

    To be sent only metadata, give a resource whose struct is `PartialObject`, and say so.
    """

    resource: Resource[T]
    namespace: str = ""  # "" is all of them
    selection: Selection = ALL
    only_metadata: bool = False


class DeleteOptions(msgspec.Struct, frozen=True):
    """How an object is deleted, and which it must still be for that to happen."""

    uid: str = ""
    resource_version: str = ""
    propagation: str = "Background"
    grace_s: int | None = None
    dry_run: bool = False

    def body(self) -> dict[str, Any]:
        """Return DeleteOptions."""
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": self.propagation,
        }
        if self.grace_s is not None:
            options["gracePeriodSeconds"] = self.grace_s
        if self.dry_run:
            options["dryRun"] = ["All"]
        preconditions = _non_empty(("uid", self.uid), ("resourceVersion", self.resource_version))
        if preconditions:
            options["preconditions"] = dict(preconditions)
        return options


class PatchKind(Enum):
    """How a patch is written. Strategic merge is not here: custom resources have none."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Patch(msgspec.Struct, frozen=True):
    """A change of one object: fields to merge, operations to run, or the fields we own."""

    kind: PatchKind
    body: Body | Sequence[Body]

    @property
    def repeatable(self) -> bool:
        """Say whether doing it twice is doing it once: operations may append, the others set."""
        return self.kind is not PatchKind.JSON


class WriteOptions(msgspec.Struct, frozen=True):
    """How something is written, apart from what."""

    field_manager: str = ""
    dry_run: bool = False
    force: bool = False  # apply only: take fields over from other managers
    strict: bool = False  # refuse unknown fields instead of dropping them
    subresource: str = ""

    def query(self) -> tuple[tuple[str, str], ...]:
        """Return the parameters."""
        return _non_empty(
            ("fieldManager", self.field_manager),
            ("dryRun", "All" if self.dry_run else ""),
            ("force", "true" if self.force else ""),
            ("fieldValidation", "Strict" if self.strict else ""),
        )


NO_OPTIONS: Final = WriteOptions()


def resource_path(
    resource: AnyResource, namespace: str, name: str = "", subresource: str = ""
) -> str:
    """Return the path of a kind, an object or a part of it; no namespace means all of them."""
    parts = ["/apis" if resource.group else "/api", resource.api_version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def object_path(resource: AnyResource, key: Key, subresource: str = "") -> str:
    """Return the path of one object or a part of it, never that of all of them."""
    _check_namespace(resource, key.namespace, f"the key of {key.name}")
    if key.name in _NO_NAMES:  # deleting nothing by name would be deleting all there is
        message = f"{key.name!r} is no name: one of the {resource} has to be named"
        raise ValueError(message)
    return resource_path(resource, key.namespace, key.name, subresource)


def get(resource: AnyResource, key: Key, *, only_metadata: bool = False) -> Request:
    """Read one object."""
    accept = _PARTIAL if only_metadata else _JSON
    return Request("GET", object_path(resource, key), accept=accept, repeatable=True)


def list_page(target: ListTarget[Any], limit: int, continue_token: str = "") -> Request:
    """Read one page of a list, as of the moment that its first page was read."""
    query = (*target.selection.query(), ("limit", str(limit)))
    if continue_token:
        query += (("continue", continue_token),)
    accept = _PARTIAL_LIST if target.only_metadata else _JSON
    path = resource_path(target.resource, target.namespace)
    return Request("GET", path, query, accept=accept, repeatable=True)


def watch(target: ListTarget[Any], version: str, timeout_s: int) -> Request:
    """Follow every change after a version, for so long at most."""
    query = (
        *target.selection.query(),
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", version),
        ("timeoutSeconds", str(timeout_s)),
    )
    accept = _PARTIAL if target.only_metadata else _JSON
    path = resource_path(target.resource, target.namespace)
    return Request("GET", path, query, accept=accept, repeatable=True)


def create(
    resource: AnyResource, namespace: str, body: Body, options: WriteOptions = NO_OPTIONS
) -> Request:
    """Make one object; after a lost answer it may be there already."""
    _check_namespace(resource, namespace, "what is made there")
    path = resource_path(resource, namespace)
    return Request("POST", path, options.query(), msgspec.json.encode(body))


def post(path: str, body: Body, *, repeatable: bool = False) -> Request:
    """Ask the API server to do something that has no other verb."""
    return Request("POST", path, body=msgspec.json.encode(body), repeatable=repeatable)


def replace(
    resource: AnyResource, key: Key, body: Body, options: WriteOptions = NO_OPTIONS
) -> Request:
    """Write one object whole; the version in it must still be the current one."""
    path = object_path(resource, key, options.subresource)
    return Request("PUT", path, options.query(), msgspec.json.encode(body))


def patch(
    resource: AnyResource, key: Key, change: Patch, options: WriteOptions = NO_OPTIONS
) -> Request:
    """Change a part of one object."""
    return Request(
        "PATCH",
        object_path(resource, key, options.subresource),
        options.query(),
        msgspec.json.encode(change.body),
        content_type=change.kind.value,
        repeatable=change.repeatable,
    )


def delete(resource: AnyResource, key: Key, options: DeleteOptions) -> Request:
    """Delete one object. With a uid it can be repeated: a successor of that name is safe."""
    path, body = object_path(resource, key), msgspec.json.encode(options.body())
    return Request("DELETE", path, body=body, repeatable=bool(options.uid))


def _check_namespace(resource: AnyResource, namespace: str, what: str) -> None:
    if resource.namespaced and not namespace:
        message = f"{resource} are namespaced: {what} needs a namespace"
        raise ValueError(message)


def _non_empty(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in pairs if text)
