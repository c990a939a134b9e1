"""Certificates that others make: cert-manager, or whoever puts files where we read them.

Nothing is written here, neither the certificate nor whom to trust: that is theirs as well.
"""

from collections.abc import Sequence
from pathlib import Path

from webhook.certs import Pair
from webhook.keeper import Offer
from webhook.stored import Asked, Stored, pair_in
from webhook.trust import valid

__all__ = ["CertManager", "Files"]


class CertManager:
    """A certificate in a Secret that cert-manager writes."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    async def turn(self, asked: Sequence[Asked] | None) -> Offer:  # noqa: ARG002 - none of our business
        """Read the Secret."""
        found = await self._stored.secret()
        what = f"Secret {self._stored.secret_key}"
        if found is None:
            return Offer(None, f"{what} is not there; is there a Certificate that names it?")
        return _offer(pair_in(found), what)


class Files:
    """A certificate in files, read each time: what is mounted is exchanged under its name."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)

    async def turn(self, asked: Sequence[Asked] | None) -> Offer:  # noqa: ARG002 - none of our business
        """Read the files."""
        try:
            pair = Pair(self._certificate.read_bytes(), self._key.read_bytes())
        except OSError as error:
            return Offer(None, f"{error.filename} cannot be read: {error.strerror}")
        return _offer(pair, f"{self._certificate} with {self._key}")


def _offer(pair: Pair, what: str) -> Offer:
    """Offer what can be shown."""
    fault = valid(pair).fault
    return Offer(None, f"{what} cannot be shown: {fault}") if fault else Offer(pair)
