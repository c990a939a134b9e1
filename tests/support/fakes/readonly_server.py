"""A read-only API server in memory: objects by path, labels and fields, and what is forbidden."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from trainer_kai.api.meta import Key
from trainer_kai.api.resources import Resource
from trainer_kai.kube.rest.request import Request, resource_path
from trainer_kai.kube.rest.response import ApiResponse

_NAMESPACE: Final = re.compile("/namespaces/[^/]+(?=/[^/]+/)")


class ReadOnlyApiServer:
    """A `trainer_kai.kube.rest.transport.Transport`: what was put there, and what was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.forbidden: set[str] = set()  # kinds, in the plural, and API groups
        self.served: set[str] = set()  # other paths, with an empty answer
        self._objects: dict[str, dict[str, Any]] = {}

    def put(self, resource: Resource[Any], fields: Mapping[str, Any]) -> None:
        """Keep an object, or another one in its place."""
        meta = fields["metadata"]
        path = resource_path(resource, meta.get("namespace", ""), meta["name"])
        self._objects[path] = json.loads(json.dumps(fields))

    def remove(self, resource: Resource[Any], key: Key) -> None:
        """Have an object no more."""
        del self._objects[resource_path(resource, key.namespace, key.name)]

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:  # noqa: ARG002
        """Answer with an object, or with those of a kind that are selected."""
        self.requests.append(request)
        if self.forbidden & set(request.path.split("/")):
            return _error_answer(403, "Forbidden", f"user may not read {request.path}")
        if request.path in self._objects:
            return ApiResponse(200, json.dumps(self._objects[request.path]).encode())
        if request.path in self.served:
            return ApiResponse(200, b"{}")
        if "limit" not in dict(request.query):
            return _error_answer(404, "NotFound", f"{request.path} not found")
        below = f"{request.path}/"
        items = [it for path, it in self._objects.items() if _is_in_collection(path, below)]
        chosen = [it for it in items if _is_selected(it, dict(request.query))]
        return ApiResponse(200, json.dumps({"metadata": {}, "items": chosen}).encode())

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Refuse: nothing is watched here."""
        raise NotImplementedError

    async def close(self) -> None:
        """Have nothing to close."""


def _is_in_collection(path: str, kind: str) -> bool:
    """Say whether an object is of a kind in a namespace, or of one in all of them."""
    return path.startswith(kind) or _NAMESPACE.sub("", path).startswith(kind)


def _is_selected(fields: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    has = fields["metadata"].get("labels", {})
    labels = query.get("labelSelector", "").split(",")
    wanted = query.get("fieldSelector", "").split(",")
    return all(_holds(part, has.get) for part in labels if part) and all(
        _holds(part, lambda path: _field(fields, path.split(".")) or None)
        for part in wanted
        if part
    )


def _holds(part: str, value_of: Callable[[str], Any]) -> bool:
    """Say whether a part of a selector holds: NAME, !NAME, NAME=VALUE or NAME!=VALUE."""
    name, equals, value = part.partition("=")
    if not equals:
        is_wanted = not name.startswith("!")
        return (value_of(name.removeprefix("!")) is not None) is is_wanted
    if name.endswith("!"):
        return bool((value_of(name.removesuffix("!")) or "") != value)
    return bool((value_of(name) or "") == value)


def _field(fields: Any, path: list[str]) -> Any:
    for name in path:
        fields = fields.get(name, {})
    return fields


def _error_answer(status: int, reason: str, message: str) -> ApiResponse:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return ApiResponse(status, json.dumps(body).encode())
