"""An API server with one pod, over HTTP: it counts what is asked, and merges what is patched."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.support.fakes.http_server import (
    RawHttpServer,
    ReceivedRequest,
    ServerConnection,
    http_answer,
)

KEY: Final = ("kai-resource-reservation", "gpu-reservation-1f2e3d4c5b6a7988")
PATH: Final = f"/api/v1/namespaces/{KEY[0]}/pods/{KEY[1]}"
UID: Final = "5a1c0a3e-6a70-4c3a-9d4e-0c8f5d0b9f11"


class PodServer:
    """The pod; None if it is deleted."""

    def __init__(self) -> None:
        self.pod: dict[str, Any] | None = {
            "metadata": {"namespace": KEY[0], "name": KEY[1], "uid": UID, "annotations": {}}
        }
        self.unavailable = 0  # so many requests get the status 503
        self.recreated_with = ""  # the uid of the pod that replaces this one after it was read
        self._wire: RawHttpServer

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Self]:
        server = cls()
        async with RawHttpServer.open(server._answer) as server._wire:
            yield server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._wire.port}"

    @property
    def annotations(self) -> dict[str, str]:
        assert self.pod is not None
        annotations: dict[str, str] = self.pod["metadata"]["annotations"]
        return annotations

    @property
    def asked(self) -> list[str]:
        """Return method and path of each request so far."""
        return [f"{it.method} {it.target}" for it in self._wire.requests]

    @property
    def patches(self) -> list[ReceivedRequest]:
        return [it for it in self._wire.requests if it.method == "PATCH"]

    async def until_asked(self, count: int) -> None:
        await self._wire.until_requests(count)

    def kubeconfig(self, folder: Path) -> Path:
        content = {
            "current-context": "pod",
            "clusters": [{"name": "pod", "cluster": {"server": self.url}}],
            "users": [{"name": "pod", "user": {}}],
            "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        }
        file = folder / "kubeconfig"
        file.write_text(json.dumps(content))
        return file

    async def _answer(self, asked: ReceivedRequest, line: ServerConnection) -> None:
        status, body = self._outcome(asked)
        kind = "Content-Type: application/json"
        await line.send(http_answer(status, json.dumps(body).encode(), kind))

    def _outcome(self, asked: ReceivedRequest) -> tuple[int, object]:
        if self.unavailable:
            self.unavailable -= 1
            return _refusal(503, "ServiceUnavailable", "the API server starts")
        if self.pod is None or asked.target != PATH:
            return _refusal(404, "NotFound", f"pods {KEY[1]!r} not found")
        if asked.method == "PATCH":
            metadata = json.loads(asked.body)["metadata"]
            if metadata["uid"] != self.pod["metadata"]["uid"]:
                return _refusal(409, "Conflict", "the uid in the precondition is another one")
            self.annotations.update(metadata["annotations"])
        found = json.loads(json.dumps(self.pod))
        if self.recreated_with:
            self.pod["metadata"]["uid"] = self.recreated_with
        return 200, found


def _refusal(code: int, reason: str, message: str) -> tuple[int, object]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}
