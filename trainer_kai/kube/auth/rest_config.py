"""The address of the API server and the credentials for it, from any source."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.service.clock import Clock

_REREAD_S: Final = (
    60.0  # kubelet rotates a pod's token at 80 % of its lifetime; other tokens live longer
)


class Credentials(Protocol):
    """The credentials of this process, for the Authorization header."""

    async def authorization(self) -> str:
        """Return the value of the header; "" if a client certificate is enough."""
        ...

    async def renew(self) -> bool:
        """Read newer credentials after a 401; say whether there are any."""
        ...


@dataclass(frozen=True)
class ServerTrust:
    """How the certificate of the API server is verified."""

    authority: str = ""  # PEM; "" means the CAs of the machine
    insecure: bool = False
    server_name: str = ""  # if the certificate has another name than the address


@dataclass(frozen=True, repr=False)
class ClientCertificate:
    """A client certificate and its key, both PEM."""

    chain: bytes
    key: bytes


@dataclass(frozen=True)
class RestConfig:
    """Everything that a connection needs."""

    server: str
    credentials: Credentials = field(repr=False)
    trust: ServerTrust = field(default_factory=ServerTrust, repr=False)
    certificate: ClientCertificate | None = None
    namespace: str = "default"
    proxy: str = field(default="", repr=False)  # the address can contain a password
    origin: str = ""  # the source, for messages: "context a of ~/.kube/config"


class StaticToken:
    """A constant bearer token, or none."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def authorization(self) -> str:
        """Return the token."""
        return f"Bearer {self._token}" if self._token else ""

    async def renew(self) -> bool:
        """Say that no newer token exists."""
        return False


class BasicAuth:
    """A user name and a password, for a proxy in front of an API server."""

    def __init__(self, user: str, password: str) -> None:
        self._encoded = base64.b64encode(f"{user}:{password}".encode()).decode()

    async def authorization(self) -> str:
        """Return both, encoded."""
        return f"Basic {self._encoded}"

    async def renew(self) -> bool:
        """Say that no newer password exists."""
        return False


class TokenFile:
    """A token in a file that another program renews."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._read_at_s = 0.0
        self._token = ""

    async def authorization(self) -> str:
        """Return the token, which is read again every minute."""
        if not self._token or self._clock.monotonic_s() - self._read_at_s > _REREAD_S:
            self._read()
        return f"Bearer {self._token}"

    async def renew(self) -> bool:
        """Read the file again now: it may be newer."""
        before = self._token
        self._read()
        return self._token != before

    def _read(self) -> None:
        try:
            token = self._file.read_text().strip()
        except (OSError, ValueError) as error:
            if self._token:
                return  # the file may be being replaced; the current token is still valid
            reason = getattr(error, "strerror", None) or "the file is not text"
            raise ConfigError([FieldError(str(self._file), f"no token: {reason}")]) from error
        if not token:
            if self._token:
                return  # as above
            raise ConfigError([FieldError(str(self._file), "no token: the file is empty")])
        self._token = token
        self._read_at_s = self._clock.monotonic_s()
