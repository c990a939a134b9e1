"""What a connection to the API server needs: address, credentials, TLS context and proxy.

The proxy comes from the environment, as in kubectl (Go): NO_PROXY may contain addresses, networks
and ports besides names, which the standard library does not support, and the local machine is never
behind a proxy.
"""

import base64
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.service.clock import Clock

_IpAddress: TypeAlias = IPv4Address | IPv6Address

_PORTS: Final = {"https": 443, "http": 80}
# kubelet rotates a pod's token at 80 % of its lifetime; other tokens live longer
_REREAD_S: Final = 60.0


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
    server: str
    credentials: Credentials = field(repr=False)
    trust: ServerTrust = field(default_factory=ServerTrust, repr=False)
    certificate: ClientCertificate | None = None
    namespace: str = "default"
    proxy: str = field(default="", repr=False)  # the address can contain a password
    origin: str = ""  # the source, for messages: "context a of ~/.kube/config"
    impersonated: str = ""  # the user as whom requests are sent (kubectl's --as)


class StaticToken:
    """A constant bearer token, or none."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def authorization(self) -> str:
        return f"Bearer {self._token}" if self._token else ""

    async def renew(self) -> bool:
        return False


class BasicAuth:
    """A user name and a password, for a proxy in front of an API server."""

    def __init__(self, user: str, password: str) -> None:
        self._encoded = base64.b64encode(f"{user}:{password}".encode()).decode()

    async def authorization(self) -> str:
        return f"Basic {self._encoded}"

    async def renew(self) -> bool:
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


def tls_context(rest_config: RestConfig) -> ssl.SSLContext | None:
    """Return the context for connections to the API server; None without TLS."""
    if not rest_config.server.startswith("https:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # CAs of clusters often lack the key identifiers that newer Pythons require.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if rest_config.trust.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif rest_config.trust.authority:
        _load_authority(context, rest_config.trust.authority, rest_config.origin)
    else:
        context.load_default_certs()
    if rest_config.certificate is not None:
        _load_client_certificate(context, rest_config.certificate, rest_config.origin)
    return context


def _load_authority(context: ssl.SSLContext, authority: str, origin: str) -> None:
    try:
        # Comments in PEM may be in any language; only ASCII matters.
        context.load_verify_locations(cadata=authority.encode("ascii", "ignore").decode())
    except (ssl.SSLError, ValueError) as error:
        message = "has no certificate in PEM format; copy the CA of the cluster again"
        fault = FieldError(f"{origin}: certificate-authority", message)
        raise ConfigError([fault]) from error


def _load_client_certificate(
    context: ssl.SSLContext, certificate: ClientCertificate, origin: str
) -> None:
    """Load a certificate and its key through a file: OpenSSL cannot read them from memory."""
    import tempfile  # noqa: PLC0415 - it imports a lot, for what few need

    with tempfile.NamedTemporaryFile(prefix="trainer-kai-", delete=False) as file:
        try:
            file.write(certificate.chain + b"\n" + certificate.key)
            file.flush()
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(file.name, password="")
        except (ssl.SSLError, ValueError) as error:
            message = "is not a certificate in PEM format with its key, without a password"
            fault = FieldError(f"{origin}: client-certificate", message)
            raise ConfigError([fault]) from error
        finally:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()


def proxy_for_server(server: str, environ: Mapping[str, str]) -> str:
    """Return the address of the proxy, or "" for a direct connection."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name) or ""
    host = (parts.hostname or "").rstrip(".")
    if not proxy or _is_local_host(host):
        return ""
    port = parts.port or _PORTS.get(parts.scheme, 0)
    excepted = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if any(_matches_no_proxy(entry.strip().lower(), host, port) for entry in excepted.split(",")):
        return ""
    shown = name.upper() if environ.get(name.upper()) else name
    return check_proxy(proxy if "://" in proxy else f"http://{proxy}", f"${shown}")


def check_proxy(proxy: str, where: str) -> str:
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in _PORTS and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:  # not shown, because it can contain a password
        message = "must be the address of an HTTP proxy: http://HOST:PORT"
        raise ConfigError([FieldError(where, message)])
    return proxy


def _is_local_host(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _matches_no_proxy(entry: str, host: str, port: int) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, separator, digits = entry.rpartition(":")
    if separator and digits.isdecimal() and _address(entry) is None:
        entry = name.strip("[]")
        if int(digits) != port:
            return False
    if address is not None:
        return _address(entry) == address
    domain = entry.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or (host == domain and not entry.startswith((".", "*")))


def _address(text: str) -> _IpAddress | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
