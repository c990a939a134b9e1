"""The responses of the API server, and the errors that they stand for. Pure.

Each error status becomes one of these errors, with the message of the API server if there is one:
its body is a Status object, or the text of a proxy or load balancer in front of the API server.

ApiError
    ├── NotFound         404  the object or its kind does not exist
    ├── Conflict         409  the object changed since it was read: read again and decide again
    │   └── AlreadyExists     another client created it first
    ├── Forbidden        403  RBAC, a quota or admission refuses; waiting does not help
    ├── Unauthorized     401  the credentials are not accepted (any more): the process exits
    ├── Invalid     400, 422  the object or the request is invalid
    ├── WatchExpired     410  the requested version is gone: list again
    ├── Throttled        429  try again later, after the time in the response
    ├── Unavailable      5xx  or no response, or the connection broke
    ├── TooLarge         2xx  the response is larger than the memory limit: request less at a time
    └── Garbled          2xx  the response cannot be decoded; a write was executed

No error of the HTTP library leaves this package: it is chained to one of these. `is_retryable`
alone says whether sending the same request again can help.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError
from trainer_kai.api.text import one_line
from trainer_kai.errors import TrainerKaiError
from trainer_kai.kube.rest.request import Request

_LONGEST_TEXT: Final = 300
_LONGEST_WAIT_S: Final = 60.0  # the API server never asks for more
# A version newer than any that the API server has seen: its data was restored, or it lags behind.
_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"


class ErrorDetails(NamedTuple):
    request: str  # "PATCH /api/v1/namespaces/a/pods/b"
    status: int  # 0 if no response arrived
    reason: str  # the API server's reason: AlreadyExists, Expired, …
    message: str
    retry_after_s: float | None = None


class ApiError(TrainerKaiError):
    """The API server refused a request, or could not be reached."""

    advice = ""  # the remedy, if it is always the same

    def __init__(self, details: ErrorDetails) -> None:
        self.details = details
        code = f"{details.status} {details.reason}".strip() if details.status else "no response"
        parts = (details.request, code, one_line(details.message), self.advice)
        super().__init__(": ".join(part for part in parts if part))

    @property
    def retry_after_s(self) -> float | None:
        """Return the wait that the API server asks for, if it does."""
        return self.details.retry_after_s


class NotFound(ApiError):
    """The object or its kind does not exist."""


class Conflict(ApiError):
    """The object changed since it was read, or a precondition does not hold."""


class AlreadyExists(Conflict):
    """An object with that name already exists."""


class Forbidden(ApiError):
    """RBAC, a quota or an admission plugin refuses the request."""

    advice = "grant the permission with a Role and a RoleBinding, or use an account that has it"


class Unauthorized(ApiError):
    """The API server does not accept the credentials."""

    advice = "the token or certificate is not accepted (any more): renew it, or log in again"


class Invalid(ApiError):
    """The API server cannot process the request, or refuses the object."""


class WatchExpired(ApiError):
    """The version from which a watch or a page continues is gone."""


class Throttled(ApiError):
    """Too many requests, or a disruption budget: try again later."""


class Unavailable(ApiError):
    """The API server failed, or the connection to it."""

    def __init__(self, details: ErrorDetails, *, was_sent: bool = True) -> None:
        super().__init__(details)
        self.was_sent = was_sent  # False: the request never reached the API server


class TooLarge(ApiError):
    """The response is larger than the memory limit for one response."""


class Garbled(ApiError):
    """The response is not JSON, or has fields of other types than ours."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: WatchExpired,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Throttled,
}


def error_for(details: ErrorDetails) -> ApiError:
    if details.reason == "AlreadyExists":
        return AlreadyExists(details)
    kind = _BY_STATUS.get(details.status)
    if kind is None:
        kind = Unavailable if details.status >= 500 else ApiError
    return kind(details)


def is_retryable(error: ApiError) -> bool:
    """Say whether the same request can succeed later, if it is repeatable."""
    return isinstance(error, Throttled | Unavailable)


class ApiResponse(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None = None  # the header of that name


class _StatusCause(msgspec.Struct):
    reason: str = ""


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None
    causes: list[_StatusCause] | None = None


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


def body_or_error(request: Request, response: ApiResponse) -> bytes:
    if response.status < 300:
        return response.body
    status = _read_status(response.body)
    wait_s = _retry_after_seconds(response.retry_after) or _retry_after_of_status(status)
    raise _error(request, response.status, status, wait_s)


def error_of_watch_event(request: Request, event_object: bytes | msgspec.Raw) -> ApiError:
    status = _read_status(event_object)
    return _error(request, status.code or 500, status, _retry_after_of_status(status))


@contextmanager
def garbled_if_unreadable(request: Request) -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        message = f"the response cannot be decoded: {error}"
        raise Garbled(ErrorDetails(str(request), 200, "", message)) from error


def _error(request: Request, code: int, status: _Status, wait_s: float | None) -> ApiError:
    reason = status.reason or ""
    if any(cause.reason == _VERSION_TOO_LARGE for cause in _causes(status)):
        code, reason = 410, _VERSION_TOO_LARGE
    wait_s = None if wait_s is None else min(wait_s, _LONGEST_WAIT_S)
    return error_for(ErrorDetails(str(request), code, reason, status.message or "", wait_s))


def _read_status(body: bytes | msgspec.Raw) -> _Status:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status()  # a proxy, a load balancer, or a panic in plain text
    if not status.message:
        text = bytes(body).decode(errors="replace").strip()
        status.message = text[:_LONGEST_TEXT] or "no reason given"
    return status


def _causes(status: _Status) -> list[_StatusCause]:
    return (status.details and status.details.causes) or []


def _retry_after_of_status(status: _Status) -> float | None:
    return status.details.retry_after_seconds if status.details else None


def _retry_after_seconds(header: str | None) -> float | None:
    """Return the seconds of Retry-After; a date would depend on another machine's clock."""
    return float(header) if header is not None and header.isdecimal() else None
