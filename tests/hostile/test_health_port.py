"""The port of probes and metrics, under clients that open connections and read without end."""

import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.support.clock import VirtualClock
from tests.support.closed_connection import is_closed
from trainer_kai.service import health as health_module
from trainer_kai.service.health import Health, HealthServer
from trainer_kai.service.metrics import Exposition, Metrics, MetricsText
from trainer_kai.service.settings import HealthSettings

_VICTIM: Final = "127.0.0.1"  # the kubelet
_ATTACKER: Final = "127.0.0.2"
_MOST: Final = health_module._LIMITS.connections
_PROBE: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def _serving() -> AsyncIterator[HealthServer]:
    settings = HealthSettings(address="127.0.0.1", port=0)
    async with HealthServer(Health(), Metrics(), VirtualClock(), settings) as server:
        yield server


async def _connected(server: HealthServer, peer: str, stack: AsyncExitStack) -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(peer, 0))
    stack.enter_context(closing(streams[1]))
    return streams


async def _write_for_ever(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(60):
        while True:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _probe(server: HealthServer) -> bytes:
    async with AsyncExitStack() as stack:
        reader, writer = await _connected(server, _VICTIM, stack)
        writer.write(_PROBE)
        return await reader.read()


async def test_a_kubelet_is_answered_beside_silent_connections() -> None:
    """Those above the limit are closed, the oldest first; they cost the process no descriptors."""
    async with _serving() as server, AsyncExitStack() as stack:
        before = _open_files()
        silent = [await _connected(server, _ATTACKER, stack) for _ in range(_MOST + 60)]
        closed = await asyncio.gather(*(is_closed(it[0]) for it in silent[:60]))

        assert (await _probe(server)).endswith(b"ok")
        assert all(closed)
        # both ends of each connection are in this process; one more was closed for the probe
        assert _open_files() - before <= len(silent) + _MOST


@pytest.mark.parametrize("text", [b"", b"GET /healthz HTT"], ids=["silent", "half a request"])
async def test_a_connection_without_a_request_ends(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also below the limit."""
    limits = health_module._LIMITS._replace(read_s=0.3, idle_s=0.3)
    monkeypatch.setattr(health_module, "_LIMITS", limits)
    async with _serving() as server, AsyncExitStack() as stack:
        reader, writer = await _connected(server, _ATTACKER, stack)
        writer.write(text)

        assert await is_closed(reader)


async def test_a_client_that_does_not_read_its_response_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The response is larger than what the kernel keeps for it."""
    monkeypatch.setattr(health_module, "_LIMITS", health_module._LIMITS._replace(idle_s=0.3))
    async with _serving() as server, AsyncExitStack() as stack:
        _, writer = await _connected(server, _ATTACKER, stack)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 2_000)

        with pytest.raises(ConnectionError):
            await _write_for_ever(writer)


async def test_many_readers_cost_one_encoding_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread that no plan waits for."""
    clock, encodings = VirtualClock(), 0
    exposition = Exposition(Metrics().registry, clock)
    encoded = exposition._encoded

    def counted(kind: str) -> MetricsText:
        nonlocal encodings
        encodings += 1
        return encoded(kind)

    monkeypatch.setattr(exposition, "_encoded", counted)
    try:
        for _ in range(3):
            await asyncio.gather(*(exposition.text("") for _ in range(70)))
            await clock.advance(0.5)
    finally:
        exposition.close()

    assert encodings == 2  # at 0 and at 1 s


def test_a_process_may_open_as_many_files_as_it_may_allow_itself() -> None:
    """Container runtimes often begin at 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource as r, sys; from trainer_kai.kube.process import context;"
        "context.main = lambda _: print(*r.getrlimit(r.RLIMIT_NOFILE)) or 0;"
        "from trainer_kai.service.settings import WebhookSettings;"
        "context.run_process('webhook', WebhookSettings, None, [])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, most)),
    )

    assert done.stdout.split() == [str(most), str(most)]
