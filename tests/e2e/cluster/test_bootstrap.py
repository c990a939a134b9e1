"""What a cluster finds in its run folder."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.bootstrap import _claims, write_files
from e2e.cluster.catalog import Catalog
from e2e.cluster.kubeconfig import Credentials, make_tokens
from e2e.cluster.kwok_stages import all_stages
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


def test_kwok_gets_every_stage(run: Path) -> None:
    """The stages are one file of several documents."""
    documents = (run / "stages.yaml").read_text().split("\n---\n")

    assert [json.loads(document) for document in documents] == all_stages(KWOK)


@pytest.mark.parametrize(("name", "health", "webhook"), [("jobset", 5, 4), ("trainer", 7, 6)])
def test_a_manager_serves_on_loopback(run: Path, name: str, health: int, webhook: int) -> None:
    """Health, webhook and metrics of a manager are for this machine, or not there."""
    config: dict[str, Any] = json.loads((run / f"{name}.yaml").read_text())

    assert config["health"] == {"healthProbeBindAddress": f"127.0.0.1:{health}"}
    assert (config["webhook"]["host"], config["webhook"]["port"]) == ("127.0.0.1", webhook)
    assert config["metrics"] == {"bindAddress": "0"}


def test_trainer_gets_its_certificate_where_it_looks(run: Path) -> None:
    """Below its TMPDIR lie the files that the other servers use."""
    folder = run / "trainer-tmp" / "k8s-webhook-server" / "serving-certs"

    assert {file.name: file.readlink() for file in folder.iterdir()} == {
        "tls.crt": run / "pki" / "serving" / "tls.crt",
        "tls.key": run / "pki" / "serving" / "tls.key",
    }


def test_secrets_are_for_the_owner(run: Path) -> None:
    """Tokens can be read by nobody else on the machine."""
    secrets = [run / "tokens.csv", *(run / "kubeconfigs").iterdir()]

    assert len(secrets) == 1 + len(make_tokens())
    assert {stat.S_IMODE(file.stat().st_mode) for file in secrets} == {0o600}


def test_claims_that_runtimes_name_are_made() -> None:
    """Several pods of one runtime share a claim; other volumes need none."""
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "of-its-user"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"volumes": volumes}}}}}
    bare = {"name": "bare", "template": {"spec": {"template": {}}}}
    runtime = {"spec": {"template": {"spec": {"replicatedJobs": [job, job, bare]}}}}

    assert [(claim["kind"], claim["metadata"]) for claim in _claims([runtime])] == [
        ("PersistentVolumeClaim", {"namespace": "default", "name": "of-its-user"})
    ]
