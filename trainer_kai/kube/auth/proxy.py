"""The proxy for the API server if the kubeconfig names none: HTTPS_PROXY and NO_PROXY.

As in kubectl (Go), NO_PROXY may contain addresses, networks and ports besides names, which the
standard library does not support, and the local machine is never behind a proxy.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from trainer_kai.errors import ConfigError, FieldError

_IpAddress: TypeAlias = IPv4Address | IPv6Address

_PORTS: Final = {"https": 443, "http": 80}


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
    """Return the address of a proxy with a supported protocol."""
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
    """Say whether one entry of NO_PROXY matches this host."""
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
