"""The TLS context for connections to the API server: trusted CAs and our certificate."""

import ssl
from contextlib import suppress
from pathlib import Path

from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.auth.rest_config import ClientCertificate, RestConfig


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
