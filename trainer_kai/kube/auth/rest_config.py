"""The address of the API server and the credentials for it, whatever they were read from."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.service.clock import Clock

__all__ = [
    "BasicAuth",
    "ClientCertificate",
    "Credentials",
    "RestConfig",
    "ServerTrust",
    "StaticToken",
    "TokenFile",
]

_REREAD_S: Final = 60.0  # kubelet rotates a pod's token at 80 % of its life; nothing is shorter


class Credentials(Protocol):
    """The credentials of this process, as the Authorization header has them."""

    async def authorization(self) -> str:
        """Return the header's value; "" when a client certificate says it all."""
        ...

    async def renew(self) -> bool:
        """Look for newer credentials after a 401; say whether there are any to try."""
        ...


@dataclass(frozen=True)
class ServerTrust:
    """Which certificates are trusted as the API server's."""

    authority: str = ""  # PEM; "" means what the machine trusts
    insecure: bool = False
    server_name: str = ""  # when the certificate is for another name than the address


@dataclass(frozen=True, repr=False)
class ClientCertificate:
    """A client certificate and its key, both PEM."""

    chain: bytes
    key: bytes


@dataclass(frozen=True)
class RestConfig:
    """All that a connection needs."""

    server: str
    credentials: Credentials = field(repr=False)
    trust: ServerTrust = field(default_factory=ServerTrust, repr=False)
    certificate: ClientCertificate | None = None
    namespace: str = "default"
    proxy: str = field(default="", repr=False)  # its address may hold a password
    origin: str = ""  # where this was read, for messages: "context a of ~/.kube/config"


class StaticToken:
    """A bearer token that stays as it is, or none at all."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def authorization(self) -> str:
        """Return the token."""
        return f"Bearer {self._token}" if self._token else ""

    async def renew(self) -> bool:
        """Say that there is no other."""
        return False


class BasicAuth:
    """A user name and a password, for what stands before an API server."""

    def __init__(self, user: str, password: str) -> None:
        self._encoded = base64.b64encode(f"{user}:{password}".encode()).decode()

    async def authorization(self) -> str:
        """Return both, encoded."""
        return f"Basic {self._encoded}"

    async def renew(self) -> bool:
        """Say that there is no other."""
        return False


class TokenFile:
    """A token in a file that another program keeps fresh."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._read_at_s = 0.0
        self._token = ""

    async def authorization(self) -> str:
        """Return the token, read again every minute."""
        if not self._token or self._clock.monotonic_s() - self._read_at_s > _REREAD_S:
            self._read()
        return f"Bearer {self._token}"

    async def renew(self) -> bool:
        """Read again now: the file may be newer than what we know."""
        before = self._token
        self._read()
        return self._token != before

    def _read(self) -> None:
        try:
            token = self._file.read_text().strip()
        except (OSError, ValueError) as error:
            if self._token:
                return  # being replaced, perhaps; the one we have is good for a while
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError([FieldError(str(self._file), f"no token: {reason}")]) from error
        if not token:
            if self._token:
                return  # as above
            raise ConfigError([FieldError(str(self._file), "no token: the file is empty")])
        self._token = token
        self._read_at_s = self._clock.monotonic_s()
