"""What people are told whose address, authority, credentials or rights cannot work.

One line each, with what to do; the same from the client of a process and from that of a command.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from e2e.cluster.certificates import Authority, KeyPair
from e2e.cluster.cluster import Cluster
from e2e.cluster.commands import kubeconfig_path
from e2e.cluster.resources import SERVICE_ACCOUNTS
from e2e.fixtures.product_client import CONFIG_MAPS, client_of
from trainer_kai.errors import ConfigError, TrainerKaiError
from trainer_kai.kube.client import Client, RetryPolicy, command_client
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import Forbidden, Unauthorized, Unavailable

Kubeconfig: TypeAlias = dict[str, Any]
Connect: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def _command(kubeconfig: Path) -> AsyncIterator[Client]:
    async with command_client(kubeconfig=str(kubeconfig)) as client:
        yield client


BOTH: Final = pytest.mark.parametrize(
    "connect", [client_of, _command], ids=["of a process", "of a command"]
)


async def _message_for(connect: Connect, kubeconfig: Path) -> TrainerKaiError:
    """Return what comes of an attempt that must fail, as one line."""
    with pytest.raises(TrainerKaiError) as raised:
        await _request(connect, kubeconfig)
    assert "\n" not in str(raised.value)
    return raised.value


async def _request(connect: Connect, kubeconfig: Path) -> None:
    async with connect(kubeconfig) as given:
        client = given.with_retry_policy(RetryPolicy(total_s=0.5))
        await client.list(ListTarget(CONFIG_MAPS, "default"))


def _changed(cluster: Cluster, file: Path, where: str, fields: Kubeconfig) -> Path:
    """Write the administrator's kubeconfig with some fields of its cluster or user changed."""
    config: Kubeconfig = json.loads(cluster.kubeconfig.read_text())
    config[f"{where}s"][0][where].update(fields)
    file.write_text(json.dumps(config))
    return file


@BOTH
async def test_a_wrong_authority(connect: Connect, cluster: Cluster, tmp_path: Path) -> None:
    """A cluster that was made anew under the same address has a new authority."""
    other = base64.b64encode(Authority.create(tmp_path).pem).decode()
    fields = {"certificate-authority-data": other}
    kubeconfig = _changed(cluster, tmp_path / "config", "cluster", fields)

    error = await _message_for(connect, kubeconfig)

    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"context chain of {kubeconfig}: certificate-authority: ")
    assert "set it to the current CA of this cluster" in str(error)


@BOTH
async def test_a_wrong_name(connect: Connect, cluster: Cluster, tmp_path: Path) -> None:
    """A certificate for another name is trusted by nobody, and the field to set is named."""
    fields = {"tls-server-name": "elsewhere.example"}
    kubeconfig = _changed(cluster, tmp_path / "config", "cluster", fields)

    error = await _message_for(connect, kubeconfig)

    assert isinstance(error, ConfigError)
    assert "tls-server-name: " in str(error)
    assert "set it to a name in the certificate" in str(error)


@BOTH
async def test_an_unreachable_server(connect: Connect, cluster: Cluster, tmp_path: Path) -> None:
    """Nobody listens: the address and where it came from are named."""
    server = f"https://127.0.0.1:{cluster.free_port()}"
    kubeconfig = _changed(cluster, tmp_path / "config", "cluster", {"server": server})

    error = await _message_for(connect, kubeconfig)

    assert isinstance(error, Unavailable)
    assert not error.was_sent
    assert f"cannot connect to {server}, from context chain of {kubeconfig}" in str(error)


@BOTH
async def test_an_expired_token(connect: Connect, cluster: Cluster, tmp_path: Path) -> None:
    """A token that was good once: renew it."""
    account = await cluster.api.get(SERVICE_ACCOUNTS, "default", "default")
    uid = account["metadata"]["uid"]
    for lifetime_s, is_good in ((600, True), (-600, False)):
        token = _service_account_token(cluster.layout.service_accounts, uid, lifetime_s)
        kubeconfig = _changed(cluster, tmp_path / "config", "user", {"token": token})
        error = await _message_for(connect, kubeconfig)
        if is_good:  # so that it is the date and nothing else that is wrong with the other
            assert isinstance(error, Forbidden)
        else:
            assert isinstance(error, Unauthorized)
            assert "renew it, or log in again" in str(error)
            assert f"context chain of {kubeconfig}" in str(error)


@BOTH
async def test_a_forbidden_resource(connect: Connect, cluster: Cluster) -> None:
    """RBAC says no: who may not do what, and what would allow it."""
    kubeconfig = await cluster.service_account_kubeconfig("default", "default")

    error = await _message_for(connect, kubeconfig)

    assert isinstance(error, Forbidden)
    for part in (
        'User "system:serviceaccount:default:default" cannot list resource "configmaps"',
        "grant the permission with a Role and a RoleBinding",
    ):
        assert part in str(error)


async def test_an_account_stands_in_its_namespace(cluster: Cluster, namespace: str) -> None:
    """With the kubeconfig that `e2e.cluster kubeconfig` writes, as in a pod of its own."""
    account = await asyncio.to_thread(kubeconfig_path, cluster.name, f"{namespace}/default")

    for kubeconfig, where in ((account, namespace), (cluster.kubeconfig, "default")):
        async with _command(kubeconfig) as client:
            assert client.rest_config.namespace == where


def _service_account_token(keys: KeyPair, uid: str, lifetime_s: int) -> str:
    """Sign a token of the account default/default that was made in the past."""
    key = load_pem_private_key(keys.key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = int(time.time())
    claims = {
        "iss": "https://kubernetes.default.svc",
        "aud": ["https://kubernetes.default.svc"],
        "sub": "system:serviceaccount:default:default",
        "iat": now - 3600,
        "nbf": now - 3600,
        "exp": now + lifetime_s,
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "default", "uid": uid},
        },
    }
    head = b".".join(map(_part, ({"alg": "ES256", "typ": "JWT"}, claims)))
    r, s = decode_dss_signature(key.sign(head, ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return (head + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def _part(section: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(section).encode()).rstrip(b"=")
