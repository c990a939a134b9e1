"""What the API server, or the way to it, can answer instead of what was asked for.

    ApiError
    ├── NotFound         404  there is no such object, or no such kind
    ├── Conflict         409  made from a stale read: read again and decide again
    │   └── AlreadyExists     another client was first
    ├── Forbidden        403  RBAC says no; waiting does not help
    ├── Unauthorized     401  the credentials are not good (any more): the process ends
    ├── Invalid     400, 422  the object or the request is wrong
    ├── WatchExpired     410  the version asked for is gone: list again
    ├── Throttled        429  later, and how much later
    ├── Unavailable      5xx  or no answer came, or the connection broke
    ├── TooLarge         2xx  and more than we keep in memory: ask for less at a time
    └── Garbled          2xx  but we cannot read it; a write was done all the same

Nothing of the HTTP library leaves this package: its errors are chained to these. Whether trying the
same again can help is `is_retryable`, and nothing else.
"""

from typing import Final, NamedTuple

from trainer_kai.errors import TrainerKaiError

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "ErrorDetails",
    "Forbidden",
    "Garbled",
    "Invalid",
    "NotFound",
    "Throttled",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "WatchExpired",
    "error_for",
    "is_retryable",
]


class ErrorDetails(NamedTuple):
    """What was asked and what came back, as far as it is known."""

    request: str  # "PATCH /api/v1/namespaces/a/pods/b"
    status: int  # 0 when there was no answer
    reason: str  # the API server's word for it: AlreadyExists, Expired, …
    message: str
    retry_after_s: float | None = None


class ApiError(TrainerKaiError):
    """The API server refused, or could not be asked."""

    advice = ""  # what a person can do, where that is always the same

    def __init__(self, details: ErrorDetails) -> None:
        self.details = details
        code = f"{details.status} {details.reason}".strip() if details.status else "no answer"
        parts = (details.request, code, _one_line(details.message), self.advice)
        super().__init__(": ".join(part for part in parts if part))

    @property
    def retry_after_s(self) -> float | None:
        """Return how long the API server asked us to wait, if it did."""
        return self.details.retry_after_s


class NotFound(ApiError):
    """There is no such object, or no such kind of object."""


class Conflict(ApiError):
    """The write was made from a stale read, or its preconditions do not hold."""


class AlreadyExists(Conflict):
    """An object of that name is there already."""


class Forbidden(ApiError):
    """RBAC, a quota or an admission plugin says no."""

    advice = "if this is allowed to nobody yet, a role and its binding have to grant it"


class Unauthorized(ApiError):
    """The API server does not know who we are."""

    advice = "the token or certificate is not accepted (any more): renew it, or log in again"


class Invalid(ApiError):
    """The API server cannot make sense of the request or refuses the object."""


class WatchExpired(ApiError):
    """The version that a watch or a page continues from is gone."""


class Throttled(ApiError):
    """Too many requests, or a disruption budget: later."""


class Unavailable(ApiError):
    """The API server failed, or the way to it did."""

    def __init__(self, details: ErrorDetails, *, was_sent: bool = True) -> None:
        super().__init__(details)
        self.was_sent = was_sent  # False: it never reached the API server, so nothing happened


class TooLarge(ApiError):
    """The answer is larger than what we keep in memory of one."""


class Garbled(ApiError):
    """The answer is no JSON, or an object whose fields are not what we take them for."""


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
    """Return the error that a status stands for."""
    if details.reason == "AlreadyExists":
        return AlreadyExists(details)
    kind = _BY_STATUS.get(details.status)
    if kind is None:
        kind = Unavailable if details.status >= 500 else ApiError
    return kind(details)


def _one_line(text: str) -> str:
    """Fold what others wrote: a log has one line for it, and a terminal takes no orders."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def is_retryable(error: ApiError) -> bool:
    """Say whether the very same request can succeed later, provided it is safe to repeat."""
    return isinstance(error, Throttled | Unavailable)
