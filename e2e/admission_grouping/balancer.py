"""One address for several replicas, as a Service is: each connection goes to the next of them.

Whoever refuses a connection is found out by that, like an endpoint of a pod that has just died: for
a moment what goes to it fails, then it gets nothing any more.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final, Self

_LAG_S: Final = 1.0  # until everybody knows that an endpoint is gone
_PIECE: Final = 64 << 10


class Balancer:
    """Passes connections on; `async with` opens and closes it."""

    def __init__(self, port: int, *replicas: int) -> None:
        self.passed: Counter[int] = Counter()  # connections, by the port of the replica
        self._port = port
        self._replicas = [*replicas]
        self._next_index = 0
        self._streams: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        for stream in [*self._streams]:
            stream.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replica = self._next()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", replica)
        except OSError:
            asyncio.get_running_loop().call_later(_LAG_S, self._leave_out, replica)
            writer.transport.abort()
            return
        self.passed[replica] += 1
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))

    def _next(self) -> int:
        self._next_index += 1
        return self._replicas[self._next_index % len(self._replicas)]

    def _leave_out(self, replica: int) -> None:
        if replica in self._replicas and len(self._replicas) > 1:
            self._replicas.remove(replica)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.add(writer)
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                writer.write(piece)
                await writer.drain()
        self._streams.discard(writer)
        writer.close()
