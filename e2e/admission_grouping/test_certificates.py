"""Certificates on the real chain: whoever makes them, nobody waits for them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509

from e2e.admission_grouping.webhook_load import (
    ReviewLoad,
    certificate_shown_at,
    review_load,
    trusted_bundle,
)
from e2e.cluster.api import ApiError, retry_while_stale
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import patience, slowdown
from e2e.cluster.resources import (
    JOBSETS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Obj,
)
from e2e.cluster.trainjobs import Submission
from e2e.conftest import failed, make_namespace, next_name
from e2e.fixtures.dry_run import jobset_of
from e2e.fixtures.install import install
from e2e.fixtures.processes import NAMESPACE, WEBHOOK, ProductProcess, running, webhook_port
from webhook.tls.make import SecretContent, apply_step, parse_host
from webhook.tls.rotation_plan import CertificateLifetimes, RotationAction, RotationStep

_CONFIGURATIONS = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
NAME = "trainer-kai-webhook-tls"
DAY_S = 86_400


def quickly() -> dict[str, str]:
    """Return a life in a minute, and longer on a slow machine, which needs time for a change."""
    return {
        "TRAINER_KAI_TLS_CERTIFICATE_DAYS": f"{20 * slowdown() / DAY_S}",
        "TRAINER_KAI_TLS_AUTHORITY_DAYS": f"{44 * slowdown() / DAY_S}",
        "TRAINER_KAI_TLS_OVERLAP_S": f"{3 * slowdown()}",
        "TRAINER_KAI_TLS_CHECK_S": "0.5",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def certificates_cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Return a chain whose API server asks a webhook that is not there yet."""
    async with running_cluster(Options(name="test-certificates")) as certificates_cluster:
        await install(certificates_cluster, port=webhook_port(certificates_cluster))
        yield certificates_cluster
        if failed(request.config):
            certificates_cluster.keep_logs()


@pytest_asyncio.fixture(loop_scope="session")
async def own_namespace(certificates_cluster: Cluster) -> str:
    """Return a namespace of the test's own, where nothing of earlier tests is trusted."""
    with suppress(ApiError):
        await certificates_cluster.api.delete(SECRETS, NAMESPACE, NAME)
    await trust(certificates_cluster, "")
    name = next_name()
    await make_namespace(certificates_cluster, name)
    return name


async def test_both_are_rotated_under_load(
    certificates_cluster: Cluster, own_namespace: str, tmp_path: Path
) -> None:
    """Two replicas that begin at once make one certificate; no review fails until all is new."""
    other = certificates_cluster.free_port()
    ports = [webhook_port(certificates_cluster), other]
    async with replicas(
        certificates_cluster, tmp_path, quickly(), {"TRAINER_KAI_SERVER_PORT": f"{other}"}
    ):
        first = await certificate_shown_at(other)
        assert [await certificate_shown_at(port) for port in ports] == [first, first]
        owner = await owner_in(certificates_cluster, own_namespace)
        async with review_load(certificates_cluster, ports, 100) as load:
            asked = asyncio.create_task(asking_the_api_server(certificates_cluster, owner))
            certificates = await watched(certificates_cluster, load)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            rotation = [names(bundle) for bundle in load.bundles]

    (old,), (_, new), (last,) = rotation[:3]
    assert rotation[:3] == [(old,), (old, new), (new,)]
    assert last == new != old
    assert len(certificates) >= 3
    assert load.failures == []
    assert asked.cancelled(), asked
    assert min(load.answered.values()) > 500


async def test_an_expired_one_is_replaced(
    certificates_cluster: Cluster, own_namespace: str, tmp_path: Path
) -> None:
    """By the authority that is trusted; TrainJobs go on."""
    expired = made(datetime.now(UTC) - timedelta(days=400))
    await certificates_cluster.api.create(secret(expired))
    await trust(certificates_cluster, encoded(expired.authorities))

    async with replicas(certificates_cluster, tmp_path, {}):
        await owner_in(certificates_cluster, own_namespace)
        await certificates_cluster.until_found(JOBSETS, own_namespace, "job")
        shown = await certificate_shown_at(webhook_port(certificates_cluster))

    stored = await certificates_cluster.api.get(SECRETS, NAMESPACE, NAME)
    assert shown.encode() != expired.certificate
    assert stored["data"]["tls.crt"] == encoded(shown.encode())
    assert (
        stored["data"]["ca.crt"]
        == encoded(expired.authorities)
        == await trusted_bundle(certificates_cluster)
    )


async def test_what_cert_manager_writes_is_followed(
    certificates_cluster: Cluster, own_namespace: str, tmp_path: Path
) -> None:
    """Its Secret and its cainjector are played here; the process writes nothing at all."""
    first, second = made(), made()
    await certificates_cluster.api.create(secret(first))
    await trust(certificates_cluster, encoded(first.authorities))
    settings = {"TRAINER_KAI_TLS_SOURCE": "cert-manager", "TRAINER_KAI_TLS_CHECK_S": "0.5"}
    async with replicas(certificates_cluster, tmp_path, settings) as (process,):
        owner = await owner_in(certificates_cluster, own_namespace)
        before = await certificate_shown_at(webhook_port(certificates_cluster))
        await certificates_cluster.api.merge(
            SECRETS, NAMESPACE, NAME, {"data": secret(second)["data"]}
        )
        await trust(certificates_cluster, encoded(second.authorities))
        written = await versions(certificates_cluster)
        await until_shown(certificates_cluster, second)
        await process.ready()
        last = jobset_of(owner, "after")
        await retry_while_stale(
            lambda: certificates_cluster.api.create(last, dryRun="All"),
            "certificate signed by unknown authority",
        )

    assert before.encode() == first.certificate
    assert await versions(certificates_cluster) == written


async def test_files_are_followed(
    certificates_cluster: Cluster, own_namespace: str, tmp_path: Path
) -> None:
    """They are exchanged as a mounted Secret is; who is not trusted by them is not ready."""
    first, second = made(), made()
    for number, content in enumerate((first, second)):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "tls.crt").write_bytes(content.certificate)
        (tmp_path / f"{number}" / "tls.key").write_bytes(content.key)
    (tmp_path / "data").symlink_to("0")
    await trust(certificates_cluster, encoded(first.authorities + second.authorities))
    settings = {
        "TRAINER_KAI_TLS_SOURCE": "files",
        "TRAINER_KAI_TLS_CERTIFICATE_FILE": f"{tmp_path}/data/tls.crt",
        "TRAINER_KAI_TLS_KEY_FILE": f"{tmp_path}/data/tls.key",
        "TRAINER_KAI_TLS_CHECK_S": "0.5",
    }
    async with replicas(certificates_cluster, tmp_path, settings):
        before = await certificate_shown_at(webhook_port(certificates_cluster))
        (tmp_path / "next").symlink_to("1")
        (tmp_path / "next").rename(tmp_path / "data")
        await until_shown(certificates_cluster, second)
        owner = await owner_in(certificates_cluster, own_namespace)
        await certificates_cluster.api.create(jobset_of(owner, "after"), dryRun="All")

    assert before.encode() == first.certificate
    with pytest.raises(ApiError, match="404"):
        await certificates_cluster.api.get(SECRETS, NAMESPACE, NAME)


@asynccontextmanager
async def replicas(
    certificates_cluster: Cluster,
    folder: Path,
    settings: Mapping[str, str],
    *others: Mapping[str, str],
) -> AsyncIterator[list[ProductProcess]]:
    """Run replicas that begin at once; the first is the one that the API server asks."""
    whose: list[tuple[str, Mapping[str, str]]] = [("webhook", settings)]
    whose += [(f"webhook-{number}", {**settings, **more}) for number, more in enumerate(others, 2)]
    async with AsyncExitStack() as stack:
        started = (
            stack.enter_async_context(
                running(certificates_cluster, WEBHOOK._replace(name=name), folder, more)
            )
            for name, more in whose
        )
        yield list(await asyncio.gather(*started))


async def watched(certificates_cluster: Cluster, load: ReviewLoad) -> list[str]:
    """Return the certificates of the Secret, one after the other, until the authority is new."""
    seen: list[str] = []
    async with patience(90):
        while len(load.bundles) < 3 or len(seen) < 3:
            found = await certificates_cluster.api.get(SECRETS, NAMESPACE, NAME)
            if found["data"]["tls.crt"] not in seen:
                seen.append(found["data"]["tls.crt"])
            await asyncio.sleep(0.2)
    await asyncio.sleep(1)  # whoever would fail now would fail because of it
    return seen


async def asking_the_api_server(certificates_cluster: Cluster, owner: Obj) -> None:
    """Have it ask the webhook, which would refuse by being away; it ends only by a failure."""
    number = 0
    while True:
        number += 1
        shown = await certificates_cluster.api.create(
            jobset_of(owner, f"dry-{number}"), dryRun="All"
        )
        assert "trainer-kai.dev/admitted" in shown["metadata"]["annotations"]
        await asyncio.sleep(0.1)


async def owner_in(certificates_cluster: Cluster, namespace: str) -> Obj:
    """Return a TrainJob."""
    return await certificates_cluster.api.create(
        Submission("job", "torch-distributed", namespace, 1).trainjob()
    )


async def until_shown(certificates_cluster: Cluster, content: SecretContent) -> None:
    """Wait until a new connection gets this certificate."""
    async with patience(20):
        while (
            await certificate_shown_at(webhook_port(certificates_cluster))
        ).encode() != content.certificate:
            await asyncio.sleep(0.1)


async def versions(certificates_cluster: Cluster) -> list[str]:
    """Return which writes of the objects about certificates were the last."""
    secret_ = await certificates_cluster.api.get(SECRETS, NAMESPACE, NAME)
    found = [
        await certificates_cluster.api.get(kind, None, "kai-trainer") for kind in _CONFIGURATIONS
    ]
    return [it["metadata"]["resourceVersion"] for it in (secret_, *found)]


async def trust(certificates_cluster: Cluster, bundle: str) -> None:
    """Have the API server trust somebody, or nobody."""
    for kind in _CONFIGURATIONS:
        found = await certificates_cluster.api.get(kind, None, "kai-trainer")
        for webhook in found["webhooks"]:
            webhook["clientConfig"]["caBundle"] = bundle or None
        await certificates_cluster.api.merge(
            kind, None, "kai-trainer", {"webhooks": found["webhooks"]}
        )


def made(now: datetime | None = None) -> SecretContent:
    """Return a certificate of 90 days for loopback, with an authority of its own."""
    lives = CertificateLifetimes(timedelta(days=90), timedelta(days=3650))
    hosts = [parse_host("127.0.0.1"), parse_host(f"trainer-kai-webhook.{NAMESPACE}.svc")]
    return apply_step(
        RotationStep(RotationAction.REMAKE), None, hosts, lives, now or datetime.now(UTC)
    )


def secret(content: SecretContent) -> Obj:
    """Return a Secret that holds it."""
    names_ = ("tls.crt", "tls.key", "ca.crt", "ca.key")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "data": {name: encoded(pem) for name, pem in zip(names_, content, strict=False)},
    }


def names(bundle: str) -> tuple[int, ...]:
    """Return the serial numbers of the authorities of a bundle."""
    found = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    return tuple(it.serial_number for it in found)


def encoded(pem: bytes) -> str:
    """Return what stands in an object."""
    return base64.b64encode(pem).decode()
