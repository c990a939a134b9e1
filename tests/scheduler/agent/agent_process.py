"""The agent as a process of its own: what it logs, and how it ends."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.scheduler.agent.pod_server import KEY, PodServer

_ROOT: Final = Path(__file__).parents[3]
_PATIENCE_S: Final = 60.0
_KEPT: Final = ("PATH", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH")


def environ_in_pod(server: PodServer, folder: Path, **more: str) -> dict[str, str]:
    """Return the variables of the container, with the server in place of the cluster."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    pod = {"POD_NAMESPACE": KEY[0], "POD_NAME": KEY[1]}
    return {**kept, **pod, "KUBECONFIG": str(server.kubeconfig(folder)), **more}


class AgentProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self.lines: list[dict[str, Any]] = []  # of its log, so far
        self._process = process

    @classmethod
    @asynccontextmanager
    async def start(cls, environ: Mapping[str, str]) -> AsyncIterator[Self]:
        """Start one, and end it with the context at the latest."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "scheduler.agent",
            cwd=_ROOT,
            env=environ,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield cls(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def until_logged(self, event: str) -> dict[str, Any]:
        while True:
            line = await self._next_line()
            assert line is not None, f"it ended without {event!r}: {self.lines}"
            if line["event"] == event:
                return line

    async def end(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        while await self._next_line():
            pass
        return await self._process.wait()

    async def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return await self.end()

    async def _next_line(self) -> dict[str, Any] | None:
        assert self._process.stderr is not None
        async with asyncio.timeout(_PATIENCE_S):
            text = await self._process.stderr.readline()
        if not text:
            return None
        assert text.startswith(b"{"), (text + await self._process.stderr.read()).decode()
        self.lines.append(json.loads(text))
        return self.lines[-1]
