"""What an answer means, in whatever words it comes and whoever wrote it."""

import json
from typing import Any, Final

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.kube.answer import Answer, check, error_of_line
from trainer_kai.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Refusal,
    Throttled,
    Unavailable,
    WatchExpired,
)
from trainer_kai.kube.request import Request

ASKED: Final = Request("GET", "/x", (("a", "b"),))
LATER: Final = {"reason": "TooManyRequests", "message": "m", "details": {"retryAfterSeconds": 3}}
FUTURE: Final[dict[str, Any]] = {
    "code": 504,
    "reason": "Timeout",
    "message": "Too large resource version: 5, current: 3",
    "details": {
        "causes": [{"reason": "Other"}, {"reason": "ResourceVersionTooLarge", "message": "x"}],
        "retryAfterSeconds": 1,
    },
}


def status(**fields: Any) -> bytes:
    """Write a Status."""
    return json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, **fields}).encode()


def refused(code: int, reason: str, message: str, wait_s: float | None = None) -> Refusal:
    """Return what is known of a refusal."""
    return Refusal("GET /x", code, reason, message, wait_s)


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_what_is_no_refusal_is_a_body(code: int) -> None:
    """Its bytes are not looked at."""
    assert check(ASKED, Answer(code, b"\xff")) == b"\xff"


REFUSALS: list[Case[Answer, tuple[type[ApiError], Refusal]]] = [
    Case(
        "a Status is told in its words",
        Answer(409, status(code=409, reason="AlreadyExists", message="it is there")),
        (AlreadyExists, refused(409, "AlreadyExists", "it is there")),
    ),
    Case(
        "fields that are null are fields that are not there",
        Answer(409, b'{"reason":null,"message":"m","details":null,"code":null}'),
        (Conflict, refused(409, "", "m")),
    ),
    Case(
        "the status of the answer counts, not the one written in it",
        Answer(503, status(code=200, message="m")),
        (Unavailable, refused(503, "", "m")),
    ),
    Case(
        "a Status without a message is told whole",
        Answer(500, b'{"reason":"Odd"}'),
        (Unavailable, refused(500, "Odd", '{"reason":"Odd"}')),
    ),
    Case(
        "JSON of somebody else is told whole",
        Answer(502, b'{"error":"no route"}'),
        (Unavailable, refused(502, "", '{"error":"no route"}')),
    ),
    Case("JSON that is no object", Answer(502, b'["x"]'), (Unavailable, refused(502, "", '["x"]'))),
    Case(
        "a field of another type",
        Answer(502, b'{"message":7}'),
        (Unavailable, refused(502, "", '{"message":7}')),
    ),
    Case(
        "the text of a proxy",
        Answer(502, b" <h1>Bad\n Gateway</h1>\n"),
        (Unavailable, refused(502, "", "<h1>Bad\n Gateway</h1>")),
    ),
    Case("a long text is cut", Answer(500, b"x" * 999), (Unavailable, refused(500, "", "x" * 300))),
    Case(
        "bytes that are no text",
        Answer(500, b"\xff!"),
        (Unavailable, refused(500, "", "\N{REPLACEMENT CHARACTER}!")),
    ),
    Case(
        "text that is none within JSON",
        Answer(500, b'{"message":"\xff"}'),
        (Unavailable, refused(500, "", '{"message":"\N{REPLACEMENT CHARACTER}"}')),
    ),
    Case("nothing", Answer(503, b""), (Unavailable, refused(503, "", "no reason was given"))),
    Case(
        "the header says when",
        Answer(429, b"x", "7"),
        (Throttled, refused(429, "", "x", 7.0)),
    ),
    Case(
        "the details say when",
        Answer(429, status(**LATER)),
        (Throttled, refused(429, "TooManyRequests", "m", 3)),
    ),
    Case(
        "the header says it first",
        Answer(429, status(**LATER), "7"),
        (Throttled, refused(429, "TooManyRequests", "m", 7.0)),
    ),
    Case(
        "a header with a date says nothing",
        Answer(503, b"x", "Fri, 31 Dec 1999 23:59:59 GMT"),
        (Unavailable, refused(503, "", "x")),
    ),
    Case(
        "a negative header says nothing",
        Answer(429, b"x", "-1"),
        (Throttled, refused(429, "", "x")),
    ),
    Case(
        "a version from the future is one that is gone",
        Answer(504, status(**FUTURE)),
        (WatchExpired, refused(410, "ResourceVersionTooLarge", FUTURE["message"], 1)),
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=ids)
def test_a_refusal_is_an_error_of_ours(case: Case[Answer, tuple[type[ApiError], Refusal]]) -> None:
    """With the words of whoever refused."""
    with pytest.raises(ApiError) as raised:
        check(ASKED, case.given)

    assert (type(raised.value), raised.value.refusal) == case.want


LINES: list[Case[dict[str, Any], tuple[type[ApiError], Refusal]]] = [
    Case(
        "the code of the line counts",
        {"code": 410, "reason": "Expired", "message": "too old"},
        (WatchExpired, refused(410, "Expired", "too old")),
    ),
    Case("a line without a code", {"message": "m"}, (Unavailable, refused(500, "", "m"))),
    Case(
        "a version from the future",
        FUTURE,
        (WatchExpired, refused(410, "ResourceVersionTooLarge", FUTURE["message"], 1)),
    ),
]


@pytest.mark.parametrize("case", LINES, ids=ids)
def test_a_watch_is_told_an_error_in_its_stream(
    case: Case[dict[str, Any], tuple[type[ApiError], Refusal]],
) -> None:
    """The same errors, though the answer as a whole was a good one."""
    error = error_of_line(ASKED, msgspec.Raw(status(**case.given)))

    assert (type(error), error.refusal) == case.want
