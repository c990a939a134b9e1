"""What every status of the API server is to us, and which of them may pass."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.errors import TrainerKaiError
from trainer_kai.kube.rest.response import (
    AlreadyExists,
    ApiError,
    Conflict,
    ErrorDetails,
    Forbidden,
    Invalid,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
    WatchExpired,
    error_for,
    is_retryable,
)

# status and reason -> the class, and whether the same request can succeed later
CLASSES: list[Case[tuple[int, str], tuple[type[ApiError], bool]]] = [
    Case("a redirect is followed by nobody", (302, ""), (ApiError, False)),
    Case("400 is invalid, and final", (400, "BadRequest"), (Invalid, False)),
    Case("401 is unauthorized, and final", (401, "Unauthorized"), (Unauthorized, False)),
    Case("403 is forbidden, and final", (403, "Forbidden"), (Forbidden, False)),
    Case("404 is not found, and final", (404, "NotFound"), (NotFound, False)),
    Case("no such verb", (405, "MethodNotAllowed"), (ApiError, False)),
    Case("not in that form", (406, "NotAcceptable"), (ApiError, False)),
    Case("408 may succeed later", (408, ""), (Unavailable, True)),
    Case("409 is a conflict, and final", (409, "Conflict"), (Conflict, False)),
    Case("somebody was first", (409, "AlreadyExists"), (AlreadyExists, False)),
    Case("the version is gone", (410, "Expired"), (WatchExpired, False)),
    Case("413 is invalid, and final", (413, "RequestEntityTooLarge"), (Invalid, False)),
    Case("a form nobody reads", (415, "UnsupportedMediaType"), (Invalid, False)),
    Case("422 is invalid, and final", (422, "Invalid"), (Invalid, False)),
    Case("429 is throttled, and may succeed later", (429, "TooManyRequests"), (Throttled, True)),
    Case("500 may succeed later", (500, "InternalError"), (Unavailable, True)),
    Case("broken before it", (502, ""), (Unavailable, True)),
    Case("503 may succeed later", (503, "ServiceUnavailable"), (Unavailable, True)),
    Case("it took too long", (504, "Timeout"), (Unavailable, True)),
    Case("a status of some proxy", (599, ""), (Unavailable, True)),
    Case("a failure without a response is final", (0, ""), (ApiError, False)),
]


@pytest.mark.parametrize("case", CLASSES, ids=ids)
def test_a_status_is_an_error_of_ours(
    case: Case[tuple[int, str], tuple[type[ApiError], bool]],
) -> None:
    """Exactly this class, and nothing that only is one of it."""
    status, reason = case.given

    error = error_for(ErrorDetails("GET /x", status, reason, "why", 2.0))

    assert (type(error), is_retryable(error)) == case.want
    assert error.retry_after_s == 2.0


def test_one_tree() -> None:
    """Code that catches ours catches all of these; AlreadyExists is a conflict."""
    assert issubclass(ApiError, TrainerKaiError)
    assert issubclass(AlreadyExists, Conflict)


@pytest.mark.parametrize("was_sent", [True, False])
def test_without_an_answer_it_is_worth_another_try(was_sent: bool) -> None:
    """Whether it is safe as well is for the client to say."""
    assert is_retryable(Unavailable(ErrorDetails("GET /x", 0, "", ""), was_sent=was_sent))


MESSAGES: list[Case[ApiError, str]] = [
    Case(
        "request, status, reason and message",
        Conflict(ErrorDetails("PUT /x", 409, "Conflict", "it changed")),
        "PUT /x: 409 Conflict: it changed",
    ),
    Case(
        "without a reason the message follows the status",
        ApiError(ErrorDetails("GET /x", 418, "", "tea")),
        "GET /x: 418: tea",
    ),
    Case(
        "without a message the reason ends it",
        NotFound(ErrorDetails("GET /x", 404, "NotFound", "")),
        "GET /x: 404 NotFound",
    ),
    Case(
        "a missing response is named",
        Unavailable(ErrorDetails("GET /x", 0, "", "it broke")),
        "GET /x: no response: it broke",
    ),
    Case(
        "lines are folded, and a terminal takes no orders",
        Invalid(ErrorDetails("PUT /x", 422, "Invalid", " a:\n\t* b\r\n* c\x1b[2J\u2028d ")),
        "PUT /x: 422 Invalid: a: * b * c [2J d",
    ),
    Case(
        "Forbidden names what grants the permission",
        Forbidden(ErrorDetails("GET /x", 403, "Forbidden", "no")),
        "GET /x: 403 Forbidden: no: grant the permission with a Role and a RoleBinding, or use an"
        " account that has it",
    ),
    Case(
        "Unauthorized advises to renew",
        Unauthorized(ErrorDetails("GET /x", 401, "Unauthorized", "who?")),
        "GET /x: 401 Unauthorized: who?: the token or certificate is not accepted (any more):"
        " renew it, or log in again",
    ),
]


@pytest.mark.parametrize("case", MESSAGES, ids=ids)
def test_an_error_is_one_line(case: Case[ApiError, str]) -> None:
    """What was asked, what came back, and what a person can do."""
    assert str(case.given) == case.want
