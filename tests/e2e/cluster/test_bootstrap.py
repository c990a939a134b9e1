"""What a cluster finds in its run folder."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.bootstrap import write_files
from e2e.cluster.catalog import Catalog
from e2e.cluster.certificates import Authority, write_service_account_keys
from e2e.cluster.kubeconfig import Credentials, make_tokens
from tests.support.cluster_layout import KWOK, make_layout

CATALOG = Catalog(
    crds=[], jobset_webhooks=[], trainer_webhooks=[], runtimes=[], kwok=KWOK, versions={}
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run folder with every file written."""
    credentials = Credentials("https://127.0.0.1:3", b"authority", make_tokens())
    write_files(make_layout(tmp_path), CATALOG, credentials)
    return tmp_path


@pytest.mark.parametrize(("name", "health", "webhook"), [("jobset", 5, 4), ("trainer", 7, 6)])
def test_a_manager_serves_on_loopback(run: Path, name: str, health: int, webhook: int) -> None:
    """Health, webhook and metrics of a manager are for this machine, or not there."""
    config: dict[str, Any] = json.loads((run / f"{name}.yaml").read_text())

    assert config["health"] == {"healthProbeBindAddress": f"127.0.0.1:{health}"}
    assert (config["webhook"]["host"], config["webhook"]["port"]) == ("127.0.0.1", webhook)
    assert config["metrics"] == {"bindAddress": "0"}


def test_secrets_are_for_the_owner(run: Path) -> None:
    """Tokens and private keys cannot be read by other users of the machine."""
    keys = [Authority.create(run).serve_loopback(run).key, write_service_account_keys(run).key]
    secrets = [run / "tokens.csv", *(run / "kubeconfigs").iterdir(), *keys]

    assert len(secrets) == 1 + len(make_tokens()) + len(keys)
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}
