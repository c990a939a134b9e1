"""What the client sends, and how often: the rules of its docstring, one by one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import pytest

from tests.support.apiserver import Run, Told, told
from tests.support.case import Case, ids
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resource import Resource
from trainer_kai.errors import ConfigError
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.client import Client, Patience
from trainer_kai.kube.errors import (
    Conflict,
    Forbidden,
    Garbled,
    Refusal,
    Throttled,
    Unauthorized,
    Unavailable,
    WatchExpired,
)
from trainer_kai.kube.request import Deletion, Request, Target, Write

PODS: Final = Resource("", "v1", "pods", "Pod", True, PartialObject)
GROUPS: Final = Resource("scheduling.run.ai", "v2", "podgroups", "PodGroup", True, PartialObject)
POD: Final = Key("a", "b")
SAFE: Final = Request("GET", "/x", repeatable=True)
UNSAFE: Final = Request("POST", "/x", body=b"{}")

OK: Final = Answer(200, b"ok")
BUSY: Final = Answer(429, b"busy")
LATER: Final = Answer(429, b"busy", "7")
DOWN: Final = Answer(503, b"down")
BACK: Final = Answer(503, b"down", "9")
UNKNOWN: Final = Answer(401, b"who?")
LOST: Final = Unavailable(Refusal("GET /x", 0, "", "lost"), was_sent=True)
NOT_SENT: Final = Unavailable(Refusal("GET /x", 0, "", "nobody"), was_sent=False)


class Ended(NamedTuple):
    """How a request ended, how often it was sent, and how long that took: least and most."""

    outcome: object
    sends: int
    waited_s: tuple[float, float] = (0.0, 0.0)


class Given(NamedTuple):
    """A request, the answers it gets, and how many new tokens there are."""

    request: Request
    answers: tuple[Told, ...]
    renewals: int = 0


ONE: Final = (0.05, 0.1)  # what is waited once: half of a step, or up to the whole of it
TWO: Final = (0.15, 0.3)
RULES: list[Case[Given, Ended]] = [
    Case("an answer is an answer", Given(UNSAFE, (OK,)), Ended(b"ok", 1)),
    Case("1: busy is waited for", Given(SAFE, (BUSY, BUSY, OK)), Ended(b"ok", 3, TWO)),
    Case("1: by all, for nothing was done", Given(UNSAFE, (BUSY, OK)), Ended(b"ok", 2, ONE)),
    Case("1: for as long as it says", Given(UNSAFE, (LATER, OK)), Ended(b"ok", 2, (7, 7.1))),
    Case("2: what was not sent is sent", Given(UNSAFE, (NOT_SENT, OK)), Ended(b"ok", 2, ONE)),
    Case("3: a safe one is repeated", Given(SAFE, (DOWN, OK)), Ended(b"ok", 2, ONE)),
    Case("3: also without an answer", Given(SAFE, (LOST, OK)), Ended(b"ok", 2, ONE)),
    Case("3: after as long as it says", Given(SAFE, (BACK, OK)), Ended(b"ok", 2, (9, 9.1))),
    Case("3: an unsafe one is not", Given(UNSAFE, (DOWN, OK)), Ended(Unavailable, 1)),
    Case("3: nor without an answer", Given(UNSAFE, (LOST, OK)), Ended(Unavailable, 1)),
    Case("3: a conflict stays one", Given(SAFE, (Answer(409, b""), OK)), Ended(Conflict, 1)),
    Case("3: so do missing rights", Given(SAFE, (Answer(403, b""), OK)), Ended(Forbidden, 1)),
    Case("3: and a lost version", Given(SAFE, (Answer(410, b""), OK)), Ended(WatchExpired, 1)),
    Case("4: a new token is tried", Given(UNSAFE, (UNKNOWN, OK), 1), Ended(b"ok", 2)),
    Case("4: once", Given(SAFE, (UNKNOWN,), 9), Ended(Unauthorized, 2)),
    Case("4: only if it is new", Given(SAFE, (UNKNOWN, OK), 0), Ended(Unauthorized, 1)),
    Case(
        "4: once, whatever comes between",
        Given(SAFE, (UNKNOWN, DOWN, UNKNOWN, OK), 9),
        Ended(Unauthorized, 3, ONE),
    ),
    Case(
        "5: what would take longer is not waited for",
        Given(SAFE, (Answer(429, b"", "31"), OK)),
        Ended(Throttled, 1),
    ),
    Case(
        "5: all waits together are within it, and the last error is told",
        Given(SAFE, (BUSY, Answer(503, b"", "29"), Answer(503, b"", "2"), OK)),
        Ended(Unavailable, 3, (29.05, 29.3)),
    ),
    Case("our own fault is told", Given(SAFE, (ConfigError([]), OK)), Ended(ConfigError, 1)),
]


@pytest.mark.parametrize("case", RULES, ids=ids)
async def test_how_often_a_request_is_sent(case: Case[Given, Ended]) -> None:
    """By the rules in the client's docstring, which have these numbers."""
    given, want = case.given, case.want
    run = Run(*given.answers, renewals=given.renewals)

    outcome = await run.to_its_end(run.client.send(given.request))

    assert (outcome if isinstance(outcome, bytes) else type(outcome)) == want.outcome
    assert run.transport.asked == [given.request] * want.sends
    least_s, most_s = want.waited_s
    assert least_s <= run.clock.monotonic_s() <= most_s


async def test_patience_ends() -> None:
    """An API server that stays away is asked for as long as the patience lasts, ever less often."""
    run = Run(DOWN)

    outcome = await run.to_its_end(run.client.send(SAFE, patience=Patience(total_s=100)))

    assert isinstance(outcome, Unavailable)
    assert 94 <= run.clock.monotonic_s() <= 100
    assert 24 <= len(run.transport.asked) <= 50


async def test_answers_are_observed() -> None:
    """Each of them with its status and its time, failures included; and each repeat."""
    run = Run(DOWN, UNKNOWN, NOT_SENT, OK, renewals=1)

    await run.to_its_end(run.client.send(SAFE))

    assert [status for status, _ in run.counted.answers] == [503, 401, 0, 200]
    assert run.counted.repeats == 2


async def test_a_cancelled_request_is_observed() -> None:
    """Nobody knows what came of it: it had no answer."""
    run = Run(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await run.client.send(SAFE)

    assert run.counted.answers == [(0, 0.0)]


async def test_who_is_not_known_is_told_who_that_is() -> None:
    """The token has an origin, and that is where to look."""
    run = Run(told({"message": "no"}, 401))
    with pytest.raises(Unauthorized, match=r"GET /x: 401: no to the test: the token or cert.*"):
        await run.client.send(SAFE)


async def test_each_request_has_its_time() -> None:
    """The caller may give it less than usual."""
    run = Run(OK)
    await run.client.send(SAFE)
    await run.client.with_patience(Patience(timeout_s=2.5)).send(SAFE)

    assert run.transport.timeouts_s == [30.0, 2.5]


async def test_who_sends_may_want_to_know_of_a_429() -> None:
    """Whoever adapts how much he sends at once is told at once."""
    run = Run(told({}, 429))
    with pytest.raises(Throttled):
        await run.client.with_patience(Patience(waits_when_throttled=False)).send(SAFE)

    assert len(run.transport.asked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": {"name": 7}, "items": 7}'])
async def test_an_answer_that_cannot_be_read_is_an_error_of_ours(body: bytes) -> None:
    """It is told with the request, and not asked for again: what was to be done is done."""
    run = Run(Answer(200, body))
    with pytest.raises(Garbled, match=r"^PATCH .*/pods/p: 200: the answer makes no sense"):
        await run.client.merge(PODS, Key("a", "p"), {})
    with pytest.raises(Garbled):
        await run.client.list(Target(PODS))

    assert len(run.transport.asked) == 2


# Streams


async def read(client: Client) -> bytes:
    """Read a stream to its end."""
    async with client.stream(SAFE, 60) as pieces:
        return b"".join([piece async for piece in pieces])


STREAMS: list[Case[Given, Ended]] = [
    Case("it is read", Given(SAFE, (OK,)), Ended(b"ok", 1)),
    Case("a failure is the caller's to repeat", Given(SAFE, (DOWN, OK)), Ended(Unavailable, 1)),
    Case("so is being busy", Given(SAFE, (LATER, OK)), Ended(Throttled, 1)),
    Case("a new token is tried", Given(SAFE, (UNKNOWN, OK), 1), Ended(b"ok", 2)),
    Case("once", Given(SAFE, (UNKNOWN,), 9), Ended(Unauthorized, 2)),
    Case("only if it is new", Given(SAFE, (UNKNOWN, OK), 0), Ended(Unauthorized, 1)),
]


@pytest.mark.parametrize("case", STREAMS, ids=ids)
async def test_how_often_a_stream_is_opened(case: Case[Given, Ended]) -> None:
    """Its reader knows where to go on, and when."""
    run = Run(*case.given.answers, renewals=case.given.renewals)

    outcome = await run.to_its_end(read(run.client))

    assert (outcome if isinstance(outcome, bytes) else type(outcome)) == case.want.outcome
    assert len(run.transport.asked) == case.want.sends
    assert run.clock.monotonic_s() == 0
    if isinstance(outcome, Unauthorized):
        assert "to the test" in str(outcome)


async def test_errors_of_the_reader_are_its_own() -> None:
    """Also one that looks like an answer to us."""
    run = Run(OK, renewals=1)
    mine = Unauthorized(Refusal("GET /y", 401, "", "mine"))

    async def fail() -> None:
        async with run.client.stream(SAFE, 60):
            raise mine

    assert await run.to_its_end(fail()) is mine
    assert (len(run.transport.asked), run.credentials.asked) == (1, 0)


# Calls


OBJECT: Final[dict[str, Any]] = {"metadata": {"name": "b", "namespace": "a"}, "spec": {}}
MINE: Final = Write(field_manager="me")


class Called(NamedTuple):
    """A request as a call makes it."""

    line: str
    body: Any = None


CALLS: list[Case[Callable[[Client], Coroutine[Any, Any, object]], Called]] = [
    Case("get", lambda it: it.get(PODS, POD), Called("GET /api/v1/namespaces/a/pods/b")),
    Case(
        "create",
        lambda it: it.create(PODS, "a", OBJECT, MINE),
        Called("POST /api/v1/namespaces/a/pods?fieldManager=me", OBJECT),
    ),
    Case(
        "replace",
        lambda it: it.replace(PODS, POD, OBJECT, Write(subresource="status")),
        Called("PUT /api/v1/namespaces/a/pods/b/status", OBJECT),
    ),
    Case(
        "merge",
        lambda it: it.merge(PODS, POD, {"a": None}),
        Called("PATCH /api/v1/namespaces/a/pods/b", {"a": None}),
    ),
    Case(
        "operations",
        lambda it: it.run_operations(PODS, POD, [{"op": "test"}], Write(dry_run=True)),
        Called("PATCH /api/v1/namespaces/a/pods/b?dryRun=All", [{"op": "test"}]),
    ),
    Case(
        "what is applied says what it is",
        lambda it: it.apply(GROUPS, POD, {"metadata": {"name": "x", "labels": {}}}, MINE),
        Called(
            "PATCH /apis/scheduling.run.ai/v2/namespaces/a/podgroups/b?fieldManager=me",
            {
                "apiVersion": "scheduling.run.ai/v2",
                "kind": "PodGroup",
                "metadata": {"labels": {}, "name": "b"},
            },
        ),
    ),
]


@pytest.mark.parametrize("case", CALLS, ids=ids)
async def test_a_call(case: Case[Callable[[Client], Coroutine[Any, Any, object]], Called]) -> None:
    """It sends one request and returns the object of the answer."""
    run = Run(told(OBJECT))

    made = await case.given(run.client)

    assert (run.lines, run.transport.bodies) == ([case.want.line], [case.want.body])
    assert isinstance(made, PartialObject)
    assert made.metadata.key == POD


@pytest.mark.parametrize(
    ("deletion", "can_repeat"), [((), False), ((Deletion(uid="u"),), True)], ids=["any", "this one"]
)
async def test_a_deletion(deletion: tuple[Deletion, ...], *, can_repeat: bool) -> None:
    """Whatever the answer says; only with a uid it is one that can be repeated."""
    run = Run(Answer(200, b"whatever"))

    await run.client.delete(PODS, POD, *deletion)

    (asked,) = run.transport.asked
    assert (asked.method, asked.repeatable) == ("DELETE", can_repeat)


async def test_who_applies_must_have_a_name() -> None:
    """Fields belong to somebody."""
    run = Run(OK)
    with pytest.raises(ValueError, match="server-side apply needs a field manager"):
        await run.client.apply(PODS, POD, {}, Write())

    assert run.transport.asked == []


def page(token: str, *names: str) -> Answer:
    """Answer with a page of a list."""
    items = [{"metadata": {"name": name}} for name in names]
    return told({"metadata": {"resourceVersion": "7", "continue": token}, "items": items})


async def test_a_list_is_read_page_by_page() -> None:
    """Each page says how the next one is asked for; an empty page need not be the last."""
    run = Run(page("t1", "a", "b"), page("t2"), DOWN, page("", "c"))

    listed = await run.to_its_end(run.client.list(Target(PODS, "a")))

    assert [item.metadata.name for item in listed] == ["a", "b", "c"]
    path = "GET /api/v1/namespaces/a/pods?limit=500"
    assert run.lines == [path, f"{path}&continue=t1", *[f"{path}&continue=t2"] * 2]


async def test_a_list_that_expires() -> None:
    """Beginning again is for whoever knows what has been read already."""
    run = Run(page("t1", "a"), Answer(410, b""))

    assert isinstance(await run.to_its_end(run.client.list(Target(PODS))), WatchExpired)
    assert len(run.transport.asked) == 2


async def test_pages_may_be_small() -> None:
    """And who has seen enough asks for no more."""
    run = Run(page("t1", "a"), page("", "b"))

    async for read_page in run.client.pages(Target(PODS), limit=1):
        assert read_page.metadata.resource_version == "7"
        break

    assert run.lines == ["GET /api/v1/pods?limit=1"]


async def test_closing() -> None:
    """It closes the transport."""
    run = Run(OK)
    await run.client.close()

    assert run.transport.is_closed
