"""An API server in memory that only reads: objects by path, labels and fields, and who may not."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from trainer_kai.api.meta import Key
from trainer_kai.api.resource import Resource
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.request import Request, resource_path

__all__ = ["Shelf"]

_NAMESPACE: Final = re.compile("/namespaces/[^/]+(?=/[^/]+/)")


class Shelf:
    """A `trainer_kai.kube.transport.Transport`: what was put there, and what was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.forbidden: set[str] = set()  # kinds, in the plural
        self._objects: dict[str, dict[str, Any]] = {}

    def put(self, resource: Resource[Any], fields: Mapping[str, Any]) -> None:
        """Keep an object, or another one in its place."""
        meta = fields["metadata"]
        path = resource_path(resource, meta.get("namespace", ""), meta["name"])
        self._objects[path] = json.loads(json.dumps(fields))

    def take(self, resource: Resource[Any], key: Key) -> None:
        """Have an object no more."""
        del self._objects[resource_path(resource, key.namespace, key.name)]

    async def send(self, request: Request, timeout_s: float) -> Answer:  # noqa: ARG002
        """Answer with an object, or with those of a kind that are selected."""
        self.asked.append(request)
        if self.forbidden & set(request.path.split("/")):
            return _refused(403, "Forbidden", f"user may not read {request.path}")
        if request.path in self._objects:
            return Answer(200, json.dumps(self._objects[request.path]).encode())
        if "limit" not in dict(request.query):
            return _refused(404, "NotFound", f"{request.path} not found")
        below = f"{request.path}/"
        items = [it for path, it in self._objects.items() if _is_below(path, below)]
        chosen = [it for it in items if _is_selected(it, dict(request.query))]
        return Answer(200, json.dumps({"metadata": {}, "items": chosen}).encode())

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Refuse: nobody follows anything here."""
        raise NotImplementedError

    async def close(self) -> None:
        """Have nothing to close."""


def _is_below(path: str, kind: str) -> bool:
    """Say whether an object is of a kind in a namespace, or of one in all of them."""
    return path.startswith(kind) or _NAMESPACE.sub("", path).startswith(kind)


def _is_selected(fields: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    labels = _pairs(query.get("labelSelector", ""))
    has = fields["metadata"].get("labels", {})
    wanted = _pairs(query.get("fieldSelector", ""))
    return all(has.get(name) == text for name, text in labels.items()) and all(
        _at(fields, path.split(".")) == text for path, text in wanted.items()
    )


def _pairs(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in parts}


def _at(fields: Any, path: list[str]) -> Any:
    for name in path:
        fields = fields.get(name, {})
    return fields


def _refused(status: int, reason: str, message: str) -> Answer:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return Answer(status, json.dumps(body).encode())
