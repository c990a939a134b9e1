"""An API server in memory that is written to: what the verbs of `trainer-kai queue` make of it."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.support.clock import VirtualClock
from tests.support.shelf import Shelf
from tests.support.world import queue
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import NAMESPACES, QUEUES
from trainer_kai.cli.queue.carry import Reader, carried_out
from trainer_kai.cli.queue.step import Plan
from trainer_kai.kube.access import Access, Token
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.kube.request import PatchKind, Request, resource_path

__all__ = ["Store"]

_WRITES: Final = ("POST", "PATCH")


class Store(Shelf):
    """Objects that can be made, merged and added to; and writes that are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[str] = set()  # kinds that the cluster does not have
        self.refusals: dict[str, str] = {}  # plural of what may not be written → what is said
        access = Access("https://h", Token(""), origin="the test")
        self.client = Client(access, self, VirtualClock(), Unobserved())
        self.reader = Reader(self.client)

    def queue(self, name: str, parent: str = "", access: str = "") -> None:
        """Have a queue."""
        notes = {"trainer-kai.dev/access": access} if access else {}
        self.put(QUEUES, queue(name, parent=parent, annotations=notes))

    def namespace(self, name: str, **meta: Any) -> None:
        """Have a namespace."""
        self.put(NAMESPACES, {"metadata": {"name": name, **meta}})

    def get(self, resource: Resource[Any], name: str, namespace: str = "") -> dict[str, Any]:
        """Return an object."""
        return self._objects[resource_path(resource, namespace, name)]

    async def done(self, plan: Plan, *, is_dry: bool = False) -> None:
        """Carry a plan out."""
        await carried_out(self.client, plan, is_dry=is_dry)

    @property
    def wrote(self) -> list[str]:
        """Return the writes that came, refused ones too."""
        return [str(it) for it in self.asked if it.method in _WRITES]

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """Write what is to be written."""
        parts = set(request.path.split("/"))
        if self.missing & parts:
            return Answer(404, b"{}")
        if request.method not in _WRITES:
            return await super().send(request, timeout_s)
        self.asked.append(request)
        for plural, message in self.refusals.items():
            if plural in parts:
                body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
                return Answer(403, json.dumps(body).encode())
        fields, path = json.loads(request.body or b"{}"), request.path
        if request.method == "POST":
            path = f"{path}/{fields['metadata']['name']}"
            self._objects[path] = fields
        elif request.content_type == PatchKind.JSON.value:
            for one in fields:
                _add(self._objects[path], one)
        else:
            self._objects[path] = _merged(self._objects[path], fields)
        return Answer(200, json.dumps(self._objects[path]).encode())


def _add(fields: dict[str, Any], operation: Mapping[str, Any]) -> None:
    assert operation["op"] == "add"
    _, name, *end = operation["path"].split("/")
    if end:
        fields[name].append(operation["value"])
    else:
        fields[name] = operation["value"]


def _merged(fields: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    return {**fields, **{name: _merged(fields.get(name, {}), it) for name, it in change.items()}}
