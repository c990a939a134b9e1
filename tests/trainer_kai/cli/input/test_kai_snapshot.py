"""A snapshot of KAI's scheduler is read like files of objects, and its size is bounded."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import bind_request, group, node, pod, queue
from trainer_kai.api.meta import Key
from trainer_kai.cli.input.cluster import read_cluster
from trainer_kai.cli.input.documents import read_files
from trainer_kai.cli.input.kai_snapshot import unpack
from trainer_kai.errors import ConfigError


def bare(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object as Go's listers hold it: without its kind."""
    return {name: it for name, it in obj.items() if name not in {"apiVersion", "kind"}}


def zipped(whole: Any, member: str = "snapshot.json") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, whole if isinstance(whole, bytes | str) else json.dumps(whole))
    return file.getvalue()


SNAPSHOT = {
    "config": {
        "actions": "allocate, reclaim",
        "tiers": [{"plugins": [{"name": "proportion", "arguments": {"kValue": "2"}}]}],
    },
    "schedulerParams": {"schedulerName": "other"},
    "rawObjects": {
        "nodes": [bare(node("n"))],
        "pods": [bare(pod("p", "g"))],
        "podGroups": [bare(group("g"))],
        "queues": [bare(queue("team-a"))],
        "bindRequests": [bare(bind_request("p", "n"))],
        "configMaps": [{"metadata": {"name": "c", "namespace": "default"}}],
        "csiDrivers": [{"metadata": {"name": "d"}}],
        "priorityClasses": None,
    },
}


def test_a_snapshot_is_read_like_files(tmp_path: Path) -> None:
    """Its objects, and the configuration of the scheduler."""
    (tmp_path / "snapshot.zip").write_bytes(zipped(SNAPSHOT))

    inputs = read_cluster(read_files([str(tmp_path / "snapshot.zip")], unpack))

    assert list(inputs.cluster.nodes) == ["n"]
    assert inputs.cluster.pods[Key("default", "p")].spec.node_name == "n"
    ((_, config),) = inputs.configs
    on = {name for name, it in config.spec.actions.items() if it.enabled}
    assert on == {"allocate", "reclaim"}
    assert config.spec.only
    assert config.spec.plugins["proportion"].arguments == {"kValue": "2"}
    assert config.spec.args == {"scheduler-name": "other"}


def test_missing_scheduler_settings_have_their_defaults() -> None:
    """Actions and plugins that are left out are KAI's."""
    inputs = read_cluster(unpack("a.zip", zipped({"rawObjects": {}})))

    ((_, config),) = inputs.configs
    assert (config.spec.actions, config.spec.plugins, config.spec.only) == ({}, {}, False)


def test_what_else_a_snapshot_holds_is_reported() -> None:
    """A part or a list that is misspelt would be missing without a word."""
    whole: dict[str, Any] = {"confg": {}, "rawObjects": {"podGroup": [], "nodes": None}}

    notes = read_cluster(unpack("a.zip", zipped(whole))).notes

    assert notes == ["ignored: snapshot.json confg (1)", "ignored: snapshot.json podGroup (1)"]


BROKEN = [
    Case("a file that is no archive is refused", b"PK\x03\x04", "cannot be unpacked"),
    Case("an archive without a snapshot is refused", zipped({}, "a.json"), "has no snapshot.json"),
    Case("a snapshot that is no JSON is refused", zipped("{"), "snapshot.json is not valid JSON"),
    Case("a snapshot that is no object is refused", zipped([]), "snapshot.json is not an object"),
    Case("a snapshot without objects is refused", zipped({"config": {}}), "has no rawObjects"),
    Case(
        "objects that are no list are refused",
        zipped({"rawObjects": {"pods": {"a": 1}}}),
        "rawObjects.pods must be a list",
    ),
    Case(
        "an item that is no object is refused",
        zipped({"rawObjects": {"pods": [1]}}),
        "rawObjects.pods has an item",
    ),
    Case(
        "an archive that expands too far is refused",
        zipped(b" " * 3_000_000),
        "snapshot.json is larger than 2 MiB",
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=ids)
def test_what_is_no_snapshot_is_reported(case: Case[bytes, str]) -> None:
    """In plain words, with the name of the file."""
    with pytest.raises(ConfigError, match=case.want) as caught:
        list(unpack("a.zip", case.given, 2 * 1024 * 1024))

    assert str(caught.value).startswith("a.zip: ")
