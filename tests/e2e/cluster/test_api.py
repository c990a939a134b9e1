"""Requests to the API server, against a real HTTP server that answers as it is told."""

import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from e2e.cluster.api import Api, ApiError, _lines
from e2e.cluster.resources import PODS
from tests.support.case import Case, ids

Answer = tuple[int, Any]

WATCHED = b'{"type":"ADDED"}\n{"type":"MODIFIED"}\n{"type":"DELE'


class Pieces:
    """A response body that comes in the given pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield each piece as it came."""
        for piece in self._pieces:
            yield piece


async def lines_of(*pieces: bytes) -> list[bytes]:
    """Read the whole lines out of some pieces."""
    return [line async for line in _lines(cast("aiohttp.StreamReader", Pieces(*pieces)))]


@pytest.mark.parametrize("size", range(1, len(WATCHED) + 1))
async def test_a_line_is_whole_wherever_it_was_cut(size: int) -> None:
    """Pieces end anywhere; lines come out whole, and the beginning of one is no line."""
    pieces = [WATCHED[at : at + size] for at in range(0, len(WATCHED), size)]

    assert await lines_of(*pieces) == [b'{"type":"ADDED"}', b'{"type":"MODIFIED"}']


async def test_a_line_may_be_long() -> None:
    """A line of 3 MiB, twice what etcd takes for an object, comes out in one piece."""
    long, size = b"x" * (3 << 20), 64 << 10
    pieces = [long[at : at + size] for at in range(0, len(long), size)]

    assert await lines_of(*pieces, b"\nnext\n") == [long, b"next"]


REFUSALS = [
    Case(
        "a Status is told in its words",
        (409, '{"reason": "AlreadyExists", "message": "it is there"}'),
        ("POST /x: 409 AlreadyExists: it is there", "AlreadyExists"),
    ),
    Case(
        "a Status without a message is told whole",
        (500, '{"reason": "Odd"}'),
        ('POST /x: 500 Odd: {"reason": "Odd"}', "Odd"),
    ),
    Case("plain text is told as it is", (404, "no page"), ("POST /x: 404 : no page", "")),
]


@pytest.mark.parametrize("case", REFUSALS, ids=ids)
def test_a_refusal_tells_why(case: Case[tuple[int, str], tuple[str, str]]) -> None:
    """The error names the request, the status and the server's reason."""
    status, body = case.given

    error = ApiError("POST /x", status, body)

    assert (str(error), error.reason) == case.want
    assert error.status == status


class Server:
    """Gives one answer after the other and remembers what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self._answers = iter(answers)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        text = await request.text()
        self.requests.append((request.method, request.path_qs, text and await request.json()))
        status, body = next(self._answers)
        return web.json_response(body, status=status)


async def request(*answers: Answer, what: str, **arguments: Any) -> tuple[Server, Any]:
    """Call one method of `Api` on a server with some answers to give."""
    server = Server(*answers)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(application) as running:
        url = str(running.make_url("")).rstrip("/")
        async with Api(url, "token", ssl.create_default_context()) as api:
            return server, await getattr(api, what)(**arguments)


async def test_objects_of_a_list_say_what_they_are() -> None:
    """The API leaves kind and version out of the items of a list; here they carry both."""
    listed = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "one"}}]}

    _, found = await request((200, listed), what="list", resource=PODS)

    assert found == (
        [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}],
        "7",
    )


async def test_an_object_is_created_where_it_says() -> None:
    """Kind and namespace of an object give its path; what else is asked is in the query."""
    obj = {"kind": "Pod", "metadata": {"namespace": "ns", "name": "one"}}

    server, _ = await request((201, {}), what="create", obj=obj, dryRun="All")

    assert server.requests == [("POST", "/api/v1/namespaces/ns/pods?dryRun=All", obj)]


async def test_kinds_are_discovered_in_every_version() -> None:
    """A kind is a group and a plural; a version that has none yet is no obstacle."""
    versions = [{"version": "v1", "resources": [{"resource": "jobs"}]}, {"version": "v2"}]
    groups = {"items": [{"metadata": {"name": "batch"}, "versions": versions}]}

    _, found = await request((200, groups), what="discover")

    assert found == {("batch", "jobs")}


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_waiting_bears_with_not_yet(status: int) -> None:
    """Not there, busy and not served yet all mean: ask again."""
    server, _ = await request((status, {}), (200, {}), what="until_found", path="/x")

    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_waiting_ends_with_a_mistake(status: int) -> None:
    """What will not get better by waiting is raised."""
    with pytest.raises(ApiError, match=str(status)):
        await request((status, {}), what="until_found", path="/x")
