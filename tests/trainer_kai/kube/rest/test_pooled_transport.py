"""What only the pool does: many requests at once, and connections through proxies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.support.certificates import server_tls
from tests.support.fakes.both_transports import DELETE, GET, LONG_S, access_to, connected
from tests.support.fakes.http_server import (
    RawHttpServer,
    ReceivedRequest,
    ServerConnection,
    always_answer,
    http_answer,
)
from trainer_kai.kube.auth.rest_config import RestConfig, ServerTrust
from trainer_kai.kube.rest.pooled_transport import PooledTransport
from trainer_kai.kube.rest.response import Unavailable


@asynccontextmanager
async def through(rest_config: RestConfig, proxy: RawHttpServer) -> AsyncIterator[PooledTransport]:
    transport = PooledTransport(replace(rest_config, proxy=f"http://u:p@127.0.0.1:{proxy.port}"))
    try:
        yield transport
    finally:
        await transport.close()


async def test_many_requests_at_once() -> None:
    """None waits for another one; afterwards their connections are used again."""
    all_in = asyncio.Event()

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await all_in.wait()
        await line.send(http_answer(200))

    async with connected(PooledTransport, answer) as the:
        sending = [asyncio.create_task(the.send()) for _ in range(20)]
        await the.server.until_requests(20)
        all_in.set()
        assert {answer.status for answer in await asyncio.gather(*sending)} == {200}
        await asyncio.gather(*(the.send() for _ in range(20)))

        assert len(the.server.connections) == 20


async def test_a_proxy_that_refuses() -> None:
    """Nothing has reached the API server, and the error names the proxy."""
    async with (
        RawHttpServer.open(always_answer(403)) as proxy,
        RawHttpServer.open(always_answer(200), server_tls()) as wire,
    ):
        rest_config = access_to(wire)
        async with through(rest_config, proxy) as transport:
            with pytest.raises(Unavailable) as raised:
                await transport.send(DELETE, LONG_S)

    assert not raised.value.was_sent
    message = (
        f"cannot connect to {rest_config.server} through its proxy, from the "
        "test: the proxy answers 403"
    )
    assert message in str(raised.value)
    assert proxy.requests[0].target == rest_config.server.removeprefix("https://")
    assert wire.requests == []


async def test_a_proxy_that_is_away() -> None:
    """As if the API server were."""
    async with RawHttpServer.open(always_answer(403)) as proxy:
        pass
    rest_config = RestConfig("https://h:1", access_to(proxy).credentials, origin="the test")
    async with through(rest_config, proxy) as transport:
        with pytest.raises(Unavailable, match="to https://h:1 through its proxy") as raised:
            await transport.send(DELETE, LONG_S)

    assert not raised.value.was_sent


async def test_a_proxy_that_leads_there() -> None:
    """The API server's certificate is still checked, under the name that was asked for."""
    async with RawHttpServer.open(always_answer(200), server_tls()) as wire:

        async def tunnel(asked: ReceivedRequest, line: ServerConnection) -> None:
            host, _, port = asked.target.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            await line.send(http_answer(200))
            await line.relay(reader, writer)

        async with (
            RawHttpServer.open(tunnel) as proxy,
            through(access_to(wire), proxy) as transport,
        ):
            assert (await transport.send(GET, LONG_S)).status == 200

    assert [(asked.method, asked.target) for asked in proxy.requests] == [
        ("CONNECT", f"127.0.0.1:{wire.port}")
    ]


async def test_a_certificate_for_another_name() -> None:
    """The name that the certificate is for can be given."""
    trusting = ServerTrust(
        access_to(RawHttpServer(always_answer(200))).trust.authority, server_name="localhost"
    )
    async with RawHttpServer.open(always_answer(200), server_tls(), host="127.0.0.2") as wire:
        rest_config = access_to(wire)
        elsewhere = rest_config.server.replace("127.0.0.1", "127.0.0.2")
        transport = PooledTransport(replace(rest_config, server=elsewhere, trust=trusting))
        assert (await transport.send(GET, LONG_S)).status == 200
        await transport.close()
