"""What comes back from the API server, and what it means. Pure.

Every refusal becomes one of our errors, with the API server's own words where it has any: its body
is a Status object, or the text of whatever stands before the API server.
"""

from typing import Final, NamedTuple

import msgspec

from trainer_kai.kube.errors import ApiError, Refusal, error_for
from trainer_kai.kube.request import Request

__all__ = ["Answer", "check", "error_of_line"]

_LONGEST_TEXT: Final = 300
# A version newer than the API server has ever seen: its data was restored or it lags behind.
_FROM_THE_FUTURE: Final = "ResourceVersionTooLarge"


class Answer(NamedTuple):
    """An HTTP answer, read to its end."""

    status: int
    body: bytes
    retry_after: str | None = None  # the header of that name


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


def check(request: Request, answer: Answer) -> bytes:
    """Return the body of an answer that is no refusal; raise what a refusal stands for."""
    if answer.status < 300:
        return answer.body
    status = _read_status(answer.body)
    wait = _seconds(answer.retry_after) or _wait_of(status)
    raise _error(request, answer.status, status, wait)


def error_of_line(request: Request, status: bytes | msgspec.Raw) -> ApiError:
    """Return the error that a watch was told in the middle of its stream."""
    told = _read_status(status)
    return _error(request, told.code or 500, told, _wait_of(told))


def _error(request: Request, code: int, status: _Status, wait: float | None) -> ApiError:
    reason = status.reason or ""
    if any(cause.reason == _FROM_THE_FUTURE for cause in _causes(status)):
        code, reason = 410, _FROM_THE_FUTURE
    return error_for(Refusal(str(request), code, reason, status.message or "", wait))


def _read_status(body: bytes | msgspec.Raw) -> _Status:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status()  # a proxy, a load balancer, or a panic in plain text
    if not status.message:
        text = bytes(body).decode(errors="replace").strip()
        status.message = text[:_LONGEST_TEXT] or "no reason was given"
    return status


def _causes(status: _Status) -> list[_Cause]:
    return (status.details and status.details.causes) or []


def _wait_of(status: _Status) -> float | None:
    return status.details.retry_after_seconds if status.details else None


def _seconds(header: str | None) -> float | None:
    """Read Retry-After; the other form, a date, would be read by another machine's clock."""
    return float(header) if header is not None and header.isdecimal() else None
