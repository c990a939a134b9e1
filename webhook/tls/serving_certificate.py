"""The certificate that the server uses: replaced once API servers trust it; readiness and metrics.

A `CertificateSource` provides it: `SelfManagedCertificate`, or the two here, which only read what
cert-manager wrote, or mounted files. A new certificate is used when every webhook configuration
trusts it, or when the current one is not better.
"""

import random
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from trainer_kai.kube.rest.response import ApiError, Unauthorized
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import TlsSettings
from webhook.tls.certificate_store import CertificateStore, RegisteredConfiguration, read_pair
from webhook.tls.make import TlsKeyPair
from webhook.tls.verify import (
    CertificateValidity,
    DynamicTlsContext,
    certificate_validity,
    verify_trust,
)

_RETRY_S: Final = 1.0
_JITTER: Final = 0.2
_DATE: Final = "%Y-%m-%d %H:%M:%S"
_CLOCK_SKEW: Final = timedelta(minutes=5)  # the difference that clocks may have


class CertificateOffer(NamedTuple):
    """The certificate that a source has, or why it has none."""

    pair: TlsKeyPair | None
    problem: str = ""  # why there is no certificate, or why it cannot be renewed
    retry_soon: bool = False  # a write was done: reconcile again soon


class CertificateSource(Protocol):
    async def reconcile(
        self, configurations: Sequence[RegisteredConfiguration] | None
    ) -> CertificateOffer:
        """Take the next step, and return the certificate.

        *configurations* were read before; None if they cannot be read.
        """
        ...


class _TrustState(NamedTuple):
    why_not: str
    until: datetime | None = None  # None if unknown


class ServingCertificate:
    def __init__(
        self,
        source: CertificateSource,
        certificate_store: CertificateStore,
        settings: TlsSettings,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self.tls: Final = DynamicTlsContext()
        self._source = source
        self._store = certificate_store
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._problem = "no certificate was read yet"
        self._client_authorities = ""  # the authorities of client certificates, as last read
        self._trusted = _TrustState("no certificate was read yet")
        self._logged_reason = ""
        self._valid = CertificateValidity()
        self._measured_configurations: set[str] = set()

    def not_loaded_reason(self) -> str:
        return "" if self.tls.pair else self._problem

    def not_trusted_reason(self) -> str:
        return self._trusted.why_not

    def not_valid_reason(self) -> str:
        """Say that the certificate expired, or may have for an API server with a fast clock."""
        if self.tls.pair is None:
            return ""
        begins, ends, _ = self._valid
        ends = min(ends, self._trusted.until or ends)
        if begins <= self._clock.now() < ends - min(_CLOCK_SKEW, (ends - begins) / 20):
            return ""
        return f"the certificate is valid from {begins:{_DATE}} until {ends:{_DATE}}"

    async def wait_until_loaded(self) -> None:
        while True:
            await self._reconcile()
            if self.tls.pair is not None:
                return
            await self._clock.sleep(_RETRY_S)

    async def run(self) -> None:
        interval_s = self._settings.check_s
        while True:
            retry_soon = await self._reconcile()
            spread = 1 + _JITTER * (random.random() - 0.5)  # noqa: S311 - jitter between replicas
            pause_s = min(_RETRY_S, interval_s) if retry_soon else interval_s * spread
            await self._clock.sleep(pause_s)

    async def _reconcile(self) -> bool:
        """Reconcile once; return whether to reconcile again soon."""
        configurations, read_error = await self._read_configurations()
        offer = await self._read_source(configurations)
        fault = self._read_clients()
        knows_clients = bool(self._client_authorities) or not fault
        awaits_trust = knows_clients and self._show_if_due(offer.pair, configurations)
        self._trusted = self._trust_state(configurations, read_error)
        self._set_metrics(configurations)
        self._log_problems(fault or offer.problem)
        return offer.retry_soon or awaits_trust or bool(self._trusted.why_not)

    async def _read_configurations(self) -> tuple[list[RegisteredConfiguration] | None, str]:
        """Read the configurations; before the Secret, so that they are never newer than it."""
        try:
            return await self._store.configurations(), ""
        except Unauthorized:
            raise
        except ApiError as error:
            return None, str(error)

    async def _read_source(
        self, configurations: list[RegisteredConfiguration] | None
    ) -> CertificateOffer:
        try:
            return await self._source.reconcile(configurations)
        except Unauthorized:
            raise
        except ApiError as error:
            return CertificateOffer(None, str(error))

    def _read_clients(self) -> str:
        """Read the authorities of client certificates, if a file is set; return a fault.

        Until the file was read once no certificate is used; later the last valid content counts.
        """
        path = self._settings.client_ca_file
        if not path:
            return ""
        try:
            authorities = Path(path).read_text(encoding="ascii")
            if authorities != self._client_authorities:
                self.tls.require_client_certificates(authorities)
                self._client_authorities = authorities
        except (ssl.SSLError, ValueError):
            return f"tls.client_ca_file: {path} has no certificate in PEM"
        except OSError as error:
            return f"tls.client_ca_file: {path} cannot be read: {error.strerror}"
        return ""

    def _show_if_due(
        self, pair: TlsKeyPair | None, configurations: list[RegisteredConfiguration] | None
    ) -> bool:
        """Use a new certificate if it is better; return whether it is not trusted yet."""
        if pair is None or pair == self.tls.pair:
            return False
        now, new = self._clock.now(), certificate_validity(pair)
        if self.tls.pair is not None and self._valid.holds_at(now):
            before = self._trust_of(self.tls.pair, configurations or ())
            after = self._trust_of(pair, configurations or ())
            if not before.why_not and (after.why_not or not new.holds_at(now)):
                return True
        self.tls.set_pair(pair)
        self._valid = new
        self._log.info("certificate in use", valid_until=f"{new.ends:{_DATE}}")
        return False

    def _trust_state(
        self, configurations: list[RegisteredConfiguration] | None, read_error: str
    ) -> _TrustState:
        if self.tls.pair is None:
            return _TrustState("no certificate was read yet")
        is_trust_known = self._settings.source != "files"
        if configurations is None:  # an outage does not change trust
            known = self._trusted.until is not None or not is_trust_known
            return self._trusted._replace(why_not="") if known else _TrustState(read_error)
        if not configurations and is_trust_known:
            name = self._settings.configuration_name
            return _TrustState(f"webhook configuration {name} does not exist: apply the manifests")
        return self._trust_of(self.tls.pair, configurations)

    def _set_metrics(self, configurations: list[RegisteredConfiguration] | None) -> None:
        if self.tls.pair is None:
            return
        expires = self._metrics.admission_certificate_expires_timestamp_seconds
        expires.labels("certificate").set(self._valid.ends.timestamp())
        if configurations is None:  # the last known state stays, as for readiness
            return
        until = self._trusted.until
        if until is not None or self._trusted.why_not:
            expires.labels("authority").set(until.timestamp() if until else 0)
        else:
            with suppress(KeyError):
                expires.remove("authority")
        pair = self.tls.pair
        trusted = {str(it): not self._trust_of(pair, [it]).why_not for it in configurations}
        self._measured_configurations |= trusted.keys()
        for name in self._measured_configurations:  # a deleted configuration trusts no certificate
            self._metrics.admission_certificate_trusted.labels(name).set(trusted.get(name, False))

    def _log_problems(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._log.warning("certificate not renewed", error=problem)
        self._problem = problem
        why_not = self._trusted.why_not
        if why_not and why_not != self._logged_reason and self.tls.pair is not None:
            self._log.warning("certificate not trusted", error=why_not)
        self._logged_reason = why_not

    def _trust_of(
        self, pair: TlsKeyPair, configurations: Sequence[RegisteredConfiguration]
    ) -> _TrustState:
        until: datetime | None = None
        for configuration in configurations:
            for webhook in configuration.webhooks:
                client_config = webhook.client_config
                where = f"webhook {webhook.name} of {configuration}"
                if not client_config.ca_bundle and self._settings.source == "files":
                    continue  # the API server then uses the authorities of its host
                if not client_config.ca_bundle:
                    return _TrustState(f"{where} has no caBundle yet")
                trust = verify_trust(client_config.ca_bundle, pair, client_config.host)
                if trust.until is None:
                    message = f"{where} cannot verify {client_config.host}: {trust.why_not}"
                    return _TrustState(message)
                if trust.until <= self._clock.now():
                    return _TrustState(f"{where} trusts only an authority that expired")
                until = min(until, trust.until) if until else trust.until
        return _TrustState("", until)


class CertManagerCertificate:
    def __init__(self, certificate_store: CertificateStore) -> None:
        self._store = certificate_store

    async def reconcile(
        self,
        configurations: Sequence[RegisteredConfiguration] | None,  # noqa: ARG002 - it writes none
    ) -> CertificateOffer:
        secret = await self._store.secret()
        what = f"Secret {self._store.secret_key}"
        if secret is None:
            advice = "create a cert-manager Certificate with this secretName"
            return CertificateOffer(None, f"{what} does not exist: {advice}")
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
        try:
            pair = TlsKeyPair(self._certificate.read_bytes(), self._key.read_bytes())
        except OSError as error:
            return CertificateOffer(None, f"{error.filename} cannot be read: {error.strerror}")
        return _offer(pair, f"{self._certificate} with {self._key}")


def _offer(pair: TlsKeyPair, what: str) -> CertificateOffer:
    fault = certificate_validity(pair).fault
    if fault:
        return CertificateOffer(None, f"{what} cannot be used: {fault}")
    return CertificateOffer(pair)
