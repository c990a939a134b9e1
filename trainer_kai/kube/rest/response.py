"""The responses of the API server, and the errors that they stand for. Pure.

Each error status becomes one of our errors, with the message of the API server if there is one: its
body is a Status object, or the text of a proxy or load balancer in front of the API server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError
from trainer_kai.kube.rest.errors import ApiError, ErrorDetails, Garbled, error_for
from trainer_kai.kube.rest.request import Request

_LONGEST_TEXT: Final = 300
_LONGEST_WAIT_S: Final = 60.0  # the API server never asks for more
# A version newer than any that the API server has seen: its data was restored, or it lags behind.
_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"


class ApiResponse(NamedTuple):
    """A complete HTTP response."""

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
    """Return the body of a successful response; raise the error for another status."""
    if response.status < 300:
        return response.body
    status = _read_status(response.body)
    wait_s = _retry_after_seconds(response.retry_after) or _retry_after_of_status(status)
    raise _error(request, response.status, status, wait_s)


def error_of_watch_event(request: Request, status: bytes | msgspec.Raw) -> ApiError:
    """Return the error of a watch event of type ERROR."""
    watch_status = _read_status(status)
    return _error(
        request, watch_status.code or 500, watch_status, _retry_after_of_status(watch_status)
    )


@contextmanager
def garbled_if_unreadable(request: Request) -> Iterator[None]:
    """Raise `Garbled` if the body of a successful response cannot be decoded."""
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
