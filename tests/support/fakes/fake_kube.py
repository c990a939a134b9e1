"""An API server in memory that serves one kind: versions, pages, watches, and what goes wrong.

It stands in for the wire (`trainer_kai.kube.rest.transport.Transport`), so the client and the watch
above it are the real ones.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse, body_or_error
from trainer_kai.kube.rest.transport import unavailable

_REASONS: Final = {410: "Expired", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests"}


@dataclass
class _Stream:
    """One open watch: what it has still to send, and how many bytes until it breaks."""

    pending: bytearray = field(default_factory=bytearray)
    left: int | None = None
    is_over: bool = False
    has_data: asyncio.Event = field(default_factory=asyncio.Event)


class FakeKube:
    """The objects of one kind, and all watches of them."""

    def __init__(self, piece_bytes: int = 1 << 16) -> None:
        self.requests: list[Request] = []
        self.is_behind = False  # every watch is then refused with 410: list again
        self._piece_bytes = piece_bytes
        self._objects: dict[str, dict[str, Any]] = {}
        self._version = 0
        self._uids = 0
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._oldest = 0  # a watch cannot continue from before this
        self._streams: list[_Stream] = []
        self._refusals: list[int] = []
        self._lists: dict[str, tuple[int, list[dict[str, Any]]]] = {}

    # What becomes of the objects

    def put(self, name: str, **fields: object) -> None:
        """Make an object, or change it."""
        self._version += 1
        before = self._objects.get(name)
        if before is None:
            self._uids += 1
        uid = before["metadata"]["uid"] if before else f"uid-{self._uids}"
        metadata = {
            "namespace": "default",
            "name": name,
            "uid": uid,
            "resourceVersion": f"{self._version}",
        }
        self._objects[name] = {"metadata": metadata, **fields}
        self._emit("MODIFIED" if before else "ADDED", self._objects[name])

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        gone = self._objects.pop(name, None)
        if gone is not None:
            self._version += 1
            metadata = {**gone["metadata"], "resourceVersion": f"{self._version}"}
            self._emit("DELETED", {**gone, "metadata": metadata})

    def change_elsewhere(self) -> None:
        """Change an object of another kind: the version grows, and no watch sees it."""
        self._version += 1

    @property
    def versions(self) -> dict[str, str]:
        """Return name and version of every object."""
        return {name: found["metadata"]["resourceVersion"] for name, found in self._objects.items()}

    def fields(self, name: str) -> dict[str, Any]:
        """Return an object as it is now."""
        return self._objects[name]

    # What goes wrong

    def bookmark(self) -> None:
        """Tell every watch how far the store is."""
        line = {"metadata": {"resourceVersion": f"{self._version}"}}
        self._send("BOOKMARK", line)

    def compact(self) -> None:
        """Compact the history: a watch from before now is answered that it expired."""
        self._oldest = self._version
        self._lists.clear()

    def end_streams(self) -> None:
        """Let every watch have had its time."""
        for stream in self._streams:
            stream.is_over = True
            stream.has_data.set()

    def break_streams(self, after_bytes: int = 0) -> None:
        """Break every watch, after some more bytes."""
        for stream in self._streams:
            stream.left = after_bytes
            stream.has_data.set()

    def expire_streams(self) -> None:
        """Tell every watch in its stream that it lags too far behind."""
        self.compact()
        self._send("ERROR", _status(410))

    def refuse(self, *statuses: int) -> None:
        """Answer the next requests with these; 0 is a connection that breaks."""
        self._refusals += statuses

    # The transport

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Answer a list."""
        assert timeout_s > 0
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        query = dict(request.query)
        token = query.get("continue", "")
        if token and token not in self._lists:
            return _error_answer(410)
        version, rest = self._lists.pop(token, (self._version, list(self._objects.values())))
        page, rest = rest[: int(query["limit"])], rest[int(query["limit"]) :]
        token = f"from-{version}-{len(rest)}-{len(self.requests)}" if rest else ""
        if rest:
            self._lists[token] = (version, rest)
        body = {"metadata": {"resourceVersion": f"{version}", "continue": token}, "items": page}
        return ApiResponse(200, json.dumps(body).encode())

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Serve a watch."""
        assert silence_s > 0
        refusal = self._refusal(request)
        since = int(dict(request.query)["resourceVersion"])
        if refusal is None and (since < self._oldest or self.is_behind):
            refusal = _error_answer(410)
        if refusal is not None:
            body_or_error(request, refusal)
        stream = _Stream()
        for version, event, found in self._history:
            if version > since:
                stream.pending += _line(event, found)
        self._streams.append(stream)
        try:
            yield self._pieces(request, stream)
        finally:
            self._streams.remove(stream)

    async def close(self) -> None:
        """Have nothing to close."""

    async def _pieces(self, request: Request, stream: _Stream) -> AsyncIterator[bytes]:
        while True:
            size = self._piece_bytes
            if stream.left is not None:
                size = min(size, stream.left)
                stream.left -= min(size, len(stream.pending))
            piece = bytes(stream.pending[:size])
            del stream.pending[:size]
            if piece:
                yield piece
            elif stream.left is not None:
                raise unavailable(request, "the connection broke", was_sent=True)
            elif stream.is_over:
                return
            else:
                stream.has_data.clear()
                await stream.has_data.wait()

    def _emit(self, event: str, found: dict[str, Any]) -> None:
        self._history.append((self._version, event, found))
        self._send(event, found)

    def _send(self, event: str, found: dict[str, Any]) -> None:
        for stream in self._streams:
            stream.pending += _line(event, found)
            stream.has_data.set()

    def _refusal(self, request: Request) -> ApiResponse | None:
        self.requests.append(request)
        if not self._refusals:
            return None
        status = self._refusals.pop(0)
        if status == 0:
            raise unavailable(request, "no answer", was_sent=False)
        return _error_answer(status)


def _error_answer(status: int) -> ApiResponse:
    return ApiResponse(status, json.dumps(_status(status)).encode())


def _status(code: int) -> dict[str, Any]:
    reason = _REASONS.get(code, "InternalError")
    return {"kind": "Status", "code": code, "reason": reason, "message": "refused by the fake"}


def _line(event: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": found}).encode() + b"\n"
