"""One collection of an API server as a list and a watch that the test scripts."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

from e2e.cluster.api import Api
from e2e.cluster.resources import Obj, Resource

CLOSED = None  # the server ends the watch
WatchLine: TypeAlias = bytes | Exception | None  # what comes next on the watch, or breaks it


class ScriptedApi:
    """Stands in for `Api` where only `list` and `stream` are called; nothing is sent unasked."""

    def __init__(self, *listed: Obj, version: int = 1) -> None:
        self.listed = list(listed)
        self.version = version
        self.relisted: list[bytes] = []  # what a watch that is bounded in time says
        self._lines: asyncio.Queue[WatchLine] = asyncio.Queue()

    def as_api(self) -> Api:
        """Return the same object under the type that its users ask for."""
        return cast("Api", self)

    def send(self, *lines: WatchLine) -> None:
        """Put lines on the watch."""
        for line in lines:
            self._lines.put_nowait(line)

    async def list(
        self, _resource: Resource, _namespace: str | None = None, **_query: str
    ) -> tuple[list[Obj], str]:
        """Return what is told to be there, as late as an answer from elsewhere."""
        await asyncio.sleep(0)
        return [*self.listed], str(self.version)

    @asynccontextmanager
    async def stream(
        self, _path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open the watch, or one that ends by itself and says what there is to be said."""
        yield self._read_again() if query["timeoutSeconds"] == "1" else self._read()

    async def _read_again(self) -> AsyncIterator[bytes]:
        for line in self.relisted:
            yield line

    async def _read(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not CLOSED:
            if isinstance(line, Exception):
                raise line
            yield line


def event(kind: str, obj: Mapping[str, Any]) -> bytes:
    """Return the line of one watch event."""
    return json.dumps({"type": kind, "object": obj}).encode()
