"""The response of the API server, and the error that it stands for. Pure.

Every error status becomes one of our errors, with the API server's own words where it has any: its
body is a Status object, or the text of a proxy or load balancer before the API server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError
from trainer_kai.kube.rest.errors import ApiError, ErrorDetails, Garbled, error_for
from trainer_kai.kube.rest.request import Request

__all__ = ["ApiResponse", "body_or_error", "error_of_watch_event", "garbled_if_unreadable"]

_LONGEST_TEXT: Final = 300
_LONGEST_WAIT_S: Final = 60.0  # no API server asks for more
# A version newer than the API server has ever seen: its data was restored or it lags behind.
_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"


class ApiResponse(NamedTuple):
    """An HTTP answer, read to its end."""

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
    """Return the body of an answer that is no refusal; raise what a refusal stands for."""
    if response.status < 300:
        return response.body
    status = _read_status(response.body)
    wait_s = _retry_after_seconds(response.retry_after) or _retry_after_of_status(status)
    raise _error(request, response.status, status, wait_s)


def error_of_watch_event(request: Request, status: bytes | msgspec.Raw) -> ApiError:
    """Return the error that a watch event of type ERROR reports."""
    watch_status = _read_status(status)
    return _error(
        request, watch_status.code or 500, watch_status, _retry_after_of_status(watch_status)
    )


@contextmanager
def garbled_if_unreadable(request: Request) -> Iterator[None]:
    """Raise `Garbled` for what of a good answer cannot be read."""
    try:
        yield
    except DecodeError as error:
        message = f"the answer makes no sense: {error}"
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
        status.message = text[:_LONGEST_TEXT] or "no reason was given"
    return status


def _causes(status: _Status) -> list[_StatusCause]:
    return (status.details and status.details.causes) or []


def _retry_after_of_status(status: _Status) -> float | None:
    return status.details.retry_after_seconds if status.details else None


def _retry_after_seconds(header: str | None) -> float | None:
    """Read Retry-After; the other form, a date, would be read by another machine's clock."""
    return float(header) if header is not None and header.isdecimal() else None
