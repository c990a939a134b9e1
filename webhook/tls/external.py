"""Certificates from cert-manager or from mounted files; this module only reads them."""

from collections.abc import Sequence
from pathlib import Path

from webhook.tls.make import TlsKeyPair
from webhook.tls.serving_certificate import CertificateOffer
from webhook.tls.store import CertificateStore, RegisteredConfiguration, read_pair
from webhook.tls.verify import certificate_validity


class CertManagerCertificate:
    """A certificate in a Secret that cert-manager writes."""

    def __init__(self, certificate_store: CertificateStore) -> None:
        self._store = certificate_store

    async def reconcile(
        self,
        configurations: Sequence[RegisteredConfiguration] | None,  # noqa: ARG002 - it writes none
    ) -> CertificateOffer:
        """Read the Secret."""
        secret = await self._store.secret()
        what = f"Secret {self._store.secret_key}"
        if secret is None:
            return CertificateOffer(
                None,
                f"{what} does not exist: create a cert-manager Certificate with this secretName",
            )
        return _offer(read_pair(secret), what)


class FileCertificate:
    """A certificate in files, read each time: a mounted file may be replaced."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)

    async def reconcile(
        self,
        configurations: Sequence[RegisteredConfiguration] | None,  # noqa: ARG002 - it writes none
    ) -> CertificateOffer:
        """Read the files."""
        try:
            pair = TlsKeyPair(self._certificate.read_bytes(), self._key.read_bytes())
        except OSError as error:
            return CertificateOffer(None, f"{error.filename} cannot be read: {error.strerror}")
        return _offer(pair, f"{self._certificate} with {self._key}")


def _offer(pair: TlsKeyPair, what: str) -> CertificateOffer:
    """Offer a certificate if a server can use it."""
    fault = certificate_validity(pair).fault
    return (
        CertificateOffer(None, f"{what} cannot be used: {fault}")
        if fault
        else CertificateOffer(pair)
    )
