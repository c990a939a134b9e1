"""Keeps the certificate in its Secret, and its authority in the webhook configuration.

Both lie in one Secret that all replicas share. Whoever finds none that will do makes one; of those
who do so at once the first wins, and the others take his. Then the authority is written into the
webhook configuration, so that the API server trusts it. A certificate that runs out, or lacks a
name, is made anew by the same authority: whoever still shows the old one stays trusted.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import ADMISSION_REGISTRATION, TLS_SECRET
from trainer_kai.api.resource import Resource
from trainer_kai.clock import Clock
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import ApiError, Conflict, NotFound, Unauthorized
from trainer_kai.kube.request import Write
from trainer_kai.settings import Tls
from webhook.certs import MARGIN, Pair, fault_of, make

__all__ = [
    "CONFIGURATIONS",
    "SECRETS",
    "Configuration",
    "Keeper",
    "Secret",
    "host_names",
    "pair_in",
    "publication",
]

_SOON_S: Final = 1.0
_RECHECK_S: Final = 15.0
_MANAGER: Final = "trainer-kai-webhook"
_FILES: Final = {
    "authority": "ca.crt",
    "authority_key": "ca.key",
    "certificate": "tls.crt",
    "key": "tls.key",
}


class Secret(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Secret."""

    metadata: Meta
    type: str = ""
    data: Mapping[str, str] = {}


class ClientConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How a webhook is called; of that only whom to trust."""

    ca_bundle: str = ""


class Webhook(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()


class Configuration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A MutatingWebhookConfiguration, or a validating one."""

    metadata: Meta
    webhooks: tuple[Webhook, ...] = ()


SECRETS: Final = Resource("", "v1", "secrets", "Secret", namespaced=True, struct=Secret)
CONFIGURATIONS: Final = tuple(
    Resource(
        ADMISSION_REGISTRATION,
        "v1",
        f"{kind.lower()}webhookconfigurations",
        f"{kind}WebhookConfiguration",
        namespaced=False,
        struct=Configuration,
    )
    for kind in ("Mutating", "Validating")
)


def host_names(settings: Tls, namespace: str) -> tuple[str, ...]:
    """Return every name by which the webhook may be called."""
    service = f"{settings.service_name}.{namespace}"
    names = (service, f"{service}.svc", f"{service}.svc.cluster.local", "localhost", "127.0.0.1")
    extra = (name.strip() for name in settings.extra_hosts.split(","))
    return tuple(dict.fromkeys((*names, *filter(None, extra))))


def pair_in(data: Mapping[str, str]) -> Pair | None:
    """Read what a Secret holds; None where something is missing or garbled."""
    try:
        parts = {part: base64.b64decode(data[file], validate=True) for part, file in _FILES.items()}
    except (KeyError, binascii.Error):
        return None
    return Pair(**parts)


def publication(found: Configuration, authority: bytes) -> list[dict[str, Any]]:
    """Return the operations that tell every webhook of a configuration whom to trust."""
    wanted = base64.b64encode(authority).decode()
    operations = []
    for number, webhook in enumerate(found.webhooks):
        if webhook.client_config.ca_bundle != wanted:
            path = f"/webhooks/{number}"
            operations += [
                {"op": "test", "path": f"{path}/name", "value": webhook.name},
                {"op": "add", "path": f"{path}/clientConfig/caBundle", "value": wanted},
            ]
    return operations


class Keeper:
    """Finds or makes the certificate, and sees to it that the API server trusts it."""

    def __init__(
        self, client: Client, settings: Tls, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        namespace = settings.namespace or client.access.namespace
        self._client = client
        self._clock = clock
        self._log = log
        self._hosts = host_names(settings, namespace)
        self._secret = Key(namespace, settings.secret_name)
        self._configuration = Key("", settings.configuration_name)
        self._loaded = "not yet"
        self._published = "not yet"

    def not_loaded(self) -> str:
        """Say why there is no certificate; for `Health.needs`."""
        return self._loaded

    def not_published(self) -> str:
        """Say why the API server does not trust us; for `Health.needs`."""
        return self._published

    async def obtain(self) -> Pair:
        """Return the certificate of the Secret, or put one there; wait until either can be done."""
        while True:
            try:
                pair = await self._obtain()
            except Unauthorized:
                raise
            except ApiError as error:
                if str(error) != self._loaded:
                    self._loaded = str(error)
                    self._log.warning("certificate not obtained", error=self._loaded)
                await self._clock.sleep(_SOON_S)
            else:
                if pair is not None:
                    self._loaded = ""
                    return pair

    async def publish(self, pair: Pair) -> None:
        """Keep the authority in the webhook configuration, for as long as the Secret holds it.

        It ends when the Secret holds another certificate: two replicas that each publish their own
        would take turns at being trusted. A process that is started anew shows the one of all.
        """
        while not await self._is_replaced(pair):
            trouble = await self._publish(pair.authority)
            if trouble and trouble != self._published:
                self._log.warning("authority not published", error=trouble)
            self._published = trouble
            await self._clock.sleep(_SOON_S if self._published else _RECHECK_S)

    async def _is_replaced(self, pair: Pair) -> bool:
        """Say whether the Secret holds another certificate; put ours back where it holds none."""
        try:
            found = await self._client.get(SECRETS, self._secret)
        except NotFound:
            await self._put_back(pair, None, "it was deleted")
            return False
        except Unauthorized:
            raise
        except ApiError:
            return False  # an outage replaces nothing
        there = pair_in(found.data)
        if there is None:
            await self._put_back(pair, found, "it cannot be read")
            return False
        if there.authority != pair.authority:
            self._log.warning("certificate replaced", secret_name=str(self._secret))
        return there.authority != pair.authority

    async def _put_back(self, pair: Pair, found: Secret | None, why: str) -> None:
        try:
            await self._write(pair, found, why)
        except Unauthorized:
            raise
        except ApiError as error:
            self._log.warning("certificate not put back", error=str(error))

    async def _obtain(self) -> Pair | None:
        """Try once; None where somebody else was faster."""
        now = self._clock.now()
        try:
            found = await self._client.get(SECRETS, self._secret)
        except NotFound:
            return await self._write(make(self._hosts, now), None, "there is none")
        pair = pair_in(found.data)
        why = fault_of(pair, self._hosts, now, MARGIN) if pair else "it cannot be read"
        if why is None:
            return pair
        return await self._write(make(self._hosts, now, pair), found, why)

    async def _write(self, pair: Pair, found: Secret | None, why: str) -> Pair | None:
        parts = pair._asdict()
        data = {file: base64.b64encode(parts[part]).decode() for part, file in _FILES.items()}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "data": data,
            "type": TLS_SECRET,
        }
        metadata = {"name": self._secret.name, "namespace": self._secret.namespace}
        write = Write(field_manager=_MANAGER)
        try:
            if found is None:
                body["metadata"] = metadata
                await self._client.create(SECRETS, self._secret.namespace, body, write)
            else:
                body["type"] = found.type  # which cannot change
                body["metadata"] = {
                    **metadata,
                    "resourceVersion": found.metadata.resource_version,
                    "labels": dict(found.metadata.labels),
                    "annotations": dict(found.metadata.annotations),
                }
                await self._client.replace(SECRETS, self._secret, body, write)
        except Conflict:
            return None
        self._log.info("certificate written", secret_name=str(self._secret), why=why)
        return pair

    async def _publish(self, authority: bytes) -> str:
        """Try once, in both configurations; return what is in the way."""
        return "; ".join(
            [trouble for kind in CONFIGURATIONS if (trouble := await self._tell(kind, authority))]
        )

    async def _tell(self, kind: Resource[Configuration], authority: bytes) -> str:
        try:
            found = await self._client.get(kind, self._configuration)
            operations = publication(found, authority)
            if operations:
                write = Write(field_manager=_MANAGER)
                await self._client.run_operations(kind, self._configuration, operations, write)
                self._log.info("authority published", configuration=str(kind))
        except Unauthorized:
            raise
        except NotFound as error:
            is_needed = kind is CONFIGURATIONS[0]  # without the other one nobody waits for us
            return f"{error}; are the manifests applied?" if is_needed else ""
        except ApiError as error:
            return str(error) if self._published else ""  # an outage makes nobody trust us less
        return ""
