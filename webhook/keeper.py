"""Shows the certificate that a source offers as soon as API servers trust it, and says how it is.

Where the certificate comes from is the business of a `Source`. A new one is shown when every
webhook configuration trusts it, or when there is nothing better to show.
"""

import random
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from trainer_kai.clock import Clock
from trainer_kai.kube.errors import ApiError, Unauthorized
from trainer_kai.metrics import Metrics
from trainer_kai.settings import Tls
from webhook.certs import Pair
from webhook.stored import Asked, Stored
from webhook.trust import Shown, Valid, trust, valid

__all__ = ["Keeper", "Offer", "Source"]

_SOON_S: Final = 1.0
_JITTER: Final = 0.2
_DATE: Final = "%Y-%m-%d %H:%M:%S"
_LAST: Final = timedelta(minutes=5)  # clocks may be apart by so much


class Offer(NamedTuple):
    """What a source has."""

    pair: Pair | None
    trouble: str = ""  # why there is none, or why it cannot be kept up
    again: bool = False  # something was changed: look again soon


class Source(Protocol):
    """Where a certificate comes from."""

    async def turn(self, asked: Sequence[Asked] | None) -> Offer:
        """Do what is next, and return what there is.

        *asked* are the configurations as they were before; None where they cannot be read.
        """
        ...


class _Trusted(NamedTuple):
    """What API servers make of a certificate."""

    why_not: str
    until: datetime | None = None  # None: nobody here knows


class Keeper:
    """Sees to it that a server shows what API servers trust."""

    def __init__(
        self,
        source: Source,
        stored: Stored,
        settings: Tls,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self.shown: Final = Shown()
        self._source = source
        self._stored = stored
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._trouble = "not yet"
        self._clients = ""  # the authorities of clients, as they were read last
        self._trusted = _Trusted("not yet")
        self._told = ""
        self._valid = Valid()
        self._measured: set[str] = set()

    def not_loaded(self) -> str:
        """Say why there is no certificate; for `Health.needs`."""
        return "" if self.shown.pair else self._trouble

    def not_trusted(self) -> str:
        """Say why API servers do not trust it; for `Health.needs`."""
        return self._trusted.why_not

    def not_valid(self) -> str:
        """Say that it has ended, or will before an API server asks whose clock is ahead."""
        if self.shown.pair is None:
            return ""
        begins, ends, _ = self._valid
        ends = min(ends, self._trusted.until or ends)
        if begins <= self._clock.now() < ends - min(_LAST, (ends - begins) / 20):
            return ""
        return f"it can be used from {begins:{_DATE}} until {ends:{_DATE}}"

    async def begin(self) -> None:
        """Wait until there is a certificate to show."""
        while True:
            await self._turn()
            if self.shown.pair is not None:
                return
            await self._clock.sleep(_SOON_S)

    async def run(self) -> None:
        """Keep it up from now on."""
        every_s = self._settings.check_s
        while True:
            is_soon = await self._turn()
            spread = 1 + _JITTER * (random.random() - 0.5)  # noqa: S311 - so that replicas do not ask together
            await self._clock.sleep(min(_SOON_S, every_s) if is_soon else every_s * spread)

    async def _turn(self) -> bool:
        """Look at everything once; say whether to do so again soon."""
        asked, blind = await self._read_configurations()
        offer = await self._read_source(asked)
        fault = self._read_clients()
        knows_clients = bool(self._clients) or not fault
        waits = knows_clients and self._consider(offer.pair, asked)
        self._trusted = self._judge(asked, blind)
        self._measure(asked)
        self._tell(fault or offer.trouble)
        return offer.again or waits or bool(self._trusted.why_not)

    async def _read_configurations(self) -> tuple[list[Asked] | None, str]:
        """Read them before the Secret is read: so what is published is never newer than that."""
        try:
            return await self._stored.configurations(), ""
        except Unauthorized:
            raise
        except ApiError as error:
            return None, str(error)

    async def _read_source(self, asked: list[Asked] | None) -> Offer:
        try:
            return await self._source.turn(asked)
        except Unauthorized:
            raise
        except ApiError as error:
            return Offer(None, str(error))

    def _read_clients(self) -> str:
        """Let only those in whom a file names, if one is set; say what is wrong with it.

        Until it was read once nothing is shown, and later what was read last holds.
        """
        path = self._settings.client_ca_file
        if not path:
            return ""
        try:
            authorities = Path(path).read_text(encoding="ascii")
            if authorities != self._clients:
                self.shown.ask_clients(authorities)
                self._clients = authorities
        except (ssl.SSLError, ValueError):
            return f"tls.client_ca_file: {path} has no certificate in PEM"
        except OSError as error:
            return f"tls.client_ca_file: {path} cannot be read: {error.strerror}"
        return ""

    def _consider(self, pair: Pair | None, asked: list[Asked] | None) -> bool:
        """Show a new certificate, if it is time to; say whether it waits to be trusted."""
        if pair is None or pair == self.shown.pair:
            return False
        now, new = self._clock.now(), valid(pair)
        if self.shown.pair is not None and self._valid.at(now):
            before = self._trusted_by(self.shown.pair, asked or ())
            after = self._trusted_by(pair, asked or ())
            if not before.why_not and (after.why_not or not new.at(now)):
                return True
        self.shown.show(pair)
        self._valid = new
        self._log.info("certificate shown", valid_until=f"{new.ends:{_DATE}}")
        return False

    def _judge(self, asked: list[Asked] | None, blind: str) -> _Trusted:
        if self.shown.pair is None:
            return _Trusted("there is no certificate yet")
        is_ours_to_know = self._settings.source != "files"
        if asked is None:  # an outage makes nobody trust us less
            known = self._trusted.until is not None or not is_ours_to_know
            return self._trusted._replace(why_not="") if known else _Trusted(blind)
        if not asked and is_ours_to_know:
            name = self._settings.configuration_name
            return _Trusted(f"there is no webhook configuration {name}; are the manifests applied?")
        return self._trusted_by(self.shown.pair, asked)

    def _measure(self, asked: list[Asked] | None) -> None:
        if self.shown.pair is None:
            return
        expires = self._metrics.admission_certificate_expires_timestamp_seconds
        expires.labels("certificate").set(self._valid.ends.timestamp())
        if asked is None:  # what was known goes on, as for readiness
            return
        until = self._trusted.until
        if until is not None or self._trusted.why_not:
            expires.labels("authority").set(until.timestamp() if until else 0)
        else:
            with suppress(KeyError):
                expires.remove("authority")
        trusted = {str(it): not self._trusted_by(self.shown.pair, [it]).why_not for it in asked}
        self._measured |= trusted.keys()
        for name in self._measured:  # who was deleted trusts nobody
            self._metrics.admission_certificate_trusted.labels(name).set(trusted.get(name, False))

    def _tell(self, trouble: str) -> None:
        """Write down what is wrong, once."""
        if trouble and trouble != self._trouble:
            self._log.warning("certificate not kept up", error=trouble)
        self._trouble = trouble
        why_not = self._trusted.why_not
        if why_not and why_not != self._told and self.shown.pair is not None:
            self._log.warning("certificate not trusted", error=why_not)
        self._told = why_not

    def _trusted_by(self, pair: Pair, asked: Sequence[Asked]) -> _Trusted:
        """Say whether all of these configurations trust a certificate."""
        until: datetime | None = None
        for one in asked:
            for webhook in one.webhooks:
                called = webhook.client_config
                where = f"webhook {webhook.name} of {one}"
                if not called.ca_bundle and self._settings.source == "files":
                    continue  # then the authorities of the machine count, which nobody here knows
                if not called.ca_bundle:
                    return _Trusted(f"{where} names no authority yet")
                found = trust(called.ca_bundle, pair, called.host)
                if found.until is None:
                    return _Trusted(f"{where} calls {called.host}: {found.why_not}")
                if found.until <= self._clock.now():
                    return _Trusted(f"{where} trusts an authority that has ended")
                until = min(until, found.until) if until else found.until
        return _Trusted("", until)
