"""The client of a process and that of a command; and what neither may load before its time."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.certificates import server_tls
from tests.support.clock import VirtualClock
from tests.support.fakes.both_transports import access_to
from tests.support.fakes.http_server import RawHttpServer, always_answer
from tests.support.repository import ROOT
from trainer_kai.errors import ConfigError
from trainer_kai.kube.client import RetryPolicy, command_client, process_client
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import Unavailable

SLOW: Final = {"aiohttp", "kubernetes", "pydantic", "structlog"}
GET: Final = Request("GET", "/version", repeatable=True)

ASKS: Final = """
import asyncio, sys
from trainer_kai.kube.client import command_client
from trainer_kai.kube.rest.request import Request

async def main():
    async with command_client(kubeconfig=sys.argv[1]) as client:
        print((await client.send(Request("GET", "/version"))).decode())

asyncio.run(main())
"""


@pytest.fixture
def environ() -> Iterator[None]:
    before = dict(os.environ)
    for name in before:
        if name.lower().endswith("_proxy") or name.startswith("KUBE"):
            del os.environ[name]
    yield
    os.environ.update(before)


def kubeconfig(file: Path, wire: RawHttpServer, **cluster: object) -> str:
    rest_config = access_to(wire)
    authority = file.with_name("ca.crt")
    authority.write_text(rest_config.trust.authority)
    fields = {"server": rest_config.server, "certificate-authority": "ca.crt", **cluster}
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": fields}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    file.write_text(json.dumps(content))
    return str(file)


def loaded(code: str, *arguments: str) -> tuple[str, list[str]]:
    """Run some lines in a process of their own: what they print, and what slow ones they load."""
    lines = f"{code}\nimport sys\nprint(*({SLOW!r} & sys.modules.keys()), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", lines, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip(), done.stderr.split()


def test_nothing_slow_is_loaded_beforehand() -> None:
    """A command that asks for one thing should not wait for what asks for thousands."""
    assert loaded("import trainer_kai.kube.client") == ("", [])


async def test_a_command_loads_nothing_slow(tmp_path: Path) -> None:
    """Not even while it asks."""
    async with RawHttpServer.open(always_answer(200, b"v1"), server_tls()) as wire:
        file = kubeconfig(tmp_path / "config", wire)
        assert await asyncio.to_thread(loaded, ASKS, file) == ("v1", [])


async def test_a_process_asks() -> None:
    """Its connections are closed behind it."""
    async with RawHttpServer.open(always_answer(200, b"v1"), server_tls()) as wire:
        async with process_client(access_to(wire), VirtualClock()) as client:
            assert await client.send(GET) == b"v1"
        await wire.connections[0].until_closed()


@pytest.mark.usefixtures("environ")
@pytest.mark.parametrize("cluster", [{}, {"tls-server-name": "localhost"}], ids=["plain", "named"])
async def test_a_command_asks(tmp_path: Path, cluster: dict[str, object]) -> None:
    """Over one connection, or over the pool where there is a proxy or another server name."""
    async with RawHttpServer.open(always_answer(200, b"v1"), server_tls()) as wire:
        file = kubeconfig(tmp_path / "config", wire, **cluster)
        async with command_client(kubeconfig=file) as client:
            assert await client.send(GET) == b"v1"
        await wire.connections[0].until_closed()


@pytest.mark.usefixtures("environ")
async def test_a_command_through_a_proxy(tmp_path: Path) -> None:
    """The single connection knows no proxy, so the pool is taken."""
    async with (
        RawHttpServer.open(always_answer(200), server_tls()) as wire,
        RawHttpServer.open(always_answer(407)) as proxy,
    ):
        address = f"http://127.0.0.1:{proxy.port}"
        file = kubeconfig(tmp_path / "config", wire, **{"proxy-url": address})
        async with command_client(kubeconfig=file) as client:
            with pytest.raises(Unavailable, match="the proxy answers 407"):
                await client.send(GET, retry_policy=RetryPolicy(total_s=0))

    assert [asked.method for asked in proxy.requests] == ["CONNECT"]
    assert wire.requests == []


async def test_a_context_can_be_named(tmp_path: Path) -> None:
    async with RawHttpServer.open(always_answer(200), server_tls()) as wire:
        file = kubeconfig(tmp_path / "config", wire)
    with pytest.raises(ConfigError, match="context 'x' does not exist; valid names are: c"):
        async with command_client(kubeconfig=file, context="x"):
            pass
