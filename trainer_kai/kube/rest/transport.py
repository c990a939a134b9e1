"""The interface of transports: how a request is sent; a test passes its own.

1. `send` is called by many tasks at once, and returns all responses, also errors.
2. `stream` yields pieces of the body as they arrive, split anywhere, after a successful status; an
   error status is raised as one of our errors.
3. Both raise only `ApiError` and `ConfigError`, and never try anything twice.
4. `close` is called once, after the last response; open streams are cut off.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.rest_config import RestConfig
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse, ErrorDetails, Unavailable

_WRONG_DATE = (9, 10)  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and …_HAS_EXPIRED
_WRONG_NAME = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH


class Transport(Protocol):
    async def send(self, request: Request, timeout_s: float) -> ApiResponse: ...

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """After *silence_s* without a byte the connection is considered broken."""
        ...

    async def close(self) -> None: ...


async def headers_for(request: Request, rest_config: RestConfig) -> dict[str, str]:
    headers = {
        "Accept": request.accept,
        "Accept-Encoding": "identity",  # compression costs more time than it saves
        "User-Agent": "trainer-kai",
    }
    authorization = await rest_config.credentials.authorization()
    if not (authorization.isascii() and authorization.isprintable()):
        message = "the token or password contains a line break or another invalid character"
        raise ConfigError([FieldError(rest_config.origin, message)])
    if authorization:
        headers["Authorization"] = authorization
    if rest_config.impersonated:
        headers["Impersonate-User"] = rest_config.impersonated
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return headers


def unavailable(request: Request, message: str, *, was_sent: bool) -> Unavailable:
    return Unavailable(ErrorDetails(str(request), 0, "", message), was_sent=was_sent)


def untrusted_server(rest_config: RestConfig, reason: str, code: int) -> ConfigError:
    field, cure = "certificate-authority", "set it to the current CA of this cluster"
    if code in _WRONG_DATE:
        cure = "check the date of both machines, or renew the certificate"
    elif code in _WRONG_NAME:
        field, cure = "tls-server-name", "set it to a name in the certificate"
    message = f"the certificate of {rest_config.server} is not trusted ({reason}): {cure}"
    return ConfigError([FieldError(f"{rest_config.origin}: {field}", message)])
