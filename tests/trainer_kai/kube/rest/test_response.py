"""What a response means, in whatever words it comes and from whichever server."""

import json
from typing import Any, Final

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import (
    AlreadyExists,
    ApiError,
    ApiResponse,
    Conflict,
    ErrorDetails,
    Throttled,
    Unavailable,
    WatchExpired,
    body_or_error,
    error_of_watch_event,
)

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
    return json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, **fields}).encode()


def error_details(
    code: int, reason: str, message: str, wait_s: float | None = None
) -> ErrorDetails:
    return ErrorDetails("GET /x", code, reason, message, wait_s)


@pytest.mark.parametrize("code", [200, 201, 202, 204])
def test_what_is_no_refusal_is_a_body(code: int) -> None:
    """Its bytes are not looked at."""
    assert body_or_error(ASKED, ApiResponse(code, b"\xff")) == b"\xff"


REFUSALS: list[Case[ApiResponse, tuple[type[ApiError], ErrorDetails]]] = [
    Case(
        "a Status is reported in its words",
        ApiResponse(409, status(code=409, reason="AlreadyExists", message="it is there")),
        (AlreadyExists, error_details(409, "AlreadyExists", "it is there")),
    ),
    Case(
        "fields that are null are fields that are not there",
        ApiResponse(409, b'{"reason":null,"message":"m","details":null,"code":null}'),
        (Conflict, error_details(409, "", "m")),
    ),
    Case(
        "the status of the answer counts, not the one written in it",
        ApiResponse(503, status(code=200, message="m")),
        (Unavailable, error_details(503, "", "m")),
    ),
    Case(
        "a Status without a message is reported whole",
        ApiResponse(500, b'{"reason":"Odd"}'),
        (Unavailable, error_details(500, "Odd", '{"reason":"Odd"}')),
    ),
    Case(
        "other JSON is reported whole",
        ApiResponse(502, b'{"error":"no route"}'),
        (Unavailable, error_details(502, "", '{"error":"no route"}')),
    ),
    Case(
        "JSON that is no object",
        ApiResponse(502, b'["x"]'),
        (Unavailable, error_details(502, "", '["x"]')),
    ),
    Case(
        "a field of another type",
        ApiResponse(502, b'{"message":7}'),
        (Unavailable, error_details(502, "", '{"message":7}')),
    ),
    Case(
        "the text of a proxy",
        ApiResponse(502, b" <h1>Bad\n Gateway</h1>\n"),
        (Unavailable, error_details(502, "", "<h1>Bad\n Gateway</h1>")),
    ),
    Case(
        "a long text is cut",
        ApiResponse(500, b"x" * 999),
        (Unavailable, error_details(500, "", "x" * 300)),
    ),
    Case(
        "bytes that are no text",
        ApiResponse(500, b"\xff!"),
        (Unavailable, error_details(500, "", "\N{REPLACEMENT CHARACTER}!")),
    ),
    Case(
        "text that is none within JSON",
        ApiResponse(500, b'{"message":"\xff"}'),
        (Unavailable, error_details(500, "", '{"message":"\N{REPLACEMENT CHARACTER}"}')),
    ),
    Case(
        "nothing",
        ApiResponse(503, b""),
        (Unavailable, error_details(503, "", "no reason given")),
    ),
    Case(
        "the header says when",
        ApiResponse(429, b"x", "7"),
        (Throttled, error_details(429, "", "x", 7.0)),
    ),
    Case(
        "the details say when",
        ApiResponse(429, status(**LATER)),
        (Throttled, error_details(429, "TooManyRequests", "m", 3)),
    ),
    Case(
        "the header says it first",
        ApiResponse(429, status(**LATER), "7"),
        (Throttled, error_details(429, "TooManyRequests", "m", 7.0)),
    ),
    Case(
        "a header with a date says nothing",
        ApiResponse(503, b"x", "Fri, 31 Dec 1999 23:59:59 GMT"),
        (Unavailable, error_details(503, "", "x")),
    ),
    Case(
        "a negative header says nothing",
        ApiResponse(429, b"x", "-1"),
        (Throttled, error_details(429, "", "x")),
    ),
    Case(
        "a version from the future is one that is gone",
        ApiResponse(504, status(**FUTURE)),
        (WatchExpired, error_details(410, "ResourceVersionTooLarge", FUTURE["message"], 1)),
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=ids)
def test_a_refusal_is_an_error_of_ours(
    case: Case[ApiResponse, tuple[type[ApiError], ErrorDetails]],
) -> None:
    """With the words of the server that refused."""
    with pytest.raises(ApiError) as raised:
        body_or_error(ASKED, case.given)

    assert (type(raised.value), raised.value.details) == case.want


LINES: list[Case[dict[str, Any], tuple[type[ApiError], ErrorDetails]]] = [
    Case(
        "the code of the line counts",
        {"code": 410, "reason": "Expired", "message": "too old"},
        (WatchExpired, error_details(410, "Expired", "too old")),
    ),
    Case("a line without a code", {"message": "m"}, (Unavailable, error_details(500, "", "m"))),
    Case(
        "a version from the future",
        FUTURE,
        (WatchExpired, error_details(410, "ResourceVersionTooLarge", FUTURE["message"], 1)),
    ),
]


@pytest.mark.parametrize("case", LINES, ids=ids)
def test_an_error_in_the_stream_of_a_watch(
    case: Case[dict[str, Any], tuple[type[ApiError], ErrorDetails]],
) -> None:
    """The same errors, though the answer as a whole was a good one."""
    error = error_of_watch_event(ASKED, msgspec.Raw(status(**case.given)))

    assert (type(error), error.details) == case.want
