"""Both ways to the API server do the same, over real connections: `transport` says what."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.support.certificates import server_tls
from tests.support.fakes.both_transports import (
    BOTH_TRANSPORTS,
    DELETE,
    GET,
    LONG_S,
    POST,
    TransportFactory,
    access_to,
    close_connection,
    connected,
    half_answer,
    never_answer,
    reset_connection,
)
from tests.support.fakes.http_server import (
    Answerer,
    RawHttpServer,
    ReceivedRequest,
    ServerConnection,
    always_answer,
    http_answer,
)
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import RestConfig, ServerTrust, StaticToken
from trainer_kai.kube.rest.pooled_transport import PooledTransport
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse, Unavailable
from trainer_kai.kube.rest.transport import untrusted_server

# Answers

ANSWERS: list[Case[bytes, ApiResponse]] = [
    Case("a body is read whole", http_answer(200, b'{"a":1}'), ApiResponse(200, b'{"a":1}')),
    Case("an answer may have no body", http_answer(204), ApiResponse(204, b"")),
    Case("a refusal is an answer", http_answer(404, b"no"), ApiResponse(404, b"no")),
    Case(
        "a Retry-After is passed on",
        http_answer(429, b"x", "retry-after: 7"),
        ApiResponse(429, b"x", "7"),
    ),
    Case("a failure is an answer", http_answer(503, b""), ApiResponse(503, b"")),
    Case(
        "a redirect is followed by nobody",
        http_answer(307, b"", "Location: /elsewhere"),
        ApiResponse(307, b""),
    ),
    Case(
        "an answer may be large",
        http_answer(200, b"x" * (3 << 20)),
        ApiResponse(200, b"x" * (3 << 20)),
    ),
    Case(
        "an answer may come in chunks",
        http_answer(200, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        ApiResponse(200, b"abcde"),
    ),
]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("case", ANSWERS, ids=ids)
async def test_an_answer(kind: TransportFactory, case: Case[bytes, ApiResponse]) -> None:
    """Every status is returned, whole, and twice over one connection."""

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(case.given)

    async with connected(kind, answer) as the:
        assert [await the.send(), await the.send()] == [case.want] * 2
        assert [asked.connection for asked in the.server.requests] == [1, 1]


@BOTH_TRANSPORTS
async def test_what_is_said(kind: TransportFactory) -> None:
    """Host, path and headers; without a body, nothing about one."""
    async with connected(kind, always_answer(200)) as the:
        await the.send(GET)
        await the.send(msgspec.structs.replace(POST, content_type="application/merge-patch+json"))

    get, post = the.server.requests
    common = {
        "host": f"127.0.0.1:{the.server.port}",
        "accept": "application/json",
        "accept-encoding": "identity",
        "authorization": "Bearer t",
        "user-agent": "trainer-kai",
    }
    content = {"content-type": "application/merge-patch+json", "content-length": "2"}
    assert get[:4] == ("GET", "/api/v1/pods?limit=5", common, b"")
    assert post[:4] == ("POST", "/api/v1/pods", {**common, **content}, b"{}")


@BOTH_TRANSPORTS
async def test_without_a_token_none_is_shown(kind: TransportFactory) -> None:
    """A certificate may say it all; the path of the server stands before that of the request."""

    def change(rest_config: RestConfig) -> RestConfig:
        return replace(rest_config, server=f"{rest_config.server}/c/1", credentials=StaticToken(""))

    async with connected(kind, always_answer(200), change) as the:
        await the.send()

    assert "authorization" not in the.server.requests[0].headers
    assert the.server.requests[0].target == "/c/1/api/v1/pods?limit=5"


@BOTH_TRANSPORTS
@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: b", "a\0", "ü"])
async def test_a_token_that_cannot_be_sent(kind: TransportFactory, token: str) -> None:
    """It is a fault of the kubeconfig, and is not shown."""
    async with connected(
        kind, always_answer(200), lambda it: replace(it, credentials=StaticToken(token))
    ) as the:
        with pytest.raises(
            ConfigError, match=r"^the test: the token or password contains"
        ) as raised:
            await the.send()

    assert token not in str(raised.value)
    assert the.server.requests == []


# No answer


async def garbage(_asked: ReceivedRequest, line: ServerConnection) -> None:
    await line.send(b"SSH-2.0-OpenSSH_9\r\n\r\n")
    await line.close()


BROKEN: list[Case[Answerer, str]] = [
    Case(
        "reset before the answer",
        reset_connection,
        "the connection to https://127.0.0.1:{port} broke",
    ),
    Case(
        "closed before the answer",
        close_connection,
        "the connection to https://127.0.0.1:{port} broke",
    ),
    Case(
        "reset within the answer", half_answer, "the connection to https://127.0.0.1:{port} broke"
    ),
    Case(
        "an answer that is no HTTP breaks the connection",
        garbage,
        "the connection to https://127.0.0.1:{port} broke",
    ),
]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("request_", [GET, POST, DELETE], ids=str)
@pytest.mark.parametrize("case", BROKEN, ids=ids)
async def test_a_connection_breaks(
    kind: TransportFactory, request_: Request, case: Case[Answerer, str]
) -> None:
    """What has been done is unknown, so nothing is sent again, whatever it is."""
    async with connected(kind, case.given) as the:
        error = await the.send_unanswered(request_)

        assert error.was_sent
        assert case.want.format(port=the.server.port) in str(error)
        assert len(the.server.requests) == 1


@BOTH_TRANSPORTS
@pytest.mark.parametrize("request_", [GET, POST, DELETE], ids=str)
@pytest.mark.parametrize("broken", [reset_connection, close_connection])
async def test_a_kept_connection_breaks(
    kind: TransportFactory, request_: Request, broken: Answerer
) -> None:
    """It is no other matter: a deletion that came twice could hit a successor."""
    async with connected(kind, always_answer(200)) as the:
        await the.send()
        the.server.answer = broken
        error = await the.send_unanswered(request_)

        assert error.was_sent
        assert [asked.connection for asked in the.server.requests] == [1, 1]
        the.server.answer = always_answer(200, b"again")
        assert (await the.send()).body == b"again"


@BOTH_TRANSPORTS
@pytest.mark.parametrize("request_", [GET, POST, DELETE], ids=str)
async def test_a_connection_that_was_closed_while_idle(
    kind: TransportFactory, request_: Request
) -> None:
    """It is noticed before anything is sent."""
    async with connected(kind, always_answer(200)) as the:
        await the.send()
        await the.server.connections[0].close()
        if kind is PooledTransport:  # the other one does not look before it needs it
            await the.server.connections[0].until_closed()
        await asyncio.sleep(0.02)  # until that is known at the other end

        assert (await the.send(request_)).status == 200
        assert [asked.connection for asked in the.server.requests] == [1, 2]


@BOTH_TRANSPORTS
async def test_a_server_that_keeps_no_connection(kind: TransportFactory) -> None:
    """It says so, and the next request takes another one."""

    async def answer(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(http_answer(200, b"", "Connection: close"))
        await line.close()

    async with connected(kind, answer) as the:
        assert [(await the.send()).status for _ in range(2)] == [200, 200]
        assert [asked.connection for asked in the.server.requests] == [1, 2]


@BOTH_TRANSPORTS
async def test_no_server_listens(kind: TransportFactory) -> None:
    """Nothing was sent: where to, and where that was read."""
    async with RawHttpServer.open(always_answer(200)) as wire:
        rest_config = access_to(wire)
    transport = kind(rest_config)
    try:
        with pytest.raises(Unavailable) as raised:
            await transport.send(DELETE, LONG_S)
    finally:
        await transport.close()

    assert not raised.value.was_sent
    assert f"no response: cannot connect to {rest_config.server}, from the test: " in str(
        raised.value
    )


@BOTH_TRANSPORTS
async def test_no_answer_in_time(kind: TransportFactory) -> None:
    """The connection is closed, and the next request takes another one."""
    async with connected(kind, always_answer(200)) as the:
        await the.send()
        the.server.answer = never_answer
        error = await the.send_unanswered(GET, 0.05)
        await the.server.connections[0].until_closed()

        assert error.was_sent
        assert str(error).endswith(f"https://127.0.0.1:{the.server.port} did not respond in time")
        the.server.answer = always_answer(200)
        assert (await the.send()).status == 200


@BOTH_TRANSPORTS
async def test_an_answer_that_drips(kind: TransportFactory) -> None:
    """The time is for the whole answer, not for each piece of it."""

    async def drip(_asked: ReceivedRequest, line: ServerConnection) -> None:
        await line.send(http_answer(200, b"", "Content-Length: 1000"))
        while not line.is_closed.is_set():
            await line.send(b"x")
            await asyncio.sleep(0.01)

    async with connected(kind, drip) as the:
        assert "did not respond in time" in str(await the.send_unanswered(GET, 0.08))


@BOTH_TRANSPORTS
async def test_a_request_is_cancelled(kind: TransportFactory) -> None:
    """Its connection is closed at once; the next request has one of its own."""
    async with connected(kind, always_answer(200)) as the:
        await the.send()
        the.server.answer = never_answer
        sending = asyncio.create_task(the.send(POST))
        await the.server.until_requests(2)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

        the.server.answer = always_answer(200, b"mine")
        assert [(await the.send()).body for _ in range(2)] == [b"mine", b"mine"]
        await the.server.connections[0].until_closed()
        assert [asked.connection for asked in the.server.requests] == [1, 1, 2, 2]


# TLS

ELSEWHERE = "127.0.0.2"  # on loopback as well, but not in the certificate


def elsewhere(rest_config: RestConfig) -> RestConfig:
    """Name the same server by an address that its certificate is not for."""
    return replace(rest_config, server=rest_config.server.replace("127.0.0.1", ELSEWHERE))


def untrusting(rest_config: RestConfig) -> RestConfig:
    """Trust what the machine trusts."""
    return replace(elsewhere(rest_config), trust=ServerTrust())


TLS: list[Case[Callable[[RestConfig], RestConfig], str]] = [
    Case(
        "an authority we do not know",
        untrusting,
        "certificate-authority: the certificate of {} is not trusted .*: set it to the current CA",
    ),
    Case(
        "a certificate for another address is refused",
        elsewhere,
        "tls-server-name: the certificate of {} is not trusted .*: set it to a name",
    ),
]


@BOTH_TRANSPORTS
@pytest.mark.parametrize("case", TLS, ids=ids)
async def test_a_server_that_is_not_trusted(
    kind: TransportFactory, case: Case[Callable[[RestConfig], RestConfig], str]
) -> None:
    """Which field to change; nothing is sent to such a server."""
    async with RawHttpServer.open(always_answer(200), server_tls(), host=ELSEWHERE) as wire:
        rest_config = case.given(access_to(wire))
        transport = kind(rest_config)
        with pytest.raises(ConfigError, match=f"^the test: {case.want.format(rest_config.server)}"):
            await transport.send(GET, LONG_S)
        with pytest.raises(ConfigError, match=f"^the test: {case.want.format(rest_config.server)}"):
            async with transport.stream(GET, LONG_S):
                pass
        await transport.close()

        assert wire.requests == []


@pytest.mark.parametrize("code", [9, 10], ids=["not yet valid", "expired"])
def test_a_certificate_of_another_time_is_reported_as_that(code: int) -> None:
    """Another authority would not help against a wrong date."""
    error = untrusted_server(
        RestConfig("https://here", StaticToken(""), origin="the test"), "bad date", code
    )

    assert "check the date of both machines" in str(error)


@BOTH_TRANSPORTS
async def test_a_server_that_is_not_checked(kind: TransportFactory) -> None:
    """Where the settings ask for it."""

    def change(rest_config: RestConfig) -> RestConfig:
        return replace(elsewhere(rest_config), trust=ServerTrust(insecure=True))

    async with RawHttpServer.open(always_answer(200), server_tls(), host=ELSEWHERE) as wire:
        transport = kind(change(access_to(wire)))
        assert (await transport.send(GET, LONG_S)).status == 200
        await transport.close()
