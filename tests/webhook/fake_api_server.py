"""A fake API server with a Secret and webhook configurations, and replicas of the webhook."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.support.clock import VirtualClock
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import TlsSettings
from webhook.tls.certificate_store import CertificateStore, Secret, host_names, read_content
from webhook.tls.make import SecretContent
from webhook.tls.self_managed import SelfManagedCertificate
from webhook.tls.serving_certificate import CertificateSource, ServingCertificate
from webhook.tls.verify import verify_trust

SETTINGS = TlsSettings(namespace="ns", extra_hosts="10.0.0.7, other.example.org,")
HOSTS = host_names(SETTINGS, "ns")
HOST = "trainer-kai-webhook.ns.svc"
SECRET = "/api/v1/namespaces/ns/secrets"
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{_REGISTRATION}/mutatingwebhookconfigurations/kai-trainer"
VALIDATING = f"{_REGISTRATION}/validatingwebhookconfigurations/kai-trainer"
REASONS = {404: "NotFound", 409: "AlreadyExists", 422: "Invalid", 403: "Forbidden"}
DAY_S: Final = 86_400


class FakeApiServer:
    """A transport, and the objects behind it."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.configurations: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.fail_status: int | None = None
        self.fail_writes_status: int | None = None
        self.before_request: Callable[[Request], None] = lambda _: None
        self.replicas: list[Replica] = []
        self._version = 0

    # What is there

    @property
    def content(self) -> SecretContent:
        assert self.secret is not None
        metadata: Any = {}
        found = read_content(Secret(metadata=metadata, data=self.secret["data"]))
        assert found is not None
        return found

    def put_content(self, content: SecretContent) -> None:
        names = ("tls.crt", "tls.key", "ca.crt", "ca.key", "next.key")
        data = {name: encoded(pem) for name, pem in zip(names, content, strict=True) if pem}
        self.put_secret({"type": "kubernetes.io/tls", "data": data})

    def put_secret(self, fields: dict[str, Any]) -> None:
        metadata = {**fields.get("metadata", {}), "resourceVersion": self._next_version()}
        self.secret = {**fields, "metadata": metadata}

    def configure(self, *bundles: str, path: str = MUTATING, host: str = HOST) -> None:
        name, namespace = host.split(".")[:2]
        service = {"name": name, "namespace": namespace}
        webhooks = [
            {"name": f"w{number}", "clientConfig": {"service": service, "caBundle": bundle}}
            for number, bundle in enumerate(bundles)
        ]
        metadata = {"name": "kai-trainer", "resourceVersion": self._next_version()}
        self.configurations[path] = {"metadata": metadata, "webhooks": webhooks}

    def bundles(self, path: str = MUTATING) -> set[str]:
        """Return the authorities that the API server trusts."""
        webhooks = self.configurations[path]["webhooks"]
        return {webhook["clientConfig"]["caBundle"] for webhook in webhooks}

    def publish(self, bundle: str, path: str = MUTATING) -> None:
        for webhook in self.configurations[path]["webhooks"]:
            webhook["clientConfig"]["caBundle"] = bundle
        self.configurations[path]["metadata"]["resourceVersion"] = self._next_version()

    def writes(self) -> list[str]:
        return [it for it in self.requests if not it.startswith("GET ")]

    # The wire

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        assert timeout_s > 0
        self.requests.append(str(request))
        self.before_request(request)
        await asyncio.sleep(0)
        refused = self.fail_status or (self.fail_writes_status if request.method != "GET" else None)
        if refused:
            return _error_answer(refused)
        body = json.loads(request.body or b"null")
        if request.path.startswith(_REGISTRATION):
            return self._configuration_answer(request, body)
        if request.method != "GET":
            there = self.secret["metadata"]["resourceVersion"] if self.secret else None
            if body["metadata"].get("resourceVersion") != there:
                return _error_answer(409)
            self.put_secret(body)
        return _object_answer(self.secret)

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError(request, silence_s)

    async def close(self) -> None: ...

    def _configuration_answer(self, request: Request, body: Any) -> ApiResponse:
        found = self.configurations.get(request.path)
        if request.method == "PATCH" and found is not None:
            for operation in body:
                if operation["op"] == "test":
                    assert operation["path"] == "/metadata/resourceVersion"
                    if operation["value"] != found["metadata"]["resourceVersion"]:
                        return _error_answer(422)
                    continue
                _, _, number, *rest = operation["path"].split("/")
                assert rest == ["clientConfig", "caBundle"]
                found["webhooks"][int(number)]["clientConfig"]["caBundle"] = operation["value"]
            found["metadata"]["resourceVersion"] = self._next_version()
        return _object_answer(found)

    def _next_version(self) -> str:
        self._version += 1
        return f"{self._version}"


class Replica:
    """A replica of the webhook, as far as its certificate goes."""

    def __init__(
        self,
        api_server: FakeApiServer,
        clock: VirtualClock,
        settings: TlsSettings = SETTINGS,
        source: Callable[[CertificateStore], CertificateSource] | None = None,
    ) -> None:
        access = RestConfig("https://nowhere", StaticToken(""), namespace="ours")
        certificate_store = CertificateStore(
            Client(access, api_server, clock, NoRequestObserver()), settings
        )
        log = logger(__name__)
        made = (
            source(certificate_store)
            if source
            else SelfManagedCertificate(certificate_store, settings, clock, log)
        )
        self.metrics: Final = Metrics()
        self.certificate: Final = ServingCertificate(
            made, certificate_store, settings, clock, self.metrics, log
        )
        self._clock = clock
        self._api_server = api_server
        self._task: asyncio.Task[None] | None = None

    def run(self) -> "Replica":
        async def run() -> None:
            await self.certificate.wait_until_loaded()
            await self.certificate.run()

        self._task = asyncio.create_task(run())
        self._api_server.replicas.append(self)
        return self

    async def start(self) -> "Replica":
        """Begin, and have it do what it can at once and a second later."""
        self.run()
        await self._clock.advance(1)
        return self

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def task(self) -> "asyncio.Task[None]":
        assert self._task is not None
        return self._task

    @property
    def shown_certificate(self) -> bytes:
        assert self.certificate.tls.pair is not None
        return self.certificate.tls.pair.certificate

    @property
    def unready(self) -> dict[str, str]:
        certificate = self.certificate
        why = {
            "loaded": certificate.not_loaded_reason(),
            "trusted": certificate.not_trusted_reason(),
            "valid": certificate.not_valid_reason(),
        }
        return {name: it for name, it in why.items() if it}

    def is_trusted(self, path: str = MUTATING) -> bool:
        """Say whether the API server trusts what it shows, now."""
        pair = self.certificate.tls.pair
        assert pair is not None
        found = [verify_trust(bundle, pair, HOST) for bundle in self._api_server.bundles(path)]
        return all(it.until is not None and self._clock.now() < it.until for it in found)

    def metric(self, name: str, **labels: str) -> float | None:
        found: float | None = self.metrics.registry.get_sample_value(
            f"trainer_kai_admission_{name}", labels
        )
        return found


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def short_lived(**settings: Any) -> TlsSettings:
    usual = {"certificate_days": 600 / DAY_S, "authority_days": 3000 / DAY_S}
    return SETTINGS.model_copy(update={**usual, "overlap_s": 60.0, "check_s": 5.0, **settings})


def _object_answer(obj: dict[str, Any] | None) -> ApiResponse:
    return _error_answer(404) if obj is None else ApiResponse(200, json.dumps(obj).encode())


def _error_answer(status: int) -> ApiResponse:
    body = {"kind": "Status", "code": status, "reason": REASONS.get(status, ""), "message": "no"}
    return ApiResponse(status, json.dumps(body).encode())
