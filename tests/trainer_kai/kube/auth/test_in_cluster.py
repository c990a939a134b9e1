"""A pod finds its API server by what every pod is given."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.kubeconfig import in_cluster_config, is_in_cluster
from trainer_kai.kube.auth.rest_config import ServerTrust


@pytest.fixture
def account(tmp_path: Path) -> Path:
    for name, content in (("token", "t\n"), ("ca.crt", "ca"), ("namespace", "n\n")):
        (tmp_path / name).write_text(content)
    return tmp_path


SERVERS: list[Case[Mapping[str, str], str]] = [
    Case("host and port", {"HOST": "10.0.0.1", "PORT": "6443"}, "https://10.0.0.1:6443"),
    Case("an address of six", {"HOST": "fd00::1", "PORT": "443"}, "https://[fd00::1]:443"),
    Case("a name", {"HOST": "kube", "PORT": "1"}, "https://kube:1"),
    Case("no port", {"HOST": "10.0.0.1"}, "https://10.0.0.1:443"),
    Case("an empty port", {"HOST": "10.0.0.1", "PORT": ""}, "https://10.0.0.1:443"),
]


@pytest.mark.parametrize("case", SERVERS, ids=ids)
def test_the_address(account: Path, case: Case[Mapping[str, str], str]) -> None:
    environ = {f"KUBERNETES_SERVICE_{name}": value for name, value in case.given.items()}

    assert is_in_cluster(environ)
    assert in_cluster_config(environ, VirtualClock(), account).server == case.want


@pytest.mark.parametrize("environ", [{}, {"KUBERNETES_SERVICE_HOST": ""}])
def test_elsewhere_there_is_no_pod(environ: Mapping[str, str]) -> None:
    """A variable that is empty says nothing."""
    assert not is_in_cluster(environ)


async def test_the_account(account: Path) -> None:
    """Its token, its authority, its namespace; without TLS tricks and without proxy."""
    rest_config = in_cluster_config({"KUBERNETES_SERVICE_HOST": "h"}, VirtualClock(), account)

    assert await rest_config.credentials.authorization() == "Bearer t"
    assert rest_config.trust == ServerTrust("ca")
    assert (rest_config.namespace, rest_config.proxy, rest_config.certificate) == ("n", "", None)
    assert rest_config.origin == "the ServiceAccount of the pod"


@pytest.mark.parametrize("name", ["ca.crt", "namespace"])
def test_an_account_that_is_not_mounted(account: Path, name: str) -> None:
    """The file is named, and the usual reason."""
    (account / name).unlink()

    with pytest.raises(ConfigError, match=f"^{account / name}: No such file.*automountService"):
        in_cluster_config({"KUBERNETES_SERVICE_HOST": "h"}, VirtualClock(), account)


def test_an_empty_namespace_is_the_default_one(account: Path) -> None:
    """A file that is empty names none."""
    (account / "namespace").write_text("\n")

    rest_config = in_cluster_config({"KUBERNETES_SERVICE_HOST": "h"}, VirtualClock(), account)

    assert rest_config.namespace == "default"
