"""The self-managed certificate: takes the steps of `rotation_plan` on Secret and configurations.

The first replica that writes wins, and the others use its result. A Secret or a webhook of another
service is never overwritten. If another client overwrites our writes repeatedly, we stop writing
for a while and report it; otherwise both would write for ever.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from trainer_kai.kube.rest.response import Conflict
from trainer_kai.service.clock import Clock
from trainer_kai.service.settings import TlsSettings
from webhook.tls.certificate_store import (
    CertificateStore,
    RegisteredConfiguration,
    Secret,
    ca_bundle_patch,
    foreign_reason,
    host_names,
    read_content,
)
from webhook.tls.make import SecretContent, apply_step, hosts_in
from webhook.tls.rotation_plan import (
    NO_SECRET,
    CertificateLifetimes,
    PublicationState,
    RotationAction,
    RotationStep,
    SecretState,
    next_step,
)
from webhook.tls.serving_certificate import CertificateOffer
from webhook.tls.verify import inspect_content

_WITHOUT_WRITE: Final = (RotationAction.NOTHING, RotationAction.WAIT, RotationAction.PUBLISH)
_MAX_OVERWRITES: Final = 3  # times that we replace the write of another client
_OVERWRITE_WINDOW_S: Final = 3600.0  # within this time


class _PublishedSince(NamedTuple):
    """Authorities and certificate that are published everywhere, and the time since then."""

    published: tuple[bytes, bytes]
    at_s: float


class SelfManagedCertificate:
    def __init__(
        self,
        certificate_store: CertificateStore,
        settings: TlsSettings,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = certificate_store
        self._clock = clock
        self._log = log
        self._hosts = host_names(settings, certificate_store.namespace)
        self._lifetimes = CertificateLifetimes(
            timedelta(days=settings.certificate_days), timedelta(days=settings.authority_days)
        )
        self._overlap_s = settings.overlap_s
        self._last_usable: SecretContent | None = None  # the last content that could be used
        self._written: SecretContent | None = None
        self._contested: SecretContent | None = None
        self._published_since: _PublishedSince | None = None
        self._published_authorities: dict[str, bytes] = {}  # by configuration, as last read
        self._overwritten_at: dict[str, list[float]] = {}  # the times at which another client did

    async def reconcile(
        self, configurations: Sequence[RegisteredConfiguration] | None
    ) -> CertificateOffer:
        secret = await self._store.secret()
        foreign = foreign_reason(secret) if secret else ""
        if foreign:
            advice = "name another Secret in tls.secret_name, or set tls.source to its source"
            what = f"Secret {self._store.secret_key} belongs to another program"
            return CertificateOffer(None, f"{what}: {foreign}. {advice}")
        content = read_content(secret) if secret else None
        state = inspect_content(content, self._hosts) if content else NO_SECRET
        now = self._clock.now()
        if content and not state.unusable_reason(now):
            self._last_usable = content
        published = self._publication_state(content, configurations)
        step = next_step(state, published, now, self._lifetimes)
        if step.action is RotationAction.PUBLISH and content and configurations:
            return await self._publish(content, configurations)
        if content and step.action in _WITHOUT_WRITE:
            return CertificateOffer(content.pair)
        if content and state.unusable_reason(now) and self._is_contested(content):
            what = f"another client overwrites Secret {self._store.secret_key}"
            what += f" with a certificate that cannot be used: {step.reason}"
            advice = "check for another installation with this Secret, and for a wrong clock"
            return CertificateOffer(None, f"{what}. {advice}")
        return await self._write(step, self._next_content(step, content, state), secret)

    def _next_content(
        self, step: RotationStep, content: SecretContent | None, state: SecretState
    ) -> SecretContent:
        """Return the content for the Secret: the one that replicas show, or a new one."""
        now, hosts = self._clock.now(), self._hosts
        if self._last_usable and state.unusable_reason(now):
            last_usable_state = inspect_content(self._last_usable, hosts)
            is_usable = not last_usable_state.unusable_reason(now)
            if is_usable and state.authority_by_id(last_usable_state.signer) is None:
                return self._last_usable
        if content and state.missing:  # another replica may need the other names
            also = hosts_in(content.certificate)
            hosts = (*hosts, *sorted(also - set(hosts), key=str))
        return apply_step(step, content, hosts, self._lifetimes, now)

    async def _write(
        self, step: RotationStep, content: SecretContent, secret: Secret | None
    ) -> CertificateOffer:
        """Write the Secret; its certificate is used once it is read again."""
        try:
            await self._store.write(content, secret)
        except Conflict:
            return CertificateOffer(None, retry_soon=True)
        self._written, self._contested = content, None
        fields = {"step": step.action.value, "why": step.reason}
        self._log.info("certificate written", secret_name=str(self._store.secret_key), **fields)
        return CertificateOffer(None, retry_soon=True)

    async def _publish(
        self, content: SecretContent, configurations: Sequence[RegisteredConfiguration]
    ) -> CertificateOffer:
        problem = ""
        for configuration in configurations:
            operations = ca_bundle_patch(configuration, content.authorities, self._hosts)
            if configuration.has_ca_bundle and self._is_overwritten_often(str(configuration)):
                advice = "stop that client, or name another configuration in tls.configuration_name"
                problem = f"another client overwrites the caBundle of {configuration}. {advice}"
            elif operations:
                await self._store.publish(configuration, operations)
                self._published_authorities[str(configuration)] = content.authorities
                self._log.info("authority published", configuration=str(configuration))
        return CertificateOffer(content.pair, problem, retry_soon=not problem)

    def _publication_state(
        self,
        content: SecretContent | None,
        configurations: Sequence[RegisteredConfiguration] | None,
    ) -> PublicationState:
        """Return whether the authorities are published, and note overwrites by other clients."""
        if content is None or not configurations:
            self._published_since = None
            return PublicationState(everywhere=False, settled=False)
        unpublished = [
            it for it in configurations if ca_bundle_patch(it, content.authorities, self._hosts)
        ]
        for configuration in configurations:
            name = str(configuration)
            if configuration not in unpublished:
                self._published_authorities[name] = content.authorities
                continue
            was_published = self._published_authorities.pop(name, b"") == content.authorities
            if was_published and configuration.has_ca_bundle:
                self._note_overwrite(name)
        published = content.authorities, content.certificate
        now_s = self._clock.monotonic_s()
        if unpublished:
            self._published_since = None
        elif self._published_since is None or self._published_since.published != published:
            self._published_since = _PublishedSince(published, now_s)
        since_s = self._published_since.at_s if self._published_since else now_s
        return PublicationState(not unpublished, now_s - since_s >= self._overlap_s)

    def _is_contested(self, content: SecretContent) -> bool:
        """Say whether another client replaced our Secret too often by an unusable one."""
        if self._written is not None and content not in (self._written, self._contested):
            self._note_overwrite("Secret")
            self._contested = content
        return self._is_overwritten_often("Secret")

    def _note_overwrite(self, name: str) -> None:
        self._overwritten_at.setdefault(name, []).append(self._clock.monotonic_s())

    def _is_overwritten_often(self, name: str) -> bool:
        since_s = self._clock.monotonic_s() - _OVERWRITE_WINDOW_S
        recent = [at_s for at_s in self._overwritten_at.get(name, ()) if at_s > since_s]
        self._overwritten_at[name] = recent
        return len(recent) > _MAX_OVERWRITES
