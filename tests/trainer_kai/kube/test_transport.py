"""Both ways to the API server do the same, over real connections: `transport` says what."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.support.authority import server_tls
from tests.support.case import Case, ids
from tests.support.ways import (
    BOTH,
    DELETE,
    GET,
    LONG_S,
    POST,
    Kind,
    access_to,
    close,
    half,
    never,
    reset,
    way,
)
from tests.support.wire import Asked, Line, Reply, Wire, answering, reply
from trainer_kai.errors import ConfigError
from trainer_kai.kube.access import Access, Token, Trust
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.errors import Unavailable
from trainer_kai.kube.pooled import PooledTransport
from trainer_kai.kube.request import Request
from trainer_kai.kube.transport import untrusted

# Answers

ANSWERS: list[Case[bytes, Answer]] = [
    Case("a body", reply(200, b'{"a":1}'), Answer(200, b'{"a":1}')),
    Case("no body", reply(204), Answer(204, b"")),
    Case("a refusal is an answer", reply(404, b"no"), Answer(404, b"no")),
    Case("later", reply(429, b"x", "retry-after: 7"), Answer(429, b"x", "7")),
    Case("broken", reply(503, b""), Answer(503, b"")),
    Case(
        "a redirect is followed by nobody",
        reply(307, b"", "Location: /elsewhere"),
        Answer(307, b""),
    ),
    Case("large", reply(200, b"x" * (3 << 20)), Answer(200, b"x" * (3 << 20))),
    Case(
        "in chunks",
        reply(200, b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        Answer(200, b"abcde"),
    ),
]


@BOTH
@pytest.mark.parametrize("case", ANSWERS, ids=ids)
async def test_an_answer(kind: Kind, case: Case[bytes, Answer]) -> None:
    """Every status is returned, whole, and twice over one connection."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.send(case.given)

    async with way(kind, answer) as the:
        assert [await the.send(), await the.send()] == [case.want] * 2
        assert [asked.connection for asked in the.wire.asked] == [1, 1]


@BOTH
async def test_what_is_said(kind: Kind) -> None:
    """Who asks for what; without a body, nothing about one."""
    async with way(kind, answering(200)) as the:
        await the.send(GET)
        await the.send(msgspec.structs.replace(POST, content_type="application/merge-patch+json"))

    get, post = the.wire.asked
    common = {
        "host": f"127.0.0.1:{the.wire.port}",
        "accept": "application/json",
        "accept-encoding": "identity",
        "authorization": "Bearer t",
        "user-agent": "trainer-kai",
    }
    content = {"content-type": "application/merge-patch+json", "content-length": "2"}
    assert get[:4] == ("GET", "/api/v1/pods?limit=5", common, b"")
    assert post[:4] == ("POST", "/api/v1/pods", {**common, **content}, b"{}")


@BOTH
async def test_who_has_no_token_shows_none(kind: Kind) -> None:
    """A certificate may say it all; the path of the server stands before that of the request."""

    def change(access: Access) -> Access:
        return replace(access, server=f"{access.server}/c/1", credentials=Token(""))

    async with way(kind, answering(200), change) as the:
        await the.send()

    assert "authorization" not in the.wire.asked[0].headers
    assert the.wire.asked[0].target == "/c/1/api/v1/pods?limit=5"


@BOTH
@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: b", "a\0", "ü"])
async def test_a_token_that_cannot_be_sent(kind: Kind, token: str) -> None:
    """It is the fault of whoever gave it, and is not shown."""
    async with way(kind, answering(200), lambda it: replace(it, credentials=Token(token))) as the:
        with pytest.raises(ConfigError, match=r"^the test: the token or password holds") as raised:
            await the.send()

    assert token not in str(raised.value)
    assert the.wire.asked == []


# No answer


async def garbage(_asked: Asked, line: Line) -> None:
    """Speak something else."""
    await line.send(b"SSH-2.0-OpenSSH_9\r\n\r\n")
    await line.close()


BROKEN: list[Case[Reply, str]] = [
    Case("reset before the answer", reset, "the connection to https://127.0.0.1:{port} broke"),
    Case("closed before the answer", close, "the connection to https://127.0.0.1:{port} broke"),
    Case("reset within the answer", half, "the connection to https://127.0.0.1:{port} broke"),
    Case("no HTTP", garbage, "the connection to https://127.0.0.1:{port} broke"),
]


@BOTH
@pytest.mark.parametrize("request_", [GET, POST, DELETE], ids=str)
@pytest.mark.parametrize("case", BROKEN, ids=ids)
async def test_a_connection_breaks(kind: Kind, request_: Request, case: Case[Reply, str]) -> None:
    """Nobody knows what has been done, so nothing is sent again, whatever it is."""
    async with way(kind, case.given) as the:
        error = await the.fails(request_)

        assert error.was_sent
        assert case.want.format(port=the.wire.port) in str(error)
        assert len(the.wire.asked) == 1


@BOTH
@pytest.mark.parametrize("request_", [GET, POST, DELETE], ids=str)
@pytest.mark.parametrize("broken", [reset, close])
async def test_a_kept_connection_breaks(kind: Kind, request_: Request, broken: Reply) -> None:
    """It is no other matter: a deletion that came twice could hit a successor."""
    async with way(kind, answering(200)) as the:
        await the.send()
        the.wire.answer = broken
        error = await the.fails(request_)

        assert error.was_sent
        assert [asked.connection for asked in the.wire.asked] == [1, 1]
        the.wire.answer = answering(200, b"again")
        assert (await the.send()).body == b"again"


@BOTH
@pytest.mark.parametrize("request_", [GET, POST, DELETE], ids=str)
async def test_a_connection_that_was_closed_while_idle(kind: Kind, request_: Request) -> None:
    """It is noticed before anything is sent."""
    async with way(kind, answering(200)) as the:
        await the.send()
        await the.wire.lines[0].close()
        if kind is PooledTransport:  # the other one does not look before it needs it
            await the.wire.lines[0].until_over()
        await asyncio.sleep(0.02)  # until that is known at the other end

        assert (await the.send(request_)).status == 200
        assert [asked.connection for asked in the.wire.asked] == [1, 2]


@BOTH
async def test_a_server_that_keeps_no_connection(kind: Kind) -> None:
    """It says so, and the next request takes another one."""

    async def answer(_asked: Asked, line: Line) -> None:
        await line.send(reply(200, b"", "Connection: close"))
        await line.close()

    async with way(kind, answer) as the:
        assert [(await the.send()).status for _ in range(2)] == [200, 200]
        assert [asked.connection for asked in the.wire.asked] == [1, 2]


@BOTH
async def test_nobody_listens(kind: Kind) -> None:
    """Nothing was sent: where to, and where that was read."""
    async with Wire.open(answering(200)) as wire:
        access = access_to(wire)
    transport = kind(access)
    try:
        with pytest.raises(Unavailable) as raised:
            await transport.send(DELETE, LONG_S)
    finally:
        await transport.close()

    assert not raised.value.was_sent
    assert f"no answer: cannot connect to {access.server}, from the test: " in str(raised.value)


@BOTH
async def test_no_answer_in_time(kind: Kind) -> None:
    """The connection is closed, and the next request takes another one."""
    async with way(kind, answering(200)) as the:
        await the.send()
        the.wire.answer = never
        error = await the.fails(GET, 0.05)
        await the.wire.lines[0].until_over()

        assert error.was_sent
        assert str(error).endswith(f"https://127.0.0.1:{the.wire.port} did not answer in time")
        the.wire.answer = answering(200)
        assert (await the.send()).status == 200


@BOTH
async def test_an_answer_that_drips(kind: Kind) -> None:
    """The time is for the whole answer, not for each piece of it."""

    async def drip(_asked: Asked, line: Line) -> None:
        await line.send(reply(200, b"", "Content-Length: 1000"))
        while not line.is_over.is_set():
            await line.send(b"x")
            await asyncio.sleep(0.01)

    async with way(kind, drip) as the:
        assert "did not answer in time" in str(await the.fails(GET, 0.08))


@BOTH
async def test_a_request_is_cancelled(kind: Kind) -> None:
    """Its connection is closed at once; the next request has one of its own."""
    async with way(kind, answering(200)) as the:
        await the.send()
        the.wire.answer = never
        sending = asyncio.create_task(the.send(POST))
        await the.wire.until_asked(2)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

        the.wire.answer = answering(200, b"mine")
        assert [(await the.send()).body for _ in range(2)] == [b"mine", b"mine"]
        await the.wire.lines[0].until_over()
        assert [asked.connection for asked in the.wire.asked] == [1, 1, 2, 2]


# TLS

ELSEWHERE = "127.0.0.2"  # on loopback as well, but not in the certificate


def elsewhere(access: Access) -> Access:
    """Name the same server by an address that its certificate is not for."""
    return replace(access, server=access.server.replace("127.0.0.1", ELSEWHERE))


def untrusting(access: Access) -> Access:
    """Trust what the machine trusts."""
    return replace(elsewhere(access), trust=Trust())


TLS: list[Case[Callable[[Access], Access], str]] = [
    Case("an authority we do not know", untrusting, "certificate-authority: {} shows a cert.*give"),
    Case("another address", elsewhere, "tls-server-name: {} shows a cert.*set it to a name"),
]


@BOTH
@pytest.mark.parametrize("case", TLS, ids=ids)
async def test_a_server_that_is_not_trusted(
    kind: Kind, case: Case[Callable[[Access], Access], str]
) -> None:
    """Which field to change; nothing is said to such a server."""
    async with Wire.open(answering(200), server_tls(), host=ELSEWHERE) as wire:
        access = case.given(access_to(wire))
        transport = kind(access)
        with pytest.raises(ConfigError, match=f"^the test: {case.want.format(access.server)}"):
            await transport.send(GET, LONG_S)
        with pytest.raises(ConfigError, match=f"^the test: {case.want.format(access.server)}"):
            async with transport.stream(GET, LONG_S):
                pass
        await transport.close()

        assert wire.asked == []


@pytest.mark.parametrize("code", [9, 10], ids=["not yet valid", "expired"])
def test_a_certificate_of_another_time_is_told_as_that(code: int) -> None:
    """Another authority would not help whose date is wrong."""
    error = untrusted(Access("https://here", Token(""), origin="the test"), "bad date", code)

    assert "look at the date of both machines" in str(error)


@BOTH
async def test_a_server_that_is_not_checked(kind: Kind) -> None:
    """Who asks for it gets it."""

    def change(access: Access) -> Access:
        return replace(elsewhere(access), trust=Trust(insecure=True))

    async with Wire.open(answering(200), server_tls(), host=ELSEWHERE) as wire:
        transport = kind(change(access_to(wire)))
        assert (await transport.send(GET, LONG_S)).status == 200
        await transport.close()
