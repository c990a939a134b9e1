"""The interface between a request and how it travels; a test passes its own.

1. `send` is called by many tasks at once, and returns every answer, refusals included.
2. `stream` yields pieces of the body as they come, cut anywhere, once the status is known to be
   good; a refusal is raised as one of our errors.
3. Nothing but `ApiError` and `ConfigError` comes out of either, and neither tries anything twice.
4. `close` is called once, after the last answer; whatever still streams is cut off.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.rest_config import RestConfig
from trainer_kai.kube.rest.errors import ErrorDetails, Unavailable
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse

__all__ = ["Transport", "headers_for", "unavailable", "untrusted_server"]

_WRONG_DATE = (9, 10)  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and …_HAS_EXPIRED
_WRONG_NAME = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH


class Transport(Protocol):
    """One way to the API server."""

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Send a request and read the whole answer."""
        ...

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send a request and read the answer while it is being written.

        After *silence_s* without a byte the other end is taken for dead.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


async def headers_for(request: Request, rest_config: RestConfig) -> dict[str, str]:
    """Return what a request has to say before its body."""
    headers = {
        "Accept": request.accept,
        "Accept-Encoding": "identity",  # compressing costs both ends more than the way is worth
        "User-Agent": "trainer-kai",
    }
    authorization = await rest_config.credentials.authorization()
    if not (authorization.isascii() and authorization.isprintable()):
        message = (
            "the token or password holds a line break or another character that cannot be sent"
        )
        raise ConfigError([FieldError(rest_config.origin, message)])
    if authorization:
        headers["Authorization"] = authorization
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return headers


def unavailable(request: Request, message: str, *, was_sent: bool) -> Unavailable:
    """Return the error of a request that got no answer."""
    return Unavailable(ErrorDetails(str(request), 0, "", message), was_sent=was_sent)


def untrusted_server(rest_config: RestConfig, reason: str, code: int) -> ConfigError:
    """Return the error of an API server that does not show a certificate we trust."""
    if code in _WRONG_DATE:
        field, cure = "certificate-authority", "look at the date of both machines, or renew it"
    elif code in _WRONG_NAME:
        field, cure = "tls-server-name", "set it to a name that the certificate is for"
    else:
        field, cure = "certificate-authority", "give the authority that this cluster has now"
    message = f"{rest_config.server} shows a certificate that is not trusted ({reason}): {cure}"
    return ConfigError([FieldError(f"{rest_config.origin}: {field}", message)])
