"""Carries out what `rotation` decides: the Secret of all replicas, and who is told its authorities.

Whoever is first wins, and the others take what he wrote. What is not ours is never overwritten: not
a Secret of somebody else, not the webhooks of another Service. Where somebody else keeps writing to
what we keep, we stop for a while after a few times and say so, for else both would go on for ever.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from trainer_kai.clock import Clock
from trainer_kai.kube.errors import Conflict
from trainer_kai.settings import Tls
from webhook.certs import Content, carry_out, named_in
from webhook.keeper import Offer
from webhook.rotation import NOT_THERE, Do, Held, Lives, Published, Step, next_step
from webhook.stored import Asked, Secret, Stored, content_in, host_names, publication, stranger
from webhook.trust import look

__all__ = ["SelfManaged"]

_TURNS: Final = 3  # so often what somebody else wrote is replaced,
_FORGOTTEN_S: Final = 3600.0  # within such a time: who has stopped since is no contestant


class _Since(NamedTuple):
    """What has been published everywhere, beside which certificate, and since when."""

    what: tuple[bytes, bytes]
    at_s: float


class SelfManaged:
    """A certificate that we make ourselves."""

    def __init__(
        self, stored: Stored, settings: Tls, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._stored = stored
        self._clock = clock
        self._log = log
        self._hosts = host_names(settings, stored.namespace)
        self._lives = Lives(
            timedelta(days=settings.certificate_days), timedelta(days=settings.authority_days)
        )
        self._overlap_s = settings.overlap_s
        self._good: Content | None = None  # the last that could be shown
        self._wrote: Content | None = None
        self._blamed: Content | None = None
        self._since: _Since | None = None
        self._told: dict[str, bytes] = {}  # what each configuration was told or seen to have
        self._lost: dict[str, list[float]] = {}  # when somebody else replaced what we wrote

    async def turn(self, asked: Sequence[Asked] | None) -> Offer:
        """Take one step, and return the certificate of the Secret."""
        found = await self._stored.secret()
        strange = stranger(found) if found else ""
        if strange:
            advice = "name another one by tls.secret_name, or say by tls.source whose it is"
            return Offer(None, f"Secret {self._stored.secret_key} is not ours: {strange}; {advice}")
        content = content_in(found) if found else None
        held = look(content, self._hosts) if content else NOT_THERE
        now = self._clock.now()
        if content and not held.unusable(now):
            self._good = content
        step = next_step(held, self._published(content, asked), now, self._lives)
        if step.do is Do.PUBLISH and content and asked:
            return await self._publish(content, asked)
        if content and step.do in (Do.NOTHING, Do.WAIT, Do.PUBLISH):
            return Offer(content.pair)
        if content and held.unusable(now) and self._is_contested(content):
            what = f"Secret {self._stored.secret_key} is written by somebody else, too"
            advice = "is there another installation, or a clock that is wrong?"
            return Offer(None, f"{what}, and what he wrote will not do: {step.why}; {advice}")
        return await self._write(step, self._next(step, content, held), found)

    def _next(self, step: Step, content: Content | None, held: Held) -> Content:
        """Return what the Secret is to hold: what all show, where it was lost, or something new."""
        now, hosts = self._clock.now(), self._hosts
        if self._good and held.unusable(now):
            good = look(self._good, hosts)
            if not good.unusable(now) and held.of(good.signer) is None:
                return self._good
        if content and held.missing:  # whoever needs the other names would write them back
            also = named_in(content.certificate)
            hosts = (*hosts, *sorted(also - set(hosts), key=str))
        return carry_out(step, content, hosts, self._lives, now)

    async def _write(self, step: Step, content: Content, found: Secret | None) -> Offer:
        """Write it; it is shown when it is read again, whoever wrote it in the end."""
        try:
            await self._stored.write(content, found)
        except Conflict:
            return Offer(None, again=True)
        self._wrote, self._blamed = content, None
        said = {"step": step.do.value, "why": step.why}
        self._log.info("certificate written", secret_name=str(self._stored.secret_key), **said)
        return Offer(None, again=True)

    async def _publish(self, content: Content, asked: Sequence[Asked]) -> Offer:
        """Tell the configurations whom to trust."""
        trouble = ""
        for one in asked:
            operations = publication(one, content.authorities, self._hosts)
            if one.names_somebody and self._is_losing(str(one)):
                advice = "stop that, or name another one by tls.configuration_name"
                trouble = f"somebody else writes another authority into {one}: {advice}"
            elif operations:
                await self._stored.publish(one, operations)
                self._told[str(one)] = content.authorities
                self._log.info("authority published", configuration=str(one))
        return Offer(content.pair, trouble, again=not trouble)

    def _published(self, content: Content | None, asked: Sequence[Asked] | None) -> Published:
        """Say how far the authorities have come, and note who replaced them."""
        if content is None or not asked:
            self._since = None
            return Published(everywhere=False, settled=False)
        lacking = [it for it in asked if publication(it, content.authorities, self._hosts)]
        for one in asked:
            name = str(one)
            if one not in lacking:
                self._told[name] = content.authorities
            elif self._told.pop(name, b"") == content.authorities and one.names_somebody:
                self._lose(name)
        what = content.authorities, content.certificate
        now_s = self._clock.monotonic_s()
        if lacking:
            self._since = None
        elif self._since is None or self._since.what != what:
            self._since = _Since(what, now_s)
        since_s = self._since.at_s if self._since else now_s
        return Published(not lacking, now_s - since_s >= self._overlap_s)

    def _is_contested(self, content: Content) -> bool:
        """Say whether what we wrote was replaced too often by what will not do."""
        if self._wrote is not None and content not in (self._wrote, self._blamed):
            self._lose("Secret")
            self._blamed = content
        return self._is_losing("Secret")

    def _lose(self, name: str) -> None:
        self._lost.setdefault(name, []).append(self._clock.monotonic_s())

    def _is_losing(self, name: str) -> bool:
        """Say whether what we wrote was replaced too often of late."""
        since_s = self._clock.monotonic_s() - _FORGOTTEN_S
        self._lost[name] = [at_s for at_s in self._lost.get(name, ()) if at_s > since_s]
        return len(self._lost[name]) > _TURNS
