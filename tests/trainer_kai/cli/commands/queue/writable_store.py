"""An API server in memory that accepts writes, for the verbs of `trainer-kai queue`."""

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.support.clock import VirtualClock
from tests.support.fakes.readonly_server import ReadOnlyApiServer
from tests.support.workloads.simulate_objects import queue
from trainer_kai.api.resources import NAMESPACES, QUEUES, Resource
from trainer_kai.cli.commands.queue.write_plan import QueueReader, WritePlan, execute_plan
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import PatchKind, Request, resource_path
from trainer_kai.kube.rest.response import ApiResponse

_WRITES: Final = ("POST", "PATCH")


class WritableStore(ReadOnlyApiServer):
    """Objects that can be made, merged and added to; and writes that are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: set[str] = set()  # kinds that the cluster does not have
        self.refusals: dict[str, str] = {}  # plural of what may not be written → what is said
        self.absent_namespaces: set[str] = set()  # nothing can be created there
        access = RestConfig("https://h", StaticToken(""), origin="the test")
        self.client = Client(access, self, VirtualClock(), NoRequestObserver())
        self.reader = QueueReader(self.client)

    def queue(self, name: str, parent: str = "", access: str = "") -> None:
        notes = {"trainer-kai.dev/access": access} if access else {}
        self.put(QUEUES, queue(name, parent=parent, annotations=notes))

    def namespace(self, name: str, **meta: Any) -> None:
        self.put(NAMESPACES, {"metadata": {"name": name, **meta}})

    def get(self, resource: Resource[Any], name: str, namespace: str = "") -> dict[str, Any]:
        return self._objects[resource_path(resource, namespace, name)]

    async def done(self, plan: WritePlan, *, is_dry: bool = False) -> None:
        await execute_plan(self.client, plan, is_dry=is_dry)

    @property
    def wrote(self) -> list[str]:
        """Return the writes that came, refused ones too."""
        return [str(it) for it in self.requests if it.method in _WRITES]

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        parts = set(request.path.split("/"))
        if self.missing & parts:
            return ApiResponse(404, b"{}")
        if request.method not in _WRITES:
            return await super().send(request, timeout_s)
        self.requests.append(request)
        if self.absent_namespaces & parts:
            namespace = next(iter(self.absent_namespaces & parts))
            body = {"kind": "Status", "code": 404, "message": f'namespaces "{namespace}" not found'}
            return ApiResponse(404, json.dumps(body).encode())
        for plural, message in self.refusals.items():
            if plural in parts:
                body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
                return ApiResponse(403, json.dumps(body).encode())
        if ("dryRun", "All") in request.query:
            return ApiResponse(200, json.dumps({"metadata": {"name": "dry"}}).encode())
        fields, path = json.loads(request.body or b"{}"), request.path
        if request.method == "POST":
            path = f"{path}/{fields['metadata']['name']}"
            self._objects[path] = fields
        elif request.content_type == PatchKind.JSON.value:
            for one in fields:
                _add(self._objects[path], one)
        else:
            self._objects[path] = _merged(self._objects[path], fields)
        return ApiResponse(200, json.dumps(self._objects[path]).encode())


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
