"""Requests to the API server, as values. Pure: nothing here waits or knows a connection.

`repeatable` is a property of a request: sending it twice has the same effect as sending it once, so
it can be sent again if its response is lost.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resources import Resource

T = TypeVar("T", bound=Object)

Body: TypeAlias = Mapping[str, Any]  # an object to send: JSON, which has no narrower type
AnyResource: TypeAlias = Resource[Any]

_NO_NAMES: Final = ("", ".", "..")  # a path with one of these characters leads to another resource
_JSON: Final = "application/json"
_PARTIAL: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON
    repeatable: bool = False

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a kind: selectors in kubectl's format; empty means all."""

    labels: str = ""
    fields: str = ""

    def query(self) -> tuple[tuple[str, str], ...]:
        return _non_empty(("labelSelector", self.labels), ("fieldSelector", self.fields))


ALL: Final = Selection()


class ListTarget(msgspec.Struct, Generic[T], frozen=True):
    """What is listed and watched: a kind, a namespace, a selection, and how much of each object.

    To receive only metadata, use a resource with the struct `PartialObject`, and set
    `only_metadata`.
    """

    resource: Resource[T]
    namespace: str = ""  # "" means all namespaces
    selection: Selection = ALL
    only_metadata: bool = False


class DeleteOptions(msgspec.Struct, frozen=True):
    uid: str = ""
    resource_version: str = ""
    propagation: str = "Background"
    grace_s: int | None = None
    dry_run: bool = False

    def body(self) -> dict[str, Any]:
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
    """The format of a patch. Strategic merge is missing: custom resources do not support it."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Patch(msgspec.Struct, frozen=True):
    kind: PatchKind
    body: Body | Sequence[Body]

    @property
    def repeatable(self) -> bool:
        """Say whether sending it twice has the same effect; operations may append, others set."""
        return self.kind is not PatchKind.JSON


class WriteOptions(msgspec.Struct, frozen=True):
    field_manager: str = ""
    dry_run: bool = False
    force: bool = False  # apply only: take over fields from other managers
    strict: bool = False  # reject unknown fields instead of dropping them
    subresource: str = ""

    def query(self) -> tuple[tuple[str, str], ...]:
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
    """Return the path of a kind, an object or a subresource; without a namespace all namespaces."""
    parts = ["/apis" if resource.group else "/api", resource.api_version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def object_path(resource: AnyResource, key: Key, subresource: str = "") -> str:
    """Return the path of one object or its subresource, never the path of all objects."""
    _check_namespace(resource, key.namespace, f"the key of {key.name}")
    if key.name in _NO_NAMES:  # a deletion without a name would delete all objects
        message = f"{key.name!r} is not a name: an object of {resource} must be named"
        raise ValueError(message)
    return resource_path(resource, key.namespace, key.name, subresource)


def get(resource: AnyResource, key: Key, *, only_metadata: bool = False) -> Request:
    accept = _PARTIAL if only_metadata else _JSON
    return Request("GET", object_path(resource, key), accept=accept, repeatable=True)


def list_page(target: ListTarget[Any], limit: int, continue_token: str = "") -> Request:
    """Read one page of a list, as of the moment of its first page."""
    query = (*target.selection.query(), ("limit", str(limit)))
    if continue_token:
        query += (("continue", continue_token),)
    accept = _PARTIAL_LIST if target.only_metadata else _JSON
    path = resource_path(target.resource, target.namespace)
    return Request("GET", path, query, accept=accept, repeatable=True)


def watch(target: ListTarget[Any], version: str, timeout_s: int) -> Request:
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
    """Create an object; if the response was lost, it may already exist."""
    _check_namespace(resource, namespace, "the new object")
    path = resource_path(resource, namespace)
    return Request("POST", path, options.query(), msgspec.json.encode(body))


def post(path: str, body: Body, *, repeatable: bool = False) -> Request:
    """Create an object for an action without a verb of its own."""
    return Request("POST", path, body=msgspec.json.encode(body), repeatable=repeatable)


def replace(
    resource: AnyResource, key: Key, body: Body, options: WriteOptions = NO_OPTIONS
) -> Request:
    path = object_path(resource, key, options.subresource)
    return Request("PUT", path, options.query(), msgspec.json.encode(body))


def patch(
    resource: AnyResource, key: Key, change: Patch, options: WriteOptions = NO_OPTIONS
) -> Request:
    return Request(
        "PATCH",
        object_path(resource, key, options.subresource),
        options.query(),
        msgspec.json.encode(change.body),
        content_type=change.kind.value,
        repeatable=change.repeatable,
    )


def delete(resource: AnyResource, key: Key, options: DeleteOptions) -> Request:
    """Delete an object. With a uid it is repeatable: a new object with that name is safe."""
    path, body = object_path(resource, key), msgspec.json.encode(options.body())
    return Request("DELETE", path, body=body, repeatable=bool(options.uid))


def _check_namespace(resource: AnyResource, namespace: str, what: str) -> None:
    if resource.namespaced and not namespace:
        message = f"{resource} are namespaced: {what} needs a namespace"
        raise ValueError(message)


def _non_empty(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in pairs if text)
