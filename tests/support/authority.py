"""Certificates of loopback for tests of TLS, made once for all of them."""

import ssl
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from e2e.cluster.certificates import Authority

__all__ = ["authority_pem", "server_tls"]


@cache
def _loopback_certificates() -> tuple[str, ssl.SSLContext]:
    with TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder))
        pair = authority.serve_loopback(Path(folder))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*pair)
        return authority.pem.decode(), context


def authority_pem() -> str:
    """Return the authority that signed the server's certificate."""
    return _loopback_certificates()[0]


def server_tls() -> ssl.SSLContext:
    """Return what a server on 127.0.0.1 shows."""
    return _loopback_certificates()[1]
