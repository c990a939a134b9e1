"""Reads and writes the Secret and the webhook configurations; never over a newer version."""

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import ADMISSION_REGISTRATION, CERT_MANAGER_PREFIX, TLS_SECRET
from trainer_kai.api.resources import Resource
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.request import WriteOptions
from trainer_kai.kube.rest.response import NotFound
from trainer_kai.service.settings import TlsSettings
from webhook.tls.make import CertificateHost, SecretContent, TlsKeyPair, parse_host

_FIELD_MANAGER: Final = "trainer-kai-webhook"
_DATA_KEYS: Final = {
    "certificate": "tls.crt",
    "key": "tls.key",
    "authorities": "ca.crt",
    "authority_key": "ca.key",
    "next_key": "next.key",
}
_OPTIONAL_FIELDS: Final = {"authority_key", "next_key"}


class Secret(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    type: str = ""
    data: Mapping[str, str] = {}


class Service(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str = ""
    namespace: str = ""


class ClientConfig(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    ca_bundle: str = ""
    service: Service | None = None
    url: str = ""

    @property
    def host(self) -> str:
        if self.service is not None:
            return f"{self.service.name}.{self.service.namespace}.svc"
        return urlsplit(self.url).hostname or ""


class Webhook(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
        struct=WebhookConfiguration,
    )
    for kind in ("Mutating", "Validating")
)


class RegisteredConfiguration(NamedTuple):
    resource: Resource[WebhookConfiguration]
    configuration: WebhookConfiguration

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.configuration.metadata.name}"

    @property
    def webhooks(self) -> tuple[Webhook, ...]:
        return self.configuration.webhooks

    @property
    def has_ca_bundle(self) -> bool:
        return any(webhook.client_config.ca_bundle for webhook in self.webhooks)


def host_names(settings: TlsSettings, namespace: str) -> tuple[CertificateHost, ...]:
    service = f"{settings.service_name}.{namespace}"
    names = (f"{service}.svc", service, f"{service}.svc.cluster.local", "localhost", "127.0.0.1")
    extra = (name.strip() for name in settings.extra_hosts.split(","))
    return tuple(dict.fromkeys(map(parse_host, (*names, *filter(None, extra)))))


def read_content(secret: Secret) -> SecretContent | None:
    """Read the content of a Secret; None if a part is missing or invalid."""
    data = secret.data
    try:
        parts = {
            part: base64.b64decode(data.get(file, "") if part in _OPTIONAL_FIELDS else data[file])
            for part, file in _DATA_KEYS.items()
        }
    except (KeyError, binascii.Error):
        return None
    return SecretContent(**parts) if parts["certificate"] else None


def read_pair(secret: Secret) -> TlsKeyPair:
    parts = (base64.b64decode(secret.data.get(name, "")) for name in ("tls.crt", "tls.key"))
    return TlsKeyPair(*parts)


def foreign_reason(secret: Secret) -> str:
    """Say why a Secret belongs to another program; "" if it is ours."""
    data = secret.data
    foreign = sorted(data.keys() - _DATA_KEYS.values())
    if foreign:
        return f"it has the keys {', '.join(foreign)}"
    if any(name.startswith(CERT_MANAGER_PREFIX) for name in secret.metadata.annotations):
        return "it has annotations of cert-manager"
    if data.get("tls.crt") and "ca.key" not in data:
        return "it has a certificate and no ca.key"
    return ""


def ca_bundle_patch(
    configuration: RegisteredConfiguration, authorities: bytes, hosts: Collection[CertificateHost]
) -> list[dict[str, Any]]:
    """Return the operations that write the authorities into our webhooks.

    They fail on any other version of the configuration, so that a slow replica does not write older
    authorities over newer ones.
    """
    wanted = base64.b64encode(authorities).decode()
    writes = [
        {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": wanted}
        for number, webhook in enumerate(configuration.webhooks)
        if webhook.client_config.ca_bundle != wanted
        and parse_host(webhook.client_config.host) in hosts
    ]
    version = configuration.configuration.metadata.resource_version
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return [test, *writes] if writes else []


class CertificateStore:
    def __init__(self, client: Client, settings: TlsSettings) -> None:
        self.namespace = settings.namespace or client.rest_config.namespace
        self.secret_key = Key(self.namespace, settings.secret_name)
        self._client = client
        self._name = settings.configuration_name

    async def configurations(self) -> list[RegisteredConfiguration]:
        configurations = []
        for resource in CONFIGURATIONS:
            try:
                configuration = await self._client.get(resource, Key("", self._name))
            except NotFound:
                continue
            configurations.append(RegisteredConfiguration(resource, configuration))
        return configurations

    async def secret(self) -> Secret | None:
        try:
            return await self._client.get(SECRETS, self.secret_key)
        except NotFound:
            return None

    async def write(self, content: SecretContent, old: Secret | None) -> None:
        """Write the Secret; raise `Conflict` if another client wrote it in the meantime."""
        files = {file: getattr(content, part) for part, file in _DATA_KEYS.items()}
        if not content.next_key:
            del files[_DATA_KEYS["next_key"]]
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": old.type if old else TLS_SECRET,  # the type is immutable
            "metadata": {"name": self.secret_key.name, "namespace": self.secret_key.namespace},
            "data": {name: base64.b64encode(pem).decode() for name, pem in files.items()},
        }
        write = WriteOptions(field_manager=_FIELD_MANAGER)
        if old is None:
            await self._client.create(SECRETS, self.secret_key.namespace, body, write)
            return
        body["metadata"] |= {
            "resourceVersion": old.metadata.resource_version,
            "labels": dict(old.metadata.labels),
            "annotations": dict(old.metadata.annotations),
            "ownerReferences": msgspec.to_builtins(old.metadata.owner_references),
            "finalizers": list(old.metadata.finalizers),
        }
        await self._client.replace(SECRETS, self.secret_key, body, write)

    async def publish(
        self, configuration: RegisteredConfiguration, operations: Sequence[Mapping[str, Any]]
    ) -> None:
        key = Key("", configuration.configuration.metadata.name)
        write = WriteOptions(field_manager=_FIELD_MANAGER)
        await self._client.json_patch(configuration.resource, key, operations, write)
